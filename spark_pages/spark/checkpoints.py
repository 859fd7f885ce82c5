"""Checkpoints by Spark: the driver decides on the segments, executors write them, the driver lands the root.

Where segments are cut is decided by numbers of pages, which the driver knows without reading them. So its
memory is that of a reader of the newest version, whatever the checkpoint rewrites, and the segments are those
that one process would write.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.features import check_writable
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.segment_writer import SegmentWriter
from spark_pages.log.checkpoint.write_plan import PlannedSegment, Slab, UnsavedPages
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.log import Log
from spark_pages.log.replay import LoadManifest, ManifestPages
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CheckpointRef, ManifestRef
from spark_pages.model.chain_tree import Piece, UnloadedRun
from spark_pages.model.run import PageRun
from spark_pages.progress import phase
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.spark.job import Start, report_as
from spark_pages.spark.publish import publish_delta
from spark_pages.spark.serialization import objects_of, pack_with_stats, store_url, unpack_with_stats
from spark_pages.spark.task_counts import TaskCounts
from spark_pages.storage import MeteredStore

if TYPE_CHECKING:
    pass


FEW_SEGMENTS = 128
"""So many are written by the driver: about a million pages, which takes less time than Spark's start."""

_SEGMENTS_OF_A_TASK = 16


@report_as("checkpoint")
def checkpoint(
    url: str,
    start: Start | None = None,
    *,
    publish: bool = False,
    dry_run: bool = False,
    profile: str | None = None,
    few: int = FEW_SEGMENTS,
) -> dict[str, Any]:
    """Write a checkpoint, so that the newest version opens without earlier commits.

    Parameters
    ----------
    url, profile
        The store.
    start
        Gives the session whose executors write segments; called only where there are more than `few` to be
        written. None writes all of them here.
    publish
        As a commit of the Delta tables, too.
    dry_run
        Only tell what would be done.

    Returns
    -------
    dict
        ``ok``, ``version``, ``commits`` (since the checkpoint before), ``key``, ``bytes`` (of all that was
        written), ``segments`` and ``tasks`` (written by executors), ``seconds``; with `publish` what
        `publish_delta` says, too.
    """
    address = store_url(url, profile)
    objects = MeteredStore(objects_of(address))
    log = Log(objects, Runtime())
    head = log.snapshot()
    before = head.checkpoint.ref.version if head.checkpoint else -1
    told: dict[str, Any] = {"version": head.state.version, "commits": head.state.version - before}
    if dry_run:
        return {**told, "dry_run": True}
    spread = Spread(address, start, few)
    phase(f"writing a checkpoint of version {head.state.version}")
    made = log.checkpoint(spread)
    told |= {
        "version": made.version,
        "key": made.location.key,
        "bytes_written": objects.counts.bytes_written + spread.bytes_written,
        "segments": spread.segments,
        "tasks": spread.tasks,
    }
    if publish:
        told["published"] = asdict(publish_delta(address))
    return told


def checkpoint_of(log: Log, snapshot: LogSnapshot, spread: Spread) -> CheckpointRef:
    """Write a checkpoint of any version.

    Notes
    -----
    That of the newest version lands as any other. Nothing refers to one of an older version: who has its
    reference can open it, until a vacuum takes what it shares with checkpoints that are no longer kept.
    """
    version = snapshot.state.version
    if version == log.known().state.version:
        return log.checkpoint(spread)
    if snapshot.checkpoint is not None and snapshot.checkpoint.ref.version == version:
        return snapshot.checkpoint.ref
    check_writable(log.known().state.features)  # an older version may ask for less than the newest
    runtime = Runtime()
    return write_checkpoint(
        log.store, snapshot.state, snapshot.checkpoint, runtime.token(), runtime.map, spread
    ).ref


@dataclass(slots=True)
class Spread:
    """Writer of checkpoint segments on executors; see `spark_pages.log.checkpoint.write_plan.CarryOut`.

    Attributes
    ----------
    url
        Address of the store.
    start
        Gives a session; None leaves all segments to the caller.
    few
        So many are left to the caller, too.
    segments, tasks, bytes_written
        What executors have done.
    """

    url: str
    start: Start | None
    few: int = FEW_SEGMENTS
    segments: int = 0
    tasks: int = 0
    bytes_written: int = 0

    def __call__(self, planned: Sequence[PlannedSegment]) -> Sequence[Node] | None:
        """Return the nodes of the segments that executors wrote."""
        if self.start is None or len(planned) <= self.few:
            return None
        context = self.start().sparkContext
        order = sorted(range(len(planned)), key=lambda number: _first_manifest(planned[number]))
        size = max(1, min(_SEGMENTS_OF_A_TASK, len(order) // (2 * context.defaultParallelism)))
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        packed = [pack_planned([(number, planned[number]) for number in group]) for group in groups]
        counts = TaskCounts.of(context, phase("writing segments", len(planned), "segments"))
        written = context.parallelize(packed, len(packed)).flatMap(_Write(self.url, counts)).collect()
        nodes = dict(written)
        self.segments += len(nodes)
        self.tasks += len(packed)
        self.bytes_written += sum(node.length + node.stats_length for node in nodes.values())
        return [nodes[number] for number in range(len(planned))]


def _first_manifest(planned: PlannedSegment) -> tuple[int, int]:
    """Return the first page manifest of a segment, to put readers of the same ones in one task."""
    for slab in planned.slabs:
        for piece in slab.source.pieces if isinstance(slab.source, UnsavedPages) else ():
            if isinstance(piece, UnloadedRun) and isinstance(piece.expand, ManifestPages):
                return piece.expand.version, piece.expand.manifest.base_ordinal
    return -1, 0


@dataclass(frozen=True, slots=True)
class _Write:
    """What an executor does with the segments of a task."""

    url: str
    counts: TaskCounts

    def __call__(self, packed: bytes) -> list[tuple[int, Node]]:
        written = write_planned(self.url, packed)
        self.counts.add(len(written), sum(node.length + node.stats_length for _, node in written))
        return written


_MANIFEST_PAGES = 1 << 20
"""Pages of manifests that an executor holds, about: the segments of a task read the same ones in turn."""

Numbered = tuple[int, PlannedSegment]


def pack_planned(planned: Sequence[Numbered]) -> bytes:
    """Numbered segments as bytes."""
    sink = io.BytesIO()
    narrow = [
        (number, PlannedSegment(each.level, each.version, tuple(map(_slice_slab, each.slabs))))
        for number, each in planned
    ]
    _Pickler(sink, pickle.HIGHEST_PROTOCOL).dump(narrow)
    return sink.getvalue()


def write_planned(url: str, packed: bytes) -> list[tuple[int, Node]]:
    """Write segments, with page files for inline pages that need one, and return their nodes.

    Notes
    -----
    Page files are named for this attempt alone, all else by its digest: an attempt that is repeated or run
    twice does no harm.
    """
    objects = objects_of(url)
    tree, writer = TreeReader(objects), ObjectWriter(objects, map_in_threads)
    planned: list[Numbered] = _Unpickler(io.BytesIO(packed), tree).load()
    maker = SegmentWriter(writer, tree, planned[0][1].version, Runtime().token())
    nodes = [(number, maker(each)) for number, each in planned]
    maker.finish()
    writer.wait_all()
    return nodes


def _slice_slab(slab: Slab) -> Slab:
    """Return the same pages without the pages of the source before and after them."""
    if not isinstance(slab.source, UnsavedPages):
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
        UnsavedPages(slab.source.key, tuple(_joined(pieces))), slab.start - skipped, slab.stop - skipped
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
