"""Durations and intervals, of which DuckDB keeps microseconds and drops the rest without a word. Pure."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import valid_of
from spark_pages.arrow.nested import children
from spark_pages.errors import InvalidInputError

_INTERVAL = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])


def check_intervals(column: str, values: pa.Array) -> None:
    """Raise InvalidInputError if a duration or an interval, also one inside of others, has nanoseconds."""
    if _may_have_nanoseconds(values.type) and _has_nanoseconds(values):
        raise InvalidInputError(
            f"Cannot query column {column!r}: DuckDB keeps microseconds of durations and intervals, and some "
            "have nanoseconds.",
            hint="Read it with `Table.read`.",
        )


def _is_fine(kind: pa.DataType) -> bool:
    return bool(kind == pa.duration("ns") or pa.types.is_interval(kind))


@lru_cache(256)
def _may_have_nanoseconds(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return bool(_may_have_nanoseconds(kind.storage_type))
    if pa.types.is_dictionary(kind):
        return bool(_may_have_nanoseconds(kind.value_type))
    inside = (kind.field(index).type for index in range(kind.num_fields))
    return _is_fine(kind) or any(map(_may_have_nanoseconds, inside))


def _has_nanoseconds(array: pa.Array) -> bool:
    if isinstance(array, pa.ExtensionArray):
        return _has_nanoseconds(array.storage)
    if pa.types.is_dictionary(array.type):
        return _has_nanoseconds(array.dictionary)
    if not _is_fine(array.type):
        return any(map(_has_nanoseconds, children(array)))
    if not len(array):
        return False
    layout = _INTERVAL if pa.types.is_interval(array.type) else np.dtype([("nanoseconds", np.int64)])
    entries = np.frombuffer(array.buffers()[1], layout, len(array), array.offset * layout.itemsize)
    return bool((entries["nanoseconds"][valid_of(array)] % 1000).any())
