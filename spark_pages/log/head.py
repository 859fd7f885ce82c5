"""Finding states without listing: the hint, galloping over slot names, and the tail by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from spark_pages.errors import (
    DamageError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    SparkPagesError,
    StoreNotFoundError,
    UnsupportedFormatError,
    VersionNotFoundError,
)
from spark_pages.log.checkpoint import Checkpoint, TreeReader
from spark_pages.log.commit_codec import decode_slot, location_from_avro, location_to_avro
from spark_pages.log.names import HINT_KEY, commit_key, root_key
from spark_pages.log.replay import LoadManifest, replay
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef, Commit, Tombstone
from spark_pages.model.ids import Version
from spark_pages.runtime import Mapper, map_in_threads
from spark_pages.storage.store import ObjectStore

_ROUND_LIMIT = 32
_MAX_HINT_BYTES = 4096


class SlotReader:
    """Reads slots by name, several at once."""

    def __init__(self, store: ObjectStore, map_all: Mapper = map_in_threads) -> None:
        self.store = store
        self._map_all = map_all

    def read(self, version: int) -> Commit | Tombstone | None:
        """What slot `version` holds, or None where it is empty."""
        key = commit_key(version)
        try:
            slot = decode_slot(self.store.get(key), key)
        except ObjectNotFoundError:
            return None
        if slot.version != version:
            raise DamageError(f"{key} holds commit {slot.version}: objects were swapped.", key=key)
        return slot

    def read_many(self, versions: Sequence[int]) -> list[Commit | Tombstone | None]:
        """What the slots hold, in order, in one parallel round."""
        return self._map_all(self.read, versions)

    def commits(self, start: int, stop: int) -> list[Commit]:
        """Commits [start, stop).

        Raises
        ------
        SnapshotExpiredError
            If one of them has been cleaned away.
        DamageError
            If one of them is missing.
        """
        found: list[Commit] = []
        for first in range(start, stop, _ROUND_LIMIT):
            wanted = range(first, min(first + _ROUND_LIMIT, stop))
            for version, slot in zip(wanted, self.read_many(wanted), strict=True):
                found.append(_as_commit(slot, version))
        return found

    def present(self, versions: Sequence[int]) -> list[Commit | Tombstone]:
        """What the slots hold, which must all be there.

        Raises
        ------
        DamageError
            If one of them is empty.
        """
        found: list[Commit | Tombstone] = []
        for first in range(0, len(versions), _ROUND_LIMIT):
            wanted = versions[first : first + _ROUND_LIMIT]
            for version, slot in zip(wanted, self.read_many(wanted), strict=True):
                found.append(slot if isinstance(slot, Tombstone) else _as_commit(slot, version))
        return found

    def tail(self, start: int) -> list[Commit | Tombstone]:
        """What slots from `start` on hold, up to the first empty one, in rounds of growing size."""
        found: list[Commit | Tombstone] = []
        size = 1
        while True:
            first = start + len(found)
            for slot in self.read_many(range(first, first + size)):
                if slot is None:
                    return found
                found.append(slot)
            size = min(size * 2, _ROUND_LIMIT)

    def newest(self) -> int:
        """Version of the head by galloping over slot names; -1 where there is no commit."""
        if self.read(0) is None:
            return -1
        low, step = 0, 1
        while self.read(low + step) is not None:
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if self.read(middle) is None:
                high = middle
            else:
                low = middle
        return low


def _as_commit(slot: Commit | Tombstone | None, version: int) -> Commit:
    if isinstance(slot, Commit):
        return slot
    if slot is None:
        raise DamageError(
            f"{commit_key(version)} is missing, though later commits are there: the log has a gap.",
            hint="Run `spark-pages verify` and restore the object.",
        )
    raise SnapshotExpiredError(
        f"Commit {version} has been cleaned away; the log is readable from the checkpoint of version "
        f"{slot.checkpoint.version} on.",
        version=version,
    )


def read_hint(store: ObjectStore) -> CheckpointRef | None:
    """The checkpoint that the hint names; None where the hint is absent or makes no sense."""
    try:
        data = store.get(HINT_KEY)
        value = json.loads(data) if len(data) <= _MAX_HINT_BYTES else {}
        ref = CheckpointRef(Version(int(value["version"])), location_from_avro(value["location"]))
        named = ref.location.key == root_key(ref.version, str(ref.location.digest))
        return ref if named and isinstance(ref.location.digest, str) else None
    except (SparkPagesError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_hint(store: ObjectStore, ref: CheckpointRef) -> None:
    """Leave a hint at the checkpoint. Nothing depends on it being right or there."""
    value = {"version": ref.version, "location": location_to_avro(ref.location)}
    store.put(HINT_KEY, json.dumps(value, sort_keys=True).encode())


def find_head(slots: SlotReader, tree: TreeReader, load_manifest: LoadManifest) -> LogState:
    """The newest state, from nothing but the address of the store.

    Raises
    ------
    StoreNotFoundError
        If there is no commit 0.

    Notes
    -----
    With a hint: hint, root, and the commits after it. Without: about 2 log2(head) reads more.
    """
    hinted = read_hint(slots.store)
    state = _from_checkpoint(tree, hinted) if hinted else None
    if state is not None:
        named = slots.read(state.version)
        if named is None or named.digest != state.digest:
            state = None  # the hint is of another store
    if state is None:
        newest = slots.newest()
        if newest < 0:
            raise StoreNotFoundError(
                f"There is no spark_pages store at {slots.store.url}.",
                hint="Create one with spark_pages.create(url) or `spark-pages create URL`.",
                url=slots.store.url,
            )
        named = slots.read(newest)
        ref = named.checkpoint if named else None
        state = (_from_checkpoint(tree, ref) if ref else None) or LogState()
    return catch_up(slots, tree, state, load_manifest)


def catch_up(slots: SlotReader, tree: TreeReader, state: LogState, load_manifest: LoadManifest) -> LogState:
    """The newest state, starting from one that is known. One request where nothing is new."""
    tail = slots.tail(state.version + 1)
    if tail and isinstance(tail[0], Tombstone):
        named = [slot.checkpoint for slot in tail if slot.checkpoint is not None]
        newest = max(named, key=lambda ref: ref.version)
        jumped = _from_checkpoint(tree, newest) if newest.version > state.version else None
        if jumped is None:
            _as_commit(tail[0], tail[0].version)
        else:
            return catch_up(slots, tree, jumped, load_manifest)
    return replay(state, [_as_commit(slot, slot.version) for slot in tail], load_manifest)


def _from_checkpoint(tree: TreeReader, ref: CheckpointRef) -> LogState | None:
    """The state that a checkpoint holds, or None where it cannot be read."""
    try:
        return base_state(tree, ref)
    except UnsupportedFormatError:
        raise
    except (ObjectNotFoundError, DamageError):
        return None


def base_state(tree: TreeReader, ref: CheckpointRef) -> LogState:
    """The state that a checkpoint holds, with nothing on top."""
    return replace(tree.root(ref).state, base=ref, newest_checkpoint=ref)


def nearest_checkpoint(tree: TreeReader, newest: CheckpointRef | None, version: int) -> CheckpointRef | None:
    """The newest checkpoint that is not newer than `version`, reached over predecessors."""
    ref = newest
    while ref is not None and ref.version > version:
        predecessors = [predecessor for _, predecessor in Checkpoint(ref, tree).root.predecessors]
        later = [p for p in predecessors if p.version >= version]
        earlier = [p for p in predecessors if p.version < version]
        if later:
            ref = min(later, key=lambda p: p.version)
        else:
            ref = max(earlier, key=lambda p: p.version) if earlier else None
    return ref


def version_at(read_time_us: Callable[[int], int], head: int, timestamp_us: int) -> int:
    """The last version whose commit time is not after `timestamp_us`, by binary search over slots.

    Raises
    ------
    VersionNotFoundError
        If the time is before the first commit.
    """
    if read_time_us(0) > timestamp_us:
        raise VersionNotFoundError(
            f"The store was created after {timestamp_us} µs since the epoch: no version is that old.",
            timestamp_us=timestamp_us,
        )
    low, high = 0, head + 1
    while high - low > 1:
        middle = (low + high) // 2
        if read_time_us(middle) <= timestamp_us:
            low = middle
        else:
            high = middle
    return low
