"""However much a transaction updates, a bounded part of it is in memory, and what it says is the same."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.arrow.stored_types import stored_type
from spark_pages.errors import ConstraintError, StorageError
from spark_pages.io import CacheConfig
from spark_pages.maintenance.compact import compact_table
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from spark_pages.transaction import constraints, rewritten_pages, spill, update_buffer
from spark_pages.transaction.spill import SpillFile
from spark_pages.transaction.transaction import Transaction
from spark_pages.transaction.update_buffer import SortedUpdates, stretches
from tests.effort import examples
from tests.invariants import check_store
from tests.transaction.stores import QUIET, store_with
from tests.transaction.test_ingest import TYPES

MIB = 1 << 20

POOLS: list[pa.MemoryPool] = []
"""What was taken from these may be given back to them as long as the process lives."""


@contextmanager
def peak_bytes() -> Iterator[Callable[[], int]]:
    """Gives the most bytes that Arrow and Python have taken at a time since then, each by itself."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        yield lambda: counted.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def store_without_caches(folder: Path, rows: pa.Table) -> Store:
    url = str(folder / "store")
    with sp.create(url, properties=QUIET).transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    return sp.open(url, cache=CacheConfig(decoded_bytes=0, compressed_bytes=0))


ROWS = 150_000


def many_updates(calls: int = 40) -> list[tuple[np.ndarray, dict[str, pa.Array]]]:
    """Rows all over the table, 1.5 MB with their values in each call."""
    rng = np.random.default_rng(4)
    return [
        (
            rng.permutation(ROWS)[:40_000],
            {
                "n": pa.array(rng.integers(0, 1 << 62, 40_000)),
                "s": pa.array(rng.integers(0, 1 << 62, 40_000)).cast(pa.string()),
            },
        )
        for _ in range(calls)
    ]


def after(before: pa.Table, calls: list[tuple[np.ndarray, dict[str, pa.Array]]]) -> pa.Table:
    """What the table holds then."""
    columns = {name: np.array(before[name].to_pylist(), object) for name in before.column_names}
    for rows, values in calls:
        for name, each in values.items():
            columns[name][rows] = each.to_pylist()
    return pa.table({name: pa.array(each, before[name].type) for name, each in columns.items()})


BEFORE = pa.table({"n": np.arange(ROWS), "s": pa.array(np.arange(ROWS)).cast(pa.string())})


def test_a_transaction_that_updates_many_times_its_memory_stays_below_it(tmp_path):
    store = store_without_caches(tmp_path, BEFORE)
    calls = many_updates()
    given_bytes = sum(rows.nbytes + sum(each.nbytes for each in values.values()) for rows, values in calls)

    with peak_bytes() as peak, store.transaction(memory_bytes=8 * MIB) as txn:
        for rows, values in calls:
            txn.update_rows("t", rows, values)
        updated = peak()
        txn.commit()
        committed = peak()

    assert given_bytes > 7 * 8 * MIB
    assert updated < 1 * MIB
    assert committed < 8 * MIB
    assert store.snapshot().table("t").read().equals(after(BEFORE, calls))


@pytest.mark.slow
def test_one_call_that_brings_many_times_the_memory_stays_below_it(tmp_path):
    store = store_without_caches(tmp_path, BEFORE)
    calls = many_updates()
    rows = np.concatenate([rows for rows, _ in calls])
    given = {name: pa.chunked_array([each[name] for _, each in calls]) for name in BEFORE.column_names}

    with peak_bytes() as peak, store.transaction(memory_bytes=8 * MIB) as txn:
        txn.update_rows("t", rows, given)
        updated = peak()
        txn.commit()
        committed = peak()

    assert updated < 1 * MIB
    assert committed < 8 * MIB
    assert store.snapshot().table("t").read().equals(after(BEFORE, calls))


