"""What the rows of an append have beside their values, as callers give it: in the form of `page_meta`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_pages.arguments import check_kind
from spark_pages.arrow.join import DoesNotFitError, join
from spark_pages.arrow.validate_array import validate_array
from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.format.values import RowStream, as_stream
from spark_pages.model.table import TableDefinition
from spark_pages.query.page_metadata import (
    PAGE,
    PREFIX,
    SUFFIX,
    PageMeta,
    PageMetadata,
    check_names,
    meta_names,
    page_name,
)

_KINDS = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null())
_WHOLE = 1 << 62


def with_meta(
    definition: TableDefinition,
    rows: RowStream,
    entry_meta: Any,
    page_metadata: Mapping[str, PageMetadata] | None,
) -> tuple[RowStream, dict[str, PageMeta]]:
    """Split the rows of an append from their metadata, by data column.

    Raises
    ------
    SchemaMismatchError
        If it names no column of the rows, is of another length, or not binary or text, or if metadata of
        pages differs from row to row.
    """
    nothing = pa.table({name: pa.nulls(0) for name in rows.columns})
    whole = pa.concat_tables(list(rows.pieces(_WHOLE)) or [nothing])
    return as_stream(whole), _given(definition, whole, entry_meta, page_metadata)


def _given(
    definition: TableDefinition,
    rows: pa.Table,
    entry_meta: Any,
    page_metadata: Mapping[str, PageMetadata] | None,
) -> dict[str, PageMeta]:
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
            f"Cannot append to {definition.name!r}: {rows.num_rows} rows, but metadata of {meta.num_rows}.",
            hint=f"Give `entry_meta` one row for each of the {rows.num_rows}.",
        )
    found = {}
    for column in rows.column_names:
        prefix, suffix = (_binary(meta, name, definition.name) for name in meta_names(column))
        of_pages = (page_metadata or {}).get(column) or _of_pages(meta, page_name(column), definition.name)
        found[column] = PageMeta(prefix, suffix, _as_bytes(of_pages, column, definition.name))
    return found


def _as_table(entry_meta: Any) -> pa.Table:
    if isinstance(entry_meta, pa.Table):
        return entry_meta
    try:
        return pa.table(dict(entry_meta or {}) if isinstance(entry_meta, Mapping | None) else entry_meta)
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise InvalidInputError(
            f"Cannot use a {type(entry_meta).__name__} as entry_meta: expected a table, a record "
            "batch or a mapping of columns.",
            hint="Pass `entry_meta` as {'column': [b'…', b'…']}.",
        ) from error


def _of_pages(meta: pa.Table, name: str, table: str) -> object:
    """Return the page metadata that all rows share, as they are packed into pages together."""
    if name not in meta.column_names or not meta.num_rows:
        return None
    column = meta.column(name)
    told = column[0].as_py()
    if told and not isinstance(told, list):
        raise SchemaMismatchError(
            f"Cannot append to {table!r}: {name!r} must be a map, found {column.type}.",
            hint="Make it `pyarrow.map_(pyarrow.binary(), pyarrow.binary())`.",
        )
    if not column.slice(1).equals(column.slice(0, meta.num_rows - 1)):
        raise SchemaMismatchError(
            f"Cannot append to {table!r}: {name!r} differs from row to row, and rows that are appended "
            f"together share pages.",
            hint="Append rows with different `page_metadata` by one `transaction.append` each.",
        )
    return told or None


def _as_bytes(metadata: object, column: str, table: str) -> PageMetadata | None:
    """Metadata of pages as pages give it back: nobody else holds it, and what is alike is equal."""
    if not metadata:
        return None
    try:
        return dict(pa.schema([], metadata).metadata)
    except (TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"Cannot append to {table!r}: expected metadata of pages of {column!r} as keys and values of "
            f"text or bytes, found {metadata!r}.",
            hint=f"Pass `page_metadata` as {{{column!r}: {{'key': 'value'}}}}.",
        ) from error


def _binary(meta: pa.Table, name: str, table: str) -> pa.Array | None:
    if name not in meta.column_names:
        return None
    column = meta.column(name)
    if column.type not in _KINDS:
        raise SchemaMismatchError(
            f"Cannot append to {table!r}: {name} must be binary or text, but is of type {column.type}.",
            hint="Convert it: `column.cast(pyarrow.binary())`.",
        )
    try:
        for chunk in column.chunks:
            validate_array(chunk)
        return join(column.cast(pa.binary()).chunks, pa.binary())
    except (pa.ArrowInvalid, DoesNotFitError) as error:
        raise InvalidInputError(
            f"Cannot append to {table!r}: expected {name} to fit one array, found: {error}.",
            hint="Give fewer rows at a time: several `transaction.append` calls.",
        ) from error
