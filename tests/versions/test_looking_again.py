"""What asks for old versions looks again where vacuum has taken an object away while it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_pages.errors import ObjectNotFoundError, SnapshotExpiredError
from spark_pages.tables.store import Store
from tests.tables.stores import metered, store_with
from tests.versions import hand
from tests.versions.hand import numbers

WORK: dict[str, Callable[[Store], Any]] = {
    "restore": lambda store: store.restore(version=2),
    "changes": lambda store: store.changes(2, 3, grain="rows").column("first_row").to_pylist(),
    "blame": lambda store: store.blame("t", "n", 3).version,
}


@pytest.fixture
def updated() -> Store:
    """Table ``t`` has ten rows at version 2, of which one is updated at 3."""
    store = store_with(numbers(0, 10))
    store.checkpoint()
    with store.transaction() as txn:
        txn.update("t", "n", rows=[3], values=[0])
    return store


def losing_once(store: Store, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> Store:
    """The same store, where the first segment or part asked for has just been taken away."""
    late, meter = metered(store)
    get, lost = meter.get, []

    def get_or_lose(key: str) -> bytes:
        if key.startswith(("_log/segments/", "_log/parts/")) and not lost:
            lost.append(key)
            then()
            raise ObjectNotFoundError(f"There is no object {key!r}.", key=key)
        return get(key)

    monkeypatch.setattr(meter, "get", get_or_lose)
    return late


@pytest.mark.parametrize(("work", "answer"), [("restore", 4), ("changes", [3]), ("blame", 3)])
def test_the_second_look_gives_the_answer(updated, monkeypatch, work, answer):
    late = losing_once(updated, monkeypatch, then=lambda: None)

    assert WORK[work](late) == answer


def test_a_transaction_that_looks_again_still_sees_what_it_has_staged(updated):
    with updated.transaction() as txn:
        txn.append("t", numbers(10, 12))
        table = txn.table("t")
        table.directory.reopen(ObjectNotFoundError("An object of its checkpoint is gone."))

        assert table.num_rows == table.read().num_rows == 12


@pytest.mark.parametrize("work", ["restore", "changes"])
def test_where_retention_has_passed_the_version_that_is_said(updated, monkeypatch, work):
    late = losing_once(updated, monkeypatch, then=lambda: hand.retain(updated, 3))

    with pytest.raises(SnapshotExpiredError, match=r"Version 2 .*versions 3 to 4"):
        WORK[work](late)
