"""What is refused, or fails on the way, leaves a transaction as it was: nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ConstraintError, InvalidInputError, StorageError
from spark_pages.store import Store
from spark_pages.transaction import ingest, rewritten_pages
from spark_pages.transaction.page_flush import PageFlusher
from spark_pages.transaction.transaction import Transaction
from tests.transaction.stores import QUIET, store_with

ROWS = pa.table({"n": [1, 2, 3]})


def empty() -> Store:
    return sp.create(f"memory://{uuid4().hex}", properties=QUIET)


def values(store: Store, table: str = "t", column: str = "n") -> list[Any]:
    return store.snapshot().table(table).read().column(column).to_pylist()


def test_rows_that_could_not_be_made_pages_are_committed_by_the_next_try(monkeypatch):
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
    txn = store.transaction()
    txn.append("t", {"n": [4]})
    txn.append("u", {"n": [5, 6]})
    encode = ingest.encode_columns

    def stopped(columns: Any) -> Any:
        monkeypatch.setattr(ingest, "encode_columns", encode)
        raise KeyboardInterrupt

    monkeypatch.setattr(ingest, "encode_columns", stopped)
    with pytest.raises(KeyboardInterrupt):
        txn.table("u")
    txn.commit()

    assert (values(store), values(store, "u")) == ([1, 2, 3, 4], [5, 6])


WAYS: dict[str, tuple[bool, Callable[[Transaction], object], dict[str, Any]]] = {
    "entries with metadata": (False, lambda _: None, {"entry_meta": {"b.prefix_meta": [b"x"] * 3}}),
    "a table that is not aligned": (False, lambda _: None, {}),
    "behind a directory": (True, lambda txn: txn.directory("t"), {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_append_whose_pages_storage_did_not_take_is_not_staged(monkeypatch, way):
    aligned, begin, more = WAYS[way]
    store = empty()
    rng = np.random.default_rng(1)
    rows = pa.table({"b": [rng.bytes(400) for _ in range(3)]})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, aligned=aligned)
    write, fails = PageFlusher.write, [True]

    def once(flusher: PageFlusher, *given: Any) -> None:
        if fails:
            fails.clear()
            raise StorageError("Storage does not answer.")
        write(flusher, *given)

    monkeypatch.setattr(PageFlusher, "write", once)
    txn = store.transaction(memory_bytes=2_000)
    begin(txn)
    with pytest.raises(StorageError):
        txn.append("t", rows, **more)
    txn.append("t", rows, **more)
    txn.commit()

    assert values(store, column="b") == rows.column("b").to_pylist()


@pytest.fixture
def keyed() -> Store:
    store = empty()
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([pa.field("n", pa.int64(), nullable=False), ("m", pa.int64())]))
        txn.add_constraint("t", "key", primary_key=["n"])
        txn.append("t", {"n": [0, 1, 2], "m": [0, 0, 0]})
    return store


def test_a_key_that_was_refused_can_be_mended_and_committed(keyed):
    txn = keyed.transaction()
    txn.update_rows("t", [2], {"n": [1]})
    with pytest.raises(ConstraintError):
        txn.commit()
    txn.update_rows("t", [2], {"n": [5]})

    assert txn.table("t").read().column("n").to_pylist() == [0, 1, 5]
    txn.commit()
    assert values(keyed) == [0, 1, 5]


def test_temporary_tables_are_there_as_long_as_the_transaction_is(keyed):
    txn = keyed.transaction()
    txn.create_table("temp.some", ROWS.schema)
    txn.append("temp.some", ROWS)
    txn.update_rows("t", [2], {"n": [1]})
    with pytest.raises(ConstraintError):
        txn.commit()

    assert txn.table("temp.some").num_rows == 3
    txn.update_rows("t", [2], {"n": [2]})
    txn.commit()
    assert keyed.snapshot().tables() == ["t"]


def test_what_an_update_was_given_may_be_changed_before_the_commit():
    store = store_with(ROWS)
    given = np.array([7, 8])
    with store.transaction() as txn:
        txn.update_rows("t", [0, 1], {"n": given})
        given[:] = [9, 10]
        txn.update_rows("t", [1, 2], {"n": given})
        given[:] = -1

    assert values(store) == [7, 9, 10]


@pytest.mark.parametrize(
    "change",
    [
        lambda txn: txn.append("system.catalog", {"name": ["q"]}),
        lambda txn: txn.update_rows("system.catalog", [0], {"name": ["q"]}),
        lambda txn: txn.append_written("system.catalog", []),
    ],
    ids=["append", "update", "append_written"],
)
def test_the_catalog_is_not_written_to_like_a_table(change):
    store = store_with(ROWS)
    with store.transaction() as txn, pytest.raises(InvalidInputError, match="store's own"):
        change(txn)

    assert store.verify().ok


def test_a_check_over_a_column_that_is_new_in_the_transaction_holds_for_updated_rows():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.add_column("t", pa.field("x", pa.int64()), default=1)
        txn.add_column("t", pa.field("y", pa.int64()))
        txn.add_constraint("t", "small", check="n < 10 or x > 0 or y > 0")
        txn.update_rows("t", [1], {"n": [50]})
    assert values(store) == [1, 50, 3]

    txn = store.transaction()
    txn.add_column("t", pa.field("z", pa.int64()), default=0)
    txn.add_constraint("t", "smaller", check="n < 10 or z > 0 or n = 50")
    txn.update_rows("t", [2], {"n": [60]})
    with pytest.raises(ConstraintError):
        txn.commit()


# another process has changed the table


def beside(store: Store) -> Store:
    return Store(store.object_store)


def test_rows_with_a_column_that_another_process_has_added_are_appended():
    store = store_with(ROWS)
    store.snapshot()
    with beside(store).transaction() as other:
        other.add_column("t", pa.field("m", pa.int64()))
    with store.transaction() as txn:
        txn.append("t", {"n": [4], "m": [5]})

    assert values(store, column="m") == [None, None, None, 5]


def test_rows_that_an_old_version_refuses_are_appended_at_the_next_try():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.add_constraint("t", "positive", check="n > 0")
    with beside(store).transaction() as other:
        other.drop_constraint("t", "positive")
    with store.transaction() as txn:
        with pytest.raises(ConstraintError):
            txn.append("t", {"n": [-1]})
        txn.append("t", {"n": [-1]})

    assert values(store) == [1, 2, 3, -1]


# dictionaries of few indices


SMALL = pa.dictionary(pa.int8(), pa.string())


def coded(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.string()).dictionary_encode().cast(SMALL)


@pytest.fixture
def labels() -> Store:
    store = empty()
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("s", SMALL), ("n", pa.int64())]))
        txn.add_constraint("t", "rule", check="s <> 'never' or n > 1000")
    for letter in "ab":
        with store.transaction() as txn:
            txn.append("t", {"s": coded([f"{letter}{i}" for i in range(100)]), "n": range(100)})
    assert store.snapshot().table("t").pages("s").num_rows == 2
    return store


def test_updates_whose_dictionaries_fit_their_pages_need_not_fit_each_other(labels):
    first, second = ([f"{letter}{i}" for i in range(100)] for letter in "cd")
    with labels.transaction() as txn:
        txn.update_rows("t", range(100), {"s": coded(first)})
        txn.update_rows("t", range(100, 200), {"s": coded(second)})

    assert values(labels, column="s") == [*first, *second]


def test_a_page_gets_no_more_of_a_dictionary_than_it_holds(labels):
    new = ["a0", *(f"c{i}" for i in range(100))]
    with labels.transaction() as txn:
        txn.update_rows("t", range(99, 200), {"s": coded(new)})

    assert values(labels, column="s") == [*(f"a{i}" for i in range(99)), *new]


def test_a_page_may_forget_values_and_cannot_hold_more_than_its_indices_count(labels):
    with labels.transaction() as txn:
        txn.update_rows("t", range(50), {"s": coded([f"c{i}" for i in range(50)])})
    with labels.transaction() as txn:
        txn.update_rows("t", range(100), {"s": coded([f"d{i}" for i in range(100)])})
    with labels.transaction() as txn:
        txn.append("t", {"s": coded(["z"] * 100), "n": range(100)})
        txn.update_rows("t", [100], {"s": pa.nulls(1, SMALL)})
    found = values(labels, column="s")
    assert (found[:100], found[100:102]) == ([f"d{i}" for i in range(100)], [None, "b1"])

    txn = labels.transaction()
    wide = pa.array([f"w{i}" for i in range(129)]).dictionary_encode()
    txn.append("t", {"s": coded(["z"] * 200), "n": range(200)})
    txn.commit()
    last = labels.snapshot().table("t").num_rows
    txn = labels.transaction()
    for first in (0, 100):
        part = wide.slice(first, 100).cast(pa.string())
        rows = range(last - 200 + first, last - 200 + first + len(part))
        txn.update_rows("t", rows, {"s": coded(part.to_pylist())})
    with pytest.raises(InvalidInputError, match="wider indices"):
        txn.commit()


def test_checks_see_the_updated_rows_of_pages_with_other_dictionaries(labels):
    with labels.transaction() as txn:
        txn.update_rows("t", [5, 150], {"n": [7, 8]})
        txn.update_rows("t", [5], {"s": coded(["q"])})
    assert values(labels, column="s")[5] == "q"

    txn = labels.transaction()
    txn.update_rows("t", [5, 150], {"n": [7, 8]})
    txn.update_rows("t", [150], {"s": coded(["never"])})
    with pytest.raises(ConstraintError):
        txn.commit()


# arguments


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda t: t.update_rows("t", [[1], [2, 3]], {"n": [1]}), "list of whole numbers"),
        (lambda t: t.update_rows("t", [1], pa.chunked_array([[1]])), "columns with names"),
        (lambda t: t.update_rows("t", [1], twice()), "two of the columns"),
        (lambda t: t.append("t", twice()), "two of the columns"),
        (lambda t: t.append("t", twice(), entry_meta={"n.prefix_meta": [b"x"]}), "two of the columns"),
        (lambda t: t.table("t").take([[1], [2, 3]]), "list of whole numbers"),
    ],
    ids=["rows", "no names", "update", "append", "with metadata", "take"],
)
def test_what_is_no_list_of_rows_or_columns_is_refused_by_name(call, told):
    with store_with(ROWS).transaction() as txn, pytest.raises(InvalidInputError, match=told):
        call(txn)


def twice() -> pa.Table:
    return pa.table([pa.array([1]), pa.array([2])], names=["n", "n"])


# memory


def test_pages_of_equal_values_are_opened_few_at_a_time(monkeypatch):
    store = store_with(pa.table({"n": np.zeros(1_000_000, np.int8)}))
    with store.transaction() as txn:
        txn.add_column("t", pa.field("s", pa.string()), default="x" * 100)
    at_once = []
    rewritten = rewritten_pages.rewrite_touched

    def counted(table: Any, column: str, pages: Sequence[Any], touched: Any) -> Any:
        at_once.append(len(pages))
        return rewritten(table, column, pages, touched)

    monkeypatch.setattr(rewritten_pages, "rewrite_touched", counted)
    rows = range(0, 1_000_000, 65_536)
    with store.transaction(memory_bytes=32 << 20) as txn:
        txn.update_rows("t", rows, {"s": ["y"] * len(rows)})

    assert at_once == [1] * len(rows)
    assert store.snapshot().table("t").read(["s"]).column("s").to_pylist().count("y") == len(rows)


def test_an_update_that_would_merge_dictionaries_of_lists_says_so_and_changes_nothing():
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([[1], [2, 3]]))
    store = store_with(pa.table({"n": pa.StructArray.from_arrays([lists], ["x"])}))
    before = values(store)

    other = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[9]]))
    txn = store.transaction()
    txn.update_rows("t", [1], {"n": pa.StructArray.from_arrays([other], ["x"])})
    with pytest.raises(InvalidInputError, match=r"merges no two of these.*`transaction\.add_column`"):
        txn.commit()

    assert values(store) == before
