"""The data source ``spark_pages``: what ``spark.read.format("spark_pages")`` makes of its options.

Start at `SparkPagesDataSource`, which pins a version. Rows are read in `rows`, metadata in `views`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.catalog.resolve import check_columns
from spark_pages.errors import InvalidInputError
from spark_pages.spark.arrow_types import spark_schema
from spark_pages.spark.rows import RowsReader
from spark_pages.spark.shipping import store_url
from spark_pages.spark.views import VIEWS, ViewReader
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.store import open as open_store
from spark_pages.tables.table import Table


class SparkPagesDataSource(DataSource):
    """``spark.read.format("spark_pages")``.

    Notes
    -----
    The path is the address of the store. Options: ``view`` (``rows``, the default; ``pages``, ``history``,
    ``tables``), ``table``, ``versionAsOf``, ``timestampAsOf`` (ISO 8601), ``tag``, ``columns`` (names
    parted by commas: Spark does not tell a Python source which columns it needs), ``partitions``.
    Credentials come from the environment of driver and executors, never from options.

    The version is pinned here, by ``load``: Spark makes one source for a frame, but a reader for each plan.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._url = self._store_url()
        self._view = self._named_view()
        self._partitions = self._number("partitions") or 0
        self._snapshot: Snapshot | None = open_store(self._url).snapshot(
            version=self._number("versionAsOf"),
            timestamp=self.options.get("timestampAsOf"),
            tag=self.options.get("tag"),
        )
        self._version = self._snapshot.version

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}  # the version travels, not what was loaded of it

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "spark_pages"

    def schema(self) -> StructType:
        """Columns of the view, in Spark's types."""
        if self._view != "rows":
            return from_arrow_schema(spark_schema(VIEWS[self._view].schema))
        table = self._table()
        names = check_columns(table.definition, self._columns())
        return from_arrow_schema(spark_schema(pa.schema([table.schema.field(name) for name in names])))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the version that was pinned."""
        if self._view == "rows":
            return RowsReader(self._url, self._table(), schema, self._partitions)
        return ViewReader(self._url, self._view, self._version, self.options.get("table"), schema)

    def _table(self) -> Table:
        name = self.options.get("table")
        if not name:
            raise InvalidInputError(
                "The view 'rows' needs a table.", hint='Name it with .option("table", "…").'
            )
        snapshot = self._snapshot or open_store(self._url).snapshot(self._version)
        return snapshot.table(name)

    # options

    def _store_url(self) -> str:
        url = self.options.get("path")
        if not url:
            raise InvalidInputError("No store was named.", hint="Pass its address to load(...).")
        return store_url(url)

    def _named_view(self) -> str:
        view = str(self.options.get("view", "rows")).lower()
        if view != "rows" and view not in VIEWS:
            raise InvalidInputError(f"{view!r} is not a view: expected rows, {', '.join(VIEWS)}.")
        return view

    def _number(self, option: str) -> int | None:
        text = self.options.get(option)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise InvalidInputError(f"{option} is {text!r}: expected a number from 0, such as 7.")
        return int(text)

    def _columns(self) -> list[str] | None:
        given = self.options.get("columns") or ""
        return [name.strip() for name in given.split(",") if name.strip()] or None
