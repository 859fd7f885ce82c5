"""The trees of checkpoints: every object by itself, and what each says of the ones below it.

What an object holds is kept in a few numbers, by its digest: checkpoints share most of their objects, and
each is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of
from spark_pages.errors import SparkPagesError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.digest import fetch_object
from spark_pages.format.names import part_key, segment_key, stats_key
from spark_pages.format.segment import Segment, decode_nodes, decode_segment, decode_stats
from spark_pages.log.checkpoint.root import CatalogFile, Root, decode_catalog, decode_root
from spark_pages.maintenance.verify.faults import REPAIR, Fault, FaultKind, Findings
from spark_pages.maintenance.verify.object_names import TableNames
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.location import Location
from spark_pages.model.run import PageRun
from spark_pages.storage.store import ObjectStore

SegmentPages = Callable[[Segment, PageRun, str], None]
"""Told of every segment once: the segment, its pages with their statistics, and its key."""

Counts = tuple[ChainKey, ChainKey, int, int, int, int, int]
"""First and last chain, pages, pages and rows of the first chain, and of the last."""


@dataclass(frozen=True, eq=False, slots=True)
class Content:
    """What a segment or manifest part really holds.

    Attributes
    ----------
    counts
        What its parent must say of it.
    keys, rows : int64
        Its chains as numbers (table id shifted by 32, and field id), and the rows of each; of a segment.
    """

    counts: Counts
    keys: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(eq=False, slots=True)
class SurveyedTree:
    """One checkpoint, read whole.

    Attributes
    ----------
    ref
        Which.
    root
        Its root; None where that cannot be read.
    broken
        What cannot be read of it: key and where it should be.
    faults
        Everything that is wrong with it.
    leaves
        Digests of its segments, in order, level by level.
    """

    ref: CheckpointRef
    root: Root | None = None
    broken: dict[str, Location] = field(default_factory=dict)
    faults: dict[Fault, None] = field(default_factory=dict)
    leaves: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether it can be read, every object of it."""
        return self.root is not None and not self.broken


