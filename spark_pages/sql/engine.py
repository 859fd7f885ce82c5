"""Runs resolved queries in DuckDB, which sees nothing but the tables that it is given.

One database in memory for the process, in which nothing is ever made. It may not open files, load
extensions, look at Python's variables or change these settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from sqlglot import exp

from spark_pages.arrow.columns import valid_of
from spark_pages.arrow.nested import children
from spark_pages.catalog.identifiers import VisibleColumn
from spark_pages.errors import InternalError, InvalidInputError, MissingDependencyError, SparkPagesError
from spark_pages.model.names import fold_name
from spark_pages.query.predicates.parsing import for_duckdb, shown
from spark_pages.sql.relations import Relation
from spark_pages.sql.resolver import ResolvedQuery

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


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
    duckdb = load_duckdb()
    connection = _database(os.getpid()).cursor()
    try:
        connection.extract_statements(for_duckdb(text, tree))
    except duckdb.Error as error:
        told = str(error).split("\n\nLINE")[0].strip().removeprefix("Parser Error: ")
        raise InvalidInputError(
            f"Cannot read the statement {shown(text)}: {told}.",
            hint="Compare with docs/sql.md; DuckDB reads queries, such as `SELECT … FROM t`.",
        ) from error
    finally:
        connection.close()


def run_query(query: ResolvedQuery, limit: int | None = None) -> pa.Table:
    """Run a query, and return its rows or the first of them.

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
    with _running(query) as relation:
        result = (relation if limit is None else relation.limit(limit)).to_arrow_table()
    return _as_users_know(result, query.outputs)


def stream_query(query: ResolvedQuery) -> pa.RecordBatchReader:
    """Run a query, and stream its rows; otherwise as `run_query`."""
    with _running(query) as relation:
        computed = relation.limit(0).to_arrow_table()
    schema = _as_users_know(computed, query.outputs).schema
    return pa.RecordBatchReader.from_batches(schema, _streamed(query, schema))


