"""The change feed by rows: what some commits did to the rows of each column. Pure, but for chain lengths.

A row is known by its number. Appends stand behind all other rows, and a splice that changes the number of
rows is at the end of its chain; so no row ever gets another number, and what happened to it is told by four
things of each chain: its length before and after, the shortest length in between, and the rows touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.catalog.resolve import show_name
from spark_pages.changes.dead_rows import dead_among
from spark_pages.io import PageHandler
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, Commit, IntentKind, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE, LIVENESS
from spark_pages.model.row_ranges import RowRanges, difference, intersection, union
from spark_pages.model.table import TableDefinition

END = 1 << 62
"""One past any row."""

ROW_CHANGES_SCHEMA = pa.schema(
    [
        ("table_id", pa.int64()),
        ("table", pa.string()),
        ("field_id", pa.int32()),
        ("column", pa.string()),
        ("change", pa.string()),
        ("first_row", pa.int64()),
        ("end_row", pa.int64()),
    ]
)
_PENDING_RANGES = 4096
_CLEARING = (IntentKind.TRUNCATE, IntentKind.PURGE)


class _RangeUnion:
    """Ranges as they come; joined when many have come, so that memory follows what they cover.

    Ranges that overlap become one. Those that only touch stay two: between them is a bound of pages.
    """

    def __init__(self) -> None:
        self._joined = np.zeros((0, 2), dtype=np.int64)
        self._pending: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        self._pending.append((start, end))
        if len(self._pending) > _PENDING_RANGES + len(self._joined):
            self.bounds()

    def bounds(self) -> NDArray[np.int64]:
        """Return the ranges in order, shape (n, 2)."""
        if self._pending:
            bounds = np.concatenate([self._joined, np.array(self._pending, dtype=np.int64)])
            self._pending.clear()
            bounds = bounds[bounds[:, 0] < bounds[:, 1]]
            bounds = bounds[np.argsort(bounds[:, 0], kind="stable")]
            reach = np.maximum.accumulate(bounds[:, 1])
            first = np.ones(len(bounds), dtype=bool)
            first[1:] = bounds[1:, 0] >= reach[:-1]
            last = np.ones(len(bounds), dtype=bool)
            last[:-1] = first[1:]
            self._joined = np.stack([bounds[first, 0], reach[last]], axis=1)
        return self._joined


class ChainTrace:
    """What happened to one chain since some version.

    Parameters
    ----------
    rows
        Rows that it had then.

    Attributes
    ----------
    rows_before, rows
        Rows that it had then, and has now.
    kept
        The fewest rows that it had at any time: rows below are still there, in their old places.
    """

    def __init__(self, rows: int) -> None:
        self.rows_before = self.rows = self.kept = rows
        self._touched = _RangeUnion()
        self._spliced = _RangeUnion()
        self._changed = _RangeUnion()

    def clear(self) -> None:
        """All pages go (truncate)."""
        self.rows = self.kept = 0
        self._spliced.add(0, END)
        self._changed.add(0, END)

    def splice(self, splice: Splice) -> list[tuple[int, int]]:
        """Go on by a splice; gives the rows that it touches, as rows after it."""
        begin = splice.first_row if splice.removed else self.rows
        in_place = splice.row_preserving and bool(splice.removed)
        end = begin + splice.removed_entries if in_place else END
        self._spliced.add(begin, end)
        self.rows += splice.added_entries - splice.removed_entries
        self.kept = min(self.kept, self.rows)
        touched = splice.touched_rows(begin)
        if splice.data_change:
            self._changed.add(begin, end)
            for bounds in touched:
                self._touched.add(*bounds)
        return touched

    @property
    def updated(self) -> RowRanges:
        """Rows that were there all the time, and whose entries are others now."""
        return intersection([RowRanges.joined(self._touched.bounds()), RowRanges.of(0, self.kept)])

    @property
    def touched(self) -> RowRanges:
        """Rows that splices touched."""
        return RowRanges.joined(self._touched.bounds())

    @property
    def inserted(self) -> RowRanges:
        """Rows that were not there then, as rows of now."""
        return RowRanges.of(self.kept, self.rows)

    @property
    def removed(self) -> RowRanges:
        """Rows that are not there now, as rows of then."""
        return RowRanges.of(self.kept, self.rows_before)

    def replaced_ranges(self) -> NDArray[np.int64]:
        """Rows between which pages were replaced, by splices of which at least one changed rows.

        Returns
        -------
        int64, shape (n, 2)
            First row and end row, in order. Both are bounds of pages, then and now: pages outside were never
            replaced. The last end is `END` where the end of the chain was.
        """
        spliced, changed = self._spliced.bounds(), self._changed.bounds()
        if not len(changed):
            return changed
        after = np.searchsorted(changed[:, 1], spliced[:, 0], side="right")
        nearest = changed[np.minimum(after, len(changed) - 1), 0]
        places: NDArray[np.int64] = spliced[(after < len(changed)) & (nearest < spliced[:, 1])]
        return places


class Changes:
    """What commits did to chains and tables since some version, fed with one commit after another.

    Parameters
    ----------
    rows_then
        Rows that a chain had at that version.
    table_id
        Look at this table only; None looks at all but table 0.

    Attributes
    ----------
    traces
        By chain, of those that splices or a truncate touched.
    tables
        Ids of tables that catalog intents touched.
    next_field_ids
        The largest `next_field_id` told of a table.
    newest
        The definition told last of a table.
    purged
        Version in which a table was purged.
    """

    def __init__(self, rows_then: Callable[[ChainKey], int], table_id: int | None = None) -> None:
        self._rows_then = rows_then
        self._table_id = table_id
        self.traces: dict[ChainKey, ChainTrace] = {}
        self.tables: set[int] = set()
        self.next_field_ids: dict[int, int] = {}
        self.newest: dict[int, TableDefinition] = {}
        self.purged: dict[int, int] = {}

    def feed(self, commit: Commit) -> None:
        """Go on by a commit."""
        for record in commit.records:
            for intent in record.intents:
                self.feed_intent(intent, commit.version)
            for splice in self.splices(record):
                self.trace((splice.table_id, splice.field_id)).splice(splice)

    def splices(self, record: TransactionRecord) -> list[Splice]:
        """Return the splices of the selected tables."""
        return [splice for splice in record.splices if self._wanted(splice.table_id)]

    def trace(self, key: ChainKey) -> ChainTrace:
        """Return the trace of a chain."""
        if key not in self.traces:
            self.traces[key] = ChainTrace(self._rows_then(key))
        return self.traces[key]

    def _wanted(self, table_id: int) -> bool:
        return table_id != CATALOG_TABLE if self._table_id is None else table_id == self._table_id

    def feed_intent(self, intent: CatalogIntent, version: int) -> None:
        """Go on by one intent of a commit."""
        if not self._wanted(intent.table_id) or intent.kind is IntentKind.REQUIRE:
            return
        table_id, definition = intent.table_id, intent.definition
        self.tables.add(table_id)
        if definition is not None:
            known = self.next_field_ids.get(table_id, 0)
            self.next_field_ids[table_id] = max(known, definition.next_field_id)
            if intent.kind is not IntentKind.PURGE:
                self.newest[table_id] = definition
            if intent.kind in _CLEARING:
                for key in definition.chains:
                    self.trace(key).clear()
        if intent.kind is IntentKind.PURGE:
            self.purged[table_id] = version


def rows_of(snapshot: LogSnapshot | None, key: ChainKey) -> int:
    """Rows of a chain; none where there was no store, or its table, yet."""
    if snapshot is None or key[0] >= snapshot.state.next_table_id:
        return 0
    return snapshot.chain(key).num_rows


def row_changes(
    commits: Iterable[Commit],
    then: LogSnapshot | None,
    now: LogSnapshot,
    table_id: int | None,
    pages: PageHandler,
) -> pa.Table:
    """Ranges of rows inserted, updated and removed between two versions.

    Parameters
    ----------
    commits
        Those after `then`, up to and with `now`, in order.
    then, now
        The store at both versions; `then` is None before there was one.
    table_id
        Of this table only; None takes all but table 0.
    pages
        Reads the liveness chains of tables of which rows were deleted.

    Returns
    -------
    pyarrow.Table
        Of ROW_CHANGES_SCHEMA, sorted by table, column and row. Rows inserted and updated are numbered as in
        `now`, rows removed, which includes deleted ones, as in `then`.

    Notes
    -----
    Memory follows the ranges of the result. Beside the commits the lengths of the chains that they touch are
    read, and the catalog.
    """
    changes = Changes(lambda key: rows_of(then, key), table_id)
    for commit in commits:
        changes.feed(commit)
    after = _columns(now.tables())
    before = _columns(then.tables() if then else ()) if changes.tables else after
    keys = {key for key in before.keys() | after.keys() if key[0] in changes.tables}
    marked = {key[0] for key in changes.traces if key[1] == LIVENESS or rows_of(now, (key[0], LIVENESS))}
    keys |= {key for key in before.keys() | after.keys() if key in changes.traces or key[0] in marked}
    parts = [ROW_CHANGES_SCHEMA.empty_table()]
    dead = _DeadRows(changes, then, now, pages)
    for key in sorted(keys):
        table, column = after.get(key) or before[key]
        trace = changes.trace(key)
        if key not in before:
            found = {"inserted": difference(RowRanges.of(0, trace.rows), dead.all(key[0])[1])}
        elif key not in after:
            found = {"removed": difference(RowRanges.of(0, trace.rows_before), dead.all(key[0])[0])}
        elif key[0] in marked:
            found = _of_live(trace, *dead.changed(key[0]))
        else:
            found = {"updated": trace.updated, "inserted": trace.inserted, "removed": trace.removed}
        parts += [_part(key, table, column, change, ranges) for change, ranges in found.items()]
    return pa.concat_tables(parts)


class _DeadRows:
    """Dead rows of tables at two versions, each read once."""

    def __init__(
        self, changes: Changes, then: LogSnapshot | None, now: LogSnapshot, pages: PageHandler
    ) -> None:
        self._changes = changes
        self._versions = then, now
        self._pages = pages
        self._all: dict[int, list[RowRanges]] = {}
        self._changed: dict[int, list[RowRanges]] = {}

    def all(self, table_id: int) -> list[RowRanges]:
        """All dead rows of a table, then and now."""
        if table_id not in self._all:
            self._all[table_id] = self._among(table_id, RowRanges.of(0, END))
        return self._all[table_id]

    def changed(self, table_id: int) -> list[RowRanges]:
        """Dead rows then and now, among those that changed in between."""
        if table_id not in self._changed:
            traces = [trace for key, trace in self._changes.traces.items() if key[0] == table_id]
            first = min(trace.kept for trace in traces)
            marks = self._changes.trace((table_id, LIVENESS))
            rows = [marks.touched, RowRanges.of(first, END), *(trace.updated for trace in traces)]
            self._changed[table_id] = self._among(table_id, union(rows))
        return self._changed[table_id]

    def _among(self, table_id: int, rows: RowRanges) -> list[RowRanges]:
        return [dead_among(version, table_id, rows, self._pages) for version in self._versions]


def _of_live(trace: ChainTrace, dead_then: RowRanges, dead_now: RowRanges) -> dict[str, RowRanges]:
    """Restrict changes to live rows: deleted rows are removals, restored rows are insertions."""
    died = difference(dead_now, dead_then).between(0, trace.kept)
    revived = difference(dead_then, dead_now).between(0, trace.kept)
    return {
        "updated": difference(trace.updated, union([dead_then, dead_now])),
        "inserted": union([difference(trace.inserted, dead_now), revived]),
        "removed": union([difference(trace.removed, dead_then), died]),
    }


def _columns(definitions: Iterable[TableDefinition]) -> dict[ChainKey, tuple[str, str]]:
    """Name of table and column by chain."""
    return {
        (definition.table_id, field_id): (show_name(definition), column)
        for definition in definitions
        if definition.is_table
        for column, field_id in definition.field_ids.items()
    }


def _part(key: ChainKey, table: str, column: str, change: str, ranges: RowRanges) -> pa.Table:
    n = len(ranges.starts)
    told = [key[0], table, key[1], column, change]
    columns = [
        pa.repeat(pa.scalar(value, field.type), n)
        for value, field in zip(told, ROW_CHANGES_SCHEMA, strict=False)
    ]
    return pa.table([*columns, pa.array(ranges.starts), pa.array(ranges.ends)], schema=ROW_CHANGES_SCHEMA)
