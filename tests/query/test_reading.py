from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import (
    ColumnNotFoundError,
    DamageError,
    InvalidInputError,
    RowOutOfRangeError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.io import ReadTrace, encode_page
from spark_pages.model.added_pages import NewPage
from spark_pages.model.ids import PageId
from spark_pages.model.page import PageDescriptor, PageKind, PageStats
from spark_pages.store import Store
from tests.effort import examples
from tests.io.strategies import steady
from tests.query.test_filters import batches, same_rows
from tests.transaction.stores import QUIET, store_with


@settings(steady, max_examples=examples(40))
@given(batches(), st.data())
def test_read_scan_and_take_give_what_arrow_gives(tables, data):
    whole = pa.concat_tables(tables)
    table = store_with(*tables).snapshot().table("t")
    start = data.draw(st.integers(0, whole.num_rows))
    stop = data.draw(st.integers(start, whole.num_rows))
    rows = data.draw(st.lists(st.integers(0, whole.num_rows - 1), max_size=9))
    columns = data.draw(st.none() | st.permutations(whole.column_names).map(lambda names: names[:3]))
    expected = whole if columns is None else whole.select(columns)

    assert same_rows(table.read(columns, start, stop), expected.slice(start, stop - start))
    assert same_rows(table.take(rows, columns), expected.take(pa.array(rows, pa.int64())))
    reader = table.scan(columns, start, stop, batch_rows=2)
    assert same_rows(reader.read_all(), expected.slice(start, stop - start))


def test_a_table_without_rows_reads_as_an_empty_table_of_its_schema():
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
    table = store_with(schema=schema).snapshot().table("t")

    assert table.num_rows == 0
    assert table.read().equals(schema.empty_table())
    assert table.take([]).equals(schema.empty_table())
    assert table.scan().read_all().equals(schema.empty_table())
    assert table.read(filter=[("n", ">", 1)]).equals(schema.empty_table())
    assert table.directory.latest("n") is None


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 1), (0, 4), (4, None)])
def test_a_range_outside_the_table_is_refused(start, stop):
    table = store_with(pa.table({"n": [1, 2, 3]})).snapshot().table("t")

    with pytest.raises(RowOutOfRangeError, match="3 rows"):
        table.read(start=start, stop=stop)


@pytest.mark.parametrize("rows", [[3], [-1], [0, 1 << 62]])
def test_rows_outside_the_table_cannot_be_taken(rows):
    table = store_with(pa.table({"n": [1, 2, 3]})).snapshot().table("t")

    with pytest.raises(RowOutOfRangeError, match=str(next(row for row in rows if not 0 <= row < 3))):
        table.take(rows)


@pytest.mark.parametrize("rows", [[0.5], ["a"], [[0, 1]]])
def test_what_are_no_row_numbers_is_refused(rows):
    with pytest.raises(InvalidInputError, match="integers"):
        store_with(pa.table({"n": [1]})).snapshot().table("t").take(rows)


def test_wrong_names_come_with_a_suggestion():
    snapshot = store_with(pa.table({"distance": [1]})).snapshot()

    with pytest.raises(TableNotFoundError, match=r"Cannot find table 'tt'.*Did you mean 't'"):
        snapshot.table("tt")
    with pytest.raises(ColumnNotFoundError, match="Did you mean 'distance'"):
        snapshot.table("t").read(["distnace"])


def test_a_page_asked_for_by_many_rows_is_read_once():
    table = store_with(pa.table({"n": list(range(100))})).snapshot().table("t")
    trace = ReadTrace()

    table.take(np.arange(100)[::-1], trace=trace)

    assert len(trace.page_ids) == 1


def test_versions_and_times_give_the_rows_that_were_there():
    store = store_with(*(pa.table({"n": [i]}) for i in range(4)))
    versions = [store.snapshot(version=version) for version in range(1, 6)]

    for rows, snapshot in enumerate(versions):
        at = int(snapshot.timestamp.timestamp() * 1_000_000 + 0.5)
        assert snapshot.table("t").num_rows == rows
        assert store.snapshot(timestamp=snapshot.timestamp).version == snapshot.version
        assert store.snapshot(timestamp=snapshot.timestamp.isoformat()).version == snapshot.version
        assert store.snapshot(timestamp=at - 1).version == snapshot.version - 1
        assert len(store.snapshot().table("t").directory.range("n", 0, rows, at)) == rows


