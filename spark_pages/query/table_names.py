"""Names of tables as statements and options give them: spelled exactly, or whatever their case."""

from __future__ import annotations

from collections.abc import Sequence

from spark_pages.catalog.resolve import find_namespace, look_up, show_name
from spark_pages.errors import InvalidInputError, NamespaceNotFoundError
from spark_pages.log.reopen import reopening
from spark_pages.model.names import fold_name
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.system_tables import SYSTEM_TABLES
from spark_pages.query.table import Table


def table_called(snapshot: Snapshot, parts: Sequence[str]) -> Table:
    """Return the table of a name of one part or two, as `Snapshot.table`.

    Raises
    ------
    TableNotFoundError
        If there is none.
    InvalidInputError
        If several differ by case only.
    """
    return snapshot.table(_joined(parts))


def spelled(snapshot: Snapshot, parts: Sequence[str]) -> str:
    """Return the name of a table as it is spelled, or as it was given where there is none.

    Raises
    ------
    InvalidInputError
        If several differ by case only, and none is spelled exactly so.
    """
    return known_name(snapshot, parts) or _joined(parts)


@reopening
def name_of_new(snapshot: Snapshot, parts: Sequence[str]) -> str:
    """Return the name of a table to be made: its namespace as that is spelled, if there is one.

    Raises
    ------
    InvalidInputError
        If several namespaces differ by case only, or the name is of more than two parts.
    """
    _joined(parts)
    *given, name = parts
    try:
        known = [find_namespace(each, snapshot.log)[1] for each in given]
    except NamespaceNotFoundError:
        known = given
    return ".".join([*known, name]).removeprefix("default.")


@reopening
def known_name(snapshot: Snapshot, parts: Sequence[str]) -> str | None:
    """Return the name of a table that there is, whatever its case; None where there is none.

    Raises
    ------
    InvalidInputError
        If several differ by case only, and none is spelled exactly so.
    """
    name = _joined(parts)
    folded = fold_name(name)
    if folded in _SYSTEM:
        return folded
    try:
        found = look_up(name, snapshot.log)
    except NamespaceNotFoundError:
        return None
    return None if found is None else show_name(found)


_SYSTEM = frozenset(f"system.{name}" for name in SYSTEM_TABLES)


def _joined(parts: Sequence[str]) -> str:
    if len(parts) > 2:
        raise InvalidInputError(
            f"Cannot create table {'.'.join(parts)!r}: the name has more parts than namespace.table.",
            hint=f"Write it as namespace.table: {'.'.join(parts[-2:])}.",
        )
    return ".".join(parts)
