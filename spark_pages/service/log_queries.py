"""What the log tells beyond one version: history, changes, blame, tags and leases, read for clients."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_pages.changes.feed import check_version_range, read_changes
from spark_pages.changes.history import RowCounts, history_table
from spark_pages.errors import InvalidInputError
from spark_pages.io import PageHandler
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from spark_pages.runtime import Runtime
from spark_pages.service.freshness import Freshness
from spark_pages.versions.blame import Blame, blame
from spark_pages.versions.leases import Leases

MOST_HISTORY = 1024
"""Versions of which one call reads the history; clients ask on for older ones."""

MOST_CHANGED = 4096
"""Versions of which one call reads the changes."""

TAGS_SCHEMA = pa.schema([pa.field("tag", pa.string()), pa.field("version", pa.int64())])


@dataclass(frozen=True, eq=False, slots=True)
class HistoryPart:
    """Some rows of the history, newest first.

    Attributes
    ----------
    rows
        As of `Store.history`.
    first, oldest
        The oldest version that was read, and the oldest one that is left to read.
    """

    rows: pa.Table
    first: int
    oldest: int


class LogQueries:
    """Reads the log of a store that is served.

    Parameters
    ----------
    log, freshness, runtime
        The log, what keeps its newest version, and the clock.

    Notes
    -----
    Each call reads commits from storage, as in an opened store, and keeps none. A call reads a bounded number
    of versions.
    """

    def __init__(self, log: Log, freshness: Freshness, runtime: Runtime) -> None:
        self._log = log
        self._freshness = freshness
        self._runtime = runtime
        self._pages = PageHandler(log.store, decoded_bytes=0, compressed_bytes=0)

    def history(self, limit: int | None = None, end: int | None = None) -> HistoryPart:
        """List transactions up to version `end`, the newest by default; see `Store.history`."""
        head = self._freshness.newest().state
        last = head.version if end is None else min(end, head.version)
        oldest = oldest_readable(head)
        first = max(oldest, last + 1 - (MOST_HISTORY if limit is None else min(limit, MOST_HISTORY)))
        counts = RowCounts.before(self._log, first)
        commits = self._log.commits_left(first, last + 1)
        untold = head.upkeep if end is None else ()
        rows = history_table(commits, counts, untold, newest_first=True)
        return HistoryPart(rows.slice(0, limit), first, oldest)

    def changes(self, start: int, end: int, table: str | None, granularity: str) -> pa.Table:
        """Read what the commits from version `start` to `end` changed; see `Store.changes`.

        Raises
        ------
        InvalidInputError
            Also if the range has more than `MOST_CHANGED` versions.
        """
        start, end = check_version_range(start, end)
        if end - start >= MOST_CHANGED:
            raise InvalidInputError(
                f"Cannot read the changes of {end + 1 - start} versions in one call: expected at most "
                f"{MOST_CHANGED}.",
                hint="Pass `start` and `end` closer together, or open the store itself: "
                "`spark_pages.open(url)`.",
            )
        self._freshness.at_least(end)
        return read_changes(self._log, self._pages, start, end, table, granularity)

    def blame(self, table: str, column: str, row: int) -> Blame:
        """Find the commit that last wrote a row of a column; see `Store.blame`."""
        return blame(self._log, self._pages, table, column, row)

    def tags(self) -> pa.Table:
        """Return the tags and the versions that they name, sorted by name."""
        found = sorted(self._freshness.newest().state.tags.items())
        columns = [[tag for tag, _ in found], [version for _, version in found]]
        return pa.table(columns, schema=TAGS_SCHEMA)

    def leases(self) -> pa.Table:
        """List unexpired leases; see `Store.leases`."""
        return Leases(self._log, self._runtime).table()
