"""Page descriptors as columns of bytes inside a commit, and back. Pure.

Arrays of Avro cost microseconds an element in Python. So each numeric column is one Avro `bytes`: the numbers
one after another, little-endian, which is what Arrow and numpy have in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import (
    no_bytes,
    no_numbers,
    number_column,
    numbers_of,
    optional_bytes,
    optional_flags,
    optional_text,
    true_flags,
    valid_of,
)
from spark_pages.errors import DamageError
from spark_pages.format.validate import NUMBERS, find_invalid_number, why_page_is_invalid
from spark_pages.model.added_pages import FEW_PAGES, AddedPages, NewPage
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from spark_pages.model.page_schema import BLOOM_STATS, PAGE_SCHEMA, STATS_SCHEMA

_WIDTHS = (1, 2, 4, 8)
_HEAD_BYTES = 9
"""The width of a difference, and the first number."""


def pack_numbers(numbers: Sequence[int] | NDArray[np.int64]) -> bytes:
    """Encode signed 64-bit numbers: the first, and the difference of each later one from the one before."""
    if not len(numbers):
        return b""
    values = np.asarray(numbers, np.int64)
    steps = np.diff(values)  # modulo 2^64, as the sums of the reader
    least, most = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    width = next(each for each in _WIDTHS if -(1 << 8 * each - 1) <= least and most < 1 << 8 * each - 1)
    return bytes([width]) + values[:1].astype("<i8").tobytes() + steps.astype(f"<i{width}").tobytes()


def unpack_numbers(data: bytes) -> NDArray[np.int64]:
    """Decode what `pack_numbers` gives.

    Raises
    ------
    DamageError
        If the bytes are not of that form.
    """
    if not data:
        return np.zeros(0, np.int64)
    width = data[0]
    if width not in _WIDTHS or len(data) < _HEAD_BYTES or (len(data) - _HEAD_BYTES) % width:
        raise DamageError(f"Cannot decode packed numbers of {len(data)} bytes: their width is {width}.")
    steps = np.frombuffer(data, f"<i{width}", offset=_HEAD_BYTES)
    values = np.empty(1 + len(steps), np.int64)
    values[0] = np.frombuffer(data, "<i8", 1, offset=1)[0]
    values[1:] = steps
    return np.cumsum(values)


DATA, MIN, MAX, EXACT_KNOWN, EXACT, DISTINCT, BLOOM, NAN = 1, 2, 4, 8, 16, 32, 64, 128
"""Bits of `given`: what a page has."""

UNKNOWN = -1
"""Stands for a number of nulls that nobody counted."""

_KINDS = {int(kind): kind for kind in PageKind}
_MOST_ROWS = 1 << 62


def small_to_avro(pages: Sequence[NewPage]) -> dict[str, Any]:
    """Convert few pages to the fields of a `Pages` record."""
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


def small_from_avro(value: dict[str, Any]) -> list[NewPage]:
    """Read the pages of a small `Pages` record.

    Raises
    ------
    ValueError
        If the columns do not fit each other, or hold numbers that cannot be true.
    """
    given: bytes = value["given"]
    count, paths = len(given), value["paths"]
    named = _small_numbers(value["path"], count, "i")
    if count and (min(named) < -1 or max(named) >= len(paths)):
        raise ValueError("a page names a path that is not listed")
    data = _small_spread(value["data"], given, DATA)
    stats = map(
        _stats,
        given,
        _small_numbers(value["null_count"], count, "q"),
        _small_spread(value["min"], given, MIN),
        _small_spread(value["max"], given, MAX),
        _small_spread_numbers(value["distinct"], given, DISTINCT, "q"),
        _small_spread_numbers(value["bloom_offset"], given, BLOOM, "q"),
        _small_spread_numbers(value["bloom_length"], given, BLOOM, "i"),
        _small_spread_numbers(value["bloom_checksum"], given, BLOOM, "Q"),
    )
    numbers = zip(
        _small_numbers(value["entry_count"], count, "q"),
        _small_numbers(value["payload_entries"], count, "q"),
        _small_numbers(value["kind"], count, "b"),
        _small_numbers(value["offset"], count, "q"),
        _small_numbers(value["alloc_len"], count, "i"),
        _small_numbers(value["actual_len"], count, "i"),
        strict=True,
    )
    checksums = _small_numbers(value["checksum"], count, "Q")
    pages, rows = [], 0
    for index, ((entries, payload, kind, offset, alloc, actual), path, checksum, own, told) in enumerate(
        zip(numbers, named, checksums, data, stats, strict=True)
    ):
        wrong = why_page_is_invalid(
            (entries, payload, kind, offset, alloc, actual), path >= 0, own is not None
        )
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


def _small_numbers(data: bytes, count: int, code: str) -> tuple[int, ...]:
    width = struct.calcsize(code)
    if len(data) != count * width:
        raise ValueError(f"a column of {count} numbers of {width} bytes has {len(data)} bytes")
    return struct.unpack(f"<{count}{code}", data)


def _small_spread(values: Sequence[bytes], given: bytes, bit: int) -> Iterator[bytes | None]:
    """Place values at the positions that have them, and None elsewhere."""
    where = [flags & bit for flags in given]
    announced = len(where) - where.count(0)
    if len(values) != announced:
        raise ValueError(f"{announced} values are announced, but {len(values)} are there")
    return _placed(iter(values).__next__, where)


def _small_spread_numbers(data: bytes, given: bytes, bit: int, code: str) -> Iterator[int | None]:
    where = [flags & bit for flags in given]
    # fastavro gives the default of a field that is not there as text
    return _placed(iter(_small_numbers(data or b"", len(where) - where.count(0), code)).__next__, where)


def _placed(following: Callable[[], Any], where: Sequence[int]) -> Iterator[Any]:
    return iter([following() if flag else None for flag in where])


_NUMBERS = ("entry_count", "payload_entries", "kind", "offset", "alloc_len", "actual_len", "checksum")
_OPTIONAL = {"distinct": DISTINCT, **dict.fromkeys(BLOOM_STATS, BLOOM)}
_GIVEN = {"data": DATA, "min": MIN, "max": MAX, "exact": EXACT_KNOWN, **_OPTIONAL}


def pages_to_avro(own: AddedPages) -> dict[str, Any]:
    """Convert pages to the fields of a `Pages` record. Many pages become Arrow columns for `LongRecord`."""
    if own.few is not None:
        return small_to_avro(own.few)
    pages, stats = own.batches
    columns = dict(zip(PAGE_SCHEMA.names, pages.columns, strict=True))
    columns |= zip(STATS_SCHEMA.names, stats.columns, strict=True)
    given: Any = _true(columns["exact"], EXACT) | _true(columns["nan"], NAN)
    for name, bit in _GIVEN.items():
        given = given | _where(columns[name], bit)
    path = columns["path"]
    return {
        **{name: _raw(columns[name]) for name in _NUMBERS},
        "paths": path.dictionary.to_pylist(),
        "path": _raw(path.indices, instead=-1),
        "null_count": _raw(columns["null_count"], instead=UNKNOWN),
        "given": given.tobytes() if isinstance(given, np.ndarray) else bytes([given]) * len(path),
        **{name: columns[name].drop_null() for name in ("data", "min", "max")},
        **{name: _raw_if_given(columns[name]) for name in _OPTIONAL},
    }


def _where(column: pa.Array, bit: int) -> NDArray[np.uint8] | int:
    """Return the bit for each position that is not null, or one number if all positions agree."""
    if not column.null_count:
        return bit
    return 0 if column.null_count == len(column) else valid_of(column) * np.uint8(bit)


def _true(column: pa.BooleanArray, bit: int) -> NDArray[np.uint8] | int:
    """Return the bit for each true position, or one number if all positions agree."""
    true = column.true_count
    if true in (0, len(column)):
        return bit if true else 0
    return np.array([bit if value else 0 for value in column.to_pylist()], dtype=np.uint8)


def pages_from_avro(value: dict[str, Any]) -> AddedPages:
    """Read the pages and statistics of a `Pages` record.

    Raises
    ------
    ValueError
        If the columns do not fit each other, or hold numbers that cannot be true.
    """
    if len(value["given"]) <= FEW_PAGES:
        return AddedPages.of(small_from_avro(value))
    given = np.frombuffer(value["given"], np.uint8)
    n = len(given)
    columns = {name: _numbers(value[name], n, PAGE_SCHEMA.field(name).type) for name in _NUMBERS}
    numbers = [numbers_of(columns[name]) for name in NUMBERS]
    columns["page_id"] = number_column(np.arange(n), pa.int64())
    index = numbers_of(_numbers(value["path"], n, pa.int32()))
    if n and (index.min() < -1 or index.max() >= len(value["paths"])):
        raise ValueError("a page names a path that is not listed")
    columns["path"] = pa.DictionaryArray.from_arrays(
        number_column(index, pa.int32(), index >= 0), optional_text(value["paths"])
    )
    columns["data"] = _spread(value["data"], (given & DATA) != 0)
    nulls = numbers_of(_numbers(value["null_count"], n, pa.int64()))
    exact = [bool(flag & EXACT) if flag & EXACT_KNOWN else None for flag in given.tolist()]
    stats = [
        number_column(nulls, pa.int64(), nulls != UNKNOWN),
        _spread(value["min"], (given & MIN) != 0),
        _spread(value["max"], (given & MAX) != 0),
        optional_flags(exact),
        *(
            # fastavro gives the default of a field that is not there as text
            _spread_numbers(value[name] or b"", (given & bit) != 0, STATS_SCHEMA.field(name).type)
            for name, bit in _OPTIONAL.items()
        ),
        true_flags((given & NAN).tolist()),
    ]
    pages = pa.RecordBatch.from_arrays([columns[name] for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA)
    wrong = find_invalid_number(numbers, index >= 0, (given & DATA) != 0)
    if wrong is not None:
        raise ValueError(wrong)
    return AddedPages(pages, pa.RecordBatch.from_arrays(stats, schema=STATS_SCHEMA))


def _raw(column: pa.Array, instead: int = 0) -> bytes:
    """Return the numbers of a column as bytes, with a substitute for nulls."""
    numbers = numbers_of(column)
    if column.null_count:
        numbers = np.where(valid_of(column), numbers, numbers.dtype.type(instead))
    return _little(numbers)


def _raw_if_given(column: pa.Array) -> bytes:
    """Return the non-null numbers of a column as bytes."""
    if column.null_count == len(column):
        return b""
    return _little(numbers_of(column)[valid_of(column)])


def _little(numbers: NDArray[Any]) -> bytes:
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes()


def _numbers(data: bytes, count: int, kind: pa.DataType) -> pa.Array:
    width = kind.bit_width // 8
    if len(data) != count * width:
        raise ValueError(f"a column of {count} numbers of {width} bytes has {len(data)} bytes")
    return number_column(np.frombuffer(data, f"<i{width}"), kind)


def _spread_numbers(data: bytes, where: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Place numbers at the positions that have them, and null elsewhere."""
    listed = numbers_of(_numbers(data, int(np.count_nonzero(where)), kind))
    if not len(listed):
        return no_numbers(len(where), kind)
    column = np.zeros(len(where), dtype=listed.dtype)
    column[where] = listed
    return number_column(column, kind, where)


def _spread(values: Sequence[bytes], where: NDArray[np.bool_]) -> pa.Array:
    """Place values at the positions that have them, and null elsewhere."""
    if len(values) != np.count_nonzero(where):
        raise ValueError(f"{np.count_nonzero(where)} values are announced, but {len(values)} are there")
    if not len(values):
        return no_bytes(len(where))
    left = iter(values)
    return optional_bytes([next(left) if flag else None for flag in where.tolist()])
