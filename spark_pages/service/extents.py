"""Which bytes of page files some pieces of a column hold. Pure.

The service reads page files for clients that cannot. One file may hold pages of several tables, so what is
handed out is cut to the pages, and bloom filters, of pieces that the client's snapshot names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.model.run import PageRun
from spark_pages.service.responses import PieceName
from spark_pages.service.segment_locator import UnnamedSegmentError

Stretches = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Starts and ends of stretches that neither overlap nor touch, in order."""


@dataclass(frozen=True, eq=False, slots=True)
class Extents:
    """The stretches of each page file in which a piece's bytes lie."""

    by_path: Mapping[str, Stretches]

    @classmethod
    def of(cls, run: PageRun, blooms: bool) -> Extents:
        """Where the pages of a run are, and with `blooms` their bloom filters.

        Notes
        -----
        Reads the statistics of the run where bloom filters are wanted.
        """
        path = run.pages.column("path")
        given = valid_of(path)
        index = np.where(given, numbers_of(path.indices), -1)
        starts = run.numbers("offset")
        ends = starts + run.numbers("alloc_len")
        if blooms:
            has = has_bloom(run)
            first = numbers_of(run.stats.column("bloom_offset"))[has]
            index = np.concatenate([index, index[has]])
            starts = np.concatenate([starts, first])
            ends = np.concatenate([ends, first + numbers_of(run.stats.column("bloom_length"))[has]])
        names = path.dictionary.to_pylist()
        order = np.lexsort((starts, index))
        index, starts, ends = index[order], starts[order], ends[order]
        bounds = np.searchsorted(index, np.arange(len(names) + 1)).tolist()
        found: dict[str, Stretches] = {}
        for number, name in enumerate(names):
            low, high = bounds[number], bounds[number + 1]
            if low < high:
                found[name] = _joined(starts[low:high], ends[low:high])
        return cls(found)


def _joined(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Stretches:
    """Stretches sorted by their start, with those that touch or overlap made one."""
    reach = np.maximum.accumulate(ends)
    begins = np.ones(len(starts), dtype=bool)
    begins[1:] = starts[1:] > reach[:-1]
    firsts = np.flatnonzero(begins)
    return starts[firsts], reach[np.append(firsts[1:], len(starts)) - 1]


@dataclass(frozen=True, slots=True)
class NamedBytes:
    """Bytes of one page file, and the pieces to which they are said to belong.

    Attributes
    ----------
    path
        Key of the file.
    ranges
        Offset and length of each stretch wanted.
    pieces
        Where the client learned of the pages.
    blooms
        Whether bloom filters of these pieces are wanted too.
    """

    path: str
    ranges: tuple[tuple[int, int], ...]
    pieces: tuple[PieceName, ...]
    blooms: bool = False

    def check(self, extents: Sequence[Extents]) -> None:
        """Every range holds a byte of the pieces.

        Raises
        ------
        UnnamedSegmentError
            If one does not.
        """
        for offset, length in self.ranges:
            if not any(low < high for low, high in self._clip_pieces(extents, offset, length)):
                raise UnnamedSegmentError(
                    f"Bytes [{offset}, {offset + length}) of {self.path[:200]!r} are no page that this "
                    f"snapshot names.",
                    hint="Open it again.",
                )

    def masked(self, extents: Sequence[Extents], offset: int, data: bytes) -> bytes:
        """Return the bytes from `offset` on, with zeros where no piece holds them."""
        clip = self._clip_pieces(extents, offset, len(data))
        if any(low <= offset and offset + len(data) <= high for low, high in clip):
            return data
        answer = bytearray(len(data))
        for low, high in clip:
            answer[low - offset : high - offset] = data[low - offset : high - offset]
        return bytes(answer)

    def _clip_pieces(self, extents: Sequence[Extents], offset: int, length: int) -> list[tuple[int, int]]:
        """Return the parts of [offset, offset + length) that pieces hold."""
        return [
            stretch
            for each in extents
            if self.path in each.by_path
            for stretch in clip(each.by_path[self.path], offset, offset + length)
        ]


def clip(stretches: Stretches, start: int, end: int) -> list[tuple[int, int]]:
    """Clip ranges to [start, end)."""
    starts, ends = stretches
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(starts, end))
    return list(
        zip(
            np.maximum(starts[first:last], start).tolist(),
            np.minimum(ends[first:last], end).tolist(),
            strict=True,
        )
    )
