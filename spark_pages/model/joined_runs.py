"""Neighbouring runs of a chain joined into long ones, for readers that work run by run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from spark_pages.model.chain_tree import ChainLayout, PartialRun, Piece
from spark_pages.model.run import PageRun

_MOST_PAGES = 8192
"""Neighbours are joined up to so many pages, about a segment. A run of half as many is never copied."""

_FEW_PIECES = 2
"""So few neighbours are not joined: a second look costs less than a copy."""


class JoinedRuns:
    """Loaded neighbours of a layout as one run each. A run is made on request, and kept.

    Parameters
    ----------
    layout
        The pieces of a chain.
    earlier
        The same of an earlier layout of the chain, whose runs are used again: between two loaded pieces
        nothing changes.

    Notes
    -----
    Each run that is made copies the descriptors of its pieces. Safe to share between threads: two that ask at
    once may both make a run.
    """

    __slots__ = ("_runs", "_starts", "layout")

    def __init__(self, layout: ChainLayout, earlier: JoinedRuns | None = None) -> None:
        self.layout = layout
        # By ids of the first and last piece. Both are held, so that no other piece gets their ids.
        self._runs: dict[tuple[int, int], tuple[PageRun, PageRun, PageRun]] = earlier._runs if earlier else {}
        self._starts: list[int] | None = None

    def at(self, index: int) -> tuple[PageRun, int]:
        """The run that contains the piece at an index, which is loaded, and the first row of the run."""
        if self._starts is None:
            self._starts = _starts_of_groups(self.layout.pieces)
        starts = self._starts
        group = bisect_right(starts, index)
        begin, end = starts[group - 1], starts[group] if group < len(starts) else len(self.layout.pieces)
        pieces = [piece for piece in self.layout.pieces[begin:end] if isinstance(piece, PageRun)]
        if len(pieces) <= _FEW_PIECES:
            return pieces[index - begin], self.layout.first_rows[index]
        first, last = pieces[0], pieces[-1]
        found = self._runs.get((id(first), id(last)))
        if found is None:
            found = self._runs[id(first), id(last)] = (first, last, PageRun.concat(pieces))
        return found[2], self.layout.first_rows[begin]


def _starts_of_groups(pieces: Sequence[Piece | PartialRun]) -> list[int]:
    """Indices at which groups of loaded neighbours begin. Long runs, and promises of runs, stand alone."""
    starts: list[int] = []
    room = -1
    for index, piece in enumerate(pieces):
        alone = not isinstance(piece, PageRun) or piece.num_pages * 2 >= _MOST_PAGES
        pages = piece.num_pages if isinstance(piece, PageRun) else _MOST_PAGES
        if alone or pages > room:
            starts.append(index)
            room = _MOST_PAGES
        room = -1 if alone else room - pages
    return starts
