"""Parameters are values, whatever they hold: the same come back, and none is read as SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from tests.effort import examples
from tests.transaction.stores import QUIET


@pytest.fixture(scope="module")
def store():
    made = sp.create("memory://parameters", properties=QUIET)
    made.sql("CREATE TABLE t (a INT, s TEXT)")
    made.sql("INSERT INTO t VALUES (?, ?), (?, ?)", [1, "x'; DROP TABLE t --", 2, None])
    return made


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        ("SELECT a FROM t WHERE a = ?", [2], [2]),
        ("SELECT ? - ? AS v", [5, 3], [2]),
        ("SELECT $2 - $1 AS v", [5, 3], [-2]),
        ("SELECT $low + $low AS v", {"low": 4}, [8]),
        ("WITH c AS (SELECT ? AS p) SELECT p * ? AS v FROM c LIMIT ?", [2, 3, 1], [6]),
        ("FROM t SELECT ? AS v WHERE a = ?", [7, 1], [7]),
        ("SELECT a FROM t WHERE s = $s", {"s": "x'; DROP TABLE t --"}, [1]),
        ("SELECT a FROM t WHERE a = ANY($list) ORDER BY a", {"list": [1, 2, 3]}, [1, 2]),
        ("SELECT [$1,$2]", [5, 3], [[5, 3]]),
        ("SELECT $a,$b WHERE '$a,$' <> $b", {"a": 1, "b": "x"}, [1]),
        ("SELECT $1::date,$2::int", ["2024-02-29", "3"], [dt.date(2024, 2, 29)]),
        ("SELECT ?::int + ?::int", ["2", "3"], [5]),
        ("SELECT $$it's$$ || ?", ["!"], ["it's!"]),
        ("SELECT list_transform([1], x -> x + ?) AS v", [1], [[2]]),
    ],
)
def test_a_statement_is_run_with_its_parameters(store, text, params, expected):
    assert store.sql(text, params).column(0).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "params", "told"),
    [
        ("SELECT ?", [], r"no value is given for \$1"),
        ("SELECT ?", None, r"no value is given for \$1"),
        ("SELECT ?", [1, 2], r"no parameter \$2"),
        ("SELECT $a", {"b": 1}, r"no value is given for \$a and the statement has no parameter \$b"),
        ("SELECT ?, $1", [1], r"\? beside others"),
        ("SELECT ?", "x", "expected a list or a mapping"),
        ("SELECT ?", 7, "expected a list or a mapping"),
        ("SELECT $a", {1: 1}, "not the name"),
        ("SELECT ?", [object()], "SQL has no value of type object"),
        ("SELECT ?", ["\ud800"], "no UTF-8"),
        ("SELECT ?", [2**200], "128 bits"),
        ("SELECT ?", [Decimal(10) ** 50], "38 digits"),
        ("SELECT ?", [pa.scalar(1, pa.timestamp("ns", "UTC"))], "microseconds"),
        ("SELECT ?", [pa.scalar((1, 2, 3), pa.month_day_nano_interval())], "interval of months"),
        ("SELECT ?", [np.datetime64(10**12, "D")], "no date of SQL"),
        ("SELECT * FROM ?", ["t"], "Cannot run"),
        ("SELECT a AS ? FROM t", ["x"], "Cannot run"),
        ("SELECT a FROM t ORDER BY ?", [1], "Cannot run"),
        ("SELECT a FROM t GROUP BY ?", [1], "Cannot run"),
        ("SELECT a FROM t VERSION AS OF ?", [1], "Cannot read the"),
        ("DROP TABLE t", [1], r"no parameter \$1"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(store, text, params, told):
    with pytest.raises(InvalidInputError, match=told):
        store.sql(text, params)


VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8")),
        st.binary(),
        st.dates(),
        st.datetimes(),
        st.times(),
        st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9),
    ),
    lambda inner: st.dictionaries(st.sampled_from(["p", "q"]), inner, min_size=1),
    max_leaves=4,
)


@settings(max_examples=examples(80), deadline=None)
@given(value=VALUES)
def test_the_value_of_a_parameter_comes_back_equal(store, value):
    assert store.sql("SELECT $v AS v", {"v": value}).column(0).to_pylist() == [value]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int16(-4), -4),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (pa.scalar(dt.date(2024, 2, 29)), dt.date(2024, 2, 29)),
        (pa.scalar("x"), "x"),
        (pa.array([1, 2]), [1, 2]),
        (None, None),
        (np.array(5), 5),
        (np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
        (np.datetime64("2024-02"), dt.date(2024, 2, 1)),
        (np.datetime64("2024-02-29T10"), dt.datetime(2024, 2, 29, 10)),
        (np.datetime64("NaT"), None),
        (np.array(["2024-02-29"], "M8[D]"), [dt.date(2024, 2, 29)]),
        (pa.scalar([("k", "v")], pa.map_(pa.string(), pa.string())), [("k", "v")]),
        (
            pa.scalar({"m": [("k", 1)]}, pa.struct([("m", pa.map_(pa.string(), pa.int32()))])),
            {"m": [("k", 1)]},
        ),
        (pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())), [[("k", 1)], []]),
    ],
)
def test_values_of_other_libraries_are_those_of_python(store, value, expected):
    assert store.sql("SELECT ? AS v", [value]).column(0).to_pylist() == [expected]
