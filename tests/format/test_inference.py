"""What Arrow loses of Python values when it infers a type from the first is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.format.inference import LossError, check_unchanged
from spark_pages.format.values import inferred
from tests.transaction.stores import store_with

DAY, EVENING = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 20)
TOKYO, PARIS = ZoneInfo("Asia/Tokyo"), ZoneInfo("Europe/Paris")
FINE = pd.Timestamp("2020-01-01 00:00:00.000000001")
LOST = {
    "a datetime behind a date": [DAY, EVENING],
    "a datetime inside of lists of dates": [[DAY], [EVENING]],
    "a datetime inside of structs of dates": [{"x": DAY}, {"x": EVENING}],
    "a naive time behind one with a zone": [EVENING.replace(tzinfo=TOKYO), EVENING],
    "a time with a zone behind a naive one": [EVENING, EVENING.replace(tzinfo=TOKYO)],
    "the zone of a time of day": [dt.time(1, tzinfo=dt.UTC)],
    "nanoseconds of a Timestamp": [FINE],
    "nanoseconds of a Timedelta": [pd.Timedelta(1, "ns")],
}
KEPT = {
    "dates": [DAY, None],
    "times of several zones": [EVENING.replace(tzinfo=TOKYO), EVENING.replace(tzinfo=dt.UTC), None],
    "the hour that is repeated": [
        dt.datetime(2020, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
        pd.Timestamp("2020-10-25 00:30", tz="UTC"),
    ],
    "whole Timestamps": [pd.Timestamp("2020-01-01"), None],
    "times of day": [dt.time(1), None],
    "structs of both": [{"x": DAY, "y": EVENING}, None, {"x": None, "y": EVENING}],
}
GIVEN = {
    "a mapping": lambda values: {"c": values},
    "a mapping of an iterator": lambda values: {"c": iter(values)},
    "a mapping of a series": lambda values: {"c": pd.Series(values, dtype=object)},
    "a frame": lambda values: pd.DataFrame({"n": [1] * len(values), "c": pd.Series(values, dtype=object)}),
}


@pytest.mark.parametrize("form", GIVEN)
@pytest.mark.parametrize("what", LOST)
def test_times_that_arrow_would_change_are_refused_by_the_name_of_their_column(what, form):
    kind = pa.array(LOST[what]).type
    store = store_with(schema=pa.schema([("n", pa.int64()), ("c", kind)]))

    with store.transaction() as txn:
        with pytest.raises(InvalidInputError, match=r"column 'c'.* would become "):
            txn.append("t", GIVEN[form](LOST[what]))
        assert txn.table("t").num_rows == 0


@pytest.mark.parametrize("form", GIVEN)
@pytest.mark.parametrize("what", KEPT)
def test_times_that_arrow_keeps_are_appended(what, form):
    kind = pa.array(KEPT[what]).type
    store = store_with(schema=pa.schema([("n", pa.int64()), ("c", kind)]))

    with store.transaction() as txn:
        txn.append("t", GIVEN[form](KEPT[what]))

    assert store.snapshot().table("t").read()["c"].combine_chunks() == pa.array(KEPT[what], kind)


def test_an_update_takes_nanoseconds_where_its_column_has_them():
    store = store_with(pa.table({"c": pa.nulls(1, pa.timestamp("ns"))}))

    with store.transaction() as txn:
        txn.update_rows("t", [0], {"c": [FINE]})

    assert store.snapshot().table("t").read()["c"].to_pylist() == [FINE]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [Decimal("1.5"), 2.5]),
        (pa.map_(pa.string(), pa.int64()), [[("k", 1.5)], None]),
        (pa.map_(pa.string(), pa.date32()), [[("k", EVENING)], None]),
    ],
    ids=str,
)
def test_an_update_truncates_nothing_where_a_type_cannot_be_inferred(kind, values):
    store = store_with(pa.table({"c": pa.nulls(2, kind)}))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match="would become"):
        txn.update_rows("t", [0, 1], {"c": values})


times = st.one_of(
    st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
    st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)),
    st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.sampled_from([TOKYO, PARIS])),
    st.times(timezones=st.sampled_from([None, dt.UTC])),
    st.none(),
)


@given(st.lists(times | st.lists(times, max_size=3), max_size=4))
def test_an_array_of_times_is_what_was_given_or_there_is_none(values):
    try:
        found = inferred(values)
    except (LossError, pa.ArrowException, TypeError):
        return
    check_unchanged(values, found)


@pytest.mark.parametrize("values", ["abc", b"abc", {"a": 1}])
def test_text_is_no_column_of_letters(values):
    store = store_with(schema=pa.schema([("c", pa.string())]))

    with (
        store.transaction() as txn,
        pytest.raises(InvalidInputError, match=r"'c'.*expected a list of values"),
    ):
        txn.append("t", {"c": values})


@pytest.mark.parametrize("values", [[1, "a"], [Decimal("NaN")], [1 << 70], np.array([1j])], ids=repr)
def test_a_column_of_a_mapping_that_arrow_does_not_read_is_named(values):
    store = store_with(schema=pa.schema([("n", pa.int64()), ("c", pa.int64())]))

    with store.transaction() as txn, pytest.raises(InvalidInputError, match="column 'c' of a mapping"):
        txn.append("t", {"n": [1], "c": values})


def test_bytes_of_an_extension_type_are_no_text():
    store = store_with(schema=pa.schema([("c", pa.string())]))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match=r"arrow\.uuid"):
        txn.append("t", {"c": [UUID(int=1)]})
