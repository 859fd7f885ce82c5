"""Random deletes, updates and appends of several transactions against a plain model of numbered rows."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.transaction import deleted_rows
from tests.effort import examples
from tests.property.deletes import SCHEMA, Model, check, mirror, race, table_of
from tests.transaction.stores import QUIET

PICKS = st.lists(st.integers(0, 999), max_size=9)
KINDS = st.sampled_from(["delete", "update", "append"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "truncate", "restore", "overwrite"]), st.integers(0, 30)),
        st.tuples(st.sampled_from(["delete", "update", "update and delete", "delete twice"]), PICKS),
        st.tuples(st.just("delete where"), st.integers(0, 23)),
        st.tuples(st.sampled_from(["checkpoint", "compact pages", "purge", "compact log"]), st.none()),
        st.tuples(st.just("race"), st.tuples(st.tuples(KINDS, PICKS), st.tuples(KINDS, PICKS))),
    ),
    max_size=12,
)


def append(model: Model, count: int) -> None:
    values = model.new_rows(count)
    with model.store.transaction() as txn:
        txn.append("t", table_of(values))
    model.append(values)


def delete(model: Model, picks: list[int]) -> None:
    rows = model.some(picks)
    with model.store.transaction() as txn:
        assert txn.delete("t", rows[::-1]) == len(rows)
        assert txn.delete("t", rows) == 0
    model.delete(rows)


def delete_twice(model: Model, picks: list[int]) -> None:
    rows = model.some(picks)
    dead = [row for row in range(model.end_row) if row not in model.rows][:3]
    with model.store.transaction() as txn:
        assert txn.delete("t", [*dead, *rows]) == len(rows)
    model.delete(rows)


def delete_where(model: Model, bound: int) -> None:
    rows = [row for row, (n, _) in model.rows.items() if n is not None and n < bound]
    with model.store.transaction() as txn:
        assert txn.delete("t", where=f"n < {bound}") == len(rows)
    model.delete(rows)


def update(model: Model, picks: list[int]) -> None:
    rows = model.some(picks)
    with model.store.transaction() as txn:
        txn.update_rows("t", rows, {"n": [99] * len(rows)})
    model.update(rows, 99)


def update_and_delete(model: Model, picks: list[int]) -> None:
    rows = model.some(picks)
    with model.store.transaction() as txn:
        txn.update_rows("t", rows, {"n": [77] * len(rows)})
        txn.delete("t", where="n = 77")
    model.update(rows, 77)
    model.delete([row for row, (n, _) in model.rows.items() if n == 77])


def overwrite(model: Model, count: int) -> None:
    values = model.new_rows(count)
    with model.store.transaction() as txn:
        assert txn.delete("t", where=True) == len(model.rows)
        txn.append("t", table_of(values))
    model.rows = {}
    model.append(values)


def truncate(model: Model, _: int) -> None:
    with model.store.transaction() as txn:
        txn.truncate_table("t")
    model.rows, model.end_row = {}, 0


def restore(model: Model, number: int) -> None:
    version = sorted(model.versions)[number % len(model.versions)]
    model.store.restore(version=version)
    rows, model.end_row = model.versions[version]
    model.rows = dict(rows)


DO: dict[str, Callable] = {
    "append": append,
    "delete": delete,
    "delete twice": delete_twice,
    "delete where": delete_where,
    "update": update,
    "update and delete": update_and_delete,
    "overwrite": overwrite,
    "truncate": truncate,
    "restore": restore,
    "race": lambda model, both: race(model, *both),
    "checkpoint": lambda model, _: model.store.checkpoint(),
    "compact pages": lambda model, _: model.store.compact_pages("t"),
    "purge": lambda model, _: model.store.compact_pages("t", purge=True),
    "compact log": lambda model, _: model.store.compact_log(),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks in pages of eight rows, so that few rows have many of them."""
    monkeypatch.setattr(deleted_rows, "BLOCK_ROWS", 8)
    monkeypatch.setattr(deleted_rows, "CONSTANT_ROWS", 20)
    monkeypatch.setattr(deleted_rows, "MOST_RANGES", 3)


def after(steps: list[tuple[str, object]], merges_tails: bool = False) -> Model:
    url = f"memory://{uuid4().hex}"
    properties = QUIET | ({"tail_page_bytes": "65536"} if merges_tails else {})
    model = Model(sp.create(url, properties=properties))
    with model.store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    append(model, 20)
    model.remember()
    for what, given_ in steps:
        DO[what](model, given_)
        model.remember()
        check(model, model.store.snapshot().table("t"))
    return model


@settings(
    max_examples=examples(24), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS, st.booleans())
def test_a_table_with_deletes_is_a_plain_model_of_numbered_rows(steps, merges_tails):
    model = after(steps, merges_tails)

    anew = sp.open(model.store.url)
    check(model, anew.snapshot().table("t"))
    assert anew.verify("all").ok, anew.verify("all")
    for version, (rows, end_row) in model.versions.items():
        then = Model(anew, rows, end_row)
        check(then, anew.snapshot(version).table("t"))
        mirror(model, version, anew.snapshot().version)
    moved = anew.history().to_pylist()
    assert sum((each["rows_added"] or 0) - (each["rows_removed"] or 0) for each in moved) == len(model.rows)
