"""Statements and expressions that change rows: DuckDB computes, and the transaction stages.

A statement becomes one query that selects row numbers and new values, so its conditions mean what they mean
in a query, and pages are pruned as for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from spark_pages.arrow.columns import number_column
from spark_pages.arrow.nested import null_column
from spark_pages.catalog.identifiers import suggest
from spark_pages.errors import ColumnNotFoundError, InvalidInputError, SchemaMismatchError
from spark_pages.format.inference import LossError
from spark_pages.format.values import convert, integers_as_decimal
from spark_pages.model.names import match_name
from spark_pages.query.live_rows import row_column
from spark_pages.query.predicates.literals import times_of_text
from spark_pages.query.predicates.parsing import parse, shown, written
from spark_pages.query.scan import ROW
from spark_pages.query.table import Table
from spark_pages.sql.engine import run_query
from spark_pages.sql.parameters import GivenParameters
from spark_pages.sql.resolver import resolve
from spark_pages.sql.sources import quoted
from spark_pages.sql.statements import Delete, Update
from spark_pages.sql.table_relations import (
    OneRelation,
    RowsRelation,
    TransactionRelations,
    hides_row_numbers,
)
from spark_pages.transaction.assignments import ReadRows, check_aligned
from spark_pages.transaction.transaction import Transaction

_VALUE = "value {}"
"""Names of computed columns in a query."""


def compute_expressions(table: Table, read: ReadRows, expressions: Mapping[str, str]) -> pa.Table:
    """Compute expressions of SQL over some rows of a table; see `Computation.compute`."""
    _check_numbered(table, "compute values of")
    trees = [_parsed(text) for text in expressions.values()]
    source = exp.Table(this=quoted(table.definition.name))
    tree = _query(source, None, None, [*_numbered(source, trees)])
    text = ", ".join(expressions.values())
    found = _in_order(run_query(resolve(tree, text, OneRelation(RowsRelation(table, read)))))
    return _fitted(table, list(expressions), found)


def _parsed(text: str) -> exp.Expr:
    """Parse one expression without subqueries and window functions."""
    tree = parse(f"SELECT {text}")
    given = {key for key, value in tree.args.items() if value}
    if not isinstance(tree, exp.Select) or given != {"expressions"} or len(tree.expressions) != 1:
        raise InvalidInputError(
            f"Cannot use {shown(text)} as an expression: expected one value for each row.",
            hint='Write an expression over columns of the table, such as sp.expr("price * 1.1").',
        )
    value: exp.Expr = tree.expressions[0]
    for kind, what in ((exp.Query, "a subquery"), (exp.Window, "a window function"), (exp.Alias, "a name")):
        if value.find(kind) is not None:
            raise InvalidInputError(
                f"Cannot use {shown(text)} as an expression: it has {what}.",
                hint="Write an expression over the columns of one row; SQL `UPDATE` takes subqueries.",
            )
    if isinstance(value, exp.Star) or value.find(exp.Star) is not None:
        raise InvalidInputError(
            f"Cannot use {shown(text)} as an expression: it has a star.",
            hint="Name the column, such as `n + 1`.",
        )
    return value


def _query(
    table: exp.Table, where: exp.Where | None, with_: exp.With | None, items: Sequence[exp.Expr]
) -> exp.Select:
    tree = exp.Select(expressions=list(items), from_=exp.From(this=table.copy()))
    for key, clause in (("where", where), ("with_", with_)):
        if clause is not None:
            tree.set(key, clause.copy())
    return tree


def _numbered(table: exp.Table, values: Sequence[exp.Expr]) -> Sequence[exp.Expr]:
    """Return items for the number of each row, and for some values of it."""
    number = exp.Column(this=quoted(ROW), table=quoted(table.alias_or_name))
    return [
        exp.Alias(this=number, alias=quoted(ROW)),
        *(
            exp.Alias(this=value.copy(), alias=quoted(_VALUE.format(index)))
            for index, value in enumerate(values)
        ),
    ]


def _in_order(found: pa.Table) -> pa.Table:
    """Return rows in the order of the first column, their numbers."""
    numbers = found.column(0).to_numpy()
    if (numbers[1:] > numbers[:-1]).all():
        return found
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    if (np.diff(numbers[order]) == 0).any():
        raise InvalidInputError(
            "Cannot change rows by these values: a row has several of them, as `unnest` gives.",
            hint="Write an expression with one value for each row, such as `list_sum(l)`.",
        )
    return found.take(number_column(order, pa.int64()))


def _check_numbered(table: Table, verb: str) -> None:
    if hides_row_numbers(table.schema):
        column = match_name(ROW, table.columns)
        raise InvalidInputError(
            f"Cannot {verb} table {table.name!r} by SQL: its column {column!r} hides the row numbers.",
            hint="Rename the column, or use `transaction.update_rows` and `transaction.delete`.",
        )


def _fitted(table: Table, names: Sequence[str], found: pa.Table) -> pa.Table:
    """Return computed values, behind the row numbers, in the types of their columns."""
    columns = {
        name: fitted(found.column(index), table.schema.field(name), table.name)
        for index, name in enumerate(names, 1)
    }
    return pa.table(columns)


def fitted(values: pa.ChunkedArray, field: pa.Field, table: str) -> pa.ChunkedArray:
    """Return values in the type of their column, which text stands for too.

    Raises
    ------
    SchemaMismatchError
        If the type cannot hold one of them.
    """
    try:
        if pa.types.is_null(values.type):
            return pa.chunked_array([null_column(field.type, len(values))])
        if pa.types.is_nested(field.type):  # where Arrow leaves out what the type lacks
            values = convert(values, field.type)
        if pa.types.is_time(field.type) and pa.types.is_string(values.type):
            values = times_of_text(values)
        found = integers_as_decimal(values, field.type).cast(field.type)
        _check_kept(values, found)
        return found
    except (LossError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"Cannot write values into column {field.name!r} of table {table!r}: it is of type "
            f"{field.type}, and values of type {values.type} do not fit: {error}",
            hint="Convert them in the statement: CAST(x AS …).",
        ) from error


def _check_kept(before: pa.ChunkedArray, after: pa.ChunkedArray) -> None:
    """Raise LossError if a cast has lost what Arrow does not check; numbers may become the nearest float."""
    given, wanted, types = before.type, after.type, pa.types
    if types.is_floating(wanted):
        lost = pc.and_(pc.is_inf(after), pc.is_finite(before.cast(pa.float64(), safe=False)))
    elif types.is_timestamp(given) and types.is_time(wanted):
        raise LossError("a time of day has no date.")
    elif (
        (types.is_timestamp(given) and types.is_date(wanted))
        or (types.is_floating(given) and types.is_decimal(wanted))
        or (types.is_boolean(wanted) and not types.is_string(given))
    ):
        lost = pc.not_equal(after.cast(given, safe=False), before)
    else:
        return
    index = pc.index(lost, True).as_py()
    if index >= 0:
        raise LossError(f"{before[index].as_py()!r} would become {after[index].as_py()!r}.")


def apply_row_change(
    statement: Update | Delete,
    text: str,
    transaction: Transaction,
    relations: TransactionRelations,
    parameters: GivenParameters,
) -> tuple[int, pa.Table | None]:
    """Stage a statement that changes rows, and return how many it meets, and what it returns of them."""
    table = relations.table([part.name for part in statement.table.parts])
    verb = "update" if isinstance(statement, Update) else "delete"
    check_aligned(table.definition, table.name, verb)
    _check_numbered(table, f"{verb} rows of")
    assignments = dict(_assigned(statement, table)) if isinstance(statement, Update) else {}
    tree = _query(
        statement.table, statement.where, statement.with_, _numbered(statement.table, [*assignments.values()])
    )
    returned = _query(statement.table, None, None, statement.returning) if statement.returning else None
    if returned is not None and returned.find(exp.Placeholder) is not None:
        raise InvalidInputError(
            "Cannot bind the parameters: RETURNING has some.",
            hint="Write the values in RETURNING, or compute with the rows that are returned.",
        )
    found = _in_order(run_query(resolve(tree, text, relations, parameters)))
    rows: NDArray[np.int64] = found.column(0).to_numpy().astype(np.int64)
    new = _fitted(table, list(assignments), found) if assignments else None
    result = None
    if returned is not None:
        after = RowsRelation(table, _reader(table, rows, new))
        result = run_query(resolve(returned, text, OneRelation(after)))
    if new is None:
        transaction.delete(table.name, rows)
    else:
        transaction.update_rows(table.name, rows, new, only_changed=True)
    return len(rows), result


def _assigned(statement: Update, table: Table) -> Sequence[tuple[str, exp.Expr]]:
    found: dict[str, exp.Expr] = {}
    for name, value in statement.assignments:
        known = match_name(name, table.columns)
        if known is None:
            raise ColumnNotFoundError(
                f"Cannot assign to column {name!r} of table {table.name!r}: it has none of that name.",
                hint=suggest(name, table.columns) or f"It has {', '.join(table.columns)}.",
                table=table.name,
                column=name,
            )
        if known in found:
            raise InvalidInputError(
                f"Cannot assign to column {known!r} of table {table.name!r}: it is assigned twice.",
                hint=f"Leave out one of the assignments, such as `{known} = {written(value)}`.",
            )
        window = value.find(exp.Window)
        if window is not None and window.find_ancestor(exp.Query) is None:
            raise InvalidInputError(
                f"Cannot assign {written(value)!r} to column {known!r}: it has a window function.",
                hint="Compute it in a subquery, such as (SELECT … FROM …).",
            )
        found[known] = value
    return list(found.items())


def _reader(table: Table, rows: NDArray[np.int64], new: pa.Table | None) -> ReadRows:
    """Read rows as they are, but for columns with new values."""

    def read(columns: Sequence[str]) -> pa.Table:
        changed = [] if new is None else new.column_names
        old = [name for name in columns if name not in changed]
        kept = table.take(rows, old) if old else None
        found = {
            name: kept.column(name) if kept is not None and name in old else new.column(name)  # type: ignore[union-attr]
            for name in columns
        }
        return pa.table({**found, ROW: row_column(rows)})

    return read
