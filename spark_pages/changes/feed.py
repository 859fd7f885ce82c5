"""The change feed of a store: finds the two versions and the commits between them, and has them told."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_pages.arguments import as_choice, as_int
from spark_pages.catalog.resolve import find_table, look_up
from spark_pages.changes.page_changes import page_changes
from spark_pages.changes.row_changes import row_changes
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.io import PageHandler
from spark_pages.log.log import Log
from spark_pages.log.reopen import retry_after_vacuum
from spark_pages.log.retention import check_version
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit
from spark_pages.model.table import TableDefinition


def read_changes(
    log: Log, pages: PageHandler, start: int, end: int, table: str | None, granularity: str
) -> pa.Table:
    """Read what the commits from version `start` to `end`, both included, changed; see `Store.changes`."""
    granularity = as_choice(granularity, "granularity", ("pages", "rows"))
    start, end = check_version_range(start, end)
    return retry_after_vacuum(lambda: _read(log, pages, start, end, table, granularity))


def check_version_range(start: int, end: int, names: tuple[str, str] = ("start", "end")) -> tuple[int, int]:
    """Validate a range of versions that includes both ends; `end` = `start` - 1 is the empty range.

    Parameters
    ----------
    names
        What the caller calls the two, for errors.

    Raises
    ------
    InvalidInputError
    """
    start, end = as_int(start, names[0], least=0), as_int(end, names[1], least=0)
    if start > end + 1:
        raise InvalidInputError(
            f"Cannot read the changes of versions {start} to {end}: {names[0]} is after {names[1]}.",
            hint="A range of versions includes both ends: version 5 alone is from 5 to 5.",
        )
    return start, end


def _read(
    log: Log, pages: PageHandler, start: int, end: int, table: str | None, granularity: str
) -> pa.Table:
    then, now = open_ends(log, start, end)
    table_id = None if table is None else find_table_id(now, then, table)
    commits = iterate_commits(log, start, end + 1)
    if granularity == "pages":
        return page_changes(commits, then, table_id, log.load_manifest)
    return row_changes(commits, then, now, table_id, pages)


def open_ends(log: Log, start: int, end: int) -> tuple[LogSnapshot | None, LogSnapshot]:
    """Open the versions before and after the commits from version `start` to `end`.

    Raises
    ------
    VersionNotFoundError, SnapshotExpiredError
    """
    now = log.snapshot(end, asked="the end of the changes")
    then = version_before(log, start)
    if then is None:
        check_version(log.refresh().state, 0, "where the changes begin")
    return then, now


def version_before(log: Log, start: int) -> LogSnapshot | None:
    """Open the version that changes from `start` on are compared with; None before the first commit.

    Raises
    ------
    SnapshotExpiredError
        If retention has removed it, even where the commit of `start` is still there.
    """
    return log.snapshot(start - 1, asked=f"before the changes of {start}") if start else None


def iterate_commits(log: Log, start: int, stop: int) -> Iterator[Commit]:
    """Iterate over commits [start, stop), oldest first, with few of them in memory."""
    while start < stop:
        commits = log.some_commits(start, stop)
        start += len(commits)
        yield from commits
        del commits


def find_table_id(now: LogSnapshot, then: LogSnapshot | None, table: str) -> int:
    """Id of a table by its name in the newer snapshot, or else in the older one."""
    return find_definition(now, then, table).table_id


def find_definition(now: LogSnapshot, then: LogSnapshot | None, table: str) -> TableDefinition:
    """Definition of a table by its name in the newer snapshot, or else in the older one."""
    try:
        return find_table(now, table)
    except TableNotFoundError:
        if then is None:
            raise
        found = look_up(table, then)
        if found is None:
            raise
        return found
