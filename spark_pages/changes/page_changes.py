"""The change feed by pages: which pages each commit added, replaced and removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of
from spark_pages.changes.row_changes import rows_of
from spark_pages.log.replay import LoadManifest, form_ids
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, Commit, IntentKind, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import TableDefinition

PAGE_CHANGES_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("table_id", pa.int64()),
        ("field_id", pa.int32()),
        ("change", pa.string()),
        ("page_id", pa.int64()),
        ("old_page_id", pa.int64()),
        ("entry_count", pa.int64()),
        ("data_change", pa.bool_()),
    ]
)
_OF_LIVE = (IntentKind.ALTER, IntentKind.DROP)
"""Kinds of intents that change a table which is there."""

_PAYLOAD = ("payload_entries", "actual_len", "checksum")
"""Columns that tell whether two descriptors stand for the same payload."""


@dataclass(eq=False, slots=True)
class _ChainPages:
    """What came to and went from one chain so far."""

    added: list[pa.RecordBatch] = field(default_factory=list)
    removed: list[NDArray[np.int64]] = field(default_factory=list)


def page_changes(
    commits: Iterable[Commit],
    then: LogSnapshot | None,
    table_id: int | None,
    load_manifest: LoadManifest,
) -> pa.Table:
    """Return a row for each page that was added, removed or resized, commit by commit.

    Parameters
    ----------
    commits
        Those after `then`, in order.
    then
        The store before them, or None before there was one. Asked only where a page of it gets another
        entry count, or a table or column of it is truncated, goes or comes back.
    table_id
        Of this table only; None takes all but table 0.

    Returns
    -------
    pyarrow.Table
        Of PAGE_CHANGES_SCHEMA. ``added``: a page came. ``replaced``, ``removed``: a page went, and others
        came with the same splice, or none did. The pages of a table or column that goes are ``removed``,
        those of one that comes back are ``added``. ``entry_count_changed``: the page `page_id` stands in the
        place of `old_page_id` and has the same payload. `entry_count` is null for pages that went.

    Notes
    -----
    Memory follows the result. Reads the page manifests of large transactions.
    """
    feed = _PageFeed(then, table_id, load_manifest)
    parts = [PAGE_CHANGES_SCHEMA.empty_table()]
    for commit in commits:
        for record in commit.records:
            parts += feed.record(record, commit.version)
    return pa.concat_tables(parts)


class _PageFeed:
    def __init__(self, then: LogSnapshot | None, table_id: int | None, load_manifest: LoadManifest) -> None:
        self._then = then
        self._table_id = table_id
        self._load_manifest = load_manifest
        self._chains: dict[ChainKey, _ChainPages] = {}
        self._live_then: dict[int, TableDefinition] | None = None
        self._definitions: dict[int, TableDefinition | None] = {}

    def record(self, record: TransactionRecord, version: int) -> list[pa.Table]:
        """Return the changes of one transaction."""
        parts = []
        for intent in record.intents:
            if self._wanted(intent.table_id) and intent.kind is not IntentKind.REQUIRE:
                parts += self._intent(intent, version)
        own = form_ids(record.pages, version, record.base_ordinal)
        manifests: dict[int, pa.RecordBatch] = {0: own}
        for splice in record.splices:
            if not self._wanted(splice.table_id):
                continue
            if splice.source not in manifests:
                manifest = record.manifests[splice.source - 1]
                listed = self._load_manifest(manifest)[0]
                manifests[splice.source] = form_ids(listed, version, manifest.base_ordinal)
            added = manifests[splice.source].slice(splice.start, splice.stop - splice.start)
            parts += self._splice(splice, added, version)
        return parts

    def _intent(self, intent: CatalogIntent, version: int) -> list[pa.Table]:
        """Return the pages of columns that one catalog change adds and removes."""
        table_id, after = intent.table_id, intent.definition
        if intent.kind in (IntentKind.DROP, IntentKind.PURGE):
            after = None
        before = after
        if intent.kind is not IntentKind.TRUNCATE:
            before = self._definition(table_id) if intent.kind in _OF_LIVE else None
        parts = []
        was, now = (set() if each is None else {key[1] for key in each.chains} for each in (before, after))
        for field_id in sorted(was if intent.kind is IntentKind.TRUNCATE else was - now):
            key = (table_id, field_id)
            parts.append(_removed_rows(version, key, "removed", self._current_pages(key)[0], True))
        for field_id in sorted(now - was):
            key = (table_id, field_id)
            ids, entries = self._current_pages(key)
            unknown = pa.nulls(len(ids), pa.int64())
            parts.append(_rows(version, key, "added", pa.array(ids), unknown, pa.array(entries), True))
        if intent.kind in (IntentKind.TRUNCATE, IntentKind.PURGE) and intent.definition is not None:
            for key in intent.definition.chains:
                self._chains.setdefault(key, _ChainPages()).removed.append(self._current_pages(key)[0])
        self._definitions[table_id] = after
        return parts

    def _definition(self, table_id: int) -> TableDefinition | None:
        """Return the current definition of a live table."""
        if table_id in self._definitions:
            return self._definitions[table_id]
        if self._live_then is None:
            there = self._then.tables() if self._then is not None else []
            self._live_then = {int(each.table_id): each for each in there}
        return self._live_then.get(table_id)

    def _splice(self, splice: Splice, added: pa.RecordBatch, version: int) -> list[pa.Table]:
        key = (splice.table_id, splice.field_id)
        removed = np.array(splice.removed, dtype=np.int64)
        resized = self._resized(key, splice, added)
        seen = self._chains.setdefault(key, _ChainPages())
        seen.added.append(added)
        seen.removed.append(removed)
        if resized:
            ids = pa.array(removed, pa.int64())
            return [_added_rows(version, key, "entry_count_changed", added, ids, splice.data_change)]
        went = "replaced" if added.num_rows else "removed"
        return [
            _removed_rows(version, key, went, removed, splice.data_change),
            _added_rows(
                version, key, "added", added, pa.nulls(added.num_rows, pa.int64()), splice.data_change
            ),
        ]

    def _wanted(self, table_id: int) -> bool:
        return table_id != CATALOG_TABLE if self._table_id is None else table_id == self._table_id

    def _resized(self, key: ChainKey, splice: Splice, added: pa.RecordBatch) -> bool:
        """Whether one page gives way to the same payload with another entry count."""
        if len(splice.removed) != 1 or added.num_rows != 1 or splice.row_preserving:
            return False
        old = self._page(key, splice.removed[0], splice.first_row, splice.removed_entries)
        return old is not None and all(old.column(name).equals(added.column(name)) for name in _PAYLOAD)

    def _page(self, key: ChainKey, page_id: int, first_row: int, entries: int) -> pa.RecordBatch | None:
        """Return the descriptor of a page of the chain as a batch of one row."""
        for batch in reversed(self._chains.get(key, _ChainPages()).added):
            found = np.flatnonzero(batch.column("page_id").to_numpy() == page_id)
            if len(found):
                return batch.slice(int(found[0]), 1)
        if self._then is None:
            return None
        end_row = first_row + entries
        if end_row > rows_of(self._then, key):
            return None
        run = self._then.chain(key).pages_between(first_row, end_row + 1)
        found = np.flatnonzero(run.page_ids == page_id)
        return run.pages.slice(int(found[0]), 1) if len(found) else None

    def _current_pages(self, key: ChainKey) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids and entry counts of the pages of a chain as it stands."""
        seen = self._chains.get(key, _ChainPages())
        batches = list(seen.added)
        if self._then is not None and key[0] < self._then.state.next_table_id:
            batches.insert(0, self._then.chain(key).all_pages().pages)
        none = np.zeros(0, dtype=np.int64)
        ids, entries = (
            np.concatenate([none, *(numbers_of(batch.column(name)) for batch in batches)])
            for name in ("page_id", "entry_count")
        )
        stays = ~np.isin(ids, np.concatenate([none, *seen.removed]))
        return ids[stays], entries[stays]


def _added_rows(
    version: int, key: ChainKey, change: str, pages: pa.RecordBatch, old: pa.Array, data_change: bool
) -> pa.Table:
    return _rows(version, key, change, pages.column("page_id"), old, pages.column("entry_count"), data_change)


def _removed_rows(
    version: int, key: ChainKey, change: str, ids: NDArray[np.int64], data_change: bool
) -> pa.Table:
    unknown = pa.nulls(len(ids), pa.int64())
    return _rows(version, key, change, pa.array(ids, pa.int64()), unknown, unknown, data_change)


def _rows(
    version: int,
    key: ChainKey,
    change: str,
    ids: pa.Array,
    old: pa.Array,
    entry_count: pa.Array,
    data_change: bool,
) -> pa.Table:
    n = len(ids)
    return pa.table(
        [
            pa.repeat(pa.scalar(version, pa.int64()), n),
            pa.repeat(pa.scalar(key[0], pa.int64()), n),
            pa.repeat(pa.scalar(key[1], pa.int32()), n),
            pa.repeat(pa.scalar(change), n),
            ids,
            old,
            entry_count,
            pa.repeat(pa.scalar(data_change), n),
        ],
        schema=PAGE_CHANGES_SCHEMA,
    )
