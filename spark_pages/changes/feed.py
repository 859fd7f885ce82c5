"""The change feed of a store: finds the two versions and the commits between them, and has them told."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_pages.arguments import as_choice, as_int
from spark_pages.catalog.resolve import find_table, parse_name
from spark_pages.changes.page_changes import page_changes
from spark_pages.changes.row_changes import row_changes
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.log.log import Log
from spark_pages.log.reopen import retry_after_vacuum
from spark_pages.log.retention import check_version
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit


def read_changes(log: Log, start: int, end: int, table: str | None, grain: str) -> pa.Table:
    """What the commits after version `start`, up to and with `end`, did; see `Store.changes`."""
    grain = as_choice(grain, "grain", ("pages", "rows"))
    start, end = as_int(start, "start"), as_int(end, "end")
    if not -1 <= start <= end:
        raise InvalidInputError(f"There are no changes from {start} to {end}: expected -1 <= start <= end.")
    return retry_after_vacuum(lambda: _read(log, start, end, table, grain))


def _read(log: Log, start: int, end: int, table: str | None, grain: str) -> pa.Table:
    now = log.snapshot(end, asked="the end of the changes")
    then = None if start < 0 else log.snapshot(start, asked="the start of the changes")
    if then is None:
        check_version(log.refresh().state, 0, "where the changes begin")
    table_id = None if table is None else find_either(now, then, table)
    commits = commits_in_turn(log, start + 1, end + 1)
    if grain == "pages":
        return page_changes(commits, then, table_id, log.load_manifest)
    return row_changes(commits, then, now, table_id)


def commits_in_turn(log: Log, start: int, stop: int) -> Iterator[Commit]:
    """Commits [start, stop), oldest first, so that few are in memory at the same time."""
    while start < stop:
        commits = log.some_commits(start, stop)
        start += len(commits)
        yield from commits
        del commits


def find_either(now: LogSnapshot, then: LogSnapshot | None, table: str) -> int:
    """Id of a table by its name in the newer snapshot, or else in the older one."""
    try:
        return find_table(now, table).table_id
    except TableNotFoundError:
        if then is None:
            raise
        found = then.table(parse_name(table, then))
        if found is None:
            raise
        return found.table_id
