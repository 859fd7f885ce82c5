"""What statistics can use of a filter: conditions on single columns, joined by and and or. Pure.

A tree never says more than its filter: every row that passes the filter meets the tree. What cannot be said
as a condition is `ANY_ROW`.

`resolved` takes a tree from names to field ids: statistics are found by the `PhysicalKey` of a column, never
by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow.compute as pc

from spark_pages.catalog.identifiers import LogicalFieldId, PhysicalKey, VisibleTable, column_of

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value.

    Attributes
    ----------
    column, operator, value
        What is compared; the operator is one of `OPERATORS`.
    field
        The column in the catalog; None before the tree is `resolved`.
    """

    column: str
    operator: str
    value: Any = None
    field: LogicalFieldId | None = None

    @property
    def key(self) -> PhysicalKey:
        """The key of the chain whose statistics tell of the column."""
        assert self.field is not None, f"{self.column!r} has not been resolved"
        return self.field.physical

    def expression(self) -> pc.Expression:
        """The same as an Arrow expression."""
        column = pc.field(self.column)
        match self.operator:
            case "in":
                return _is_in(column, self.value)
            case "not in":
                return ~_is_in(column, self.value)
            case "is null":
                return column.is_null()
            case "is not null":
                return column.is_valid()
            case "==":
                return column == self.value
            case "!=":
                return column != self.value
            case "<":
                return column < self.value
            case "<=":
                return column <= self.value
            case ">":
                return column > self.value
            case _:
                return column >= self.value


def _is_in(column: pc.Expression, values: Sequence[Any]) -> pc.Expression:
    """Membership, with null as a member like any other; Arrow alone cannot type a list without values."""
    members = [value for value in values if value is not None]
    found = column.isin(members) if members else pc.scalar(False)
    return found | column.is_null() if len(members) < len(values) else found


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One part holds at least."""

    parts: tuple[Tree, ...]


Tree: TypeAlias = Condition | AllOf | AnyOf

ANY_ROW = AllOf(())
NO_ROW = AnyOf(())


def beginning_with(column: str, prefix: str) -> tuple[Condition, ...]:
    """What text that begins so meets: all of these."""
    if not prefix:
        return (Condition(column, "is not null"),)
    least = Condition(column, ">=", prefix)
    after = ord(prefix[-1]) + 1
    if after in _SURROGATES or after > 0x10FFFF:
        return (least,)
    return (least, Condition(column, "<", prefix[:-1] + chr(after)))


def resolved(tree: Tree, table: VisibleTable) -> Tree:
    """The tree with the field id of each column, and its name as the table spells it.

    Raises
    ------
    ColumnNotFoundError
        If there is no such column.
    InvalidInputError
        If several are meant.
    """
    match tree:
        case Condition():
            column = column_of(table, tree.column)
            return replace(tree, column=column.name, field=column.field)
        case AllOf(parts):
            return AllOf(tuple(resolved(part, table) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(resolved(part, table) for part in parts))
