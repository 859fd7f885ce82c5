"""Reading a checkpoint: chains and tables on demand, one object per floor of the tree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast
from weakref import WeakValueDictionary

import pyarrow as pa

from spark_pages.format.checkpoint_tree import Node, nodes_of
from spark_pages.format.digest import fetch_object
from spark_pages.format.names import part_key, segment_key, stats_key
from spark_pages.format.segment import (
    Segment,
    decode_manifest,
    decode_nodes,
    decode_segment,
    decode_stats,
)
from spark_pages.log.checkpoint.root import CatalogPage, Root, decode_catalog, decode_root
from spark_pages.log.state import TableName
from spark_pages.memory_budget import CacheBudgets, LruCache, shared_budgets
from spark_pages.model.actions import CheckpointRef, ManifestRef
from spark_pages.model.chain_tree import ChainKey, PartialRun, Piece, UnloadedRun
from spark_pages.model.location import Location
from spark_pages.model.names import fold_name
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.runtime import Mapper, map_in_threads
from spark_pages.storage.store import ObjectStore

_GROWTH = 8
"""Lists of nodes and definitions take about so many times the memory that they take as objects."""

_ENTRY_OVERHEAD_BYTES = 512

Loaded = TypeVar("Loaded")


class TreeReader:
    """Fetches and checks the immutable objects of checkpoints; caches them decoded.

    Shared by all snapshots of a process.

    Parameters
    ----------
    store
        Where they are.
    at_once
        Carries out the requests of one round.
    budgets
        Of what is cached; those of the process by default.
    """

    def __init__(
        self, store: ObjectStore, at_once: Mapper = map_in_threads, budgets: CacheBudgets | None = None
    ) -> None:
        self._store = store
        self.at_once = at_once
        self._budgets = shared_budgets() if budgets is None else budgets
        self._nodes: LruCache[object, object] = LruCache(self._budgets.nodes)
        self._statistics: LruCache[object, object] = LruCache(self._budgets.statistics)
        self._listed: WeakValueDictionary[tuple[Location, str], pa.RecordBatch] = WeakValueDictionary()

    def fetch(self, location: Location) -> bytes:
        """Read an object, and verify its length and digest."""
        return fetch_object(self._store, location)

    def load_manifest(self, manifest: ManifestRef) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return pages and statistics that a page manifest lists."""
        return self.manifest(manifest.location)

    def run(self, node: Node) -> PageRun:
        """All pages of a segment, with statistics that are read when they are asked for."""
        return PageRun(self.segment(node).pages, (lambda: self.stats(node)) if node.stats_length else None)

    @property
    def node_bytes(self) -> int:
        """Bytes of the nodes that are cached."""
        return self._nodes.held_bytes

    @property
    def statistics_bytes(self) -> int:
        """Bytes of the statistics that are cached."""
        return self._statistics.held_bytes

    def clear(self) -> None:
        """Empty both caches."""
        self._nodes.clear()
        self._statistics.clear()

    def root(self, ref: CheckpointRef) -> Root:
        """Return the root of a checkpoint."""
        at = ref.location
        return self._cached(
            self._nodes,
            ("root", ref),
            lambda: decode_root(self.fetch(at), at.key),
            lambda _: _GROWTH * at.length,
        )

    def part(self, node: Node) -> Sequence[Node]:
        """Return the segments that a manifest part lists."""
        at = Location(part_key(node.digest), node.length, node.digest)
        return self._cached(
            self._nodes,
            ("part", node),
            lambda: decode_nodes(self.fetch(at), at.key),
            lambda _: _GROWTH * at.length,
        )

    def segment(self, node: Node) -> Segment:
        """Return the pages of a segment."""
        at = Location(segment_key(node.digest), node.length, node.digest)
        return self._cached(
            self._nodes,
            ("segment", node),
            lambda: decode_segment(self.fetch(at), at.key),
            lambda found: found.pages.nbytes,
        )

    def stats(self, node: Node) -> pa.RecordBatch:
        """Return the statistics of a segment's pages."""
        at = Location(stats_key(node.stats_digest), node.stats_length, node.stats_digest)
        return self._cached(
            self._statistics, node, lambda: decode_stats(self.fetch(at), at.key), lambda found: found.nbytes
        )

    def catalog(self, location: Location) -> CatalogPage:
        """Return the definitions of a catalog file."""
        return self._cached(
            self._nodes,
            ("catalog", location),
            lambda: decode_catalog(self.fetch(location), location.key),
            lambda _: _GROWTH * location.length,
        )

    def manifest(self, location: Location) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return pages and statistics of a page manifest."""
        return self._cached(
            self._nodes,
            ("manifest", location),
            lambda: self._manifest(location),
            lambda found: sum(batch.nbytes for batch in found),
        )

    def _cached(
        self,
        cache: LruCache[object, object],
        key: object,
        load: Callable[[], Loaded],
        size_of: Callable[[Loaded], int],
    ) -> Loaded:
        found = cache.get(key)
        if found is None:
            found = load()
            cache.put(key, found, size_of(found) + _ENTRY_OVERHEAD_BYTES)
        return cast(Loaded, found)

    def __reduce__(self) -> tuple[type[TreeReader], tuple[ObjectStore, Mapper]]:
        return (TreeReader, (self._store, self.at_once))

    def _manifest(self, location: Location) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Read the entries of a manifest. Loaded chains hold all of it, so other chains share it."""
        pages, stats = self._listed.get((location, "pages")), self._listed.get((location, "stats"))
        if pages is None or stats is None:
            pages, stats = decode_manifest(self.fetch(location), location.key)
            self._listed[location, "pages"], self._listed[location, "stats"] = pages, stats
        return pages, stats


