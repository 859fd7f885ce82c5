"""A column chain: the pages of one column in row order, loaded as far as it is asked about.

Read `ColumnChain.locate_row` first; everything else stands on `_load_run_at`, which turns the piece of
the chain that covers a row from a promise (`UnloadedRun`) into pages (`PageRun`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from spark_pages.display.chain_strip import chain_strip
from spark_pages.display.text import count
from spark_pages.errors import RowOutOfRangeError
from spark_pages.model.chain_drawing import lane_of
from spark_pages.model.chain_tree import (
    ChainDraft,
    ChainEdit,
    ChainLayout,
    JoinedRuns,
    PageSelection,
    PartialRun,
    Piece,
    UnloadedRun,
    joined_pieces,
    merge_small,
    parts_of,
)
from spark_pages.model.page import PageDescriptor, PageSlice
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
from spark_pages.model.row_index import RowLocations, locate_by_piece, row_out_of_range
from spark_pages.model.run import PageRun, RowLocation

_PAGES_AT_ONCE = 8192
"""Pages that an iteration makes descriptors of at once: those of about one segment."""


@dataclass(frozen=True, eq=False, slots=True)
class RunSlice:
    """Loaded pages that cover a row range.

    Attributes
    ----------
    run
        The pages.
    first_row
        Row of the chain at which the run begins.
    """

    run: PageRun
    first_row: int


class ChainPages(Sequence[PageDescriptor]):
    """The pages of a chain as an immutable sequence of descriptors.

    Notes
    -----
    The length loads nothing beyond the layout; an item or a slice loads the segments that hold its pages.
    """

    __slots__ = ("_chain",)

    def __init__(self, chain: ColumnChain) -> None:
        self._chain = chain

    def __repr__(self) -> str:
        return f"ChainPages({count(len(self), 'page')})"

    def __len__(self) -> int:
        """Count the pages."""
        return self._chain.num_pages

    @overload
    def __getitem__(self, index: int) -> PageDescriptor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PageDescriptor, ...]: ...
    def __getitem__(self, index: int | slice) -> PageDescriptor | tuple[PageDescriptor, ...]:
        """Return one descriptor, or those of a slice."""
        chosen = range(len(self))[index]
        if isinstance(chosen, int):
            return self._chain.pages_from(chosen, chosen + 1).run.descriptor(0)
        positions = np.array(chosen, np.int64)
        if chosen.step > 0:
            return tuple(self._chain.pages_at(positions))
        return tuple(reversed(self._chain.pages_at(positions[::-1])))

    def __iter__(self) -> Iterator[PageDescriptor]:
        """Yield the descriptors, loading the segments one after another."""
        for start in range(0, len(self), _PAGES_AT_ONCE):
            yield from self[start : start + _PAGES_AT_ONCE]

    def __eq__(self, other: object) -> bool:
        """Compare with another sequence of descriptors, page by page."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Hash the descriptors."""
        return hash(tuple(self))


