"""What nothing that is kept names any more: found from commits and checkpoints, without listing. Reads only.

Kept are the slots from the oldest kept checkpoint on, and the trees of the checkpoints that readers and
writers may still use. Whatever an old slot or an old tree names, and nothing kept does, is garbage.
`docs/retention.md` proves that no one can come to name it again once the `Retention` is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from spark_pages.errors import ObjectNotFoundError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.names import part_key, segment_key, stats_key
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.compaction.compacted_range import BUNDLES, LARGEST, CompactedRange
from spark_pages.log.discovery import is_readable
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import CheckpointRef, Commit, Tombstone
from spark_pages.runtime import Mapper

Item = TypeVar("Item")

ROUND = 32
"""Requests made before their answers are looked at."""


class Reason(StrEnum):
    """What sort of object goes."""

    SLOT = "slot"
    PAGE_FILE = "page file"
    SEGMENT = "segment"
    STATS = "stats"
    PART = "part"
    ROOT = "checkpoint root"
    CATALOG = "catalog"
    MANIFEST = "manifest"
    COMPACTED = "compacted log"
    ORPHAN = "orphan"


@dataclass(slots=True)
class Trees:
    """All objects of some checkpoints, each once.

    Attributes
    ----------
    roots, parts, segments, stats, catalogs
        Keys; of segments with the node that names them.
    """

    roots: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    segments: dict[str, Node] = field(default_factory=dict)
    stats: set[str] = field(default_factory=set)
    catalogs: set[str] = field(default_factory=set)

    def keys(self) -> set[str]:
        """Every key."""
        return {*self.roots, *self.parts, *self.segments, *self.stats, *self.catalogs}

    def reasons(self) -> Iterator[tuple[str, Reason]]:
        """Every key with its sort."""
        for keys, reason in (
            (self.stats, Reason.STATS),
            (self.segments, Reason.SEGMENT),
            (self.catalogs, Reason.CATALOG),
            (self.parts, Reason.PART),
            (self.roots, Reason.ROOT),
        ):
            yield from ((key, reason) for key in keys)


def without_replaced(tree: TreeReader, refs: Iterable[CheckpointRef]) -> set[CheckpointRef]:
    """Remove checkpoints whose root is lost while the root of an equal or newer one exists.

    Whoever needs the state of such a one gets it from another, and from the commits behind that, which stay.
    A repair makes a lost checkpoint anew, under another name; commits go on naming the lost one.
    """
    wanted = set(refs)
    there = {ref for ref in wanted if is_readable(tree, ref)}
    newest = max((ref.version for ref in there), default=-1)
    return there | {ref for ref in wanted if ref.version > newest}


class TreeWalker:
    """Walks the trees of checkpoints, reading each root and part once; segments are not read.

    Parameters
    ----------
    tree
        Reads and checks objects.
    at_once
        Carries out the requests of one round.
    """

    def __init__(self, tree: TreeReader, at_once: Mapper) -> None:
        self._tree = tree
        self._at_once = at_once
        self._parts: dict[str, Sequence[Node]] = {}

    def reachable(self, refs: Iterable[CheckpointRef]) -> Trees:
        """Everything of these checkpoints.

        Raises
        ------
        ObjectNotFoundError, DamageError
            If one is not whole: then nothing may be deleted.
        """
        return self._walk(refs, partial=False)

    def remaining(self, refs: Iterable[CheckpointRef]) -> Trees:
        """Return the remaining objects of checkpoints that a vacuum may have begun to remove.

        Notes
        -----
        A root goes after its parts, and a part after all of its segments that go: what is below something
        missing has gone already, or something else names it.
        """
        return self._walk(refs, partial=True)

    def _walk(self, refs: Iterable[CheckpointRef], partial: bool) -> Trees:
        found = Trees()
        for ref in sorted(refs, key=lambda ref: ref.version):
            try:
                root = self._tree.root(ref)
            except ObjectNotFoundError:
                if partial:
                    continue
                raise _missing(ref.location.key, "which is kept") from None
            found.roots.add(ref.location.key)
            found.catalogs.update(file.location.key for file in root.catalog)
            new = [part for part in root.parts if part_key(part.digest) not in found.parts]
            for part, nodes in zip(new, self._at_once(self._part_if_there, new), strict=True):
                if nodes is None:
                    if partial:
                        continue
                    raise _missing(part_key(part.digest), f"which checkpoint {ref.location.key} names")
                found.parts.add(part_key(part.digest))
                found.segments.update((segment_key(node.digest), node) for node in nodes)
                found.stats.update(stats_key(node.stats_digest) for node in nodes if node.stats_length)
        return found

    def _part_if_there(self, part: Node) -> Sequence[Node] | None:
        key = part_key(part.digest)
        if key not in self._parts:
            try:
                self._parts[key] = self._tree.part(part)
            except ObjectNotFoundError:
                return None
        return self._parts[key]

    def page_files(self, nodes: Sequence[Node]) -> set[str]:
        """Page files that the segments name; each segment is read and checked."""
        return {path for paths in self._at_once(self._paths, nodes) for path in paths}

    def remaining_page_files(self, nodes: Sequence[Node]) -> set[str]:
        """Return the page files of segments that may be removed already."""
        return {path for paths in self._at_once(self._paths_if_there, nodes) for path in paths}

    def _paths(self, node: Node) -> list[str]:
        return [path for path in self._tree.segment(node).pages.column("path").dictionary.to_pylist() if path]

    def _paths_if_there(self, node: Node) -> list[str]:
        try:
            return self._paths(node)
        except ObjectNotFoundError:
            return []


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split items into batches whose answers fit into memory."""
    for first in range(0, len(items), ROUND):
        yield items[first : first + ROUND]


