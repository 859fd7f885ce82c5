"""Stage changes of tables and columns, for the verbs of `ddl.py`.

Names are looked up as the transaction sees them (`StagedNames`). Changes of an existing table are kept in
`StagedDdl`; a table that is new in the transaction gets another definition. No page is read or rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import check_nesting, shortened
from spark_pages.arrow.nested import null_scalar, one_entry
from spark_pages.arrow.stored_types import schema_from_bytes
from spark_pages.catalog.annotations import fact, without_facts, without_own_metadata
from spark_pages.catalog.constraints import (
    check_column_free,
    constraints_of,
    foreign_keys_to,
    key_columns,
    with_own_name,
)
from spark_pages.catalog.evolution import (
    with_column,
    with_column_properties,
    with_columns_in_order,
    with_comment,
    with_nullability,
    with_properties,
    with_renamed_column,
    with_wider_column,
    without_column,
)
from spark_pages.catalog.namespaces import moved_to_namespace
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import find_column, name_of_new, show_name
from spark_pages.catalog.types import resolve_column, resolve_schema
from spark_pages.errors import InvalidInputError, SchemaMismatchError, SparkPagesError, TableNotFoundError
from spark_pages.log.state import TableName
from spark_pages.model.ids import FieldId, TableId, is_temporary
from spark_pages.model.table import (
    TEMPORARY_NAMESPACE,
    TYPE_KEY,
    TYPE_NAMES,
    TableDefinition,
    with_field_ids,
)
from spark_pages.query.table import Table
from spark_pages.transaction.column_types import stored_columns
from spark_pages.transaction.constraints import RowTests
from spark_pages.transaction.page_writer import stage_constants
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.staged_tables import StagedNames, staged_table
from spark_pages.transaction.state import TransactionState


def create_table(
    state: TransactionState, name: str, schema: pa.Schema, properties: Mapping[str, str], aligned: bool
) -> None:
    """See `Transaction.create_table`."""
    names = StagedNames(state)
    state.pin_latest()
    namespace, bare = names.free(name)
    _, namespace_name = name_of_new(name, names)
    resolved, _ = resolve_schema(without_own_metadata(schema), names)
    resolved = pa.schema(stored_columns(name, resolved), metadata=resolved.metadata)
    temporary = namespace == TEMPORARY_NAMESPACE
    created = TableDefinition(
        table_id=names.new_temporary_id() if temporary else names.new_id(),
        name=bare,
        schema=with_field_ids(resolved),
        next_field_id=len(schema) + 1,
        aligned=aligned,
        properties=dict(properties),
        created_at_us=state.runtime.now_us(),
    )
    created = moved_to_namespace(created, namespace, namespace_name)
    PageOptions.of(created)
    names.create(created)


def drop_table(state: TransactionState, table: str) -> None:
    """See `Transaction.drop_table`."""
    definition = StagedNames(state).to_change(table)
    _check_unreferenced(state, definition, "drop")
    state.forget(definition.table_id)
    state.staged.drop(definition)


def undrop_table(state: TransactionState, table: str) -> None:
    """See `Transaction.undrop_table`."""
    names = StagedNames(state)
    state.pin_latest()
    name = names.free(table)
    definition = _last_dropped(state.snapshot().table("system.catalog"), table, name)
    if definition.table_id in state.staged.ddl.dropped:
        raise InvalidInputError(
            f"Cannot bring back {table!r}: this very transaction drops it.", hint="Call `rollback()` instead."
        )
    _check_needs(state, definition)
    names.undrop(definition)
    assert name == (definition.namespace_id, definition.name)


def rename_table(state: TransactionState, table: str, name: str) -> None:
    """See `Transaction.rename_table`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    namespace, bare = names.free(name)
    _, namespace_name = name_of_new(name, names)
    if (namespace == TEMPORARY_NAMESPACE) != is_temporary(definition.table_id):
        raise InvalidInputError(
            f"Cannot rename {table!r} to {name!r}: a temporary table stays one, and no other becomes one.",
            hint="Create the other table by `transaction.create_table` and append the rows.",
        )
    _check_unreferenced(state, definition, "rename")
    changed = moved_to_namespace(replace(definition, name=bare), namespace, namespace_name)
    changed = with_own_name(changed)
    names.alter(definition, changed)


