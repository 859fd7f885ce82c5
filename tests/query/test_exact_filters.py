"""Numbers of any kind are compared exactly with columns of any kind, in SQL and in lists."""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from fractions import Fraction
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError
from spark_pages.io import ReadTrace
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import store_with

WHOLE = {
    kind: (-(1 << bits), (1 << bits) - 1)
    for kind, bits in ((pa.int8(), 7), (pa.int16(), 15), (pa.int32(), 31), (pa.int64(), 63))
} | {pa.uint8(): (0, 255), pa.uint64(): (0, (1 << 64) - 1)}
DECIMALS = (
    pa.decimal128(12, 2),
    pa.decimal128(4, 4),
    pa.decimal128(38, 2),
    pa.decimal128(10, -2),
    pa.decimal256(50, 3),
    pa.decimal64(12, 2),
)
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SQL = {**{sign: sign for sign in OPERATORS}, "==": "=", "!=": "<>"}
CORNERS = [0, 1, 7, 127, 128, 255, 1 << 24, (1 << 24) + 1, 20_000_001, 1 << 53, (1 << 53) + 1]
CORNERS += [(1 << 63) - 1, 1 << 63, (1 << 63) + 5, (1 << 64) - 1, 1 << 64, 10**30]


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Values of one type of numbers, among them those at which other types end."""
    kind = draw(st.sampled_from([*WHOLE, *DECIMALS, pa.float64()]))
    if kind in WHOLE:
        least, most = WHOLE[kind]
        near = [each for corner in CORNERS for each in (corner, -corner) if least <= each <= most]
        values = st.sampled_from(near) | st.integers(least, most)
    elif pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        steps = st.integers(-most, most) | st.integers(-300, 300)
        values = steps.map(
            lambda step: Decimal((int(step < 0), tuple(map(int, str(abs(step)))), -kind.scale))
        )
    else:
        values = st.sampled_from([float(each) for each in CORNERS]) | st.floats(
            allow_nan=False, allow_infinity=False
        )
    return pa.array(draw(st.lists(st.none() | values, min_size=1, max_size=6)), kind)


NUMBERS = (
    st.sampled_from(CORNERS)
    | st.sampled_from(CORNERS).map(operator.neg)
    | st.integers(-300, 300)
    | st.sampled_from([0.1, 2.5, 12.345, 0.5, -0.5, 1e22, 1e300, -1e300, 2.0**63, 2.0**64, 5e-324])
    | st.decimals(-1000, 1000, allow_nan=False, places=3)
    | st.sampled_from([Decimal("1e40"), Decimal("-1e-400"), Decimal("12.34")])
)


def in_a_list(asked: float | Decimal, kind: pa.DataType) -> Fraction:
    """The number that a value of Python is beside values of a type."""
    return written(str(asked), kind) if isinstance(asked, Decimal) or is_decimal(kind) else Fraction(asked)


def written(text: str, kind: pa.DataType) -> Fraction:
    """The number that a text is beside values of a type."""
    fractional = not text.lstrip("-").isdigit()
    return Fraction(float(text)) if fractional and pa.types.is_floating(kind) else Fraction(text)


def is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def numbered(values: pa.Array, sign: str, number: Fraction, wanted: bool = True) -> list[int]:
    """Which of the values compare so with the number."""
    return [
        index
        for index, value in enumerate(values.to_pylist())
        if value is not None and OPERATORS[sign](Fraction(value), number) is wanted
    ]


@settings(steady, max_examples=examples(200))
@given(columns(), st.sampled_from(list(OPERATORS)), NUMBERS)
def test_a_number_is_compared_exactly_in_sql_and_in_lists(values, sign, asked):
    rows = pa.table({"x": values, "n": range(len(values))})
    table = store_with(rows.slice(0, 1), rows.slice(1)).snapshot().table("t")
    text = f"x {SQL[sign]} {asked}"
    told, given_as = written(str(asked), values.type), in_a_list(asked, values.type)

    found = [
        table.read(["n"], filter=each)["n"].to_pylist()
        for each in (text, f"not ({text})", [("x", sign, asked)])
    ]

    assert found == [
        numbered(values, sign, told),
        numbered(values, sign, told, False),
        numbered(values, sign, given_as),
    ]


@settings(steady, max_examples=examples(100))
@given(columns(), st.lists(NUMBERS, min_size=1, max_size=4))
def test_a_list_of_numbers_has_those_that_are_equal_to_one_of_them(values, asked):
    rows = pa.table({"x": values, "n": range(len(values))})
    table = store_with(rows.slice(0, 1), rows.slice(1)).snapshot().table("t")
    text = ", ".join(map(str, asked))
    told = {n for each in asked for n in numbered(values, "==", written(str(each), values.type))}
    given_as = {n for each in asked for n in numbered(values, "==", in_a_list(each, values.type))}
    there = set(numbered(values, ">", Fraction(-(10**400))))

    found = [
        set(table.read(["n"], filter=each)["n"].to_pylist())
        for each in (f"x in ({text})", f"x not in ({text})", [("x", "in", asked)])
    ]

    assert found == [told, there - told, given_as]


ROWS = pa.table(
    {
        "l": pa.array([1, 2, 20_000_001, None], pa.int64()),
        "u": pa.array([1, 7, 2**63 + 5, None], pa.uint64()),
        "g": pa.array([0.5, 2.0, 3.0, None], pa.float32()),
        "d": pa.array(
            [Decimal("1.25"), Decimal("2.50"), Decimal("9999999999.99"), None], pa.decimal128(12, 2)
        ),
        "w": pa.array([Decimal("1"), Decimal("2"), Decimal("9e35"), None], pa.decimal128(38, 2)),
        "e": pa.array([Decimal("100"), Decimal("200"), Decimal("300"), None], pa.decimal128(10, -2)),
    }
)


@pytest.fixture(scope="module")
def table():
    return store_with(ROWS).snapshot().table("t")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("l + 0.5 > 2", [1, 2]),
        ("l * 1.5 = 3", [1]),
        ("l + 5e-1 > 2", [1, 2]),
        ("l / 2 = 1", [1]),
        ("l > g", [0, 2]),
        ("g + l > 3", [1, 2]),
        ("coalesce(l, 0.5) > 0", [0, 1, 2, 3]),
        ("case when l = 1 then 0.5 else l end > 1", [1, 2]),
        ("u > l", [1, 2]),
        ("u - 2 < 0", [0]),
        ("u + l = 9", [1]),
        ("coalesce(u, -3) < 7", [0, 3]),
        ("floor(u) = ceil(u) and u > 7", [2]),
        ("u % 2 = 1", [0, 1, 2]),
        ("d + 1 > 3", [1, 2]),
        ("2 - d < 0", [1, 2]),
        ("d * 2 = 5", [1]),
        ("d % 2 = 0.5", [1]),
        ("abs(d) > 2 and round(d) = 3", [1]),
        ("d + l > 4", [1, 2]),
        ("-d = -1.25", [0]),
        ("w + 1 = 3 and w * 2 = 4", [1]),
        ("e + 1 = 201", [1]),
        ("cast(l as decimal(12, 2)) = 2", [1]),
        ("cast(u as decimal(30, 1)) > 7.5", [2]),
        ("d in (1.25, 12.345)", [0]),
        ("d not in (12.345)", [0, 1, 2]),
        ("l between 0.5 and 2.5", [0, 1]),
        ("1.5 < u", [1, 2]),
        ("l is not distinct from 2.5", []),
        ("l is distinct from 2.5", [0, 1, 2, 3]),
    ],
)
def test_numbers_in_arithmetic_are_exact_or_wide_enough(table, text, rows):
    expected = ROWS.take(pa.array(rows, pa.int64()))

    found = table.read(filter=text)

    assert found.to_pydict() == expected.to_pydict()


@pytest.mark.parametrize(
    ("filter", "pages"),
    [
        ("k > 4.5", 1),
        ("k = 4.5", 0),
        ("k in (2.5, 7.0)", 1),
        ("k < 1e30", 2),
        ("not (k <> 2.5)", 0),
        ([("k", ">", 4.5)], 1),
        ([("k", "==", Decimal("4.5"))], 0),
        ([("k", "in", [4.5])], 0),
        ([("k", "<", np.float32(1.5))], 1),
        ([("k", ">", 2**70)], 0),
    ],
)
def test_a_number_that_the_column_cannot_have_still_tells_which_pages_are_read(filter, pages):
    table = store_with(pa.table({"k": [1, 2, 3, 4]}), pa.table({"k": [5, 6, 7]})).snapshot().table("t")
    trace = ReadTrace()

    table.read(filter=filter, trace=trace)

    assert len(trace.page_ids) == pages


def test_what_is_no_number_beside_numbers_passes_as_ieee_says():
    rows = pa.table({"n": [1, 2, None], "f": [1.0, math.nan, None]})
    table = store_with(rows).snapshot().table("t")

    found = [
        table.read(filter=[each]).num_rows
        for each in (
            ("n", "<", math.inf),
            ("n", ">", -math.inf),
            ("n", "==", math.nan),
            ("n", "!=", math.nan),
            ("f", "!=", 2**53 + 1),
            ("f", ">", 0),
        )
    ]

    assert found == [2, 2, 0, 2, 2, 1]


def nested(text: str, _: int) -> str:
    return f"coalesce(({text}) + 1, case when ({text}) between 1 and 2 then 1 end)"


def test_a_nested_text_is_read_in_time_that_grows_with_its_length(table):
    text = reduce(nested, range(6), "l")

    found = table.read(filter=f"({text}) is not distinct from 7")

    assert found["l"].to_pylist() == [1]


@pytest.mark.parametrize("zero", [0.0, -0.0, 0])
def test_both_zeros_are_in_a_list_with_one_of_them(zero):
    rows = pa.table({"f": [0.0, -0.0, 1.0, None], "g": pa.array([0.0, -0.0, 1.0, None], pa.float32())})
    table = store_with(rows).snapshot().table("t")

    for name in rows.column_names:
        assert table.read(filter=[(name, "in", [zero, 5])]).num_rows == 2
        assert table.read(filter=[(name, "not in", [zero, 5])])[name].to_pylist() == [1.0, None]
        assert table.read(filter=[(name, "in", [zero, None])]).num_rows == 3


def test_moments_and_spans_of_pandas_are_compared_with_their_nanoseconds():
    pandas = pytest.importorskip("pandas")
    numbers = [5_000, 5_001, 6_000]
    kinds = {
        "local": pa.timestamp("ns"), "zoned": pa.timestamp("ns", "Europe/Berlin"), "span": pa.duration("ns"),
        "coarse": pa.timestamp("us"),
    }  # fmt: skip
    rows = pa.table({name: pa.array(numbers, kind) for name, kind in kinds.items() if name != "coarse"})
    rows = rows.append_column("coarse", pa.array([5, 6, 7], kinds["coarse"]))
    table = store_with(rows).snapshot().table("t")
    local, zoned = pandas.Timestamp(5_001), pandas.Timestamp(5_001, tz="Europe/Berlin")
    asked = {"local": local, "zoned": zoned, "span": pandas.Timedelta(5_001), "coarse": local}

    found = {name: [] for name in asked}
    for name, value in asked.items():
        lists = ("in", [value]), ("in", [value, None, value.floor("us")])
        for condition in (("==", value), ("!=", value), ("<", value), *lists):
            found[name].append(table.read(filter=[(name, *condition)]).num_rows)

    assert found.pop("coarse") == [0, 3, 1, 0, 1]
    assert list(found.values()) == [[1, 2, 1, 1, 2]] * 3
    with pytest.raises(InvalidInputError, match="NaT"):
        table.read(filter=[("local", "==", pandas.NaT)])
