"""Names of tables as statements and options give them: spelled exactly, or whatever their case."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from spark_pages.catalog.identifiers import match_name
from spark_pages.catalog.resolve import parse_name
from spark_pages.catalog.table_zero import CATALOG_NAME
from spark_pages.errors import InvalidInputError, NamespaceNotFoundError
from spark_pages.log.reopen import reopening
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, SYSTEM_NAMESPACE
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.system_tables import SYSTEM_TABLES
from spark_pages.query.table import Table


def table_called(snapshot: Snapshot, parts: Sequence[str]) -> Table:
    """The table of a name of one part or two: spelled exactly so, else without regard to case.

    Raises
    ------
    TableNotFoundError
        If there is none.
    InvalidInputError
        If several differ by case only.

    Notes
    -----
    A name that is spelled exactly costs a look-up; another one reads the names of its namespace, once for
    each version.
    """
    return snapshot.table(spelled(snapshot, parts))  # which tells what looks like it


def spelled(snapshot: Snapshot, parts: Sequence[str]) -> str:
    """The name of a table as it is spelled, or as it was given where there is none.

    Raises
    ------
    InvalidInputError
        If several differ by case only, and none is spelled exactly so.

    Notes
    -----
    As `table_called`.
    """
    if len(parts) > 2:
        raise InvalidInputError(f"{'.'.join(parts)!r} has more parts than namespace.table.")
    name = ".".join(parts)
    return name if _is_there(snapshot, name) else known_name(snapshot, parts) or name


@reopening
def name_of_new(snapshot: Snapshot, parts: Sequence[str]) -> str:
    """The name of a table to be made: its namespace as that is spelled, if there is one.

    Raises
    ------
    InvalidInputError
        If several namespaces differ by case only, or the name is of more than two parts.
    """
    if len(parts) > 2:
        raise InvalidInputError(f"{'.'.join(parts)!r} has more parts than namespace.table.")
    *given, name = parts
    known = [match_name(each, _namespaces(snapshot.log), "namespace") or each for each in given]
    return ".".join([*known, name]).removeprefix("default.")


@reopening
def known_name(snapshot: Snapshot, parts: Sequence[str]) -> str | None:
    """The name of a table that there is, whatever its case; None where there is none.

    Raises
    ------
    InvalidInputError
        If several differ by case only, and none is spelled exactly so.
    """
    *given, name = parts
    namespace = given[0] if given else "default"
    alike = [
        f"{known}.{table}"
        for known, number in _namespaces(snapshot.log).items()
        if known.lower() == namespace.lower()
        for table in _names(snapshot.log, known, number).get(name.lower(), ())
    ]
    found = match_name(f"{namespace}.{name}", alike, "table")
    return None if found is None else found.removeprefix("default.")


@reopening
def _is_there(snapshot: Snapshot, name: str) -> bool:
    try:
        return snapshot.log.table(parse_name(name, snapshot.log)) is not None
    except NamespaceNotFoundError:
        return False


def _namespaces(log: LogSnapshot) -> dict[str, int]:
    """Ids of namespaces, by name."""
    return {**BUILT_IN, **{each.name: each.table_id for each in log.tables(NAMESPACE_NAMES)}}


_known: WeakKeyDictionary[LogSnapshot, dict[int, dict[str, list[str]]]] = WeakKeyDictionary()


def _names(log: LogSnapshot, namespace: str, namespace_id: int) -> dict[str, list[str]]:
    """Names of the tables of a namespace, by the name without its case; kept as long as the version is."""
    kept = _known.setdefault(log, {})
    if namespace_id not in kept:
        names: dict[str, list[str]] = {}
        own = (*SYSTEM_TABLES, CATALOG_NAME) if namespace_id == SYSTEM_NAMESPACE else ()
        for name in (*(name for of, name in log.table_names() if of == namespace), *own):
            names.setdefault(name.lower(), []).append(name)
        kept[namespace_id] = names
    return kept[namespace_id]