def truncate_table(state: TransactionState, table: str) -> None:
    """See `Transaction.truncate_table`."""
    definition = StagedNames(state).to_change(table)
    table_id = definition.table_id
    state.forget(table_id)
    if table_id >= 0:
        state.staged.ddl.truncate(definition)
    for key in [key for key in state.staged.ddl.new_columns if key[0] == table_id]:
        state.staged.ddl.new_columns[key] = 0


def set_table_properties(state: TransactionState, table: str, properties: Mapping[str, str | None]) -> None:
    """See `Transaction.set_table_properties`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    changed = with_properties(definition, properties)
    PageOptions.of(changed)
    names.alter(definition, changed)


def _referencing(state: TransactionState, definition: TableDefinition) -> list[TableDefinition]:
    """Return other tables with foreign keys to this one.

    Notes
    -----
    Where any table may have constraints, reads of table 0 what kind its rows are, and the definitions
    of tables that have some.
    """
    ddl = state.staged.ddl
    found = [*state.staged.created.values(), *ddl.altered.values(), *ddl.restored.values()]
    if state.base.state.features.writer:
        found += filter(
            None,
            map(StagedNames(state).table, _with_constraints(state.snapshot().table("system.catalog"))),
        )
    others = {each.table_id: each for each in found if each.table_id != definition.table_id}
    return [each for each in others.values() if foreign_keys_to(each, definition.table_id)]


def _check_unreferenced(state: TransactionState, definition: TableDefinition, what: str) -> None:
    """Raise InvalidInputError if a foreign key refers to the table."""
    others = _referencing(state, definition)
    if others:
        raise InvalidInputError(
            f"Cannot {what} {show_name(definition)!r}: a foreign key of {show_name(others[0])!r} refers "
            "to it.",
            hint=f"Drop the constraint first: `transaction.drop_constraint({show_name(others[0])!r}, name)`.",
        )


def _check_needs(state: TransactionState, definition: TableDefinition) -> None:
    """Raise InvalidInputError if types or referenced tables of a dropped table are missing."""
    names = StagedNames(state)
    for column in definition.schema:
        alias = fact(column, TYPE_KEY)
        if alias is None:
            continue
        found = names.table((TYPE_NAMES, alias))
        if found is None:
            raise InvalidInputError(
                f"Cannot bring back {show_name(definition)!r}: its column {column.name!r} is of type "
                f"{alias!r}, which is gone.",
                hint=f"Create it again first: `transaction.create_type({alias!r}, base)`.",
            )
    for constraint in constraints_of(definition):
        if constraint.kind != "foreign key" or constraint.table_id == definition.table_id:
            continue
        other = names.known(constraint.table)
        there = set(other.field_ids.values()) if other is not None else set()
        if (
            other is None
            or other.table_id != constraint.table_id
            or not there.issuperset(constraint.fields_there)
        ):
            raise InvalidInputError(
                f"Cannot bring back {show_name(definition)!r}: its foreign key {constraint.name!r} "
                f"refers to {constraint.table!r}, which is not what it was.",
                hint=f"Bring that table back first: `transaction.undrop_table({constraint.table!r})`.",
            )


def _with_constraints(zero: Table) -> list[TableName]:
    """Names of the live tables of which table 0 holds constraints, also such as have ended."""
    ids = pc.unique(zero.read(["table_id"], filter=[("kind", "==", "constraint")]).column("table_id"))
    if not len(ids):
        return []
    conditions = [("kind", "==", "table"), ("table_id", "in", ids.to_pylist())]
    rows = zero.read(["namespace_id", "name", "deleted_by"], filter=conditions)
    live = rows.filter(rows.column("deleted_by").is_null())
    return list(zip(*(live.column(name).to_pylist() for name in ("namespace_id", "name")), strict=True))


def _last_dropped(zero: Table, table: str, of: tuple[int, str]) -> TableDefinition:
    """Find the table of this name that was dropped last, in table 0.

    Raises
    ------
    TableNotFoundError
        If there is none.
    """
    namespace, name = of
    columns = ["table_id", "deleted_by", "arrow_schema", "metadata", "created_at"]
    conditions = [("kind", "==", "table"), ("namespace_id", "==", namespace), ("name", "==", name)]
    named = zero.read(columns, filter=conditions)
    ids = pc.unique(named.column("table_id"))
    of_tables = zero.read(
        ["table_id", "deleted_by", "field_id", "kind"], filter=[("table_id", "in", ids.to_pylist() or [0])]
    )
    live = of_tables.filter(of_tables.column("deleted_by").is_null()).column("table_id")
    ends = of_tables.filter(pc.equal(of_tables.column("kind"), "table"))
    last_rows = (
        ends.group_by("table_id").aggregate([("deleted_by", "max")]).rename_columns(["table_id", "end"])
    )
    gone = named.filter(pc.invert(pc.is_in(named.column("table_id"), pc.unique(live))))
    gone = gone.join(last_rows, "table_id")
    gone = gone.filter(pc.equal(gone.column("deleted_by"), gone.column("end")))  # it had this name to the end
    if not gone.num_rows:
        raise TableNotFoundError(
            f"Cannot bring back table {table!r}: none of that name has been dropped that can come back.",
            hint="A table comes back until retention has passed its drop, and vacuum gives it up; see "
            "`store.history()`.",
            table=table,
        )
    last = gone.sort_by("deleted_by").slice(gone.num_rows - 1).to_pylist()[0]
    told = json.loads(last["metadata"])
    fields = of_tables.filter(pc.equal(of_tables.column("table_id"), last["table_id"])).column("field_id")
    return TableDefinition(
        table_id=TableId(last["table_id"]),
        name=name,
        schema=schema_from_bytes(last["arrow_schema"]),
        next_field_id=pc.max(fields).as_py() + 1,
        namespace_id=namespace,
        aligned=told["aligned"],
        properties=told["properties"],
        created_at_us=pa.scalar(last["created_at"], pa.timestamp("us", tz="UTC")).value,
    )


def add_column(state: TransactionState, table: str, column: pa.Field, default: Any) -> None:
    """See `Transaction.add_column`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    column, _ = resolve_column(without_facts(column), names)
    (column,) = stored_columns(table, [column])
    changed = with_column(definition, column)
    PageOptions.of(changed)
    before, now = _lengths(state, definition)
    try:
        check_nesting(default, "default")
        value = null_scalar(column.type) if default is None else pa.scalar(default, column.type)
    except SparkPagesError:
        raise  # also a ValueError
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            f"Cannot use {shortened(default)} as default of column {column.name!r} of type "
            f"{column.type}: {error}",
            hint=f"Pass a `default` of type {column.type}.",
        ) from error
    if now and not column.nullable and not value.is_valid:
        raise SchemaMismatchError(
            f"Cannot add column {column.name!r} to {table!r}: it is not nullable, and {now} rows have no "
            f"value for it.",
            hint="Pass a `default`, or make the column nullable.",
        )
    if now or value.is_valid:
        one = pa.table([one_entry(value)], schema=pa.schema([column]))
        RowTests.of(replace(changed, schema=pa.schema([changed.schema.field(column.name)]))).check(one, 0)
    names.alter(definition, changed)
    field_id = FieldId(definition.next_field_id)
    if now:
        splice = StagedSplice(
            definition.table_id, field_id, 0, (), 0, stage_constants(value, now), touched=((0, now),)
        )
        state.staged.splices.append(splice)
        state.staged.definitions[definition.table_id] = changed
    state.staged.ddl.new_columns[definition.table_id, field_id] = before
    if value.is_valid or column.nullable:
        state.staged.ddl.defaults[definition.table_id, field_id] = value