@pytest.mark.parametrize("version", [-1, 6])
def test_a_version_that_is_not_there_is_refused_with_the_readable_range(version):
    store = store_with(*(pa.table({"n": [i]}) for i in range(4)))

    with pytest.raises(VersionNotFoundError, match="0 to 5"):
        store.snapshot(version=version)


def test_a_time_before_the_store_is_refused():
    with pytest.raises(VersionNotFoundError, match="Cannot find a version of that time"):
        store_with(pa.table({"n": [1]})).snapshot(timestamp=5)


OTHERS = {
    "text": pa.array([f"{n}" for n in range(50)]),
    "floats": pa.array([n * 1.0 for n in range(50)]),
    "smaller numbers": pa.array(range(50), pa.int32()),
    "dictionary": pa.array(["a", "b"] * 25).dictionary_encode(),
    "lists": pa.array([[n] for n in range(50)]),
    "structs": pa.array([{"n": n} for n in range(50)]),
    "nothing": pa.nulls(50),
}


@pytest.mark.parametrize("values", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.read(),
        lambda table: table.read(["c"], 3, 4),
        lambda table: table.read(entry_meta=True),
        lambda table: table.scan().read_all(),
        lambda table: table.take([1, 70, 5]),
        lambda table: table.take([3]),
        lambda table: table.read(filter="d >= 0"),
        lambda table: table.read(filter="c >= 0"),
        lambda table: table.aggregate("c", 1, 99),
    ],
    ids=["read", "a row", "meta", "scan", "take", "take one", "filter", "filter itself", "aggregate"],
)
def test_a_page_of_a_type_that_its_column_never_had_is_damage(read, values):
    store = with_a_page_of(values)

    with pytest.raises(DamageError, match="'c' of t: expected entries of type int64 in inline page "):
        read(store.snapshot().table("t"))


@pytest.mark.parametrize("kind", sorted(set(OTHERS) - {"smaller numbers"}))
def test_such_a_page_is_not_compacted_into_values_of_the_column(kind):
    store = with_a_page_of(OTHERS[kind])

    with pytest.raises(DamageError) as caught:
        store.compact_pages("t")

    page = first_page(store)
    assert caught.value.message == (
        f"Cannot read column 'c' of t: expected entries of type int64 in inline page {page.id}, found "
        f"{OTHERS[kind].type}, a type that the column never had."
    )


def test_such_a_page_of_a_page_file_is_named_with_its_place():
    store = store_with(pa.table({"c": np.arange(20_000) * 7_919}))
    with store.transaction() as txn:
        txn.create_table("u", pa.schema([("x", pa.float64())]))
        txn.append("u", pa.table({"x": np.arange(20_000) / 7}))
    other = first_page(store, "u", "x")
    replace_first_page(store, other)
    page = first_page(store)

    with pytest.raises(DamageError) as caught:
        store.snapshot().table("t").read()

    assert other.disk_path.startswith("pages/")
    where = f"in page {page.id} at {other.disk_path}@{other.offset}, found double"
    assert f"column 'c' of t: expected entries of type int64 {where}" in caught.value.message


def first_page(store: Store, table: str = "t", column: str = "c") -> PageDescriptor:
    return store.snapshot().table(table).directory.chain(column).all_pages().descriptor(0)


def replace_first_page(store: Store, other: PageDescriptor) -> None:
    """The first page of ``t.c`` is this one of another column."""
    table = store.snapshot().table("t")
    page = first_page(store)
    new = NewPage(
        page.entry_count, other.payload_entries, other.kind, other.disk_path or None, other.offset,
        other.alloc_len, other.actual_len, other.checksum, other.data, PageStats(None),
    )  # fmt: skip
    txn = store.transaction()
    txn.replace_pages(table.definition.table_id, table.definition.field_ids["c"], 0, [page.page_id], [new])
    txn.commit()


