"""Tables as queries see them: of one version, of a transaction, or some rows of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_pages.catalog.identifiers import LogicalFieldId
from spark_pages.catalog.resolve import logical_fields
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.model.names import fold_name
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.scan import ROW
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import table_called
from spark_pages.sql.files import FileRelation, files_not_allowed, looks_like_a_file
from spark_pages.sql.relations import AsOf, Relation
from spark_pages.sql.temporary import TemporaryTables
from spark_pages.transaction.assignments import ReadRows
from spark_pages.transaction.transaction import Transaction


def hides_row_numbers(schema: pa.Schema) -> bool:
    """Whether a column has the name of the row numbers, in whatever case."""
    return any(fold_name(name) == ROW for name in schema.names)


def hidden_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns that a query may name and no star stands for."""
    return frozenset() if hides_row_numbers(schema) else frozenset([ROW])


def with_row_numbers(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the column of row numbers, unless it has one of that name."""
    return schema if hides_row_numbers(schema) else schema.append(pa.field(ROW, pa.uint64()))


class TableRelation:
    """A table at one version, as a query sees it.

    Parameters
    ----------
    table
        The table.
    """

    def __init__(self, table: Table) -> None:
        definition = table.definition
        self._table = table
        self.name: str = definition.name
        self.namespace: str = definition.namespace
        self.hidden = frozenset() if definition.namespace == "system" else hidden_columns(table.schema)
        self.schema: pa.Schema = with_row_numbers(table.schema) if self.hidden else table.schema
        self.fields = logical_fields(definition)

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return self._table.num_rows

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Rows that pass the filter, as a stream."""
        stored = [name for name in columns if name not in self.hidden]
        if len(stored) == len(columns):
            return self._table._scan_few(columns, filter, None)
        found = self._table._scan_few(stored, filter, None, numbered=True)
        schema = pa.schema([found.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(list(columns)) for batch in found))

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Those of some rows that pass a filter."""
        return passing(rows, expression_parts(filter).predicate)


@dataclass(frozen=True, slots=True)
class Access:
    """What a statement may name beside the tables of the store.

    Attributes
    ----------
    files
        Whether it may read and write files.
    temporary
        Temporary tables of the caller; None where there cannot be any.
    """

    files: bool = False
    temporary: TemporaryTables | None = None


_NO_ACCESS = Access()


class StoreRelations:
    """The tables that one statement may name, all of them at one version but where it says otherwise.

    Parameters
    ----------
    base
        What is read where a table says no version.
    open_version
        Opens another one: by version, timestamp or tag.
    access
        What the statement may name beside tables of the store.
    """

    def __init__(
        self, base: Snapshot, open_version: Callable[..., Snapshot], access: Access = _NO_ACCESS
    ) -> None:
        self.base = base
        self.access = access
        self._files = 0
        self._open = open_version
        self._opened: dict[AsOf, Snapshot] = {}

    def find(self, parts: Sequence[str], as_of: AsOf | None) -> Relation:
        """See `spark_pages.sql.relations.Relations`."""
        temporary = self.access.temporary
        if as_of is None and temporary is not None and (found := temporary.find(parts)) is not None:
            return found
        snapshot = self.base if as_of is None else self._opened.get(as_of)
        if snapshot is None:
            assert as_of is not None
            snapshot = self._open(as_of.version, as_of.timestamp, as_of.tag)
            self._opened[as_of] = snapshot
        try:
            return TableRelation(table_called(snapshot, parts))
        except TableNotFoundError:
            if as_of is not None or not looks_like_a_file(parts):
                raise
            if not self.access.files:
                raise files_not_allowed(f"read {parts[0]!r}") from None
        self._files += 1
        return FileRelation(parts[0], self._files)


class RowsRelation:
    """Some rows of a table, as a query sees them.

    Parameters
    ----------
    table
        The table, for names and types.
    read
        Reads columns of the rows.
    """

    def __init__(self, table: Table, read: ReadRows) -> None:
        definition = table.definition
        self._read = read
        self.name: str = definition.name
        self.namespace: str = definition.namespace
        self.hidden = hidden_columns(table.schema)
        self.schema: pa.Schema = with_row_numbers(table.schema)
        self.fields: Mapping[str, LogicalFieldId] = logical_fields(definition)

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self._read([]).num_rows)

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Rows that pass the filter, as a stream."""
        found = self._read([name for name in columns if name not in self.hidden]).select(list(columns))
        return (found if filter is None else self.passing(found, filter)).to_reader()

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Those of some rows that pass a filter."""
        return passing(rows, expression_parts(filter).predicate)


class OneRelation:
    """The only table of a statement.

    Parameters
    ----------
    relation
        What any name means.
    """

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def find(self, parts: Sequence[str], as_of: AsOf | None) -> Relation:  # noqa: ARG002 - of a protocol
        """See `spark_pages.sql.relations.Relations`."""
        return self._relation


class TransactionRelations:
    """The tables that a statement of a transaction may name, with staged changes.

    Parameters
    ----------
    transaction
        The transaction.
    open_version
        Opens another version.
    temporary
        Temporary tables of the caller, which hide tables of the store.
    """

    def __init__(
        self,
        transaction: Transaction,
        open_version: Callable[..., Snapshot],
        temporary: TemporaryTables | None = None,
    ) -> None:
        self._transaction = transaction
        self._temporary = temporary
        self._versions: StoreRelations | None = None
        self._open = open_version

    def table(self, parts: Sequence[str]) -> Table:
        """Return the table of a name, with staged changes.

        Raises
        ------
        InvalidInputError
            If it is a temporary table.
        """
        if self._temporary is not None and self._temporary.find(parts) is not None:
            raise InvalidInputError(
                f"Cannot update or delete rows of {parts[-1]!r}: it is a temporary table.",
                hint=f"Drop it, or name a table of the store with its namespace: default.{parts[-1]}.",
            )
        return self._transaction.table(".".join(parts))

    def find(self, parts: Sequence[str], as_of: AsOf | None) -> Relation:
        """See `spark_pages.sql.relations.Relations`."""
        if as_of is None:
            found = None if self._temporary is None else self._temporary.find(parts)
            return found or TableRelation(self.table(parts))
        if self._versions is None:
            self._versions = StoreRelations(self._transaction.snapshot, self._open)
        return self._versions.find(parts, as_of)