def _streamed(query: ResolvedQuery, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _running(query) as relation:
        for batch in relation.to_arrow_reader(BATCH_ROWS):
            rows = _as_users_know(pa.Table.from_batches([batch]), query.outputs)
            yield from rows.cast(schema).to_batches()


@contextmanager
def _running(query: ResolvedQuery) -> Iterator[DuckDBPyRelation]:
    """Give the relation of a query to read in the block; what fails in it is an error of ours."""
    duckdb = load_duckdb()
    datasets: list[RelationDataset] = []
    connection = _database(os.getpid()).cursor()
    try:
        for use in query.uses:
            labels = {name: use.labels[name] for name in use.names}
            datasets.append(RelationDataset(use.relation, labels, use.hint))
            _ = datasets[-1].schema  # refuses here what DuckDB cannot hold
            connection.register(use.label, datasets[-1])
        yield connection.sql(query.text)
    except (duckdb.Error, pa.ArrowException, SparkPagesError) as error:
        for dataset in datasets:
            if dataset.failure is not None:
                raise dataset.failure from error
        if isinstance(error, SparkPagesError):
            raise
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            raise InternalError(
                f"Cannot run the query: DuckDB failed: {error}.",
                hint="This is a fault of DuckDB: simplify the query, such as by `LIMIT 1`, and "
                "report both texts.",
            ) from error
        told = str(error).split("\n\nLINE")[0].strip()
        raise InvalidInputError(
            f"Cannot run the query: {told.rstrip('.')}.",
            hint="Change the part that it names; docs/sql.md lists functions and types, and `CAST(x AS "
            "…)` converts.",
        ) from error
    finally:
        connection.close()


def _as_users_know(result: pa.Table, outputs: tuple[VisibleColumn, ...]) -> pa.Table:
    """Columns under their names, in the types of their tables where they come from one."""
    if result.num_columns != len(outputs):
        return result  # of a star inside of a function; DuckDB has named what came out of it
    columns, fields = [], []
    for column, output in zip(result.columns, outputs, strict=True):
        kind = output.type if output.type is not None else _in_utc(column.type)
        if kind != column.type:
            try:
                column = _cast(column, kind)  # noqa: PLW2901
            except pa.ArrowException:
                kind = column.type
        columns.append(column)
        fields.append(pa.field(output.name, kind))
    return pa.table(columns, schema=pa.schema(fields))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not (isinstance(kind, pa.BaseExtensionType) and isinstance(column.type, pa.BaseExtensionType)):
        return column.cast(kind)
    storage = (chunk.storage.cast(kind.storage_type) for chunk in column.chunks)
    return pa.chunked_array([pa.ExtensionArray.from_storage(kind, each) for each in storage], kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def load_duckdb() -> ModuleType:
    """Import DuckDB.

    Raises
    ------
    MissingDependencyError
        If it is not installed.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra, and 0.1 s to import
    except ImportError as error:
        raise MissingDependencyError(
            "Cannot run queries: DuckDB is not installed.",
            hint='Install it: `pip install "spark-pages[sql]"`.',
        ) from error
    return duckdb


@cache
def _database(_process: int) -> DuckDBPyConnection:
    """Open the database of a process.

    A fork opens its own, because threads are not forked, and keeps its parent's, because closing it would
    wait for these threads.

    A fork opens its own, because threads are not forked, and keeps its parent's, because closing it would
    wait for these threads.
    """
    connection: DuckDBPyConnection = load_duckdb().connect(":memory:", config=_CONFIG)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


_NO_COLUMN = "nothing"
"""The one column of a table of which only the number of rows matters."""

BATCH_ROWS = 1 << 16

_MOST_DIGITS = 38
"""Digits of DuckDB's widest decimal."""


class RelationDataset(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """Some columns of a table under labels.

    Parameters
    ----------
    relation
        The table.
    labels
        Label of each column, by name; those that a query needs, and no more.
    hint
        A filter that every row meets which the query can use, or None.

    Attributes
    ----------
    failure
        What reading raised, which DuckDB tells as text only.
    """

    def __init__(
        self, relation: Relation, labels: Mapping[str, str], hint: pc.Expression | None = None
    ) -> None:
        # Dataset.__init__ refuses to be called; nothing of it is used but that DuckDB knows the class.
        self._relation = relation
        self._names = {label: name for name, label in labels.items()}
        self._hint = hint
        self.failure: SparkPagesError | None = None

    def __new__(cls, *_: Any) -> RelationDataset:
        """See the class."""
        made: RelationDataset = ds.Dataset.__new__(cls)
        return made

    @property
    def schema(self) -> pa.Schema:
        """The columns under their labels."""
        if not self._names:
            return pa.schema([(_NO_COLUMN, pa.bool_())])
        known = self._relation.schema
        return pa.schema(
            [
                pa.field(label, duckdb_type(known.field(name).type, name), known.field(name).nullable)
                for label, name in self._names.items()
            ]
        )

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> RelationScanner:
        """Create a scanner. DuckDB calls this each time that it begins to read."""
        return RelationScanner(self, self.schema.names if columns is None else columns, filter)

    def batches(self, labels: list[str], filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows that pass the filter."""
        try:
            for batch in self._read(labels, filter):
                for label, column in zip(batch.schema.names, batch.columns, strict=True):
                    check_intervals(self._names.get(label, label), column)
                yield batch
        except SparkPagesError as error:
            self.failure = error
            raise

    def _read(self, labels: list[str], filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if not self._names:
            yield from _rows_only(self._relation.num_rows)
            return
        schema = pa.schema([self.schema.field(label) for label in labels])
        known = self._relation.schema
        if all(
            label == name
            and name not in self._relation.hidden
            and known.field(name).type == self.schema.field(label).type
            for label, name in self._names.items()
        ):
            wanted = _both(filter, self._hint)
            for batch in self._relation.scan(labels, wanted):
                yield batch.cast(schema) if batch.schema != schema else batch
            return
        # The filter speaks of labels and of other types: it is tested here, on whole columns.
        for batch in self._relation.scan(list(self._names.values()), self._hint):
            table = pa.table(batch.columns, names=list(self._names)).cast(self.schema)
            kept = table if filter is None else self._relation.passing(table, filter)
            yield from kept.select(labels).to_batches()


def duckdb_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return a type with the same values that DuckDB supports.

    Raises
    ------
    InvalidInputError
        If there is none.
    """
    if pa.types.is_decimal(kind) and kind.scale < 0:
        if kind.precision - kind.scale > _MOST_DIGITS:
            raise InvalidInputError(
                f"Cannot query column {column!r}: DuckDB has decimals of up to {_MOST_DIGITS} digits, and "
                f"{kind} may have {kind.precision - kind.scale}.",
                hint="Read it with `Table.read`.",
            )
        return pa.decimal128(kind.precision - kind.scale, 0)
    if pa.types.is_struct(kind):
        if any("\0" in field.name for field in kind.fields):
            raise InvalidInputError(
                f"Cannot query column {column!r}: the name of a field holds NUL, which ends names in DuckDB.",
                hint="Read it with `Table.read`.",
            )
        alike = [fold_name(name) for name in kind.names]
        if len(set(alike)) < len(alike):
            raise InvalidInputError(
                f"Cannot query column {column!r}: names of its fields differ by case only, and DuckDB takes "
                f"the first for all of them.",
                hint="Read it with `Table.read`.",
            )
        return pa.struct([field.with_type(duckdb_type(field.type, column)) for field in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(duckdb_type(kind.key_type, column), duckdb_type(kind.item_type, column))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_value_field(kind, column), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_value_field(kind, column))
    if pa.types.is_list(kind):
        return pa.list_(_value_field(kind, column))
    return kind


def _value_field(kind: pa.DataType, column: str) -> pa.Field:
    return kind.value_field.with_type(duckdb_type(kind.value_type, column))


class RelationScanner:
    """One reading of a data set: what DuckDB looks for in a scanner of Arrow."""

    def __init__(self, dataset: Any, labels: list[str], filter: pc.Expression | None) -> None:
        self._dataset = dataset
        self._labels = labels
        self._filter = filter

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are read."""
        schema = self._dataset.schema
        return pa.schema([schema.field(label) for label in self._labels])

    def to_reader(self) -> pa.RecordBatchReader:
        """Open the rows as a new stream."""
        return pa.RecordBatchReader.from_batches(
            self.projected_schema, self._dataset.batches(self._labels, self._filter)
        )


def _both(filter: pc.Expression | None, hint: pc.Expression | None) -> pc.Expression | None:
    if filter is None or hint is None:
        return hint if filter is None else filter
    return filter & hint


def _rows_only(count: int) -> Iterator[pa.RecordBatch]:
    """So many rows of nothing; the values of all batches are the same."""
    values = pa.nulls(min(count, BATCH_ROWS), pa.bool_())
    for start in range(0, count, BATCH_ROWS):
        yield pa.record_batch([values.slice(0, min(BATCH_ROWS, count - start))], names=[_NO_COLUMN])


_INTERVAL = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])


def check_intervals(column: str, values: pa.Array) -> None:
    """Raise InvalidInputError if a duration or an interval, also one inside of others, has nanoseconds."""
    if _may_have_nanoseconds(values.type) and _has_nanoseconds(values):
        raise InvalidInputError(
            f"Cannot query column {column!r}: DuckDB keeps microseconds of durations and intervals, and some "
            "have nanoseconds.",
            hint="Read it with `Table.read`.",
        )


def _is_fine(kind: pa.DataType) -> bool:
    return bool(kind == pa.duration("ns") or pa.types.is_interval(kind))


@lru_cache(256)
def _may_have_nanoseconds(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return bool(_may_have_nanoseconds(kind.storage_type))
    if pa.types.is_dictionary(kind):
        return bool(_may_have_nanoseconds(kind.value_type))
    inside = (kind.field(index).type for index in range(kind.num_fields))
    return _is_fine(kind) or any(map(_may_have_nanoseconds, inside))


def _has_nanoseconds(array: pa.Array) -> bool:
    if isinstance(array, pa.ExtensionArray):
        return _has_nanoseconds(array.storage)
    if pa.types.is_dictionary(array.type):
        return _has_nanoseconds(array.dictionary)
    if not _is_fine(array.type):
        return any(map(_has_nanoseconds, children(array)))
    if not len(array):
        return False
    layout = _INTERVAL if pa.types.is_interval(array.type) else np.dtype([("nanoseconds", np.int64)])
    entries = np.frombuffer(array.buffers()[1], layout, len(array), array.offset * layout.itemsize)
    return bool((entries["nanoseconds"][valid_of(array)] % 1000).any())
