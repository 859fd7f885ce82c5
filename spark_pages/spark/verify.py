"""Verification by Spark: the driver walks the log and its trees, executors read the pages that it chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_pages.maintenance.verify.faults import faults_as_dicts
from spark_pages.maintenance.verify.page_values import PageReader, PagesRead, PagesToRead, PageValues
from spark_pages.maintenance.verify.pages import PagesMode
from spark_pages.maintenance.verify.verify import verify as verify_here
from spark_pages.model.chain_tree import ChainKey
from spark_pages.progress import current
from spark_pages.spark.job import report_as
from spark_pages.spark.serialization import objects_of, pack_with_stats, store_url, unpack_with_stats
from spark_pages.spark.task_counts import TaskCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUND_BYTES = 32 << 20
"""So many bytes of descriptors the driver holds before executors read their pages: some 400,000."""

_TASKS_OF_A_CORE = 8


@report_as("verify")
def verify(
    spark: SparkSession | None,
    url: str,
    pages: PagesMode = "sample",
    profile: str | None = None,
) -> dict[str, Any]:
    """Everything that the log names has been read and compared, as by `Store.verify`.

    Parameters
    ----------
    spark, url, profile
        A session whose executors read the pages, or None for this process alone; and the store.
    pages
        Which pages are read, of all that a kept version can reach: all, a sample of each run of pages, or
        none.

    Returns
    -------
    dict
        ``url``, ``version`` (the newest), ``objects``, ``checkpoints``, ``checkpoints_replayed``, ``pages``,
        ``pages_read``, ``bytes_read``, ``tasks``, ``seconds``, and the faults as of `faults_as_dicts`.

    Notes
    -----
    The driver reads every slot and every object of a checkpoint; of the pages it holds the descriptors of one
    round. Writes nothing.
    """
    address = store_url(url, profile)
    by_executors = None if spark is None else _ByExecutors(spark, address)
    found = verify_here(objects_of(address), pages=pages, page_reader=by_executors)
    return {
        "url": found.url,
        "version": found.version,
        **faults_as_dicts(found.faults),
        "objects": found.objects,
        "checkpoints": found.checkpoints,
        "checkpoints_replayed": found.replayed,
        "num_pages": found.pages,
        "pages_read": found.pages_read,
        "bytes_read": found.bytes_read,
        "tasks": by_executors.tasks if by_executors else 0,
    }


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Pages to read, as they travel."""

    pages: bytes
    stats: bytes
    chain: ChainKey
    holder: str
    column: pa.Field | None


class _ByExecutors(PageReader):
    """Gathers the pages to read, and has executors read a round of them whenever there is enough."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._context = spark.sparkContext
        self._url = url
        self._round: list[_Parcel] = []
        self._round_bytes = 0
        self._done: list[PagesRead] = []
        self._counts: TaskCounts | None = None
        self.tasks = 0

    def read(self, some: PagesToRead) -> None:
        """Read the pages with their round."""
        pages, stats = pack_with_stats(some.run)
        self._round.append(_Parcel(pages, stats, some.chain, some.holder, some.column))
        self._round_bytes += len(pages) + len(stats)
        if self._round_bytes >= ROUND_BYTES:
            self._read_round()

    def finish(self) -> PagesRead:
        """All rounds, together."""
        self._read_round()
        return PagesRead.sum(self._done)

    def _read_round(self) -> None:
        if not self._round:
            return
        tasks = min(len(self._round), _TASKS_OF_A_CORE * self._context.defaultParallelism)
        parcels = self._context.parallelize(self._round, tasks)
        if self._counts is None:
            self._counts = TaskCounts.of(self._context, current())
        self._done += parcels.mapPartitions(_ReadParcels(self._url, self._counts)).collect()
        self.tasks += tasks
        self._round, self._round_bytes = [], 0


@dataclass(frozen=True, slots=True)
class _ReadParcels:
    """What an executor does with its parcels."""

    url: str
    counts: TaskCounts

    def __call__(self, parcels: Iterable[_Parcel]) -> Iterator[PagesRead]:
        values = PageValues(objects_of(self.url))
        for each in parcels:
            run = unpack_with_stats(each.pages, each.stats)
            values.read(PagesToRead(run, each.chain, each.holder, each.column))
        read = values.finish()
        self.counts.add(read.pages, read.bytes)
        yield read
