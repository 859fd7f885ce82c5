"""SQL text filters as SQL says, null included, and skips the pages that the same conditions would skip."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_pages.errors import ColumnNotFoundError, InvalidInputError
from spark_pages.io import ReadTrace
from tests.transaction.stores import store_with

ROWS = pa.table(
    {
        "n": [1, 2, None, 4],
        "s": ["ab", "b", None, "AbC"],
        "f": [1.5, float("nan"), None, 3.0],
        "flag": [True, False, None, True],
        "day": [dt.date(2024, 1, day) for day in (1, 2, 3, 4)],
        "at": pa.array([dt.datetime(2024, 1, day) for day in (1, 2, 3, 4)], pa.timestamp("us", "UTC")),
        "money": [Decimal("1.50")] * 4,
        "Two Words": [1, 2, 3, 4],
        "box": [{"x": 1}, {"x": 2}, None, {"x": None}],
        "raw": [b"a", b"b", None, b"c"],
        "colour": pa.array(["red", "green", None, "red"]).dictionary_encode(),
    }
)


@pytest.fixture(scope="module")
def table():
    return store_with(*(ROWS.slice(row, 1) for row in range(4)), schema=ROWS.schema).snapshot().table("t")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("n > 1 and s in ('ab', 'b') or not (n between 1 and 2)", [1, 3]),
        ("N > 1", [1, 3]),
        ("5 >= n", [0, 1, 3]),
        ("-n < -1", [1, 3]),
        ("n <> 1", [1, 3]),
        ("n in (1, null)", [0]),
        ("n not in (1, 2)", [3]),
        ("n not in (1, null)", []),
        ("not (n in (1, 2) or n = 9)", [3]),
        ('n in ("Two Words", 4)', [0, 1, 3]),
        ("n is null or n = 4", [2, 3]),
        ("n is not null", [0, 1, 3]),
        ("n is distinct from 1", [1, 2, 3]),
        ("n is not distinct from null", [2]),
        ("n = null", []),
        ("flag", [0, 3]),
        ("not flag", [1]),
        ("flag is true", [0, 3]),
        ("flag is not true", [1, 2]),
        ("flag is false", [1]),
        ("day >= date '2024-01-02'", [1, 2, 3]),
        ("'2024-01-02' > day", [0]),
        ("at < '2024-01-03'", [0, 1]),
        ("at <= timestamp '2024-01-03 00:00:00'", [0, 1, 2]),
        ("at < '2024-01-02T00:00:00+01:00'", [0]),
        ("extract(day from day) = 4", [3]),
        ("s like 'ab%'", [0]),
        ("s like '_b%'", [0, 3]),
        ("s ilike 'ab%'", [0, 3]),
        ("s not like 'a%'", [1, 3]),
        ("lower(s) = 'abc' and length(s) = 3", [3]),
        ("starts_with(s, 'a') or ends_with(s, 'C')", [0, 3]),
        ("contains(s, 'b')", [0, 1, 3]),
        ("trim(s || ' ') = 'b'", [1]),
        ("n % 2 = 0", [1, 3]),
        ("n / 2 = 0.5", [0]),
        ("n * 2 + 1 - 1 = 8", [3]),
        ("abs(n) = 4 and round(f, 0) = 3 and floor(f) = ceil(f)", [3]),
        ("coalesce(n, 0) = 0", [2]),
        ("case when n > 1 then true else false end", [1, 3]),
        ("cast(n as double) > 1.5", [1, 3]),
        ("n::varchar = '4'", [3]),
        ("money = 1.5 and money > '1.4' and money < 1e1", [0, 1, 2, 3]),
        ("f = 3.0", [3]),
        ("raw = 'a'", [0]),
        ("colour = 'red'", [0, 3]),
        ('"Two Words" = 2', [1]),
        ("`two words` = 2 and `N` = 2", [1]),
        ("money > 1 and money < 2", [0, 1, 2, 3]),
        ("box.x = 1", [0]),
        ("n > 1 -- and n < 3", [1, 3]),
        ("true", [0, 1, 2, 3]),
        ("false or n = 1", [0]),
        ("n < 18446744073709551615 and n < 9223372036854775807", [0, 1, 3]),
        ("n = '4' or n in ('1', '9') or f = '3'", [0, 3]),
        ("flag = 'true' and flag in ('true')", [0, 3]),
        ("f = 'nan'", []),
        ("starts_with(colour, 'r') and colour like '%d' and upper(colour) = 'RED'", [0, 3]),
        ("colour || s = 'redab'", [0]),
        ("colour like '%'", [0, 1, 3]),
        ("colour not like '%'", []),
        ("coalesce(n, -9223372036854775808) < 0", [2]),
        ("case when n = 1 then -1 else n end = -(1)", [0]),
        ("coalesce(n, 0.5) = 0.5", [2]),
        ("n is distinct from 1.5 and n is not distinct from 4.0", [3]),
        ("2.5 < n", [3]),
        ("n not in (1.5, -(-2))", [0, 3]),
        ("money + 1 > 2 and money * 2 = 3 and money % 1 = 0.5 and abs(money) > 1", [0, 1, 2, 3]),
        ("round(money) = 2 and money + n > 3", [1, 3]),
        ("cast(n as decimal(12, 2)) = 4", [3]),
        ("box.x > 1.5", [1]),
        ("it = 'it''s'", ColumnNotFoundError),
    ],
)
def test_a_condition_in_sql_gives_the_rows_that_sql_gives(table, text, rows):
    if rows is None or isinstance(rows, type):
        with pytest.raises(rows or InvalidInputError):
            table.read(filter=text)
        return

    found = table.read(["Two Words"], filter=text)

    assert [row - 1 for row in found["Two Words"].to_pylist()] == rows


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("n >", "line 1, column 3"),
        ("n > 1\n  and and s = 'x'", "line 2"),
        ("n = (1", "line 1"),
        ("n > 'x", "filter"),
        ("n > 1; n < 2", "line 1, column 5.*not known"),
        ("", "no condition"),
        ("foo(n) = 1", "line 1, column 1.*lower"),
        ("n > 1 and\n  foo(s) = 1", "line 2, column 3"),
        ("n in (select 1)", "not known"),
        ("n between symmetric 2 and 1", "not known"),
        ("n = ?", "not known"),
        ("starts_with(s, s)", "text in quotes"),
        ("round(f, n) = 1", "filter"),
        ("day = 'nonsense'", "line 1, column 7.*date32"),
        ("n + 1", "bool"),
        ("n = 'x'", "line 1, column 5.*int64"),
        ("n in (1, 'x')", "line 1, column 10.*int64"),
        ("money = 'x'", "line 1, column 9.*decimal"),
        ("(" * 2_000 + "n = 1" + ")" * 2_000, "nested"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(table, text, where):
    with pytest.raises(InvalidInputError, match=rf"(?s){where}"):
        table.scan(filter=text)


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("k = 7", 1),
        ("k < 5 or k >= 25", 2),
        ("not (k >= 5)", 1),
        ("k between 6 and 8", 1),
        ("k in (3, 27)", 2),
        ("k not in (3)", 3),
        ("not (k <> 7 or k is null)", 1),
        ("w like 'w1%'", 2),
        ("c like '%'", 2),
        ("w >= date '2024-01-01'", None),
        ("k + 0 = 7", 3),
        ("k = 7 and abs(k) = 7", 1),
        ("k = 7 or abs(k) = 7", 3),
        ("k is null", 0),
        ("k = 7 and false", 0),
    ],
)
def test_pages_that_cannot_hold_such_a_row_are_not_read(text, pages):
    parts = [
        pa.table({"k": list(range(start, start + 5)), "w": [f"w{i}" for i in range(start, start + 5)]})
        for start in (0, 10, 25)
    ]
    parts[0] = pa.table({"k": [0, 1, 2, 3, 7], "w": ["w0", "w00", "w01", "w1", "w10"]})
    colours = pa.array([None] * 5 + ["red"] * 10).dictionary_encode()
    parts = [part.append_column("c", colours.slice(5 * n, 5)) for n, part in enumerate(parts)]
    table = store_with(*parts).snapshot().table("t")
    trace = ReadTrace()
    if pages is None:
        with pytest.raises(InvalidInputError):
            table.read([], filter=text)
        return

    table.read([], filter=text, trace=trace)

    assert len(trace.page_ids) == pages


def test_columns_may_have_their_table_before_them_as_in_a_query(store):
    rows = pa.table({"t": [1, 2, 3], "n": [{"t": 5}, {"t": 6}, {"t": 7}]})
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.create_table("sales.n", rows.schema)
        txn.append("sales.n", rows)
    table = store.snapshot().table("sales.n")

    def found(text: str) -> list[int]:
        return table.read(["t"], filter=text)["t"].to_pylist()

    assert found("n.t = 2 and sales.n.t < 3 and N.T > 1") == [2]  # the table comes before the field
    assert found("n.n.t = 7") == [3]
    with pytest.raises(ColumnNotFoundError, match=r"Cannot find column 'other.t': sales.n"):
        found("other.t = 2")
    with pytest.raises(ColumnNotFoundError, match=r"Cannot find column 'm': sales.n"):
        found("m = 2")


def test_columns_that_differ_by_case_only_are_told_apart_by_spelling_them_exactly():
    rows = pa.table({"a": [1, 2], "A": [2, 1], "xy": [1, 2], "XY": [1, 2]})
    table = store_with(rows).snapshot().table("t")

    found = [table.read(filter=text).num_rows for text in ("a = 1 and A = 2", '"A" = 1')]

    assert found == [1, 1]
    with pytest.raises(InvalidInputError, match=r"'Xy': it may be 't.xy' or 't.XY'"):
        table.read(filter="Xy = 1")


@pytest.mark.parametrize("text", ["box.x = 2", "BOX.X = 2", "Box.X = 2", 't.box."X" = 2'])
def test_fields_of_structs_are_found_whatever_their_case(table, text):
    assert table.read(["Two Words"], filter=text).to_pylist() == [{"Two Words": 2}]


def test_an_unknown_field_of_a_struct_tells_which_there_are(table):
    with pytest.raises(ColumnNotFoundError, match=r"Cannot find field 'y' in 'box': .* It has x\."):
        table.read(filter="box.y = 1")


def test_a_field_that_several_spell_differently_is_ambiguous():
    rows = pa.table({"box": [{"ab": 1, "AB": 2}]})
    twice = store_with(rows, schema=rows.schema).snapshot().table("t")

    assert twice.read(filter="box.AB = 2").num_rows == 1
    with pytest.raises(InvalidInputError, match="'aB': it may be"):
        twice.read(filter="box.aB = 1")
