"""Writing a checkpoint: only the segments and parts that changed since the last one, and a root.

Pages appended since then go, for all chains together, into a tail run; tail runs are merged into each
other while that is cheap, and into the base when they exceed a quarter of it. Replaced pages are rewritten
where they are, and what a rewrite leaves small is joined with a neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_pages.arrow.columns import numbers_of
from spark_pages.format.checkpoint_tree import (
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
from spark_pages.format.names import catalog_key, root_key
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import Checkpoint, SegmentPart, TreeReader, down_to_segments
from spark_pages.log.checkpoint.root import (
    CatalogFile,
    Root,
    description_digest,
    encode_catalog,
    encode_root,
    next_predecessors,
)
from spark_pages.log.checkpoint.segment_writer import SegmentPacker, SegmentWriter, write_parts
from spark_pages.log.checkpoint.write_plan import (
    CarryOut,
    NewPart,
    NewSegment,
    PlannedPart,
    PlannedSegment,
    StoredPages,
    planned_in,
)
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainEdit, ChainKey, Piece, UnloadedRun
from spark_pages.model.ids import CATALOG_TABLE, Version
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.runtime import Mapper, map_in_threads
from spark_pages.storage.store import ObjectStore

_TABLES_PER_FILE = 512
_MAX_TAIL_RUNS = 4
_CHEAP_MERGE = 4
"""A tail run is merged with newer pages if that rewrites at most so many times as many."""


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A checkpoint, and what was written for it: as many objects, of as many bytes in all."""

    ref: CheckpointRef
    objects: int
    size_bytes: int


def write_checkpoint(
    store: ObjectStore,
    state: LogState,
    previous: Checkpoint | None,
    token: str,
    at_once: Mapper = map_in_threads,
    carry_out: CarryOut | None = None,
) -> WrittenCheckpoint:
    """Write a checkpoint of the state; nothing refers to it yet.

    Parameters
    ----------
    state
        What to keep; its edits must stand on `previous`.
    token
        32 hexadecimal digits, for the page file of inline pages that get a home.
    at_once
        Carries out the requests of one round.
    carry_out
        Writes the segments, in other processes; left out, each is written as soon as it is decided on.

    Raises
    ------
    StorageError
        If an object could not be written, or is not there afterwards with all its bytes.

    Notes
    -----
    Every object is immutable and named by its digest, so a crash leaves only objects that nothing
    names, and two writers of the same checkpoint do no harm. The root is written when all the others
    have been found in storage. Memory of a few segments, whatever is rewritten. Where segments are cut
    is decided by numbers alone, so whoever writes them writes the same.
    """
    objects = ObjectWriter(store, at_once)
    writer = _Writer(objects, state, previous, token, carry_out)
    parts = writer.write_tree()
    catalog = write_catalog(objects, state, previous, _TABLES_PER_FILE)
    objects.wait_all()
    root = Root(
        state=replace(state, edits={}, tables={}, names={}, tokens={}),
        sequence=previous.root.sequence + 1 if previous else 0,
        predecessors=next_predecessors(previous.root, previous.ref) if previous else (),
        parts=tuple(parts),
        catalog=catalog,
        table_zero=_table_zero(state, previous),
    )
    location = objects.put(encode_root(root), lambda digest: root_key(state.version, digest))
    objects.wait_all()
    return WrittenCheckpoint(
        CheckpointRef(Version(state.version), location),
        objects.objects + len(writer.by_others),
        objects.size_bytes + sum(writer.by_others.values()),
    )


def _table_zero(state: LogState, previous: Checkpoint | None) -> str:
    """Return the digest of the columns of table 0, or an empty string for a log without one."""
    told = state.tables.get(CATALOG_TABLE)
    if told is None:
        return previous.root.table_zero if previous else ""
    return description_digest(told)


