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
from spark_pages.progress import advance, current, is_reporting
from spark_pages.spark.arrow_types import schema_of_rows, to_spark
from spark_pages.spark.failures import spark_failing
from spark_pages.spark.output_folder import SCHEME, path_here
from spark_pages.spark.parquet_files import WILDCARDS, parquet_files, types_in_spark, why_spark
from spark_pages.spark.task_counts import following_jobs
from spark_pages.spark.writing import TaskRows, WritePlan, write_task
from spark_pages.transaction.source_files import open_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ("parquet", "csv", "json", "delta", "jdbc", "orc", "ipc")
TARGETS = ("parquet", "delta", "csv", "json", "orc", "ipc")
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
_PACKED = (".gz", ".bz2", ".zst")
_OF_ARROW = ("file", "s3", "gs", "gcs", "abfs", "abfss")
"""Beginnings of addresses that Arrow opens; of others only Hadoop does."""
_STRICT = {
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
}
"""Else Spark makes nulls of what it cannot read, and takes columns in any order for those of the schema."""


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
    as_arrow
        Whether Parquet is read as Arrow reads it, also where Spark may see other rows or types in it.
    """

    format: str
    path: str | None
    options: Mapping[str, str]
    schema: str | None = None
    as_arrow: bool = False

    @classmethod
    def source(
        cls, form: str | None, path: str | None, options: Mapping[str, str], schema: str | None = None
    ) -> Self:
        """Describe a source, whose format may follow from the ending of its path.

        Raises
        ------
        InvalidInputError
            See `check_source`; or if the format is not given, and the path does not tell.
        """
        found = cls(form or _hint_of_path(path), path, options, schema)
        found.check_source()
        return found

    def check_source(self) -> None:
        """Nothing, if its format can be read, and it is said where it is.

        Raises
        ------
        InvalidInputError
            Names the formats that can; or says that there is no path, or one where there is a URL.
        """
        if self.format not in SOURCES:
            raise InvalidInputError(
                f"Cannot read {self.format!r}: it is not a format that is known.",
                hint=f"Give one of {', '.join(SOURCES)} as `format`, --format on the command line.",
            )
        if (self.path is None) != (self.format == "jdbc"):
            if self.path is None:
                raise InvalidInputError(
                    f"Cannot read {self.format}: there is no path.", hint="Name a file or folder by --path."
                )
            raise InvalidInputError(
                f"Cannot read the path {self.path!r} by jdbc: it reads none.",
                hint="Leave --path out, and pass --option url=….",
            )

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
        path = None if self.path is None else path_here(self.path)
        if path is None or "HADOOP_CONF_DIR" in os.environ:
            return
        if not WILDCARDS.intersection(path) and not os.path.exists(path):
            raise InvalidInputError(
                f"Cannot read {self.path}: expected a file or folder of {self.format}, found nothing.",
                hint=f"Write the path from the working directory, which is {os.getcwd()}.",
            )

    def check_target(self) -> str:
        """Return the path to write to. Raise if the format cannot be written.

        Raises
        ------
        InvalidInputError
            Names those that can.
        """
        if self.format not in TARGETS or self.path is None:
            raise InvalidInputError(
                f"Cannot write {self.format!r}: expected one of {', '.join(TARGETS)}, and a path.",
                hint=f"Give one of {', '.join(TARGETS)} as --format, and an --output.",
            )
        return self.path

    def resolved(self) -> dict[str, str]:
        """Return the options with values from the environment.

        Raises
        ------
        InvalidInputError
            If a variable is not set.
        """
        return {name: _from_environment(name, value) for name, value in self.options.items()}

    @property
    def is_stream(self) -> bool:
        """Whether this process reads it as `Store.append` does, whatever its size: no option is for Spark.

        Parquet is not, but for `as_arrow`: it is read in the types of Spark, see `why_spark`.
        """
        if self.path is None or self.options or self.schema is not None:
            return False
        if self.format == "jdbc" or (self.format == "parquet" and not self.as_arrow):
            return False
        scheme = SCHEME.match(self.path)
        if scheme is None and "HADOOP_CONF_DIR" in os.environ and not os.path.exists(self.path):
            return False  # a path of the cluster's file system
        return scheme is None or scheme[1].lower() in _OF_ARROW

    @property
    def local_path(self) -> str | None:
        """Where it is, if it is Parquet on a disk of this machine, and is read without options; else None.

        Whether this process reads it as Spark does is said by its files: `why_spark`. ORC does not tell
        instants from times of day.
        """
        if self.format != "parquet" or self.path is None or self.options or self.schema is not None:
            return None
        path = path_here(self.path)
        return path if path is not None and os.path.exists(path) else None

    def why_spark(self) -> str | None:
        """Why it takes Spark; None where this process reads the same rows in the same types.

        Raises
        ------
        InvalidInputError
            If a file is no Parquet.

        Notes
        -----
        Reads the footer of every file.
        """
        if self.local_path is None:
            return "only Parquet on a disk, without options, can be read without it"
        try:
            return why_spark(self.local_path)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self, error) from error


class LocalRows:
    """Rows that this process reads, in the types that they would have in Spark.

    Attributes
    ----------
    schema
        Of the rows.
    """

    def __init__(self, source: External, data: ds.Dataset, schema: pa.Schema) -> None:
        self._source = source
        self._data = data
        self.schema: pa.Schema = schema

    @classmethod
    def of(cls, source: External) -> Self:
        """Open the rows of a source.

        Raises
        ------
        InvalidInputError
            If it takes Spark, or if there is no file that can be read.
        """
        path, why = source.local_path, source.why_spark()
        if path is None or why is not None:
            raise InvalidInputError(
                f"Cannot read {source.path} as {source.format} without Spark: {why}.",
                hint="Pass a `spark` session: `spark_pages.spark.session()`.",
            )
        try:
            data, schema = parquet_files(path, "us"), types_in_spark(path)
        except pa.ArrowException as error:
            raise _unreadable(source, error) from error
        if not schema.names:
            raise _unreadable(source, ValueError("there is no file with columns."))
        return cls(source, data, schema)

    def count(self) -> int:
        """How many there are."""
        return int(self._data.count_rows())

    def expected(self) -> tuple[int, int]:
        """Return how many there are, for progress, and 0 for their bytes; footers tell."""
        return (self.count(), 0) if is_reporting() else (0, 0)

    def write(self, plan: WritePlan) -> list[TaskRows]:
        """They are where a commit can name them."""
        return [write_task(plan, 0, self._batches())]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._data.to_batches():
                yield to_spark(batch, self.schema)
                advance(batch.num_rows, batch.nbytes)
        except pa.ArrowException as error:
            raise _unreadable(self._source, error) from error


class FileRows:
    """Rows of files that this process reads as `Store.append` does; otherwise as `LocalRows`."""

    def __init__(self, source: External) -> None:
        assert source.path is not None
        path = path_here(source.path)
        self._stream = open_files(
            source.path if path is None else path, None if _is_named(source) else source.format
        )
        self.schema: pa.Schema = self._stream.schema

    def count(self) -> int:
        """Read the rows and count them."""
        return sum(batch.num_rows for batch in self._stream)

    def write(self, plan: WritePlan) -> list[TaskRows]:
        """They are where a commit can name them."""
        return [write_task(plan, 0, iter(self._stream))]


def _is_named(source: External) -> bool:
    """Whether the ending of the path names the format, so that ``.tsv`` and compression are seen."""
    try:
        return _hint_of_path(source.path) == source.format
    except InvalidInputError:
        return False


class SparkRows:
    """Rows that executors read; otherwise as `LocalRows`."""

    def __init__(self, spark: SparkSession, source: External) -> None:
        options = {**_STRICT.get(source.format, {}), **source.resolved()}
        reading = spark.read.format(source.format).options(**options)
        try:
            with spark_failing():
                reading = reading if source.schema is None else reading.schema(source.schema)
                self._rows: DataFrame = reading.load(source.path) if source.path else reading.load()
        except InvalidInputError as error:
            raise _unreadable(source, error) from error.__cause__
        self.schema: pa.Schema = schema_of_rows(self._rows.schema)

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        return self._rows

    def count(self) -> int:
        """How many there are."""
        return self._rows.count()

    def expected(self) -> tuple[int, int]:
        """Return 0 rows, and the bytes of the files that Spark has listed.

        Counting the rows would take a query of its own. The bytes are 0 where Spark does not know them.
        """
        if not is_reporting() or not hasattr(self._rows, "_jdf"):
            return 0, 0
        with spark_failing():
            planned = int(self._rows._jdf.queryExecution().analyzed().stats().sizeInBytes())
        return 0, planned if planned < _UNKNOWN_BYTES else 0

    def write(self, plan: WritePlan) -> list[TaskRows]:
        """Write the rows to storage, for a commit to name them.

        Counts one attempt of each task, also after retries and speculation.
        """
        with following_jobs(self._rows.sparkSession, current(), "input"):
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


_UNKNOWN_BYTES = 1 << 60
"""Spark calls a source larger than this of which it knows no size, so that nobody broadcasts it."""


def _unreadable(source: External, error: Exception) -> InvalidInputError:
    said = error.message if isinstance(error, InvalidInputError) else str(error)
    why = next(iter(said.splitlines()), type(error).__name__)
    return InvalidInputError(
        f"Cannot read {source.path or 'a source without a path'} as {source.format}: {why}",
        hint="Check that it is there by `ls`, and that --format and --option are those of it.",
    )


def _from_environment(name: str, value: str) -> str:
    if not value.startswith("env:"):
        return value
    variable = value.removeprefix("env:")
    if variable not in os.environ:
        raise InvalidInputError(
            f"Cannot use option {name}: it is taken from the environment variable {variable}, which "
            "is not set.",
            hint=f"Set it first: `export {variable}=…`.",
        )
    return os.environ[variable]


def _hint_of_path(path: str | None) -> str:
    name = (path or "").rstrip("/").lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    form = _ENDINGS.get(os.path.splitext(name)[1])
    if form is None:
        what = "what is to be read" if path is None else repr(path)
        raise InvalidInputError(
            f"Cannot tell the format of {what}: its name does not end in one that is known.",
            hint=f"Name it by --format ({', '.join(SOURCES)}).",
        )
    return form
