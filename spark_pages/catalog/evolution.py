"""How definitions of tables change: columns that come, go and get other names. Pure.

Ids of columns are never used twice, and pages are found by id: so a column that changes its name keeps its
pages, and one that comes under the name of an earlier one does not see the pages of that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_pages.arguments import as_names, as_str
from spark_pages.arrow.types import holds_all, named_type
from spark_pages.catalog.annotations import column_properties, fact, json_fact, with_fact, with_json_fact
from spark_pages.catalog.constraints import constraints_of
from spark_pages.catalog.resolve import find_column, find_columns
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.model.table import (
    CHECKS_KEY,
    COMMENT_KEY,
    PROPERTIES_KEY,
    STORED_KEY,
    TYPE_KEY,
    TableDefinition,
    with_field_id,
)


def with_column(definition: TableDefinition, column: pa.Field) -> TableDefinition:
    """Append a column to a table.

    Raises
    ------
    InvalidInputError
        If there is a column of that name, or the name is empty.
    """
    _check_new(definition, column.name)
    return replace(
        definition,
        schema=definition.schema.append(with_field_id(column, definition.next_field_id)),
        next_field_id=definition.next_field_id + 1,
    )


def without_column(definition: TableDefinition, name: str) -> TableDefinition:
    """Remove a column from a table. Its pages stay in the versions that have it.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    InvalidInputError
        If it is the only one.
    """
    name = find_column(definition, name)
    if len(definition.schema) == 1:
        raise InvalidInputError(
            f"Cannot drop column {name!r} of {definition.name!r}: it is the only one.",
            hint=f"Drop the table instead: `transaction.drop_table({definition.name!r})`.",
        )
    return replace(definition, schema=definition.schema.remove(definition.schema.get_field_index(name)))


def with_renamed_column(definition: TableDefinition, old: str, new: str) -> TableDefinition:
    """Rename a column of a table.

    Raises
    ------
    ColumnNotFoundError, InvalidInputError
        If there is no column of the old name, or one of the new name.
    """
    old = find_column(definition, old)
    if old == as_str(new, "name"):
        return definition
    _check_new(definition, new)
    index = definition.schema.get_field_index(old)
    return replace(
        definition, schema=definition.schema.set(index, definition.schema.field(index).with_name(new))
    )


def with_columns_in_order(definition: TableDefinition, columns: Sequence[str]) -> TableDefinition:
    """Reorder the columns of a table: first those given, then the others in their old order.

    Raises
    ------
    ColumnNotFoundError, InvalidInputError
        If a column is not there, or named twice.
    """
    columns = find_columns(definition, as_names(columns, "columns"))
    if len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"Cannot reorder columns of {definition.name!r}: one of {columns!r} is named twice.",
            hint="Name each column once in `columns`; those left out follow in their present order.",
        )
    order = [*columns, *(name for name in definition.field_ids if name not in columns)]
    fields = [definition.schema.field(name) for name in order]
    return replace(definition, schema=pa.schema(fields, metadata=definition.schema.metadata))


def with_wider_column(definition: TableDefinition, name: str, wider: pa.DataType) -> TableDefinition:
    """Widen the type of a column. Its pages stay as they are.

    Raises
    ------
    ColumnNotFoundError, InvalidInputError
        If there is no such column, or not each of its values is one of the type.
    """
    field = _column(definition, name)
    check_wider(field, wider)
    if fact(field, TYPE_KEY) is not None and field.type != wider:
        raise InvalidInputError(
            f"Cannot widen column {name!r} of {definition.name!r}: it is of the named type "
            f"{fact(field, TYPE_KEY)!r}, which is fixed.",
            hint=f"Add a column of type {wider}, `transaction.add_column`, and fill it.",
        )
    return _with_column_as(definition, with_stored_types(field.with_type(wider), field.type))


def with_nullability(definition: TableDefinition, name: str, nullable: bool) -> TableDefinition:
    """Set whether a column may be null.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    """
    return _with_column_as(definition, _column(definition, name).with_nullable(nullable))


def with_comment(definition: TableDefinition, comment: str | None, column: str | None) -> TableDefinition:
    """Set the comment on a table or a column; None removes it.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    """
    if column is None:
        return replace(definition, schema=with_fact(definition.schema, COMMENT_KEY, comment))
    return _with_column_as(definition, with_fact(_column(definition, column), COMMENT_KEY, comment))


def with_column_properties(
    definition: TableDefinition, name: str, properties: Mapping[str, str | None]
) -> TableDefinition:
    """Set properties of a column; None removes one.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    """
    field = _column(definition, name)
    merged = {**column_properties(field), **properties}
    kept = {key: value for key, value in merged.items() if value is not None}
    return _with_column_as(definition, with_json_fact(field, PROPERTIES_KEY, kept))


def with_pages_of(definition: TableDefinition, newer: TableDefinition) -> TableDefinition:
    """Return the earlier definition of a table, for pages of types that a newer definition has."""
    schema = definition.schema
    newest = {field_id: newer.schema.field(name) for name, field_id in newer.field_ids.items()}
    for index, (name, field_id) in enumerate(definition.field_ids.items()):
        field, now = schema.field(name), newest.get(field_id)
        if now is not None and (
            now.type != field.type or name in definition.widened_columns or now.name in newer.widened_columns
        ):
            schema = schema.set(index, with_stored_types(field, now.type, *stored_types(now)))
    return replace(definition, schema=schema)


def _column(definition: TableDefinition, name: str) -> pa.Field:
    return definition.schema.field(find_column(definition, name))


def _with_column_as(definition: TableDefinition, column: pa.Field) -> TableDefinition:
    index = definition.schema.get_field_index(column.name)
    return replace(definition, schema=definition.schema.set(index, column))


def with_properties(definition: TableDefinition, properties: Mapping[str, str | None]) -> TableDefinition:
    """Set properties of a table; None removes one."""
    kept = {name: value for name, value in definition.properties.items() if name not in properties}
    given = {name: value for name, value in properties.items() if value is not None}
    return replace(definition, properties={**kept, **given})


def _check_new(definition: TableDefinition, name: str) -> None:
    if not name or name in definition.field_ids:
        raise InvalidInputError(
            f"Cannot give the name {name!r} to a column of {definition.name!r}: "
            f"{'it is empty' if not name else 'there is one of that name'}.",
            hint=f"Choose a name other than {', '.join(map(repr, definition.field_ids))}.",
        )


# Columns that get a wider type while their pages stay as they are. Pure.
#
# The definition keeps the types under which older pages may hold their values. Whoever reads such a page
# casts; a bound is as wide as the type that it was made of; a value asked for of a bloom filter is asked for
# under each type.


def check_wider(column: pa.Field, wider: pa.DataType) -> None:
    """Nothing, if each value of the column is one of the wider type.

    Raises
    ------
    InvalidInputError
        Says what the column could become.
    """
    narrow = column.type
    if holds_all(wider, narrow):
        return
    raise InvalidInputError(
        f"Cannot widen column {column.name!r} from {narrow} to {wider}: its pages would have to be "
        "rewritten. Expected a wider integer of the same sign, double in place of float, a decimal "
        "of the same scale and more digits, or large_string in place of string.",
        hint=f"Add a column of type {wider}, `transaction.add_column`, and fill it.",
    )


def with_stored_types(column: pa.Field, *more: pa.DataType) -> pa.Field:
    """Add types that the pages of a column may have besides its own and earlier ones."""
    names = {str(kind) for kind in (*stored_types(column), *more)} - {str(column.type)}
    return with_json_fact(column, STORED_KEY, sorted(names))


def stored_types(column: pa.Field) -> tuple[pa.DataType, ...]:
    """Earlier types of a column that stored pages may still have.

    Raises
    ------
    DamageError
        If the catalog names a type that no column can have had.
    """
    return tuple(_parse(str(name)) for name in json_fact(column, STORED_KEY, []))


def _parse(name: str) -> pa.DataType:
    kind = named_type(name)
    if kind is None:
        raise DamageError(
            f"Cannot read the types of the pages of a column: the catalog names {name!r}, which was "
            "never widened."
        )
    return kind


# What an alter means to those who write to the table meanwhile. Pure.
#
# A writer forms its pages for the definition that it has read. If another definition is there when it
# commits, the pages are still right where no rule on values has become stricter; only columns that came or
# went are to be looked at, one by one.


def columns_changed(before: TableDefinition, after: TableDefinition) -> tuple[int, ...] | None:
    """Ids of the columns that an alter adds or takes away; None if rows right before may be wrong after it.

    Notes
    -----
    Names, order, comments, properties and wider types harm no rows, nor do rules that go.
    """
    if before.aligned != after.aligned or not set(constraints_of(after)) <= set(constraints_of(before)):
        return None
    old, new = _by_id(before), _by_id(after)
    if not all(_accepts_pages(new[field_id], old[field_id]) for field_id in old.keys() & new.keys()):
        return None
    if new.keys() - old.keys() and not after.aligned:
        return None  # nobody knows how many rows a new column is to have
    return tuple(sorted(old.keys() ^ new.keys()))


def columns_to_fill(before: TableDefinition, after: TableDefinition) -> list[tuple[int, pa.Field]] | None:
    """Columns that rows written for the earlier definition lack, all nullable; None where they don't fit."""
    changed = columns_changed(before, after)
    new = _by_id(after)
    if changed is None or any(field_id not in new or not new[field_id].nullable for field_id in changed):
        return None
    return [(field_id, new[field_id]) for field_id in changed]


def _by_id(definition: TableDefinition) -> dict[int, pa.Field]:
    return dict(zip(definition.field_ids.values(), definition.schema, strict=True))


def _accepts_pages(now: pa.Field, old: pa.Field) -> bool:
    """Whether a column takes all pages that were made for what it was.

    A column that has become narrower does not, though some of its pages are of the wider type: those hold
    values that fit, and nobody has looked at the values of the pages in question.
    """
    types = {now.type, *stored_types(now)}
    checks = [{tuple(each) for each in json_fact(field, CHECKS_KEY, [])} for field in (now, old)]
    return (
        holds_all(now.type, old.type)
        and types.issuperset({old.type, *stored_types(old)})
        and now.nullable >= old.nullable
        and checks[0] <= checks[1]
    )
