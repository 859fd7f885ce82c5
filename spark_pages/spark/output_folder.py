"""Folders that jobs write: there whole, or not there.

Spark writes into the folder that it is told, file by file: two jobs at once leave the rows of both, and one
that is killed leaves a part. So a job writes beside it, under a name of its own, and renames. A Delta table
that is there already needs none of that: its log says what belongs to it, and keeps the versions before. Nor
does one on an object store, where to rename is to copy.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_pages.errors import InvalidInputError, StorageError
from spark_pages.query.output_files import ENDINGS, format_of_name, replacing, write_batches
from spark_pages.runtime import Runtime
from spark_pages.storage.factory import folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LOCAL = "file"
SCHEME = re.compile(r"(file(?=:/)|[a-z][a-z0-9+.-]*(?=://)):", re.IGNORECASE)
"""What an address begins with that is no path."""

_RENAMING = (LOCAL, "hdfs")
"""Where to rename a folder is one step, and no copy."""

_AS_HERE = {"csv": {"header": "true"}}
"""Options of Spark for files like those of this process."""

_SAME_STORAGE = {
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs", "adl", "azure"), "az"),
    "gcs": "gs",
}


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """Where the rows of a job go.

    Attributes
    ----------
    form
        ``parquet``, ``delta``, ``csv``, ``json``, ``orc`` or ``ipc``.
    path
        The folder, as Spark takes it; or a file of this machine, see `is_file`.
    overwrite
        Whether what is there goes; else it must not be there.
    options
        For Spark's writer.
    """

    form: str
    path: str
    overwrite: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self, store: str) -> None:
        """Nothing, if rows of the store at this address can be written here.

        Raises
        ------
        InvalidInputError
            If the folder and the store have anything in common: what is overwritten is deleted. On this
            machine also if there is something else than a folder, or if what is there must stay.
        """
        mine, its = place_of(self.path), place_of(folder_of(store) or store)
        if all(one == other for one, other in zip(mine, its, strict=False)):
            how = "is" if mine == its else "lies in" if len(mine) > len(its) else "contains"
            raise InvalidInputError(
                f"Cannot write rows into {self.path}: it {how} the store at {store}. Nothing was changed.",
                hint=f"Name a folder outside of {store}.",
            )
        named = path_here(self.path)
        if named is None or not os.path.lexists(named):
            return
        if self.is_file and os.path.isfile(named) and not os.path.islink(named):
            if not self.overwrite:
                raise self._taken()
            return
        if os.path.islink(named) or not os.path.isdir(named):
            what = "a link" if os.path.islink(named) else "a file"
            raise InvalidInputError(
                f"Cannot write rows into {self.path}: it is {what}, and not a folder. Nothing was changed.",
                hint=f"Name a folder, or a place where nothing is, in place of {self.path}.",
            )
        if not self.overwrite:
            raise self._taken()

    def write(self, rows: DataFrame) -> int:
        """Write the rows to the folder, and return its size in bytes.

        Raises
        ------
        InvalidInputError
            If something is there, now or by the time all is written, and must stay.

        Notes
        -----
        A job that is killed leaves a folder ``_NAME-TOKEN`` beside it, which nobody needs; if what is
        overwritten bears that name with ``-old`` behind it by then, it is whole. Renaming takes one step on
        local disks and HDFS; an object store copies, and there two jobs at once must not have one folder.
        """
        spark = rows.sparkSession
        target = _path(spark, self.path)
        files = target.getFileSystem(_conf(spark))
        if not self.overwrite and files.exists(target):
            raise self._taken()
        writing = rows.write.format(self.form).options(**{**_AS_HERE.get(self.form, {}), **self.options})
        if self.form == "delta" and (files.getScheme() not in _RENAMING or _is_delta(spark, files, target)):
            writing.mode("overwrite" if self.overwrite else "errorifexists").save(str(target))
            return _size_bytes(spark, files, target)
        unfinished = _path(spark, f"{target.getParent()}/_{target.getName()}-{Runtime().token()}")
        try:
            writing.save(str(unfinished))
            size_bytes = _size_bytes(spark, files, unfinished)
            self._move(spark, files, unfinished, target)
        finally:
            with suppress(Exception):  # it is gone where all went well; what went wrong is told already
                files.delete(unfinished, True)
        return size_bytes

    def write_here(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the rows by this process, as one file or a Delta table, and return its bytes.

        Raises
        ------
        InvalidInputError
            As of `write`; or if this takes Spark: another form, another place than a folder, options.
        StorageError
            If the disk refuses.
        """
        target = path_here(self.path)
        if not self.is_local or target is None:
            raise InvalidInputError(
                f"Cannot write {self.path} as {self.form} without Spark: only Spark writes it.",
                hint="Pass a `spark` session: `spark_pages.spark.session()`, or write to a folder of this "
                "machine without options.",
            )
        if self.is_file:
            with replacing(target, self.overwrite) as unfinished:
                return write_batches(unfinished, self.form, schema, batches)
        if os.path.lexists(target) and not self.overwrite:
            raise self._taken()
        if self.form == "delta" and os.path.isdir(os.path.join(target, "_delta_log")):
            return self._write_delta(target, schema, batches)
        above, name = os.path.split(target)
        unfinished = os.path.join(above, f"_{name}-{Runtime().token()}")
        try:
            os.makedirs(unfinished)
        except OSError as error:
            raise InvalidInputError(
                f"Cannot write to {self.path}: {error.strerror}.",
                hint=f"Name another folder in place of {self.path}.",
            ) from error
        try:
            if self.form == "delta":
                size_bytes = self._write_delta(unfinished, schema, batches)
            else:
                file = os.path.join(unfinished, f"part-00000{ENDINGS[self.form][0]}")
                size_bytes = write_batches(file, self.form, schema, batches)
            self._move_here(unfinished, target)
        except OSError as error:
            raise self._unwritten(error) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return size_bytes

    def _write_delta(self, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import DeltaError

        rows = pa.RecordBatchReader.from_batches(schema, batches)
        try:
            write_deltalake(folder, rows, mode="overwrite", schema_mode="overwrite")
            sizes = pa.table(DeltaTable(folder).get_add_actions()).column("size_bytes")
        except DeltaError as error:
            raise StorageError(
                f"Cannot write rows to {self.path}: {str(error).splitlines()[0]}.",
                hint="Check by `df` that the disk has room, and that no other job writes to it.",
            ) from error
        return sum(sizes.to_pylist())

    @property
    def is_file(self) -> bool:
        """Whether the path is one of a file: its ending is that of the format, and no folder has the name."""
        path = path_here(self.path)
        if path is None or self.form == "delta" or os.path.isdir(path):
            return False
        return format_of_name(path) == self.form

    @property
    def takes_no_spark(self) -> bool:
        """Whether only this process writes it: a single file, or Arrow IPC."""
        return self.is_file or self.form == "ipc"

    @property
    def is_local(self) -> bool:
        """Whether one process can write it without Spark."""
        scheme = SCHEME.match(self.path)
        here = scheme is None or scheme[1].lower() == LOCAL
        return here and not self.options and (self.form != "delta" or find_spec("deltalake") is not None)

    def _move(self, spark: SparkSession, files: Any, unfinished: Any, target: Any) -> None:
        if files.getScheme() == "file":  # Hadoop copies where Linux would refuse
            try:
                return self._move_here(unfinished.toUri().getPath(), target.toUri().getPath())
            except OSError as error:
                raise self._unwritten(error) from error
        if self.overwrite:
            files.delete(target, True)
        try:
            hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
            context = hadoop.FileContext.getFileContext(files.getUri(), _conf(spark))
            context.rename(unfinished, target, spark._sc._gateway.new_array(hadoop.Options.Rename, 0))  # type: ignore[union-attr]
        except Exception:  # Py4J's, where the JVM renames
            if not files.exists(target):
                raise
            raise self._taken() from None

    def _move_here(self, unfinished: str, target: str) -> None:
        """Rename a local folder, and first remove the old one, because deleting takes a while."""
        old = f"{unfinished}-old"
        if self.overwrite:
            with suppress(FileNotFoundError):
                os.rename(target, old)
        refused = None
        try:
            os.rename(unfinished, target)
        except OSError:
            if not os.path.lexists(target):
                if os.path.lexists(old):
                    os.rename(old, target)
                raise
            refused = self._taken()
        shutil.rmtree(old, ignore_errors=True)
        if refused is not None:
            raise refused

    def _unwritten(self, error: OSError) -> StorageError:
        return StorageError(
            f"Cannot write rows to {self.path}: {error}.",
            hint="Check by `df` that the disk has room, and that it can be written to.",
        )

    def _taken(self) -> InvalidInputError:
        return InvalidInputError(
            f"Cannot write to {self.path}: it is there already, and nothing in it was changed.",
            hint="Name another folder, or replace what is there by --overwrite.",
        )


def place_of(address: str) -> tuple[str, ...]:
    """Where an address leads, step by step: two that have a step for step common beginning lie in each other.

    Hadoop and we have several schemes for one object store. A path without a scheme is taken for one of this
    machine, links resolved.
    """
    path = path_here(address)
    if path is not None:
        return (LOCAL, *os.path.realpath(path).split(os.sep)[1:])
    kind, _, rest = address.partition(":")
    host, *steps = [step for step in rest.split("/") if step and step != "."]
    return (_SAME_STORAGE.get(kind.lower(), kind.lower()), host.partition("@")[0], *steps)


def path_here(address: str) -> str | None:
    """Return the absolute local path of an address of Spark; None for other storage.

    Hadoop calls ``/data`` ``file:/data`` too, and takes every sign of it as it stands.
    """
    scheme = SCHEME.match(address)
    if scheme is None:
        return os.path.abspath(os.path.expanduser(address))
    return "/" + address[scheme.end() :].lstrip("/") if scheme[1].lower() == LOCAL else None


def _size_bytes(spark: SparkSession, files: Any, folder: Any) -> int:
    """Of the rows in it: what was there before is still in a Delta table, for its older versions."""
    if _is_delta(spark, files, folder):
        return int(spark.sql(f"describe detail delta.`{folder}`").collect()[0]["sizeInBytes"])
    return int(files.getContentSummary(folder).getLength())


def _is_delta(spark: SparkSession, files: Any, folder: Any) -> bool:
    return bool(files.exists(_path(spark, f"{folder}/_delta_log")))


def _path(spark: SparkSession, path: str) -> Any:
    """Return the absolute folder and its file system."""
    made = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return made.getFileSystem(_conf(spark)).makeQualified(made)


def _conf(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()