@pytest.mark.slow
def test_a_transaction_that_reads_what_it_has_updated_stays_below_its_memory(tmp_path):
    noise = [pa.array(np.random.default_rng(seed).integers(0, 1 << 62, 2_000_000)) for seed in range(2)]
    store = store_without_caches(tmp_path, pa.table({"n": noise[0]}))
    rows = np.arange(2_000_000)

    with peak_bytes() as peak, store.transaction(memory_bytes=4 * MIB) as txn:
        txn.update_rows("t", rows, {"n": noise[1]})
        found = txn.table("t").take([0, 1_999_999], ["n"])
        read = peak()

    assert noise[1].nbytes == 16_000_000
    assert read < 6 * MIB
    assert found["n"].to_pylist() == [noise[1][0].as_py(), noise[1][-1].as_py()]
    assert store.snapshot().table("t").read()["n"].combine_chunks().equals(noise[1])
    check_store(store)


def test_what_was_rewritten_to_be_read_is_not_held_for_the_commit():
    noise = [pa.array(np.random.default_rng(seed).integers(0, 1 << 62, 40_000)) for seed in range(2)]
    store = store_with(pa.table({"n": noise[0]}))
    pages = store.object_store.list("pages/")

    with store.transaction(memory_bytes=4 * MIB) as txn:
        txn.update_rows("t", np.arange(40_000), {"n": noise[1]})
        for _ in range(8):  # 0.3 MB each
            assert txn.table("t").take([7], ["n"])["n"].to_pylist() == [noise[1][7].as_py()]
        assert store.object_store.list("pages/") == pages, "a quarter of the memory may wait"

    assert len(store.object_store.list("pages/")) == len(pages) + 1


def test_updates_of_single_rows_need_no_file_and_are_joined_now_and_then(monkeypatch):
    store = store_with(pa.table({"n": range(300)}))
    joined = []
    last_wins = update_buffer.last_wins
    monkeypatch.setattr(
        update_buffer, "last_wins", lambda batches: joined.append(len(batches)) or last_wins(batches)
    )
    monkeypatch.setattr(SpillFile, "put", None)

    with store.transaction(memory_bytes=4 * MIB) as txn:
        for number in range(3_000):
            txn.update_rows("t", [number % 300], {"n": [-number]})

    assert 8 < len(joined) < 30
    assert max(joined) < 300, "a KiB each, a quarter of a MiB together"
    assert store.snapshot().table("t").read()["n"].to_pylist() == [-number for number in range(2_700, 3_000)]


@pytest.fixture
def spilling(monkeypatch) -> list[int]:
    """Whatever is updated goes to the file; gives the rows of each batch that went there."""
    monkeypatch.setattr(update_buffer, "_LEAST_BYTES", 1)
    batches: list[int] = []
    put = SpillFile.put
    monkeypatch.setattr(
        SpillFile, "put", lambda self, batch: batches.append(batch.num_rows) or put(self, batch)
    )
    return batches


def small(store: Store) -> Transaction:
    return store.transaction(memory_bytes=16 << 10)  # of which a KiB is for updates


def numbers(store: Store) -> list[int]:
    return store.snapshot().table("t").read()["n"].to_pylist()


# what is in the file


