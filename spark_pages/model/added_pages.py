"""The pages that a transaction lists itself: a few as values, many as Arrow columns.

To make Arrow columns of one page takes longer than all else that is done to commit it, and most small commits
are never looked at as columns. So each form is made of the other when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_pages.arrow.columns import numbers_of
from spark_pages.model.new_page import FEW_PAGES, NewPage, inline_bytes, memory_bytes, page_batches
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, have_nan


class AddedPages:
    """Pages, with ordinals from 0, and their statistics. Immutable.

    Parameters
    ----------
    pages, stats
        Batches of PAGE_SCHEMA, whose ids are ordinals, and of STATS_SCHEMA.

    Attributes
    ----------
    num_pages
        How many there are.
    few
        The pages as values; None where they are more than `FEW_PAGES`, or came as columns.
    """

    __slots__ = ("_batches", "few", "num_pages")

    def __init__(self, pages: pa.RecordBatch, stats: pa.RecordBatch) -> None:
        self._batches: tuple[pa.RecordBatch, pa.RecordBatch] | None = (pages, stats)
        self.few: tuple[NewPage, ...] | None = None
        self.num_pages: int = pages.num_rows

    @classmethod
    def of(cls, pages: Sequence[NewPage]) -> AddedPages:
        """Pages that are there as values."""
        if len(pages) > FEW_PAGES:
            return cls(*page_batches(pages))
        own = cls.__new__(cls)
        own._batches = None
        own.few = tuple(pages)
        own.num_pages = len(pages)
        return own

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (AddedPages.of, (self.few,)) if self.few is not None else (AddedPages, self.batches)

    def __repr__(self) -> str:
        return f"AddedPages({self.num_pages} pages)"

    @property
    def batches(self) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Descriptors, whose ids are ordinals, and statistics."""
        if self._batches is None:
            self._batches = page_batches(self.few or ())
        return self._batches

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take, about; the same whether they are cut into runs or not."""
        return memory_bytes(self._either)

    @property
    def inline_bytes(self) -> int:
        """Bytes of those that ride in the commit, constants among them."""
        return inline_bytes(self._either)

    @property
    def _either(self) -> Sequence[NewPage] | pa.RecordBatch:
        return self.batches[0] if self.few is None else self.few

    @property
    def have_nan(self) -> bool:
        """Whether one of them says that some of its values are NaN."""
        if self.few is not None:
            return any(page.stats.nan for page in self.few)
        return have_nan(self.batches[1])

    def paths(self) -> list[str]:
        """The page files in which some of them are."""
        if self.few is not None:
            return list(dict.fromkeys(page.path for page in self.few if page.path))
        named: list[str | None] = self.batches[0].column("path").dictionary.to_pylist()
        return [path for path in named if path]

    def stored_bytes(self, start: int, stop: int) -> int:
        """Bytes of header and payload of pages [start, stop)."""
        if self.few is not None:
            return sum([page.actual_len for page in self.few[start:stop]])
        return int(numbers_of(self.batches[0].column("actual_len"))[start:stop].sum())

    def and_pages(self, more: Sequence[NewPage]) -> AddedPages:
        """These pages and, behind them, more."""
        if not more:
            return self
        if self.few is not None:
            return AddedPages.of((*self.few, *more))
        pages, stats = self.batches
        more_pages, more_stats = page_batches(more)
        stats = concat_batches([stats, more_stats], STATS_SCHEMA)
        return AddedPages(concat_batches([pages, more_pages], PAGE_SCHEMA), stats)


NO_PAGES = AddedPages.of(())
