"""Stage changes of namespaces, types and constraints, for the verbs of `ddl.py`.

Existing rows are tested before a constraint is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import as_list, as_names, as_str
from spark_pages.catalog.constraints import (
    Constraint,
    foreign_key,
    primary_key,
    with_constraint,
    without_constraint,
)
from spark_pages.catalog.evolution import with_properties
from spark_pages.catalog.namespaces import LOCATION, check_disjoint, check_properties, new_namespace
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import find_namespace, show_name
from spark_pages.catalog.types import VALUE, new_type, uses_type
from spark_pages.errors import AlreadyExistsError, ConstraintError, InvalidInputError, NotFoundError
from spark_pages.format.names import LOCATION_PROPERTY, PageFolders, check_free
from spark_pages.log.state import TableName
from spark_pages.model.ids import is_temporary
from spark_pages.model.names import fold_name
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TYPE_NAMES, TableDefinition
from spark_pages.transaction.column_types import stored_columns
from spark_pages.transaction.constraints import compile_check
from spark_pages.transaction.keys import first_repeated
from spark_pages.transaction.staged_tables import StagedNames, staged_table
from spark_pages.transaction.state import TransactionState

ForeignKey = tuple[Sequence[str], str, Sequence[str]]
"""Columns, the other table, and columns there."""

_SHOWN = 3


def create_namespace(state: TransactionState, name: str, properties: Mapping[str, str]) -> None:
    """See `Transaction.create_namespace`."""
    names = StagedNames(state)
    state.pin_latest()
    name = as_str(name, "the name of a namespace")
    if fold_name(name) in BUILT_IN or names.table((NAMESPACE_NAMES, name)) is not None:
        raise AlreadyExistsError(
            f"Cannot create namespace {name!r}: there is one of that name.",
            hint="Choose another `name`; `snapshot.namespaces()` lists those that there are.",
            namespace=name,
        )
    created = new_namespace(names.new_id(), name, properties, state.runtime.now_us())
    PageOptions.of(created)
    _claim_location(state, created)
    names.create(created)


def drop_namespace(state: TransactionState, name: str) -> None:
    """See `Transaction.drop_namespace`."""
    definition = _namespace(state, name)
    inside = [show_name(each) for each in StagedNames(state).live(definition.table_id)]
    if inside:
        shown = ", ".join(map(repr, inside[:_SHOWN])) + (" and more" if len(inside) > _SHOWN else "")
        raise InvalidInputError(
            f"Cannot drop namespace {name!r}: it holds {shown}.",
            hint="Drop its tables, `transaction.drop_table`, or rename them into another namespace, first.",
        )
    state.staged.drop(definition)


def set_namespace_properties(
    state: TransactionState, name: str, properties: Mapping[str, str | None]
) -> None:
    """See `Transaction.set_namespace_properties`."""
    definition = _namespace(state, name)
    changed = with_properties(definition, properties)
    check_properties(name, changed.properties)
    PageOptions.of(changed)
    if changed.properties.get(LOCATION) != definition.properties.get(LOCATION):
        _claim_location(state, changed)
    StagedNames(state).alter(definition, changed)


def create_type(
    state: TransactionState, name: str, base: pa.DataType | str, not_null: bool, check: str | None
) -> None:
    """See `Transaction.create_type`."""
    names = StagedNames(state)
    state.pin_latest()
    if names.table((TYPE_NAMES, as_str(name, "the name of a type"))) is not None:
        raise AlreadyExistsError(
            f"Cannot create type {name!r}: there is one of that name.",
            hint="Choose another `name`; `snapshot.types()` lists those that there are.",
            type=name,
        )
    if isinstance(base, pa.DataType):
        base = stored_columns(name, [pa.field("VALUE", base)])[0].type
    created = new_type(names.new_id(), name, base, names, not_null, check, state.runtime.now_us())
    if check is not None:
        compile_check(check, pa.schema([(VALUE, created.schema.field(0).type)]))
    names.create(created)


def drop_type(state: TransactionState, name: str) -> None:
    """See `Transaction.drop_type`."""
    state.pin_latest()
    definition = _find(state, (TYPE_NAMES, as_str(name, "the name of a type")), "type")
    users = [each for each in StagedNames(state).live() if uses_type(each, name)]
    if users:
        shown = ", ".join(repr(show_name(each)) for each in users[:_SHOWN])
        raise InvalidInputError(
            f"Cannot drop type {name!r}: {shown}{' and more' if len(users) > _SHOWN else ''} "
            f"{'has' if len(users) == 1 else 'have'} it.",
            hint="Drop their columns of this type first: `transaction.drop_column`.",
        )
    state.staged.drop(definition)


def _claim_location(state: TransactionState, namespace: TableDefinition) -> None:
    """Record the location of the namespace in the store; raise InvalidInputError if another has it."""
    location = namespace.properties.get(LOCATION)
    if location is None:
        return
    check_disjoint(namespace, StagedNames(state).live(NAMESPACE_NAMES))
    if location not in PageFolders.of(state.base.state.properties).folders:
        check_free(state.store, location)
    state.staged.properties[LOCATION_PROPERTY + location] = namespace.name


def _namespace(state: TransactionState, name: str) -> TableDefinition:
    state.pin_latest()
    name = find_namespace(as_str(name, "the name of a namespace"), StagedNames(state))[1]
    if name in BUILT_IN:
        raise InvalidInputError(
            f"Cannot change namespace {name!r}: every store has it as it is.",
            hint="Create a namespace of your own: `transaction.create_namespace('sales')`.",
        )
    return _find(state, (NAMESPACE_NAMES, name), "namespace")


def _find(state: TransactionState, name: TableName, what: str) -> TableDefinition:
    found = StagedNames(state).table(name)
    if found is None:
        raise NotFoundError(
            f"Cannot find {what} {name[1]!r}: there is none of that name.",
            hint=f"`snapshot.{what}s()` lists those that there are.",
        )
    return found


def add_constraint(
    state: TransactionState,
    table: str,
    name: str,
    check: str | None,
    key: Sequence[str] | None,
    reference: ForeignKey | None,
) -> None:
    """See `Transaction.add_constraint`."""
    names = StagedNames(state)
    if sum(each is not None for each in (check, key, reference)) != 1:
        raise InvalidInputError(
            "Cannot add a constraint: expected exactly one of check, primary_key and foreign_key.",
            hint="Pass one of `check`, `primary_key` and `foreign_key`.",
        )
    as_str(name, "the name of a constraint")
    if check is not None:
        as_str(check, "check")
    key = None if key is None else as_names(key, "primary_key")
    definition = names.to_change(table)
    if check is not None:
        constraint = _check_constraint(definition, name, check)
    elif key is not None:
        constraint = primary_key(definition, name, key)
        _check_aligned(definition)
    else:
        parts = as_list(reference, object, "foreign_key", "columns, a table, and columns of that")
        if len(parts) != 3:
            raise InvalidInputError(
                f"Cannot add a foreign key of {len(parts)} parts: expected columns, a table, and "
                "columns of that.",
                hint="Pass `foreign_key` as (['other_id'], 'other', ['id']).",
            )
        constraint = _foreign_key(
            state,
            definition,
            name,
            as_names(parts[0], "foreign_key"),
            as_str(parts[1], "the table of foreign_key"),
            as_names(parts[2], "foreign_key"),
        )
    changed = with_constraint(definition, constraint)
    if check is not None:
        _test_rows(state, definition, constraint)
    if key is not None:
        _test_key(state, definition, key)
    names.alter(definition, changed)


def drop_constraint(state: TransactionState, table: str, name: str) -> None:
    """See `Transaction.drop_constraint`."""
    names = StagedNames(state)
    definition = names.to_change(table)
    names.alter(definition, without_constraint(definition, name))


def _check_constraint(definition: TableDefinition, name: str, sql: str) -> Constraint:
    _check_aligned(definition)
    parsed = compile_check(sql, definition.bare_schema)
    fields = tuple(sorted(definition.field_ids[column] for column in parsed.columns or ()))
    return Constraint(name, "check", fields, sql)


def _foreign_key(
    state: TransactionState,
    definition: TableDefinition,
    name: str,
    columns: Sequence[str],
    table: str,
    there: Sequence[str],
) -> Constraint:
    other = StagedNames(state).find(table)
    if is_temporary(other.table_id) or is_temporary(definition.table_id):
        raise InvalidInputError(
            "Cannot add a foreign key: a temporary table neither has one nor is referred to.",
            hint="Create the table under a name that does not begin with 'temp.'.",
        )
    return foreign_key(definition, name, columns, other, there)


def _check_aligned(definition: TableDefinition) -> None:
    if not definition.aligned:
        raise InvalidInputError(
            f"Cannot add a check or a primary key to {show_name(definition)!r}: its columns have "
            "different lengths, so no row has them all.",
            hint="Give its columns types with checks: `transaction.create_type(name, base, check=…)`.",
        )


def _test_rows(state: TransactionState, definition: TableDefinition, constraint: Constraint) -> None:
    """Raise ConstraintError if a row breaks the check; pages that cannot hold one are not read."""
    staged = staged_table(state, show_name(definition))
    parsed = compile_check(constraint.sql, staged.schema)
    wrong = 0
    first: dict[str, object] | None = None
    for batch in staged.scan(parsed.columns, filter=pc.invert(parsed.expression)):
        wrong += batch.num_rows
        if batch.num_rows and first is None:
            first = batch.slice(0, 1).to_pylist()[0]
    if wrong:
        raise ConstraintError(
            f"Cannot add constraint {constraint.name!r} to {show_name(definition)!r}: {wrong} rows break "
            f"{constraint.sql}; the first has {first}.",
            hint="Change those rows first by `transaction.update_rows`, or add another check.",
        )


def _test_key(state: TransactionState, definition: TableDefinition, key: Sequence[str]) -> None:
    repeated = first_repeated(staged_table(state, show_name(definition)).read(key))
    if repeated is not None:
        raise ConstraintError(
            f"Cannot add primary key {', '.join(key)} to {show_name(definition)!r}: {repeated} is "
            "there more than once.",
            hint="Use more columns in `primary_key`, or change those rows first.",
        )
