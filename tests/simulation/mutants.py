"""Planted bugs: shipped code with one rule taken out. The simulation must find every one of them.

Each is a switch that only tests can throw. ``../docs/testing.md`` says what each rule is for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from spark_pages.changes import idempotency
from spark_pages.errors import CommitConflictError, StorageError
from spark_pages.format.names import commit_key
from spark_pages.log import discovery, log, replay, retention, slots
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.commit import conflict
from spark_pages.log.commit import errors as commit_errors
from spark_pages.log.commit import protocol as commit_protocol
from spark_pages.log.commit.driver import CommitCache
from spark_pages.log.commit.protocol_types import CreateSlot, ReadSlot, Unknown, Wait
from spark_pages.log.vacuum import executor, planner
from spark_pages.model.actions import (
    CatalogIntent,
    Commit,
    IntentKind,
    Retention,
    Tombstone,
    TransactionRecord,
)
from spark_pages.model.table import TableDefinition
from spark_pages.storage.store import Created, Doubtful, NotCreated
from spark_pages.transaction import blanked_rows
from spark_pages.versions import restore_plan
from tests.simulation.scenarios import (
    CLEANED,
    DELETED,
    DISK,
    DOUBT,
    DROPPED,
    FIRST_CHECKPOINTS,
    KEPT,
    NAMES,
    RACE,
    REFERRED,
    RETENTION,
    THREADS,
    TURNS,
    VACUUM,
)
from tests.simulation.values import Value, encode_commit, forget, put_back, swap
from tests.simulation.world import Scenario

Undo = list[tuple[Any, str, Any]]


@dataclass(frozen=True)
class Mutant:
    """One rule taken out of shipped code.

    Attributes
    ----------
    name
        Which bug it is.
    scenario
        Where it does harm.
    plant
        Puts it in; gives what undoes it.
    schedules
        It must be found within so many.
    seed
        From which on they are drawn.
    steps
        The schedule that finds it, where hardly any drawn one would; see `report.parse_steps`.
    """

    name: str
    scenario: Scenario
    plant: Callable[[], Undo]
    schedules: int = 5_000
    seed: int = 0
    steps: str = ""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Inside, shipped code has the bug."""
        forget()
        undo = self.plant()
        try:
            yield
        finally:
            put_back(undo)
            forget()


def _set(owner: Any, name: str, new: Any) -> Undo:
    old = getattr(owner, name)
    setattr(owner, name, new)
    return [(owner, name, old)]


# the rule of committing

Settled = Generator[Any, Any, Any]


def _exists_is_conflict(version: int, token: str, data: bytes, _: bool = False) -> Settled:
    del token
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if isinstance(outcome, Created):
            return None
        found = yield ReadSlot(version)
        if isinstance(found, Commit | Tombstone):
            return found  # whoever's it is
        if not (yield Wait(1)):
            return Unknown(version, "", data, "")


def _no_read_back(version: int, token: str, data: bytes, _: bool = False) -> Settled:
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if isinstance(outcome, Created):
            return None
        if isinstance(outcome, Doubtful):
            raise StorageError("The commit failed.")
        found = yield ReadSlot(version)
        if isinstance(found, Commit | Tombstone):
            return found if found.token != token else None


def _goes_on_in_doubt(version: int, token: str, data: bytes, _: bool = False) -> Settled:
    tries = 0
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if isinstance(outcome, Created):
            return None
        found = yield ReadSlot(version)
        if isinstance(found, Commit | Tombstone):
            return found if found.token != token else None
        tries += 1
        token = f"f{tries}" + token[2:]  # the slot is empty: begin anew, with another commit
        assert isinstance(data, Value)
        data = encode_commit(replace(data.value, token=token, digest=""))[0]
        if not (yield Wait(tries)):
            return Unknown(version, token, data, "")


def _own_token_is_enough(version: int, token: str, data: bytes, _: bool = False) -> Settled:
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if isinstance(outcome, Created):
            return None
        found = yield ReadSlot(version)
        if isinstance(found, Commit | Tombstone):
            return found if found.token != token else None
        if not (yield Wait(1)):
            return Unknown(version, token, data, "")


def _not_created_is_final(version: int, token: str, data: bytes, _: bool = False) -> Settled:
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if outcome == Created() or isinstance(outcome, NotCreated):
            return outcome if isinstance(outcome, NotCreated) else None
        found = yield ReadSlot(version)
        if isinstance(found, Commit | Tombstone):
            return found if found.token != token else None
        if not (yield Wait(1)):
            return Unknown(version, token, data, "")


def _settling(settle: Callable[..., Settled]) -> Callable[[], Undo]:
    return lambda: swap(commit_protocol.put_slot, settle)


def _buried_for_another(found: Any) -> Any:
    """A tombstone that says nothing of the commit which it stands for."""
    return replace(found, token="0" * 32, transactions=()) if isinstance(found, Tombstone) else found


def _tombstones_are_of_others(where: Any) -> Callable[[], Undo]:
    settle = commit_protocol.put_slot

    def settled(*given: Any, **named: Any) -> Settled:
        return _buried_for_another((yield from settle(*given, **named)))

    return lambda: _set(where, "put_slot", settled)


