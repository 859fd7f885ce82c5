"""The end of a chain as the log tells it: how many rows there are, and the last pages, if they are inline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter

from spark_pages.model.added_pages import NewPage
from spark_pages.model.chain_tree import ChainEdit, Piece
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun

MOST_PAGES = 64
"""Pages of a tail that are kept in mind."""

MOST_BYTES = 32 << 10
"""Bytes of these pages that are kept in mind."""

MOST_PAGES_BEFORE = 2048
"""To take pages of a checkpoint from the end of a longer chain makes the next checkpoint write too much."""

_data_of = attrgetter("data")


@dataclass(frozen=True, slots=True)
class TailPage:
    """One page at the end of a chain, with its bytes.

    Attributes
    ----------
    page_id, entries
        Its id, and its rows: as many as its payload holds.
    constant
        Whether `data` holds one entry that stands for all.
    data
        Header and payload.
    """

    page_id: int
    entries: int
    constant: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class ChainTail:
    """What an append needs to know of a chain.

    Attributes
    ----------
    rows
        Rows of the chain.
    pages
        Its last pages, in row order, as far back as their bytes are known from commits.
    before
        Pages that it had, about, when somebody first asked.
    """

    rows: int
    pages: tuple[TailPage, ...] = ()
    before: int = 0

    def on_checkpoint(self) -> ChainTail:
        """Return the tail after its pages entered a checkpoint. Long chains keep them."""
        return ChainTail(self.rows, (), self.before) if self.before > MOST_PAGES_BEFORE else self

    def after(self, edits: Sequence[ChainEdit]) -> ChainTail:
        """Return the tail after more edits of the chain."""
        tail = self
        appended: list[Piece] = []
        for edit in edits:
            if edit.removed or edit.clears:
                tail = tail._extended(appended)._after(edit)
                appended = []
            else:
                appended.append(edit.added)
        return tail._extended(appended)

    def _extended(self, added: Sequence[Piece]) -> ChainTail:
        """Return the tail after appends. Inspects no more of them than the tail holds."""
        if not added:
            return self
        pages: list[tuple[TailPage, ...]] = []
        known, held = True, 0
        for piece in reversed(added):
            some, known = _with_bytes(piece)
            pages.append(some)
            held += len(some)
            if not known or held >= MOST_PAGES:
                break
        else:
            pages.append(self.pages)
        return ChainTail(
            self.rows + sum([piece.num_rows for piece in added]),
            _newest(tuple(chain.from_iterable(reversed(pages)))),
            self.before + sum([piece.num_pages for piece in added]),
        )

    def _after(self, edit: ChainEdit) -> ChainTail:
        rows, pages = (0, ()) if edit.clears else (self.rows, self.pages)
        end = edit.first_row + edit.removed_entries
        grown = rows + edit.added.num_rows - edit.removed_entries
        before = self.before + max(0, edit.added.num_pages - len(edit.removed))
        if edit.removed and end != rows:
            gone = frozenset(edit.removed)
            last = max((i for i, page in enumerate(pages) if page.page_id in gone), default=-1)
            return ChainTail(grown, pages[last + 1 :], before)
        if edit.removed:
            kept = len(pages) - len(edit.removed)
            known = kept >= 0 and tuple(page.page_id for page in pages[kept:]) == edit.removed
            pages = pages[:kept] if known else ()
        added, whole = _with_bytes(edit.added)
        return ChainTail(grown, _newest((*pages, *added) if whole else added), before)


def _with_bytes(piece: Piece) -> tuple[tuple[TailPage, ...], bool]:
    """Return the last pages of a piece with known sizes, and whether these are all of its pages."""
    if not isinstance(piece, PageRun):
        return (), False
    if piece.few is not None:
        return _of_few(piece.ids, piece.few)
    kinds = piece.numbers("kind")
    entries, payload = piece.numbers("entry_count"), piece.numbers("payload_entries")
    found: list[TailPage] = []
    for index in range(piece.num_pages - 1, max(-1, piece.num_pages - 1 - MOST_PAGES), -1):
        if kinds[index] == PageKind.FILE or entries[index] != payload[index]:
            break
        data = piece.pages.column("data")[index].as_py()
        constant = kinds[index] == PageKind.CONSTANT
        found.append(TailPage(int(piece.page_ids[index]), int(entries[index]), bool(constant), data))
    return tuple(reversed(found)), len(found) == piece.num_pages


def _of_few(ids: Sequence[int], pages: Sequence[NewPage]) -> tuple[tuple[TailPage, ...], bool]:
    found: list[TailPage] = []
    for number, page in zip(reversed(ids), reversed(pages), strict=True):
        if page.data is None or page.entry_count != page.payload_entries:
            break
        found.append(TailPage(number, page.entry_count, page.kind is PageKind.CONSTANT, page.data))
    return tuple(reversed(found)), len(found) == len(pages)


def _newest(pages: tuple[TailPage, ...]) -> tuple[TailPage, ...]:
    """As many of the last pages as are worth their memory."""
    held = list(accumulate(map(len, map(_data_of, reversed(pages)))))
    return pages[len(pages) - min(MOST_PAGES, bisect_right(held, MOST_BYTES)) :]