class _Writer:
    def __init__(
        self,
        objects: ObjectWriter,
        state: LogState,
        previous: Checkpoint | None,
        token: str,
        carry_out: CarryOut | None,
    ) -> None:
        self._objects = objects
        self._state = state
        self._previous = previous
        self._carry_out = carry_out
        self.by_others: dict[str, int] = {}
        self._maker = SegmentWriter(objects, previous.tree if previous else None, state.version, token)

    def write_tree(self) -> list[Node]:
        levels = self._previous.levels() if self._previous else {0: []}
        base, tails = levels[0], [levels[level] for level in sorted(levels) if level]
        base_changes, appended = self._sort_edits()
        tail_pages = sum(node.pages for tail in tails for node in tail) + _pages_of(appended)
        if tail_pages * 4 > sum(node.pages for node in base):
            merged: dict[ChainKey, list[Change]] = {key: list(c) for key, c in base_changes.items()}
            self._append_to(merged, tails, without=frozenset(base_changes))
            for key, pieces in appended.items():
                merged.setdefault(key, []).append(Change(END, END, tuple(pieces)))
            base, *tails = self._written_levels([self._rewrite(base, merged, level=0)])
        else:
            gone: Changes = {key: [Change(0, END)] for key in base_changes}
            left = [tail for tail in (self._rewrite(tail, gone, level=1) for tail in tails) if tail]
            tails = self._written_levels(left)
            self._objects.send()  # what follows reads tail runs, those too that were rewritten just now
            base, *tails = self._written_levels(
                [self._rewrite(base, base_changes, level=0), *self._add_tail(tails, appended)]
            )
        self._maker.finish()
        return [*base, *(replace(n, level=i) for i, tail in enumerate(tails, 1) for n in tail)]

    def _written_levels(self, levels: Sequence[Sequence[NewPart]]) -> list[list[Node]]:
        """Return the parts of each level once all planned segments are written."""
        planned = planned_in(part for parts in levels for part in parts)
        nodes = self._carry_out(planned) if self._carry_out and planned else ()
        if nodes is None:
            nodes = [self._maker(each) for each in planned]
        else:
            self.by_others |= {node.digest: node.length for node in nodes}
            self.by_others |= {node.stats_digest: node.stats_length for node in nodes if node.stats_length}
        made = dict(zip(map(id, planned), nodes, strict=True))
        return [[node for part in parts for node in self._written(part, made)] for parts in levels]

    def _written(self, part: NewPart, made: Mapping[int, Node]) -> list[Node]:
        if isinstance(part, Node):
            return [part]
        children = [each if isinstance(each, Node) else made[id(each)] for each in part.children]
        return write_parts(self._objects, children, len(children), part.level, self._state.version)

    def _sort_edits(self) -> tuple[dict[ChainKey, list[Change]], dict[ChainKey, list[Piece]]]:
        """Chains whose base changes, and chains that only grew."""
        base_changes: dict[ChainKey, list[Change]] = {}
        appended: dict[ChainKey, list[Piece]] = {}
        for key, edits in self._state.edits.items():
            pieces = append_only_edits(edits)
            if pieces is not None:
                appended[key] = pieces
                continue
            before = self._previous.chain(key) if self._previous else []
            base_pages = sum(piece.num_pages for piece in before if piece.base_position >= 0)
            chain = ColumnChain(before).apply(edits)
            base_changes[key] = changes_of_base(chain.pieces, base_pages)
        return base_changes, {key: pieces for key, pieces in appended.items() if pieces}

    # tail runs

    def _add_tail(
        self, tails: Sequence[Sequence[Node]], appended: Mapping[ChainKey, Sequence[Piece]]
    ) -> list[Sequence[NewPart]]:
        """Add one tail run, and merge it into the runs that are cheap to rewrite, newest first.

        So the sizes of tail runs grow about geometrically from the newest to the oldest, and a page is
        rewritten some four times for each of them before it reaches the base.
        """
        if not appended:
            return [*tails]
        into, pages = len(tails), _pages_of(appended)
        changes: dict[ChainKey, list[Change]] = {
            key: [Change(END, END, tuple(pieces))] for key, pieces in appended.items()
        }
        touched = self._touched_pages(tails[-1], changes) if tails else 0
        while into and (into == _MAX_TAIL_RUNS or touched <= max(PAGES_PER_SEGMENT, _CHEAP_MERGE * pages)):
            into -= 1
            pages += sum(node.pages for node in tails[into])
            touched = sum(node.pages for node in tails[into - 1]) if into else 0
        if into == len(tails):
            return [*tails, self._rewrite([], changes, level=1)]
        newer: dict[ChainKey, list[Change]] = {}
        self._append_to(newer, tails[into + 1 :])
        for key, of_chain in changes.items():
            newer.setdefault(key, []).extend(of_chain)
        return [*tails[:into], self._rewrite(tails[into], newer, level=1)]

    def _touched_pages(self, parts: Sequence[Node], changes: Changes) -> int:
        """Pages of the segments that the changes would rewrite."""
        touched = 0
        for index, of_part in assign(parts, changes).items():
            children = self._tree().part(parts[index])
            touched += sum(children[child].pages for child in assign(children, of_part))
        return touched

    def _append_to(
        self,
        changes: dict[ChainKey, list[Change]],
        tails: Sequence[Sequence[Node]],
        without: frozenset[ChainKey] = frozenset(),
    ) -> None:
        """Put behind the changes of each chain what it has in the tail runs, oldest first; loaded later."""
        for node in (node for tail in tails for part in tail for node in self._tree().part(part)):
            segment = self._tree().segment(node)
            rows = np.add.reduceat(numbers_of(segment.pages.column("entry_count")), segment.bounds[:-1])
            for (key, start, stop), num_rows in zip(segment.chains(), rows.tolist(), strict=True):
                if key in without:  # its changes bring these pages along
                    continue
                piece = UnloadedRun(stop - start, num_rows, SegmentPart(self._tree(), node, start, stop))
                changes.setdefault(key, []).append(Change(END, END, (piece,)))

    # rewriting

    def _rewrite(self, parts: Sequence[Node], changes: Changes, level: int) -> list[NewPart]:
        """Return the parts of a level after the changes; unchanged parts and segments are shared.

        Touched parts that follow each other are cut anew together. If what comes of them is less than
        a quarter of a part, a neighbour joins them, so that small parts do not pile up.
        """
        if not changes:
            return list(parts)
        if not parts:
            return self._write_parts(self._insert_all(changes, level), level)
        out: list[NewPart] = []
        open_children: list[NewSegment] = []
        few = SEGMENTS_PER_PART // 4
        assigned = assign(parts, changes)
        for index, part in enumerate(parts):
            if index in assigned:
                open_children += self._rewrite_part(part, assigned[index], level)
            elif 0 < len(open_children) < few:
                open_children += self._tree().part(part)
            else:
                out += self._write_parts(open_children, level)
                out.append(part)
                open_children = []
        if 0 < len(open_children) < few and out:
            open_children = [*self._children(out.pop()), *open_children]
        return out + self._write_parts(open_children, level)

    def _children(self, part: NewPart) -> Sequence[NewSegment]:
        return part.children if isinstance(part, PlannedPart) else self._tree().part(part)

    def _rewrite_part(self, part: Node, changes: Changes, level: int) -> list[NewSegment]:
        """Return the segments of a part after the changes.

        Touched segments that follow each other are cut anew together. If less than a quarter of a
        segment comes of them, the smaller neighbour joins them, and so do neighbours that are as
        small themselves, until one segment is full: at most about one segment more is rewritten for
        each row of touched ones.
        """
        out: list[NewSegment] = []
        packer = self._packer(level)
        children = self._tree().part(part)
        assigned = assign(children, changes)
        few = PAGES_PER_SEGMENT // 4
        for index, node in enumerate(children):
            if index in assigned:
                if not packer.waiting and out and out[-1].pages < few:
                    packer.add_segment(out.pop())
                self._pack_changed(packer, node, assigned[index])
            elif 0 < packer.waiting < few:
                if out and out[-1].pages < node.pages:
                    packer.add_in_front(out.pop())
                    out += packer.take_all()
                    out.append(node)
                else:
                    packer.add_segment(node)
            elif 0 < packer.waiting < PAGES_PER_SEGMENT and node.pages < few:
                packer.add_segment(node)
            else:
                out += packer.take_all()
                out.append(node)
        if 0 < packer.waiting < few and out:
            packer.add_in_front(out.pop())
        return out + packer.take_all()

    def _pack_changed(self, packer: SegmentPacker, node: Node, changes: Changes) -> None:
        segment, whole = self._tree().segment(node), StoredPages(node)
        position = 0
        for key in sorted(changes):
            start, stop = segment.find(key)
            for change in changes[key]:
                low = min(start + change.start, stop)
                packer.add_slice(whole, position, low)
                packer.add(key, down_to_segments(change.added))
                position = max(low, min(start + change.stop, stop))
        packer.add_slice(whole, position, whole.num_pages)

    def _insert_all(self, changes: Changes, level: int) -> list[NewSegment]:
        packer = self._packer(level)
        for key in sorted(changes):
            for change in changes[key]:
                packer.add(key, down_to_segments(change.added))
        return packer.take_all()

    def _packer(self, level: int) -> SegmentPacker:
        make = self._maker if self._carry_out is None else _deferred_part
        return SegmentPacker(PAGES_PER_SEGMENT, level, self._state.version, make)

    def _write_parts(self, children: Sequence[NewSegment], level: int) -> list[NewPart]:
        nodes = [child for child in children if isinstance(child, Node)]
        if len(nodes) == len(children):
            return [*write_parts(self._objects, nodes, SEGMENTS_PER_PART, level, self._state.version)]
        chunks = even_chunks(len(children), SEGMENTS_PER_PART)
        return [PlannedPart(level, tuple(children[start:stop])) for start, stop in chunks]

    def _tree(self) -> TreeReader:
        assert self._previous is not None
        return self._previous.tree


