"""Chains for tests: runs of pages with given entry counts, whole or behind promises."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

from spark_pages.model.added_pages import NewPage, page_batches
from spark_pages.model.chain_tree import Piece, UnloadedRun
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import PageRun


def run_of(counts: Sequence[int], first_id: int = 0) -> PageRun:
    """A run of pages with these entry counts and consecutive ids; every other one holds them as values."""
    ids = range(first_id, first_id + len(counts))
    new = tuple(
        NewPage(n, n, PageKind.FILE, "pages/x", 4096 * i, 4096, 100, i, None, PageStats(n % 3))
        for i, n in enumerate(counts)
    )
    if sum(counts) % 2:
        return PageRun.of_few(ids, new)
    pages, stats = page_batches(new, ids)
    return PageRun(pages, lambda: stats)


def promise(pieces: Sequence[Piece]) -> UnloadedRun:
    """A promise of the pieces."""
    return UnloadedRun(
        sum(piece.num_pages for piece in pieces), sum(piece.num_rows for piece in pieces), lambda: pieces
    )


@st.composite
def pieces_and_counts(draw: st.DrawFn, largest: int = 5) -> tuple[list[Piece], list[int]]:
    """Pieces of a chain, some loaded, some promised over one or two floors, and all entry counts."""
    pieces: list[Piece] = []
    flat: list[int] = []
    for counts in draw(st.lists(st.lists(st.integers(0, largest), max_size=6), max_size=6)):
        run = run_of(counts, len(flat))
        flat += counts
        cut = draw(st.integers(0, len(counts)))
        halves: list[Piece] = [run.slice(0, cut), run.slice(cut, len(counts))]
        pieces += draw(
            st.sampled_from(
                [[run], halves, [promise([run])], [promise([promise(halves[:1]), promise(halves[1:])])]]
            )
        )
    return pieces, flat


@st.composite
def parts_of(draw: st.DrawFn, total: int) -> list[int]:
    """Entry counts of one to three pages, empty ones too, that hold so many rows together."""
    cuts = sorted(draw(st.lists(st.integers(0, total), max_size=2)))
    return [end - start for start, end in itertools.pairwise([0, *cuts, total])]
