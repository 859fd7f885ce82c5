"""Which requests read a set of pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_pages.errors import DamageError
from spark_pages.io.system_cache import Way
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE
from spark_pages.model.run import PageKey

WASTE = 0.1
"""Bytes that nobody asked for are read where they save requests: up to this share of those that were."""


@dataclass(slots=True)
class ReadRange:
    """A stretch of one object that is read by one request.

    Attributes
    ----------
    path
        Key of the object.
    start, stop
        First byte, and one past the last that the pages reserve.
    used_stop
        One past the last byte of the last page.
    keys
        The pages asked for in it, in order.
    way
        How its bytes were reached; set by the read.
    """

    path: str
    start: int
    stop: int
    used_stop: int
    keys: list[PageKey]
    way: Way = Way.STORAGE


def plan_spans(keys: Iterable[PageKey], max_bytes: int) -> list[ReadRange]:
    """Spans of pages that lie one after another.

    Parameters
    ----------
    keys
        File pages in any order, each once.
    max_bytes
        A span is cut before it reserves more than that; a page of its own may.

    Raises
    ------
    DamageError
        If a place cannot be: no multiple of 4 KiB, or a page larger than what it reserves.
    """
    spans: list[ReadRange] = []
    last: ReadRange | None = None
    for key in sorted(keys):
        path, offset, alloc_len, actual_len, _, _ = key
        if (
            (offset | alloc_len) & (PAGE_ALIGNMENT - 1)
            or offset < 0
            or not PAGE_HEADER_SIZE <= actual_len <= alloc_len
        ):
            raise DamageError(
                f"Cannot read the page at {offset} of {path!r}: expected a multiple of {PAGE_ALIGNMENT}, and "
                f"a page that fits its reserve, found alloc_len {alloc_len} and actual_len {actual_len}."
            )
        stop = offset + alloc_len
        if last is not None and last.stop == offset and last.path == path and stop - last.start <= max_bytes:
            last.stop, last.used_stop = stop, offset + actual_len
            last.keys.append(key)
        else:
            last = ReadRange(path, offset, stop, offset + actual_len, [key])
            spans.append(last)
    return spans


def join_spans(spans: Sequence[ReadRange], max_bytes: int, gap_bytes: int | None) -> list[ReadRange]:
    """Fewer spans, joined across gaps that are cheaper to read than to skip.

    Parameters
    ----------
    spans
        As `plan_spans` gives them.
    max_bytes
        No joined span is longer.
    gap_bytes
        Gaps up to this many bytes are read. None reads the smallest gaps, as long as all that is read is no
        more than 1.1 times the bytes of the pages; padding between neighbours counts.

    Notes
    -----
    O(n log n).
    """
    gaps = [
        after.start - before.used_stop if after.path == before.path and after.start >= before.stop else None
        for before, after in pairwise(spans)
    ]
    chosen = (
        _affordable(spans, gaps)
        if gap_bytes is None
        else {index for index, gap in enumerate(gaps) if gap is not None and gap <= gap_bytes}
    )
    joined: list[ReadRange] = []
    for index, span in enumerate(spans):
        last = joined[-1] if joined else None
        if last is not None and index - 1 in chosen and span.stop - last.start <= max_bytes:
            joined[-1] = ReadRange(last.path, last.start, span.stop, span.used_stop, [*last.keys, *span.keys])
        else:
            joined.append(span)
    return joined


def most_spans(spans: Sequence[ReadRange], max_bytes: int) -> int:
    """How many requests some of the pages take at most, whichever these are.

    Parameters
    ----------
    spans
        Of all of them, as `plan_spans` gives them without a bound.

    Notes
    -----
    Every second page of a stretch makes the most stretches. Each two spans of one stretch that was cut are
    longer than a span may be.
    """
    return sum(
        min(len(span.keys), (len(span.keys) + 1) // 2 + 2 * (span.stop - span.start) // max_bytes)
        for span in spans
    )


def most_bytes(spans: Sequence[ReadRange], gap_bytes: int | None) -> int:
    """How many bytes `join_spans` of some of the pages reads at most, whichever these are."""
    reserved = sum(span.stop - span.start for span in spans)
    if gap_bytes is not None:
        return reserved + gap_bytes * sum(len(span.keys) for span in spans)
    return reserved + math.ceil(WASTE * sum(key[3] for span in spans for key in span.keys))


def _affordable(spans: Sequence[ReadRange], gaps: Sequence[int | None]) -> set[int]:
    """Choose the smallest gaps that together stay within the allowed waste."""
    asked = sum(key[3] for span in spans for key in span.keys)
    left = asked * (1 + WASTE) - sum(span.used_stop - span.start for span in spans)
    chosen = set()
    for gap, index in sorted((gap, index) for index, gap in enumerate(gaps) if gap is not None):
        left -= gap
        if left < 0:
            break
        chosen.add(index)
    return chosen