def _deferred_part(planned: PlannedSegment) -> NewSegment:
    return planned


def _pages_of(pieces: Mapping[ChainKey, Sequence[Piece]]) -> int:
    return sum(piece.num_pages for of_chain in pieces.values() for piece in of_chain)


def append_only_edits(edits: Sequence[ChainEdit]) -> list[Piece] | None:
    """Return the pieces that the edits append to a chain, or None if they change an existing page.

    Notes
    -----
    A page that one edit appends and a later one takes away from the end again, as small appends do, has never
    been there. So a checkpoint treats a stream of them as one append.
    """
    pieces: list[Piece] = []
    for edit in edits:
        if edit.clears or not _remove_last(pieces, edit.removed):
            return None
        if edit.added.num_pages:
            pieces.append(edit.added)
    return pieces


def _remove_last(pieces: list[Piece], removed: tuple[int, ...]) -> bool:
    """Take these pages away from the end; whether they stood there."""
    left = len(removed)
    while left:
        last = pieces.pop() if pieces else None
        if not isinstance(last, PageRun):
            return False
        count = min(left, last.num_pages)
        if list(last.ids[last.num_pages - count :]) != list(removed[left - count : left]):
            return False
        if count < last.num_pages:
            pieces.append(last.slice(0, last.num_pages - count))
        left -= count
    return True


