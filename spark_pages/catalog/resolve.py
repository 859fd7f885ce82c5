"""From what a user typed to a definition, with a suggestion where the name is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from spark_pages.catalog.table_zero import SYSTEM_NAMESPACE
from spark_pages.errors import ColumnNotFoundError, InvalidInputError, TableNotFoundError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import TableName
from spark_pages.model.table import DEFAULT_NAMESPACE, TableDefinition

NAMESPACES = {"default": DEFAULT_NAMESPACE, "system": SYSTEM_NAMESPACE}


def parse_name(text: str) -> TableName:
    """Namespace id and table name of ``table`` or ``namespace.table``.

    Raises
    ------
    InvalidInputError
        If the text is empty or names an unknown namespace.
    """
    namespace, dot, name = text.rpartition(".")
    if not name or (dot and not namespace):
        raise InvalidInputError(f"{text!r} is not a table name: expected 'table' or 'namespace.table'.")
    namespace = namespace or "default"
    if namespace not in NAMESPACES:
        raise InvalidInputError(
            f"There is no namespace {namespace!r}: expected one of {', '.join(sorted(NAMESPACES))}."
        )
    return NAMESPACES[namespace], name


def show_name(definition: TableDefinition) -> str:
    """The name as a user would type it."""
    prefix = {number: name for name, number in NAMESPACES.items()}[definition.namespace_id]
    return definition.name if prefix == "default" else f"{prefix}.{definition.name}"


def find_table(snapshot: LogSnapshot, text: str) -> TableDefinition:
    """The definition of a live table.

    Raises
    ------
    TableNotFoundError
        If there is none; suggests names that look like it.
    """
    definition = snapshot.table(parse_name(text))
    if definition is None:
        names = [show_name(table) for table in snapshot.tables()]
        raise TableNotFoundError(
            f"There is no table {text!r} at version {snapshot.state.version}.",
            hint=_suggest(text, names) or "`snapshot.tables()` lists the tables.",
            table=text,
            version=snapshot.state.version,
        )
    return definition


def check_columns(definition: TableDefinition, columns: Iterable[str] | None) -> Sequence[str]:
    """The columns asked for, or all of them.

    Raises
    ------
    ColumnNotFoundError
        If the table has no such column; suggests names that look like it.
    """
    known = definition.field_ids
    if columns is None:
        return list(known)
    wanted = list(columns)
    for name in wanted:
        if name not in known:
            raise ColumnNotFoundError(
                f"Table {definition.name!r} has no column {name!r}.",
                hint=_suggest(name, list(known)) or f"It has {', '.join(known)}.",
                table=definition.name,
                column=name,
            )
    return wanted


def _suggest(name: str, known: list[str]) -> str | None:
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else None
