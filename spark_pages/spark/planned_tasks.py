"""Planned segments on their way to executors, and what an executor does with them. No pyspark here.

Pages that only the driver knows travel as Arrow bytes; those of page manifests and segments as the name of an
object that the executor reads.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.segment_writer import SegmentMaker
from spark_pages.log.checkpoint.write_plan import AddedPages, PlannedSegment, Slab
from spark_pages.log.replay import LoadManifest, ManifestPages
from spark_pages.model.actions import ManifestRef
from spark_pages.model.chain_tree import Piece
from spark_pages.model.run import PageRun
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.spark.serialization import objects_of, pack_with_stats, unpack_with_stats

_MANIFEST_PAGES = 1 << 20
"""Pages of manifests that an executor holds, about: the segments of a task read the same ones in turn."""

Numbered = tuple[int, PlannedSegment]


def pack_planned(planned: Sequence[Numbered]) -> bytes:
    """Numbered segments as bytes."""
    sink = io.BytesIO()
    narrow = [
        (number, PlannedSegment(each.level, each.version, tuple(map(_narrowed, each.slabs))))
        for number, each in planned
    ]
    _Pickler(sink, pickle.HIGHEST_PROTOCOL).dump(narrow)
    return sink.getvalue()


def write_planned(url: str, packed: bytes) -> list[tuple[int, Node]]:
    """The segments are in storage, with page files for inline pages that get a home; gives their nodes.

    Notes
    -----
    Page files are named for this attempt alone, all else by its digest: an attempt that is repeated or run
    twice does no harm.
    """
    objects = objects_of(url)
    tree, writer = TreeReader(objects), ObjectWriter(objects, map_in_threads)
    planned: list[Numbered] = _Unpickler(io.BytesIO(packed), tree).load()
    maker = SegmentMaker(writer, tree, planned[0][1].version, Runtime().token())
    nodes = [(number, maker(each)) for number, each in planned]
    maker.finish()
    writer.settle()
    return nodes


def _narrowed(slab: Slab) -> Slab:
    """The same pages, without those of the source that stand before and behind them."""
    if not isinstance(slab.source, AddedPages):
        return slab
    pieces: list[Piece] = []
    skipped, begin = 0, 0
    for piece in slab.source.pieces:
        end = begin + piece.num_pages
        low, high = max(slab.start, begin), min(slab.stop, end)
        if low >= high:
            skipped += piece.num_pages if end <= slab.start else 0
        elif isinstance(piece, PageRun):
            pieces.append(piece.slice(low - begin, high - begin))
            skipped += low - begin
        else:
            pieces.append(piece)
        begin = end
    return Slab(
        AddedPages(slab.source.key, tuple(_joined(pieces))), slab.start - skipped, slab.stop - skipped
    )


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours that are loaded, as one run: each run that travels has its price."""
    joined: list[Piece] = []
    some: list[PageRun] = []
    for piece in (*pieces, None):
        if isinstance(piece, PageRun):
            some.append(piece)
            continue
        if some:
            joined.append(PageRun.concat(some))
            some = []
        if piece is not None:
            joined.append(piece)
    return joined


@dataclass(frozen=True, slots=True)
class _Reader:
    """Stands in what travels for what reads page manifests."""


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        if isinstance(obj, TreeReader):
            return "tree"
        return "manifests" if isinstance(obj, _Reader) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, PageRun):
            return unpack_with_stats, pack_with_stats(obj)
        if isinstance(obj, ManifestPages):
            return ManifestPages, (_Reader(), obj.manifest, obj.version, obj.start, obj.stop)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, tree: TreeReader) -> None:
        super().__init__(data)
        self._readers: dict[str, TreeReader | LoadManifest] = {"tree": tree, "manifests": _Manifests(tree)}

    def persistent_load(self, pid: str) -> TreeReader | LoadManifest:
        return self._readers[pid]


class _Manifests:
    """Reads page manifests, and keeps the newest ones, up to so many pages."""

    def __init__(self, tree: TreeReader) -> None:
        self._tree = tree
        self._kept: OrderedDict[str, tuple[pa.RecordBatch, pa.RecordBatch]] = OrderedDict()

    def __call__(self, manifest: ManifestRef) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        key = manifest.location.key
        if key not in self._kept:
            self._kept[key] = self._tree.manifest(manifest.location)
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(p.num_rows for p, _ in self._kept.values()) > _MANIFEST_PAGES:
            self._kept.popitem(last=False)
        return self._kept[key]
