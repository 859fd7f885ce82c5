"""What statistics can use of a filter: conditions on single columns, joined by and and or. Pure.

A tree never says more than its filter: every row that passes the filter meets the tree. What cannot be said
as a condition is `ANY_ROW`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow.compute as pc

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value."""

    column: str
    operator: str
    value: Any = None

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
