"""SQL statements that Spark accepts for a Python data source, and then does not carry out.

``CREATE TABLE … USING spark_pages`` makes a table of which Spark passes no options on, so that nobody can
read or write it; and after an ``INSERT`` into a temporary view the view still shows the rows from before. A
session of `spark_pages.spark.session` refuses the former, and shows the new rows after the latter.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any

from spark_pages.errors import InvalidInputError
from spark_pages.spark.failures import spark_failing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_INTEREST = re.compile(r"(?i)\b(?:create|replace|insert)\b")
_TABLES_MADE = {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
_FORMAT = "spark_pages"


def follow_statements(spark: SparkSession) -> None:
    """Have ``spark.sql`` look at statements of a session first; a session of Spark Connect stays as it is."""
    plain = spark.sql
    if hasattr(plain, "__wrapped__") or not hasattr(spark, "_jsparkSession"):
        return

    @wraps(plain)
    def sql(sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:
        plan = _parsed(spark, sqlQuery)
        kind = None if plan is None else plan.getClass().getSimpleName()
        if kind in _TABLES_MADE:
            _check_format(plan)
        view = _View.of(spark, plan) if kind == "InsertIntoStatement" else None
        done = plain(sqlQuery, *args, **kwargs)
        if view is not None:
            view.load_again()
        return done

    setattr(spark, "sql", sql)  # noqa: B010 - a method of this session alone


def _parsed(spark: SparkSession, text: str) -> Any:
    """Parse a statement of interest to an unresolved plan; None for any other."""
    if not isinstance(text, str) or not _OF_INTEREST.search(text):
        return None
    try:
        return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Exception:  # noqa: BLE001 - Spark itself tells what is wrong with it
        return None


def _check_format(plan: Any) -> None:
    provider = plan.tableSpec().provider()
    if provider.isDefined() and provider.get().lower() == _FORMAT:
        raise InvalidInputError(
            "Cannot create a table of Spark's catalog USING spark_pages: Spark 4.2 passes none of its "
            "options on to a Python data source.",
            hint="Use CREATE TEMPORARY VIEW … USING spark_pages OPTIONS (…); create a table of the store by "
            "the option createTable of a write.",
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
    def of(cls, spark: SparkSession, insert: Any) -> _View | None:
        """Return the view that rows are inserted into; None for any other target."""
        target = insert.table()
        if target.getClass().getSimpleName() != "UnresolvedRelation":
            return None
        names = target.multipartIdentifier()
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
