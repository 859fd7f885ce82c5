"""Times of day in quotes, compared with columns of any unit."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError
from tests.transaction.stores import store_with


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str)
def test_a_time_of_day_in_quotes_is_compared_with_columns_of_any_unit(kind):
    rows = pa.table({"t": pa.array([dt.time(10), dt.time(11, 30), None], kind), "n": [0, 1, 2]})
    table = store_with(rows).snapshot().table("t")

    found = [
        table.read(["n"], filter=text)["n"].to_pylist()
        for text in (
            "t = '10:00:00'",
            "t > time '10:00:00'",
            "t <= cast('11:30' as time)",
            "time '11:00' < t",
            "t in ('11:30:00', '10:00:00.000000001')",
            "t > '10:00:00.123456789'",
            "t = '10:00:00.000000001'",
        )
    ]

    assert found == [[0], [1], [0, 1], [1], [1], [1], []]


@pytest.mark.parametrize("text", ["25:00", "10:00:00+01:00", "ten", "10:00:00.1234567891", "10:00:00.5x"])
def test_what_is_no_time_of_day_is_refused(text):
    table = store_with(pa.table({"t": pa.array([0], pa.time64("us"))})).snapshot().table("t")

    with pytest.raises(InvalidInputError, match=r"column 5: expected time64\[us\] in quotes"):
        table.read(filter=f"t = '{text}'")
