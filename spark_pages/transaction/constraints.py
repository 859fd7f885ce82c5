"""Rows against the checks of their table and the domains of their columns.

SQL decides: a row for which a condition is unknown, because of a null, passes. `RowTests` does no I/O;
`check_updates` reads the columns that a condition needs beside the updated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column
from spark_pages.arrow.join import empty_table, join, take_entries, with_wide_dictionaries
from spark_pages.arrow.nested import null_scalar
from spark_pages.catalog.constraints import constraints_of
from spark_pages.catalog.resolve import show_name
from spark_pages.catalog.types import VALUE, checks_of
from spark_pages.errors import ColumnNotFoundError, ConstraintError, InvalidInputError
from spark_pages.model.ids import TableId
from spark_pages.model.table import CONSTRAINTS_KEY, TableDefinition
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.filters import ParsedFilter, parse_filter
from spark_pages.query.predicates.large_predicates import Predicate
from spark_pages.query.table import Table
from spark_pages.transaction.update_buffer import Batch, SortedUpdates, stretches


@lru_cache(maxsize=256)
def compile_check(sql: str, schema: pa.Schema) -> ParsedFilter:
    """Compile a condition.

    Raises
    ------
    InvalidInputError
        If it is none, or does not fit the columns.
    """
    try:
        parsed = parse_filter(sql, schema)
    except ColumnNotFoundError as error:
        raise InvalidInputError(f"Cannot use the check {sql!r}: {error.message}", hint=error.hint) from error
    if parsed is None or not parsed.columns:
        raise InvalidInputError(
            f"Cannot use the check {sql!r}: it is about no column.",
            hint="Name a column in it, such as `CHECK (n > 0)`.",
        )
    try:
        passing(empty_table(schema), parsed.predicate)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidInputError(
            f"Cannot use the check {sql!r} on {', '.join(f'{f.name}: {f.type}' for f in schema)}: {error}",
            hint="Write a condition that is true or false for each row, such as `n > 0`.",
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
                    hint="Leave out the row on which the condition fails, or write the condition with "
                    "`CASE WHEN … THEN … END`.",
                    table=self.table,
                ) from error
            if not wrong.num_rows:
                continue
            row = int(wrong.column("")[0].as_py())
            shown = {name: each[row].as_py() for name, each in zip(test.columns, columns, strict=True)}
            raise ConstraintError(
                f"Cannot write the rows given for {self.table!r}: {wrong.num_rows} of them break "
                f"{test.what}; the first is number {first_row + row} of them, with {shown}.",
                hint="Leave those rows out, or drop the rule: `transaction.drop_constraint(table, name)`.",
                table=self.table,
            )


def check_updates(
    definitions: Mapping[TableId, TableDefinition],
    updates: Mapping[tuple[TableId, str], SortedUpdates],
    added: Mapping[tuple[TableId, int], pa.Scalar | None],
    table_of: Callable[[TableDefinition], Table],
    memory_bytes: int,
) -> set[TableId]:
    """Raise ConstraintError if an updated row breaks a check; return tables of which rows were read.

    Parameters
    ----------
    definitions
        The tables that the transaction writes to, by id.
    updates
        By table and column.
    added
        Values of columns that the transaction adds, by table and field id; None for null.
    table_of
        Gives the table as of the read version.
    memory_bytes
        Rows are tested together that have updates of so many bytes.

    Notes
    -----
    Reads the pages that hold these rows of columns that are tested and not updated.
    """
    relied: set[TableId] = set()
    for table_id in {table_id for table_id, _ in updates}:
        definition = definitions[table_id]
        updated = {column: each for (of, column), each in updates.items() if of == table_id}
        tests = RowTests.of(definition).about(set(updated))
        tested = {column: updated[column] for column in tests.columns if column in updated}
        new = [name for name in tests.columns if (table_id, definition.field_ids[name]) in added]
        if not tests.tests:
            continue
        if len(tested) + len(new) < len(tests.columns):
            relied.add(table_id)
        table, before = table_of(definition), 0
        for bounds in stretches(list(tested.values()), memory_bytes):
            changes = {name: each.between(bounds) for name, each in tested.items()}
            rows = np.unique(np.concatenate([numbers for numbers, _ in changes.values()]))
            columns = {}
            for column in sorted(tests.columns):
                if column in new:  # of which no row can be updated yet
                    value = added[table_id, definition.field_ids[column]]
                    null = null_scalar(definition.bare_schema.field(column).type)
                    columns[column] = pa.repeat(null if value is None else value, len(rows))
                else:
                    columns[column] = _after(table, column, rows, changes.get(column))
            tests.check(pa.table(columns), before)
            before += len(rows)
    return relied


def _after(
    table: Table, column: str, rows: NDArray[np.int64], change: Batch | None
) -> pa.Array | pa.ChunkedArray:
    """Return the values of the rows in a column after the updates."""
    if change is not None and len(change[0]) == len(rows):
        return change[1]
    before = table.take(rows, [column]).column(column)
    if change is None:
        return before
    chunks = [with_wide_dictionaries(each) for each in before.chunks]
    numbers, values = change
    order = np.arange(len(rows))
    order[np.searchsorted(rows, numbers)] = len(rows) + np.arange(len(values))
    return take_entries(join([*chunks, values], values.type), pa.array(order))
