"""Repair: first a plan that says what can be mended and what is lost, then, if wanted, the deed.

Nothing is guessed and nothing is deleted but unfinished files of the dead and, once copied, commits of other
stores behind the head. Every step may be done twice, by
two at once, or only in part: the next plan starts from what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa

from spark_pages.boundary import guarded
from spark_pages.display.markup import card, joined, table, tag
from spark_pages.errors import DamageError, InvalidKeyError, SparkPagesError, UnsupportedFormatError
from spark_pages.format.commit import decode_slot
from spark_pages.format.digest import digest_of
from spark_pages.format.features import check_writable
from spark_pages.format.names import HINT_KEY, LOST, commit_key, lost_commit
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.compaction.compacted_range import CompactedRange
from spark_pages.log.compaction.writer import write_ranges
from spark_pages.log.discovery import base_state
from spark_pages.log.last_checkpoint import write_hint
from spark_pages.log.log import Log
from spark_pages.log.slots import SlotReader
from spark_pages.maintenance.verify.checkpoints import SurveyedTree
from spark_pages.maintenance.verify.compacted_ranges import describe_ranges, recover_slots, regenerate_ranges
from spark_pages.maintenance.verify.faults import FROM_A_COPY, Fault
from spark_pages.maintenance.verify.pages import PagesMode
from spark_pages.maintenance.verify.regenerate import (
    as_if,
    recompute_checkpoint,
    regenerate_checkpoints,
    regenerate_manifests,
)
from spark_pages.maintenance.verify.slots import slot_of
from spark_pages.maintenance.verify.verify import TEMPORARY_AGE_US, survey_store, temporaries, why_no_repair
from spark_pages.maintenance.verify.walk import Survey
from spark_pages.model.actions import NO_FEATURES, CheckpointRef, Commit, Features, TransactionRecord
from spark_pages.model.immutable import freeze
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import ObjectStore


class StepKind(StrEnum):
    """What a step of a repair does."""

    MOVE_AWAY = "move away"
    PUT_BACK = "put back"
    COMPACT = "compact log"
    CHECKPOINT = "checkpoint"
    HINT = "hint"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a repair does.

    Attributes
    ----------
    kind, key
        What is done, to which object.
    what
        In words.
    """

    kind: StepKind
    key: str
    what: str