def drop_column(state: TransactionState, table: str, column: str) -> None:
    """See `Transaction.drop_column`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    column = find_column(definition, column)
    changed = without_column(definition, column)
    check_column_free(definition, column, "drop")
    _check_column_unreferenced(state, definition, column, "drop")
    key = (definition.table_id, definition.field_ids[column])
    state.staged.splices = [s for s in state.staged.splices if (s.table_id, s.field_id) != key]
    state.updates.forget_column((definition.table_id, column))
    state.staged.ddl.new_columns.pop(key, None)
    names.alter(definition, changed)


def rename_column(state: TransactionState, table: str, column: str, name: str) -> None:
    """See `Transaction.rename_column`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    column = find_column(definition, column)
    changed = with_renamed_column(definition, column, name)
    check_column_free(definition, column, "rename", renamed=True)
    _check_column_unreferenced(state, definition, column, "rename")
    state.updates.rename_column((definition.table_id, column), name)
    names.alter(definition, changed)


def reorder_columns(state: TransactionState, table: str, columns: Sequence[str]) -> None:
    """See `Transaction.reorder_columns`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    names.alter(definition, with_columns_in_order(definition, columns))


def widen_column(state: TransactionState, table: str, column: str, wider: pa.DataType) -> None:
    """See `Transaction.widen_column`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    column = find_column(definition, column)
    wider = stored_columns(table, [pa.field(column, wider)])[0].type
    changed = with_wider_column(definition, column, wider)
    if changed != definition:
        state.updates.widen_column((definition.table_id, column), wider)
    names.alter(definition, changed)


