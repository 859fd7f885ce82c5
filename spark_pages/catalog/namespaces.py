"""Namespaces: what a user says of one, and the definition that tells of it. Pure.

A namespace is an object of the catalog like a table, without columns: it has an id that is never used twice,
and its name is looked up among the names of namespaces. So intents, conflicts, restore and table 0 need
nothing new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_pages.catalog.annotations import with_fact
from spark_pages.errors import InvalidInputError
from spark_pages.format.names import PAGES, is_page_file
from spark_pages.model.ids import TableId
from spark_pages.model.immutable import freeze
from spark_pages.model.table import BUILT_IN, NAMESPACE_KEY, NAMESPACE_NAMES, TableDefinition
from spark_pages.storage.checks import is_key

LOCATION = "location"
"""Property of a namespace: where page files of its tables are written, a key below the root of the store."""

_MOST_CHARS = 400

INHERITED = ("page_bytes", "codec", "bloom")
"""Properties of a namespace that hold for its tables where they say nothing themselves."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace as of one version.

    Attributes
    ----------
    namespace_id, name
        Of the built-in ones: 0 ``default``, 1 ``temp``, -1 ``system``.
    properties
        Free text by key; ``page_bytes``, ``codec`` and ``bloom`` hold for its tables where these say nothing.
        ``location`` says where their page files are written, ``retention_seconds`` how long dropped ones can
        come back.
    """

    namespace_id: int
    name: str
    properties: Mapping[str, str]

    def __post_init__(self) -> None:
        freeze(self, "properties")


BUILT_INS = tuple(Namespace(number, name, {}) for name, number in BUILT_IN.items())


def namespace_of(definition: TableDefinition) -> Namespace:
    """Read the namespace of a definition."""
    return Namespace(definition.table_id, definition.name, definition.properties)


def new_namespace(
    object_id: TableId, name: str, properties: Mapping[str, str], now_us: int
) -> TableDefinition:
    """Create the definition of a namespace.

    Raises
    ------
    InvalidInputError
        If the name or a property cannot be.
    """
    if not name or "." in name or name != name.strip() or not name.isprintable():
        raise InvalidInputError(
            f"Cannot name a namespace {name!r}: expected printable characters without a dot.",
            hint="Choose a `name` such as 'sales'.",
        )
    check_properties(name, properties)
    return TableDefinition(
        object_id, name, pa.schema([]), 1, NAMESPACE_NAMES, properties=dict(properties), created_at_us=now_us
    )


def check_properties(name: str, properties: Mapping[str, str]) -> None:
    """Nothing, if a namespace can have these properties.

    Raises
    ------
    InvalidInputError
    """
    seconds = properties.get("retention_seconds")
    if seconds is not None and not (seconds.isascii() and seconds.isdigit()):
        raise InvalidInputError(
            f"Cannot set property 'retention_seconds' of namespace {name!r} to {seconds!r}: expected "
            "whole seconds.",
            hint="Set it to a number such as '604800', which is a week.",
        )
    location = properties.get(LOCATION)
    if location is not None and not _can_be_location(location):
        raise InvalidInputError(
            f"Cannot set property 'location' of namespace {name!r} to {location[:80]!r}: expected a "
            "folder below the root of the store, of lower case letters, digits and ._-, at most "
            f"{_MOST_CHARS} characters, whose first part does not begin with _ and which is not "
            "'pages'.",
            hint="Set it to a folder such as 'sales/eu'.",
        )


def _can_be_location(location: str) -> bool:
    parts = location.split("/")
    return (
        is_key(location)
        and len(location) <= _MOST_CHARS
        and location != PAGES
        and not location.startswith("_")
        and not any(is_page_file(part) for part in parts)
    )


def location_of(namespace: TableDefinition | None) -> str:
    """Where page files of tables of the namespace are written; None for one that every store has."""
    return PAGES if namespace is None else namespace.properties.get(LOCATION, PAGES)


def check_disjoint(namespace: TableDefinition, others: Iterable[TableDefinition]) -> None:
    """Nothing, if the location of the namespace is neither in that of another one nor around it.

    Raises
    ------
    InvalidInputError
        Names both.
    """
    mine = f"{namespace.properties[LOCATION]}/"
    for other in others:
        theirs = f"{other.properties.get(LOCATION, PAGES)}/"
        apart = not (mine.startswith(theirs) or theirs.startswith(mine))
        if other.name != namespace.name and LOCATION in other.properties and not apart:
            raise InvalidInputError(
                f"Cannot set property 'location' of namespace {namespace.name!r} to {mine[:-1]!r}: it "
                f"is not apart from {theirs[:-1]!r}, that of {other.name!r}.",
                hint=f"Choose a folder beside {theirs[:-1]!r}, neither in it nor around it.",
            )


def moved_to_namespace(definition: TableDefinition, namespace_id: int, namespace: str) -> TableDefinition:
    """Move a table to another namespace. Its id, and so its pages, stay."""
    told = None if namespace_id in BUILT_IN.values() else namespace
    return replace(
        definition, namespace_id=namespace_id, schema=with_fact(definition.schema, NAMESPACE_KEY, told)
    )
