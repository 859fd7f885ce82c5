"""Writing a checkpoint: only the segments and parts that changed since the last one, and a root.

Pages appended since then go, for all chains together, into a tail run; tail runs are merged into
the base when they exceed a quarter of it. Replaced pages are rewritten where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spark_pages.log.checkpoint import Checkpoint, TreeReader
from spark_pages.log.digest import digest_of
from spark_pages.log.names import catalog_key, page_file_key, part_key, root_key, segment_key, stats_key
from spark_pages.log.root import CatalogFile, Root, encode_catalog, encode_root, next_predecessors
from spark_pages.log.segment import Segment, encode_nodes, encode_segment, encode_stats
from spark_pages.log.state import LogState
from spark_pages.log.tree import (
    END,
    PAGES_PER_SEGMENT,
    SEGMENTS_PER_PART,
    Change,
    Changes,
    Node,
    assign,
    changes_of_base,
    even_chunks,
)
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain import ChainKey, ColumnChain, LazyRun, Piece
from spark_pages.model.ids import Version
from spark_pages.model.location import Location
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, PageRun, concat_batches
from spark_pages.model.table import TableDefinition
from spark_pages.storage.store import ObjectStore

_TABLES_PER_FILE = 512
_MAX_TAIL_RUNS = 4


def write_checkpoint(
    store: ObjectStore, state: LogState, previous: Checkpoint | None, token: str
) -> CheckpointRef:
    """Write a checkpoint of the state and give its reference; nothing refers to it yet.

    Parameters
    ----------
    state
        What to keep; its edits must stand on `previous`.
    token
        32 hexadecimal digits, for the page file of inline pages that get a home.

    Notes
    -----
    Every object is immutable and named by its digest, so a crash leaves only objects that nothing
    names, and two writers of the same checkpoint do no harm.
    """
    writer = _Writer(store, state, previous, token)
    parts = writer.write_tree()
    root = Root(
        state=replace(state, edits={}, tables={}, names={}, tokens={}),
        sequence=previous.root.sequence + 1 if previous else 0,
        predecessors=next_predecessors(previous.root, previous.ref) if previous else (),
        parts=tuple(parts),
        catalog=_write_catalog(store, state, previous),
    )
    data = encode_root(root)
    location = _put(store, data, lambda digest: root_key(state.version, digest))
    return CheckpointRef(Version(state.version), location)


def _put(store: ObjectStore, data: bytes, name: Callable[[str], str]) -> Location:
    digest = digest_of(data)
    location = Location(name(digest), len(data), digest, original_length=len(data))
    store.put(location.key, data)
    return location


class _Writer:
    def __init__(self, store: ObjectStore, state: LogState, previous: Checkpoint | None, token: str) -> None:
        self._store = store
        self._state = state
        self._previous = previous
        self._homes = _InlineHomes(page_file_key(state.version, token, 0))

    def write_tree(self) -> list[Node]:
        levels = self._previous.levels() if self._previous else {0: []}
        base, tails = levels[0], [levels[level] for level in sorted(levels) if level]
        base_changes, appended = self._sort_edits()
        rewritten = list(base_changes)
        tail_pages = sum(node.pages for tail in tails for node in tail) + sum(
            piece.num_pages for pieces in appended.values() for piece in pieces
        )
        gone: Changes = {key: [Change(0, END)] for key in rewritten}
        tails = [tail for tail in (self._rewrite(tail, gone, level=1) for tail in tails) if tail]
        if tail_pages * 4 > sum(node.pages for node in base):
            merged: dict[ChainKey, list[Change]] = {key: list(c) for key, c in base_changes.items()}
            for key, run in self._tail_runs(tails):
                merged.setdefault(key, []).append(Change(END, END, (run,)))
            for key, pieces in appended.items():
                merged.setdefault(key, []).append(Change(END, END, tuple(pieces)))
            base, tails = self._rewrite(base, merged, level=0), []
        else:
            base = self._rewrite(base, base_changes, level=0)
            tails = self._add_tail(tails, appended)
        self._homes.write(self._store)
        return [*base, *(replace(n, level=i) for i, tail in enumerate(tails, 1) for n in tail)]

    def _sort_edits(self) -> tuple[dict[ChainKey, list[Change]], dict[ChainKey, list[Piece]]]:
        """Chains whose base changes, and chains that only grew."""
        base_changes: dict[ChainKey, list[Change]] = {}
        appended: dict[ChainKey, list[Piece]] = {}
        for key, edits in self._state.edits.items():
            if all(not edit.removed and not edit.clears for edit in edits):
                appended[key] = [edit.added for edit in edits if edit.added.num_pages]
                continue
            before = self._previous.chain(key) if self._previous else []
            base_pages = sum(piece.num_pages for piece in before if piece.base_position >= 0)
            chain = ColumnChain(before).apply(edits)
            base_changes[key] = changes_of_base(chain.pieces, base_pages)
        return base_changes, {key: pieces for key, pieces in appended.items() if pieces}

    def _tail_runs(self, tails: Sequence[Sequence[Node]]) -> Iterable[tuple[ChainKey, PageRun]]:
        """Every run of pages of a chain in the tails, oldest tail first."""
        assert self._previous or not tails
        for tail in tails:
            for part in tail:
                for node in self._tree().part(part):
                    segment = self._tree().segment(node)
                    keys = segment.keys
                    bounds = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
                    run = self._load(node)
                    for start, stop in pairwise(bounds):
                        key = int(segment.table_ids[start]), int(segment.field_ids[start])
                        yield key, run.slice(start, stop)

    def _add_tail(
        self, tails: list[list[Node]], appended: Mapping[ChainKey, Sequence[Piece]]
    ) -> list[list[Node]]:
        changes = {key: [Change(END, END, tuple(pieces))] for key, pieces in appended.items()}
        if not changes:
            return tails
        if len(tails) < _MAX_TAIL_RUNS:
            return [*tails, self._rewrite([], changes, level=1)]
        for key, run in reversed(list(self._tail_runs(tails[1:]))):
            changes.setdefault(key, []).insert(0, Change(END, END, (run,)))
        return [self._rewrite(tails[0], changes, level=1)]

    def _rewrite(self, parts: Sequence[Node], changes: Changes, level: int) -> list[Node]:
        """The parts of a level after the changes; untouched parts and segments stay as they are."""
        if not changes:
            return list(parts)
        if not parts:
            return self._write_parts(self._insert_all(changes, level), level)
        out: list[Node] = []
        assigned = assign(parts, changes)
        for index, part in enumerate(parts):
            if index not in assigned:
                out.append(part)
                continue
            out += self._write_parts(self._rewrite_part(part, assigned[index], level), level)
        return out

    def _rewrite_part(self, part: Node, changes: Changes, level: int) -> list[Node]:
        nodes: list[Node] = []
        children = self._tree().part(part)
        assigned = assign(children, changes)
        for index, node in enumerate(children):
            if index in assigned:
                nodes += self._rewrite_segment(node, assigned[index], level)
            else:
                nodes.append(node)
        return nodes

    def _rewrite_segment(self, node: Node, changes: Changes, level: int) -> list[Node]:
        segment, whole = self._tree().segment(node), self._load(node)
        keys: list[tuple[ChainKey, int]] = []
        runs: list[PageRun] = []

        def keep(start: int, stop: int) -> None:
            if start < stop:
                runs.append(whole.slice(start, stop))
                bounds = [start, *(np.flatnonzero(np.diff(segment.keys[start:stop])) + 1 + start), stop]
                for low, high in pairwise(bounds):
                    key = int(segment.table_ids[low]), int(segment.field_ids[low])
                    keys.append((key, int(high - low)))

        position = 0
        for key in sorted(changes):
            start, stop = segment.find(key)
            for change in changes[key]:
                low = min(start + change.start, stop)
                keep(position, low)
                for run in self._materialise(change.added):
                    keys.append((key, run.num_pages))
                    runs.append(run)
                position = max(low, min(start + change.stop, stop))
        keep(position, whole.num_pages)
        return self._write_segments(keys, runs, level)

    def _insert_all(self, changes: Changes, level: int) -> list[Node]:
        keys: list[tuple[ChainKey, int]] = []
        runs: list[PageRun] = []
        for key in sorted(changes):
            for change in changes[key]:
                for run in self._materialise(change.added):
                    keys.append((key, run.num_pages))
                    runs.append(run)
        return self._write_segments(keys, runs, level)

    def _materialise(self, pieces: Iterable[Piece]) -> Iterable[PageRun]:
        for piece in pieces:
            if isinstance(piece, LazyRun):
                yield from self._materialise(piece.expand())
            elif piece.num_pages:
                yield self._homes.give_home(piece)

    def _load(self, node: Node) -> PageRun:
        load_stats = (lambda: self._tree().stats(node)) if node.stats_length else None
        return PageRun(self._tree().segment(node).pages, load_stats)

    def _tree(self) -> TreeReader:
        assert self._previous is not None
        return self._previous.tree

    def _write_segments(
        self, keys: Sequence[tuple[ChainKey, int]], runs: Sequence[PageRun], level: int
    ) -> list[Node]:
        if not runs:
            return []
        counts = np.array([count for _, count in keys])
        segment = Segment(
            np.repeat(np.array([key[0] for key, _ in keys], dtype=np.int64), counts),
            np.repeat(np.array([key[1] for key, _ in keys], dtype=np.int64), counts),
            concat_batches([run.pages for run in runs], PAGE_SCHEMA),
        )
        stats = concat_batches([run.stats for run in runs], STATS_SCHEMA)
        return [
            self._write_segment(segment, stats, start, stop, level)
            for start, stop in even_chunks(segment.pages.num_rows, PAGES_PER_SEGMENT)
        ]

    def _write_segment(
        self, segment: Segment, stats: pa.RecordBatch, start: int, stop: int, level: int
    ) -> Node:
        pages = segment.pages.slice(start, stop - start)
        part = Segment(segment.table_ids[start:stop], segment.field_ids[start:stop], pages)
        location = _put(self._store, encode_segment(part), segment_key)
        stats = stats.slice(start, stop - start)
        stats_location: Location | None = None
        if stats.column("null_count").null_count < stats.num_rows:
            stats_location = _put(self._store, encode_stats(stats), stats_key)
        first = int(part.table_ids[0]), int(part.field_ids[0])
        last = int(part.table_ids[-1]), int(part.field_ids[-1])
        entries = pages.column("entry_count").to_numpy()
        (first_start, first_stop), (last_start, last_stop) = part.find(first), part.find(last)
        return Node(
            level,
            first,
            last,
            stop - start,
            first_stop - first_start,
            int(entries[first_start:first_stop].sum()),
            last_stop - last_start,
            int(entries[last_start:last_stop].sum()),
            location.digest,
            location.length,
            stats_location.digest if stats_location else "",
            stats_location.length if stats_location else 0,
        )

    def _write_parts(self, nodes: Sequence[Node], level: int) -> list[Node]:
        parts = []
        for start, stop in even_chunks(len(nodes), SEGMENTS_PER_PART):
            children = nodes[start:stop]
            location = _put(self._store, encode_nodes(children), part_key)
            first, last = children[0].first, children[-1].last
            first_counts = _totals(children, first)
            last_counts = _totals(children, last)
            pages = sum(node.pages for node in children)
            parts.append(
                Node(level, first, last, pages, *first_counts, *last_counts, location.digest, location.length)
            )
        return parts


def _totals(nodes: Sequence[Node], key: ChainKey) -> tuple[int, int]:
    counts = [count for node in nodes if (count := node.count(key)) is not None]
    return sum(pages for pages, _ in counts), sum(rows for _, rows in counts)


class _InlineHomes:
    """Gives inline pages a place in a page file that only checkpoints name, byte for byte."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._data = bytearray()

    def give_home(self, run: PageRun) -> PageRun:
        kinds = run.numbers("kind")
        inline = np.flatnonzero(kinds == PageKind.INLINE)
        if not len(inline):
            return run
        pages = run.pages.to_pydict()
        for index in inline.tolist():
            data: bytes = pages["data"][index]
            pages["kind"][index] = int(PageKind.FILE)
            pages["path"][index] = self._key
            pages["offset"][index] = len(self._data)
            pages["actual_len"][index] = len(data)
            pages["data"][index] = None
            self._data += data + bytes(-len(data) % PAGE_ALIGNMENT)
            pages["alloc_len"][index] = len(self._data) - pages["offset"][index]
        columns = [
            pa.array(pages[field.name], pa.string()).dictionary_encode()
            if field.name == "path"
            else pa.array(pages[field.name], field.type)
            for field in PAGE_SCHEMA
        ]
        return PageRun(pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA), lambda: run.stats)

    def write(self, store: ObjectStore) -> None:
        if self._data:
            store.put(self._key, bytes(self._data))


