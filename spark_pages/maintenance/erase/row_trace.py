"""Trace of some rows: every page that holds them in a version that is kept, and the objects that list it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.names import commit_key, segment_key, stats_key
from spark_pages.io import PageHandler
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.compaction.compacted_range import BUNDLES, LARGEST, range_around
from spark_pages.log.discovery import base_state
from spark_pages.log.log import Log
from spark_pages.log.replay import replay
from spark_pages.log.slots import SlotReader
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.log.vacuum.reachability import ROUND, Reason, TreeWalker, batches, first_commit
from spark_pages.model.actions import CheckpointRef, Commit, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS, FieldId, TableId, Version, page_version
from spark_pages.model.location import Location
from spark_pages.model.page import PageKind
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.run import PageRun
from spark_pages.query.page_metadata import PageMeta
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore, size_if_there

_PAGES_AT_ONCE = 128
_ROOT = re.compile(r"_log/checkpoints/([0-9]{20})-([0-9a-f]{64})\.parquet")

OWN = frozenset({"erase", "purge rows", "compact pages", "move pages", "restore"})
"""Operations whose parameters, if they are names and numbers, tell nothing of values."""


@dataclass(frozen=True, eq=False, slots=True)
class TracedPage:
    """A page that holds some of the rows.

    Attributes
    ----------
    chain
        Its chain.
    run
        The page alone.
    offsets : int64, shape (n_rows,)
        Where the rows are in the page.
    """

    chain: ChainKey
    run: PageRun
    offsets: NDArray[np.int64]


@dataclass(eq=False, slots=True)
class RowTrace:
    """What versions that are kept hold of some rows.

    Attributes
    ----------
    head
        The newest version.
    pages
        Pages that hold rows, by id.
    live
        Ids of those that the newest version has.
    commits
        Versions of commits that list some of these pages, with the keys of their page manifests.
    leftover
        The same of commits that write to the table and that a killed vacuum has left behind.
    telling
        Versions of commits that touch the rows and have text of a user in their parameters.
    checkpoints
        All checkpoints of the store.
    """

    head: LogState
    table_id: int
    rows: RowRanges
    pages: dict[int, TracedPage] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    commits: dict[int, set[str]] = field(default_factory=dict)
    leftover: dict[int, set[str]] = field(default_factory=dict)
    telling: set[int] = field(default_factory=set)
    checkpoints: set[CheckpointRef] = field(default_factory=set)

    def add(self, snapshot: LogSnapshot, fields: Iterable[int]) -> set[int]:
        """Add the pages of a version that hold rows in some columns; return their ids."""
        found: set[int] = set()
        for field_id in fields:
            key = (TableId(self.table_id), FieldId(field_id))
            chain = snapshot.chain(key)
            inside = self.rows.between(0, chain.num_rows)
            cut = chain.select(inside.starts.astype(np.uint64), inside.ends.astype(np.uint64))
            ids = cut.run.page_ids
            edges = (np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist()
            for start, stop in pairwise([0, *edges, len(ids)]) if len(ids) else ():
                page = int(ids[start])
                found.add(page)
                if page not in self.pages:
                    parts = zip(cut.starts[start:stop].tolist(), cut.stops[start:stop].tolist(), strict=True)
                    offsets = np.concatenate([np.arange(*part) for part in parts])
                    self.pages[page] = TracedPage(key, cut.run.slice(start, start + 1), offsets)
        return found


def trace_rows(log: Log, runtime: Runtime, table_id: int, rows: RowRanges) -> RowTrace:
    """Find the pages that hold some rows of a table in any version that is kept.

    Notes
    -----
    Reads every commit that is kept, and the descriptors of the rows after each that touched them. A number
    that a table gave back, when it became shorter, and another row got since counts as the same row.
    """
    head = log.refresh_to_write().state
    slots = SlotReader(log.store, runtime.map)
    slots.record_range(head.compacted)
    tree = TreeReader(log.store, runtime.map)
    trace = RowTrace(head, table_id, rows, checkpoints=_listed(log.store))
    kept = head.retention
    base = kept.checkpoint if kept else None
    state = base_state(tree, base) if base else LogState()
    first = first_commit(slots, kept.min_readable) if kept else 0
    if base is not None:
        trace.add(log.open(state), _columns(state, log, table_id))
    for commit in _commits(slots, first, head.version + 1, state.version):
        if commit.version > state.version:
            state = replay(state, [commit], log.load_manifest)
            _follow(trace, commit, partial(log.open, state))
        elif commit.version < state.version:
            if any(splice.table_id == table_id for record in commit.records for splice in record.splices):
                trace.leftover[commit.version] = _manifests(commit)
        else:
            _follow(trace, commit, partial(log.open, state))
    final = log.open(state)
    trace.live = trace.add(final, _columns(state, log, table_id))
    for ref in trace.checkpoints:
        if base is not None and ref.version < base.version:
            with suppress(ObjectNotFoundError, DamageError):
                older = base_state(tree, ref)
                trace.add(log.open(older), _columns(older, log, table_id))
    return trace


def _commits(slots: SlotReader, first: int, stop: int, base: int) -> Iterator[Commit]:
    for start in range(first, base + 1, ROUND):
        for slot in slots.present(range(start, min(start + ROUND, base + 1))):
            if isinstance(slot, Commit):
                yield slot
    for start in range(max(first, base + 1), stop, ROUND):
        yield from slots.commits(start, min(start + ROUND, stop))


def _listed(store: ObjectStore) -> set[CheckpointRef]:
    """Return all checkpoints whose root is there, named by a commit or not."""
    found = ((info, _ROOT.fullmatch(info.key)) for info in store.list("_log/checkpoints/"))
    return {
        CheckpointRef(Version(int(match[1])), Location(info.key, info.size_bytes, match[2]))
        for info, match in found
        if match is not None
    }


def _columns(state: LogState, log: Log, table_id: int) -> Iterable[int]:
    """Return field ids that the table may have had, up to a state; of a dropped one those with pages."""
    shown = log.open(state)
    definition = next((each for each in shown.tables() if each.table_id == table_id), None)
    if definition is not None:
        return range(1, definition.next_field_id)
    found = {key[1] for key in state.edits if key[0] == table_id}
    if shown.checkpoint is not None:
        tree = shown.checkpoint.tree
        parts = [part for level in shown.checkpoint.levels().values() for part in level]
        nodes = [node for part in parts if _covers(part, table_id) for node in tree.part(part)]
        for node in (each for each in nodes if _covers(each, table_id)):
            found |= {key[1] for key, _, _ in tree.segment(node).chains() if key[0] == table_id}
    return sorted(found - {LIVENESS})


def _covers(node: Node, table_id: int) -> bool:
    return node.first[0] <= table_id <= node.last[0]


def _follow(trace: RowTrace, commit: Commit, opened: partial[LogSnapshot]) -> None:
    """Add what a commit put in the place of rows, and note what it tells of them."""
    changed: set[int] = set()
    for record in commit.records:
        touches = False
        for splice in record.splices:
            if splice.table_id != trace.table_id or not _may_hold(trace.rows, splice):
                continue
            touches = True
            if splice.field_id != LIVENESS:
                changed.add(int(splice.field_id))
        if touches and _tells(record):
            trace.telling.add(commit.version)
    if not changed:
        return
    trace.add(opened(), sorted(changed))
    if any(page_version(page) == commit.version for page in trace.pages):
        trace.commits[commit.version] = _manifests(commit)


def _may_hold(rows: RowRanges, splice: Splice) -> bool:
    """Whether new pages of a splice may hold some of the rows; an append lands at its place or behind it."""
    if not splice.added_entries or not rows.num_rows:
        return False
    if splice.is_append:
        return splice.first_row < int(rows.ends[-1])
    return rows.between(splice.first_row, splice.first_row + splice.added_entries).num_rows > 0


def _tells(record: TransactionRecord) -> bool:
    """Whether the text of a transaction may tell of values."""
    if record.operation not in OWN:
        return bool(record.parameters)
    return any(name not in {"table", "rows", "pages", "engine", "version"} for name in record.parameters)


def _manifests(commit: Commit) -> set[str]:
    return {each.location.key for record in commit.records for each in record.manifests}


def holding_pages(trace: RowTrace, pages: PageHandler) -> set[int]:
    """Return ids of the pages that hold a value, or entry metadata, of one of the rows. Reads them all."""
    found: set[int] = set()
    ids = list(trace.pages)
    for first in range(0, len(ids), _PAGES_AT_ONCE):
        some = ids[first : first + _PAGES_AT_ONCE]
        found.update(each for each in some if _holds(trace.pages[each], pages))
    return found


def _holds(traced: TracedPage, pages: PageHandler) -> bool:
    page = traced.run.descriptor(0)
    try:
        batch = pages.get_page(page, admit=False)
    except ObjectNotFoundError:  # deleted meanwhile
        return False
    return bool(holds_any(batch.column("data"), PageMeta.of([batch]), traced.offsets))


def holds_any(values: pa.Array, meta: PageMeta, offsets: NDArray[np.int64]) -> bool:
    """Whether an entry at one of the offsets has a value, or something beside it."""
    return bool((valid_of(values)[offsets] | meta.has_any(offsets)).any())


@dataclass(frozen=True, slots=True)
class Holder:
    """An object that holds values of the rows.

    Attributes
    ----------
    kind
        As `VacuumPlan` names kinds of objects.
    size_bytes
        Its size.
    """

    kind: str
    size_bytes: int


def find_holders(trace: RowTrace, holding: set[int], log: Log, runtime: Runtime) -> Mapping[str, Holder]:
    """Return the objects that hold values of pages, or statistics of them, by key."""
    found: dict[str, Reason] = {}
    for page in holding:
        descriptor = trace.pages[page].run.descriptor(0)
        if descriptor.kind is PageKind.FILE:
            found[descriptor.disk_path] = Reason.PAGE_FILE
    versions = {int(page_version(page)) for page in holding} & trace.commits.keys()
    commits = {
        **trace.leftover,
        **{version: set[str]() for version in trace.telling},
        **{v: trace.commits[v] for v in versions},
    }
    for version, manifests in commits.items():
        found[commit_key(version)] = Reason.SLOT
        found |= dict.fromkeys(manifests, Reason.MANIFEST)
        for exponent in range(1, BUNDLES.stop):
            around = range_around(version, exponent)
            if exponent <= LARGEST:
                found[around.key] = Reason.COMPACTED
            if exponent in BUNDLES:
                found[around.archive.key] = Reason.COMPACTED
    found |= _of_checkpoints(trace, holding, log, runtime)
    keys = sorted(found)
    sizes = [size for some in batches(keys) for size in runtime.map(partial(size_if_there, log.store), some)]
    return {
        key: Holder(found[key].value, size) for key, size in zip(keys, sizes, strict=True) if size is not None
    }


def _of_checkpoints(trace: RowTrace, holding: set[int], log: Log, runtime: Runtime) -> dict[str, Reason]:
    """Objects of checkpoints that describe the pages, and page files that these gave a place."""
    found: dict[str, Reason] = {}
    tree = TreeReader(log.store, runtime.map)
    walker, segments = TreeWalker(tree, runtime.map), dict[str, Node]()
    for ref in trace.checkpoints:
        with suppress(DamageError):  # which `verify` reports
            segments |= walker.remaining([ref]).segments
    for key, node in segments.items():
        if not _covers(node, trace.table_id):
            continue
        try:
            segment = tree.segment(node)
        except ObjectNotFoundError:
            continue
        run = PageRun(segment.pages)
        inside = np.flatnonzero(np.isin(run.page_ids, np.fromiter(holding, np.int64, len(holding))))
        if not len(inside):
            continue
        found[key] = Reason.SEGMENT
        assert key == segment_key(node.digest)
        if node.stats_length:
            found[stats_key(node.stats_digest)] = Reason.STATS
        paths = {run.descriptor(int(index)).disk_path for index in inside}
        found |= dict.fromkeys(filter(None, paths), Reason.PAGE_FILE)
    return found
