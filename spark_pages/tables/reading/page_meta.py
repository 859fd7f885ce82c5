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

import pyarrow as pa

from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.given import check_kind
from spark_pages.io import PlainPage
from spark_pages.model.table import TableDefinition

PREFIX, SUFFIX, PAGE = "prefix_meta", "suffix_meta", "page_metadata"

Page: TypeAlias = pa.RecordBatch | PlainPage
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
        """What the entries of some pages have, end to end; the metadata is that of the first."""
        return cls(
            _joined(batches, PREFIX),
            _joined(batches, SUFFIX),
            batches[0].schema.metadata if batches else None,
        )

    @property
    def is_nothing(self) -> bool:
        """Whether the entries have only their values."""
        return self.prefix is None and self.suffix is None and not self.page

    def slice(self, start: int, stop: int) -> PageMeta:
        """That of entries [start, stop)."""
        count = stop - start
        return PageMeta(
            None if self.prefix is None else self.prefix.slice(start, count),
            None if self.suffix is None else self.suffix.slice(start, count),
            self.page,
        )

    def beside(self, values: pa.Array) -> pa.Array:
        """The values, or structs of them and what they have beside them: for cutting into pages."""
        arrays = [values, *(each for each in (self.prefix, self.suffix) if each is not None)]
        if len(arrays) == 1:
            return values
        return pa.StructArray.from_arrays(arrays, [str(index) for index in range(len(arrays))])


NO_META = PageMeta()
_KINDS = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null())


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
                    f"Table {definition.name!r} has a column {name!r}, and so would metadata of {column!r} "
                    f"be called.",
                    hint="Name the columns to read, without one of them.",
                )


def given_meta(
    definition: TableDefinition,
    rows: pa.Table,
    entry_meta: Any,
    page_metadata: Mapping[str, PageMetadata] | None,
) -> dict[str, PageMeta]:
    """What the rows of an append bring with them, by data column.

    Raises
    ------
    SchemaMismatchError
        If it names no column of the rows, is of another length, or not binary or text, or if metadata of
        pages differs from row to row.
    """
    meta = _as_table(entry_meta)
    if page_metadata is not None:
        check_kind(page_metadata, Mapping, "page_metadata", "metadata by column")
    check_names(definition, rows.column_names)
    known = {name for column in rows.column_names for name in (*meta_names(column), page_name(column))}
    unknown = [name for name in meta.column_names if name not in known]
    unknown += [name for name in page_metadata or () if name not in rows.column_names]
    if unknown:
        raise SchemaMismatchError(
            f"Cannot append to {definition.name!r}: {unknown[0]!r} belongs to no column of the rows.",
            hint=f"Entry metadata is called <column>.{PREFIX} and <column>.{SUFFIX}; page metadata has the "
            f"name of its column, or is called <column>.{PAGE} among entry metadata.",
        )
    if meta.num_columns and meta.num_rows != rows.num_rows:
        raise SchemaMismatchError(
            f"Cannot append to {definition.name!r}: {rows.num_rows} rows, but metadata of {meta.num_rows}."
        )
    found = {}
    for column in rows.column_names:
        prefix, suffix = (_binary(meta, name, definition.name) for name in meta_names(column))
        of_pages = (page_metadata or {}).get(column) or _of_pages(meta, page_name(column), definition.name)
        found[column] = PageMeta(prefix, suffix, of_pages)
    return found


def _as_table(entry_meta: Any) -> pa.Table:
    if isinstance(entry_meta, pa.Table):
        return entry_meta
    try:
        return pa.table(dict(entry_meta or {}) if isinstance(entry_meta, Mapping | None) else entry_meta)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise InvalidInputError(
            f"entry_meta is a {type(entry_meta).__name__}: expected a table, a record batch or a mapping of "
            f"columns."
        ) from error


def _of_pages(meta: pa.Table, name: str, table: str) -> PageMetadata | None:
    """What `Table.read` gave for the pages of a column: the same for all rows, as they get pages together."""
    if name not in meta.column_names or not meta.num_rows:
        return None
    column = meta.column(name)
    told = column[0].as_py()
    if told and not isinstance(told, list):
        raise SchemaMismatchError(f"Cannot append to {table!r}: {name!r} must be a map, found {column.type}.")
    if not column.slice(1).equals(column.slice(0, meta.num_rows - 1)):
        raise SchemaMismatchError(
            f"Cannot append to {table!r}: {name!r} differs from row to row, and rows that are appended "
            f"together share pages.",
            hint="Append rows with different metadata of pages one after another.",
        )
    return dict(told) if told else None


def _binary(meta: pa.Table, name: str, table: str) -> pa.Array | None:
    if name not in meta.column_names:
        return None
    column = meta.column(name)
    if column.type not in _KINDS:
        raise SchemaMismatchError(
            f"Cannot append to {table!r}: {name} must be binary or text, but is of type {column.type}."
        )
    return pa.concat_arrays(column.cast(pa.binary()).chunks or [pa.nulls(0, pa.binary())])


def _joined(batches: Sequence[pa.RecordBatch], name: str) -> pa.Array | None:
    if not any(name in batch.schema.names for batch in batches):
        return None
    return pa.concat_arrays(
        [
            batch.column(name).cast(pa.binary())
            if name in batch.schema.names
            else pa.nulls(batch.num_rows, pa.binary())
            for batch in batches
        ]
    )


def alike_groups(pages: Sequence[Page]) -> list[list[Page]]:
    """The pages, in order, in groups of neighbours whose pages have the same metadata."""
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