class TreeSurvey:
    """Reads trees; remembers by digest what was read.

    Attributes
    ----------
    keys
        Of every object that a tree names.
    """

    def __init__(
        self, store: ObjectStore, findings: Findings, names: TableNames, on_segment: SegmentPages
    ) -> None:
        self._store = store
        self._findings = findings
        self._names = names
        self._on_segment = on_segment
        self._segments: dict[str, Content | Fault] = {}
        self._parts: dict[str, tuple[Content, list[Node]] | Fault] = {}
        self._catalogs: dict[str, bool | Fault] = {}
        self._stats: dict[str, int | Fault] = {}
        self.keys: set[str] = set()

    def segment(self, digest: str) -> Content:
        """Return the content of a segment that was read."""
        content = self._segments[digest]
        assert isinstance(content, Content)
        return content

    def rows(self, tree: SurveyedTree) -> dict[ChainKey, int]:
        """Rows of every chain of a whole tree."""
        contents = [self.segment(digest) for digest in tree.leaves]
        if not contents:
            return {}
        keys = np.concatenate([content.keys for content in contents])
        rows = np.concatenate([content.rows for content in contents])
        distinct, place = np.unique(keys, return_inverse=True)
        totals = np.zeros(len(distinct), np.int64)
        np.add.at(totals, place, rows)
        return {
            (key >> 32, key & 0xFFFF_FFFF): total
            for key, total in zip(distinct.tolist(), totals.tolist(), strict=True)
        }

    def survey(self, ref: CheckpointRef) -> SurveyedTree:
        """Read a checkpoint whole.

        Notes
        -----
        A request for each object that no tree before it shared; memory for one segment, and some hundred
        bytes for each object seen.
        """
        tree = SurveyedTree(ref)
        key = ref.location.key
        self.keys.add(key)
        try:
            root = decode_root(self._fetch(ref.location), key)
        except SparkPagesError as error:
            tree.broken[key] = ref.location
            tree.faults[_fault(error, key)] = None
            return tree
        tree.root = root
        if root.state.version != ref.version:
            _contradicts(tree, key, f"shows version {root.state.version}, not {ref.version}")
        self._check_order(tree, key, root.parts, by_level=True)
        for part in root.parts:
            self._part(tree, part, key)
        self._check_catalog(tree, key, root.catalog)
        return tree

    def _part(self, tree: SurveyedTree, part: Node, parent: str) -> None:
        key = part_key(part.digest)
        self.keys.add(key)
        if part.digest not in self._parts:
            try:
                children = decode_nodes(self._fetch(Location(key, part.length, part.digest)), key)
                self._parts[part.digest] = Content(_sum(children), _NONE, _NONE), children
            except SparkPagesError as error:
                self._parts[part.digest] = _fault(error, key)
        known = self._parts[part.digest]
        if isinstance(known, Fault):
            tree.broken[key] = Location(key, part.length, part.digest)
            tree.faults[self._with_rows(known, part)] = None
            return
        content, children = known
        self._compare(tree, part, content.counts, parent, key)
        self._check_order(tree, key, children, by_level=False)
        for node in children:
            self._leaf(tree, node, key)

    def _leaf(self, tree: SurveyedTree, node: Node, parent: str) -> None:
        key = segment_key(node.digest)
        tree.leaves.append(node.digest)
        self.keys.add(key)
        if node.digest not in self._segments:
            self._segments[node.digest] = self._read_segment(tree, node, key)
        content = self._segments[node.digest]
        if isinstance(content, Fault):
            tree.broken[key] = Location(key, node.length, node.digest)
            tree.faults[self._with_rows(content, node)] = None
        else:
            self._compare(tree, node, content.counts, parent, key)
        if not node.stats_length:
            return
        where = stats_key(node.stats_digest)
        self.keys.add(where)
        stats = self._stats.get(node.stats_digest)
        if stats is None:  # the segment is known from another tree, or broken
            stats = self._read_stats(node)
        if isinstance(stats, Fault):
            tree.broken[where] = Location(where, node.stats_length, node.stats_digest)
            tree.faults[stats] = None
        elif stats != node.pages:
            _contradicts(tree, where, f"holds statistics of {stats} pages, its segment {node.pages} pages")

    def _read_segment(self, tree: SurveyedTree, node: Node, key: str) -> Content | Fault:
        try:
            segment = decode_segment(self._fetch(Location(key, node.length, node.digest)), key)
        except SparkPagesError as error:
            return _fault(error, key)
        if not segment.pages.num_rows:
            return Fault(FaultKind.CONTRADICTION, key, f"{key} holds no pages.", REPAIR)
        keys = (segment.chain_tables << 32) | segment.chain_fields
        if (np.diff(keys) <= 0).any():
            _contradicts(tree, key, "is not sorted by chain")
        bounds = segment.bounds
        entries = numbers_of(segment.pages.column("entry_count"))
        rows = np.add.reduceat(entries, bounds[:-1])
        pages = np.diff(bounds)
        first, last = ((int(number) >> 32, int(number) & 0xFFFF_FFFF) for number in (keys[0], keys[-1]))
        counts = (
            *(first, last, segment.pages.num_rows),
            *(int(pages[0]), int(rows[0]), int(pages[-1]), int(rows[-1])),
        )
        stats = self._read_stats(node) if node.stats_length else 0
        loads = isinstance(stats, int) and stats == segment.pages.num_rows
        run = PageRun(segment.pages, (lambda: _stats_of(self._store, node)) if loads else None)
        self._on_segment(segment, run, key)
        return Content(counts, keys, rows)

    def _read_stats(self, node: Node) -> int | Fault:
        key = stats_key(node.stats_digest)
        try:
            stats = decode_stats(self._fetch(Location(key, node.stats_length, node.stats_digest)), key)
            self._stats[node.stats_digest] = stats.num_rows
        except SparkPagesError as error:
            self._stats[node.stats_digest] = _fault(error, key)
        return self._stats[node.stats_digest]

    def _check_catalog(self, tree: SurveyedTree, root_key: str, files: Sequence[CatalogFile]) -> None:
        if any(one.last >= two.first for one, two in pairwise(files)):
            _contradicts(tree, root_key, "names catalog files that are not sorted by name")
        for file in files:
            key = file.location.key
            self.keys.add(key)
            if key not in self._catalogs:
                try:
                    definitions = decode_catalog(self._fetch(file.location), key)
                    self._names.add_definitions(definitions)
                    names = [(d.namespace_id, d.name) for d in definitions]
                    self._catalogs[key] = names == sorted(set(names)) and (file.first, file.last) == (
                        *names[:1],
                        *names[-1:],
                    )
                except SparkPagesError as error:
                    self._catalogs[key] = _fault(error, key)
            known = self._catalogs[key]
            if isinstance(known, Fault):
                tree.broken[key] = file.location
                tree.faults[known] = None
            elif not known:
                _contradicts(tree, key, "is not sorted by name, or holds other tables than its root says")

    def _compare(self, tree: SurveyedTree, node: Node, counts: Counts, parent: str, key: str) -> None:
        told = (
            *(node.first, node.last, node.pages),
            *(node.first_pages, node.first_rows, node.last_pages, node.last_rows),
        )
        if told != counts:
            _contradicts(tree, parent, f"says that {key} holds {told}, but it holds {counts}")

    def _check_order(self, tree: SurveyedTree, key: str, nodes: Sequence[Node], by_level: bool) -> None:
        for one, two in pairwise(nodes):
            same_level = not by_level or one.level == two.level
            level_follows = not by_level or two.level in (one.level, one.level + 1)
            if (same_level and one.last > two.first) or not level_follows:
                _contradicts(tree, key, f"lists {one.last} before {two.first}: not in the order of chains")
                return

    def _with_rows(self, fault: Fault, node: Node) -> Fault:
        what = f"It holds {node.pages:,} pages of {self._names.show_span(node.first, node.last)}."
        return Fault(fault.kind, fault.key, f"{fault.what} {what}", fault.remedy)

    def _fetch(self, location: Location) -> bytes:
        return self._findings.get(lambda _: fetch_object(self._store, location), location.key)


def _stats_of(store: ObjectStore, node: Node) -> pa.RecordBatch:
    """Statistics of a segment, which have been counted and checked before."""
    key = stats_key(node.stats_digest)
    return decode_stats(fetch_object(store, Location(key, node.stats_length, node.stats_digest)), key)


_NONE: NDArray[np.int64] = np.zeros(0, np.int64)


def _sum(children: Sequence[Node]) -> Counts:
    """Return the content of a manifest part with these segments."""
    if not children:
        return (0, 0), (0, 0), 0, 0, 0, 0, 0
    totals = []
    for key in (children[0].first, children[-1].last):
        counts = [count for node in children if (count := node.count(key)) is not None]
        totals += [sum(pages for pages, _ in counts), sum(rows for _, rows in counts)]
    pages = sum(node.pages for node in children)
    return children[0].first, children[-1].last, pages, totals[0], totals[1], totals[2], totals[3]


def _fault(error: SparkPagesError, key: str) -> Fault:
    found = Findings()
    found.add_error(error, key, REPAIR)
    return next(iter(found.faults))


def _contradicts(tree: SurveyedTree, key: str, what: str) -> None:
    tree.faults[Fault(FaultKind.CONTRADICTION, key, f"{key} {what}.", REPAIR)] = None
