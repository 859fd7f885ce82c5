"""What statistics can use of a filter: conditions on single columns, joined by and and or. Pure.

A tree never says more than its filter: every row that passes the filter meets the tree. What cannot be said
as a condition is `ANY_ROW`.

`resolved` takes a tree from names to field ids: statistics are found by the `PhysicalKey` of a column, never
by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.catalog.identifiers import LogicalFieldId, PhysicalKey, VisibleTable, column_of
from spark_pages.query.predicates.numeric import (
    fit_comparison,
    fit_members,
    is_number,
    literal_type,
    number_of,
    scalar_of,
)

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
    or_nan
        Whether NaN meets it too, as it does what is not less than a value.
    """

    column: str
    operator: str
    value: Any = None
    field: LogicalFieldId | None = None
    or_nan: bool = False

    @property
    def key(self) -> PhysicalKey:
        """The key of the chain whose statistics tell of the column."""
        assert self.field is not None, f"{self.column!r} has not been resolved"
        return self.field.physical

    def fitted_to(self, kind: pa.DataType) -> Condition:
        """Return the condition that holds for the same values of a column of this type."""
        if self.operator in ("in", "not in"):
            return replace(self, value=fit_members(self.value, kind))
        if self.operator in ("is null", "is not null"):
            return self
        operator, value = fit_comparison(self.operator, self.value, kind)
        return replace(self, operator=operator, value=value)

    def expression(self, kind: pa.DataType | None = None) -> pc.Expression:
        """Convert the condition to an Arrow expression.

        Parameters
        ----------
        kind
            Type of the column that it has been `fitted_to`; None if it has not.
        """
        column = pc.field(self.column)
        match self.operator:
            case "in":
                return _is_in(column, self.value, kind)
            case "not in":
                return ~_is_in(column, self.value, kind)
            case "is null":
                return column.is_null()
            case "is not null":
                return column.is_valid()
        value = self.value if kind is None else scalar_of(self.value, kind)
        return compared(column, self.operator, value)


def compared(left: pc.Expression, operator: str, right: Any) -> pc.Expression:
    """Both sides with one of ``== != < <= > >=`` between them."""
    match operator:
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _is_in(column: pc.Expression, values: Sequence[Any], kind: pa.DataType | None) -> pc.Expression:
    """Membership, with null as a member like any other; Arrow alone cannot type a list without values."""
    members: Any = [value for value in values if value is not None]
    beside_null = len(members) < len(values)
    if kind is not None and is_number(kind) and all(number_of(each) is not None for each in members):
        if pa.types.is_floating(kind) and any(number_of(each) == 0 for each in members):
            members += [0.0, -0.0]  # to Arrow's list these are two, and to its comparison one
        members = pa.array(members, literal_type(kind))
    found = column.isin(members) if len(members) else pc.scalar(False)
    return found | column.is_null() if beside_null else found


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

_MOST_CONDITIONS = 2048
"""Conditions that are compared with statistics; testing the rows is cheaper than comparing more of them."""


def all_of(parts: Iterable[Tree]) -> Tree:
    """All parts hold; of very many, those that statistics are asked about."""
    flat = [each for part in parts for each in (part.parts if isinstance(part, AllOf) else (part,))]
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat[:_MOST_CONDITIONS]))


def any_of(parts: Iterable[Tree]) -> Tree:
    """One part holds at least; values that one column may be equal to are one condition."""
    flat = [each for part in parts for each in (part.parts if isinstance(part, AnyOf) else (part,))]
    found = _with_lists(flat)
    if len(found) > _MOST_CONDITIONS:
        return ANY_ROW
    return found[0] if len(found) == 1 else AnyOf(tuple(found))


def _with_lists(parts: list[Tree]) -> list[Tree]:
    """Merge comparisons of a column by ``==`` into one list for each type of value."""
    listed: dict[tuple[str, LogicalFieldId | None, Any], list[Any]] = {}
    others: list[Tree] = []
    for part in parts:
        if isinstance(part, Condition) and part.operator == "==" and _is_listable(part.value):
            kind = part.value.type if isinstance(part.value, pa.Scalar) else type(part.value)
            listed.setdefault((part.column, part.field, kind), []).append(part.value)
        else:
            others.append(part)
    lists = [
        Condition(column, "==", values[0], field)
        if len(values) == 1
        else Condition(column, "in", values, field)
        for (column, field, _), values in listed.items()
    ]
    return [*lists, *others]


def _is_listable(value: Any) -> bool:
    """Whether a value is equal to itself, which null and NaN are not."""
    if isinstance(value, pa.Scalar):
        value = value.as_py() if pa.types.is_floating(value.type) or not value.is_valid else True
    single = np.isscalar(value) or not hasattr(value, "__len__")
    return value is not None and bool(single) and bool(value == value)  # noqa: PLR0124


def beginning_with(column: str, prefix: str) -> tuple[Condition, ...]:
    """Return conditions that text with this prefix meets. They are unknown for null, as `starts_with` is."""
    least = Condition(column, ">=", prefix)
    if not prefix:
        return (least,)
    after = ord(prefix[-1]) + 1
    if after in _SURROGATES or after > 0x10FFFF:
        return (least,)
    return (least, Condition(column, "<", prefix[:-1] + chr(after)))


def resolved(tree: Tree, table: VisibleTable) -> Tree:
    """Resolve the columns of a tree to field ids and exact names.

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
