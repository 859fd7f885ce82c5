"""A filter is tested on columns of any type, also where Arrow cannot compare or pick them by itself."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp
from spark_pages.errors import ConstraintError
from tests.transaction.stores import QUIET, store_with

TEXT = ["apple", "", None, "a pear that is longer than twelve bytes"] * 50
NUMBERS = [1.5, 2.0, None, -0.0] * 50
COLUMNS = {
    "text_view": pa.array(TEXT, pa.string_view()),
    "bytes_view": pa.array([None if each is None else each.encode() for each in TEXT], pa.binary_view()),
    "runs": pc.run_end_encode(pa.array(TEXT)),
    "half": pa.array(NUMBERS, pa.float16()),
    "narrow": pa.array([None if each is None else Decimal(each) for each in NUMBERS], pa.decimal32(5, 2)),
    "row": pa.array(range(200)),
}


@pytest.fixture(scope="module")
def table():
    rows = pa.table(COLUMNS)
    return store_with(rows.slice(0, 90), rows.slice(90)).snapshot().table("t")


def kept(residues: list[int]) -> list[int]:
    return [row for row in range(200) if row % 4 in residues]


@pytest.mark.parametrize(
    ("wanted", "residues"),
    [
        ("text_view = 'apple'", [0]),
        ("text_view like 'a%'", [0, 3]),
        ("text_view is null", [2]),
        ("bytes_view in ('apple', '')", [0, 1]),
        ("runs > 'apple'", []),
        ("runs is not null and runs <> ''", [0, 3]),
        ("half >= 1.5", [0, 1]),
        ("half in (0.0, 2.0)", [1, 3]),
        ("narrow = 2", [1]),
        (pc.field("narrow").isin(pa.array([Decimal("1.50")], pa.decimal32(5, 2))), [0]),
        ([("text_view", "in", ["apple", None])], [0, 2]),
        ("text_view = 'apple' or half = 2.0", [0, 1]),
    ],
)
def test_such_a_column_is_tested_and_comes_back_in_its_own_type(table, wanted, residues):
    rows = kept(residues)

    found = table.read(filter=wanted)

    assert found.column("row").to_pylist() == rows
    assert found.schema == table.schema
    for name in COLUMNS:
        assert found.column(name).to_pylist() == [COLUMNS[name][row].as_py() for row in rows]
    found.validate(full=True)
    assert table.scan(filter=wanted).read_all().column("row").to_pylist() == rows


NESTED = {
    "list": (pa.list_(pa.string_view()), [["a"], None, ["more than twelve bytes"]]),
    "struct": (pa.struct([("x", pa.string_view()), ("h", pa.float16())]), [{"x": "a", "h": 1.5}, None]),
    "map": (pa.map_(pa.string(), pa.binary_view()), [[("k", b"v")], None, []]),
    "fixed": (pa.list_(pa.decimal32(5, 1), 1), [[Decimal(1)], None]),
}


@pytest.mark.parametrize("name", NESTED)
def test_so_is_one_inside_of_other_types(name):
    kind, values = NESTED[name]
    table = store_with(pa.table({"v": pa.array(values, kind)})).snapshot().table("t")

    assert table.read(filter=pc.field("v").is_valid())["v"].to_pylist() == [
        v for v in values if v is not None
    ]
    assert table.read(filter="v is null")["v"].to_pylist() == [None]
    if name == "struct":
        assert table.read(filter="v.x = 'a' and v.h > 1")["v"].to_pylist() == values[:1]


def test_columns_that_no_filter_can_test_are_read_by_filters_of_others():
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    )
    runs = pa.StructArray.from_arrays([pc.run_end_encode(pa.array([7, 7, 8]))], ["x"])
    table = store_with(pa.table({"u": union, "r": runs, "n": [0, 1, 2]})).snapshot().table("t")

    assert table.read(filter="n >= 1").to_pylist() == [
        {"u": "b", "r": {"x": 7}, "n": 1},
        {"u": 3, "r": {"x": 8}, "n": 2},
    ]
    assert table.read(filter="n > 5").schema == table.schema
    assert table.read(start=1, stop=1).num_rows == 0
    assert table.read(filter=pc.scalar(True)).num_rows == 3
    assert table.read(filter=pc.field("r").is_valid()).num_rows == 3


def test_a_check_may_speak_of_such_a_column():
    store = sp.create("memory://row-test-check", properties=QUIET)
    schema = pa.schema([("place", pa.string_view())])
    with store.transaction() as txn:
        txn.create_table("t", schema)
        txn.add_constraint("t", "short", check="place <> 'nowhere'")

    with pytest.raises(ConstraintError, match="short"), store.transaction() as txn:
        txn.append("t", pa.table({"place": pa.array(["roof", "nowhere"], pa.string_view())}))


def test_a_list_of_times_finer_than_python_has_them_skips_no_page_that_holds_one():
    times = pa.array([1, 999, 1_000_000_001], pa.time64("ns"))
    late = pa.array([2**40, 5], pa.timestamp("s"))  # in a year that Python does not have
    table = store_with(*(pa.table({"at": times.slice(i, 1)}) for i in range(3))).snapshot().table("t")
    far = store_with(*(pa.table({"at": late.slice(i, 1)}) for i in range(2))).snapshot().table("t")

    for index in range(3):
        assert (
            table.read(filter=pc.field("at").isin(times.slice(index, 1)))["at"].combine_chunks()
            == times[index : index + 1]
        )
    assert table.read(filter=[("at", "<", times[1])]).num_rows == 1
    assert far.read(filter=pc.field("at").isin(late.slice(0, 1)))["at"].combine_chunks() == late[:1]


def test_zero_in_a_list_of_sql_is_one_value():
    table = store_with(pa.table({"f": [0.0, -0.0, 1.0, None]})).snapshot().table("t")

    assert repr(table.read(filter="f in (0, 7)")["f"].to_pylist()) == "[0.0, -0.0]"
    assert table.read(filter="f not in (0)")["f"].to_pylist() == [1.0]


def test_what_arrow_casts_no_view_of_inside_of_lists_is_tested_as_it_is():
    kind = pa.large_list(pa.large_list(pa.list_view(pa.string_view())))
    values = pa.array([[[["a"]], None], None, []], kind)
    table = store_with(pa.table({"v": values, "n": [1, 2, 3]})).snapshot().table("t")

    found = table.read(filter="v is null or n = 3")

    assert found.to_pydict() == {"v": [None, []], "n": [2, 3]}
