"""The pages of a reconstruction as a frame of Spark: computed by executors, nothing of it by the driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.page_schema import LOCATION_COLUMNS, STATS_SCHEMA
from spark_pages.progress import current
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.task_counts import TaskCounts, following_jobs
from spark_pages.spark.tasks import DESCRIPTOR, ROWS_SCHEMA, CommitRows, SegmentRows

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession


class SparkPages:
    """A row for each page that a segment or commit holds and that is still there.

    Parameters
    ----------
    tasks
        What executors do.
    removed : int64
        Ids of the pages that are gone, sorted.
    places
        Orders pages without rows that stand at one row: ``page_id`` and ``place``.
    """

    def __init__(
        self,
        spark: SparkSession,
        tasks: Sequence[SegmentRows | CommitRows],
        removed: NDArray[np.int64],
        places: pa.Table | None,
    ) -> None:
        self._spark = spark
        self._tasks = tasks
        self._removed = spark.sparkContext.broadcast(removed)
        self._places = places
        self._written: OutputFolder | None = None

    def write(self, folder: OutputFolder) -> int:
        """Write the descriptors in the order of chains and rows, and return the bytes."""
        self._written = folder
        with following_jobs(self._spark, current(), "output"):
            return folder.write(self._frame(None).orderBy(*ORDER).drop("has_rows", "place"))

    def compared(self) -> pa.Table:
        """Return the columns that `comparison.differences` compares."""
        return self._frame(self._counts()).select(*ORDER, *COMPARED).toArrow()

    def count(self) -> int:
        """Count the descriptors: those written, or all of them without sending them to the JVM."""
        if self._written is not None:
            return self._spark.read.format(self._written.form).load(self._written.path).count()
        if not self._tasks:
            return 0
        context = self._spark.sparkContext
        count = _Count(self._removed, self._counts())
        return int(context.parallelize(self._tasks, len(self._tasks)).map(count).sum())

    def _counts(self) -> TaskCounts:
        return TaskCounts.of(self._spark.sparkContext, current())

    def _frame(self, counts: TaskCounts | None) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        packed = [(pickle.dumps(task),) for task in self._tasks]
        spread = self._spark.sparkContext.parallelize(packed, max(len(packed), 1))
        names = self._spark.createDataFrame(spread, "task binary")
        pages = names.mapInArrow(_Run(self._removed, counts), from_arrow_schema(ROWS_SCHEMA))
        pages = pages.withColumn("has_rows", f.expr("entry_count > 0"))
        if self._places is None:
            return pages.withColumn("place", f.lit(0))
        known = f.broadcast(self._spark.createDataFrame(self._places))
        return pages.join(known, "page_id", "left").fillna(0, ["place"])


@dataclass(frozen=True, slots=True)
class _Count:
    """What an executor does with a task whose rows nobody wants to have."""

    removed: Broadcast[NDArray[np.int64]]
    counts: TaskCounts

    def __call__(self, task: SegmentRows | CommitRows) -> int:
        num_rows = 0
        for batch in task.rows(self.removed.value):
            num_rows += batch.num_rows
            self.counts.add(batch.num_rows, batch.nbytes)
        return num_rows


@dataclass(frozen=True, slots=True)
class _Run:
    """What an executor does with a task; of a frame that is sorted, and so computed twice, nobody counts."""

    removed: Broadcast[NDArray[np.int64]]
    counts: TaskCounts | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for packed in (packed for batch in batches for packed in batch.column(0).to_pylist()):
            for rows in pickle.loads(packed).rows(self.removed.value):  # noqa: S301 - of our own driver
                yield rows
                if self.counts is not None:
                    self.counts.add(rows.num_rows, rows.nbytes)


ORDER = ["table_id", "field_id", "first_row", "has_rows", "place"]
"""Pages without rows stand before the page that begins at the same row; among themselves, by place."""

COMPARED = ["page_id", *(f.name for f in DESCRIPTOR if f.name not in ("page_id", *LOCATION_COLUMNS))]
"""All of a descriptor but where the page is."""


def differences(found: pa.Table, local: LogSnapshot, chains: Iterable[ChainKey]) -> list[str]:
    """Chains whose descriptors, or whose order or first rows, are not those of the local snapshot."""
    found = found.combine_chunks().sort_by([(name, "ascending") for name in ORDER])
    keys = (found.column("table_id").to_numpy() << 32) | found.column("field_id").to_numpy()
    differing = []
    expected_keys = sorted({*local.chain_keys(), *chains})
    for table_id, field_id in expected_keys:
        key = (table_id << 32) | field_id
        start, stop = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        mine = found.slice(start, stop - start)
        run = local.chain((table_id, field_id)).all_pages()
        theirs = {
            name: (run.stats if name in STATS_SCHEMA.names else run.pages).column(name) for name in COMPARED
        }
        theirs["first_row"] = pa.array(run.prefix_entries.astype(np.int64) - run.numbers("entry_count"))
        if not all(mine.column(name).combine_chunks().equals(theirs[name]) for name in theirs):
            differing.append(f"table {table_id} field {field_id}: {mine.num_rows} and {run.num_pages} pages")
    if found.num_rows != sum(local.chain(key).num_pages for key in expected_keys):
        differing.append("pages of chains that are not live")
    return differing
