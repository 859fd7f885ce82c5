"""Filters: what callers may write, and what becomes of it. Pure.

A filter is one of four things:

- SQL text, such as ``"distance > 4900 and carrier in ('UA', 'AA')"``; see `sql_filter`;
- a `pyarrow.compute.Expression`;
- a `polars.Expr`; see `polars_filter`;
- one ``(column, operator, value)``, a list of them, all of which must hold, or a list of such lists, one of
  which must hold: the convention of `pyarrow.parquet`.

Each is tested exactly, by Arrow. Beside that it is turned into a tree of conditions that statistics
understand (`filter_tree`), as far as it can be, and the tree is resolved: names become field ids, by which
statistics are found. Names in text and in lists are found as `spark_pages.catalog.identifiers` says; those of
an Arrow expression are exact, as they are to Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import and_, or_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import check_nesting, shortened
from spark_pages.catalog.identifiers import VisibleTable, column_of
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.query.predicates.evaluate import passing, tested_kind
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.predicates.large_predicates import LARGEST, JoinedPredicate, Predicate, balanced
from spark_pages.query.predicates.literals import with_nanoseconds
from spark_pages.query.predicates.polars_filter import is_polars, polars_condition
from spark_pages.query.predicates.predicate import OPERATORS, Condition, Tree, all_of, any_of, resolved

Filter: TypeAlias = Any

_LONGEST_SHOWN = 1000
"""Characters of a filter in a message."""


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
    predicate
        The exact test, in parts of a size that Arrow can evaluate.
    shown
        The filter as the caller wrote it, cut where it is long, for messages.
    """

    expression: pc.Expression
    columns: tuple[str, ...] | None
    tree: Tree
    predicate: Predicate
    shown: str

    def passing(self, rows: pa.Table, table: str) -> pa.Table:
        """Return the rows that pass, in order.

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
            return passing(rows, self.predicate)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
            raise InvalidInputError(
                f"Cannot evaluate the filter {self.shown}: it fails on a row of table {table!r}: {error}.",
                hint="Exclude such rows, by `CASE WHEN … THEN … END` in SQL, or cast to a type that holds "
                "the result.",
            ) from error


def parse_filter(
    given: Filter | None, schema: pa.Schema | None = None, table: VisibleTable | None = None
) -> ParsedFilter | None:
    """Parse and validate the filter of a caller.

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
    check_nesting(given, "filter")
    asked = given
    if isinstance(given, str):
        from spark_pages.query.predicates.sql_filter import parse_sql  # noqa: PLC0415 - sqlglot takes 0.1 s to import

        given = parse_sql(given, schema or pa.schema([]), table)
    elif is_polars(given):
        given = polars_condition(given, schema or pa.schema([]))
    if isinstance(given, pc.Expression):
        parts = expression_parts(given)
        tree = parts.tree
        if table is not None and _are_exact(parts.columns, table):
            tree = resolved(tree, table)
        return ParsedFilter(given, parts.columns, tree, parts.predicate, _shown(asked, parts.predicate))
    if isinstance(given, tuple) and given and isinstance(given[0], str):
        given = [given]
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
                tuple(c.fitted_to(kinds[c.column]) if c.column in kinds else c for c in each)
                for each in alternatives
            )
        expression = balanced(
            [balanced([c.expression(kinds.get(c.column)) for c in each], and_) for each in alternatives], or_
        )
    except SparkPagesError:
        raise  # also a ValueError
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"Cannot use the filter {shortened(given)}: it has a value that Arrow cannot hold: {error}.",
            hint="Use values of Python, numpy or pyarrow of one type, such as ('n', '=', 1).",
        ) from error
    columns = tuple(dict.fromkeys(c.column for each in alternatives for c in each))
    small = sum(map(len, alternatives)) <= LARGEST
    predicate = expression if small else expression_parts(expression).predicate
    return ParsedFilter(expression, columns, any_of(map(all_of, alternatives)), predicate, _shown(asked))


def _shown(given: Filter, test: Predicate | None = None) -> str:
    if isinstance(given, str) and len(given) > _LONGEST_SHOWN:
        return f"{given[:_LONGEST_SHOWN]!r}… ({len(given):,} characters)"
    if isinstance(test, JoinedPredicate):
        return "(an Arrow expression of many conditions)"  # which Arrow writes by recursion
    if isinstance(given, Sequence) and len(given) > LARGEST:
        return f"[{shortened(given[0])}, … {len(given) - 1:,} more]"
    try:
        return repr(given)
    except Exception:  # noqa: BLE001 - of a class of the caller, or a number of too many digits
        return shortened(given)


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
            f"Cannot use the operator {shortened(item[1])} in a filter: it is not known.",
            hint=f"Use one of {', '.join(OPERATORS)}.",
        )
    value = item[2] if len(item) == 3 else None
    if operator in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise InvalidInputError(
                f"Cannot use the condition {shortened(item)}: expected a list of values after "
                f"{operator!r}, found {shortened(value)}.",
                hint=f"Write the values as a list, such as ({shortened(item[0])}, {operator!r}, [1, 2]).",
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
        f"Cannot use {shortened(given)} as a filter: expected SQL text, a list of (column, operator, "
        "value), a list of such lists, or a pyarrow.compute.Expression.",
        hint="Write `filter` as \"n > 1\" or [('n', '>', 1)].",
    )