PLACES = np.arange(0, 301, dtype=np.int32)
LABELS = TYPES["small dictionary"]
MORE_TYPES = TYPES | {
    "uuid": pa.array([i.to_bytes(16, "big") for i in range(300)], pa.uuid()),
    "list view": pa.array([[i] * (i % 4) for i in range(300)], pa.list_view(pa.int64())),
    "lists of views": pa.array([[f"longer than twelve {i}"] for i in range(300)], pa.list_(pa.string_view())),
    "lists of dictionaries": pa.ListArray.from_arrays(pa.array(PLACES), LABELS),
    "list views of dictionaries": pa.ListViewArray.from_arrays(
        pa.array(PLACES[:-1]), pa.array([1] * 300, pa.int32()), LABELS
    ),
    "struct of dictionaries": pa.StructArray.from_arrays([LABELS, TYPES["dictionary"]], ["a", "b"]),
    "lists of runs": pa.ListArray.from_arrays(pa.array(PLACES), TYPES["run ends"]),
    "dictionary with nulls": pa.DictionaryArray.from_arrays(
        pa.array([None if i % 7 == 0 else i % 3 for i in range(300)], pa.int8()), pa.array(["x", "y", "z"])
    ),
    "union": pa.UnionArray.from_dense(
        pa.array([i % 2 for i in range(300)], pa.int8()),
        pa.array([i // 2 for i in range(300)], pa.int32()),
        [pa.array(range(150)), pa.array([f"{i}" for i in range(150)])],
    ),
}


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", MORE_TYPES)
def test_values_of_every_type_are_the_same_when_they_come_back(name, spilling):
    values = MORE_TYPES[name]
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn._page_bytes = 128
        txn.create_table("t", pa.schema([("v", values.type)]))
        txn.append("t", pa.table({"v": values}))
    backwards = [each.as_py() for each in values][::-1]

    with small(store) as txn:
        txn.update_rows("t", np.arange(300), {"v": values})
        txn.update_rows("t", np.arange(299, 99, -1), {"v": values.slice(0, 200)})
        txn.update_rows("t", [5, 7, 5], {"v": values.slice(0, 3)})

    expected = [*values.to_pylist()[:100], *backwards[100:]]
    expected[7], expected[5] = values[1].as_py(), values[2].as_py()
    found = store.snapshot().table("t").read()["v"]
    found.validate(full=True)
    assert len(spilling) > 2 or name == "null"
    assert found.type == stored_type(values.type)
    assert found.to_pylist() == expected


def test_a_slice_of_an_array_with_a_large_dictionary_brings_the_values_that_it_shows(spilling):
    labels = pa.array([f"label {number}" for number in range(50_000)]).dictionary_encode()
    store = store_with(pa.table({"v": labels.slice(0, 200)}))

    with store.transaction(memory_bytes=1 << 20) as txn, peak_bytes() as peak:
        for start in range(0, 50_000, 200):
            txn.update_rows("t", np.arange(200), {"v": labels.slice(start, 200)})
        txn.commit()
        most = peak()

    assert labels.nbytes > 900_000
    assert most < 1 << 20
    assert store.snapshot().table("t").read()["v"].to_pylist() == labels.slice(49_800).to_pylist()


def test_a_column_that_is_widened_renamed_or_dropped_takes_its_updates_along(spilling):
    rows = pa.table({"a": pa.array([1] * 300, pa.int8()), "b": ["x"] * 300, "c": [0] * 300})
    store = store_with(rows)

    with small(store) as txn:
        txn.update_rows("t", np.arange(300), {"a": [2] * 300, "b": ["y"] * 300, "c": [1] * 300})
        txn.widen_column("t", "a", pa.int64())
        txn.rename_column("t", "b", "d")
        txn.drop_column("t", "c")
        txn.update_rows("t", [7, 8], {"a": [1 << 40, 9]})

    expected = {"a": [2] * 7 + [1 << 40, 9] + [2] * 291, "d": ["y"] * 300}
    assert spilling
    assert store.snapshot().table("t").read().to_pydict() == expected


@pytest.mark.parametrize("memory_bytes", [16 << 10, 16 << 20])
def test_a_column_that_is_widened_to_the_type_that_it_has_keeps_its_updates(spilling, memory_bytes):
    values = MORE_TYPES["list views of dictionaries"]
    store = store_with(pa.table({"v": values}))

    with store.transaction(memory_bytes=memory_bytes) as txn:
        txn.update_rows("t", np.arange(300), {"v": values.slice(0, 300).take(np.arange(299, -1, -1))})
        txn.widen_column("t", "v", values.type)

    assert store.snapshot().table("t").read()["v"].to_pylist() == values.to_pylist()[::-1]


@pytest.mark.parametrize("inside", [False, True])
def test_values_of_a_dictionary_that_the_caller_changes_afterwards_are_what_he_gave(inside):
    offsets, characters = np.arange(4, dtype=np.int32), bytearray(b"xyz")
    labels = pa.Array.from_buffers(pa.string(), 3, [None, *map(pa.py_buffer, (offsets, characters))])
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), labels)
    if inside:
        values = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), values)
    expected = values.to_pylist()
    store = store_with(pa.table({"v": values}))

    with store.transaction() as txn:
        txn.update_rows("t", [0, 1, 2], {"v": values})
        txn.append("t", {"v": values})
        characters[:] = b"???"

    assert store.snapshot().table("t").read()["v"].to_pylist() == expected * 2


