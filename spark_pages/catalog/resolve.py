"""From what a user typed to a definition, with a suggestion where the name is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from spark_pages.arguments import as_names, as_str
from spark_pages.catalog.identifiers import (
    LogicalFieldId,
    VisibleColumn,
    VisibleTable,
    suggest,
)
from spark_pages.errors import (
    ColumnNotFoundError,
    ColumnUnavailableError,
    InvalidInputError,
    NamespaceNotFoundError,
    TableNotFoundError,
)
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import TableName
from spark_pages.model.names import match_name
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TableDefinition

TABLES_LISTED = "`snapshot.tables()`, or `spark-pages tables URL`, lists the tables."
"""What to do where no name is like the one given."""


class Names(Protocol):
    """Where names are looked up: a version of the log, or what a transaction makes of it."""

    def table(self, name: TableName) -> TableDefinition | None:
        """Return the table of exactly this name, or None."""

    def alike(self, name: TableName) -> list[str]:
        """Names in the same namespace that differ from this one by case at most."""


def split_name(text: str) -> tuple[str, str]:
    """Split a name into its namespace, which may be empty, and the table name.

    Raises
    ------
    InvalidInputError
        If the text is empty or half a name, or no text.
    """
    namespace, dot, name = as_str(text, "the name of a table").rpartition(".")
    if not name or (dot and not namespace):
        raise InvalidInputError(
            f"Cannot use {text!r} as the name of a table: expected 'table' or 'namespace.table'.",
            hint="Choose a name such as 'flights' or 'sales.flights'; both parts hold neither dots nor "
            "control characters.",
        )
    return namespace, name


def find_namespace(namespace: str, names: Names) -> tuple[int, str]:
    """Return the id of a namespace and its name as it is spelled; the case of `namespace` does not matter.

    Raises
    ------
    NamespaceNotFoundError
        If there is none of that name.
    InvalidInputError
        If several differ from it by case only.
    """
    if namespace in BUILT_IN:
        return BUILT_IN[namespace], namespace
    found = names.table((NAMESPACE_NAMES, namespace))
    if found is None:
        known = match_name(namespace, [*BUILT_IN, *names.alike((NAMESPACE_NAMES, namespace))], "namespace")
        if known in BUILT_IN:
            return BUILT_IN[known], known
        found = None if known is None else names.table((NAMESPACE_NAMES, known))
    if found is None:
        raise NamespaceNotFoundError(
            f"Cannot find namespace {namespace!r}: there is none of that name.",
            hint="`transaction.create_namespace` makes one; `snapshot.namespaces()` lists them.",
            namespace=namespace,
        )
    return found.table_id, found.name


def name_of_new(text: str, names: Names) -> tuple[TableName, str]:
    """Resolve the namespace in the name of a table to be made.

    Returns
    -------
    TableName, str
        Namespace id and name of the table, the latter as it is given; and the name of the namespace, as that
        is spelled.

    Raises
    ------
    InvalidInputError
        If the text is empty or half a name.
    NamespaceNotFoundError
        If there is no such namespace.
    """
    namespace, name = split_name(text)
    number, spelled = find_namespace(namespace or "default", names)
    return (number, name), spelled


def look_up(text: str, names: Names) -> TableDefinition | None:
    """Return the table of a name: spelled exactly so, else without regard to case; None if there is none.

    Raises
    ------
    InvalidInputError
        If the text is empty or half a name, or several names differ from it by case only.
    NamespaceNotFoundError
        If there is no such namespace.

    Notes
    -----
    A name that is spelled exactly costs a look-up; another one the names of its namespace.
    """
    (number, name), namespace = name_of_new(text, names)
    return look_up_in(number, name, names, "" if namespace == "default" else f"{namespace}.")


def look_up_in(number: int, name: str, names: Names, shown: str = "") -> TableDefinition | None:
    """Return the table of a name in a namespace, as `look_up`; `shown` stands before names in errors."""
    found = names.table((number, name))
    if found is not None:
        return found
    alike = names.alike((number, name))
    if not alike:
        return None
    known = match_name(shown + name, [shown + each for each in alike], "table")
    return None if known is None else names.table((number, known.removeprefix(shown)))


def show_name(definition: TableDefinition) -> str:
    """Return the name as a user would type it."""
    namespace = definition.namespace
    return definition.name if namespace in ("", "default") else f"{namespace}.{definition.name}"


def logical_fields(definition: TableDefinition) -> dict[str, LogicalFieldId]:
    """Return the logical field ids of a table by column name."""
    namespace, table = definition.namespace_id, definition.table_id
    return {
        name: LogicalFieldId(namespace, table, field_id) for name, field_id in definition.field_ids.items()
    }


def visible_table(definition: TableDefinition) -> VisibleTable:
    """Return the table as conditions on its rows can name it."""
    fields = logical_fields(definition)
    columns = tuple(
        VisibleColumn(name, name, field, definition.schema.field(name).type) for name, field in fields.items()
    )
    return VisibleTable(definition.name, definition.name, columns, definition.namespace)


def find_table(snapshot: LogSnapshot, text: str) -> TableDefinition:
    """Find the definition of a live table.

    Raises
    ------
    TableNotFoundError
        If there is none; suggests names that look like it.
    """
    try:
        definition = look_up(text, snapshot)
    except NamespaceNotFoundError as missing:
        raise TableNotFoundError(
            f"Cannot find table {text!r} at version {snapshot.state.version}: there is no namespace "
            f"{text.rpartition('.')[0]!r}.",
            hint=missing.hint,
            table=text,
            version=snapshot.state.version,
        ) from missing
    if definition is None:
        listed = [name if of == "default" else f"{of}.{name}" for of, name in snapshot.table_names()]
        raise TableNotFoundError(
            f"Cannot find table {text!r} at version {snapshot.state.version}: there is none of that name.",
            hint=suggest(text, listed) or TABLES_LISTED,
            table=text,
            version=snapshot.state.version,
        )
    return definition


def same_table(snapshot: LogSnapshot, definition: TableDefinition) -> TableDefinition | None:
    """Find the definition of a table in another version, under any name; None if it is not live there.

    Notes
    -----
    Reads the whole catalog where the table has another name in the newest checkpoint below that version.
    """
    state = snapshot.state
    if definition.table_id in state.tables:
        return state.tables[definition.table_id]
    named = snapshot.table((definition.namespace_id, definition.name))
    if named is not None and named.table_id == definition.table_id:
        return named
    return next((each for each in snapshot.tables() if each.table_id == definition.table_id), None)


def same_column(then: TableDefinition, column: str, definition: TableDefinition, version: int) -> str:
    """Find the name that a column of a table has in another version.

    Parameters
    ----------
    then
        The table in the other version.
    column, definition
        The column, and the table that has it.

    Raises
    ------
    ColumnNotFoundError
        If the table does not have the column there.
    """
    field_id = definition.field_ids[find_column(definition, column)]
    for name, each in then.field_ids.items():
        if each == field_id:
            return name
    raise ColumnNotFoundError(
        f"Cannot find column {column!r} of table {show_name(definition)!r} at version {version}: the table "
        "did not have it.",
        hint=f"It had {', '.join(then.field_ids)}.",
        table=definition.name,
        column=column,
        version=version,
    )


def table_missing_error(definition: TableDefinition, version: int) -> TableNotFoundError:
    """Say that a table is not live in another version."""
    return TableNotFoundError(
        f"Cannot find table {show_name(definition)!r} at version {version}: it was not there.",
        hint="A table of that name may have been there: `snapshot.table(name)` of that version looks for "
        "it by name.",
        table=show_name(definition),
        version=version,
    )


def find_columns(definition: TableDefinition, columns: Iterable[str] | None) -> list[str]:
    """Return the columns asked for as the table spells them, whatever the case of their names; or all.

    Raises
    ------
    ColumnNotFoundError
        If the table has no such column; suggests names that look like it.
    InvalidInputError
        If it is a text, which is a list of letters to Python, or has what is no text; or if several columns
        differ from a name by case only.
    """
    if columns is None:
        return list(definition.field_ids)
    return [find_column(definition, name) for name in as_names(columns, "columns")]


def find_column(definition: TableDefinition, column: str) -> str:
    """Return the name of a column as the table spells it; raises as `find_columns`."""
    known = definition.field_ids
    if as_str(column, "column") in known:
        return column
    found = match_name(column, known)
    if found is None:
        raise ColumnNotFoundError(
            f"Cannot find column {column!r} of table {definition.name!r}: it has none of that name.",
            hint=suggest(column, list(known)) or f"It has {', '.join(known)}.",
            table=definition.name,
            column=column,
        )
    return found


def check_available(definition: TableDefinition, columns: Iterable[str]) -> None:
    """Raise ColumnUnavailableError if this process cannot construct the type of one of the columns."""
    if not definition.unavailable:
        return
    for name in filter(definition.unavailable.__contains__, columns):
        others = [each for each in definition.field_ids if each not in definition.unavailable]
        raise ColumnUnavailableError(
            f"Cannot use column {name!r} of {show_name(definition)!r}: {definition.unavailable[name]}.",
            hint="Use the release of the library that wrote the column"
            + (f", or name other columns: {', '.join(others)}." if others else "."),
            table=show_name(definition),
            column=name,
        )
