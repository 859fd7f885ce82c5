"""SQL on a store: queries are read, statements that change something are one transaction each.

Follow a query from `run_sql` through `spark_pages.sql.statement_parser` (a statement),
`spark_pages.sql.resolver` (names) and `spark_pages.sql.engine` (DuckDB) back to `Table.scan`, which reads the
columns and rows that DuckDB requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from spark_pages.arguments import MOST_NUMBER, Moment, as_int, as_str
from spark_pages.arrow.nested import null_column
from spark_pages.catalog.resolve import logical_fields
from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.format.inference import LossError
from spark_pages.format.values import convert, integers_as_decimal
from spark_pages.model.names import match_name
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.predicates.literals import times_of_text
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import table_called
from spark_pages.sql.engine import check_syntax, run_query
from spark_pages.sql.parameters import GivenParameters, Parameters
from spark_pages.sql.relations import AsOf
from spark_pages.sql.resolver import resolve
from spark_pages.sql.schema_changes import apply_change, new_name, title
from spark_pages.sql.statement_parser import read_statement
from spark_pages.sql.statements import CreateTable, Insert, Select, Write
from spark_pages.transaction.transaction import Transaction

RESULT = pa.schema([("statement", pa.string()), ("version", pa.int64()), ("rows", pa.int64())])
"""What a statement gives that is no query."""


def run_sql(
    text: str,
    open_version: Callable[..., Snapshot],
    begin: Callable[[str], Transaction],
    version: int | None = None,
    timestamp: Moment | None = None,
    tag: str | None = None,
    parameters: GivenParameters = None,
    limit: int | None = None,
) -> pa.Table:
    """Run a statement, and return its result.

    Parameters
    ----------
    open_version
        Opens a version, by version, timestamp or tag; the newest one by default.
    begin
        Begins a transaction for an operation.
    version, timestamp, tag
        What a query reads.
    parameters
        Values for the parameters of the statement.
    limit
        Rows of a query, of which no more are computed.
    """
    text = as_str(text, "the statement")
    if limit is not None:
        limit = as_int(limit, "limit", "a number of rows, 0 or more", 0, MOST_NUMBER)
    statement = read_statement(text)
    if not isinstance(statement, Select) and any(each is not None for each in (version, timestamp, tag)):
        raise InvalidInputError(
            f"Cannot run {title(statement)} on an earlier version: it changes the newest one.",
            hint="Leave out `version`, `timestamp` and `tag`.",
        )
    relations = StoreRelations(open_version(version, timestamp, tag), open_version)
    if isinstance(statement, Select):
        return _rows(statement.tree, text, relations, parameters, limit)
    version, rows = _change(statement, text, relations, begin, parameters)
    return pa.table([[title(statement)], [version], [rows]], schema=RESULT)


def _rows(
    tree: exp.Expr,
    text: str,
    relations: StoreRelations,
    parameters: GivenParameters,
    limit: int | None = None,
) -> pa.Table:
    query = resolve(tree, text, relations, parameters)
    check_syntax(text, tree.root())
    return run_query(query, limit)


def _change(
    statement: Write,
    text: str,
    relations: StoreRelations,
    begin: Callable[[str], Transaction],
    parameters: GivenParameters,
) -> tuple[int | None, int | None]:
    """Commit a statement, and return the version and the number of rows written, if it writes rows."""
    rows: int | None = None
    # What can be refused is, before the transaction begins; what is read is read from one version.
    made = inserted = None
    if isinstance(statement, CreateTable) and statement.query is not None:
        made = _rows(statement.query, text, relations, parameters)
    elif isinstance(statement, Insert):
        given = _rows(statement.query, text, relations, parameters)
        inserted = _match_columns(statement, given, relations.base)
    else:
        Parameters(parameters, None)  # there are none to bind
    with begin(title(statement).lower()) as transaction:
        if inserted is not None:
            name, data = inserted
            transaction.append(name, data)
            rows = data.num_rows
        elif isinstance(statement, CreateTable) and made is not None:
            name_new = new_name(relations.base, statement.table, statement.if_not_exists)
            if name_new is not None:
                transaction.create_table(name_new, made.schema, properties=statement.properties)
                transaction.append(name_new, made)
                rows = made.num_rows
        else:
            apply_change(statement, transaction, relations.base)
    return transaction.version, rows


def _match_columns(statement: Insert, given: pa.Table, snapshot: Snapshot) -> tuple[str, pa.Table]:
    """Return the table's name, and the rows with all of its columns in its types."""
    table = table_called(snapshot, statement.table)
    names = [_column(name, table.columns, table.name) for name in statement.columns] or table.columns
    if len(set(names)) < len(names):
        raise InvalidInputError(
            f"Cannot write rows into table {table.name!r}: the rows name a column twice.",
            hint=f"Name each column once: INSERT INTO {table.name} ({', '.join(names)}).",
        )
    if len(names) != given.num_columns:
        raise SchemaMismatchError(
            f"Cannot write rows into table {table.name!r}: the rows have {given.num_columns} values for "
            f"{len(names)} columns ({', '.join(names)}).",
            hint=f"Name the columns that are given: INSERT INTO {table.name} "
            f"({', '.join(names[: given.num_columns])}).",
        )
    columns = []
    for field in table.schema:
        if field.name not in names:
            columns.append(pa.chunked_array([null_column(field.type, given.num_rows)]))
            continue
        values = given.column(names.index(field.name))
        try:
            if pa.types.is_nested(field.type):  # where Arrow leaves out what the type lacks
                values = convert(values, field.type)
            if pa.types.is_time(field.type) and pa.types.is_string(values.type):
                values = times_of_text(values)
            columns.append(integers_as_decimal(values, field.type).cast(field.type))
        except (LossError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"Cannot write values into column {field.name!r} of table {table.name!r}: it is of type "
                f"{field.type}, and values of type {values.type} do not fit: {error}",
                hint="Convert them in the statement: CAST(x AS …).",
            ) from error
    return table.name, pa.table(columns, schema=table.schema)


def _column(name: str, known: Sequence[str], table: str) -> str:
    found = match_name(name, known)
    if found is None:
        raise InvalidInputError(
            f"Cannot write values into column {name!r} of table {table!r}: it has none of that name.",
            hint=f"It has {', '.join(known)}.",
        )
    return found


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
        self.schema: pa.Schema = table.schema
        self.fields = logical_fields(definition)

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return self._table.num_rows

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Rows that pass the filter, as a stream."""
        return self._table._scan_few(columns, filter, None)

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Those of some rows that pass a filter."""
        return passing(rows, expression_parts(filter).predicate)


class StoreRelations:
    """The tables that one statement may name, all of them at one version but where it says otherwise.

    Parameters
    ----------
    base
        What is read where a table says no version.
    open_version
        Opens another one: by version, timestamp or tag.
    """

    def __init__(self, base: Snapshot, open_version: Callable[..., Snapshot]) -> None:
        self.base = base
        self._open = open_version
        self._opened: dict[AsOf, Snapshot] = {}

    def find(self, parts: Sequence[str], as_of: AsOf | None) -> TableRelation:
        """See `spark_pages.sql.relations.Relations`."""
        snapshot = self.base if as_of is None else self._opened.get(as_of)
        if snapshot is None:
            assert as_of is not None
            snapshot = self._open(as_of.version, as_of.timestamp, as_of.tag)
            self._opened[as_of] = snapshot
        return TableRelation(table_called(snapshot, parts))