def test_the_file_is_gone_with_the_transaction_and_was_never_in_its_folder(spilling, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = store_with(pa.table({"n": range(300)}))
    ends: dict[str, Callable[[Transaction], object]] = {
        "commit": Transaction.commit,
        "rollback": Transaction.rollback,
    }

    for end in ends.values():
        before = sorted(os.listdir("/proc/self/fd"))
        txn = small(store)
        txn.update_rows("t", np.arange(300), {"n": -np.arange(300)})
        txn.table("t").read()
        assert not list(tmp_path.iterdir())
        assert len(os.listdir("/proc/self/fd")) > len(before)
        end(txn)
        assert sorted(os.listdir("/proc/self/fd")) == before

    assert spilling


AT_EXIT = """
import atexit
atexit.register(lambda: print(commit()))  # before all that others register, so it runs after them
import pyarrow as pa
import spark_pages as sp
store = sp.create("memory://at-exit")
with store.transaction() as txn:
    txn.create_table("t", pa.schema([("n", pa.int64())]))
    txn.append("t", {"n": range(10_000)})
txn = store.transaction(memory_bytes=1 << 20)
txn.update_rows("t", range(10_000), {"n": [7] * 10_000})
def commit():
    txn.update_rows("t", range(10_000), {"n": [8] * 10_000})
    txn.commit()
    return store.snapshot().table("t").read()["n"].unique().to_pylist()
"""


def test_the_file_is_there_until_the_interpreter_has_ended():
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[8]\n", "")


def test_a_forked_process_writes_no_file_of_the_one_that_it_comes_from():
    file = SpillFile()
    before = file.put(pa.record_batch({"n": [1, 2]}))

    context = multiprocessing.get_context("fork")
    answers, written = context.SimpleQueue(), context.Event()

    def child() -> None:
        own = file.put(pa.record_batch({"n": [7] * 1000}))
        answers.put(None)
        written.wait()
        answers.put((before.open().to_pydict(), own.open().to_pydict()))

    process = context.Process(target=child)
    process.start()
    answers.get()
    own = file.put(pa.record_batch({"n": [3] * 1000}))
    written.set()
    of_child = answers.get()
    process.join()

    assert of_child == ({"n": [1, 2]}, {"n": [7] * 1000})
    assert before.open().to_pydict() == {"n": [1, 2]}
    assert own.open().to_pydict() == {"n": [3] * 1000}


# what fails


@pytest.mark.parametrize("writes", [0, 1, 5])
def test_a_full_disk_is_told_with_its_folder_and_leaves_what_was_staged(
    spilling, monkeypatch, tmp_path, writes
):
    store = store_with(pa.table({"n": range(300), "m": range(300)}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    txn = small(store)
    txn.update_rows("t", np.arange(100), {"n": [-1] * 100, "m": [-2] * 100})
    left = [writes]
    pwrite = os.pwrite

    def full(*given: object) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(*given)

    with monkeypatch.context() as patch:
        patch.setattr(spill.os, "pwrite", full)
        with pytest.raises(StorageError, match=rf"updates .*{tmp_path}.*No space left.*TMPDIR"):
            txn.update_rows("t", np.arange(300), {"n": [-3] * 300, "m": [-4] * 300})

    txn.update_rows("t", [0, 299], {"m": [5, 6]})
    txn.commit()

    assert store.snapshot().table("t").read().to_pydict() == {
        "n": [-1] * 100 + [*range(100, 300)],
        "m": [5] + [-2] * 99 + [*range(100, 299)] + [6],
    }


@pytest.mark.parametrize("memory_bytes", [16 << 10, 16 << 20])
def test_an_update_that_is_interrupted_halfway_is_not_staged(spilling, monkeypatch, memory_bytes):
    store = store_with(pa.table({"n": range(300), "m": range(300)}))
    txn = store.transaction(memory_bytes=memory_bytes)
    txn.update_rows("t", np.arange(100), {"n": [-1] * 100})
    add, added = update_buffer.Updates.add, []

    def interrupted(*given: object) -> None:
        add(*given)
        added.append(1)
        if len(added) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(update_buffer.Updates, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            txn.update_rows("t", np.arange(300), {"n": [-3] * 300, "m": [-4] * 300})
    txn.commit()

    assert store.snapshot().table("t").read().to_pydict() == {
        "n": [-1] * 100 + [*range(100, 300)],
        "m": [*range(300)],
    }


# rules


def test_checks_look_at_a_bounded_number_of_updated_rows_at_a_time(spilling, monkeypatch):
    monkeypatch.setattr(update_buffer, "_ROWS_AT_ONCE", 64)
    store = store_with(pa.table({"n": [0] * 1000, "m": [0] * 1000}))
    with store.transaction() as txn:
        txn.add_constraint("t", "positive", check="n + m >= 0")
    tested = []
    after = constraints._after
    monkeypatch.setattr(constraints, "_after", lambda *given: tested.append(len(given[2])) or after(*given))
    values = np.arange(1000)
    values[900] = -1

    txn = small(store)
    txn.update_rows("t", np.arange(1000), {"n": values})
    with pytest.raises(ConstraintError, match=r"1 of them break .* is number 900 of them, with .*-1"):
        txn.commit()
    txn.update_rows("t", [900], {"n": [1]})
    txn.commit()

    assert max(tested) == 63
    assert numbers(store) == [*range(900), 1, *range(901, 1000)]


def test_primary_keys_of_updated_rows_are_compared(spilling):
    store = store_with(schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    with store.transaction() as txn:
        txn.add_constraint("t", "key", primary_key=["n"])
        txn.append("t", {"n": range(300)})

    txn = small(store)
    txn.update_rows("t", np.arange(299), {"n": np.arange(299) + 1})
    with pytest.raises(ConstraintError, match="299"):
        txn.commit()
    txn.update_rows("t", [299], {"n": [300]})
    txn.commit()

    assert numbers(store) == [*range(1, 301)]


def test_stretches_hold_every_updated_row_once():
    some = [
        SortedUpdates.of(np.array(rows), pa.array(rows)) for rows in ([5, 900, 1 << 40], [*range(0, 500, 3)])
    ]

    bounds = np.concatenate(list(stretches(some, 200)))

    assert (bounds[1:, 0] >= bounds[:-1, 1]).all()
    for each in some:
        rows = np.concatenate([each.between(one[np.newaxis])[0] for one in bounds])
        assert rows.tolist() == each.rows[0].tolist()


# all of it


KINDS = {
    "n": pa.int64(),
    "s": pa.string(),
    "d": pa.dictionary(pa.int8(), pa.string()),
    "l": pa.list_(pa.int32()),
    "v": pa.string_view(),
}


def value(name: str, number: int) -> object:
    if number % 5 == 0:
        return None
    if name == "n":
        return number
    return [number] * (number % 4) if name == "l" else f"{'x' * (number % 40)}{number % 97}"


OWN = [row for row in range(80) if row % 8]
"""Rows that the transaction updates; the others are left to others."""

CALLS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(OWN), min_size=1, max_size=40),
        st.sets(st.sampled_from(sorted(KINDS)), min_size=1),
        st.sampled_from(["", "", "read", "update", "append", "compact"]),
    ),
    max_size=8,
)

SCHEMA = pa.schema(KINDS.items())


class Others:
    """What lands while a transaction is open, and the rows that there are in the end."""

    def __init__(self, store: Store, model: dict[str, list[object]]) -> None:
        self._store = store
        self._model = model

    def update(self, number: int) -> None:
        """Two rows that lie apart, in every column."""
        rows = [8 * (number % 10), 8 * ((number + 4) % 10)]
        values = {name: [value(name, number + row) for row in rows] for name in KINDS}
        with Store(self._store.object_store).transaction() as other:
            other.update_rows("t", rows, pa.table(values, SCHEMA))
        for name, each in values.items():
            self._model[name][rows[0]], self._model[name][rows[1]] = each

    def append(self, number: int) -> None:
        row = {name: [value(name, number)] for name in KINDS}
        with Store(self._store.object_store).transaction() as other:
            other.append("t", pa.table(row, SCHEMA))
        for name, each in row.items():
            self._model[name] += each

    def compact(self, _: int) -> None:
        compact_table(Store(self._store.object_store).transaction, "t", Runtime())


@settings(max_examples=examples(60), deadline=None)
@given(CALLS, st.sampled_from([1, 1 << 12, 1 << 20]))
def test_updates_do_what_they_do_to_lists_however_little_memory_there_is(calls, memory_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update_buffer, "_LEAST_BYTES", 1)
        properties = {key: each for key, each in QUIET.items() if key != "tail_page_bytes"}
        store = sp.create(f"memory://{uuid4().hex}", properties=properties)
        model = {name: [value(name, number) for number in range(80)] for name in KINDS}
        with store.transaction() as txn:
            txn._page_bytes = 64
            txn.create_table("t", SCHEMA)
            txn.add_constraint("t", "some", check="n < 1000000")
            txn.append("t", pa.table(model, SCHEMA))
        others = Others(store, model)
        seen = {name: [*each] for name, each in model.items()}
        txn = store.transaction(memory_bytes=memory_bytes)
        for index, (rows, names, then) in enumerate(calls):
            given = {
                name: [value(name, 7 * row + 1000 * index + at) for at, row in enumerate(rows)]
                for name in sorted(names)
            }
            txn.update_rows("t", rows, given)
            for name, each in given.items():
                for row, one in zip(rows, each, strict=True):
                    model[name][row] = seen[name][row] = one
            if then == "read":
                assert txn.table("t").read().to_pydict() == seen
            elif then:
                getattr(others, then)(index)
        txn.commit()

        assert Store(store.object_store).snapshot().table("t").read().to_pydict() == model
        check_store(store)


def test_pages_that_others_have_taken_out_are_rewritten_and_those_between_them_are_not(monkeypatch):
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn._page_bytes = 64
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": range(80)})
    txn = store.transaction()
    txn.update_rows("t", np.arange(0, 80, 2), {"n": -np.arange(0, 80, 2)})
    with Store(store.object_store).transaction() as other:
        other.update_rows("t", [1, 41], {"n": [1000, 1041]})
    rewritten = []
    real = rewritten_pages.rewrite_touched
    monkeypatch.setattr(
        rewritten_pages, "rewrite_touched", lambda *given: rewritten.append(len(given[2])) or real(*given)
    )

    txn.commit()

    expected = [-row if row % 2 == 0 else row for row in range(80)]
    expected[1], expected[41] = 1000, 1041
    assert rewritten == [10, 2]
    assert numbers(Store(store.object_store)) == expected
    check_store(store)
