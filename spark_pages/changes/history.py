"""Compute the history of a store: one row for each transaction and maintenance run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from spark_pages.changes.dead_rows import DeadRows
from spark_pages.changes.row_changes import rows_of
from spark_pages.errors import SnapshotExpiredError
from spark_pages.log.commit_times import bounded
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, Commit, IntentKind, Splice, TransactionRecord, UpkeepNote
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE, LIVENESS
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.table import TableDefinition

HISTORY_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("operation", pa.string()),
        ("writer", pa.string()),
        ("read_version", pa.int64()),
        ("pages_added", pa.int64()),
        ("pages_removed", pa.int64()),
        ("bytes_added", pa.int64()),
        ("rows_added", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_removed", pa.int64()),
        ("tables_created", pa.int64()),
        ("app_id", pa.string()),
        ("app_version", pa.int64()),
        ("parameters", pa.map_(pa.string(), pa.string())),
        ("checkpoint", pa.int64()),
        ("min_readable", pa.int64()),
        ("transaction", pa.string()),
    ]
)


def _rows_updated(splices: Iterable[Splice]) -> int:
    """Rows of tables that were there and are written, whatever number of columns."""
    updated: dict[int, list[tuple[int, int]]] = {}
    for splice in splices:
        end = splice.first_row + min(splice.removed_entries, splice.added_entries)
        if splice.removed and splice.field_id != LIVENESS:
            touched = splice.touched_rows(splice.first_row)
            of_table = updated.setdefault(splice.table_id, [])
            of_table += [(start, min(stop, end)) for start, stop in touched if start < end]
    ranges = (np.array(each, dtype=np.int64).reshape(-1, 2) for each in updated.values())
    return sum(RowRanges.joined(each).num_rows for each in ranges)


def history_of(log: Log, start: int, end: int) -> pa.Table:
    """List versions `start` to `end`, both included, that retention has not removed; oldest first."""
    return history_table(log.commits_left(start, end + 1), RowCounts.before(log, start))


def history_table(
    commits: Iterable[Commit],
    counts: RowCounts,
    untold: Sequence[UpkeepNote] = (),
    *,
    newest_first: bool = False,
) -> pa.Table:
    """List each transaction and each note of upkeep.

    Parameters
    ----------
    commits
        Oldest first.
    counts
        Counts rows from the first of them on.
    untold
        Upkeep of which no commit tells yet: it comes first, without a version.
    newest_first
        Whether the newest transactions come first; else the oldest, with their upkeep behind them.

    Returns
    -------
    pyarrow.Table
        `rows_added`, `rows_updated`, `rows_removed`: rows of tables, whatever number of columns. The rows
        that a table has at a version are those added, less those removed, of all versions up to it; null
        where the version before, which tells how many a drop or truncate took, cannot be read.
        `bytes_added`: of pages put in, also of old ones that a restore brings back. `checkpoint`: the
        newest checkpoint that was there when the commit was made, or null. `min_readable`: set by a vacuum,
        the oldest version that can be read from then on. Upkeep has the version of the commit that tells of
        it, and in `read_version` how far it reached; it is no `transaction`, and its objects and bytes are
        `parameters`.
    """
    blocks = []
    listed: set[UpkeepNote] = set()  # two processes may both record a note that neither has seen in a commit
    for commit in commits:
        moved = counts.commit(commit)
        made = [_row(commit, *each) for each in zip(commit.records, moved, strict=True)]
        blocks.append(made[::-1] if newest_first else made)
        blocks[-1] += [
            _upkeep_row(commit.version, each) for each in reversed(commit.upkeep) if each not in listed
        ]
        listed.update(commit.upkeep)
    rows = [_upkeep_row(None, note) for note in reversed(untold) if note not in listed]
    rows += chain.from_iterable(reversed(blocks) if newest_first else blocks)
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)


def _upkeep_row(version: int | None, note: UpkeepNote) -> dict[str, object]:
    written = {"objects": str(note.objects), "bytes": str(note.size_bytes)}
    return {
        "version": version,
        "timestamp": bounded(note.timestamp_us),
        "operation": note.operation,
        "writer": note.writer,
        "read_version": note.reached,
        "parameters": sorted(written.items()),
    }


def _row(commit: Commit, record: TransactionRecord, moved: RowCountChange) -> dict[str, object]:
    splices = [splice for splice in record.splices if splice.table_id != CATALOG_TABLE]
    kinds = [intent.kind for intent in record.intents if intent.table_id != CATALOG_TABLE]
    return {
        "version": commit.version,
        "timestamp": commit.timestamp_us,
        "operation": record.operation,
        "writer": record.writer,
        "read_version": record.read_version,
        "pages_added": sum(splice.stop - splice.start for splice in splices),
        "pages_removed": sum(len(splice.removed) for splice in splices),
        "bytes_added": _bytes_added(record, splices),
        "rows_added": moved.added,
        "rows_updated": _rows_updated(splices),
        "rows_removed": moved.removed,
        "tables_created": kinds.count(IntentKind.CREATE),
        "app_id": record.app_id,
        "app_version": record.app_version,
        "parameters": sorted(record.parameters.items()),
        "checkpoint": commit.checkpoint.version if commit.checkpoint else None,
        "min_readable": record.retention.min_readable if record.retention else None,
        "transaction": record.token,
    }


def _bytes_added(record: TransactionRecord, splices: Sequence[Splice]) -> int:
    """Bytes of the pages put in; manifests tell theirs without being read."""
    own = sum(record.own.stored_bytes(each.start, each.stop) for each in splices if each.source == 0)
    return own + sum(manifest.page_bytes for manifest in record.manifests)


# How many rows each transaction of a stretch of the log added to tables and removed from them.
#
# A table has as many rows after a commit as before it, plus those added, less those removed: so the sums over
# a history are numbers of rows. Splices tell by how much a table grows. How many rows go with a truncate or a
# drop, and come back with an undrop, is the length of its longest chain: the length at the version before the
# stretch, which is opened only if it is asked for, and what splices have done since.

_ENDS = (IntentKind.DROP, IntentKind.PURGE)
_COMES = (IntentKind.CREATE, IntentKind.UNDROP)
_CLEARS = (IntentKind.TRUNCATE, IntentKind.PURGE)


@dataclass(frozen=True, slots=True)
class RowCountChange:
    """Rows of tables that one transaction added and removed; None where nothing tells any more."""

    added: int | None
    removed: int | None


def _not_readable() -> SnapshotExpiredError:
    return SnapshotExpiredError(
        "Cannot count rows of the version before: it is not readable.",
        hint="Begin with a later version; `store.info()` has the first.",
    )


class RowCounts:
    """Goes through the commits of a stretch of the log, oldest first.

    Parameters
    ----------
    base
        Gives the version before the stretch; None before there was one.
    base_version
        Its number. Of commits up to it, the oldest that can be read, only growth is known.
    """

    def __init__(self, base: Callable[[], LogSnapshot | None], base_version: int) -> None:
        self._open = base
        self._opened: list[LogSnapshot | None] = []
        self._base_version = base_version
        self._live_then: dict[int, TableDefinition] | None = None
        self._definitions: dict[int, TableDefinition | None] = {}
        self._growth: dict[ChainKey, int] = {}
        self._cleared: set[ChainKey] = set()
        self._dead = DeadRows(self._base)
        self._marked: set[int] = set()

    @classmethod
    def before(cls, log: Log, start: int) -> RowCounts:
        """Count from a version of a log on."""
        version = max(start - 1, oldest_readable(log.known().state) or -1)
        return cls(lambda: log.snapshot(version) if version >= 0 else None, version)

    def commit(self, commit: Commit) -> list[RowCountChange]:
        """Go on by a commit; what each of its transactions did."""
        known = commit.version > self._base_version
        return [self._record(record, commit.version, known) for record in commit.records]

    def _record(self, record: TransactionRecord, version: int, known: bool) -> RowCountChange:
        intents: dict[int, list[CatalogIntent]] = {}
        splices: dict[int, list[Splice]] = {}
        for intent in record.intents:
            if intent.kind is not IntentKind.REQUIRE and intent.table_id != CATALOG_TABLE:
                intents.setdefault(int(intent.table_id), []).append(intent)
        for splice in record.splices:
            if splice.table_id != CATALOG_TABLE:
                of_table = splices.setdefault(int(splice.table_id), [])
                if splice.field_id == LIVENESS:
                    self._marked.add(int(splice.table_id))
                else:
                    of_table.append(splice)
        moved = []
        for table_id in sorted(intents.keys() | splices.keys()):
            try:
                mine = intents.get(table_id, []), splices.get(table_id, [])
                of_all = self._table(table_id, *mine, known)
                moved.append(self._of_live(of_all, table_id, mine[0], record, version if known else -1))
            except SnapshotExpiredError:
                moved.append(RowCountChange(None, None))
            self._advance(table_id, *mine, known)
        added, removed = ([getattr(each, name) for each in moved] for name in ("added", "removed"))
        return RowCountChange(*(None if None in of else sum(of) for of in (added, removed)))

    def _of_live(
        self,
        moved: RowCountChange,
        table_id: int,
        intents: list[CatalogIntent],
        record: TransactionRecord,
        version: int,
    ) -> RowCountChange:
        """Count live rows that a transaction added and removed.

        `moved` counts dead rows too. Version -1 is unknown.
        """
        kinds = {intent.kind for intent in intents}
        if not self._may_have_dead_rows(table_id, kinds):
            return moved
        if version < 0 or moved.added is None or moved.removed is None:
            raise _not_readable()
        before = 0 if kinds & {*_COMES} else self._dead.count(table_id)
        self._dead.go_on(record, version, intents, table_id)
        more = (0 if kinds & {*_ENDS} else self._dead.count(table_id)) - before
        added, removed = moved.added, moved.removed
        if more > 0 and kinds & {*_COMES}:
            return RowCountChange(added - more, removed)
        if more > 0:
            return RowCountChange(added, removed + more)
        return RowCountChange(added + max(0, -more - removed), max(0, removed + more))

    def _may_have_dead_rows(self, table_id: int, kinds: set[IntentKind]) -> bool:
        if table_id in self._marked or not kinds & {*_ENDS, *_COMES, *_CLEARS}:
            return table_id in self._marked
        base = self._base()
        return base is not None and base.has_dead_rows

    def _table(
        self, table_id: int, intents: list[CatalogIntent], splices: list[Splice], known: bool
    ) -> RowCountChange:
        kinds = {intent.kind for intent in intents}
        growth = _growth(splices)
        if IntentKind.PURGE in kinds:
            return RowCountChange(0, 0)  # its rows went when it was dropped
        if not kinds & {*_ENDS, *_COMES, *_CLEARS} and self._is_even(table_id, intents, growth):
            of_table = [each for key, each in growth.items() if key not in self._new(table_id, intents)]
            lowest = min((low for _, low in of_table), default=0)
            total = of_table[0][0] if of_table else 0
            return RowCountChange(total - lowest, -lowest)
        if not known:
            raise _not_readable()
        return self._by_length(table_id, intents, kinds, growth)

    def _by_length(
        self,
        table_id: int,
        intents: list[CatalogIntent],
        kinds: set[IntentKind],
        growth: dict[ChainKey, tuple[int, int]],
    ) -> RowCountChange:
        """By the lengths of the columns that the table had, and has now."""
        before = None if kinds & {*_COMES} else self._definition(table_id)
        told = [each.definition for each in intents if each.definition is not None]
        after = None if kinds & {*_ENDS} else told[-1] if told else before
        there = _keys(before)
        then = {key: self._length(key) for key in there}
        cleared = bool(kinds & {*_CLEARS})
        now = {
            key: (0 if cleared else self._length(key)) + growth.get(key, (0, 0))[0] for key in _keys(after)
        }
        rows_before, rows_after = max(then.values(), default=0), max(now.values(), default=0)
        lows = [0 if cleared else then[key] + growth.get(key, (0, 0))[1] for key in there if key in now]
        kept = min(rows_before, rows_after, max(lows, default=0))
        return RowCountChange(rows_after - kept, rows_before - kept)

    def _is_even(
        self, table_id: int, intents: list[CatalogIntent], growth: dict[ChainKey, tuple[int, int]]
    ) -> bool:
        """Whether the table grows as any of its columns does, those apart that come with the transaction."""
        if not growth:
            return True
        if any(intent.columns is None for intent in intents):
            return False
        moves = [each for key, each in growth.items() if key not in self._new(table_id, intents)]
        if table_id not in self._definitions and len(moves) > 1 and len(set(moves)) == 1:
            return True  # as of a table that is aligned, which is not looked up
        definition = self._definition(table_id) if moves else None
        return definition is None or definition.aligned

    @staticmethod
    def _new(table_id: int, intents: list[CatalogIntent]) -> set[ChainKey]:
        return {(table_id, field_id) for intent in intents for field_id in intent.columns or ()}

    def _advance(
        self, table_id: int, intents: list[CatalogIntent], splices: list[Splice], known: bool
    ) -> None:
        for intent in intents:
            if intent.kind in _ENDS:
                self._definitions[table_id] = None
            elif intent.definition is not None:
                self._definitions[table_id] = intent.definition
            if known and intent.kind in _CLEARS and intent.definition is not None:
                for key in _keys(intent.definition):
                    self._cleared.add(key)
                    self._growth[key] = 0
        if known:
            for key, (total, _) in _growth(splices).items():
                self._growth[key] = self._growth.get(key, 0) + total

    def _definition(self, table_id: int) -> TableDefinition | None:
        if table_id in self._definitions:
            return self._definitions[table_id]
        if self._live_then is None:
            base = self._base()
            self._live_then = {int(each.table_id): each for each in base.tables()} if base else {}
        return self._live_then.get(table_id)

    def _length(self, key: ChainKey) -> int:
        grown = self._growth.get(key, 0)
        return grown if key in self._cleared else rows_of(self._base(), key) + grown

    def _base(self) -> LogSnapshot | None:
        if not self._opened:
            self._opened.append(self._open())
        return self._opened[0]


def _keys(definition: TableDefinition | None) -> list[ChainKey]:
    """Return the chains of a table; none for a namespace or type."""
    if definition is None or not definition.is_table:
        return []
    return [(int(definition.table_id), int(field_id)) for field_id in definition.field_ids.values()]


def _growth(splices: Iterable[Splice]) -> dict[ChainKey, tuple[int, int]]:
    """By how many rows each chain grows, and the least that it has grown by in between."""
    growth: dict[ChainKey, tuple[int, int]] = {}
    for splice in splices:
        key = (int(splice.table_id), int(splice.field_id))
        total, low = growth.get(key, (0, 0))
        total += splice.added_entries - splice.removed_entries
        growth[key] = total, min(low, total)
    return growth