def first_commit(slots: SlotReader, upper: int) -> int:
    """Find the first slot that is no tombstone. Tombstones are a prefix of the log, all below `upper`.

    Notes
    -----
    A vacuum that was killed may leave gaps in the last round of tombstones; they count as not cleaned.
    """
    low, high = 0, upper
    while low < high:
        middle = (low + high) // 2
        if isinstance(slots.read(middle), Tombstone):
            low = middle + 1
        else:
            high = middle
    window = range(max(0, low - ROUND), low)
    held = slots.read_many(window) if window else []
    return next((v for v, slot in zip(window, held, strict=True) if isinstance(slot, Commit)), low)


@dataclass(slots=True)
class ReferencedObjects:
    """What some commits name.

    Attributes
    ----------
    checkpoints
        In their headers, and in a retention.
    page_files, manifests
        Keys.
    changes
        Versions of commits that do more than vacuum does.
    """

    checkpoints: set[CheckpointRef] = field(default_factory=set)
    page_files: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    changes: list[int] = field(default_factory=list)


class CommitWalker:
    """Reads commits a round at a time and notes what they name.

    Parameters
    ----------
    at_once
        Carries out the requests of one round.

    Attributes
    ----------
    slots, tree
        Read slots, and page manifests.
    """

    def __init__(self, slots: SlotReader, tree: TreeReader, at_once: Mapper) -> None:
        self.slots = slots
        self.tree = tree
        self._at_once = at_once

    def walk(
        self, start: int, stop: int, below: int | None = None, partial: bool = False
    ) -> ReferencedObjects:
        """Collect what commits [start, stop) name; page files only of writers that read before `below`.

        Parameters
        ----------
        partial
            Whether slots may be cleaned and manifests gone, as where a vacuum was killed or is at work.

        Notes
        -----
        One request for each commit and each page manifest. Memory of one round beside the result.
        """
        named = ReferencedObjects()
        for first in range(start, stop, ROUND):
            some = range(first, min(first + ROUND, stop))
            held = self.slots.present(some) if partial else self.slots.commits(some.start, some.stop)
            for slot in held:
                if isinstance(slot, Commit):
                    self._note(slot, named, below, partial)
        return named

    def _note(self, commit: Commit, named: ReferencedObjects, below: int | None, partial: bool) -> None:
        if commit.checkpoint is not None:
            named.checkpoints.add(commit.checkpoint)
        for record in commit.records:
            if record.retention is None:
                named.changes.append(commit.version)
            elif record.retention.checkpoint is not None:
                named.checkpoints.add(record.retention.checkpoint)
            named.page_files |= _of_epoch(record.own.paths(), below)
            for manifest in record.manifests:
                named.manifests.add(manifest.location.key)
                try:
                    pages, _ = self.tree.manifest(manifest.location)
                except ObjectNotFoundError:
                    if not partial:
                        raise
                    continue
                named.page_files |= _of_epoch(pages.column("path").dictionary.to_pylist(), below)


def _of_epoch(paths: Iterable[str | None], below: int | None) -> set[str]:
    if below is None:
        return {path for path in paths if path}
    limit = f"{below:020d}"
    return {path for path in paths if path and path.rpartition("/")[2] < limit}


def ranges_below(start: int, stop: int) -> Iterator[CompactedRange]:
    """Compacted ranges and bundles that end in slots [start, stop): all that there may be."""
    for exponent in range(1, BUNDLES.stop):
        size = 1 << exponent
        for end in range(-(-(start + 1) // size) * size, stop + 1, size):
            around = CompactedRange(end - size, exponent)
            if exponent <= LARGEST:
                yield around
            if exponent in BUNDLES:
                yield around.archive


def _missing(key: str, why: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"Cannot vacuum: {key} is missing, {why}.",
        hint="Run `spark-pages verify URL`, and repair before you vacuum.",
        key=key,
    )
