"""Filters: what callers may write, and which pages statistics rule out. Pure.

A filter is one of three things:

- SQL text, such as ``"distance > 4900 and carrier in ('UA', 'AA')"``; see `sql_filter`;
- a `pyarrow.compute.Expression`;
- a list of ``(column, operator, value)``, all of which must hold, or a list of such lists, one of which must
  hold: the convention of `pyarrow.parquet`.

Each is tested exactly, by Arrow. Beside that it is turned into a tree of conditions that statistics
understand (`filter_tree`), as far as it can be, and the tree is resolved: names become field ids, by which
statistics are found. Names in text and in lists are found as `spark_pages.catalog.identifiers` says; those of
an Arrow expression are exact, as they are to Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.catalog.identifiers import VisibleTable, column_of
from spark_pages.errors import DamageError, InvalidInputError, SparkPagesError
from spark_pages.io.stats.bounds import all_nan, comparable, decode_bounds, has_nan, plain_type
from spark_pages.tables.filtering.asked_values import exact_values, with_nanoseconds
from spark_pages.tables.filtering.expression_tree import expression_parts
from spark_pages.tables.filtering.filter_tree import OPERATORS, AllOf, AnyOf, Condition, Tree, resolved
from spark_pages.tables.filtering.matching import passing, tested_kind

Filter: TypeAlias = Any

_MOST_HULLS = 64
"""Lists of more values are compared with statistics as so many ranges."""


@dataclass(frozen=True, eq=False, slots=True)
class ParsedFilter:
    """A filter, ready to use.

    Attributes
    ----------
    expression
        The exact test.
    columns
        Columns that it reads, or None where an expression does not tell.
    tree
        What statistics can use of it; resolved, where the table is known.
    given
        The filter as the caller wrote it, for messages.
    """

    expression: pc.Expression
    columns: tuple[str, ...] | None
    tree: Tree
    given: Filter

    def passing(self, rows: pa.Table, table: str) -> pa.Table:
        """The rows that pass, in order.

        Parameters
        ----------
        table
            What the rows are of, for messages.

        Raises
        ------
        InvalidInputError
            If the filter fails on one of the rows, as a sum that overflows does.
        """
        try:
            return passing(rows, self.expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
            raise InvalidInputError(
                f"The filter {self.given!r} fails on a row of table {table!r}: {error}.",
                hint="Keep such rows from it, by `case when … then … end` in SQL, or cast to a type that "
                "holds the result.",
            ) from error


def parse_filter(
    given: Filter | None, schema: pa.Schema | None = None, table: VisibleTable | None = None
) -> ParsedFilter | None:
    """What a caller wrote, checked.

    Parameters
    ----------
    schema
        The columns that there are; SQL text needs it, because a word in quotes may be a date.
    table
        The table of these columns, by whose name SQL text may call them.

    Raises
    ------
    ColumnNotFoundError
        If it names a column that the table does not have.
    InvalidInputError
        If it is no filter; says which part.
    """
    if given is None:
        return None
    asked = given
    if isinstance(given, str):
        from spark_pages.tables.filtering.sql_filter import parse_sql  # noqa: PLC0415 - sqlglot takes 0.1 s to import

        given = parse_sql(given, schema or pa.schema([]), table)
    if isinstance(given, pc.Expression):
        parts = expression_parts(given)
        if table is None or not _are_exact(parts.columns, table):
            return ParsedFilter(given, parts.columns, parts.tree, asked)
        return ParsedFilter(given, parts.columns, resolved(parts.tree, table), asked)
    if not isinstance(given, Sequence) or not given:
        raise _not_a_filter(given)
    lists = [given] if isinstance(given[0], tuple) else given
    if not all(isinstance(each, Sequence) for each in lists):
        raise _not_a_filter(given)
    try:
        alternatives = tuple(tuple(_condition(item, table) for item in conditions) for conditions in lists)
        if not all(alternatives):
            raise _not_a_filter(given)
        kinds: dict[str, pa.DataType] = {}
        if schema is not None:
            kinds = {name: tested_kind(schema.field(name).type) for name in _named(alternatives, schema)}
            alternatives = tuple(
                tuple(c.fitted(kinds[c.column]) if c.column in kinds else c for c in each)
                for each in alternatives
            )
        expression = reduce(
            or_, (reduce(and_, (c.expression(kinds.get(c.column)) for c in each)) for each in alternatives)
        )
    except SparkPagesError:
        raise  # also a ValueError
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"The filter {given!r} has a value that Arrow cannot hold: {error}."
        ) from error
    columns = tuple(dict.fromkeys(c.column for each in alternatives for c in each))
    return ParsedFilter(expression, columns, AnyOf(tuple(map(AllOf, alternatives))), asked)


def _named(alternatives: Iterable[Iterable[Condition]], schema: pa.Schema) -> set[str]:
    return {c.column for each in alternatives for c in each}.intersection(schema.names)


def _are_exact(columns: Sequence[str] | None, table: VisibleTable) -> bool:
    """Whether the table has columns spelled so: what else an expression names is refused as Arrow would."""
    known = {column.name for column in table.columns}
    return known.issuperset(columns or ())


def _condition(item: Any, table: VisibleTable | None) -> Condition:
    if not isinstance(item, tuple) or not 2 <= len(item) <= 3 or not isinstance(item[0], str):
        raise _not_a_filter(item)
    operator = str(item[1]).lower().replace("=", "==", 1) if item[1] == "=" else str(item[1]).lower()
    if operator not in OPERATORS:
        raise InvalidInputError(
            f"{item[1]!r} is not an operator of a filter: expected one of {', '.join(OPERATORS)}."
        )
    value = item[2] if len(item) == 3 else None
    if operator in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise InvalidInputError(
                f"{item!r}: expected a list of values after {operator!r}, found {value!r}."
            )
        value = with_nanoseconds(list(value))
    else:
        (value,) = with_nanoseconds([value])
    if table is None:
        return Condition(item[0], operator, value)
    column = column_of(table, item[0])
    return Condition(column.name, operator, value, column.field)


def _not_a_filter(given: Any) -> InvalidInputError:
    return InvalidInputError(
        f"{given!r} is not a filter: expected SQL text, a list of (column, operator, value), a list of such "
        f"lists, or a pyarrow.compute.Expression."
    )


def may_match(
    condition: Condition, kind: pa.DataType, stats: pa.RecordBatch, entries: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which pages may hold a row that meets the condition.

    Parameters
    ----------
    kind
        Type of the column.
    stats
        Statistics of the pages.
    entries : int64, shape (n_pages,)
        Rows of each page.

    Returns
    -------
    numpy.ndarray of bool, shape (n_pages,)
        False only where statistics prove that no row of the page meets the condition.
    """
    nulls = stats.column("null_count")
    known = nulls.is_valid().to_numpy(zero_copy_only=False)
    null_count = nulls.fill_null(0).to_numpy()
    if condition.operator == "is null":
        some_null: NDArray[np.bool_] = ~known | (null_count > 0)
        return some_null
    some_value: NDArray[np.bool_] = ~known | (null_count < entries)
    if condition.operator == "is not null":
        return some_value
    if condition.operator == "not in" or (
        condition.operator == "in" and any(value is None for value in condition.value)
    ):
        return np.ones(len(entries), dtype=bool)  # null is a member like any other
    values = condition.value if condition.operator == "in" else [condition.value]
    if not values:
        return np.zeros(len(entries), dtype=bool)
    try:
        given = comparable(exact_values(values, plain_type(kind)))
        low, high = (comparable(decode_bounds(kind, stats.column(name))) for name in ("min", "max"))
        if condition.operator in ("==", "in"):
            tests = [_overlap(low, high, *hull) for hull in _hulls(given)]
        else:
            tests = [_test(condition.operator, low, high, stats.column("exact"), given[0])]
    except (pa.ArrowException, DamageError, OverflowError, TypeError, ValueError):
        return some_value
    matching = reduce(or_, tests)
    passes_nan = condition.or_nan or condition.operator == "!="
    matching = matching | has_nan(kind, stats) if passes_nan else matching & ~all_nan(kind, stats)
    return some_value & matching


