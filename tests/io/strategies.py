"""Arrow arrays of many types, with nulls and as slices, for the property tests of pages."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: the first text builds tables of Unicode, and CI machines are shared."""

_DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))
_MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=dt.UTC)
)
_TEXT = st.text(max_size=40)
_LONG_TEXT = st.text(st.sampled_from("a\x7fé߿\ud7ff\uffff\U0010ffff"), max_size=60)

ORDERED = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.date32(): _DAYS,
    pa.timestamp("us", "UTC"): _MOMENTS,
    pa.duration("us"): st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000)),
    pa.decimal128(18, 4): st.decimals(-(10**13), 10**13, places=4, allow_nan=False),
    pa.string(): st.one_of(_TEXT, _LONG_TEXT),
    pa.large_string(): _LONG_TEXT,
    pa.binary(): st.one_of(st.binary(max_size=80), st.integers(0, 60).map(lambda n: b"\xff" * n)),
}
"""Types with bounds, and strategies of their values."""

NESTED = {
    pa.list_(pa.int32()): st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=4),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.one_of(st.none(), st.integers(0, 9)), "b": _TEXT}
    ),
    pa.map_(pa.string(), pa.float64()): st.lists(st.tuples(_TEXT, st.just(math.pi)), max_size=3),
    pa.string_view(): _LONG_TEXT,
    pa.binary(7): st.binary(min_size=7, max_size=7),
    pa.null(): st.none(),
    pa.decimal256(60, 3): st.just(Decimal("12.345")),
}


@st.composite
def arrays(
    draw: st.DrawFn, types: dict[pa.DataType, st.SearchStrategy[object]], min_size: int = 0
) -> pa.Array:
    """An array of one of the types; often with nulls, and often a slice of a longer one."""
    kind = draw(st.sampled_from(list(types)))
    values = draw(st.lists(st.one_of(st.none(), types[kind]), min_size=min_size, max_size=40))
    whole = pa.array(values, kind)
    start = draw(st.integers(0, len(whole) - min_size))
    return whole.slice(start, draw(st.integers(min_size, len(whole) - start)))


def dictionary_arrays() -> st.SearchStrategy[pa.Array]:
    """Slices of dictionary-encoded text."""
    return arrays({pa.string(): _TEXT}).map(lambda array: array.dictionary_encode())
