"""Table functions for SQL: ``select * from spark_pages_history('s3://…')``. Registered by `session`.

They are Python table functions, as far as Spark has them: arguments may be named, they run on an executor, in
one task, and a literal address is enough. For large results read the views of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import udtf
from pyspark.sql.pandas.types import from_arrow_schema

from spark_pages.changes.feed import find_either
from spark_pages.changes.history import HISTORY_SCHEMA
from spark_pages.errors import InvalidInputError
from spark_pages.query.table_names import spelled
from spark_pages.spark.arrow_types import spark_schema
from spark_pages.spark.feed import FEED_SCHEMAS, Feed, version_range
from spark_pages.spark.serialization import store_of, store_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class History:
    """A row for each transaction and each upkeep of the log, newest first."""

    def eval(
        self, url: str | None, limit: int | None = None, profile: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Those of the newest `limit` versions, or all."""
        yield from _rows(store_of(_address(url, profile)).history(limit))


class Changes:
    """What the versions from `first` to `last`, both included, did to the rows of each column."""

    def eval(
        self,
        url: str | None,
        first: int | None = None,
        last: int | None = None,
        table: str | None = None,
        profile: str | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """By default of all versions that can be read, and of all tables."""
        address = _address(url, profile)
        store = store_of(address)
        start, end = version_range(store.snapshot().log, first, last)
        table_id: int | None = None
        if table is not None:
            now = store.snapshot(end)
            then = store.snapshot(start).log if start >= 0 else None
            table_id = find_either(now.log, then, spelled(now, table.split(".")))
        yield from _rows(Feed(address, "rows", table_id).read(start, end))


def register(spark: SparkSession) -> None:
    """SQL of the session knows ``spark_pages_history`` and ``spark_pages_changes``."""
    for name, function, schema in (
        ("spark_pages_history", History, HISTORY_SCHEMA),
        ("spark_pages_changes", Changes, FEED_SCHEMAS["rows"]),
    ):
        made: Any = udtf(function, returnType=from_arrow_schema(spark_schema(schema)))
        spark.udtf.register(name, made)


def _address(url: str | None, profile: str | None) -> str:
    if url is None:  # what SQL gives is not checked before
        raise InvalidInputError("The address of the store is NULL.", hint="Give its URL as text.")
    return store_url(url, profile)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=4096):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
