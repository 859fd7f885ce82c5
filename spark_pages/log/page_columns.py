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

from spark_pages.model.columns import (
    no_bytes,
    number_column,
    numbers_of,
    optional_bytes,
    optional_flags,
    optional_text,
    valid_of,
)
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA

_NUMBERS = ("entry_count", "payload_entries", "kind", "offset", "alloc_len", "actual_len", "checksum")
_DATA, _MIN, _MAX, _EXACT_KNOWN, _EXACT = 1, 2, 4, 8, 16
_UNKNOWN = -1


def pages_to_avro(pages: pa.RecordBatch, stats: pa.RecordBatch) -> dict[str, Any]:
    """The fields of a `Pages` record."""
    path, exact = pages.column("path"), stats.column("exact")
    lists = {_DATA: pages.column("data"), _MIN: stats.column("min"), _MAX: stats.column("max")}
    bits = {None: 0, False: _EXACT_KNOWN, True: _EXACT_KNOWN | _EXACT}
    given = np.array([bits[value] for value in exact.to_pylist()], dtype=np.uint8)
    for bit, column in lists.items():
        given |= valid_of(column) * np.uint8(bit)
    nulls = np.where(valid_of(stats.column("null_count")), numbers_of(stats.column("null_count")), _UNKNOWN)
    return {
        **{name: _raw(numbers_of(pages.column(name))) for name in _NUMBERS},
        "paths": path.dictionary.to_pylist(),
        "path": _raw(np.where(valid_of(path), numbers_of(path.indices), -1).astype(np.int32)),
        "null_count": _raw(nulls.astype(np.int64)),
        "given": given.tobytes(),
        **{
            name: _listed(column) for name, column in zip(("data", "min", "max"), lists.values(), strict=True)
        },
    }


def pages_from_avro(value: dict[str, Any]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Descriptors, whose ids are ordinals from 0, and statistics of a `Pages` record.

    Raises
    ------
    ValueError
        If the columns do not fit each other.
    """
    given = np.frombuffer(value["given"], np.uint8)
    n = len(given)
    columns = {name: _numbers(value[name], n, PAGE_SCHEMA.field(name).type) for name in _NUMBERS}
    columns["page_id"] = number_column(np.arange(n), pa.int64())
    index = numbers_of(_numbers(value["path"], n, pa.int32()))
    if n and (index.min() < -1 or index.max() >= len(value["paths"])):
        raise ValueError("a page names a path that is not listed")
    columns["path"] = pa.DictionaryArray.from_arrays(
        number_column(index, pa.int32(), index >= 0), optional_text(value["paths"])
    )
    columns["data"] = _spread(value["data"], (given & _DATA) != 0)
    nulls = numbers_of(_numbers(value["null_count"], n, pa.int64()))
    exact = [bool(flag & _EXACT) if flag & _EXACT_KNOWN else None for flag in given.tolist()]
    stats = [
        number_column(nulls, pa.int64(), nulls != _UNKNOWN),
        _spread(value["min"], (given & _MIN) != 0),
        _spread(value["max"], (given & _MAX) != 0),
        optional_flags(exact),
    ]
    return (
        pa.RecordBatch.from_arrays([columns[name] for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA),
        pa.RecordBatch.from_arrays(stats, schema=STATS_SCHEMA),
    )


def _listed(column: pa.Array) -> list[bytes]:
    if column.null_count == len(column):
        return []
    return [value for value in column.to_pylist() if value is not None]


def _raw(numbers: NDArray[Any]) -> bytes:
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes()


def _numbers(data: bytes, count: int, kind: pa.DataType) -> pa.Array:
    width = kind.bit_width // 8
    if len(data) != count * width:
        raise ValueError(f"a column of {count} numbers of {width} bytes has {len(data)} bytes")
    return number_column(np.frombuffer(data, f"<i{width}"), kind)


def _spread(values: Sequence[bytes], where: NDArray[np.bool_]) -> pa.Array:
    """The values where they belong, null elsewhere."""
    if len(values) != np.count_nonzero(where):
        raise ValueError(f"{np.count_nonzero(where)} values are announced, but {len(values)} are there")
    if not len(values):
        return no_bytes(len(where))
    left = iter(values)
    return optional_bytes([next(left) if flag else None for flag in where.tolist()])
