"""Comparisons of verification: replay with checkpoint, lengths of columns, and page manifests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_pages.arrow.stored_types import schema_to_bytes
from spark_pages.errors import DamageError
from spark_pages.format.digest import fetch_object
from spark_pages.format.names import commit_key
from spark_pages.format.segment import decode_manifest
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.checkpoint.root import description_digest
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.maintenance.verify.faults import RESTORE, FaultKind, Findings
from spark_pages.maintenance.verify.object_names import TableNames
from spark_pages.maintenance.verify.pages import stream
from spark_pages.model.actions import Commit, IntentKind, ManifestRef
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE, LIVENESS
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.storage.store import ObjectStore

_SMALL = (
    "version", "timestamp_us", "token", "digest", "features", "next_table_id", "apps", "properties", "tags",
    "leases", "retention",
)  # fmt: skip
_ALIKE = ("page_id", "entry_count", "payload_entries", "actual_len", "checksum")


def differences(
    replayed: LogState, before: Checkpoint | None, shown: Checkpoint, changed: Iterable[ChainKey]
) -> Iterator[str]:
    """Iterate over the differences between a checkpoint and the log.

    Parameters
    ----------
    replayed
        The state of the checkpoint's version by replay from `before`, or from commit 0 if that is None.
    shown
        The checkpoint.
    changed
        Chains to compare page by page.

    Notes
    -----
    Memory for a few segments, and for the pages added in between.
    """
    state = shown.root.state
    for name in _SMALL:
        told, expected = getattr(state, name), getattr(replayed, name)
        if _plain(told) != _plain(expected):
            yield f"says {name} is {told!r}, but the log says {expected!r}"
    if sorted(map(repr, state.claims)) != sorted(map(repr, replayed.claims)):
        yield "holds other claims than the log"
    snapshot = LogSnapshot(replayed, before)
    told_tables, expected_tables = shown.tables(), snapshot.tables()
    if [described(d) for d in told_tables] != [described(d) for d in expected_tables]:
        yield "has catalog files with other tables than the intents of the log give"
    told_zero = [each for each in told_tables if each.table_id == CATALOG_TABLE]
    if shown.root.table_zero and [shown.root.table_zero] != [description_digest(each) for each in told_zero]:
        yield "says of table 0 what it does not say of itself"
    for key in changed:
        pieces = ColumnChain(before.chain(key) if before else []).apply(replayed.edits.get(key, ())).pieces
        position = first_difference(stream(pieces), stream(shown.chain(key)))
        if position is not None:
            yield f"holds other pages of column {key[1]} of table {key[0]} than the log, from page {position}"


def described(definition: TableDefinition) -> tuple[object, ...]:
    """Return a definition in a form that compares schemas with their metadata."""
    return (
        definition.table_id,
        definition.namespace_id,
        definition.name,
        schema_to_bytes(definition.schema),
        definition.next_field_id,
        definition.aligned,
        dict(definition.properties),
        definition.created_at_us,
    )


def first_difference(one: Iterable[PageRun], other: Iterable[PageRun]) -> int | None:
    """Position of the first run at which two chains differ, whatever runs they are cut into."""
    ones, others = iter(one), iter(other)
    mine, yours = next(ones, None), next(others, None)
    position = 0
    while mine is not None and yours is not None:
        pages = min(mine.num_pages, yours.num_pages)
        if not _same(mine.slice(0, pages), yours.slice(0, pages)):
            return position
        position += pages
        mine = mine.slice(pages, mine.num_pages) if pages < mine.num_pages else next(ones, None)
        yours = yours.slice(pages, yours.num_pages) if pages < yours.num_pages else next(others, None)
    return None if mine is None and yours is None else position


def _same(one: PageRun, other: PageRun) -> bool:
    if any(not one.pages.column(name).equals(other.pages.column(name)) for name in _ALIKE):
        return False
    kinds = [run.numbers("kind") == PageKind.CONSTANT for run in (one, other)]
    if (kinds[0] != kinds[1]).any():
        return False
    if kinds[0].any():
        data = [run.pages.column("data").filter(kinds[0]) for run in (one, other)]
        if not data[0].equals(data[1]):
            return False
    return bool(one.stats.equals(other.stats))


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else value


class ChainLengths:
    """Running totals of rows, by chain.

    Attributes
    ----------
    rows
        Of each chain; None from a commit that is lost up to the next checkpoint.
    """

    def __init__(self, findings: Findings, names: TableNames) -> None:
        self.rows: dict[ChainKey, int] | None = {}
        self._findings = findings
        self._names = names

    def count(self, commit: Commit) -> None:
        """Go on to the lengths after a commit, and compare those of the tables that it touched."""
        rows = self.rows
        if rows is None:
            return
        touched: set[int] = set()
        for record in commit.records:
            for intent in record.intents:
                touched.add(intent.table_id)
                if intent.kind in (IntentKind.TRUNCATE, IntentKind.PURGE) and intent.definition is not None:
                    rows.update(dict.fromkeys(intent.definition.chains, 0))
            for splice in record.splices:
                chain = (splice.table_id, splice.field_id)
                rows[chain] = rows.get(chain, 0) + splice.added_entries - splice.removed_entries
                touched.add(splice.table_id)
        tables = (self._names.table(table_id) for table_id in sorted(touched))
        self._compare(filter(None, tables), commit_key(commit.version), "leaves")

    def restart_from(self, rows: dict[ChainKey, int], shown: Checkpoint) -> None:
        """Start again from a checkpoint; all its tables are compared if commits were removed."""
        counted, self.rows = self.rows is not None, rows
        if not counted:
            self._compare(shown.tables(), shown.ref.location.key, "shows")

    def check_against(self, rows: Mapping[ChainKey, int]) -> list[ChainKey]:
        """Chains that should be of another length, as far as that is known, sorted."""
        if self.rows is None:
            return []
        mine = self.rows
        return sorted(key for key in {*rows, *mine} if rows.get(key, 0) != mine.get(key, 0))

    def _compare(self, tables: Iterable[TableDefinition], key: str, verb: str) -> None:
        rows = self.rows or {}
        for table in tables:
            if not table.aligned:
                continue
            columns = table.field_ids.items()
            lengths = {name: rows.get((table.table_id, number), 0) for name, number in columns}
            if len(set(lengths.values())) > 1:
                what = f"{key} {verb} the columns of {table.name!r} of different length: {lengths}."
                self._findings.add(FaultKind.CONTRADICTION, key, what, RESTORE)
            marked, length = rows.get((table.table_id, LIVENESS), 0), max(lengths.values(), default=0)
            if marked > length:
                what = (
                    f"{key} {verb} the liveness chain of {table.name!r} with {marked} rows, but the table "
                    f"has {length}."
                )
                self._findings.add(FaultKind.CONTRADICTION, key, what, RESTORE)


_ROOM = 256 << 20

Listed = tuple[pa.RecordBatch, pa.RecordBatch]
"""Pages and statistics, row for row."""


@dataclass(eq=False, slots=True)
class ManifestReader:
    """Reads page manifests, and keeps those used last, up to 256 MiB of memory.

    A commit that updated thousands of scattered rows has a splice for each, all of the same manifest, and the
    splices of several such commits lie between each other in a chain.
    """

    store: ObjectStore
    findings: Findings
    _kept: OrderedDict[str, Listed] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def read(self, manifest: ManifestRef) -> Listed:
        """Pages and statistics of a page manifest, counted."""
        key = manifest.location.key
        if key not in self._kept:
            data = self.findings.get(lambda _: fetch_object(self.store, manifest.location), key)
            self._keep(key, decode_manifest(data, key))
        self._kept.move_to_end(key)
        listed = self._kept[key]
        if listed[0].num_rows != manifest.num_pages:
            raise DamageError(
                f"Cannot read manifest {key}: it should list {manifest.num_pages} pages but lists "
                f"{listed[0].num_rows}."
            )
        return listed

    def _keep(self, key: str, listed: Listed) -> None:
        self._kept[key] = listed
        self._bytes += _bytes_of(listed)
        while self._bytes > _ROOM and len(self._kept) > 1:
            self._bytes -= _bytes_of(self._kept.popitem(last=False)[1])


def _bytes_of(listed: Listed) -> int:
    pages, stats = listed
    return int(pages.nbytes) + int(stats.nbytes)