def set_nullable(state: TransactionState, table: str, column: str, nullable: bool) -> None:
    """See `Transaction.set_nullable`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    column = find_column(definition, column)
    changed = with_nullability(definition, column, nullable)
    field = definition.schema.field(column)
    alias = fact(field, TYPE_KEY)
    told = names.table((TYPE_NAMES, alias)) if alias is not None else None
    if nullable and told is not None and not told.schema.field(0).nullable:
        raise InvalidInputError(
            f"Cannot allow nulls in column {column!r} of {table!r}: it is of type {alias!r}, which is "
            "never null.",
            hint="Add a column of another type by `transaction.add_column`, and fill it.",
        )
    if nullable and column in key_columns(definition):
        raise InvalidInputError(
            f"Cannot allow nulls in column {column!r} of {table!r}: it is in the primary key, which "
            "is never null.",
            hint=f"Drop the key first: `transaction.drop_constraint({table!r}, name)`.",
        )
    if not nullable and field.nullable:
        nulls = staged_table(state, show_name(definition)).aggregate(column).null_count
        if nulls:
            raise SchemaMismatchError(
                f"Cannot declare column {column!r} of {table!r} without nulls: it holds {nulls}.",
                hint=f"Update these rows first: `transaction.update_rows({table!r}, rows, values)`.",
            )
    names.alter(definition, changed)


def set_comment(state: TransactionState, table: str, comment: str | None, column: str | None) -> None:
    """See `Transaction.set_comment`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    names.alter(definition, with_comment(definition, comment, column))


def set_column_properties(
    state: TransactionState, table: str, column: str, properties: Mapping[str, str | None]
) -> None:
    """See `Transaction.set_column_properties`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    column = find_column(definition, column)
    names.alter(definition, with_column_properties(definition, column, properties))


def _check_column_unreferenced(
    state: TransactionState, definition: TableDefinition, column: str, what: str
) -> None:
    """Raise InvalidInputError if a foreign key refers to the column."""
    field_id = definition.field_ids[column]
    for other in [*_referencing(state, definition), definition]:
        for key in foreign_keys_to(other, definition.table_id):
            if field_id in key.fields_there:
                raise InvalidInputError(
                    f"Cannot {what} column {column!r} of {show_name(definition)!r}: foreign key "
                    f"{key.name!r} of {show_name(other)!r} refers to it.",
                    hint=f"Drop the constraint first: `transaction.drop_constraint({show_name(other)!r}, "
                    f"{key.name!r})`.",
                )


def _lengths(state: TransactionState, definition: TableDefinition) -> tuple[int, int]:
    """Return the rows of the table without, and with, staged changes."""
    table_id = definition.table_id
    columns = [*definition.field_ids.values()]
    gone = table_id < 0 or table_id in state.staged.ddl.truncated
    grown = state.staged.staged_rows(table_id)
    lengths = []
    for field_id in columns[:1] if definition.aligned else columns:
        new = state.staged.ddl.new_columns.get((table_id, field_id))
        before = 0 if gone else state.base.num_rows((table_id, field_id)) if new is None else new
        staged = grown.get(field_id, 0) - (new or 0)
        lengths.append((before, before + staged))
    return min(before for before, _ in lengths), min(now for _, now in lengths)