def _unknown_is_conflict(outcome: Unknown) -> CommitConflictError:
    return CommitConflictError(f"Commit {outcome.version} did not get through.")


def _times_follow_the_clock() -> Undo:
    vars(commit_protocol)["max"] = lambda now, _: now  # the only use of it there
    return [(commit_protocol, "max", max)]


# conflicts


def _blind_inside_a_group() -> Undo:
    find = commit_protocol.find_overlap
    members = type({}.values())

    def found(mine: Any, version: int, landed: Any, reads: Any = frozenset()) -> Any:
        return None if isinstance(landed, members) else find(mine, version, landed, reads)

    return _set(commit_protocol, "find_overlap", found)


def _blind_to_reads() -> Undo:
    find = commit_protocol.find_overlap
    return _set(commit_protocol, "find_overlap", lambda mine, version, landed, _: find(mine, version, landed))


def _blind_to_turns() -> Undo:
    check = commit_protocol._Group.check

    def seen_after_a_loss_only(self: Any, slot: Any, state: Any) -> None:
        if self.tries:
            check(self, slot, state)

    return _set(commit_protocol._Group, "check", seen_after_a_loss_only)


def _turns_skip_a_slot() -> Undo:
    read = CommitCache.next
    return _set(CommitCache, "next", lambda self, start, count: read(self, start, count + 1)[-1:])


# reading


def _tombstones_unknown() -> Undo:
    read = slots.SlotReader.read

    def without(self: Any, version: int) -> Any:
        slot = read(self, version)
        return None if isinstance(slot, Tombstone) else slot

    return _set(slots.SlotReader, "read", without)


def _hint_is_the_head() -> Undo:
    find = discovery.find_head

    def found(reader: Any, tree: Any, load_manifest: Any) -> Any:
        hint = discovery.read_hints(reader.store)
        if hint.checkpoint is None:
            return find(reader, tree, load_manifest)
        return discovery.base_state(tree, hint.checkpoint)

    return swap(find, found)


def _stays_before_a_tombstone() -> Undo:
    tail = slots.SlotReader.tail

    def without(self: Any, *given: Any, **named: Any) -> Any:
        return [slot for slot in tail(self, *given, **named) if isinstance(slot, Commit)]

    return _set(slots.SlotReader, "tail", without)


# retention


def _slots_deleted() -> Undo:
    def bury(self: Any, _: Any, version: int) -> None:
        self._store.delete(commit_key(version))

    return _set(executor.VacuumExecutor, "_write_tombstone", bury)


def _slots_deleted_and_writers_look(also_in_doubt: bool) -> Callable[[], Undo]:
    settle = commit_protocol.put_slot

    def settled(version: int, token: str, data: bytes, in_doubt: bool = False) -> Settled:
        """Who has filled a slot looks whether the one before it is there still."""
        outcome = yield from settle(version, token, data, in_doubt)
        if outcome is None and (also_in_doubt or not in_doubt) and (yield ReadSlot(version - 1)) is None:
            return Unknown(version, token, data, "the slot had been cleaned")
        return outcome

    return lambda: [*_slots_deleted(), *swap(settle, settled)]


def _readable_moves_back() -> Undo:
    """Each vacuum says that all can be read again, and the last one is right."""

    def recorded(*, retention: Retention, **given: Any) -> TransactionRecord:
        return TransactionRecord(retention=replace(retention, min_readable=0), **given)  # type: ignore[arg-type]

    return [
        *swap(retention.further, lambda one, two: two or one),
        *_set(executor, "TransactionRecord", recorded),
    ]


def _no_epoch() -> Undo:
    return _set(
        planner,
        "Retention",
        lambda _, readable, checkpoint=None: Retention(0, readable, checkpoint),  # type: ignore[arg-type]
    )


def _bury_all() -> Undo:
    """Every slot of the plan becomes a tombstone, whatever the log records."""

    def bury(self: Any, _: Any) -> None:
        self._do(partial(self._bury, self._plan.retention.checkpoint), range(*self._plan.slots))

    return _set(executor.VacuumExecutor, "_write_tombstones", bury)


def _any_record_covers() -> Undo:
    """Vacuum as it was: of two records the versions were compared, and not the checkpoints."""

    def covers(recorded: Retention | None, planned: Retention) -> bool:
        return (
            recorded is not None
            and recorded.min_readable >= planned.min_readable
            and recorded.min_epoch >= planned.min_epoch
        )

    def further(one: Retention | None, two: Retention | None) -> Retention | None:
        if one is None or two is None:
            return one or two
        leading = two if two.min_readable >= one.min_readable else one
        return replace(leading, min_epoch=max(one.min_epoch, two.min_epoch))

    return [
        *_set(executor, "covers", covers),
        *_bury_all(),
        *swap(retention.further, further),
    ]


