"""Whether bounds that another writer may have formed are true of some values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.errors import DamageError
from spark_pages.format.bounds import decode_bound, is_bytes, plain_values
from spark_pages.format.statistics import page_stats
from spark_pages.model.page import PageStats


def bounds_are_valid(values: pa.Array, claimed: PageStats) -> bool:
    """Whether no value lies outside of the claimed bounds, and they are values where they say so.

    Notes
    -----
    Only asked where the bounds are not those that this release would have formed.
    """
    values = plain_values(values)
    known = values.drop_null()
    bounded = claimed.min is not None or claimed.max is not None
    if not len(known):
        return not bounded and not claimed.nan
    found = page_stats(known)
    if claimed.nan and not found.nan:
        return False
    unbounded = found.min is None and found.max is None
    if not bounded:  # `exact` without bounds says that there is nothing but NaN
        return not claimed.exact or (claimed.nan and found.exact and unbounded)
    if unbounded or claimed.nan != found.nan:
        return False
    if is_bytes(values.type):
        plain = pc.min_max(known.cast(pa.large_binary()))
        low, high = plain["min"].as_py(), plain["max"].as_py()
        below = claimed.min is None or claimed.min <= low
        above = claimed.max is None or high <= claimed.max
        return below and above and (not claimed.exact or (claimed.min, claimed.max) == (low, high))
    if claimed.exact:
        return (claimed.min, claimed.max) == (found.min, found.max)
    try:
        return _ordered(values.type, claimed.min, found.min) and _ordered(values.type, found.max, claimed.max)
    except (DamageError, pa.ArrowInvalid):
        return False


def _ordered(kind: pa.DataType, low: bytes | None, high: bytes | None) -> bool:
    if low is None or high is None:
        return True
    return bool(pc.less_equal(decode_bound(kind, low), decode_bound(kind, high)).as_py())
