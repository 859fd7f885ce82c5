"""Times, versions and rows in every form that callers have; what stands for none of them is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.arguments import as_duration, as_int, as_microseconds
from spark_pages.errors import InvalidInputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = 1_795_600_800_000_000
"""2026-11-25T10:00:00Z."""

FORMS = {
    "microseconds": NOON,
    "microseconds of numpy": np.int64(NOON),
    "text": "2026-11-25T10:00:00Z",
    "text of another zone": "2026-11-25T12:00:00+02:00",
    "text without a zone": "2026-11-25T10:00:00",
    "text of numpy": np.str_("2026-11-25T10:00:00"),
    "an aware time": datetime(2026, 11, 25, 10, tzinfo=UTC),
    "a time of another zone": datetime(2026, 11, 25, 19, tzinfo=ZoneInfo("Asia/Tokyo")),
    "a naive time": datetime(2026, 11, 25, 10),
    "a time of pandas": pd.Timestamp("2026-11-25T10:00:00.000000999", tz="UTC"),
    "a naive time of pandas": pd.Timestamp("2026-11-25T10:00:00"),
    "a time of pandas in another zone": pd.Timestamp("2026-11-25T19:00:00", tz="Asia/Tokyo"),
    "a time of numpy": np.datetime64("2026-11-25T10:00:00"),
    "a time of numpy in nanoseconds": np.datetime64("2026-11-25T10:00:00.000000999"),
    "a time of numpy in hours": np.datetime64("2026-11-25T10", "h"),
    "a time of pyarrow": pa.scalar(NOON, pa.timestamp("us", "UTC")),
    "a time of pyarrow in seconds": pa.scalar(NOON // 1_000_000, pa.timestamp("s")),
    "a time of pyarrow in nanoseconds": pa.scalar(NOON * 1000 + 999, pa.timestamp("ns", "Asia/Tokyo")),
}

NO_TIMES = {
    "none of pandas": pd.NaT,
    "none of numpy": np.datetime64("NaT"),
    "none of numpy without a unit": np.datetime64("NaT", "ns"),
    "none of pyarrow": pa.scalar(None, pa.timestamp("us")),
    "not available": pd.NA,
    "not a number": float("nan"),
    "a fraction": Fraction(1, 2),
    "seconds as a float": 1_764_064_800.0,
    "a whole float": np.float64(5),
    "a truth": True,
    "a truth of numpy": np.True_,
    "nothing": None,
    "no text": "",
    "another text": "NaT",
    "digits": "1795600800000000",
    "half of a pair": "2026-11-25T10:00:00\ud800",
    "a day": date(2026, 11, 25),
    "a duration": timedelta(days=1),
    "nanoseconds": NOON * 1000,
    "less than the year 1": -(1 << 62),
    "beyond all bits": 1 << 200,
    "a time of numpy beyond years": np.datetime64(1 << 62, "s"),
    "a time of pyarrow beyond years": pa.scalar(1 << 62, pa.timestamp("s")),
    "a year of numpy that is too late": np.datetime64("10000"),
    "several": np.array(["2026-11-25"], dtype="datetime64[us]"),
    "a date of pyarrow": pa.scalar(date(2026, 11, 25)),
}


@pytest.fixture(scope="module")
def store():
    store = sp.create("memory://times-of-callers")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": [1, 2]})
    with store.transaction() as txn:
        txn.append("t", {"n": [3]})
    return store


@pytest.mark.parametrize("form", FORMS)
def test_a_time_is_the_same_in_every_form(form):
    assert as_microseconds(FORMS[form]) == NOON


@pytest.mark.parametrize("form", NO_TIMES)
def test_what_is_no_time_is_refused_with_what_it_is(form):
    with pytest.raises(
        InvalidInputError, match=r"^Cannot use .* as timestamp: expected a time: text as of ISO 8601"
    ):
        as_microseconds(NO_TIMES[form])


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)),
)
def test_aware_times_are_read_exactly(moment, offset):
    aware = moment.replace(tzinfo=timezone(offset))

    assert EPOCH + timedelta(microseconds=as_microseconds(aware)) == aware
    assert as_microseconds(aware.isoformat()) == as_microseconds(aware)


@given(st.integers(-(1 << 63) + 1, (1 << 63) - 1), st.sampled_from(["s", "ms", "us", "ns"]))
def test_times_of_numpy_and_pyarrow_agree_or_are_both_refused(number, unit):
    read = []
    for value in (np.datetime64(number, unit), pa.scalar(number, pa.timestamp(unit))):
        try:
            read.append(as_microseconds(value))
        except InvalidInputError:
            read.append(None)

    assert read[0] == read[1]


TAKES_A_TIME = {
    "snapshot": lambda s, t: s.snapshot(timestamp=t).version,
    "restore": lambda s, t: s.restore(timestamp=t) - 1,
    "sql": lambda s, t: 2 if s.sql("SELECT count(*) AS c FROM t", timestamp=t)["c"][0].as_py() == 3 else 1,
    "range": lambda s, t: len(s.snapshot().table("t").directory.range("n", 0, 2, t)) + 1,
    "get_ranged_pages_meta": lambda s, t: (
        len(s.snapshot().table("t").directory.get_ranged_pages_meta("n", 0, 2, t)) + 1
    ),
}


@pytest.mark.parametrize("verb", TAKES_A_TIME)
@pytest.mark.parametrize("form", sorted(NO_TIMES.keys() - {"nothing", "nanoseconds"}))
def test_no_verb_takes_what_is_no_time_and_nothing_is_committed(store, verb, form):
    before = store.snapshot()

    with pytest.raises(InvalidInputError):
        TAKES_A_TIME[verb](store, NO_TIMES[form])

    assert store.snapshot().version == before.version


def test_an_upper_bound_may_be_the_largest_number(store):
    directory = store.snapshot().table("t").directory

    assert directory.get_ranged_pages_meta("n", 0, 3, (1 << 63) - 1) == directory.range("n", 0, 3)


LISTED = {
    "as pyarrow has them": lambda history: list(history["timestamp"]),
    "as Python has them": lambda history: history["timestamp"].to_pylist(),
    "as pandas has them": lambda history: list(history.to_pandas()["timestamp"]),
    "as numpy has them": lambda history: list(history["timestamp"].to_numpy()),
    "as text": lambda history: [str(each) for each in history["timestamp"]],
    "as numbers": lambda history: [each.value for each in history["timestamp"]],
}


@pytest.mark.parametrize("how", LISTED)
def test_times_that_history_returns_lead_to_their_versions(store, how):
    history = store.history().filter(pa.compute.is_valid(store.history()["transaction"]))

    found = [store.snapshot(timestamp=each).version for each in LISTED[how](history)]

    assert found == history["version"].to_pylist()


DURATIONS = {
    "of Python": timedelta(days=1, microseconds=5),
    "of pandas": pd.Timedelta(days=1, microseconds=5),
    "of numpy": np.timedelta64(86_400_000_005, "us"),
}


@pytest.mark.parametrize("form", DURATIONS)
def test_a_duration_is_the_same_in_every_form(form):
    assert as_duration(DURATIONS[form], "duration") == timedelta(days=1, microseconds=5)


@pytest.mark.parametrize("value", [pd.NaT, np.timedelta64("NaT"), np.timedelta64(1, "Y"), 5, 5.0, None, True])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(InvalidInputError, match=r"^Cannot use .* as retention: expected a timedelta"):
        as_duration(value, "retention")


NUMBERS = (1, np.int8(1), np.uint64(1), np.array(1))
NO_NUMBERS = (True, np.True_, 1.0, np.float32(1), "1", b"1", None, float("nan"), pd.NA, pd.NaT, [1], 1 << 200)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_version_is_the_same_as_any_whole_number(store, number):
    assert store.snapshot(number).version == 1


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda each: type(each).__name__)
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(InvalidInputError, match=r"^Cannot use .* as version: expected a whole number"):
        as_int(value, "version")


ROWS = (
    [True, False],
    [0, True],
    (np.True_, 0),
    np.array([True]),
    [0.0],
    [None],
    [pd.NA],
    ["0"],
    [1 << 64],
    {0},
)


@pytest.mark.parametrize("rows", ROWS, ids=repr)
def test_rows_are_whole_numbers_and_no_truths(store, rows):
    with pytest.raises(InvalidInputError):
        store.snapshot().table("t").take(rows)


@pytest.mark.parametrize("app_version", [1 << 63, -(1 << 63) - 1, True, 1.0, "1"])
def test_numbers_of_applications_fit_63_bits_and_a_sign(store, app_version):
    with pytest.raises(InvalidInputError, match="as app_version"):
        store.transaction(app_id="a", app_version=app_version)