def _purge_keeps_pages() -> Undo:
    apply = replay.Fold._intent

    def ignoring(fold: replay.Fold, intent: CatalogIntent, version: int) -> None:
        if intent.kind is not IntentKind.PURGE:
            apply(fold, intent, version)

    return _set(replay.Fold, "_intent", ignoring)


def _first_ones_share() -> Undo:
    put = discovery.on_named_checkpoint
    return swap(put, lambda *given: given[2] if given[2].named_checkpoint is None else put(*given))


def _marks_shift() -> Undo:
    marks = conflict._marks

    def blind(*given: Any) -> Any:
        found = marks(*given)
        found.resizes = False
        return found

    return swap(marks, blind)


def _marks_outlive_rows() -> Undo:
    columns = property(lambda self: tuple((self.table_id, each) for each in self.field_ids.values()))
    return _set(TableDefinition, "chains", columns)


def _blanking_is_identity() -> Undo:
    splice = blanked_rows._splice
    return _set(
        blanked_rows, "_splice", lambda *given: replace(splice(*given), data_change=False, touched=())
    )


MUTANTS = (
    Mutant("exists is taken for a conflict", RACE, _settling(_exists_is_conflict)),
    Mutant("no read-back after doubt", RACE, _settling(_no_read_back)),
    Mutant("goes on while its own put may land", RACE, _settling(_goes_on_in_doubt)),
    Mutant("not created, after doubt, is final", RACE, _settling(_not_created_is_final), seed=850),
    Mutant("its own token is enough, durable or not", DISK, _settling(_own_token_is_enough)),
    Mutant(
        "unknown is told as a conflict",
        DOUBT,
        lambda: swap(commit_errors.unknown_error, _unknown_is_conflict),
    ),
    Mutant("times follow the clock", RACE, _times_follow_the_clock),
    Mutant("rebase without conflict check", RACE, lambda: swap(conflict.find_overlap, lambda *_: None)),
    Mutant("members of a group are not compared", THREADS, _blind_inside_a_group),
    Mutant("names are not compared", NAMES, lambda: swap(conflict._names, lambda *_: None)),
    Mutant("serializable is not checked", NAMES, _blind_to_reads),
    Mutant("what others commit in their turn is not compared", TURNS, _blind_to_turns),
    Mutant("slots of others are skipped in their turn", TURNS, _turns_skip_a_slot),
    Mutant("the pair is not looked for", DOUBT, lambda: _set(idempotency, "latest_applied", lambda *_: None)),
    Mutant("a tombstone is an empty slot", VACUUM, _tombstones_unknown),
    Mutant("who meets a tombstone stays before it", VACUUM, _stays_before_a_tombstone),
    Mutant(
        "a commit that was cleaned is taken for another's, and repeated",
        CLEANED,
        _tombstones_are_of_others(commit_protocol),
        steps="patient*1; patient=answer lost; counter*99; vacuum*999",
    ),
    Mutant(
        "a commit that was cleaned is taken for another's by who resumes it",
        CLEANED,
        _tombstones_are_of_others(log),
        steps="hasty=answer lost; hasty*1; counter*99; vacuum*999",
    ),
    Mutant("the hint is the head", RACE, _hint_is_the_head),
    Mutant("slots are deleted", VACUUM, _slots_deleted),
    Mutant("slots are deleted, and only writers look", VACUUM, _slots_deleted_and_writers_look(True)),
    Mutant("slots are deleted, and nobody in doubt looks", VACUUM, _slots_deleted_and_writers_look(False)),
    Mutant("what can be read moves back", RETENTION, _readable_moves_back),
    Mutant(
        "a checkpoint is not read back",
        VACUUM,
        lambda: _set(ObjectWriter, "_look_for", lambda *_: None),
        seed=670,
    ),
    Mutant("vacuum without an epoch", RETENTION, _no_epoch, seed=80),
    Mutant(
        "vacuum deletes before it commits",
        VACUUM,
        lambda: [*_set(executor.VacuumExecutor, "_commit", lambda *_: None), *_bury_all()],
    ),
    Mutant("any checkpoint is usable", RETENTION, lambda: swap(retention.usable, lambda *_: True), seed=80),
    Mutant(
        "checkpoints are built on unnamed ones",
        RETENTION,
        lambda: swap(discovery.on_named_checkpoint, lambda *a: a[2]),
        seed=80,
    ),
    Mutant("a record on an older checkpoint covers a plan", KEPT, _any_record_covers),
    Mutant(
        "a restore requires nothing",
        REFERRED,
        lambda: swap(restore_plan.new_references, lambda *_: []),
    ),
    Mutant("a purged table keeps its pages", DROPPED, _purge_keeps_pages),
    Mutant("a lengthening of marks shifts", DELETED, _marks_shift),
    Mutant("marks reach beyond the end of a table", DELETED, _marks_outlive_rows),
    Mutant("blanking is an identity", DELETED, _blanking_is_identity),
    Mutant(
        "deletes are not compared with changes", DELETED, lambda: swap(conflict._liveness, lambda *_: None)
    ),
    Mutant("first checkpoints share with unnamed ones", FIRST_CHECKPOINTS, _first_ones_share),
)
