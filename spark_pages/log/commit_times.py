"""Times of versions: as commits record them, and as a store that has reset its clock dates them. Pure.

A commit records a time later than that of its parent, whatever its clock says. So after one commit of a clock
that is far ahead, all later ones record its time plus some microseconds. A *reset* is a commit that stores by
how much recorded times run ahead from its version on. Recorded times still only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spark_pages.errors import DamageError

RESETS_PROPERTY = "spark_pages.clock_resets"
"""Property of the store that holds its resets, the oldest first: ``version:time:ahead``, space between."""

MAX_TIME_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999: no datetime is later."""

MIN_TIME_US = -62_135_596_800_000_000
"""The first microsecond of the year 1."""

MAX_RECORDED_US = (1 << 63) - 2
"""The last time that a commit can record which still leaves one for its successor."""


def as_datetime(timestamp_us: int) -> datetime:
    """Convert microseconds since 1970 to a datetime in UTC, at most the last one of the year 9999."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=bounded(timestamp_us))


def bounded(timestamp_us: int) -> int:
    """Bound a time to the years 1 to 9999, which datetime and Arrow can show."""
    return min(max(timestamp_us, MIN_TIME_US), MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class ClockReset:
    """From this version on recorded times run ahead by so much.

    Attributes
    ----------
    version
        The commit that stores the reset.
    timestamp_us
        When it was made: no earlier version is later than this.
    ahead_us
        By how much recorded times are ahead of real ones from here on.
    """

    version: int
    timestamp_us: int
    ahead_us: int


def resets_of(properties: Mapping[str, str]) -> tuple[ClockReset, ...]:
    """Parse the resets of a store, the oldest first.

    Raises
    ------
    DamageError
        If the property is not a list of resets.
    """
    text = properties.get(RESETS_PROPERTY, "")
    try:
        return tuple(ClockReset(*map(int, each.split(":"))) for each in text.split())
    except (TypeError, ValueError):
        raise DamageError(
            f"Cannot read the store property {RESETS_PROPERTY!r}: expected clock resets, found {text!r}."
        ) from None


def with_reset(properties: Mapping[str, str], reset: ClockReset) -> dict[str, str]:
    """Form the property with one more reset."""
    resets = (*resets_of(properties), reset)
    text = " ".join(f"{each.version}:{each.timestamp_us}:{each.ahead_us}" for each in resets)
    return {RESETS_PROPERTY: text}


def dated(properties: Mapping[str, str], version: int, recorded_us: int) -> int:
    """Date a version: the time that its commit records, corrected by the resets of the store.

    Parameters
    ----------
    properties
        Of the newest version known.

    Notes
    -----
    Times grow with versions. What was committed by the wrong clock is dated to the last microseconds before
    the reset: when exactly is recorded nowhere.
    """
    if RESETS_PROPERTY not in properties:
        return recorded_us
    time_us = recorded_us
    resets = resets_of(properties)
    for reset in resets:
        if reset.version <= version:
            time_us = recorded_us - reset.ahead_us
    for reset in resets:
        if reset.version > version:
            time_us = min(time_us, reset.timestamp_us - (reset.version - version))
    return time_us


def dating(properties: Mapping[str, str], read_time_us: Callable[[int], int]) -> Callable[[int], int]:
    """Make a function that dates versions from one that reads recorded times."""
    return lambda version: dated(properties, version, read_time_us(version))


def ahead_of(properties: Mapping[str, str]) -> int:
    """By how much the commits of now record times that are ahead."""
    resets = resets_of(properties) if RESETS_PROPERTY in properties else ()
    return resets[-1].ahead_us if resets else 0
