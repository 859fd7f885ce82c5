"""Constraints added to tables and taken away, once the rows that are there have been looked at."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from spark_pages.arguments import as_list, as_names, as_str
from spark_pages.catalog.constraints import (
    Constraint,
    foreign_key,
    primary_key,
    with_constraint,
    without_constraint,
)
from spark_pages.catalog.resolve import show_name
from spark_pages.errors import ConstraintError, InvalidInputError
from spark_pages.model.ids import is_temporary
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.constraints import compile_check
from spark_pages.transaction.key_hashes import first_repeated
from spark_pages.transaction.staged_tables import StagedNames, StagedTables
from spark_pages.transaction.table_changes import TableChanges

ForeignKey = tuple[Sequence[str], str, Sequence[str]]
"""Columns, the other table, and columns there."""


class ConstraintChanges:
    """The constraints of the tables of one transaction.

    Parameters
    ----------
    names, tables
        The names that there are, and the tables.
    staged
        The tables with everything that is staged.
    """

    def __init__(self, names: StagedNames, tables: TableChanges, staged: StagedTables) -> None:
        self._names = names
        self._tables = tables
        self._staged = staged

    def add(
        self,
        table: str,
        name: str,
        check: str | None,
        key: Sequence[str] | None,
        reference: ForeignKey | None,
    ) -> None:
        """See `Transaction.add_constraint`."""
        if sum(each is not None for each in (check, key, reference)) != 1:
            raise InvalidInputError("Give exactly one of check, primary_key and foreign_key.")
        as_str(name, "the name of a constraint")
        if check is not None:
            as_str(check, "check")
        key = None if key is None else as_names(key, "primary_key")
        definition = self._tables.begin(table)
        if check is not None:
            constraint = self._check(definition, name, check)
        elif key is not None:
            constraint = primary_key(definition, name, key)
            self._refuse_unaligned(definition)
        else:
            parts = as_list(reference, object, "foreign_key", "columns, a table, and columns of that")
            if len(parts) != 3:
                raise InvalidInputError(
                    f"foreign_key has {len(parts)} parts: expected columns, a table, and columns of that."
                )
            constraint = self._reference(
                definition,
                name,
                as_names(parts[0], "foreign_key"),
                as_str(parts[1], "the table of foreign_key"),
                as_names(parts[2], "foreign_key"),
            )
        changed = with_constraint(definition, constraint)
        if check is not None:
            self._test_rows(definition, constraint)
        if key is not None:
            self._test_key(definition, key)
        self._names.alter(definition, changed)

    def drop(self, table: str, name: str) -> None:
        """See `Transaction.drop_constraint`."""
        definition = self._tables.begin(table)
        self._names.alter(definition, without_constraint(definition, name))

    def _check(self, definition: TableDefinition, name: str, sql: str) -> Constraint:
        self._refuse_unaligned(definition)
        parsed = compile_check(sql, definition.bare_schema)
        fields = tuple(sorted(definition.field_ids[column] for column in parsed.columns or ()))
        return Constraint(name, "check", fields, sql)

    def _reference(
        self, definition: TableDefinition, name: str, columns: Sequence[str], table: str, there: Sequence[str]
    ) -> Constraint:
        other = self._tables.find(table)
        if is_temporary(other.table_id) or is_temporary(definition.table_id):
            raise InvalidInputError("A temporary table neither has a foreign key nor is referred to.")
        return foreign_key(definition, name, columns, other, there)

    @staticmethod
    def _refuse_unaligned(definition: TableDefinition) -> None:
        if not definition.aligned:
            raise InvalidInputError(
                f"Table {show_name(definition)!r} has columns of different lengths, so no row has them all: "
                "it cannot have a check or a primary key.",
                hint="Give its columns types with checks.",
            )

    def _test_rows(self, definition: TableDefinition, constraint: Constraint) -> None:
        """Refuse the check if a row breaks it; pages whose statistics show that none does are not read."""
        staged = self._staged.table(show_name(definition))
        parsed = compile_check(constraint.sql, staged.schema)
        wrong = 0
        first: dict[str, object] | None = None
        for batch in staged.scan(parsed.columns, filter=pc.invert(parsed.expression)):
            wrong += batch.num_rows
            if batch.num_rows and first is None:
                first = batch.slice(0, 1).to_pylist()[0]
        if wrong:
            raise ConstraintError(
                f"Cannot add constraint {constraint.name!r} to {show_name(definition)!r}: {wrong} rows break "
                f"{constraint.sql}; the first has {first}."
            )

    def _test_key(self, definition: TableDefinition, key: Sequence[str]) -> None:
        repeated = first_repeated(self._staged.table(show_name(definition)).read(key))
        if repeated is not None:
            raise ConstraintError(
                f"Columns {', '.join(key)} of {show_name(definition)!r} cannot be a primary key: {repeated} "
                "is there more than once."
            )
