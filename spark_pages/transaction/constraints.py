"""Rows against the checks of their table and the domains of their columns. Pure.

SQL decides: a row for which a condition is unknown, because of a null, passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import number_column
from spark_pages.arrow.join import empty_table
from spark_pages.catalog.constraints import constraints_of
from spark_pages.catalog.resolve import show_name
from spark_pages.catalog.types import VALUE, checks_of
from spark_pages.errors import ColumnNotFoundError, ConstraintError, InvalidInputError
from spark_pages.model.table import CONSTRAINTS_KEY, TableDefinition
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.filters import ParsedFilter, parse_filter
from spark_pages.query.predicates.large_predicates import Predicate


@lru_cache(maxsize=256)
def compile_check(sql: str, schema: pa.Schema) -> ParsedFilter:
    """The condition, ready to use.

    Raises
    ------
    InvalidInputError
        If it is none, or does not fit the columns.
    """
    try:
        parsed = parse_filter(sql, schema)
    except ColumnNotFoundError as error:
        raise InvalidInputError(
            f"The check {sql!r} does not fit: {error.message}", hint=error.hint
        ) from error
    if parsed is None or not parsed.columns:
        raise InvalidInputError(f"The check {sql!r} is about no column.")
    try:
        passing(empty_table(schema), parsed.predicate)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidInputError(
            f"The check {sql!r} does not fit {', '.join(f'{f.name}: {f.type}' for f in schema)}: {error}",
            hint="A check is true or false for each row.",
        ) from error
    return parsed


@dataclass(frozen=True, eq=False, slots=True)
class RowTest:
    """One condition.

    Attributes
    ----------
    what
        For messages: which constraint it is.
    columns
        Columns of the table that it reads.
    names
        How the condition calls them.
    fails
        True for rows that break it.
    """

    what: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    fails: Predicate


@dataclass(frozen=True, eq=False, slots=True)
class RowTests:
    """All conditions that rows of a table meet.

    Attributes
    ----------
    table
        Its name, for messages.
    tests
        The conditions.
    """

    table: str
    tests: tuple[RowTest, ...]

    @classmethod
    def of(cls, definition: TableDefinition) -> RowTests:
        """Those of a table; none, at no cost, where it has none."""
        tests: list[RowTest] = []
        if CONSTRAINTS_KEY in (definition.schema.metadata or {}):
            for constraint in constraints_of(definition):
                if constraint.kind == "check":
                    parsed = compile_check(constraint.sql, definition.bare_schema)
                    columns = tuple(parsed.columns or ())
                    what = f"constraint {constraint.name!r}: {constraint.sql}"
                    tests.append(RowTest(what, columns, columns, ~parsed.predicate))
        for column in map(definition.schema.field, sorted(definition.checked)):
            for check in checks_of(column):
                parsed = compile_check(check.sql, pa.schema([(VALUE, column.type)]))
                what = f"type {check.type_name!r} of column {column.name!r}: {check.sql}"
                tests.append(RowTest(what, (column.name,), (VALUE,), ~parsed.predicate))
        return cls(show_name(definition), tuple(tests))

    def about(self, columns: set[str]) -> RowTests:
        """Those that read any of the columns."""
        return RowTests(self.table, tuple(test for test in self.tests if columns.intersection(test.columns)))

    @property
    def columns(self) -> set[str]:
        """All columns that they read."""
        return {column for test in self.tests for column in test.columns}

    def check(self, rows: pa.Table, first_row: int) -> None:
        """Nothing, if no row breaks a condition.

        Parameters
        ----------
        rows
            With the columns that are tested.
        first_row
            What the first of them is called, for the message.

        Raises
        ------
        ConstraintError
            Names the constraint, how many rows break it, and the first of them; or says why the constraint
            cannot be tested.
        """
        for test in self.tests:
            columns = [rows.column(name) for name in test.columns]
            numbers = number_column(np.arange(rows.num_rows, dtype=np.int64), pa.int64())
            given = pa.table([*columns, numbers], [*test.names, ""])
            try:
                wrong = passing(given, test.fails)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
                raise ConstraintError(
                    f"Cannot tell whether the rows given for {self.table!r} break {test.what}: {error}.",
                    hint="Leave out the row on which the condition fails, or mend it.",
                    table=self.table,
                ) from error
            if not wrong.num_rows:
                continue
            row = int(wrong.column("")[0].as_py())
            shown = {name: each[row].as_py() for name, each in zip(test.columns, columns, strict=True)}
            raise ConstraintError(
                f"{wrong.num_rows} of the rows given for {self.table!r} break {test.what}; the first is "
                f"number {first_row + row} of them, with {shown}.",
                table=self.table,
            )
