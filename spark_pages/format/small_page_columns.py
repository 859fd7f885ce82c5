"""A few page descriptors as columns of bytes inside a commit, and back, without Arrow. Pure.

The same bytes as `page_columns` gives: for a page or two that takes a twentieth of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from spark_pages.format.page_limits import wrong_page
from spark_pages.model.new_page import NewPage
from spark_pages.model.page import BloomLocation, PageKind, PageStats

DATA, MIN, MAX, EXACT_KNOWN, EXACT, DISTINCT, BLOOM, NAN = 1, 2, 4, 8, 16, 32, 64, 128
"""Bits of `given`: what a page has."""

UNKNOWN = -1
"""Stands for a number of nulls that nobody counted."""

_KINDS = {int(kind): kind for kind in PageKind}
_MOST_ROWS = 1 << 62


def few_to_avro(pages: Sequence[NewPage]) -> dict[str, Any]:
    """The fields of a `Pages` record."""
    paths: dict[str | None, int] = {}
    numbers = [-1 if page.path is None else paths.setdefault(page.path, len(paths)) for page in pages]
    stats = [page.stats for page in pages]
    blooms = [each.bloom for each in stats if each.bloom is not None]
    count = len(pages)
    longs, ints = partial(struct.pack, f"<{count}q"), partial(struct.pack, f"<{count}i")  # which it keeps
    return {
        "entry_count": longs(*[page.entry_count for page in pages]),
        "payload_entries": longs(*[page.payload_entries for page in pages]),
        "kind": bytes([page.kind for page in pages]),
        "paths": list(paths),
        "path": ints(*numbers),
        "offset": longs(*[page.offset for page in pages]),
        "alloc_len": ints(*[page.alloc_len for page in pages]),
        "actual_len": ints(*[page.actual_len for page in pages]),
        "checksum": struct.pack(f"<{count}Q", *[page.checksum for page in pages]),
        "given": bytes(map(_given, pages, stats)),
        "data": [page.data for page in pages if page.data is not None],
        "null_count": longs(*[UNKNOWN if s.null_count is None else s.null_count for s in stats]),
        "min": [each.min for each in stats if each.min is not None],
        "max": [each.max for each in stats if each.max is not None],
        "distinct": _packed("q", [each.distinct for each in stats if each.distinct is not None]),
        "bloom_offset": _packed("q", [each.offset for each in blooms]),
        "bloom_length": _packed("i", [each.length for each in blooms]),
        "bloom_checksum": _packed("Q", [each.checksum for each in blooms]),
    }


def _given(page: NewPage, stats: PageStats) -> int:
    given = DATA if page.data is not None else 0
    if stats.min is not None:
        given |= MIN
    if stats.max is not None:
        given |= MAX
    if stats.exact is not None:
        given |= EXACT_KNOWN | EXACT if stats.exact else EXACT_KNOWN
    if stats.distinct is not None:
        given |= DISTINCT
    if stats.bloom is not None:
        given |= BLOOM
    return given | NAN if stats.nan else given


def _packed(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *values) if values else b""


def few_from_avro(value: dict[str, Any]) -> list[NewPage]:
    """The pages of a `Pages` record.

    Raises
    ------
    ValueError
        If the columns do not fit each other, or hold numbers that cannot be true.
    """
    given: bytes = value["given"]
    count, paths = len(given), value["paths"]
    named = _numbers(value["path"], count, "i")
    if count and (min(named) < -1 or max(named) >= len(paths)):
        raise ValueError("a page names a path that is not listed")
    data = _spread(value["data"], given, DATA)
    stats = map(
        _stats,
        given,
        _numbers(value["null_count"], count, "q"),
        _spread(value["min"], given, MIN),
        _spread(value["max"], given, MAX),
        _spread_numbers(value["distinct"], given, DISTINCT, "q"),
        _spread_numbers(value["bloom_offset"], given, BLOOM, "q"),
        _spread_numbers(value["bloom_length"], given, BLOOM, "i"),
        _spread_numbers(value["bloom_checksum"], given, BLOOM, "Q"),
    )
    numbers = zip(
        _numbers(value["entry_count"], count, "q"),
        _numbers(value["payload_entries"], count, "q"),
        _numbers(value["kind"], count, "b"),
        _numbers(value["offset"], count, "q"),
        _numbers(value["alloc_len"], count, "i"),
        _numbers(value["actual_len"], count, "i"),
        strict=True,
    )
    checksums = _numbers(value["checksum"], count, "Q")
    pages, rows = [], 0
    for index, ((entries, payload, kind, offset, alloc, actual), path, checksum, own, told) in enumerate(
        zip(numbers, named, checksums, data, stats, strict=True)
    ):
        wrong = wrong_page((entries, payload, kind, offset, alloc, actual), path >= 0, own is not None)
        if wrong is not None:
            raise ValueError(f"page {index} {wrong}")
        place = paths[path] if path >= 0 else None
        pages.append(
            NewPage(entries, payload, _KINDS[kind], place, offset, alloc, actual, checksum, own, told)
        )
        rows += entries
    if rows >= _MOST_ROWS:
        raise ValueError("its pages have more rows together than 64 bits can count")
    return pages


def _stats(
    given: int,
    nulls: int,
    least: bytes | None,
    most: bytes | None,
    distinct: int | None,
    offset: int | None,
    length: int | None,
    checksum: int | None,
) -> PageStats:
    bloom = None
    if offset is not None and length is not None and checksum is not None:
        bloom = BloomLocation(offset, length, checksum)
    known: Any = None if nulls == UNKNOWN else nulls  # None, as in the columns of Arrow
    exact: Any = bool(given & EXACT) if given & EXACT_KNOWN else None
    return PageStats(known, least, most, exact, distinct, bloom, bool(given & NAN))


def _numbers(data: bytes, count: int, code: str) -> tuple[int, ...]:
    width = struct.calcsize(code)
    if len(data) != count * width:
        raise ValueError(f"a column of {count} numbers of {width} bytes has {len(data)} bytes")
    return struct.unpack(f"<{count}{code}", data)


def _spread(values: Sequence[bytes], given: bytes, bit: int) -> Iterator[bytes | None]:
    """The values where they belong, None elsewhere."""
    where = [flags & bit for flags in given]
    announced = len(where) - where.count(0)
    if len(values) != announced:
        raise ValueError(f"{announced} values are announced, but {len(values)} are there")
    return _placed(iter(values).__next__, where)


def _spread_numbers(data: bytes, given: bytes, bit: int, code: str) -> Iterator[int | None]:
    where = [flags & bit for flags in given]
    # fastavro gives the default of a field that is not there as text
    return _placed(iter(_numbers(data or b"", len(where) - where.count(0), code)).__next__, where)


def _placed(following: Callable[[], Any], where: Sequence[int]) -> Iterator[Any]:
    return iter([following() if flag else None for flag in where])
