"""Runs resolved queries in DuckDB, which sees nothing but the tables that it is given.

One database in memory for the process, in which nothing is ever made. It may not open files, load
extensions, look at Python's variables or change these settings.
"""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from spark_pages.catalog.identifiers import VisibleColumn
from spark_pages.errors import InternalError, InvalidInputError, MissingDependencyError, SparkPagesError
from spark_pages.query.predicates.parsing import for_duckdb, shown
from spark_pages.sql.dataset import RelationDataset
from spark_pages.sql.resolver import ResolvedQuery

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",  # else it would write to .tmp of the working directory
}


def check_syntax(text: str, tree: exp.Expr) -> None:
    """Raise InvalidInputError if a query is none to DuckDB, whose parser takes less for one than sqlglot.

    Notes
    -----
    0.1 ms; nothing is planned or run.
    """
    duckdb = _duckdb()
    connection = _database(os.getpid()).cursor()
    try:
        connection.extract_statements(for_duckdb(text, tree))
    except duckdb.Error as error:
        told = str(error).split("\n\nLINE")[0].strip().removeprefix("Parser Error: ")
        raise InvalidInputError(f"Cannot read the statement {shown(text)}: {told}.") from error
    finally:
        connection.close()


def run_query(query: ResolvedQuery, limit: int | None = None) -> pa.Table:
    """The rows that a query gives, or the first of them.

    Returns
    -------
    pyarrow.Table
        Columns that are columns of a table have its types; two may have one name.

    Raises
    ------
    MissingDependencyError
        If DuckDB is not installed.
    InvalidInputError
        If DuckDB refuses the query: types that do not fit, a function that there is not, too little memory.

    Notes
    -----
    About 4 ms beside reading and computing.
    """
    duckdb = _duckdb()
    datasets: list[RelationDataset] = []
    connection = _database(os.getpid()).cursor()
    try:
        for use in query.uses:
            labels = {name: use.labels[name] for name in use.names}
            datasets.append(RelationDataset(use.relation, labels, use.hint))
            _ = datasets[-1].schema  # refuses here what DuckDB cannot hold
            connection.register(use.label, datasets[-1])
        relation = connection.sql(query.text)
        result = (relation if limit is None else relation.limit(limit)).to_arrow_table()
    except (duckdb.Error, pa.ArrowException, SparkPagesError) as error:
        for dataset in datasets:
            if dataset.failure is not None:
                raise dataset.failure from error
        if isinstance(error, SparkPagesError):
            raise
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            raise InternalError(f"DuckDB failed: {error}") from error
        told = str(error).split("\n\nLINE")[0].strip()
        raise InvalidInputError(f"DuckDB refuses the query: {told}") from error
    finally:
        connection.close()
    return _as_users_know(result, query.outputs)


def _as_users_know(result: pa.Table, outputs: tuple[VisibleColumn, ...]) -> pa.Table:
    """Columns under their names, in the types of their tables where they come from one."""
    if result.num_columns != len(outputs):
        return result  # of a star inside of a function; DuckDB has named what came out of it
    columns, fields = [], []
    for column, output in zip(result.columns, outputs, strict=True):
        kind = output.type if output.type is not None else _in_utc(column.type)
        if kind != column.type:
            try:
                column = column.cast(kind)  # noqa: PLW2901
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                kind = column.type
        columns.append(column)
        fields.append(pa.field(output.name, kind))
    return pa.table(columns, schema=pa.schema(fields))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _duckdb() -> ModuleType:
    try:
        import duckdb  # noqa: PLC0415 - an extra, and 0.1 s to import
    except ImportError as error:
        raise MissingDependencyError(
            "Queries are run by DuckDB, which is not installed.",
            hint='Install it with: pip install "spark-pages[sql]".',
        ) from error
    return duckdb


@cache
def _database(_process: int) -> DuckDBPyConnection:
    """The database of a process. A fork needs one of its own, because threads are not forked, and keeps that
    of its parent, because closing it would wait for these threads.
    """
    connection: DuckDBPyConnection = _duckdb().connect(":memory:", config=_CONFIG)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection
