"""Read the change feed in tasks: each reads some versions, each row names its version. No pyspark.

`Store.changes` tells what happened between two versions. A feed tells it version by version, so that any cut
of the versions into tasks and micro-batches gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from spark_pages.changes.feed import check_version_range, iterate_commits, version_before
from spark_pages.changes.page_changes import PAGE_CHANGES_SCHEMA, page_changes
from spark_pages.changes.row_changes import ROW_CHANGES_SCHEMA, row_changes
from spark_pages.errors import InvalidInputError, VersionNotFoundError
from spark_pages.log.log import Log
from spark_pages.log.replay import replay
from spark_pages.log.retention import oldest_readable
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.runtime import Runtime
from spark_pages.spark.serialization import objects_of, pages_of

Granularity = Literal["rows", "pages"]
VERSIONS_OF_A_TASK = 64

FEED_SCHEMAS: dict[str, pa.Schema] = {
    "rows": pa.schema([pa.field("version", pa.int64()), *ROW_CHANGES_SCHEMA]),
    "pages": PAGE_CHANGES_SCHEMA,
}
"""Columns of the feed by granularity."""


def check_granularity(text: str | None) -> Granularity:
    """Return the granularity that an option names, by default ``rows``.

    Raises
    ------
    InvalidInputError
    """
    for granularity in get_args(Granularity):
        if granularity == (text or "rows"):
            return granularity  # type: ignore[no-any-return]
    raise InvalidInputError(
        f"Cannot use {text!r} as granularity: expected 'rows' or 'pages'.",
        hint="Pass granularity='rows' or granularity='pages'.",
    )


@dataclass(frozen=True, slots=True)
class Feed:
    """What a feed tells.

    Attributes
    ----------
    url, granularity
        The store, and whether ranges of rows or pages are told.
    table_id
        Of this table only; None takes all but table 0.
    """

    url: str
    granularity: Granularity
    table_id: int | None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return FEED_SCHEMAS[self.granularity]

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read as `read` does, as batches."""
        yield from self.read(start, end).cast(self.schema).to_batches()

    def read(self, start: int, end: int) -> pa.Table:
        """Read what each commit from version `start` to `end`, both included, changed.

        Raises
        ------
        SnapshotExpiredError

        Notes
        -----
        Reads the commits once, and the checkpoint before `start` as far as they touch it.
        """
        log = Log(objects_of(self.url), Runtime())
        then = version_before(log, start)
        commits = iterate_commits(log, start, end + 1)
        if self.granularity == "pages":
            return page_changes(commits, then, self.table_id, log.load_manifest)
        parts = [FEED_SCHEMAS["rows"].empty_table()]
        for commit in commits:
            now = log.open(replay(then.state, [commit], log.load_manifest), then) if then else log.snapshot(0)
            told = row_changes([commit], then, now, self.table_id, pages_of(self.url))
            version = pa.repeat(pa.scalar(commit.version, pa.int64()), told.num_rows)
            parts.append(told.add_column(0, FEED_SCHEMAS["rows"].field("version"), version))
            then = now
        return pa.concat_tables(parts)


def version_range(head: LogSnapshot, starting: int | None, ending: int | None) -> tuple[int, int]:
    """Resolve the options of a range of versions, both included; by default all whose changes can be read.

    Raises
    ------
    VersionNotFoundError, InvalidInputError
    """
    newest = head.state.version
    start = first_changes(head.state) if starting is None else starting
    end = newest if ending is None else ending
    if end > newest:
        raise VersionNotFoundError(
            f"Cannot read changes up to endingVersion {end}: the store has versions up to {newest}.",
            hint=f"Pass endingVersion={newest}, or leave it out.",
        )
    return check_version_range(start, end, ("startingVersion", "endingVersion"))


def first_changes(state: LogState) -> int:
    """Return the oldest version whose changes can be read: the one before it is readable, too."""
    oldest = oldest_readable(state)
    return oldest + 1 if oldest else 0


def split_versions(start: int, end: int, size: int = VERSIONS_OF_A_TASK) -> Sequence[tuple[int, int]]:
    """Split a range of versions into ranges of at most `size`; all of them include both ends."""
    return [(first, min(first + size - 1, end)) for first in range(start, end + 1, size)]
