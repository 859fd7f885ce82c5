"""Page descriptors as columns of bytes inside a commit, and back. Pure.

Arrays of Avro cost microseconds an element in Python. So each numeric column is one Avro `bytes`: the numbers
one after another, little-endian, which is what Arrow and numpy have in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from spark_pages.format.page_limits import NUMBERS, wrong_numbers
from spark_pages.format.small_page_columns import (
    BLOOM,
    DATA,
    DISTINCT,
    EXACT,
    EXACT_KNOWN,
    MAX,
    MIN,
    NAN,
    UNKNOWN,
    few_from_avro,
    few_to_avro,
)
from spark_pages.model.added_pages import OwnPages
from spark_pages.model.new_page import FEW_PAGES
from spark_pages.model.page_schema import BLOOM_STATS, PAGE_SCHEMA, STATS_SCHEMA

_NUMBERS = ("entry_count", "payload_entries", "kind", "offset", "alloc_len", "actual_len", "checksum")
_OPTIONAL = {"distinct": DISTINCT, **dict.fromkeys(BLOOM_STATS, BLOOM)}
_GIVEN = {"data": DATA, "min": MIN, "max": MAX, "exact": EXACT_KNOWN, **_OPTIONAL}


def pages_to_avro(own: OwnPages) -> dict[str, Any]:
    """The fields of a `Pages` record. Of many pages lists are Arrow columns, as `LongRecord` takes them."""
    if own.few is not None:
        return few_to_avro(own.few)
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
    """The bit where a column is not null; a single number where that is everywhere or nowhere."""
    if not column.null_count:
        return bit
    return 0 if column.null_count == len(column) else valid_of(column) * np.uint8(bit)


def _true(column: pa.BooleanArray, bit: int) -> NDArray[np.uint8] | int:
    """The bit where a boolean column is true, likewise."""
    true = column.true_count
    if true in (0, len(column)):
        return bit if true else 0
    return np.array([bit if value else 0 for value in column.to_pylist()], dtype=np.uint8)


def pages_from_avro(value: dict[str, Any]) -> OwnPages:
    """The pages and statistics of a `Pages` record.

    Raises
    ------
    ValueError
        If the columns do not fit each other, or hold numbers that cannot be true.
    """
    if len(value["given"]) <= FEW_PAGES:
        return OwnPages.of(few_from_avro(value))
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
    wrong = wrong_numbers(numbers, index >= 0, (given & DATA) != 0)
    if wrong is not None:
        raise ValueError(wrong)
    return OwnPages(pages, pa.RecordBatch.from_arrays(stats, schema=STATS_SCHEMA))


def _raw(column: pa.Array, instead: int = 0) -> bytes:
    """The numbers of a column, another one in the place of nulls."""
    numbers = numbers_of(column)
    if column.null_count:
        numbers = np.where(valid_of(column), numbers, numbers.dtype.type(instead))
    return _little(numbers)


def _raw_if_given(column: pa.Array) -> bytes:
    """The numbers of a column that are not null."""
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
    """The numbers where they belong, null elsewhere."""
    listed = numbers_of(_numbers(data, int(np.count_nonzero(where)), kind))
    if not len(listed):
        return no_numbers(len(where), kind)
    column = np.zeros(len(where), dtype=listed.dtype)
    column[where] = listed
    return number_column(column, kind, where)


def _spread(values: Sequence[bytes], where: NDArray[np.bool_]) -> pa.Array:
    """The values where they belong, null elsewhere."""
    if len(values) != np.count_nonzero(where):
        raise ValueError(f"{np.count_nonzero(where)} values are announced, but {len(values)} are there")
    if not len(values):
        return no_bytes(len(where))
    left = iter(values)
    return optional_bytes([next(left) if flag else None for flag in where.tolist()])
