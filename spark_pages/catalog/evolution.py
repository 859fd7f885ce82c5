"""How definitions of tables change: columns that come, go and get other names. Pure.

Ids of columns are never used twice, and pages are found by id: so a column that changes its name keeps its
pages, and one that comes under the name of an earlier one does not see the pages of that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from spark_pages.catalog.resolve import check_columns
from spark_pages.errors import InvalidInputError
from spark_pages.model.table import FIELD_ID_KEY, TableDefinition


def with_column(definition: TableDefinition, column: pa.Field) -> TableDefinition:
    """The table with one more column, behind the others.

    Raises
    ------
    InvalidInputError
        If there is a column of that name, or the name is empty.
    """
    _check_new(definition, column.name)
    metadata = {**(column.metadata or {}), FIELD_ID_KEY: str(definition.next_field_id).encode()}
    return replace(
        definition,
        schema=definition.schema.append(column.with_metadata(metadata)),
        next_field_id=definition.next_field_id + 1,
    )


def without_column(definition: TableDefinition, name: str) -> TableDefinition:
    """The table without a column. Its pages stay in the versions that have it.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    InvalidInputError
        If it is the only one.
    """
    check_columns(definition, [name])
    if len(definition.schema) == 1:
        raise InvalidInputError(
            f"Cannot drop {name!r}, the only column of {definition.name!r}.", hint="Drop the table instead."
        )
    return replace(definition, schema=definition.schema.remove(definition.schema.get_field_index(name)))


def with_renamed_column(definition: TableDefinition, old: str, new: str) -> TableDefinition:
    """The table with another name for a column.

    Raises
    ------
    ColumnNotFoundError, InvalidInputError
        If there is no column of the old name, or one of the new name.
    """
    check_columns(definition, [old])
    if old == new:
        return definition
    _check_new(definition, new)
    index = definition.schema.get_field_index(old)
    return replace(
        definition, schema=definition.schema.set(index, definition.schema.field(index).with_name(new))
    )


def with_properties(definition: TableDefinition, properties: Mapping[str, str | None]) -> TableDefinition:
    """The table with these properties set; None takes one away."""
    kept = {name: value for name, value in definition.properties.items() if name not in properties}
    given = {name: value for name, value in properties.items() if value is not None}
    return replace(definition, properties={**kept, **given})


def _check_new(definition: TableDefinition, name: str) -> None:
    if not name or name in definition.field_ids:
        raise InvalidInputError(
            f"Cannot give the name {name!r} to a column of {definition.name!r}: "
            f"{'it is empty' if not name else 'there is one of that name'}."
        )
