"""SQL on a store: queries are read, statements that change something are one transaction each.

Follow a query from `run_sql` through `spark_pages.sql.statement_parser` (a statement),
`spark_pages.sql.resolver` (names) and `spark_pages.sql.engine` (DuckDB) back to `Table.scan`, which reads the
columns and rows that DuckDB requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from sqlglot import exp

from spark_pages.arguments import MOST_NUMBER, Moment, as_flag, as_int, as_str
from spark_pages.arrow.nested import null_column
from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.model.names import match_name
from spark_pages.query.output_files import replacing, write_batches
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import table_called
from spark_pages.sql.engine import check_syntax, run_query, stream_query
from spark_pages.sql.files import (
    Copy,
    read_copy,
    refuse_files,
    with_named_files,
)
from spark_pages.sql.parameters import GivenParameters, Parameters
from spark_pages.sql.relations import Relations
from spark_pages.sql.resolver import resolve
from spark_pages.sql.row_changes import apply_row_change, fitted
from spark_pages.sql.schema_changes import apply_change, new_name, table_schema, title
from spark_pages.sql.statement_parser import (
    parameters_in,
    plain_name,
    read_statement,
    read_temporary,
    split_statements,
)
from spark_pages.sql.statements import (
    CreateTable,
    CreateTemporary,
    Delete,
    DropTable,
    Insert,
    Select,
    Statement,
    Update,
    Write,
)
from spark_pages.sql.table_relations import Access, StoreRelations, TransactionRelations
from spark_pages.sql.temporary import MemoryRelation, TemporaryTables
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
    files: bool = False,
    temporary: TemporaryTables | None = None,
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
    files
        Whether the statement may read and write files.
    temporary
        Temporary tables of the caller; None where there cannot be any.
    """
    text = as_str(text, "the statement")
    files = as_flag(files, "files")
    if files:
        text = with_named_files(text)
    elif (refused := refuse_files(text)) is not None:
        raise refused
    access = Access(files, temporary)
    copy = read_copy(text)
    if copy is not None:
        relations = StoreRelations(open_version(version, timestamp, tag), open_version, access)
        return pa.table([["COPY"], [None], [_copy(copy, relations, parameters)]], schema=RESULT)
    made = read_temporary(text)
    if made is not None:
        relations = StoreRelations(open_version(version, timestamp, tag), open_version, access)
        return pa.table(
            [["CREATE TABLE"], [None], [_create_temporary(made, relations, parameters)]], schema=RESULT
        )
    if limit is not None:
        limit = as_int(limit, "limit", "a number of rows, 0 or more", 0, MOST_NUMBER)
    statement = read_statement(text)
    if not isinstance(statement, Select) and any(each is not None for each in (version, timestamp, tag)):
        raise InvalidInputError(
            f"Cannot run {title(statement)} on an earlier version: it changes the newest one.",
            hint="Leave out `version`, `timestamp` and `tag`.",
        )
    relations = StoreRelations(open_version(version, timestamp, tag), open_version, access)
    if isinstance(statement, Select):
        return _rows(statement.tree, text, relations, parameters, limit)
    committed: int | None
    rows: int | None
    if isinstance(statement, Update | Delete):
        with begin(title(statement).lower()) as transaction:
            seen = TransactionRelations(transaction, open_version, temporary)
            rows, returned = _change_rows(statement, text, transaction, seen, parameters)
        if returned is not None:
            return returned if limit is None else returned.slice(0, limit)
        committed = transaction.version
    else:
        changed = _change_temporary(statement, text, relations, parameters)
        committed, rows = changed or _change(statement, text, relations, begin, parameters)
    return pa.table([[title(statement)], [committed], [rows]], schema=RESULT)


def run_in_transaction(
    transaction: Transaction, text: str, open_version: Callable[..., Snapshot], parameters: GivenParameters
) -> pa.Table:
    """Run the statements of a text in a transaction; see `Transaction.sql`."""
    texts = split_statements(as_str(text, "the statement")) or [text]
    if len(texts) > 1 and parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidInputError(
            "Cannot bind the parameters: several statements share them, and a list gives no names.",
            hint="Pass a mapping, such as {'n': 1} for $n.",
        )
    statements = [(each, read_statement(each)) for each in texts]
    given = [parameters] * len(texts)
    if isinstance(parameters, Mapping) and len(texts) > 1:
        used = [parameters_in(each) for each in texts]
        unknown = sorted(map(str, set(parameters) - set().union(*used)))
        if unknown:
            raise InvalidInputError(
                f"Cannot bind the parameters: no statement has a parameter ${unknown[0]}.",
                hint=f"Leave `{unknown[0]}` out of `params`.",
            )
        given = [{name: value for name, value in parameters.items() if name in names} for names in used]
    relations = TransactionRelations(transaction, open_version)
    told: list[tuple[str, int | None]] = []
    result: pa.Table | None = None
    for (part, statement), values in zip(statements, given, strict=True):
        rows, result = _stage(statement, part, transaction, relations, values)
        told.append((title(statement), rows))
    if result is not None:
        return result
    titles, counts = zip(*told, strict=True)
    return pa.table([list(titles), [None] * len(told), list(counts)], schema=RESULT)


