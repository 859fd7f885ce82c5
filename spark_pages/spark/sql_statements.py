"""Calls that Spark accepts for a Python data source, and then does not carry out.

``CREATE TABLE … USING spark_pages`` and ``saveAsTable`` make a table of which Spark passes no options on, so
that nobody can read it; and after an ``INSERT`` into a temporary view the view still shows the rows from
before. The source cannot tell, because the same reaches it in a plain write. `follow_statements` refuses the
former, and shows the new rows after the latter, in all sessions of this process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from spark_pages.errors import InvalidInputError
from spark_pages.spark.failures import spark_failing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, DataFrameWriterV2, SparkSession

_OF_INTEREST = re.compile(r"(?i)\b(?:create|replace|insert)\b")
_TABLES_MADE = {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
_FORMAT = "spark_pages"
_FOLLOWED = "__followed_by_spark_pages__"


def follow_statements(spark: SparkSession) -> None:
    """Look at statements and writes of all sessions of this process first.

    Notes
    -----
    Replaces methods of pyspark's classes, once: sessions that Spark makes later, and those that it returns as
    active, are other objects. Spark Connect has classes of its own, which stay as they are.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    from pyspark.sql import DataFrameWriter, DataFrameWriterV2, SparkSession

    _follow(SparkSession, "sql", _sql)
    _follow(DataFrameWriter, "insertInto", _insert_into)
    _follow(DataFrameWriter, "save", _save)
    _follow(DataFrameWriter, "saveAsTable", _save_as_table)
    _follow(DataFrameWriterV2, "using", _using)


def _follow(kind: type, name: str, around: Callable[..., Any]) -> None:
    plain = getattr(kind, name)
    if hasattr(plain, _FOLLOWED):
        return

    @wraps(plain)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(plain, self, *args, **kwargs)

    setattr(call, _FOLLOWED, True)
    setattr(kind, name, call)


def _sql(
    plain: Callable[..., DataFrame], spark: SparkSession, sqlQuery: str, *args: Any, **kwargs: Any
) -> DataFrame:
    plan = _parsed(spark, sqlQuery)
    kind = None if plan is None else plan.getClass().getSimpleName()
    if kind in _TABLES_MADE:
        provider = plan.tableSpec().provider()
        _check_creates_no_table(provider.get() if provider.isDefined() else None)
    view = _View.of_insert(spark, plan) if kind == "InsertIntoStatement" else None
    done = plain(spark, sqlQuery, *args, **kwargs)
    if view is not None:
        view.load_again()
    return done


def _insert_into(
    plain: Callable[..., None], writer: DataFrameWriter, tableName: str, *args: Any, **kwargs: Any
) -> None:
    view = _View.of_name(writer._spark, tableName)
    plain(writer, tableName, *args, **kwargs)
    if view is not None:
        view.load_again()


def _save(
    plain: Callable[..., None],
    writer: DataFrameWriter,
    path: str | None = None,
    format: str | None = None,
    mode: str | None = None,
    partitionBy: str | list[str] | None = None,
    **options: Any,
) -> None:
    java = writer._jwrite
    parted = partitionBy is not None or java.partitioningColumns().isDefined()
    parted = parted or java.bucketColumnNames().isDefined() or java.clusteringColumns().isDefined()
    if parted and _is_ours(format or java.source()):
        raise InvalidInputError(
            "Cannot write a table of spark_pages in parts by columns: its tables have no partitions, buckets "
            "or clusters.",
            hint="Leave `partitionBy`, `bucketBy` and `clusterBy` out, and sort the frame by the columns "
            "that filters name: statistics of pages then prune the rest.",
        )
    plain(writer, path, format, mode, partitionBy, **options)


def _save_as_table(
    plain: Callable[..., None],
    writer: DataFrameWriter,
    name: str,
    format: str | None = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    _check_creates_no_table(format or writer._jwrite.source())
    plain(writer, name, format, *args, **kwargs)


def _using(
    plain: Callable[..., DataFrameWriterV2], writer: DataFrameWriterV2, provider: str
) -> DataFrameWriterV2:
    _check_creates_no_table(provider)
    return plain(writer, provider)


def _parsed(spark: SparkSession, text: str) -> Any:
    """Parse a statement of interest to an unresolved plan; None for any other."""
    if not isinstance(text, str) or not _OF_INTEREST.search(text):
        return None
    return _parse(spark, "parsePlan", text)


def _parse(spark: SparkSession, what: str, text: str) -> Any:
    try:
        return getattr(spark._jsparkSession.sessionState().sqlParser(), what)(text)
    except Exception:  # noqa: BLE001 - Spark itself tells what is wrong with it
        return None


def _is_ours(provider: str | None) -> bool:
    return provider is not None and provider.lower() == _FORMAT


def _check_creates_no_table(provider: str | None) -> None:
    if _is_ours(provider):
        raise InvalidInputError(
            "Cannot create a table of Spark's catalog USING spark_pages: Spark 4.2 passes none of its "
            "options on to a Python data source.",
            hint="Use CREATE TEMPORARY VIEW … USING spark_pages OPTIONS (…); create a table of the store by "
            "the option createTable of a write, and `save(…)`.",
        )


class _View:
    """A temporary view that is a load of this format.

    Parameters
    ----------
    name, is_global
        Its name, and whether other sessions see it.
    options
        Of the load.
    """

    def __init__(self, spark: SparkSession, name: str, is_global: bool, options: dict[str, str]) -> None:
        self._spark = spark
        self._name = name
        self._is_global = is_global
        self._options = options

    @classmethod
    def of_insert(cls, spark: SparkSession, insert: Any) -> _View | None:
        """Return the view that a statement inserts rows into; None for any other target."""
        target = insert.table()
        if target.getClass().getSimpleName() != "UnresolvedRelation":
            return None
        return cls._of_names(spark, target.multipartIdentifier())

    @classmethod
    def of_name(cls, spark: SparkSession, name: str) -> _View | None:
        """Return the view of a name as in SQL; None where it names anything else."""
        names = _parse(spark, "parseMultipartIdentifier", name)
        return None if names is None else cls._of_names(spark, names)

    @classmethod
    def _of_names(cls, spark: SparkSession, names: Any) -> _View | None:
        parts = [names.apply(index) for index in range(names.size())]
        catalog = spark._jsparkSession.sessionState().catalog()
        is_global = len(parts) == 2 and parts[0].lower() == catalog.globalTempDatabase()
        if len(parts) != 1 and not is_global:
            return None
        found = catalog.getRawGlobalTempView(parts[1]) if is_global else catalog.getRawTempView(parts[0])
        shown = found.get().plan() if found.isDefined() else found
        if not shown.isDefined():
            return None
        relation = shown.get()
        if (
            relation.getClass().getSimpleName() != "DataSourceV2Relation"
            or relation.table().name() != _FORMAT
        ):
            return None
        return cls(spark, parts[-1], is_global, dict(relation.options().asCaseSensitiveMap()))

    def load_again(self) -> None:
        """Show the newest version."""
        with spark_failing():
            rows = self._spark.read.format(_FORMAT).options(**self._options).load()
            if self._is_global:
                rows.createOrReplaceGlobalTempView(self._name)
            else:
                rows.createOrReplaceTempView(self._name)