class Checkpoint:
    """One checkpoint, read as far as it is asked about.

    Notes
    -----
    Memory and requests grow with the segments touched, never with the pages in the store.
    """

    def __init__(self, ref: CheckpointRef, tree: TreeReader) -> None:
        self.ref = ref
        self.tree = tree
        self.root = tree.root(ref)
        self._found: dict[TableName, TableDefinition | None] = {}

    def levels(self) -> dict[int, list[Node]]:
        """Manifest parts by level, base first."""
        levels: dict[int, list[Node]] = {0: []}
        for node in self.root.parts:
            levels.setdefault(node.level, []).append(node)
        return dict(sorted(levels.items()))

    def chain(self, key: ChainKey) -> list[Piece]:
        """Return the pieces of a chain, and load those whose row count only their content gives."""
        levels = list(self.levels().values())
        return self._base(levels[0], key) + self._tails(levels[1:], key)

    def open_chain(self, key: ChainKey) -> list[Piece | PartialRun]:
        """Return the pieces of a chain, and load its tail runs only when a row past the base is requested."""
        levels = list(self.levels().values())
        tails = [parts for parts in levels[1:] if nodes_of(parts, key)]
        base = self._base(levels[0], key)
        return [*base, PartialRun(lambda: self._tails(tails, key))] if tails else [*base]

    def _base(self, parts: Sequence[Node], key: ChainKey) -> list[Piece]:
        return _pieces(self.tree, parts, key, 0, of_parts=True)

    def _tails(self, tails: Sequence[Sequence[Node]], key: ChainKey) -> list[Piece]:
        """Read the pieces that a chain has in tail runs, all in parallel."""
        found = self.tree.at_once(lambda parts: _pieces(self.tree, parts, key, -1, of_parts=True), tails)
        return [piece for pieces in found for piece in pieces]

    def table(self, name: TableName) -> TableDefinition | None:
        """Return the live table of this name. Reads one catalog file, or none for a name that is cached."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: TableName) -> TableDefinition | None:
        files = self.root.catalog
        index = bisect_left(files, name, key=lambda file: file.last)
        if index == len(files) or files[index].first > name:
            return None
        definitions = self.tree.catalog(files[index].location)
        place = bisect_left(definitions.names, name)
        if place == len(definitions) or definitions.names[place] != name:
            return None
        return definitions[place]

    def names(self) -> set[TableName]:
        """All names of the catalog. Reads every catalog file, and decodes their names alone."""
        return {name for file in self.root.catalog for name in self.tree.catalog(file.location).names}

    def alike(self, namespace_id: int, folded: str) -> Sequence[str]:
        """Names of a namespace that have this form without regard to case; reads as `names`, once."""
        return self._folded.get((namespace_id, folded), ())

    @cached_property
    def _folded(self) -> dict[TableName, list[str]]:
        """Names by namespace and by their form without regard to case."""
        by_form: dict[TableName, list[str]] = {}
        for number, name in self.names():
            by_form.setdefault((number, fold_name(name)), []).append(name)
        return by_form

    def tables(self, namespace_id: int | None = None) -> list[TableDefinition]:
        """All that is live, or what has its name in a namespace, sorted by name.

        Notes
        -----
        Reads every catalog file, or those that hold names of the namespace.
        """
        return [
            definition
            for file in self.root.catalog
            if namespace_id is None or file.first[0] <= namespace_id <= file.last[0]
            for definition in self.tree.catalog(file.location).of_namespace(namespace_id)
        ]


def _pieces(
    tree: TreeReader, nodes: Sequence[Node], key: ChainKey, base: int, *, of_parts: bool
) -> list[Piece]:
    """Pieces of a chain in some nodes; `base` is the base position of the first page, or -1."""
    pieces: list[Piece] = []
    for index in nodes_of(nodes, key):
        node = nodes[index]
        count = node.count(key)
        opening = ChainPart(tree, node, key, base, of_parts)
        if count is None:
            found = opening()
            pages = sum(piece.num_pages for piece in found)
            pieces += found
        else:
            pages, rows = count
            pieces.append(UnloadedRun(pages, rows, opening, base))
        base = base + pages if base >= 0 else -1
    return pieces


@dataclass(frozen=True, eq=False, slots=True)
class ChainPart:
    """Opens what a node holds of a chain; a value, so that it can be sent to another process.

    Attributes
    ----------
    tree, node, key
        The node, who reads it, and the chain.
    base
        Base position of the first page, or -1.
    of_parts
        Whether the node is a manifest part, else a segment.
    """

    tree: TreeReader
    node: Node
    key: ChainKey
    base: int
    of_parts: bool

    def __call__(self) -> list[Piece]:
        """Load the pages of a segment, or one piece for each segment of a part."""
        if self.of_parts:
            return _pieces(self.tree, self.tree.part(self.node), self.key, self.base, of_parts=False)
        segment = self.tree.segment(self.node)
        start, stop = segment.find(self.key)
        if start == stop:
            return []
        load_stats: Callable[[], pa.RecordBatch] | None = None
        if self.node.stats_length:

            def load_stats() -> pa.RecordBatch:
                return self.tree.stats(self.node).slice(start, stop - start)

        return [PageRun(segment.pages.slice(start, stop - start), load_stats, self.base)]


@dataclass(frozen=True, eq=False, slots=True)
class SegmentPart:
    """Opens pages [start, stop) of a segment; a value, too."""

    tree: TreeReader
    node: Node
    start: int
    stop: int

    def __call__(self) -> list[PageRun]:
        """Load the pages."""
        return [self.tree.run(self.node).slice(self.start, self.stop)]


def down_to_segments(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Expand whole manifest parts into their segments."""
    for piece in pieces:
        if isinstance(piece, UnloadedRun) and isinstance(piece.expand, ChainPart) and piece.expand.of_parts:
            yield from down_to_segments(piece.expand())
        else:
            yield piece
