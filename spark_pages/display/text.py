"""Text that may be anything, made fit to be shown; and numbers, sizes and times for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

NAME_CHARS = 64
"""Longer names lose their middle."""

# XML has no way to write these; the last two groups turn the direction of what stands behind them.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


def fit(text: str) -> str:
    """Replace characters that cannot or should not be shown by U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def shorten(text: str, chars: int = NAME_CHARS) -> str:
    """Remove the middle of text longer than `chars`."""
    if len(text) <= chars:
        return text
    head = (chars - 1) // 2
    return f"{text[:head]}…{text[len(text) - (chars - 1 - head) :]}"


def size(n: float) -> str:
    """Bytes for people: ``12.3 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024 or unit == "GiB":
            return f"{n:,.0f} {unit}" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1024
    raise AssertionError


def count(n: int, what: str) -> str:
    """``1 page``, ``2,000 pages``."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def seconds(duration_s: float) -> str:
    """Format a duration for people: ``320 µs``, ``1.5 ms``, ``12 s``, ``3.2 h``."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if duration_s >= length:
            value = duration_s / length
            return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
    return f"{duration_s * 1e6:.0f} µs"


def moment(timestamp_us: int, precise: bool = False) -> str:
    """Microseconds since the epoch as a time in UTC; `precise` tells milliseconds too."""
    try:
        when = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=timestamp_us)
    except OverflowError:  # before the year 1 or after 9999
        return f"{timestamp_us:,} µs since 1970"
    return f"{when:%Y-%m-%d %H:%M:%S}" + (f".{when.microsecond // 1000:03}" if precise else "")
