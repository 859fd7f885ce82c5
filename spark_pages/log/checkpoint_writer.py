"""Writing a checkpoint: only the segments and parts that changed since the last one, and a root.

Pages appended since then go, for all chains together, into a tail run; tail runs are merged into each
other while that is cheap, and into the base when they exceed a quarter of it. Replaced pages are rewritten
where they are, and what a rewrite leaves small is joined with a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from spark_pages.log.catalog_files import write_catalog
from spark_pages.log.checkpoint import Checkpoint, TreeReader
from spark_pages.log.grown import grown
from spark_pages.log.inline_homes import InlineHomes
from spark_pages.log.names import page_file_key, root_key
from spark_pages.log.object_writer import ObjectWriter
from spark_pages.log.packing import SegmentPacker, write_parts
from spark_pages.log.root import Root, description_digest, encode_root, next_predecessors
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
)
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain import ChainKey, ColumnChain, LazyRun, Piece
from spark_pages.model.columns import numbers_of
from spark_pages.model.ids import CATALOG_TABLE, Version
from spark_pages.model.run import PageRun
from spark_pages.runtime import Mapper, map_in_threads
from spark_pages.storage.store import ObjectStore

_TABLES_PER_FILE = 512
_MAX_TAIL_RUNS = 4
_CHEAP_MERGE = 4
"""A tail run is merged with newer pages if that rewrites at most so many times as many."""


def write_checkpoint(
    store: ObjectStore,
    state: LogState,
    previous: Checkpoint | None,
    token: str,
    at_once: Mapper = map_in_threads,
) -> CheckpointRef:
    """Write a checkpoint of the state and give its reference; nothing refers to it yet.

    Parameters
    ----------
    state
        What to keep; its edits must stand on `previous`.
    token
        32 hexadecimal digits, for the page file of inline pages that get a home.
    at_once
        Carries out the requests of one round.

    Raises
    ------
    StorageError
        If an object could not be written, or is not there afterwards with all its bytes.

    Notes
    -----
    Every object is immutable and named by its digest, so a crash leaves only objects that nothing
    names, and two writers of the same checkpoint do no harm. The root is written when all the others
    have been found in storage. Memory of a few segments, whatever is rewritten.
    """
    objects = ObjectWriter(store, at_once)
    parts = _Writer(objects, state, previous, token).write_tree()
    catalog = write_catalog(objects, state, previous, _TABLES_PER_FILE)
    objects.settle()
    root = Root(
        state=replace(state, edits={}, tables={}, names={}, tokens={}),
        sequence=previous.root.sequence + 1 if previous else 0,
        predecessors=next_predecessors(previous.root, previous.ref) if previous else (),
        parts=tuple(parts),
        catalog=catalog,
        table_zero=_table_zero(state, previous),
    )
    location = objects.put(encode_root(root), lambda digest: root_key(state.version, digest))
    objects.settle()
    return CheckpointRef(Version(state.version), location)


def _table_zero(state: LogState, previous: Checkpoint | None) -> str:
    """The digest of what table 0 says of itself; empty where nothing does, as in a log made by hand."""
    told = state.tables.get(CATALOG_TABLE)
    if told is None:
        return previous.root.table_zero if previous else ""
    return description_digest(told)


class _Writer:
    def __init__(
        self, objects: ObjectWriter, state: LogState, previous: Checkpoint | None, token: str
    ) -> None:
        self._objects = objects
        self._state = state
        self._previous = previous
        self._homes = InlineHomes(page_file_key(state.version, token, 0))
        self._catalog_homes = InlineHomes(page_file_key(state.version, token, 1))  # whose pages live on

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
            base, tails = self._rewrite(base, merged, level=0), []
        else:
            gone: Changes = {key: [Change(0, END)] for key in base_changes}
            tails = [tail for tail in (self._rewrite(tail, gone, level=1) for tail in tails) if tail]
            self._objects.send()  # what follows reads tail runs, those too that were rewritten just now
            base = self._rewrite(base, base_changes, level=0)
            tails = self._add_tail(tails, appended)
        self._homes.write(self._objects)
        self._catalog_homes.write(self._objects)
        return [*base, *(replace(n, level=i) for i, tail in enumerate(tails, 1) for n in tail)]

    def _sort_edits(self) -> tuple[dict[ChainKey, list[Change]], dict[ChainKey, list[Piece]]]:
        """Chains whose base changes, and chains that only grew."""
        base_changes: dict[ChainKey, list[Change]] = {}
        appended: dict[ChainKey, list[Piece]] = {}
        for key, edits in self._state.edits.items():
            pieces = grown(edits)
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
        self, tails: list[list[Node]], appended: Mapping[ChainKey, Sequence[Piece]]
    ) -> list[list[Node]]:
        """The tail runs with one more, merged into those that this rewrites cheaply, newest first.

        So the sizes of tail runs grow about geometrically from the newest to the oldest, and a page is
        rewritten some four times for each of them before it reaches the base.
        """
        if not appended:
            return tails
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
                piece = LazyRun(stop - start, num_rows, self._slice_of(node, start, stop))
                changes.setdefault(key, []).append(Change(END, END, (piece,)))

    def _slice_of(self, node: Node, start: int, stop: int) -> Callable[[], list[PageRun]]:
        return lambda: [self._load(node).slice(start, stop)]

    # rewriting

    def _rewrite(self, parts: Sequence[Node], changes: Changes, level: int) -> list[Node]:
        """The parts of a level after the changes; untouched parts and segments stay as they are.

        Touched parts that follow each other are cut anew together. If what comes of them is less than
        a quarter of a part, a neighbour joins them, so that small parts do not pile up.
        """
        if not changes:
            return list(parts)
        if not parts:
            return self._write_parts(self._insert_all(changes, level), level)
        out: list[Node] = []
        open_children: list[Node] = []
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
            open_children = [*self._tree().part(out.pop()), *open_children]
        return out + self._write_parts(open_children, level)

    def _rewrite_part(self, part: Node, changes: Changes, level: int) -> list[Node]:
        """The segments of a part after the changes.

        Touched segments that follow each other are cut anew together. If less than a quarter of a
        segment comes of them, the smaller neighbour joins them, and so do neighbours that are as
        small themselves, until one segment is full: at most about one segment more is rewritten for
        each row of touched ones.
        """
        out: list[Node] = []
        packer = SegmentPacker(self._objects, PAGES_PER_SEGMENT, level, self._state.version)
        children = self._tree().part(part)
        assigned = assign(children, changes)
        few = PAGES_PER_SEGMENT // 4
        for index, node in enumerate(children):
            if index in assigned:
                if not packer.waiting and out and out[-1].pages < few:
                    self._pack(packer, out.pop())
                self._pack_changed(packer, node, assigned[index])
            elif 0 < packer.waiting < few:
                if out and out[-1].pages < node.pages:
                    packer.add_in_front(self._tree().segment(out[-1]), self._load(out.pop()))
                    out += packer.take()
                    out.append(node)
                else:
                    self._pack(packer, node)
            elif 0 < packer.waiting < PAGES_PER_SEGMENT and node.pages < few:
                self._pack(packer, node)
            else:
                out += packer.take()
                out.append(node)
        if 0 < packer.waiting < few and out:
            packer.add_in_front(self._tree().segment(out[-1]), self._load(out.pop()))
        return out + packer.take()

    def _pack(self, packer: SegmentPacker, node: Node) -> None:
        packer.add_segment(self._tree().segment(node), self._load(node), 0, node.pages)

    def _pack_changed(self, packer: SegmentPacker, node: Node, changes: Changes) -> None:
        segment, whole = self._tree().segment(node), self._load(node)
        position = 0
        for key in sorted(changes):
            start, stop = segment.find(key)
            for change in changes[key]:
                low = min(start + change.start, stop)
                packer.add_segment(segment, whole, position, low)
                for run in self._materialise(key, change.added):
                    packer.add(key, run)
                position = max(low, min(start + change.stop, stop))
        packer.add_segment(segment, whole, position, whole.num_pages)

    def _insert_all(self, changes: Changes, level: int) -> list[Node]:
        packer = SegmentPacker(self._objects, PAGES_PER_SEGMENT, level, self._state.version)
        for key in sorted(changes):
            for change in changes[key]:
                for run in self._materialise(key, change.added):
                    packer.add(key, run)
        return packer.take()

    def _write_parts(self, nodes: Sequence[Node], level: int) -> list[Node]:
        return write_parts(self._objects, nodes, SEGMENTS_PER_PART, level, self._state.version)

    def _materialise(self, key: ChainKey, pieces: Iterable[Piece]) -> Iterable[PageRun]:
        """Runs about as large as segments, their inline pages given a home."""
        homes = self._catalog_homes if key[0] == CATALOG_TABLE else self._homes
        return (homes.give_home(run) for run in _joined(_loaded(pieces)))

    def _load(self, node: Node) -> PageRun:
        load_stats = (lambda: self._tree().stats(node)) if node.stats_length else None
        return PageRun(self._tree().segment(node).pages, load_stats)

    def _tree(self) -> TreeReader:
        assert self._previous is not None
        return self._previous.tree


def _loaded(pieces: Iterable[Piece]) -> Iterable[PageRun]:
    for piece in pieces:
        if isinstance(piece, LazyRun):
            yield from _loaded(piece.expand())
        elif piece.num_pages:
            yield piece


def _joined(runs: Iterable[PageRun]) -> Iterable[PageRun]:
    """The same pages in fewer runs: a stream of commits brings runs of a page or two."""
    some: list[PageRun] = []
    pages = 0
    for run in runs:
        some.append(run)
        pages += run.num_pages
        if pages >= PAGES_PER_SEGMENT:
            yield PageRun.concat(some)
            some, pages = [], 0
    if some:
        yield PageRun.concat(some)


def _pages_of(pieces: Mapping[ChainKey, Sequence[Piece]]) -> int:
    return sum(piece.num_pages for of_chain in pieces.values() for piece in of_chain)