def _stage(
    statement: Statement,
    text: str,
    transaction: Transaction,
    relations: TransactionRelations,
    parameters: GivenParameters,
) -> tuple[int | None, pa.Table | None]:
    """Stage a statement, and return the number of rows written and the rows that it gives."""
    match statement:
        case Select():
            return None, _rows(statement.tree, text, relations, parameters)
        case Update() | Delete():
            return _change_rows(statement, text, transaction, relations, parameters)
        case Insert():
            given = _rows(statement.query, text, relations, parameters)
            name, data = _match_columns(statement, given, relations.table(statement.table))
            transaction.append(name, data)
            return data.num_rows, None
        case CreateTable() if statement.query is not None:
            made = _rows(statement.query, text, relations, parameters)
            return _create_as(statement, made, transaction, transaction.snapshot), None
    Parameters(parameters, None)  # there are none to bind
    apply_change(statement, transaction, transaction.snapshot)
    return None, None


def _create_as(
    statement: CreateTable, made: pa.Table, transaction: Transaction, snapshot: Snapshot
) -> int | None:
    name = new_name(snapshot, statement.table, statement.if_not_exists)
    if name is None:
        return None
    transaction.create_table(name, made.schema, properties=statement.properties)
    transaction.append(name, made)
    return int(made.num_rows)


def _change_rows(
    statement: Update | Delete,
    text: str,
    transaction: Transaction,
    relations: TransactionRelations,
    parameters: GivenParameters,
) -> tuple[int, pa.Table | None]:
    check_syntax(text, statement.table.root())
    return apply_row_change(statement, text, transaction, relations, parameters)


def _copy(copy: Copy, relations: StoreRelations, parameters: GivenParameters) -> int:
    """Write the rows of a query to a file, batch by batch, and return their number."""
    statement = read_statement(copy.query)
    if not isinstance(statement, Select):
        raise InvalidInputError(
            f"Cannot copy {title(statement)} to a file: it is no query.",
            hint="Write COPY (SELECT …) TO 'rows.csv'.",
        )
    folders = Path(copy.path).expanduser().resolve().parents
    store = next((folder for folder in folders if (folder / "_log").is_dir()), None)
    if store is not None:
        raise InvalidInputError(
            f"Cannot write to {copy.path}: it lies in the store at {store}.",
            hint=f"Name a file outside of {store}.",
        )
    stream = _stream(statement.tree, copy.query, relations, parameters)
    counts: list[int] = []
    with replacing(str(Path(copy.path).expanduser()), overwrite=True) as unfinished:
        write_batches(unfinished, copy.form, stream.schema, _counted(stream, counts))
    return sum(counts)


def _counted(batches: Iterable[pa.RecordBatch], counts: list[int]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts.append(batch.num_rows)
        yield batch


def _create_temporary(
    made: CreateTemporary, relations: StoreRelations, parameters: GivenParameters
) -> int | None:
    """Create a temporary table, and return how many rows it has, if a query gives them."""
    if relations.access.temporary is None:
        raise InvalidInputError(
            "Cannot create a temporary table: this connection runs queries alone.",
            hint="Open the store by `spark_pages.open`.",
        )
    statement = made.statement
    name = plain_name(statement.table[-1:], "temporary table")
    known = relations.access.temporary.find([name])
    if known is not None and statement.if_not_exists:
        return None
    if statement.query is None:
        Parameters(parameters, None)
        rows = table_schema(statement, relations.base).empty_table()
    else:
        rows = _rows(statement.query, made.text, relations, parameters)
    relations.access.temporary.create(name, rows, made.replace)
    return rows.num_rows if statement.query is not None else None


def _change_temporary(
    statement: Write, text: str, relations: StoreRelations, parameters: GivenParameters
) -> tuple[None, int | None] | None:
    """Change temporary tables, if they are what a statement names; else return None."""
    temporary = relations.access.temporary
    if temporary is None:
        return None
    if isinstance(statement, DropTable) and all(temporary.find(name) for name in statement.tables):
        for name in statement.tables:
            temporary.drop(name)
        return None, None
    target = temporary.find(statement.table) if isinstance(statement, Insert) else None
    if target is None or not isinstance(statement, Insert):
        return None
    given = _rows(statement.query, text, relations, parameters)
    rows = _match_columns(statement, given, target)[1]
    temporary.append(target, rows)
    return None, rows.num_rows


def _stream(
    tree: exp.Expr, text: str, relations: StoreRelations, parameters: GivenParameters
) -> pa.RecordBatchReader:
    query = resolve(tree, text, relations, parameters)
    check_syntax(text, tree.root())
    return stream_query(query)


def _rows(
    tree: exp.Expr,
    text: str,
    relations: Relations,
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
        made = _stream(statement.query, text, relations, parameters)
    elif isinstance(statement, Insert):
        given = _rows(statement.query, text, relations, parameters)
        inserted = _match_columns(statement, given, table_called(relations.base, statement.table))
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
                counts: list[int] = []
                batches = pa.RecordBatchReader.from_batches(made.schema, _counted(made, counts))
                transaction.append(name_new, batches)
                rows = sum(counts)
        else:
            apply_change(statement, transaction, relations.base)
    return transaction.version, rows


def _match_columns(statement: Insert, given: pa.Table, table: Table | MemoryRelation) -> tuple[str, pa.Table]:
    """Return the table's name, and the rows with all of its columns in its types."""
    known: list[str] = table.schema.names
    names = [_column(name, known, table.name) for name in statement.columns] or known
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
        columns.append(fitted(given.column(names.index(field.name)), field, table.name))
    return table.name, pa.table(columns, schema=table.schema)


def _column(name: str, known: Sequence[str], table: str) -> str:
    found = match_name(name, known)
    if found is None:
        raise InvalidInputError(
            f"Cannot write values into column {name!r} of table {table!r}: it has none of that name.",
            hint=f"It has {', '.join(known)}.",
        )
    return found
