"""Keys of many rows, compared in bounded memory: by hashes of 8 bytes, and by values where these meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.types import without_views
from spark_pages.format.bounds import plain_type, plain_values
from spark_pages.format.value_hash import Hashes, hash_values

HASHES_AT_ONCE = 1 << 23
"""So many are held, 64 MiB and as much again while they are sorted; more are compared in several passes."""

_DOUBTFUL_AT_ONCE = 1000
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

Keys = Callable[[], Iterator[pa.Table]]
"""Gives the keys of rows portion by portion, as often as it is called."""


def first_repeated(keys: pa.Table) -> dict[str, object] | None:
    """One key that stands in several rows, or None."""
    plain = [_canonical(column.cast(plain_type(without_views(column.type)))) for column in keys.columns]
    named = pa.table(plain, [f"k{index}" for index in range(keys.num_columns)])
    counted = named.group_by(named.column_names).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1)).slice(0, 1).to_pylist()
    if not repeated:
        return None
    return {name: repeated[0][f"k{index}"] for index, name in enumerate(keys.column_names)}


def _canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with one zero and one NaN, as SQL compares them; other values as they are."""
    if not pa.types.is_floating(column.type):
        return column
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow does not compare half floats
    positive = pc.if_else(pc.equal(column, pa.scalar(0, column.type)), pa.scalar(0, column.type), column)
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), positive)


def first_repeated_of_many(num_new: int, new: Keys, others: Keys) -> dict[str, object] | None:
    """One key of the new rows that another row has too, new or not; or None.

    Parameters
    ----------
    num_new
        How many new rows there are, about.
    new, others
        Keys without nulls; `others` is asked after `new`.

    Notes
    -----
    Reads both once for each `HASHES_AT_ONCE` new rows. Some nanoseconds a number, some ten a text.
    """
    passes = max(1, -(-num_new // HASHES_AT_ONCE))
    for number in range(passes):
        doubtful = _equal_hashes(new, others, number, passes)
        for first in range(0, len(doubtful), _DOUBTFUL_AT_ONCE):
            some = doubtful[first : first + _DOUBTFUL_AT_ONCE]
            rows = [*_having(new(), some), *_having(others(), some)]
            repeated = first_repeated(pa.concat_tables(rows))
            if repeated is not None:
                return repeated
    return None


def key_hashes(keys: pa.Table) -> Hashes:
    """A hash for each row, in order; equal keys have equal hashes."""
    mixed = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        mixed = mixed * _SPREAD + np.concatenate(
            [np.zeros(0, np.uint64), *(_hashed(chunk) for chunk in column.chunks)]
        )
    return mixed


def _hashed(array: pa.Array) -> Hashes:
    array = plain_values(array)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())  # else each value is hashed once
    hashes = hash_values(array)
    assert hashes is not None
    assert len(hashes) == len(array), "a key has no nulls and an order"
    return hashes


def _equal_hashes(new: Keys, others: Keys, number: int, passes: int) -> Hashes:
    """The hashes of this pass that several rows have, of which one is new."""
    held = np.sort(np.concatenate([np.zeros(0, np.uint64), *_of_pass(new(), number, passes)]))
    met = (hashes[_is_in(hashes, held)] for hashes in _of_pass(others(), number, passes))
    return np.unique(np.concatenate([held[1:][held[1:] == held[:-1]], *met]))


def _of_pass(portions: Iterable[pa.Table], number: int, passes: int) -> Iterator[Hashes]:
    for portion in portions:
        hashes = key_hashes(portion)
        yield hashes if passes == 1 else hashes[hashes % np.uint64(passes) == number]


def _having(portions: Iterable[pa.Table], hashes: Hashes) -> Iterator[pa.Table]:
    """The rows whose hash is one of these, which are sorted."""
    for portion in portions:
        yield portion.filter(pa.array(_is_in(key_hashes(portion), hashes)))


def _is_in(hashes: Hashes, held: Hashes) -> NDArray[np.bool_]:
    if not len(held):
        return np.zeros(len(hashes), np.bool_)
    near = np.minimum(np.searchsorted(held, hashes), len(held) - 1)
    found: NDArray[np.bool_] = held[near] == hashes
    return found
