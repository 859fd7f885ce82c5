"""Which edits of a chain do nothing but let it grow, seen from the checkpoint that they stand on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from spark_pages.model.chain_tree import ChainEdit, Piece
from spark_pages.model.run import PageRun


def grown(edits: Sequence[ChainEdit]) -> list[Piece] | None:
    """What the edits put behind the chain; None if they change anything that was there before.

    Notes
    -----
    A page that one edit appends and a later one takes away from the end again, as small appends do, has never
    been there. So a checkpoint treats a stream of them as one append.
    """
    pieces: list[Piece] = []
    for edit in edits:
        if edit.clears or not _take_away(pieces, edit.removed):
            return None
        if edit.added.num_pages:
            pieces.append(edit.added)
    return pieces


def _take_away(pieces: list[Piece], removed: tuple[int, ...]) -> bool:
    """Take these pages away from the end; whether they stood there."""
    left = len(removed)
    while left:
        last = pieces.pop() if pieces else None
        if not isinstance(last, PageRun):
            return False
        count = min(left, last.num_pages)
        if list(last.ids[last.num_pages - count :]) != list(removed[left - count : left]):
            return False
        if count < last.num_pages:
            pieces.append(last.slice(0, last.num_pages - count))
        left -= count
    return True
