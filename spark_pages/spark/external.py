"""What `ingest` reads, and `export` writes: data outside of the store."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.dataset as ds

from spark_pages.errors import InvalidInputError
from spark_pages.spark.arrow_types import spark_schema, to_spark
from spark_pages.spark.writing import TaskRows, WritePlan, write_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ("parquet", "csv", "json", "delta", "jdbc", "orc")
TARGETS = ("parquet", "delta")
_STRICT = {
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
}
"""Else Spark makes nulls of what it cannot read, and takes columns in any order for those of the schema."""

_WILDCARDS = frozenset("*?[]{}")


@dataclass(frozen=True, slots=True)
class External:
    """Data outside of the store.

    Attributes
    ----------
    format
        One of `SOURCES`, or of `TARGETS`.
    path
        Where it is; None for JDBC.
    options
        For Spark, under its names; CSV and JSON are read strictly unless they say otherwise. A value
        ``env:NAME`` is what the environment variable holds, so that no password stands on a command line.
    schema
        Of CSV and JSON, as Spark's DDL; else it is inferred.
    """

    format: str
    path: str | None
    options: Mapping[str, str]
    schema: str | None = None

    def check_source(self) -> None:
        """Nothing, if its format can be read, and it is said where it is.

        Raises
        ------
        InvalidInputError
            Names the formats that can; or says that there is no path, or one where there is a URL.
        """
        if self.format not in SOURCES:
            raise InvalidInputError(f"{self.format!r} cannot be read: expected {', '.join(SOURCES)}.")
        if (self.path is None) != (self.format == "jdbc"):
            expected = "no path, but --option url=…" if self.path is not None else "a path"
            raise InvalidInputError(f"{self.format} comes with path {self.path!r}: expected {expected}.")

    def check_there(self) -> None:
        """Nothing, unless its path is one of this machine and leads nowhere.

        Raises
        ------
        InvalidInputError
            Names it.

        Notes
        -----
        For readers on this machine: on a cluster a path without a scheme may be one of its file system.
        """
        if self.path is None or "://" in self.path or "HADOOP_CONF_DIR" in os.environ:
            return
        if not _WILDCARDS.intersection(self.path) and not os.path.exists(os.path.expanduser(self.path)):
            raise InvalidInputError(
                f"There is nothing at {self.path}: expected a file or folder of {self.format}.",
                hint=f"The working directory is {os.getcwd()}.",
            )

    def check_target(self) -> str:
        """The path to write to, if the format can be written.

        Raises
        ------
        InvalidInputError
            Names those that can.
        """
        if self.format not in TARGETS or self.path is None:
            raise InvalidInputError(
                f"{self.format!r} cannot be written: expected {' or '.join(TARGETS)}, and a path."
            )
        return self.path

    def resolved(self) -> dict[str, str]:
        """The options with values from the environment.

        Raises
        ------
        InvalidInputError
            If a variable is not set.
        """
        return {name: _from_environment(name, value) for name, value in self.options.items()}

    @property
    def is_local(self) -> bool:
        """Whether one process reads it as Spark does: Parquet on a disk, without options.

        ORC does not tell instants from times of day.
        """
        return (
            self.format == "parquet"
            and self.path is not None
            and os.path.exists(os.path.expanduser(self.path))
            and not self.options
            and self.schema is None
        )


class LocalRows:
    """Rows that this process reads, in the types that they would have in Spark.

    Attributes
    ----------
    schema
        Of the rows.
    """

    def __init__(self, source: External, data: ds.Dataset, types: pa.Schema) -> None:
        self._source = source
        self._data = data
        read = [pa.field(f.name, _as_read(f.type)) for f in spark_schema(types)]
        self.schema: pa.Schema = pa.schema(read)

    @classmethod
    def of(cls, source: External) -> Self:
        """The rows of a source.

        Raises
        ------
        InvalidInputError
            If it takes Spark.
        """
        if not source.is_local or source.path is None:
            raise InvalidInputError(f"{source.path} as {source.format} is read by Spark, if it is there.")
        path = os.path.expanduser(source.path)
        try:
            data, other = (_parquet_files(path, unit) for unit in ("us", "s"))
            return cls(source, data, _with_instants(data.schema, other.schema))
        except pa.ArrowException as error:
            raise _unreadable(source, error) from error

    def count(self) -> int:
        """How many there are."""
        return int(self._data.count_rows())

    def write(self, plan: WritePlan) -> list[TaskRows]:
        """They are where a commit can name them."""
        return [write_task(plan, 0, self._batches())]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._data.to_batches():
                yield to_spark(batch, self.schema)
        except pa.ArrowException as error:
            raise _unreadable(self._source, error) from error


class SparkRows:
    """Rows that executors read; otherwise as `LocalRows`."""

    def __init__(self, spark: SparkSession, source: External) -> None:
        from pyspark.errors import AnalysisException
        from pyspark.sql.pandas.types import to_arrow_schema

        options = {**_STRICT.get(source.format, {}), **source.resolved()}
        reading = spark.read.format(source.format).options(**options)
        if source.schema is not None:
            reading = reading.schema(source.schema)
        try:
            self._rows: DataFrame = reading.load(source.path) if source.path else reading.load()
        except AnalysisException as error:
            raise _unreadable(source, error) from error
        self.schema: pa.Schema = to_arrow_schema(self._rows.schema, timezone="UTC")

    def count(self) -> int:
        """How many there are."""
        return self._rows.count()

    def write(self, plan: WritePlan) -> list[TaskRows]:
        """They are where a commit can name them: one attempt of each task, whatever was repeated or
        speculated.
        """
        done = self._rows.mapInArrow(_WriteTask(plan), "task binary").toArrow()
        told = (pickle.loads(each) for each in done.column(0).to_pylist())  # noqa: S301 - of our own executors
        return [TaskRows(*each) for each in told]


@dataclass(frozen=True, slots=True)
class _WriteTask:
    """Writes the rows of one partition on an executor."""

    plan: WritePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = write_task(self.plan, context.partitionId(), iter(batches))
        packed = pickle.dumps((task.partition, task.plan, task.rows))
        yield pa.record_batch([pa.array([packed], pa.binary())], names=["task"])


def _unreadable(source: External, error: Exception) -> InvalidInputError:
    why = next(iter(str(error).splitlines()), type(error).__name__)
    return InvalidInputError(
        f"Cannot read {source.path or 'a source without a path'} as {source.format}: {why}",
        hint="Look whether it is there, and whether its format and options are those that were given.",
    )


def _parquet_files(path: str, unit: str) -> ds.Dataset:
    """Files as Spark reads them: folders ``name=value`` below the one that is named are columns.

    Moments of 96 bits get this unit, because nanoseconds in 64 bits end in the year 2262.
    """
    form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=unit))
    return ds.dataset(path, format=form, partitioning="hive" if os.path.isdir(path) else None)


def _with_instants(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The first of two schemas of the same files, with moments of 96 bits as instants, as Spark has them.

    They are the ones that differ: each schema was made with another unit for them.
    """
    return pa.schema([_instants(*fields) for fields in zip(one, other, strict=True)])


def _instants(one: pa.Field, other: pa.Field) -> pa.Field:
    kind, second = one.type, other.type
    if kind == second:
        return one
    if pa.types.is_timestamp(kind):
        return one.with_type(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_map(kind):
        parts = (kind.key_field, second.key_field), (kind.item_field, second.item_field)
        return one.with_type(pa.map_(*(_instants(*part) for part in parts)))
    if pa.types.is_struct(kind):
        fields = zip(kind.fields, second.fields, strict=True)
        return one.with_type(pa.struct([_instants(*part) for part in fields]))
    return one.with_type(pa.list_(_instants(kind.value_field, second.value_field)))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """The type that Spark's readers give to a column of a file."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.string() if pa.types.is_large_string(kind) else pa.binary()
    return pa.timestamp("us", "UTC" if kind.tz else None) if pa.types.is_timestamp(kind) else kind


def _from_environment(name: str, value: str) -> str:
    if not value.startswith("env:"):
        return value
    variable = value.removeprefix("env:")
    if variable not in os.environ:
        raise InvalidInputError(
            f"Option {name} is taken from the environment variable {variable}, which is not set."
        )
    return os.environ[variable]
