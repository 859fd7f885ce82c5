"""Columns that change their place, type, nullability and description; no page is rewritten."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ColumnNotFoundError, InvalidInputError, SchemaMismatchError
from spark_pages.io import ReadTrace
from spark_pages.query.predicates.filters import parse_filter
from spark_pages.store import Store
from tests.invariants import check_table_zero, rows_of
from tests.transaction.stores import QUIET

WIDER = {
    "i": (pa.int8(), pa.int64()),
    "u": (pa.uint8(), pa.uint32()),
    "f": (pa.float32(), pa.float64()),
    "d": (pa.decimal128(7, 2), pa.decimal128(20, 2)),
    "s": (pa.string(), pa.large_string()),
}
NARROW = pa.schema([(name, narrow) for name, (narrow, _) in WIDER.items()])


def rows(*numbers: int) -> pa.Table:
    columns = {
        "i": numbers,
        "u": numbers,
        "f": [number + 0.5 for number in numbers],
        "d": [Decimal(number) / 4 for number in numbers],
        "s": [str(number) for number in numbers],
    }
    return pa.table({name: pa.array(columns[name], kind) for name, (kind, _) in WIDER.items()})


LARGE = {"i": [1 << 40], "u": [1 << 31], "f": [0.1], "d": [Decimal("123456789012.25")], "s": ["x"]}


@pytest.fixture
def narrow(store: Store) -> Store:
    """A table with bloom filters, pages in files and a small inline page."""
    with store.transaction() as txn:
        txn.create_table("t", NARROW, properties={"bloom": "true", "page_bytes": "2048"})
        txn.append("t", rows(*np.random.default_rng(0).permutation(np.repeat(range(100), 200)).tolist()))
    with store.transaction() as txn:
        txn.append("t", rows(100, 101))
    return store


@pytest.fixture
def wide(narrow: Store) -> Store:
    """The same, once each column has got a wider type, with a row that needs it."""
    with narrow.transaction() as txn:
        for name, (_, wider) in WIDER.items():
            txn.widen_column("t", name, wider)
        txn.append("t", LARGE)
    return narrow


def test_a_widened_column_reads_old_and_new_rows_under_its_new_type(wide):
    table = wide.snapshot().table("t")

    assert table.schema.types == [wider for _, wider in WIDER.values()]
    assert table.num_rows == 20_003
    assert table.take([20_000, 20_002]).to_pylist() == [
        {"i": 100, "u": 100, "f": 100.5, "d": Decimal(25), "s": "100"},
        {name: value[0] for name, value in LARGE.items()},
    ]
    assert table.scan(["i"]).read_all()["i"].to_pylist()[-3:] == [100, 101, 1 << 40]
    assert wide.snapshot(version=2).table("t").schema.types == NARROW.types
    assert wide.snapshot(version=2).table("t").read(start=20_000) == rows(100, 101)


def test_no_page_is_rewritten_to_widen(narrow):
    files = [info.key for info in narrow.object_store.list("pages/")]
    before = narrow.snapshot().table("t").pages("i")

    with narrow.transaction() as txn:
        txn.widen_column("t", "i", pa.int16())
    with narrow.transaction() as txn:
        txn.widen_column("t", "i", pa.int64())

    assert narrow.snapshot().table("t").pages("i") == before
    assert [info.key for info in narrow.object_store.list("pages/")] == files


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize(
    "condition",
    [
        *("i = 3", "u in (3, 2147483648)", "f = 3.5", "f = 0.1", "d = 0.75", "s = '3'", "i > 127"),
        *("d > 100000", "i is null", "i = 3 and f = 3.5", "i = 1099511627776", "i = 1099511627777"),
    ],
)
def test_filters_find_the_same_rows_by_statistics_and_bloom_filters_as_without(wide, condition, checkpoint):
    if checkpoint:
        wide.checkpoint()
    table = wide.snapshot().table("t")

    found = table.read(["i"], filter=condition)

    assert found.num_rows == table.read().filter(parse_filter(condition, table.schema).expression).num_rows


def test_statistics_of_old_pages_still_rule_them_out(wide):
    trace = ReadTrace()

    wide.snapshot().table("t").read(["i"], filter="i > 1000", trace=trace)

    assert len(trace.page_ids) == 1


def test_aggregates_come_from_statistics_of_both_types(wide):
    table = wide.snapshot().table("t")

    found = {name: table.aggregate(name) for name in WIDER}

    assert {name: each.max.as_py() for name, each in found.items() if name != "f"} == {
        "i": 1 << 40,
        "u": 1 << 31,
        "d": Decimal("123456789012.25"),
        "s": "x",
    }
    assert found["f"].min.as_py() == 0.1
    assert sum(each.pages_read for each in found.values()) == 0


def test_a_widened_column_is_updated_compacted_verified_and_joined_with_new_rows(wide):
    with wide.transaction() as txn:
        txn.update_rows("t", [0, 20_000], {"i": [1 << 50, 7]})
    for number in range(3):
        with wide.transaction() as txn:
            txn.append("t", {**LARGE, "i": [number]})
    before = wide.snapshot().table("t").read()
    wide.checkpoint()

    wide.compact_pages("t")

    table = wide.snapshot().table("t")
    assert table.read() == before
    assert table.take([0, 20_000], ["i"])["i"].to_pylist() == [1 << 50, 7]
    assert wide.verify(pages="all").ok
    assert rows_of(Store(wide.object_store)) == rows_of(wide)
    check_table_zero(wide)


def test_to_restore_the_narrow_column_pages_written_since_are_read_under_its_type(wide):
    with wide.transaction() as txn:
        txn.append("t", rows(5).cast(wide.snapshot().table("t").schema))
    wide.compact_pages("t")
    expected = wide.snapshot(version=2).table("t").read()

    wide.restore(version=2)
    restored = wide.snapshot()

    assert restored.table("t").read() == expected
    assert restored.table("t").aggregate("i").max.as_py() == 101
    assert restored.table("t").read(["i"], filter="i = 100").num_rows == 1
    assert wide.restore(version=2) == restored.version
    assert wide.verify(pages="all").ok


def test_pages_that_were_only_compacted_since_stay_when_the_narrow_type_comes_back(url):
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", NARROW)
    for number in range(5):
        with store.transaction() as txn:
            txn.append("t", rows(number, 100))
    narrow = store.snapshot()
    expected = narrow.table("t").read()
    with store.transaction() as txn:
        for name, (_, wider) in WIDER.items():
            txn.widen_column("t", name, wider)
    store.compact_pages("t")

    store.restore(version=narrow.version)

    table = store.snapshot().table("t")
    assert len(table.pages("i")) == 1
    assert table.read() == expected
    assert [table.aggregate(name).max.as_py() for name in "iuf"] == [100, 100, 100.5]
    assert table.read(["i"], filter="i = 3").num_rows == 1
    assert store.restore(version=narrow.version) == store.snapshot().version == narrow.version + 4
    assert store.verify(pages="all").ok


def test_rows_staged_before_the_column_is_widened_keep_their_values(narrow):
    with narrow.transaction() as txn:
        txn.update_rows("t", [0], {"i": [9]})
        txn.append("t", rows(1))
        txn.widen_column("t", "i", pa.int32())
        txn.update_rows("t", [1], {"i": [1 << 20]})
        txn.append("t", {"i": pa.array([1 << 21], pa.int32())})

    assert narrow.snapshot().table("t").take([0, 1, 20_002, 20_003], ["i"])["i"].to_pylist() == [
        9,
        1 << 20,
        1,
        1 << 21,
    ]


@pytest.mark.parametrize(
    ("column", "type"),
    [
        *(
            ("i", pa.uint64()),
            ("i", pa.float64()),
            ("u", pa.int64()),
            ("f", pa.float16()),
            ("s", pa.binary()),
        ),
        *(("d", pa.decimal128(20, 3)), ("d", pa.decimal128(6, 2)), ("i", pa.string())),
    ],
)
def test_a_type_that_could_lose_a_value_is_refused(narrow, column, type):
    with pytest.raises(InvalidInputError, match="its pages would have to be rewritten"):
        narrow.transaction().widen_column("t", column, type)


def test_the_last_page_of_a_widened_column_shows_fewer_rows(wide):
    with wide.transaction() as txn:
        txn.truncate_table("t")
    with wide.transaction() as txn:
        txn.create_table("one", pa.schema([("i", pa.int8())]))
        txn.append("one", {"i": [1, 2, 3]})
        txn.widen_column("one", "i", pa.int64())
    with wide.transaction() as txn:
        txn.directory("one").update_latest_entry_count("i", 2)

    assert wide.snapshot().table("one").read()["i"].to_pylist() == [1, 2]


# order, nullability, words


def test_columns_stand_in_another_order_and_keep_their_rows(narrow):
    with narrow.transaction() as txn:
        txn.reorder_columns("t", ["s", "d"])

    table = narrow.snapshot().table("t")
    assert table.columns == ["s", "d", "i", "u", "f"]
    assert table.read(start=20_000) == rows(100, 101).select(table.columns)
    with pytest.raises(ColumnNotFoundError):
        narrow.transaction().reorder_columns("t", ["x"])
    with pytest.raises(InvalidInputError, match="named twice"):
        narrow.transaction().reorder_columns("t", ["s", "s"])


def test_a_column_without_nulls_may_forbid_them_and_one_with_nulls_may_not(store):
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
        txn.append("t", {"a": [1, 2], "b": [1, None]})

    with store.transaction() as txn:
        txn.set_nullable("t", "a", False)
        with pytest.raises(
            SchemaMismatchError, match="Cannot declare column 'b' of 't' without nulls: it holds 1"
        ):
            txn.set_nullable("t", "b", False)
        txn.update_rows("t", [1], {"b": [5]})
        txn.set_nullable("t", "b", False)

    assert not store.snapshot().table("t").schema.field("a").nullable
    with pytest.raises(SchemaMismatchError, match="not nullable"):
        store.transaction().append("t", {"a": [None], "b": [1]})
    with store.transaction() as txn:
        txn.set_nullable("t", "a", True)
        txn.append("t", {"a": [None], "b": [1]})
    assert store.snapshot().table("t").read()["a"].to_pylist() == [1, 2, None]


def test_whether_a_column_has_nulls_is_known_from_statistics(narrow):
    narrow.checkpoint()
    other = Store(narrow.object_store)
    txn = other.transaction()
    txn.table("t")
    before = other.cache_stats.requests

    txn.set_nullable("t", "i", False)

    assert other.cache_stats.requests == before
    txn.rollback()


def test_comments_and_properties_come_and_go_and_leave_the_schema_as_it_was(narrow):
    before = narrow.snapshot().table("t").schema
    with narrow.transaction() as txn:
        txn.set_comment("t", "all of it")
        txn.set_comment("t", "an i", column="i")
        txn.set_column_properties("t", "i", {"unit": "km", "source": "gps"})
    with narrow.transaction() as txn:
        txn.set_comment("t", None)
        txn.set_column_properties("t", "i", {"source": None})

    table = narrow.snapshot().table("t")
    assert table.schema.equals(before, check_metadata=True)
    shown = narrow.snapshot().table("system.columns").read(filter=[("comment", "==", "an i")]).to_pylist()
    assert [row["properties"] for row in shown] == [[("unit", "km")]]
    assert narrow.snapshot(version=3).table("system.tables").read(["comment"])["comment"].to_pylist() == [
        None,
        "all of it",
    ]
    assert narrow.snapshot().table("system.tables").read(["comment"])["comment"].to_pylist() == [None, None]
