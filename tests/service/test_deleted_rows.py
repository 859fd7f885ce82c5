"""Deletes as a connected store sees them: from a checkpoint, from commits after it, and by changes."""

from __future__ import annotations

import spark_pages as sp
from tests.service.stores import store_with_a_past


def numbers(store: sp.Store, version: int | None = None) -> list[int]:
    return store.snapshot(version).table("t").read(["n"]).column(0).to_pylist()


def delete(store: sp.Store, rows: list[int]) -> None:
    with store.transaction() as txn:
        txn.delete("t", rows)


def test_a_connected_store_follows_deletes_from_the_first_on(serve):
    store = store_with_a_past(versions=2)
    client = serve(store).connect()
    before = numbers(client)
    delete(store, [3, 70])
    after_first = numbers(client)
    store.checkpoint()
    delete(store, [4])

    assert len(before) == 80
    assert after_first == [n for n in range(80) if n not in (3, 70)]
    assert numbers(client) == numbers(store) == [n for n in range(80) if n not in (3, 4, 70)]
    assert len(client.snapshot().table("t")) == 77
