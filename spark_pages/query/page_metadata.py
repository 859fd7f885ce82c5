"""What belongs in front of and behind single entries, and to pages as a whole (seed 003, "Entry" and "Page").

Rows bring it in a table of their own, beside their values, with columns ``<column>.prefix_meta``,
``<column>.suffix_meta`` and ``<column>.page_metadata``; `Table.read` gives it back in the same form. It stays
with its entry when values are updated, and when pages are compacted; the metadata of a page stays with its
entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, valid_of
from spark_pages.arrow.join import copied, join, take_entries
from spark_pages.errors import InvalidInputError
from spark_pages.io import LazyPage, ReadTrace
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.query.concat import assembled
from spark_pages.query.row_reader import Reading, RowReader

PREFIX, SUFFIX, PAGE = "prefix_meta", "suffix_meta", "page_metadata"

Page: TypeAlias = pa.RecordBatch | LazyPage
"""A whole page; one that is plain holds values alone."""

PageMetadata = Mapping[str | bytes, str | bytes]
"""Of a page as a whole: keys and values, text or bytes."""


@dataclass(frozen=True, eq=False, slots=True)
class PageMeta:
    """What some entries of one column have beside their values.

    Attributes
    ----------
    prefix, suffix
        Binary arrays as long as the values; None where there is nothing.
    page
        Metadata of the pages; None where there is none.
    """

    prefix: pa.Array | None = None
    suffix: pa.Array | None = None
    page: PageMetadata | None = None

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> PageMeta:
        """Collect the entry metadata of pages, end to end, with the page metadata of the first."""
        return cls.joined([(cls._of_one(batch), batch.num_rows) for batch in batches])

    @classmethod
    def _of_one(cls, batch: pa.RecordBatch) -> PageMeta:
        prefix, suffix = (
            batch.column(name) if name in batch.schema.names else None for name in (PREFIX, SUFFIX)
        )
        return cls(prefix, suffix, batch.schema.metadata or None)

    @classmethod
    def joined(cls, parts: Sequence[tuple[PageMeta, int]]) -> PageMeta:
        """Concatenate metadata, with the page metadata of the first.

        Parameters
        ----------
        parts
            What so many entries have, in order.

        Raises
        ------
        DoesNotFitError
            If one array cannot hold it.
        """
        return cls(
            _joined([(part.prefix, count) for part, count in parts]),
            _joined([(part.suffix, count) for part, count in parts]),
            parts[0][0].page if parts else None,
        )

    @property
    def is_nothing(self) -> bool:
        """Whether the entries have only their values."""
        return self.prefix is None and self.suffix is None and not self.page

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes, about; rather too many."""
        of_pages = sum(len(key) + len(value) for key, value in (self.page or {}).items())
        return of_pages + sum(
            int(each.get_total_buffer_size()) for each in (self.prefix, self.suffix) if each is not None
        )

    def copied(self) -> PageMeta:
        """Copy the metadata to own memory."""
        prefix, suffix = (None if each is None else copied(each) for each in (self.prefix, self.suffix))
        return PageMeta(prefix, suffix, self.page)

    def slice(self, start: int, stop: int) -> PageMeta:
        """Return the metadata of entries [start, stop)."""
        count = stop - start
        return PageMeta(
            None if self.prefix is None else self.prefix.slice(start, count),
            None if self.suffix is None else self.suffix.slice(start, count),
            self.page,
        )

    def without(self, entries: NDArray[np.int64]) -> PageMeta:
        """Return the same, with nothing in front of and behind some entries, given by their offsets."""
        prefix, suffix = (
            None if each is None else _blanked(each, entries) for each in (self.prefix, self.suffix)
        )
        return PageMeta(prefix, suffix, self.page)

    def has_any(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which entries, of some given by offset, have something in front of or behind them."""
        found = np.zeros(len(entries), bool)
        for each in (self.prefix, self.suffix):
            if each is not None:
                found |= valid_of(each)[entries]
        return found

    def join_with(self, values: pa.Array) -> pa.Array:
        """Return the values, or structs of values and their metadata, for splitting into pages."""
        arrays = [values, *(each for each in (self.prefix, self.suffix) if each is not None)]
        if len(arrays) == 1:
            return values
        return pa.StructArray.from_arrays(arrays, [str(index) for index in range(len(arrays))])


NO_META = PageMeta()


def _blanked(values: pa.Array, entries: NDArray[np.int64]) -> pa.Array:
    order = np.arange(len(values))
    order[entries] = len(values)
    return take_entries(
        join([values, pa.nulls(1, values.type)], values.type), number_column(order, pa.int64())
    )


def meta_names(column: str) -> tuple[str, str]:
    """Names of the columns of entry metadata of a data column."""
    return f"{column}.{PREFIX}", f"{column}.{SUFFIX}"


def page_name(column: str) -> str:
    """Name of the column of metadata of pages of a data column."""
    return f"{column}.{PAGE}"


def check_names(definition: TableDefinition, columns: Sequence[str]) -> None:
    """Nothing, if no data column has the name of another one's metadata.

    Raises
    ------
    InvalidInputError
        Names both.
    """
    for column in columns:
        for name in (*meta_names(column), page_name(column)):
            if name in definition.field_ids:
                raise InvalidInputError(
                    f"Cannot read metadata of {column!r} of table {definition.name!r}: it would have "
                    f"the name of column {name!r}.",
                    hint=f"Pass `columns` without {name!r} or without {column!r}.",
                )


def _joined(parts: Sequence[tuple[pa.Array | None, int]]) -> pa.Array | None:
    if all(part is None for part, _ in parts):
        return None
    whole = [pa.nulls(count, pa.binary()) if part is None else part for part, count in parts]
    return join(whole, pa.binary())


def group_by_metadata(pages: Sequence[Page]) -> list[list[Page]]:
    """Group neighbouring pages with the same page metadata, in order."""
    groups: list[list[Page]] = []
    metadata: object = None
    for page in pages:
        found = page.schema.metadata
        if groups and metadata == found:
            groups[-1].append(page)
        else:
            groups.append([page])
            metadata = found
    return groups


_PAGES_AT_ONCE = 128
_METADATA = pa.map_(pa.binary(), pa.binary())


def rows_with_meta(
    source: RowReader, names: Sequence[str], start: int, stop: int, trace: ReadTrace | None
) -> pa.Table:
    """Rows [start, stop), each column followed by what its entries have beside them, and their pages.

    Raises
    ------
    InvalidInputError
        If a data column has the name of such a column.

    Notes
    -----
    The pages of all columns are asked for at once; then each is taken apart once more, from the cache.
    """
    check_names(source.definition, names)
    values = source.slices(names, RowRanges.of(start, stop), Reading(trace=trace))
    columns: dict[str, Any] = {}
    for name in names:
        pieces = source.directory.locate_range(name, start, stop)
        batches = source.page_batches([piece.page for piece in pieces])
        cut = [
            batch.slice(piece.start, piece.stop - piece.start)
            for piece, batch in zip(pieces, batches, strict=True)
        ]
        metas = [PageMeta.of([batch]) for batch in cut]
        columns[name] = values.column(name)
        beside = [each.prefix for each in metas], [each.suffix for each in metas]
        for title, of_pages in zip(meta_names(name), beside, strict=True):
            columns[title] = _expand(of_pages, [batch.num_rows for batch in cut])
        pages = np.repeat(np.arange(len(cut)), [batch.num_rows for batch in cut])
        columns[page_name(name)] = _metadata(cut).take(number_column(pages, pa.int64()))
    return pa.table(columns)


def _expand(of_pages: Sequence[pa.Array | None], counts: Sequence[int]) -> pa.ChunkedArray:
    """Concatenate the metadata of entries, null where there is none, in as few arrays as possible."""
    if all(each is None for each in of_pages):
        return pa.chunked_array([pa.nulls(sum(counts), pa.binary())])
    arrays = [
        pa.nulls(count, pa.binary()) if each is None else each
        for each, count in zip(of_pages, counts, strict=True)
    ]
    return pa.chunked_array(assembled([(each, 0, len(each)) for each in arrays], pa.binary()), pa.binary())


def metadata_of(source: RowReader, run: PageRun) -> pa.Array:
    """Metadata of some pages, each of which is read; null where there is none."""
    found = [pa.nulls(0, _METADATA)]
    for first in range(0, run.num_pages, _PAGES_AT_ONCE):
        last = min(first + _PAGES_AT_ONCE, run.num_pages)
        found.append(_metadata(source.page_batches(run.descriptors(first, last), admit=False)))
    return pa.concat_arrays(found)


def _metadata(pages: Sequence[pa.RecordBatch]) -> pa.Array:
    """Metadata of each page; null where there is none."""
    told = (page.schema.metadata for page in pages)
    return pa.array([list(each.items()) if each else None for each in told], _METADATA)
