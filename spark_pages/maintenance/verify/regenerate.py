"""Lost objects of a checkpoint, made again from the log byte for byte.

A checkpoint is a function of the log, of the checkpoint that it was written on, and of the name of the page
file in which it gave inline pages a home. So writing it again, into nowhere, gives the same objects. Each is
named by its digest: what comes out under the name of a lost object is that object, and nothing is guessed.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from spark_pages.errors import SparkPagesError
from spark_pages.format.digest import digest_of
from spark_pages.format.names import page_file_key
from spark_pages.format.segment import Segment, decode_manifest, encode_manifest
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.discovery import base_state
from spark_pages.log.replay import replay
from spark_pages.log.slots import SlotReader
from spark_pages.log.state import LogState
from spark_pages.maintenance.verify.checkpoints import SurveyedTree
from spark_pages.maintenance.verify.pages import run_at
from spark_pages.maintenance.verify.walk import Survey
from spark_pages.model.actions import CheckpointRef, ManifestRef
from spark_pages.model.ids import page_id
from spark_pages.model.location import Location
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches
from spark_pages.model.run import PageRun
from spark_pages.storage.store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_HOME = "0" * 32
_TRIES = 16
"""Page files, and checkpoints, that are tried as what a lost checkpoint was written with."""


@dataclass(eq=False, slots=True)
class RegeneratedObjects:
    """A store that reads through to another and keeps what is written only if it is wanted.

    Attributes
    ----------
    wanted
        Lost objects named by their digest.
    files
        Lost page files, which are not named by their digest.
    kept
        Objects made again, by key.
    drafts
        Everything that the attempt under way has written.
    """

    inner: ObjectStore
    wanted: dict[str, Location]
    files: set[str]
    kept: dict[str, bytes] = field(default_factory=dict)
    drafts: dict[str, bytes] = field(default_factory=dict)

    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """See `ObjectStore.get`."""
        written = self.drafts.get(key) or self.kept.get(key)
        return self.inner.get(key, most_bytes) if written is None else written

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        written = self.drafts.get(key) or self.kept.get(key)
        return self.inner.size(key) if written is None else len(written)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """See `ObjectStore.list`."""
        found = {info.key: info for info in self.inner.list(prefix)}
        found |= {
            key: ObjectInfo(key, len(data), 0) for key, data in self.kept.items() if key.startswith(prefix)
        }
        return [found[key] for key in sorted(found)]

    def put(self, key: str, data: Buffer) -> None:
        """Keep the object if it is one that is wanted."""
        content = bytes(data)
        self.drafts[key] = content
        location = self.wanted.get(key)
        if location is not None and digest_of(content) == location.digest:
            self.kept[key] = content

    def accept(self) -> None:
        """Accept the objects of an attempt that produced exactly the wanted root.

        Notes
        -----
        A lost root does not tell what else is lost with it, hence a request for each object written.
        """
        for key, content in self.drafts.items():
            try:
                sound = self.inner.get(key) == content
            except SparkPagesError:
                sound = False
            if not sound:
                self.kept[key] = content

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def as_if(store: ObjectStore, objects: dict[str, bytes]) -> ObjectStore:
    """Return the store as if it had these objects. Writes to it are discarded."""
    overlay: Any = RegeneratedObjects(store, {}, set(), dict(objects))
    return cast(ObjectStore, overlay)


def regenerate_checkpoints(store: ObjectStore, survey: Survey) -> dict[str, bytes]:
    """Objects of checkpoints, and page files that only checkpoints name, that could be made again.

    Notes
    -----
    Replays the commits between two checkpoints, and computes the later one again, for each that lost
    something, at most 16 times. Memory for the objects made again and for one checkpoint's new pages.
    """
    wanted = {key: location for tree in survey.trees for key, location in tree.broken.items()}
    files = {trouble.key for trouble in survey.pages.troubles} & survey.pages.checkpoint_page_files()
    remade = RegeneratedObjects(store, wanted, files)
    for tree in survey.trees:
        if not _lacks(tree, remade):
            continue
        for previous, token in _circumstances(survey, tree):
            if _regenerate_checkpoint(remade, tree, previous, token) and not _lacks(tree, remade):
                break
    return remade.kept


def _lacks(tree: SurveyedTree, remade: RegeneratedObjects) -> bool:
    prefix = page_file_key(tree.ref.version, "", 0)[: len("pages/") + 21]
    files = any(key.startswith(prefix) and key not in remade.kept for key in remade.files)
    return files or any(key not in remade.kept for key in tree.broken)


def _circumstances(survey: Survey, tree: SurveyedTree) -> Iterator[tuple[CheckpointRef | None, str]]:
    """Iterate over possible bases of the checkpoint and tokens of its page file, likely ones first."""
    prefix = page_file_key(tree.ref.version, "", 0)[: len("pages/") + 21]
    homes = {key for key in {*survey.listed, *survey.pages.checkpoint_page_files()} if key.startswith(prefix)}
    tokens = sorted(key[len(prefix) :].split("-")[0] for key in homes - survey.pages.named)
    earlier: list[CheckpointRef | None] = []
    if tree.root is not None:
        earlier.append(tree.root.predecessors[0][1] if tree.root.predecessors else None)
    else:
        older = [each.ref for each in survey.trees if each.ref.version < tree.ref.version]
        earlier += [*sorted(older, key=lambda ref: -ref.version)[:3], None]
    tries = [(previous, token) for previous in earlier for token in [*tokens, _NO_HOME]]
    yield from tries[:_TRIES]


def _regenerate_checkpoint(
    remade: RegeneratedObjects, tree: SurveyedTree, previous: CheckpointRef | None, token: str
) -> bool:
    """Whether the checkpoint could be computed; what came out is in `remade`."""
    remade.drafts.clear()
    try:
        written = recompute_checkpoint(cast(Any, remade), previous, tree.ref.version, token)
    except SparkPagesError:
        return False
    if written.location.digest == tree.ref.location.digest:
        remade.accept()
    return True


def recompute_checkpoint(
    store: ObjectStore, previous: CheckpointRef | None, version: int, token: str
) -> CheckpointRef:
    """Compute the checkpoint of a version on an earlier one, reading and writing through `store`.

    Raises
    ------
    SparkPagesError
        If a commit or an object that is needed cannot be read.
    """
    reader = TreeReader(store)
    state = base_state(reader, previous) if previous else LogState()
    commits = SlotReader(store).commits(state.version + 1, version + 1)

    def load(manifest: ManifestRef) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        return decode_manifest(reader.fetch(manifest.location), manifest.location.key)

    state = replay(state, commits, load)
    return write_checkpoint(store, state, Checkpoint(previous, reader) if previous else None, token).ref


def regenerate_manifests(store: ObjectStore, survey: Survey, trees: dict[str, bytes]) -> dict[str, bytes]:
    """Page manifests that could be made again: all of their pages are in checkpoints, unchanged."""
    reader = TreeReader(as_if(store, trees))
    found: dict[str, bytes] = {}
    for key, (version, manifest) in survey.manifests.items():
        data = _manifest(reader, survey, version, manifest)
        if data is not None and digest_of(data) == manifest.location.digest:
            found[key] = data
    return found


def _manifest(reader: TreeReader, survey: Survey, version: int, manifest: ManifestRef) -> bytes | None:
    first = page_id(version, manifest.base_ordinal)
    missing = np.ones(manifest.num_pages, bool)
    pages: list[pa.RecordBatch] = []
    stats: list[pa.RecordBatch] = []
    for tree in survey.trees:
        if tree.ref.version < version or not missing.any():
            continue
        for run in _segments(reader, tree):
            ordinals = run.page_ids - first
            here = (ordinals >= 0) & (ordinals < manifest.num_pages)
            here[here] = missing[ordinals[here]]
            if here.any():
                chosen = run_at(run, np.flatnonzero(here))
                pages.append(chosen.pages)
                stats.append(chosen.stats)
                missing[ordinals[here]] = False
    if missing.any():
        return None
    whole = PageRun(concat_batches(pages, PAGE_SCHEMA))
    order = pa.array(np.argsort(whole.page_ids, kind="stable"))
    return encode_manifest(whole.pages.take(order), concat_batches(stats, STATS_SCHEMA).take(order))


def _segments(reader: TreeReader, tree: SurveyedTree) -> Iterator[PageRun]:
    """Every segment of a tree that can be read, with its statistics."""
    for part in tree.root.parts if tree.root else ():
        try:
            children = reader.part(part)
        except SparkPagesError:
            continue
        for node in children:
            try:
                segment = reader.segment(node)
                stats = reader.stats(node) if node.stats_length else None
            except SparkPagesError:
                continue
            yield segment_run(segment, stats)


def segment_run(segment: Segment, stats: pa.RecordBatch | None) -> PageRun:
    """Return the pages of a segment as one run of any chains."""
    return PageRun(segment.pages, None if stats is None else lambda: stats)
