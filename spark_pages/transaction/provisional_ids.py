"""Ids of pages before their commit: negative, so that none is the id of a page in the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column
from spark_pages.model.chain import ColumnChain
from spark_pages.model.ids import PageId, page_id
from spark_pages.model.new_page import NewPage
from spark_pages.model.run import PageRun
from spark_pages.transaction.page_writer import StagedPage

Staged: TypeAlias = StagedPage | NewPage

_OTHERS = -(1 << 59)
"""From here down: pages that a commit adds by itself, such as the nulls of a new column. These ids change
with what is staged beside them."""


class ProvisionalIds:
    """The ids of the pages that a transaction has staged. A page keeps its id as long as it is staged."""

    def __init__(self) -> None:
        self._next = count(1)
        self._known: dict[int, tuple[Staged, PageId]] = {}  # by identity: pages may be equal

    def of(self, page: Staged) -> PageId:
        """The id of a page."""
        known = self._known.get(id(page))
        if known is None:
            known = self._known[id(page)] = page, PageId(-next(self._next))
        return known[1]

    def pass_on(self, page: Staged, changed: Staged) -> None:
        """Give a page the id of the one in whose place it is staged."""
        self._known[id(changed)] = changed, self.of(page)

    def of_all(self, pages: Sequence[Staged]) -> NDArray[np.int64]:
        """The ids of all pages that are staged, in order; those of other pages are forgotten."""
        found = [self.of(page) for page in pages]
        self._known = {id(page): (page, number) for page, number in zip(pages, found, strict=True)}
        return np.array(found, dtype=np.int64)


def with_provisional_ids(chain: ColumnChain, version: int, ids: NDArray[np.int64]) -> ColumnChain:
    """The chain with provisional ids of the pages that a commit would add.

    Parameters
    ----------
    version
        Of that commit: the chain shows it on top of the newest version.
    ids : int64, shape (n_pages,)
        By ordinal in that commit.
    """
    first = page_id(version, 0)
    pieces = [_renamed(piece, first, ids) if isinstance(piece, PageRun) else piece for piece in chain.pieces]
    return ColumnChain(pieces)


def _renamed(run: PageRun, first: int, ids: NDArray[np.int64]) -> PageRun:
    ordinals = run.page_ids - first
    if not (ordinals >= 0).any():
        return run
    staged = ids[np.clip(ordinals, 0, max(0, len(ids) - 1))] if len(ids) else np.zeros_like(ordinals)
    new = np.where(ordinals < 0, run.page_ids, np.where(ordinals < len(ids), staged, _OTHERS - ordinals))
    if run.few is not None:
        return PageRun.of_few(new.tolist(), run.few)
    column = run.pages.schema.get_field_index("page_id")
    pages = run.pages.set_column(column, "page_id", number_column(new, pa.int64()))
    return PageRun(pages, lambda: run.stats, run.base_position)
