"""Names of columns inside of a statement: which table, which column, which id. Pure.

Seed 002, "Identifier Resolution". A name goes through five stages:

1. text, such as ``f.distance > 10``;
2. an expression with names, as sqlglot parses it;
3. an expression with field ids: `IdentifierContext.column` tells which column of which visible table it is;
4. `LogicalFieldId`: namespace, table and field;
5. `PhysicalKey`: table and field, the key of a column chain. The namespace is not in it, so that a table that
   moves to another namespace keeps its pages.

Names are compared as `spark_pages.model.names` has it, quoted or not; quotes keep blanks and
signs. Columns of one table may differ by case only here, which DuckDB does not know. So of these the one that
is spelled exactly so is meant, and a name that is spelled like none of them is ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

import pyarrow as pa

from spark_pages.arguments import as_str
from spark_pages.errors import ColumnNotFoundError
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.names import ambiguous_name, fold_name, match_name


class PhysicalKey(NamedTuple):
    """The key of a column chain: equal to the pair by which the log knows it."""

    table_id: TableId
    field_id: FieldId


@dataclass(frozen=True, slots=True)
class LogicalFieldId:
    """A column of the catalog.

    Attributes
    ----------
    namespace_id, table_id, field_id
        Where it is found by name; none of the three is used twice.
    """

    namespace_id: int
    table_id: TableId
    field_id: FieldId

    @property
    def physical(self) -> PhysicalKey:
        """What holds its pages."""
        return PhysicalKey(self.table_id, self.field_id)


@dataclass(frozen=True, slots=True)
class VisibleColumn:
    """A column that names may refer to.

    Attributes
    ----------
    name
        What users call it.
    label
        What the statement calls it once it is resolved; no two of a table differ by case only.
    field, type
        Its id in the catalog, and its type there; None where it is computed.
    hidden
        Whether it is found by its name alone, and no star stands for it.
    """

    name: str
    label: str
    field: LogicalFieldId | None = None
    type: pa.DataType | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """A table, subquery or common table expression that names may refer to.

    Attributes
    ----------
    alias
        What users call it here.
    label
        What the resolved statement calls it; no two of a statement are equal.
    columns
        Its columns, in order.
    namespace
        Its namespace, where it goes by its own name.
    """

    alias: str
    label: str
    columns: tuple[VisibleColumn, ...]
    namespace: str | None = None

    @property
    def display_name(self) -> str:
        """The name as one would type it."""
        plain = self.namespace in (None, "default")
        return self.alias if plain else f"{self.namespace}.{self.alias}"


Place = tuple[VisibleTable, VisibleColumn]
"""A column of a table."""


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column that joined tables share by ``USING``: its name alone is not ambiguous.

    Attributes
    ----------
    places
        Where its value is; of several the first that is not null.
    """

    name: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a name with dots means.

    Attributes
    ----------
    places
        The table and column; several for a column that a full join shares, none for an alias.
    row
        The table, where the name is that of a whole row.
    alias
        What stands before FROM under that name.
    path
        Names of fields inside of the column.
    depth
        0 for a table of the query itself, 1 for one of the query around it, and so on: then the reference is
        correlated.
    """

    places: tuple[Place, ...] = ()
    row: VisibleTable | None = None
    alias: VisibleColumn | None = None
    path: tuple[str, ...] = ()
    depth: int = 0


@dataclass(frozen=True, slots=True)
class IdentifierContext:
    """What can be seen from inside of one query.

    Attributes
    ----------
    tables
        What stands behind FROM, in order.
    outer
        What can be seen from the query around it.
    merged
        Columns that joined tables share.
    aliases
        What has a name before FROM. Columns come first; only a whole item of ``ORDER BY`` asks for these
        first.
    """

    tables: tuple[VisibleTable, ...] = ()
    outer: IdentifierContext | None = None
    merged: tuple[MergedColumn, ...] = ()
    aliases: tuple[VisibleColumn, ...] = ()

    def column(self, parts: Sequence[str]) -> Resolved:
        """Resolve a dotted name: ``namespace.table.column.field``, in which all but the column may be absent.

        Raises
        ------
        ColumnNotFoundError
            If there is none in this query nor around it; suggests names that look like it.
        InvalidInputError
            If several are meant; names them.
        """
        context: IdentifierContext | None = self
        depth = 0
        while context is not None:
            found = context._resolve_at(parts, depth)
            if found is None and depth == 0:
                found = self.alias(parts)
            if found is not None:
                return found
            context, depth = context.outer, depth + 1
        raise self._unknown(parts)

    def alias(self, parts: Sequence[str]) -> Resolved | None:
        """Resolve an alias that is defined before FROM, or return None.

        Raises
        ------
        InvalidInputError
            If several different things have it.
        """
        found = match(parts[0], self.aliases)
        if len(found) > 1 and (found[0].field is None or len({each.field for each in found}) > 1):
            raise ambiguous_name("name", parts[0], [each.name for each in found])
        return Resolved(alias=found[0], path=tuple(parts[1:])) if found else None

    def star_table(self, parts: Sequence[str]) -> VisibleTable:
        """Resolve the table before ``.*``.

        Raises
        ------
        ColumnNotFoundError, InvalidInputError
            If there is no such table, or several.
        """
        found = self._tables_called(parts)
        if len(found) > 1:
            raise ambiguous_name("table", ".".join(parts), [table.display_name for table in found])
        if not found:
            raise self._unknown([*parts, "*"])
        return found[0]

    def _resolve_at(self, parts: Sequence[str], depth: int) -> Resolved | None:
        """Resolve a name, tables first: as in DuckDB, ``a.b`` is column b of table a, if both exist."""
        for taken in (2, 1):
            if len(parts) <= taken:
                continue
            tables = self._tables_called(parts[:taken])
            found = [(table, column) for table in tables for column in _named(table, parts[taken])]
            if len(found) > 1:
                raise ambiguous_name(
                    "column", ".".join(parts), [f"{t.display_name}.{c.name}" for t, c in found]
                )
            if found:
                return Resolved((found[0],), path=tuple(parts[taken + 1 :]), depth=depth)
        return self._bare(parts, depth)

    def _bare(self, parts: Sequence[str], depth: int) -> Resolved | None:
        path = tuple(parts[1:])
        merged = [each for each in self.merged if fold_name(each.name) == fold_name(parts[0])]
        if merged:
            return Resolved(merged[0].places, path=path, depth=depth)
        found = [(table, column) for table in self.tables for column in _named(table, parts[0])]
        if len(found) > 1:
            raise ambiguous_name("column", parts[0], [f"{t.display_name}.{c.name}" for t, c in found])
        if found:
            return Resolved((found[0],), path=path, depth=depth)
        rows = self._tables_called(parts) if len(parts) <= 2 else ()
        return Resolved(row=rows[0], depth=depth) if len(rows) == 1 else None

    def _tables_called(self, parts: Sequence[str]) -> Sequence[VisibleTable]:
        *qualifier, name = parts
        named = [
            table
            for table in self.tables
            if not qualifier
            or (table.namespace is not None and fold_name(table.namespace) == fold_name(qualifier[0]))
        ]
        exact = [table for table in named if table.alias == name]
        return exact or [table for table in named if fold_name(table.alias) == fold_name(name)]

    def _unknown(self, parts: Sequence[str]) -> ColumnNotFoundError:
        name = ".".join(parts)
        seen: list[VisibleTable] = []
        context: IdentifierContext | None = self
        while context is not None:
            seen += context.tables
            context = context.outer
        visible = [(table, column) for table in seen for column in table.columns if not column.hidden]
        short = [column.name for _, column in visible]
        long = [f"{table.alias}.{column.name}" for table, column in visible]
        known = list(dict.fromkeys(long if len(parts) > 1 else short))
        close = suggest(name, known)
        if not seen:
            hint = "Add a FROM clause: without one, there are no columns to name."
        else:
            listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
            hint = close or f"There are {listed}."
        shown = ", ".join(table.display_name for table in seen)
        return ColumnNotFoundError(
            f"Cannot find column {name!r}: {shown or 'a statement without FROM'} has none of that name.",
            hint=hint,
            column=name,
        )


def column_of(table: VisibleTable, name: str) -> VisibleColumn:
    """Resolve a column of a table by its name alone.

    Raises
    ------
    ColumnNotFoundError
        If there is none; suggests names that look like it.
    InvalidInputError
        If several are meant.
    """
    seen = IdentifierContext((table,))
    found = seen.column([as_str(name, "the name of a column")])
    if not found.places:
        raise seen._unknown([name])
    return found.places[0][1]


def match(name: str, known: Iterable[VisibleColumn]) -> list[VisibleColumn]:
    """Return the columns that a name may mean: exact spellings, else those that differ in case only."""
    columns = list(known)
    exact = [column for column in columns if column.name == name]
    return exact or [column for column in columns if fold_name(column.name) == fold_name(name)]


def fields_called(path: Sequence[str], column: str, kind: pa.DataType) -> list[str]:
    """Return the exact names of nested fields, compared without regard to case.

    Raises
    ------
    ColumnNotFoundError
        If there is no such field.
    InvalidInputError
        If several are meant.
    """
    found: list[str] = []
    for part in path:
        inside = _value_type(kind)
        names = (
            [inside.field(index).name for index in range(inside.num_fields)] if _has_fields(inside) else []
        )
        name = match_name(part, names, "field")
        if name is None:
            told = ".".join([column, *found])
            hint = suggest(part, names) or (
                f"It has {', '.join(names)}." if names else f"It is of type {kind}."
            )
            raise ColumnNotFoundError(
                f"Cannot find field {part!r} in {told!r}: it has none of that name.", hint=hint, column=column
            )
        kind = inside.field(names.index(name)).type
        found.append(name)
    return found


def _value_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type without run-end encoding, dictionaries and extensions."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _has_fields(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or pa.types.is_union(kind))


def suggest(name: str, known: Sequence[str]) -> str | None:
    """Return a question that offers similar names, if there are any."""
    by_fold = {fold_name(each): each for each in known}
    close = get_close_matches(fold_name(name), list(by_fold), n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(repr(by_fold[each]) for each in close)}?" if close else None


def _named(table: VisibleTable, name: str) -> list[VisibleColumn]:
    return match(name, table.columns)
