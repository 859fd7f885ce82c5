"""Blame: which commit wrote a row of a column, found by walking back over the pages that held it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from spark_pages.arguments import as_int
from spark_pages.catalog.resolve import find_column, find_table
from spark_pages.changes.dead_rows import dead_among
from spark_pages.changes.row_changes import END, Changes, rows_of
from spark_pages.errors import RowOutOfRangeError, SnapshotExpiredError, VersionNotFoundError
from spark_pages.io import PageHandler
from spark_pages.log.commit_times import as_datetime
from spark_pages.log.log import Log
from spark_pages.log.reopen import retry_after_vacuum
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS, TableId, page_version
from spark_pages.model.row_index import row_out_of_range
from spark_pages.model.row_ranges import RowRanges
from spark_pages.printable import escape_controls


@dataclass(frozen=True, slots=True)
class Blame:
    """Who wrote a row.

    Attributes
    ----------
    version
        The version that wrote it, or, where `exact` is false, the oldest one that is known to have it: it was
        written then or before.
    timestamp
        When that version was committed, UTC.
    operation, writer
        What was done, and by whom; None unless `exact`.
    exact
        Whether the log still holds the commit that wrote the row.
    deleted_by
        Who deleted the row; None for a live one.
    """

    version: int
    timestamp: datetime
    operation: str | None
    writer: str | None
    exact: bool
    deleted_by: Blame | None = None

    def __str__(self) -> str:
        deleted = "" if self.deleted_by is None else f"; deleted {self.deleted_by}"
        if not self.exact:
            return f"at or before version {self.version}{deleted}"
        return escape_controls(f"version {self.version}: {self.operation} by {self.writer}{deleted}")


def blame(log: Log, pages: PageHandler, table: str, column: str, row: int) -> Blame:
    """Find the commit that last wrote a row of a column in the newest version; of a dead row, while it lived.

    Parameters
    ----------
    pages
        Reads the marks of deleted rows.

    Raises
    ------
    TableNotFoundError, ColumnNotFoundError, RowOutOfRangeError

    Notes
    -----
    The page that holds the row tells by its id which commit added it, so a row that nobody compacted costs
    one commit. Each update of other rows of its page costs one commit more, and a compaction that joined
    pages of several commits one snapshot more.
    """
    heads = [log.refresh()]
    definition = find_table(heads[0], table)
    column = find_column(definition, column)
    key = (definition.table_id, definition.field_ids[column])
    row = as_int(row, "row")
    try:
        return retry_after_vacuum(
            lambda: _with_deletion(log, pages, heads.pop() if heads else log.refresh(), key, row)
        )
    except RowOutOfRangeError as error:
        named = f"column {column!r} of table {definition.name!r}"
        raise row_out_of_range(row, error.context["num_rows"], named) from None


def find_deletion(
    log: Log, pages: PageHandler, snapshot: LogSnapshot, table_id: int, row: int
) -> Blame | None:
    """Find the commit that deleted a row of a table, as of a version; None where the row is live.

    Notes
    -----
    Requests as of `blame`, and the marks of the row before each commit that touched it.
    """
    one, key = RowRanges.of(row, row + 1), (TableId(table_id), LIVENESS)
    if not dead_among(snapshot, table_id, one, pages).num_rows:
        return None
    while True:
        found = _blame(log, snapshot, key, row)
        if not found.exact:
            return found
        try:
            before = log.snapshot(found.version - 1)
        except (SnapshotExpiredError, VersionNotFoundError):
            return found
        if not dead_among(before, table_id, one, pages).num_rows:
            return found
        snapshot = before  # the commit has touched the page of its mark, and left the row dead


def _with_deletion(log: Log, pages: PageHandler, head: LogSnapshot, key: ChainKey, row: int) -> Blame:
    deletion = None
    if 0 <= row < head.chain(key).num_rows:
        deletion = find_deletion(log, pages, head, key[0], row)
    if deletion is None:
        return _blame(log, head, key, row)
    try:  # whoever blanks its values later has not written it
        then = log.snapshot(deletion.version - 1)
    except (SnapshotExpiredError, VersionNotFoundError):
        return replace(_at_or_before(log, deletion.version), deleted_by=deletion)
    return replace(_blame(log, then, key, row), deleted_by=deletion)


def _blame(log: Log, snapshot: LogSnapshot, key: ChainKey, row: int) -> Blame:
    version = _insert_version(snapshot, key, row)
    while True:
        try:
            (commit,) = log.commits(version, version + 1)
            record = _writer_in(log, commit, key, row)
        except VersionNotFoundError:
            return _at_or_before(log, version)
        if record is not None:
            return _exactly(log, commit, record)
        try:
            version = _before(log, commit, key, row)
        except VersionNotFoundError:
            return _at_or_before(log, version - 1)


def _insert_version(snapshot: LogSnapshot, key: ChainKey, row: int) -> int:
    """Version of the commit that put in the page that holds a row."""
    return page_version(snapshot.chain(key).locate_row(row).page.page_id)


def _before(log: Log, commit: Commit, key: ChainKey, row: int) -> int:
    """Version that put in the page that held the row when the commit replaced it, and left the row alone.

    The ids of the pages that the commit took out from around the row tell it, where they are of one version.
    """
    around = (
        splice.removed
        for _, splice in _splices(commit, key)
        if splice.first_row <= row < splice.first_row + splice.removed_entries
    )
    versions = {page_version(page) for page in next(around, ())} - {commit.version}
    if len(versions) == 1:
        return versions.pop()
    return _insert_version(log.snapshot(commit.version - 1), key, row)


def _writer_in(log: Log, commit: Commit, key: ChainKey, row: int) -> TransactionRecord | None:
    """Find the last transaction of the commit that touched the row; None if none did."""
    last: TransactionRecord | None = None
    for record, touched in _touches(log, commit, key):
        if any(start <= row < end for start, end in touched):
            last = record
    return last


def _touches(
    log: Log, commit: Commit, key: ChainKey
) -> Iterator[tuple[TransactionRecord, list[tuple[int, int]]]]:
    """Iterate over the rows that each splice of a chain touched, for a row of a page in the commit.

    A splice that takes pages out names its place. An append alone has put in the page, so that the row is
    new. Where an append is beside others, its place follows from the length of the chain before.
    """
    splices = _splices(commit, key)
    if key[1] == LIVENESS or all(splice.removed for _, splice in splices):  # these name their place
        for record, splice in splices:
            yield record, splice.touched_rows(splice.first_row)
    elif len(splices) == 1:
        record, splice = splices[0]
        yield record, [(0, END)] if splice.data_change else []
    else:
        before = log.snapshot(commit.version - 1) if commit.version else None
        changes = Changes(lambda key: rows_of(before, key), key[0])
        for record in commit.records:
            for intent in record.intents:
                changes.feed_intent(intent, commit.version)
            for splice in record.splices:
                if (splice.table_id, splice.field_id) == key:
                    yield record, changes.trace(key).splice(splice)


def _splices(commit: Commit, key: ChainKey) -> list[tuple[TransactionRecord, Splice]]:
    """Return the splices of a chain, each with its transaction."""
    return [
        (record, splice)
        for record in commit.records
        for splice in record.splices
        if (splice.table_id, splice.field_id) == key
    ]


def _exactly(log: Log, commit: Commit, record: TransactionRecord) -> Blame:
    when = as_datetime(log.date(commit.version, commit.timestamp_us))
    return Blame(commit.version, when, record.operation, record.writer, exact=True)


def _at_or_before(log: Log, version: int) -> Blame:
    return Blame(version, as_datetime(log.time_of(version)), None, None, exact=False)