@guarded()
@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RepairPlan:
    """What a repair would do, and what it cannot.

    Attributes
    ----------
    url, version
        The store, and its newest version when the plan was made.
    steps
        What `execute` does, in this order.
    beyond
        Faults that no step mends: each says what is lost.
    refused
        Why this release plans no steps, whatever is broken: something newer has written to the store. Empty
        where it may mend.
    """

    store: ObjectStore
    runtime: Runtime
    version: int
    steps: tuple[Step, ...]
    beyond: tuple[Fault, ...]
    objects: Mapping[str, bytes] = field(default_factory=dict)
    ranges: tuple[CompactedRange, ...] = ()
    base: CheckpointRef | None = None
    hint: CheckpointRef | None = None
    features: Features = NO_FEATURES
    refused: str = ""

    def __post_init__(self) -> None:
        freeze(self, "objects")

    @property
    def url(self) -> str:
        """Which store."""
        return self.store.url

    @property
    def _unrepaired(self) -> str:
        """What becomes of the faults that no step mends."""
        return "not mended" if self.refused else "beyond repair"

    def table(self) -> pa.Table:
        """Return a row for each step."""
        rows = [{"kind": s.kind.value, "key": s.key, "what": s.what} for s in self.steps]
        return pa.Table.from_pylist(
            rows, pa.schema([("kind", pa.string()), ("key", pa.string()), ("what", pa.string())])
        )

    def __repr__(self) -> str:
        lines = [
            f"RepairPlan({self.url!r}, version {self.version}: {len(self.steps)} steps, {len(self.beyond)} "
            f"faults {self._unrepaired})"
        ]
        lines += [f"  refused: {self.refused}"] if self.refused else []
        lines += [f"  {step.kind.value}: {step.what}" for step in self.steps]
        lines += [f"  {self._unrepaired}: {fault.what}" for fault in self.beyond]
        lines += [
            f"  what to do: {remedy}" for remedy in dict.fromkeys(fault.remedy for fault in self.beyond)
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heading = joined(
            tag("b", "plan of a repair"),
            f" · {self.url}, version {self.version:,} · nothing was written yet; execute() does it",
        )
        steps = [[step.kind.value, step.key, step.what] for step in self.steps]
        lost = [[fault.kind.value, fault.key, fault.what, fault.remedy] for fault in self.beyond]
        return card(
            heading,
            table(["step", "object", "what"], steps) if steps else self.refused or "nothing to mend",
            table([self._unrepaired, "object", "what", "what to do"], lost) if lost else "nothing is lost",
        )

    def execute(self) -> tuple[Step, ...]:
        """Every step is done; gives those that were.

        Raises
        ------
        UnsupportedFormatError
            If something newer than this release has written to the store; nothing was done.
        StorageError
            If storage fails. What was done is good; make a new plan and go on.

        Notes
        -----
        Open the store again afterwards: one that was opened before may still stand on the lost checkpoint.
        """
        if self.refused:
            raise UnsupportedFormatError(
                f"Cannot repair the store: {self.refused}",
                hint="Upgrade, then call `store.repair_plan()` again.",
            )
        if self.steps:
            self._check_writable()
        done = []
        for step in self.steps:
            match step.kind:
                case StepKind.MOVE_AWAY:
                    self._move_away(step.key)
                case StepKind.PUT_BACK:
                    self._restore_object(step.key)
                case StepKind.COMPACT:
                    write_ranges(self.store, self.runtime.map, self.ranges)
                case StepKind.CHECKPOINT:
                    self._write_checkpoint()
                case StepKind.HINT:
                    assert self.hint is not None
                    write_hint(self.store, self.hint)
                case StepKind.SWEEP:
                    assert isinstance(self.store, DurableLocalStore)
                    self.store.sweep_temporaries(self.runtime.now_us() - TEMPORARY_AGE_US)
            done.append(step)
        return tuple(done)

    def _check_writable(self) -> None:
        """Raise if the newest commit requires features that this release lacks."""
        slots = SlotReader(self.store, self.runtime.map)
        newest = slots.find_head(self.version + 1)
        slot = slots.read(newest) if newest >= 0 else None
        check_writable(slot.features if isinstance(slot, Commit) else self.features)

    def _move_away(self, key: str) -> None:
        """Copy a commit of another store out of the log, then remove it, if it is still what was found.

        No version of this store has reached the slot, and none can while the object is there.
        """
        (stamp,) = self.store.stamps([key])
        first = SlotReader(self.store).read(0)
        if stamp is None or first is None:
            return
        data = self.store.get(key)
        slot = decode_slot(data, key)
        if slot.id_of_store in ("", first.id_of_store):
            return
        self.store.put(lost_commit(slot.version, digest_of(data)), data)
        if self.store.stamps([key]) == [stamp]:
            self.store.delete(key)

    def _restore_object(self, key: str) -> None:
        version = slot_of(key)
        if version is None:
            self.store.put(key, self.objects[key])
            return
        try:
            if SlotReader(self.store).read(version) is None:
                self.store.create(key, self.objects[key])  # never over a tombstone that came meanwhile
        except UnsupportedFormatError:
            raise  # a newer release has put it back in the meantime
        except (
            DamageError,
            InvalidKeyError,
        ):  # a commit of another slot is damage, too, and a link is no commit
            self.store.put(key, self.objects[key])

    def _write_checkpoint(self) -> None:
        """Write a checkpoint of the planned version, and name it in the hint and in a commit of its own."""
        ref = recompute_checkpoint(self.store, self.base, self.version, self.runtime.token())
        base_state(TreeReader(self.store), ref)  # reads it back
        write_hint(self.store, ref)
        log = Log(self.store, self.runtime)
        head = log.refresh()
        record = TransactionRecord(
            token=self.runtime.token(),
            operation="repair",
            parameters={"checkpoint": ref.location.key},
            writer=writer_name(),
            read_version=head.state.version,
        )
        log.commit(head, lambda _: record)


def plan_repair(store: ObjectStore, runtime: Runtime | None = None, pages: PagesMode = "all") -> RepairPlan:
    """Plan what to repair, and report what is lost. Writes nothing.

    Parameters
    ----------
    pages
        Which pages are read to find damaged ones, as in `verify`. Pages exist once, so most damage of them is
        beyond repair; those that a checkpoint took over from commits can be made again. "none" is quick where
        the damage is known to be of the log.

    Notes
    -----
    The cost of `verify`, and that of writing each checkpoint again that has lost something.
    """
    runtime = runtime or Runtime()
    found = survey = survey_store(store, runtime, pages)
    if found.findings.newer:
        return _refused(found, why_no_repair(found))
    objects = recover_slots(store, found)
    if objects:  # what else is lost can be told, and made again, as if they were back
        survey = survey_store(as_if(store, objects), runtime, pages)
        if survey.findings.newer:
            return _refused(found, why_no_repair(survey))
    objects |= regenerate_ranges(survey)
    objects |= regenerate_checkpoints(survey.store, survey)
    objects |= regenerate_manifests(survey.store, survey, objects)
    steps = [
        Step(StepKind.MOVE_AWAY, commit_key(slot.version), f"{commit_key(slot.version)} is moved to {LOST}.")
        for slot in survey.slots.foreign
    ]
    foreign = {step.key for step in steps}
    steps += [Step(StepKind.PUT_BACK, key, f"{key} is put back, byte for byte.") for key in objects]
    if survey.lost_ranges:
        steps.append(
            Step(
                StepKind.COMPACT,
                survey.lost_ranges[0].key,
                f"{describe_ranges(survey.lost_ranges)} made again.",
            )
        )
    base, hint, more, mended = _plan_latest_checkpoint(survey, objects)
    steps += more
    dead = temporaries(store, runtime)
    if dead:
        what = f"{len(dead)} unfinished files that nobody has written to for a day are removed."
        steps.append(Step(StepKind.SWEEP, dead[0].key, what))
    if steps and (why := why_no_repair(survey)):
        return _refused(found, why)
    beyond = [
        fault
        for fault in survey.findings.faults
        if not fault.harmless and fault.key not in {*objects, *mended, *foreign}
    ]
    return RepairPlan(
        store=store,
        runtime=runtime,
        version=survey.slots.head,
        steps=tuple(steps),
        beyond=tuple(_as_lost(fault) for fault in beyond),
        objects=objects,
        ranges=tuple(survey.lost_ranges),
        base=base,
        hint=hint,
        features=survey.features,
    )


def _refused(found: Survey, why: str) -> RepairPlan:
    """Create a plan without steps that states the reason and the faults."""
    beyond = tuple(fault for fault in found.findings.faults if not fault.harmless)
    return RepairPlan(found.store, found.runtime, found.slots.head, (), beyond, refused=why)


def _plan_latest_checkpoint(
    survey: Survey, objects: dict[str, bytes]
) -> tuple[CheckpointRef | None, CheckpointRef | None, list[Step], set[str]]:
    """Plan a new checkpoint and hint, with the steps and the keys that they repair."""
    sound = [tree for tree in survey.trees if all(key in objects for key in tree.broken)]
    newest = max((tree.ref.version for tree in survey.trees), default=-1)
    best = max(sound, key=lambda tree: tree.ref.version, default=None)
    if survey.trees and (best is None or best.ref.version < newest):
        broken = [tree for tree in survey.trees if tree not in sound]
        base = best.ref if best else None
        if _can_write(survey, objects, base):
            stands = f"the one of version {base.version}" if base else "the commits from version 0 on"
            what = (
                f"A new checkpoint of version {survey.slots.head} is written from {stands}, and a commit "
                f"names it, so that nobody needs the lost one."
            )
            step = Step(StepKind.CHECKPOINT, broken[-1].ref.location.key, what)
            return base, None, [step], {*_superseded(broken, base), HINT_KEY}
    if survey.hint_wrong and best is not None:
        what = f"The hint names the checkpoint of version {best.ref.version}."
        return None, best.ref, [Step(StepKind.HINT, HINT_KEY, what)], {HINT_KEY}
    return None, None, [], set()


def _superseded(broken: list[SurveyedTree], base: CheckpointRef | None) -> set[str]:
    """Return faults that occur only in checkpoints after `base`, which a newer one makes redundant."""
    later = [tree for tree in broken if base is None or tree.ref.version > base.version]
    kept = {key for tree in broken if tree not in later for key in tree.broken}
    return {key for tree in later for key in tree.broken} - kept


def _can_write(survey: Survey, objects: dict[str, bytes], base: CheckpointRef | None) -> bool:
    """Whether a checkpoint of the head can be computed on `base`: tried, into nowhere."""
    try:
        recompute_checkpoint(as_if(survey.store, objects), base, survey.slots.head, "0" * 32)
    except SparkPagesError:
        return False
    return True


def _as_lost(fault: Fault) -> Fault:
    remedy = "It cannot be made again: put it back from a copy of the store. Nothing was deleted."
    return replace(fault, remedy=remedy) if fault.remedy in FROM_A_COPY else fault