class ColumnChain:
    """The pages of one column, in row order (seed 000).

    Parameters
    ----------
    pieces
        Pages and promises of pages, in row order.

    Notes
    -----
    What is asked never changes; what is loaded grows. Safe to share between threads: a piece that
    two threads load at once is loaded twice, and both see the same pages.
    """

    __slots__ = ("_joined", "_layout")

    def __init__(self, pieces: Sequence[Piece | PartialRun] = ()) -> None:
        self._layout = ChainLayout.of(pieces)
        self._joined = JoinedRuns(self._layout)

    def __repr__(self) -> str:
        layout = self._layout
        more = "" if layout.complete else " and more"
        pages, rows = count(layout.first_pages[-1], "page"), count(layout.first_rows[-1], "row")
        return f"ColumnChain({pages}, {rows}{more})"

    def _repr_html_(self) -> str:
        lane = lane_of("as far as it is loaded", self._layout.known())
        return chain_strip(repr(self), [lane]).image

    @property
    def num_rows(self) -> int:
        """Rows of the column."""
        return self._counted().first_rows[-1]

    @property
    def known_rows(self) -> int | None:
        """Rows of the column; None where something would have to be loaded to tell."""
        layout = self._layout
        return layout.first_rows[-1] if layout.complete else None

    @property
    def num_pages(self) -> int:
        """Pages of the column."""
        return self._counted().first_pages[-1]

    @property
    def pages(self) -> ChainPages:
        """Descriptors of the pages, in row order (seed 000)."""
        return ChainPages(self)

    @property
    def prefix_entries(self) -> NDArray[np.uint64]:
        """Running sum of the entry counts of the pages (seed 000).

        Returns
        -------
        uint64, shape (num_pages,), read-only
            Rows up to and with each page; an empty page repeats its neighbour's value.

        Notes
        -----
        Loads every segment of the chain, unlike `locate_row`, which loads one.
        """
        return self.all_pages().prefix_entries

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What the chain is made of at the moment; how much each piece holds is known."""
        return tuple(self._counted().known())

    def latest(self) -> PageDescriptor | None:
        """Return the last page, or None for a column without pages (seed 000)."""
        layout = self._counted()
        while layout.first_pages[-1]:
            index = max(i for i, piece in enumerate(layout.known()) if piece.num_pages)
            piece = layout.pieces[index]
            if isinstance(piece, PageRun):
                return piece.descriptor(piece.num_pages - 1)
            layout = self._expand(layout, index)
        return None

    def locate_row(self, row: int) -> RowLocation:
        """Find the page that holds a row, and the offset of the row inside it.

        Raises
        ------
        RowOutOfRangeError
            If the column has no such row.

        Notes
        -----
        O(log pages) once the page's segment is loaded; else one request for each level not loaded.
        """
        layout = self._layout
        first_rows = layout.first_rows
        index = bisect_right(first_rows, row) - 1
        if not 0 <= index < len(layout.pieces) or type(run := layout.pieces[index]) is not PageRun:
            run, index, layout = self._load_run_at(row)
            first_rows = layout.first_rows
        view = run.prefix_view
        row -= first_rows[index]
        page = bisect_right(view, row)
        return RowLocation(layout.first_pages[index] + page, row - view[page - 1] if page else row, run, page)

    def locate_rows(self, rows: NDArray[np.uint64]) -> RowLocations:
        """`locate_rows` over the whole chain, loading the pieces that are touched."""
        rows = np.asarray(rows, dtype=np.uint64)
        if not len(rows):
            empty = np.zeros(0, dtype=np.int64)
            return RowLocations(empty, empty)
        layout = self._covering(rows)
        ordered = bool((rows[1:] >= rows[:-1]).all())
        while True:
            firsts = np.array(layout.first_rows, dtype=np.uint64)
            if ordered:
                bounds = np.searchsorted(rows, firsts)
            else:
                piece_of = np.searchsorted(firsts, rows, side="right")
                bounds = np.cumsum(np.bincount(piece_of, minlength=len(firsts)))
            touched = np.flatnonzero(np.diff(bounds)).tolist()
            lazy = [index for index in touched if isinstance(layout.pieces[index], UnloadedRun)]
            if not lazy:
                break
            layout = self._expand(layout, *lazy)
        if ordered:
            return locate_by_piece(layout, touched, bounds.tolist(), rows)
        # 16-bit numbers are sorted by radix, in time that does not grow with log n.
        narrow = np.uint16 if len(firsts) < 1 << 16 else np.int64
        order = np.argsort(piece_of.astype(narrow), kind="stable")
        found = locate_by_piece(layout, touched, bounds.tolist(), rows[order])
        positions, offsets = np.empty_like(found.positions), np.empty_like(found.rows_in_page)
        positions[order] = found.positions
        offsets[order] = found.rows_in_page
        return RowLocations(positions, offsets)

    def _covering(self, rows: NDArray[np.uint64]) -> ChainLayout:
        """Return a layout that knows the sizes of the pieces up to the last of the rows."""
        last = int(rows.max())
        layout = self._layout
        if last >= layout.first_rows[-1]:
            layout = self._counted()
        if last >= layout.first_rows[-1]:
            outside = rows >= np.uint64(layout.first_rows[-1])
            raise row_out_of_range(int(rows[int(np.argmax(outside))]), layout.first_rows[-1])
        return layout

    def runs(self, start: int = 0, end: int | None = None) -> Iterator[RunSlice]:
        """Iterate over the loaded pages of rows [start, end), with the first row of each run.

        Notes
        -----
        Loaded neighbours come as one run. Updates leave a chain in pieces, and the time of a reader that
        works run by run must not grow with their number.
        """
        end = self.num_rows if end is None else end
        row = start
        while row < end:
            run, first_row = self._run_at(row, end)
            prefix = run.prefix_entries
            # As uint64: beside a signed number numpy would compare as float64, inexact from 2^53 on.
            low = int(np.searchsorted(prefix, np.uint64(row - first_row), side="right"))
            high = int(np.searchsorted(prefix, np.uint64(min(end - first_row, run.num_rows)))) + 1
            yield RunSlice(run.slice(low, high), first_row + (int(prefix[low - 1]) if low else 0))
            row = first_row + run.num_rows

    def _run_at(self, row: int, end: int) -> tuple[PageRun, int]:
        """Return the run that holds a row, joined with its neighbours unless it reaches `end`."""
        run, index, layout = self._load_run_at(row)
        if layout.first_rows[index + 1] >= end:
            return run, layout.first_rows[index]
        joined = self._joined
        if joined.layout is not layout:
            # Not `self._layout`: another thread may have replaced it by one that has less loaded here.
            self._joined = joined = JoinedRuns(layout, joined)
        return joined.at(index)

    def locate_range(self, start: int, end: int) -> list[PageSlice]:
        """Find the pages that rows [start, end) touch, each with the offsets to read (seed 000).

        Raises
        ------
        RowOutOfRangeError
            If the range is not inside the column.
        """
        if not 0 <= start <= end <= self.num_rows:
            raise RowOutOfRangeError(
                f"Cannot locate rows [{start}, {end}): the column has {self.num_rows} rows, numbered from 0.",
                hint=f"Ask for rows from 0 up to {self.num_rows}.",
                num_rows=self.num_rows,
            )
        return self.select(np.array([start], np.uint64), np.array([end], np.uint64)).slices()

    def select(self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> PageSelection:
        """Find the pages that rows [starts[i], ends[i]) touch, for every i, with the rows of each.

        Parameters
        ----------
        starts, ends : uint64, shape (n_ranges,)
            Increasing, without overlap, inside of the column.

        Notes
        -----
        Loads the pieces that are touched. No Python loop over ranges or pages.
        """
        if not len(starts):
            return PageSelection.joined([])
        layout = self._layout
        if int(ends[-1]) > layout.first_rows[-1]:
            layout = self._counted()
        while True:
            bounds = np.array(layout.first_rows, dtype=np.uint64)
            # A piece is touched where some range begins before its end and ends behind its begin.
            begun = np.searchsorted(starts, bounds[1:])
            ended = np.searchsorted(ends, bounds[:-1], side="right")
            touched = np.flatnonzero((begun > ended) & (bounds[1:] > bounds[:-1])).tolist()
            lazy = [index for index in touched if isinstance(layout.pieces[index], UnloadedRun)]
            if not lazy:
                break
            layout = self._expand(layout, *lazy)
        cuts = []
        for index in touched:
            run = layout.pieces[index]
            assert isinstance(run, PageRun)
            some = slice(int(ended[index]), int(begun[index]))
            cuts.append(PageSelection.of_run(run, layout.first_rows[index], starts[some], ends[some]))
        return PageSelection.joined(cuts)

    def pages_at(self, positions: NDArray[np.int64]) -> list[PageDescriptor]:
        """Descriptors of the pages at increasing positions."""
        return self.run_at(positions).descriptors()

    def small_range(self, start: int, end: int, most: int) -> list[PageSlice] | None:
        """Locate a range of at most so many loaded pages in one piece, or return None.

        Notes
        -----
        A few µs, because numpy is not asked: for reads that are small and many.
        """
        layout = self._layout
        index = bisect_right(layout.first_rows, start) - 1
        if (
            not 0 <= start < end
            or index >= len(layout.pieces)
            or type(run := layout.pieces[index]) is not PageRun
        ):
            return None
        view, first_row = run.prefix_view, layout.first_rows[index]
        low, high = start - first_row, end - first_row
        first = bisect_right(view, low)
        if (first + most < len(view) and view[first + most] < high) or not len(view) or view[-1] < high:
            return None
        begin = view[first - 1] if first else 0
        found = []
        for page in range(first, bisect_left(view, high, first) + 1):
            stop = view[page]
            if stop > begin:
                found.append(PageSlice(run.descriptor(page), max(low - begin, 0), min(high, stop) - begin))
            begin = stop
        return found if len(found) <= most else None

    def run_at(self, positions: NDArray[np.int64]) -> PageRun:
        """Return the pages at increasing positions as one run."""
        return self._take_at(positions).run

    def pages_from(self, start: int, stop: int) -> RunSlice:
        """Return the pages at positions [start, stop), empty ones included.

        Loads only the pieces that hold them.
        """
        return self._take_at(np.arange(start, stop))

    def _take_at(self, positions: NDArray[np.int64]) -> RunSlice:
        layout = self._counted()
        while True:
            bounds = np.searchsorted(positions, np.array(layout.first_pages))
            touched = np.flatnonzero(np.diff(bounds)).tolist()
            lazy = [index for index in touched if isinstance(layout.pieces[index], UnloadedRun)]
            if not lazy:
                break
            layout = self._expand(layout, *lazy)
        found: list[PageRun] = []
        for index in touched:
            run = layout.pieces[index]
            assert isinstance(run, PageRun)
            found.append(run.take(positions[bounds[index] : bounds[index + 1]] - layout.first_pages[index]))
        if not touched:
            return RunSlice(PageRun(empty_batch(PAGE_SCHEMA)), 0)
        piece, before = layout.pieces[touched[0]], int(positions[0]) - layout.first_pages[touched[0]]
        assert isinstance(piece, PageRun)
        first_row = layout.first_rows[touched[0]] + (int(piece.prefix_entries[before - 1]) if before else 0)
        return RunSlice(PageRun.concat(found), first_row)

    def all_pages(self) -> PageRun:
        """Every page, empty ones too, as one run. Loads the whole chain."""
        runs = [piece for piece in self._load_all().pieces if isinstance(piece, PageRun)]
        return PageRun.concat(runs) if runs else PageRun(empty_batch(PAGE_SCHEMA))

    def pages_between(self, first_row: int, end_row: int) -> PageRun:
        """Return the pages that begin and end within rows [first_row, end_row), empty ones included.

        Notes
        -----
        Loads the pieces that hold these rows and no others. So empty pages at `first_row` itself may be left
        out, where they stand at the end of the piece before.
        """
        return self.runs_between([(first_row, end_row)])[0]

    def runs_between(self, places: Sequence[tuple[int, int]]) -> list[PageRun]:
        """Return the result of `pages_between` for each of several row ranges.

        Notes
        -----
        The pieces that hold any of these rows are loaded together. A range costs a binary search.
        """
        layout = self._layout
        if any(end_row > layout.first_rows[-1] for _, end_row in places):
            layout = self._counted()
        while True:
            near = [_near(layout, *place) for place in places]
            touched = sorted({index for indices in near for index in indices})
            lazy = [index for index in touched if isinstance(layout.pieces[index], UnloadedRun)]
            if not lazy:
                break
            layout = self._expand(layout, *lazy)
        return [_inside(layout, indices, *place) for indices, place in zip(near, places, strict=True)]

    def _load_all(self) -> ChainLayout:
        layout = self._counted()
        while lazy := [i for i, piece in enumerate(layout.pieces) if isinstance(piece, UnloadedRun)]:
            layout = self._expand(layout, *lazy)
        return layout

    def apply(self, edits: Sequence[ChainEdit]) -> ColumnChain:
        """Apply edits in order. Consecutive appends become one run.

        Raises
        ------
        DamageError
            If a run to remove is not in the chain as named: the log contradicts itself.
        """
        chain, draft = self, None
        appended: list[Piece] = []
        for edit in edits:
            if edit.clears:
                chain, draft, appended = ColumnChain(), None, []
            if not edit.removed:
                if edit.exact and not edit.clears:
                    draft = draft or ChainDraft(chain._counted())
                    draft.append(joined_pieces(appended))
                    appended = []
                    draft.check_end(edit)
                appended.append(edit.added)
                continue
            draft = draft or ChainDraft(chain._counted())
            draft.append(joined_pieces(appended))
            draft.replace(edit)
            appended = []
        if draft is not None:
            chain = ColumnChain(draft.pieces)
        tail = joined_pieces(appended)
        return ColumnChain(merge_small((*chain._layout.pieces, *tail))) if tail else chain

    def _load_run_at(self, row: int) -> tuple[PageRun, int, ChainLayout]:
        """Load the run that holds a row, and return its index in the layout and that layout."""
        layout = self._layout
        if row >= layout.first_rows[-1]:
            layout = self._counted()
        while True:
            if not 0 <= row < layout.first_rows[-1]:
                raise row_out_of_range(row, layout.first_rows[-1])
            index = bisect_right(layout.first_rows, row) - 1
            piece = layout.pieces[index]
            if type(piece) is PageRun:
                return piece, index, layout
            layout = self._expand(layout, index)

    def _counted(self) -> ChainLayout:
        """Return the layout with the size of every piece known."""
        layout = self._layout
        while not layout.complete:
            index = len(layout.first_rows) - 1
            piece = layout.pieces[index]
            assert isinstance(piece, PartialRun)
            found = (*layout.pieces[:index], *piece.expand(), *layout.pieces[index + 1 :])
            self._layout = layout = ChainLayout.of(found)
        return layout

    def _expand(self, layout: ChainLayout, *indices: int) -> ChainLayout:
        """Load some unloaded runs of a layout, in increasing order, for the caller to continue.

        Other threads may be loading other pieces: who only looks at `_layout` again may find less loaded.
        """
        pieces: list[Piece | PartialRun] = []
        done = 0
        for index in indices:
            piece = layout.pieces[index]
            assert isinstance(piece, UnloadedRun)
            pieces += layout.pieces[done:index]
            pieces += parts_of(piece)
            done = index + 1
        self._layout = layout = ChainLayout.of((*pieces, *layout.pieces[done:]))
        return layout


def _near(layout: ChainLayout, first_row: int, end_row: int) -> range:
    """Return the pieces that hold rows [first_row, end_row), and empty pieces at the first row."""
    rows = layout.first_rows
    begin = min(bisect_left(rows, first_row), bisect_right(rows, first_row) - 1)
    return range(begin, bisect_left(rows, end_row, 0, len(layout.pieces)))


def _inside(layout: ChainLayout, near: range, first_row: int, end_row: int) -> PageRun:
    """Return the pages of loaded pieces that begin and end within rows [first_row, end_row)."""
    found = []
    for index in near:
        run, before = layout.pieces[index], layout.first_rows[index]
        assert isinstance(run, PageRun)
        start, stop = run.contained_in(first_row - before, end_row - before)
        if start < stop:
            found.append(run.slice(start, stop))
    return PageRun.concat(found) if found else PageRun(empty_batch(PAGE_SCHEMA))