# Catalog files of a checkpoint: definitions sorted by name, cut by number and by bytes.
#
# Opening a table by name reads one file whole, so no file is larger than a lookup should cost.

_MAX_FILE_BYTES = 96 << 10
_MAX_FILE_COLUMNS = 16_384
"""A file with more is halved, unless it holds a single table. Columns bound what it takes in memory: schemas
that resemble each other shrink to a twentieth in storage."""


def write_catalog(
    objects: ObjectWriter, state: LogState, previous: Checkpoint | None, tables_per_file: int
) -> tuple[CatalogFile, ...]:
    """Write the catalog files that changed; the others are shared with the previous checkpoint."""
    changed = {(d.namespace_id, d.name): d for d in state.tables.values() if d is not None}
    touched = set(state.names) | set(changed)
    files = list(previous.root.catalog) if previous else []
    if not touched:
        return tuple(files)
    if not files:
        return tuple(
            _split(objects, [changed[name] for name in sorted(changed)], tables_per_file, state.version)
        )
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
        out += _split(objects, [live[name] for name in sorted(live)], tables_per_file, state.version)
    return tuple(out)


def _split(
    objects: ObjectWriter, definitions: Sequence[TableDefinition], tables_per_file: int, version: int
) -> list[CatalogFile]:
    files: list[CatalogFile] = []
    for start, stop in even_chunks(len(definitions), tables_per_file):
        files += _write(objects, definitions[start:stop], version)
    return files


def _write(objects: ObjectWriter, definitions: Sequence[TableDefinition], version: int) -> list[CatalogFile]:
    many = len(definitions) > 1
    columns = sum(len(definition.schema) for definition in definitions)
    data = b"" if many and columns > _MAX_FILE_COLUMNS else encode_catalog(definitions, version)
    if not data or (many and len(data) > _MAX_FILE_BYTES):
        middle = len(definitions) // 2
        return [
            *_write(objects, definitions[:middle], version),
            *_write(objects, definitions[middle:], version),
        ]
    first, last = definitions[0], definitions[-1]
    location = objects.put(data, catalog_key)
    return [CatalogFile((first.namespace_id, first.name), (last.namespace_id, last.name), location)]
