"""Delete the rows of a table whose keys are in a source of any size, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spark_pages.arguments import as_flag, as_str
from spark_pages.catalog.resolve import find_columns
from spark_pages.errors import InvalidInputError
from spark_pages.progress import phase
from spark_pages.query.scan import ROW
from spark_pages.spark.external import External, SparkRows
from spark_pages.spark.job import check_session, report_as
from spark_pages.spark.options import quoted_columns
from spark_pages.spark.serialization import store_of, store_url
from spark_pages.spark.source import SparkPagesDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_pages.query.table import Table


@report_as("delete_rows")
def delete_rows(
    spark: SparkSession,
    url: str,
    table: str,
    keys: External | DataFrame,
    *,
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """Delete the rows of a table whose values in some columns are in a source, by one commit.

    Parameters
    ----------
    spark, url, profile
        A session, and the store.
    table
        Its name.
    keys
        A frame, or what to read. Each of its columns is one of the table, in any case; a row of the table is
        deleted if some row of the source has its values in all of them. Null is equal to nothing, as in SQL.
    dry_run
        Whether to count the rows only.

    Returns
    -------
    dict
        ``ok``, ``table``, ``num_rows``, ``version`` (of the commit; the one that was read, if there is no
        row), ``seconds``.

    Raises
    ------
    TableNotFoundError, ColumnNotFoundError, InvalidInputError
    CommitConflictError
        If others changed one of the rows meanwhile.

    Notes
    -----
    Reads these columns of the table, and joins on executors. The driver holds 8 bytes for each deleted row.
    """
    check_session(spark)
    if spark is None:
        raise InvalidInputError(
            "Cannot delete rows by a source: that takes a session of Spark.",
            hint="Pass `spark_pages.spark.session()`.",
        )
    dry_run = as_flag(dry_run, "dry_run")
    store = store_of(store_url(url, profile))
    snapshot = store.snapshot()
    target = snapshot.table(as_str(table, "table"))
    frame = SparkRows(spark, keys).frame if isinstance(keys, External) else keys
    names = _key_columns(target, frame.columns)
    phase(f"looking for the rows of {target.name}")
    spark.dataSource.register(SparkPagesDataSource)
    reading = spark.read.format(SparkPagesDataSource.name()).option("table", target.name)
    reading = reading.option("versionAsOf", snapshot.version).option("rowNumbers", "true")
    reading = reading if profile is None else reading.option("profile", profile)
    rows = _matching(reading.option("columns", quoted_columns(names)).load(url), frame.toDF(*names))
    told: dict[str, Any] = {"table": target.name, "num_rows": len(rows), "version": snapshot.version}
    if dry_run:
        return {**told, "dry_run": True}
    phase("committing")
    with store.transaction(operation="delete rows", read_version=snapshot.version) as txn:
        txn.delete(target.name, rows)
    return told if txn.version is None else {**told, "version": txn.version}


def _key_columns(table: Table, columns: list[str]) -> list[str]:
    """Return the columns of the table that a source names."""
    names = list(find_columns(table.definition, columns))
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(
            f"Cannot delete rows of table {table.name!r} by the columns {columns!r}: expected some of its "
            "columns, each once.",
            hint="Select the key columns of the source by `select(…)`.",
        )
    return names


def _matching(rows: DataFrame, keys: DataFrame) -> np.ndarray[Any, Any]:
    """Find the numbers of the rows whose values are among the keys, in order."""
    found = rows.join(keys.dropDuplicates(), on=keys.columns, how="left_semi").select(ROW).toArrow()
    numbers: np.ndarray[Any, Any] = found.column(0).combine_chunks().to_numpy()
    return np.sort(numbers)
