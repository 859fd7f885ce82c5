"""Integers of many pages in fewer bytes at once: what `integer_encoding.encode` does for one page. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spark_pages.format.pages.integer_encoding import (
    DELTA,
    FRAME_OF_REFERENCE,
    RESERVED,
    TRIED,
    TableEntry,
    differences,
    is_scattered,
    is_smaller,
)

_WIDTHS = np.array([1, 2, 4, 8])
_LIMITS = np.array([1 << 8, 1 << 16, 1 << 32], np.uint64)
"""Numbers below these fit into as many bytes."""


def encode_rows(
    values: NDArray[Any], start: int
) -> Iterator[tuple[NDArray[np.int64], list[TableEntry], NDArray[np.uint8]]]:
    """What `encode` makes of the only buffer of integers in each of several streams.

    Parameters
    ----------
    values : signed integers, shape (n_streams, n_numbers)
        The buffers.
    start
        First byte of the buffer in each stream.

    Yields
    ------
    Streams that are narrowed likewise, the entry in the table of each, and their differences as bytes. Those
    that are never named are not narrowed.
    """
    wide, numbers = values.itemsize, values.shape[1]
    least = _fewest_of_rows(values, wide)
    wanted = np.ones(len(values), np.bool_)
    tight = np.flatnonzero(least[0] == 1).tolist()
    wanted[[index for index in tight if is_scattered(values[index])]] = False
    stepped = np.flatnonzero(wanted)
    steps = np.subtract(_select_rows(values[:, 1:], stepped), _select_rows(values[:, :-1], stepped))
    neighbour = np.full(len(values), wide), np.zeros(len(values), np.int64)
    if len(stepped):
        neighbour[0][stepped], neighbour[1][stepped] = _fewest_of_rows(steps, wide)
    by_step = neighbour[0] < least[0]
    for index in np.flatnonzero((neighbour[0] == least[0]) & (least[0] < wide)).tolist():
        some, narrow = values[index, :TRIED], int(least[0][index])
        by_step[index] = is_smaller(
            differences(some, int(least[1][index]), narrow),
            differences(np.subtract(some[1:], some[:-1]), int(neighbour[1][index]), narrow, first=1),
        )
    place = np.cumsum(wanted) - 1  # of a stream among those with steps
    for kind, chosen, (widths, bases) in (
        (FRAME_OF_REFERENCE, ~by_step, least),
        (DELTA, by_step, neighbour),
    ):
        for narrow in {*widths[chosen].tolist()} - {wide}:
            which = np.flatnonzero(chosen & (widths == narrow))
            given = (
                _select_rows(values, which)
                if kind == FRAME_OF_REFERENCE
                else _select_rows(steps, place[which])
            )
            firsts = values[which, 0] if kind == DELTA else np.zeros_like(which)
            kept = np.zeros((len(which), numbers), f"<u{narrow}")
            shown = kept[:, numbers - given.shape[1] :]  # the first has no step
            base = bases[which].astype(values.dtype)[:, None]
            np.subtract(given, base, out=shown, dtype=values.dtype, casting="unsafe")
            of_each = zip(bases[which].tolist(), firsts.tolist(), strict=True)
            entries: list[TableEntry] = [
                (start, numbers, kind, wide, narrow, RESERVED, *each) for each in of_each
            ]
            yield which, entries, kept.view(np.uint8)


def _select_rows(values: NDArray[Any], which: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows; without a copy where they are all."""
    return values if len(which) == len(values) else values[which]


def _fewest_of_rows(values: NDArray[Any], wide: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return fewest_bytes(values.min(1), values.max(1), wide)


def fewest_bytes(
    least: NDArray[Any], most: NDArray[Any], wide: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bytes that a value of each buffer needs above its least, `wide` where that saves none; and the base.

    Parameters
    ----------
    least, most : signed integers, shape (n_buffers,)
        Of each buffer.
    """
    base, top = least.astype(np.int64), most.astype(np.int64)
    need = np.searchsorted(_LIMITS, top.view(np.uint64) - base.view(np.uint64), side="right")
    is_small = (base > 0) & (np.searchsorted(_LIMITS, top.view(np.uint64), side="right") <= need)
    base[is_small] = 0  # then nothing needs to be added
    return np.minimum(_WIDTHS[need], wide), base
