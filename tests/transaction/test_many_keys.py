"""The primary key of rows that other processes have written, and of more rows than are compared at once."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import ConstraintError
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.writing import TaskRows, WritePlan, commit_write, plan_write, write_task
from spark_pages.transaction.keys import first_repeated_of_many, key_hashes
from spark_pages.transaction.written_rows import WrittenRows
from tests.effort import examples
from tests.invariants import check_store

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string(), nullable=False)])


def rows(numbers: Iterable[int]) -> pa.Table:
    held = list(numbers)
    return pa.table({"n": held, "text": [f"text number {n}" for n in held]}, SCHEMA)


@pytest.fixture
def store() -> sp.Store:
    return keyed(["n"])


def keyed(key: list[str]) -> sp.Store:
    store = sp.create(f"memory://{uuid4().hex}", properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"page_bytes": "1024"})
        txn.add_constraint("t", "t_key", primary_key=key)
        txn.append("t", rows(range(0, 20_000, 2)))
    return store


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_pages.transaction.keys._ROWS_AT_ONCE", 1000)
    monkeypatch.setattr("spark_pages.transaction.keys.HASHES_AT_ONCE", 3000)


def plan(store: sp.Store, overwrite: bool = False) -> WritePlan:
    return plan_write(store.url, SCHEMA, overwrite, WriteOptions("t"))


def task(of: WritePlan, partition: int, numbers: Iterable[int]) -> TaskRows:
    done = write_task(of, partition, iter(rows(numbers).to_batches()))
    assert isinstance(done.rows, WrittenRows)
    return done


def test_tasks_whose_keys_lie_between_each_other_and_those_that_are_there_are_committed(
    store: sp.Store,
) -> None:
    write = plan(store)

    commit_write([task(write, 0, range(1, 20_000, 4)), task(write, 1, range(3, 20_000, 4))])

    held = store.snapshot().table("t").read(["n"])["n"].to_pylist()
    assert held == [*range(0, 20_000, 2), *range(1, 20_000, 4), *range(3, 20_000, 4)]
    assert store.verify("all").ok
    check_store(store)


@pytest.mark.parametrize(
    ("first", "second", "repeated"),
    [
        ([*range(1, 9_000, 2), 4_001], range(20_001, 24_000), 4_001),
        (range(20_000, 25_000), range(24_999, 30_000), 24_999),
        (range(20_000, 25_000), [*range(30_000, 35_000), 19_998], 19_998),
    ],
    ids=["in a task", "in two tasks", "in the table"],
)
def test_a_key_that_is_there_twice_is_named_and_nothing_is_committed(
    store: sp.Store, first: Iterable[int], second: Iterable[int], repeated: int
) -> None:
    write = plan(store)
    tasks = [task(write, 0, first), task(write, 1, second)]

    with pytest.raises(ConstraintError, match=rf"more than once: .*{repeated}\b"):
        commit_write(tasks)

    assert store.snapshot().version == write.read_version
    assert store.snapshot().table("t").num_rows == 10_000


def test_a_key_of_text_and_numbers_is_compared_whole() -> None:
    store = keyed(["text", "n"])
    write = plan(store)

    with pytest.raises(ConstraintError, match=r"'text number 19998'.*19998"):
        commit_write([task(write, 0, [*range(1, 9_000, 2), 19_998])])
    commit_write([task(write, 0, range(1, 9_000, 2))])

    assert store.snapshot().table("t").num_rows == 14_500


def test_keys_that_an_overwrite_lets_go_may_come_again(store: sp.Store) -> None:
    write = plan(store, overwrite=True)

    commit_write([task(write, 0, range(5_000)), task(write, 1, range(5_000, 10_000))])

    assert store.snapshot().table("t").read(["n"])["n"].to_pylist() == list(range(10_000))


def test_rows_of_tasks_land_behind_an_append_with_other_keys(store: sp.Store) -> None:
    write = plan(store)
    late = task(write, 0, range(20_001, 25_000))
    with store.transaction() as txn:
        txn.append("t", rows([25_000]))

    commit_write([late])

    last = store.snapshot().table("t").read(["n"], start=10_000)["n"].to_pylist()
    assert last == [25_000, *range(20_001, 25_000)]
    check_store(store)


def test_rows_of_tasks_do_not_land_behind_an_append_that_has_a_key_of_theirs(store: sp.Store) -> None:
    write = plan(store)
    late = task(write, 0, range(20_001, 25_000))
    with store.transaction() as txn:
        txn.append("t", rows([20_001]))

    with pytest.raises(ConstraintError, match="20001"):
        commit_write([late])

    assert store.snapshot().table("t").num_rows == 10_001


def test_many_rows_of_one_process_are_compared_in_passes_too(store: sp.Store) -> None:
    with pytest.raises(ConstraintError, match="17998"), store.transaction() as txn:
        txn.append("t", rows([*range(20_000, 30_000), 17_998]))
    with store.transaction() as txn:
        txn.append("t", rows(range(20_000, 30_000)))

    assert store.snapshot().table("t").num_rows == 20_000


_KEYS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "a", "b" * 200]), st.booleans()))


@settings(max_examples=examples(60), deadline=None)
@given(_KEYS, _KEYS, st.integers(1, 7))
def test_hashes_find_what_a_set_of_python_finds(
    new: list[tuple[int, str, bool]], others: list[tuple[int, str, bool]], portion: int
) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.bool_())])

    def portions(keys: list[tuple[int, str, bool]]) -> list[pa.Table]:
        held = pa.table(list(zip(*keys, strict=True)) if keys else [[], [], []], schema=schema)
        return [held.slice(first, portion) for first in range(0, len(keys), portion)] or [held]

    found = first_repeated_of_many(len(new), lambda: iter(portions(new)), lambda: iter(portions(others)))

    meets = len(set(new)) < len(new) or not set(new).isdisjoint(others)
    assert (found is not None) == meets
    if found is not None:
        key = tuple(found.values())
        assert key in new
        assert new.count(key) + others.count(key) > 1


def test_keys_whose_hashes_meet_by_chance_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "spark_pages.transaction.keys.hash_values", lambda array: np.zeros(len(array), np.uint64)
    )

    found = first_repeated_of_many(5, lambda: iter([rows(range(5))]), lambda: iter([rows(range(5, 9))]))

    assert found is None
    assert key_hashes(rows(range(3))).tolist() == [0, 0, 0]
