"""Verification by Spark: the log and its trees by the driver, the pages of a version by executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_pages.outcome import told_as
from spark_pages.progress import phase
from spark_pages.runtime import Runtime
from spark_pages.spark.shipping import objects_of, store_of, store_url
from spark_pages.spark.stretches import Stretch, stretches_of
from spark_pages.tables.snapshot import Snapshot
from spark_pages.upkeep.faults import Fault, Findings, told_faults
from spark_pages.upkeep.names import TableNames
from spark_pages.upkeep.pages import PageCheck, PagesMode
from spark_pages.upkeep.verify import SAMPLE_FRACTION
from spark_pages.upkeep.verify import verify as verify_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES_OF_A_TASK = 4096


@dataclass(frozen=True, slots=True)
class _Checked:
    """What one task has found."""

    faults: tuple[Fault, ...]
    pages_read: int
    bytes_read: int


@told_as("verify")
def verify(
    spark: SparkSession | None,
    url: str,
    version: int | None = None,
    pages: PagesMode = "all",
    profile: str | None = None,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """The log, all checkpoints, and every page of a version have been read and compared.

    Parameters
    ----------
    spark, url, profile
        A session, or None for this process alone; and the store.
    version
        Whose pages are read; the newest by default.
    pages
        Which pages are read: all, a sample of each stretch, or none.
    dry_run
        Only tell how many pages there are to be read.

    Returns
    -------
    dict
        ``version``, ``objects``, ``pages``, ``pages_read``, ``bytes_read``, ``tasks``, ``seconds``, and the
        faults as `told_faults` tells them.

    Notes
    -----
    The driver reads every slot and object of a checkpoint, as `Store.verify` does; executors read the pages,
    each of some columns, with the segments that describe them. Writes nothing.
    """
    url = store_url(url, profile)
    snapshot = store_of(url).snapshot(version)
    if dry_run:
        return {"dry_run": True, "version": snapshot.version, "pages": num_pages(snapshot)}
    found = verify_here(objects_of(url), Runtime(), pages="none")
    stretches = list(stretches_of(snapshot, _all_tables(snapshot), PAGES_OF_A_TASK))
    phase(f"reading pages of version {snapshot.version}")
    check = _CheckPages(url, snapshot.version, pages)
    if spark is None:
        tasks, told = 0, list(check(stretches))
    else:
        tasks = max(1, min(len(stretches), 8 * spark.sparkContext.defaultParallelism))
        told = spark.sparkContext.parallelize(stretches, tasks).mapPartitions(check).collect()
    faults = dict.fromkeys(found.faults) | {fault: None for each in told for fault in each.faults}
    return {
        **told_faults(faults),
        "version": snapshot.version,
        "objects": found.objects,
        "pages": found.pages,
        "pages_read": sum(each.pages_read for each in told),
        "bytes_read": found.bytes_read + sum(each.bytes_read for each in told),
        "tasks": tasks,
    }


def num_pages(snapshot: Snapshot) -> int:
    """Pages of all tables of a version."""
    tables = map(snapshot.table, _all_tables(snapshot))
    return sum(each.directory.chain(column).num_pages for each in tables for column in each.columns)


def _all_tables(snapshot: Snapshot) -> list[str]:
    return [*snapshot.tables(), "system.catalog"]


@dataclass(frozen=True, slots=True)
class _CheckPages:
    """What an executor does with its stretches."""

    url: str
    version: int
    pages: PagesMode

    def __call__(self, stretches: Iterable[Stretch]) -> Iterator[_Checked]:
        snapshot = store_of(self.url).snapshot(self.version)
        names, findings = TableNames(), Findings()
        check = PageCheck(objects_of(self.url), findings, names, self.pages, SAMPLE_FRACTION, 0, {})
        for stretch in stretches:
            table = snapshot.table(stretch.table)
            names.learn([table.definition])
            key = (table.definition.table_id, table.definition.field_ids[stretch.column])
            pages = table.directory.stretch(stretch.column, stretch.start, stretch.stop)
            check.check(pages.run, key, f"version {self.version}")
        for trouble in check.troubles.values():
            check.tell(trouble, f"of version {self.version}")
        yield _Checked(tuple(findings.faults), findings.pages_read, check.bytes_read)