def _write_catalog(
    store: ObjectStore, state: LogState, previous: Checkpoint | None
) -> tuple[CatalogFile, ...]:
    """Catalog files: untouched ones are shared with the previous checkpoint."""
    changed = {(d.namespace_id, d.name): d for d in state.tables.values() if d is not None}
    touched = set(state.names) | set(changed)
    files = list(previous.root.catalog) if previous else []
    if not touched:
        return tuple(files)
    if not files:
        return tuple(_catalog_files(store, [changed[name] for name in sorted(changed)]))
    assert previous is not None
    per_file: dict[int, set[tuple[int, str]]] = {}
    for name in touched:
        index = next((i for i, file in enumerate(files) if file.last >= name), len(files) - 1)
        per_file.setdefault(index, set()).add(name)
    out: list[CatalogFile] = []
    for index, file in enumerate(files):
        if index not in per_file:
            out.append(file)
            continue
        live = {(d.namespace_id, d.name): d for d in previous.tree.catalog(file.location)}
        for name in per_file[index]:
            live.pop(name, None)
            if name in changed:
                live[name] = changed[name]
        out += _catalog_files(store, [live[name] for name in sorted(live)])
    return tuple(out)


def _catalog_files(store: ObjectStore, definitions: Sequence[TableDefinition]) -> list[CatalogFile]:
    files = []
    for start, stop in even_chunks(len(definitions), _TABLES_PER_FILE):
        chunk = definitions[start:stop]
        location = _put(store, encode_catalog(chunk), catalog_key)
        files.append(
            CatalogFile(
                (chunk[0].namespace_id, chunk[0].name), (chunk[-1].namespace_id, chunk[-1].name), location
            )
        )
    return files
