"""What a query needs to know of tables, and how it asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from spark_pages.catalog.identifiers import LogicalFieldId
from spark_pages.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class AsOf:
    """``VERSION AS OF`` or ``TIMESTAMP AS OF`` behind a table; one of the three is given.

    Attributes
    ----------
    version
        A version, written as a number.
    tag
        A tag, written in quotes behind ``VERSION AS OF``.
    timestamp
        A time, ISO 8601; UTC if it has no zone.
    """

    version: int | None = None
    tag: str | None = None
    timestamp: str | None = None


class Relation(Protocol):
    """A table at one version."""

    @property
    def name(self) -> str:
        """Its name without the namespace."""
        ...

    @property
    def namespace(self) -> str:
        """The name of its namespace."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def fields(self) -> Mapping[str, LogicalFieldId]:
        """Ids of its columns, by name."""
        ...

    @property
    def hidden(self) -> frozenset[str]:
        """The columns that a query may name and no star stands for."""
        ...

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        ...

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Rows that pass the filter (an Arrow expression, or None), as a stream."""
        ...

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Those of some rows that pass a filter, which is an Arrow expression of any size."""
        ...


class Relations(Protocol):
    """The tables that a statement may name."""

    def find(self, parts: Sequence[str], as_of: AsOf | None) -> Relation:
        """Find the table of a dotted name.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, InvalidInputError
            If there is none, or several that differ by case only.
        """
        ...


def as_of_of(table: exp.Table) -> AsOf | None:
    """Return the version or time that follows a table, if there is one.

    Raises
    ------
    InvalidInputError
        If it is not a number, a tag in quotes or a time in quotes.
    """
    given = [table.args[key] for key in ("at", "version", "when") if table.args.get(key) is not None]
    if not given:
        return None
    asked, *others = given
    if isinstance(asked, exp.Version):
        kind, exact = str(asked.this).upper(), asked.args.get("kind") == "AS OF" and not others
    else:
        kind, exact = str(asked.args["kind"]).upper(), asked.this == "AT" and not others
    value = asked.args.get("expression")
    if isinstance(value, exp.Cast):  # timestamp '2024-01-01'
        value = value.this
    if exact and isinstance(value, exp.Literal):
        if kind == "TIMESTAMP" and value.is_string:
            return AsOf(timestamp=value.name)
        if kind == "VERSION" and value.is_string:
            return AsOf(tag=value.name)
        if kind == "VERSION" and value.name.isdigit():
            return AsOf(version=int(value.name))
    raise InvalidInputError(
        f"Cannot read the version of {table.name!r}: it is in a form that is not known.",
        hint="Write one of VERSION AS OF 7, VERSION AS OF 'a tag', TIMESTAMP AS OF '2024-01-31T18:00:00', "
        f"{table.name}@v7 and {table.name}@20240131180000000.",
    )