def with_a_page_of(values: pa.Array) -> Store:
    """A table whose first page of column ``c``, a column of int64, is one of these values."""
    rows = pa.table({"c": pa.array(range(50), pa.int64()), "d": range(50)})
    store = store_with(rows, rows)
    forged = encode_page(values)
    inline = PageKind.INLINE
    page = PageDescriptor(
        PageId(0), 50, 50, inline, "", 0, 0, forged.actual_len, forged.checksum, bytes(forged.data)
    )
    replace_first_page(store, page)
    return store


def test_a_page_is_found_by_its_id_in_the_version_that_has_it():
    store = store_with(pa.table({"n": [1, 2]}))
    old = store.snapshot().table("t").directory
    page = old.latest("n")
    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [9]})

    assert old.lookup(page.id) == page
    with pytest.raises(InvalidInputError, match="as a page id: expected"):
        old.lookup("nonsense")
    assert store.snapshot().table("t").directory.latest("n").page_id != page.page_id


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 4000,
        b'{"version": 1}',
        b'{"version": 1, "location": {"key": "../x", "length": 1, "digest": "a", "offset": 0, '
        b'"original_length": 1, "shared": true}}',
        b'{"version": 1, "location": {"key": 5, "length": 1, "digest": ["a"], "offset": 0, '
        b'"original_length": 1, "shared": true}}',
        b"x" * 10_000,
    ],
)
def test_a_hint_that_makes_no_sense_changes_nothing(hint):
    store = store_with(pa.table({"n": [1, 2]}))
    store.checkpoint()
    store.object_store.put("_log/_last_checkpoint", hint)

    assert Store(store.object_store).snapshot().table("t").num_rows == 2


def test_a_hint_that_names_a_checkpoint_by_a_wrong_version_is_ignored():
    store = store_with(pa.table({"n": [1, 2]}))
    store.checkpoint()
    hint = store.object_store.get("_log/_last_checkpoint")
    store.object_store.put("_log/_last_checkpoint", hint.replace(b'"version": 2', b'"version": 777'))
    reader = Store(store.object_store)

    with reader.transaction() as txn:
        txn.append("t", pa.table({"n": [3]}))

    assert reader.checkpoint().version == txn.version
    assert Store(store.object_store).snapshot(version=2).table("t").num_rows == 2


READ_WITHOUT_A_FILTER = """
import sys
import numpy as np
import spark_pages as sp
table = sp.open(sys.argv[1]).snapshot().table("t")
read = [table.take(np.array([3]), ["n"]), table.take(np.array([5, 1])), table.read(start=2, stop=7)]
read += [table.scan().read_all(), table.take(np.array([], np.int64))]
print([each.num_rows for each in read], "pandas" in sys.modules)
"""


def test_rows_are_read_without_pandas_which_takes_half_a_second_to_import(tmp_path):
    store = sp.create(str(tmp_path / "s"))
    rows = pa.table({"n": range(9), "s": [*"abcdefghi"], "x": [None, 0.5, 1.5] * 3, "l": [[1], None, []] * 3})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    command = [sys.executable, "-c", READ_WITHOUT_A_FILTER, str(tmp_path / "s")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    assert importlib.util.find_spec("pandas")
    assert run.stdout.strip() == "[1, 2, 5, 9, 0] False"


def test_a_read_of_many_page_files_needs_few_file_descriptors(tmp_path):
    store = sp.create(str(tmp_path / "store"), properties=QUIET)
    rows = np.random.default_rng(1).integers(0, 1 << 62, (90, 3_000))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    for some in rows:
        with store.transaction() as txn:
            txn.append("t", {"n": some})
    files = set(store.snapshot().table("t").pages()["path"].to_pylist())
    used = set(map(int, os.listdir("/proc/self/fd")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    resource.setrlimit(resource.RLIMIT_NOFILE, (sorted(set(range(1_000)) - used)[30], hard))
    try:
        found = sp.open(str(tmp_path / "store")).snapshot().table("t").read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len(files) == len(rows)
    assert np.array_equal(found["n"].to_numpy(), rows.ravel())


def test_a_text_in_place_of_a_list_of_columns_is_told_as_such():
    table = store_with(pa.table({"distance": [1]})).snapshot().table("t")

    with pytest.raises(InvalidInputError, match=r"the text 'distance' as columns: expected a list of names"):
        table.read("distance")
