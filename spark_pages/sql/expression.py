"""Expressions of SQL that assign values to rows: `spark_pages.expr`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from spark_pages.arguments import as_str
from spark_pages.boundary import guard
from spark_pages.query.table import Table
from spark_pages.transaction.assignments import Computation, ReadRows


@dataclass(frozen=True, slots=True)
class Expr(Computation):
    """An expression of SQL over the old values of a row.

    Attributes
    ----------
    text
        The expression, such as ``price * 1.1``.
    """

    text: str

    def compute(self, table: Table, read: ReadRows, expressions: Mapping[str, Self]) -> pa.Table:
        """Compute the values of some columns by DuckDB; see `Computation.compute`."""
        from spark_pages.sql.row_changes import compute_expressions  # noqa: PLC0415 - imports sqlglot

        return compute_expressions(table, read, {name: each.text for name, each in expressions.items()})


@guard
def expr(text: str) -> Expr:
    """Write a value of `Transaction.update` as an expression of SQL.

    Parameters
    ----------
    text
        An expression over the columns of the table, such as ``"price * 1.1"``, which DuckDB computes from the
        row's old values. It has no subqueries, aggregates and window functions.

    Returns
    -------
    Expr
        A value for an assignment.
    """
    return Expr(as_str(text, "text"))
