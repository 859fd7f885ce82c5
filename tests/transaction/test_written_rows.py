"""Rows that other processes have written come into a table by one commit, whoever lists their pages."""

from __future__ import annotations

import pickle
from contextlib import nullcontext

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    CommitConflictError,
    ConstraintError,
    InvalidInputError,
    SchemaMismatchError,
    SnapshotExpiredError,
)
from spark_pages.runtime import Runtime
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.writing import FEW_BYTES, TaskRows, commit_write, plan_write, write_task
from spark_pages.store import Store
from spark_pages.transaction.placement import MANIFEST_PAGES
from spark_pages.transaction.written_rows import LISTED_PAGES, WrittenRows, write_rows
from tests.invariants import check_store

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    return pa.table(
        {"n": range(first, first + count), "text": [f"text number {first + i}" for i in range(count)]}
    )


@pytest.fixture
def store(url: str) -> sp.Store:
    store = sp.create(url, properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"page_bytes": "1024"})
        txn.append("t", rows(0, 10))
    return store


def written(store: sp.Store, first: int, count: int) -> WrittenRows:
    snapshot = store.snapshot()
    definition = snapshot.table("t").definition
    told = write_rows(store.object_store, Runtime(), definition, snapshot.version, rows(first, count))
    return pickle.loads(pickle.dumps(told))  # noqa: S301 - it crosses between processes


def numbers(store: sp.Store) -> list[int]:
    return list(store.snapshot().table("t").read(["n"])["n"].to_pylist())


def test_few_pages_ride_in_the_commit_and_many_stay_in_manifests(store: sp.Store) -> None:
    parts = [written(store, 10, 40_000), written(store, 40_010, 500), written(store, 40_510, 30_000)]

    with store.transaction(read_version=1) as txn:
        txn.append_written("t", parts)

    (commit,) = store._log.commits(2, 3)
    assert [isinstance(part.listing, bytes) for part in parts] == [False, True, False]
    assert commit.records[0].pages.num_rows == parts[1].num_pages <= LISTED_PAGES
    assert [each.num_pages for each in commit.records[0].manifests] == [
        parts[0].num_pages,
        parts[2].num_pages,
    ]
    assert numbers(store) == list(range(70_510))
    assert store.verify("all").ok
    store.checkpoint()
    assert numbers(sp.open(store.url)) == list(range(70_510))
    check_store(store)


def test_many_short_lists_become_one_manifest(store: sp.Store) -> None:
    parts = [written(store, 10 + 5000 * i, 5000) for i in range(10)]
    assert all(isinstance(part.listing, bytes) for part in parts)
    assert sum(part.num_pages for part in parts) > MANIFEST_PAGES

    with store.transaction(read_version=1) as txn:
        txn.append_written("t", parts)

    (commit,) = store._log.commits(2, 3)
    assert len(commit.records[0].manifests) == 1
    assert commit.records[0].pages.num_rows == 0
    assert numbers(store) == list(range(50_010))


def test_what_was_written_for_an_old_version_lands_behind_what_came_since(store: sp.Store) -> None:
    part = written(store, 100, 5000)
    with store.transaction() as txn:
        txn.append("t", rows(10, 5))

    with store.transaction(read_version=1) as txn:
        txn.append_written("t", [part])

    assert numbers(store) == [*range(15), *range(100, 5100)]
    touched = store.changes(3, 3, granularity="rows").to_pylist()
    assert [(row["first_row"], row["end_row"]) for row in touched] == [(15, 5015)] * 2


def test_an_overwrite_conflicts_with_an_append_that_came_since(store: sp.Store) -> None:
    plan = plan_write(store.url, SCHEMA, True, WriteOptions("t"))
    task = write_task(plan, 0, iter(rows(100, 5000).to_batches()))
    with store.transaction() as txn:
        txn.append("t", rows(10, 5))

    with pytest.raises(CommitConflictError):
        commit_write([task])

    assert numbers(store) == list(range(15))


def test_rows_written_before_what_vacuum_has_passed_are_refused(store: sp.Store) -> None:
    part = written(store, 100, 5000)
    for first in range(10, 15):
        with store.transaction() as txn:
            txn.append("t", rows(first, 1))
    store.vacuum(retention=1)

    with pytest.raises(SnapshotExpiredError), store.transaction(read_version=1) as txn:
        txn.append_written("t", [part])


@pytest.mark.parametrize("is_newest", [False, True], ids=["a version that was known", "the newest version"])
def test_rows_written_for_an_older_version_than_the_transaction_reads_are_refused(
    store: sp.Store, is_newest: bool
) -> None:
    """A vacuum takes their pages for orphans, and a transaction that has read later would not hear of it."""
    part = written(store, 100, 5000)
    for first in range(10, 15):
        with store.transaction() as txn:
            txn.append("t", rows(first, 1))
    store.vacuum(retention=1, orphans=True)
    txn = store.transaction(read_version=store.snapshot().version if is_newest else None)

    with pytest.raises(InvalidInputError, match=r"written for version 1: this transaction stands on version"):
        txn.append_written("t", [part])


@pytest.mark.parametrize("key", [105, 9_000])
def test_keys_of_written_rows_are_compared_with_those_that_came_since_their_version_was_known(
    store: sp.Store, key: int
) -> None:
    with store.transaction() as txn:
        txn.set_nullable("t", "n", False)
        txn.add_constraint("t", "key", primary_key=["n"])
    part = written(store, 100, 5000)
    with sp.open(store.url).transaction() as other:
        other.append("t", rows(key, 1))

    txn = store.transaction()
    txn.append_written("t", [part])
    with nullcontext() if key > 5100 else pytest.raises(ConstraintError, match="'n': 105"):
        txn.commit()

    found = numbers(Store(store.object_store))
    assert len(set(found)) == len(found)
    check_store(store)


def test_of_several_attempts_of_a_task_one_counts(store: sp.Store) -> None:
    plan = plan_write(store.url, SCHEMA, False, WriteOptions("t"))
    batches = rows(10, 5000).to_batches()

    first, again = (write_task(plan, 0, iter(batches)) for _ in range(2))
    commit_write([again])

    assert isinstance(first.rows, WrittenRows)
    assert numbers(store) == list(range(5010))


def test_few_rows_between_many_keep_their_place(store: sp.Store) -> None:
    plan = plan_write(store.url, SCHEMA, False, WriteOptions("t"))
    sizes = [20, 8000, 30, 40, 9000, 5]
    tasks: list[TaskRows] = []
    first = 10
    for partition, size in enumerate(sizes):
        tasks.append(write_task(plan, partition, iter(rows(first, size).to_batches())))
        first += size

    commit_write(reversed(tasks))

    assert [isinstance(task.rows, bytes) for task in tasks] == [size < 1000 for size in sizes]
    assert rows(0, 20).nbytes < FEW_BYTES
    assert numbers(store) == list(range(first))


def test_a_value_that_does_not_fit_fails_the_task_that_has_it(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.create_table("small", pa.schema([("n", pa.int8())]))
    plan = plan_write(store.url, pa.schema([("n", pa.int64())]), False, WriteOptions("small"))

    with pytest.raises(SchemaMismatchError, match="'n' of 'small': it holds int8"):
        write_task(plan, 0, iter(rows(0, 50_000).select(["n"]).to_batches()))
