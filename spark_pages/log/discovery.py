"""Finding states without listing: the hint, galloping over slot names, and the tail by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spark_pages.display.text import moment
from spark_pages.errors import (
    DamageError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    StoreNotFoundError,
    UnsupportedFormatError,
    VersionNotFoundError,
)
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.last_checkpoint import Hint, read_hints
from spark_pages.log.replay import LoadManifest, rebase_on_checkpoint, replay
from spark_pages.log.retention import is_reachable, newer
from spark_pages.log.slots import SlotReader, as_commit
from spark_pages.log.state import LogState
from spark_pages.log.store_identity import ExistingSlots
from spark_pages.model.actions import CheckpointRef, Commit, Tombstone


def find_head(slots: SlotReader, tree: TreeReader, load_manifest: LoadManifest) -> LogState:
    """Find the newest state, given only the address of the store.

    Raises
    ------
    StoreNotFoundError
        If there is no commit 0.

    Notes
    -----
    With a hint: the hint; then at once the root, its slot and the next; then the commits after it.
    Without: about 2 log2(head) reads more.
    """
    hint = read_hints(slots.store)
    slots.record_range(hint.compacted)
    state, proof, look = _read_start(slots, tree, hint) if hint.checkpoint else (None, None, None)
    if hint.compacted and hint.checkpoint is None and slots.read(0) is not None:
        return _without_impossible_notes(catch_up(slots, tree, LogState(upkeep=hint.upkeep), load_manifest))
    if state is not None:
        # the hint may be of another store
        state = replace(state, upkeep=hint.upkeep) if proof == state.digest else None
    if state is None:
        look = None
        newest = slots.find_head()
        if newest < 0:
            slots.check_first()
            raise StoreNotFoundError(
                f"Cannot open {slots.store.url}: there is no spark_pages store.",
                hint="Create one with `spark_pages.create(url)` or `spark-pages create URL`.",
                url=slots.store.url,
            )
        named = slots.read(newest)
        slots.record_range(named.compacted if isinstance(named, Commit) else 0)
        ref = named.checkpoint if named else None
        sound = newest_readable(slots, tree, ref)
        state = base_state(tree, sound) if sound else LogState()
    if not state.store_id and state.version >= 0:  # of a release that gave stores no id
        first = slots.read(0)
        state = replace(state, store_id=first.id_of_store if first else "")
    return _without_impossible_notes(catch_up(slots, tree, state, load_manifest, look))


def _without_impossible_notes(state: LogState) -> LogState:
    """Remove impossible maintenance records from the state; a hint is not trusted."""
    return replace(state, upkeep=tuple(note for note in state.upkeep if 0 <= note.reached <= state.version))


def _read_start(
    slots: SlotReader, tree: TreeReader, hint: Hint
) -> tuple[LogState | None, str | None, ExistingSlots | None]:
    """Read the checkpoint that the hint names, the digest in its slot, and the slots after it.

    One parallel round. The commit of the checkpoint may be a large one, and its root says all that it did.
    """
    ref = hint.checkpoint
    assert ref is not None
    behind = ref.version + 1
    states: list[LogState | None] = []
    proofs: list[str | None] = []
    looks: list[ExistingSlots] = []
    work: list[Callable[[], None]] = [
        lambda: states.append(_from_checkpoint(tree, ref)),
        lambda: proofs.append(slots.digest(ref.version)),
        lambda: looks.append(slots.identity.find_slots(behind)),
    ]
    slots.run_all(work[:2] if hint.compacted > behind else work)
    return states[0], proofs[0], looks[0] if looks else None


def catch_up(
    slots: SlotReader,
    tree: TreeReader,
    state: LogState,
    load_manifest: LoadManifest,
    look: ExistingSlots | None = None,
) -> LogState:
    """Bring a known state up to the newest. One parallel round if there is no new commit.

    Parameters
    ----------
    look
        Which slots behind the state existed a moment ago.

    Notes
    -----
    A reader that was away while its place in the log was cleaned jumps to a checkpoint. One that stands on
    a checkpoint that vacuum may have deleted changes over to the newest one that the log names.
    """
    slots.identity.set_store_id(state.store_id)
    tail = slots.tail(state.version + 1, look)
    if tail and isinstance(tail[-1], Tombstone):
        return catch_up(slots, tree, _jump(slots, tree, tail[-1], state.version), load_manifest)
    state = replay(state, [as_commit(slot, slot.version) for slot in tail], load_manifest)
    if is_reachable(state):
        return state
    try:
        return on_named_checkpoint(slots, tree, state, load_manifest)
    except (ObjectNotFoundError, DamageError, SnapshotExpiredError):
        return state  # what is missing is named by whoever asks for it; nothing wrong can be read


def _jump(slots: SlotReader, tree: TreeReader, tombstone: Tombstone, version: int) -> LogState:
    """Return the state of a checkpoint after `version`.

    The tombstone's own may be gone by now, or half gone: `catch_up` goes on to a sound one in the end. What
    is missing twice, though the newest commit names it, is lost.

    Raises
    ------
    DamageError, SnapshotExpiredError
    """
    ref: CheckpointRef | None = tombstone.checkpoint
    missed: CheckpointRef | None = None
    while True:
        state = _from_checkpoint(tree, ref) if ref is not None and ref.version > version else None
        if state is not None:
            return state
        if ref is None or ref == missed:
            break
        missed = ref
        newest = slots.read(slots.find_head(tombstone.version))
        ref = newest.checkpoint if newest else None
    if ref is not None and ref.version > version:  # no vacuum deletes what the newest commit names
        raise DamageError(
            f"Cannot open the store: {ref.location.key} is missing or damaged, and the log begins "
            f"there, because the commits before version {ref.version} have been cleaned away.",
            hint="Run `spark-pages repair URL`, which tells whether it can be made again.",
            key=ref.location.key,
        )
    as_commit(tombstone, tombstone.version)
    raise AssertionError("a tombstone is no commit")


def on_named_checkpoint(
    slots: SlotReader, tree: TreeReader, state: LogState, load_manifest: LoadManifest
) -> LogState:
    """Rebase the same version on the newest checkpoint that the log names, if it names one.

    Notes
    -----
    A state without a tail stays as it is: what it stands on is a checkpoint of its own version. Where commits
    after it name nothing, no commit ever did, for each names at least what the one before it named.
    """
    ref = state.named_checkpoint
    if ref == state.base or (state.base is not None and state.base.version == state.version):
        return state
    if ref is None:
        return replay(LogState(), slots.commits(0, state.version + 1), load_manifest)
    base = base_state(tree, ref)
    if state.base is None or ref.version > state.base.version:
        return rebase_on_checkpoint(state, ref)
    commits = slots.commits(ref.version + 1, state.version + 1)
    return replay(base, commits, load_manifest)


def _from_checkpoint(tree: TreeReader, ref: CheckpointRef) -> LogState | None:
    """Return the state of a checkpoint, or None if it cannot be read."""
    try:
        return base_state(tree, ref)
    except UnsupportedFormatError:
        raise
    except (ObjectNotFoundError, DamageError):
        return None


def is_readable(tree: TreeReader, ref: CheckpointRef) -> bool:
    """Whether the root of a checkpoint is there, and whole."""
    return _from_checkpoint(tree, ref) is not None


def base_state(tree: TreeReader, ref: CheckpointRef) -> LogState:
    """Return the state of a checkpoint without later commits."""
    known = tree.root(ref).state
    return replace(
        known, base=ref, newest_checkpoint=ref, named_checkpoint=None, catalog_version=int(ref.version)
    )


def nearest_checkpoint(tree: TreeReader, newest: CheckpointRef | None, version: int) -> CheckpointRef | None:
    """Follow predecessors to the newest checkpoint that is not newer than `version`."""
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


def newest_readable(slots: SlotReader, tree: TreeReader, ref: CheckpointRef | None) -> CheckpointRef | None:
    """Return the checkpoint, or the newest one before it whose root can be read.

    Notes
    -----
    The root would have told its predecessors; without it, the slot of its version names the one before.
    """
    while ref is not None and not is_readable(tree, ref):
        slot = slots.read(ref.version)
        named = slot.checkpoint if slot else None
        ref = named if named is not None and named.version < ref.version else None
    return ref


def readable_checkpoint(
    slots: SlotReader, tree: TreeReader, newest: CheckpointRef | None, version: int
) -> CheckpointRef | None:
    """Return the `nearest_checkpoint` of a version, or an earlier one if a root on the way is lost."""
    try:
        ref = nearest_checkpoint(tree, newest, version)
        if ref is not None:
            tree.root(ref)
        return ref
    except UnsupportedFormatError:
        raise
    except (ObjectNotFoundError, DamageError):
        slot = slots.read(version)
        named = slot.checkpoint if slot else None
        return newest_readable(slots, tree, named if named and named.version <= version else None)


def open_state(
    slots: SlotReader, tree: TreeReader, newest: LogState, version: int, load_manifest: LoadManifest
) -> LogState:
    """Replay the state of an earlier version from the nearest checkpoint before it.

    Parameters
    ----------
    newest
        The newest state: its retention says from which checkpoint the oldest version is read.
    """
    ref = readable_checkpoint(slots, tree, newest.newest_checkpoint, version)
    oldest = newest.retention.checkpoint if newest.retention else None
    if oldest is not None and oldest.version <= version:
        ref = newer(oldest, ref)
    state = base_state(tree, ref) if ref else LogState()
    return replay(state, slots.commits(state.version + 1, version + 1), load_manifest)


def version_at(read_time_us: Callable[[int], int], head: int, timestamp_us: int) -> int:
    """Find the last version committed at or before `timestamp_us`, by binary search over slots.

    Raises
    ------
    VersionNotFoundError
        If the time is before the first commit.
    """
    if read_time_us(0) > timestamp_us:
        raise VersionNotFoundError(
            "Cannot find a version of that time: the store was created after "
            f"{moment(timestamp_us, precise=True)} UTC.",
            hint="Pass a later `timestamp`: `store.history()` has those of all versions.",
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