def _hulls(given: pa.Array) -> Iterator[tuple[pa.Scalar, pa.Scalar]]:
    """Each value as a range, or neighbours together where there are many."""
    if len(given) == 1:
        yield given[0], given[0]
        return
    given = given.sort()
    step = -(-len(given) // _MOST_HULLS)
    for start in range(0, len(given), step):
        yield given[start], given[min(start + step, len(given)) - 1]


def _overlap(low: pa.Array, high: pa.Array, first: pa.Scalar, last: pa.Scalar) -> NDArray[np.bool_]:
    """Which pages may hold a value of [first, last]."""
    return _flags(pc.and_kleene(pc.less_equal(low, last), pc.greater_equal(high, first)))


def _test(
    operator: str, low: pa.Array, high: pa.Array, exact: pa.Array, bound: pa.Scalar
) -> NDArray[np.bool_]:
    match operator:
        case "<":
            return _flags(pc.less(low, bound))
        case "<=":
            return _flags(pc.less_equal(low, bound))
        case ">":
            return _flags(pc.greater(high, bound))
        case ">=":
            return _flags(pc.greater_equal(high, bound))
        case _:
            single = pc.and_(pc.equal(low, bound), pc.equal(high, bound))
            return _flags(pc.invert(pc.and_(single, exact)))


def _flags(result: pa.Array) -> NDArray[np.bool_]:
    """Where there is no bound, nothing is proved."""
    answer: NDArray[np.bool_] = result.fill_null(True).to_numpy(zero_copy_only=False)
    return answer
