"""The commit rule, once: put if absent, settle doubt by reading back, rebase, try the next slot.

A generator without I/O. It yields requests and is sent their outcomes, so that a simulation can
drive the very code that is shipped; `log.Log` drives it against storage. Its result is a value:
`Committed`, `Conflict` or `Unknown`.

The rule in five lines:

1. Create slot V+1 with the commit's bytes. Created: committed.
2. Any other answer says nothing. Read the slot and compare the commit token.
3. Our token: committed, once storage has answered "created" or "exists", which it does for durable
   objects only. Empty, or not known to be durable: create the *same bytes in the same slot* again.
4. Another commit: check for a conflict with it, rebase on it, go on with the next slot.
5. No clear answer before the deadline: unknown. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from spark_pages.errors import DamageError
from spark_pages.log.commit_codec import encode_commit, with_digest
from spark_pages.log.conflict import Overlap, find_overlap
from spark_pages.log.features import check_writable
from spark_pages.log.names import commit_key
from spark_pages.log.replay import LoadManifest, replay
from spark_pages.log.state import LogState
from spark_pages.model.actions import COMMITTED, Commit, Tombstone, TransactionRecord
from spark_pages.model.ids import Version
from spark_pages.storage.store import Created, CreateOutcome, Exists


@dataclass(frozen=True, slots=True)
class CreateSlot:
    """Create the object if it is absent; the answer is a `CreateOutcome`."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """Read a slot; the answer is a `Commit`, a `Tombstone`, or None where it is empty."""

    version: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before try number `attempt`; the answer says whether there is time left (bool)."""

    attempt: int


Request = CreateSlot | ReadSlot | Pause


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The slot could not be read, for the reason given."""

    reason: str


Response = CreateOutcome | Commit | Tombstone | ReadFailed | bool | None


@dataclass(frozen=True, eq=False, slots=True)
class Committed:
    """It is in the log at `version`; `state` is the state after it."""

    version: int
    state: LogState
    tries: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """It is not in the log and never will be."""

    overlap: Overlap | None
    head: int
    tries: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may be in slot `version`: the last bytes put there and the token tell, later."""

    version: int
    token: str
    data: bytes
    reason: str


Outcome = Committed | Conflict | Unknown
Build = Callable[[LogState], TransactionRecord]


def commit_protocol(
    state: LogState,
    build: Build,
    *,
    commit_token: str,
    now_us: Callable[[], int],
    load_manifest: LoadManifest,
    serializable: bool = False,
) -> Generator[Request, Response, Outcome]:
    """Bring one transaction into the log on top of `state`, or say why not.

    Parameters
    ----------
    state
        What the transaction has read.
    build
        Gives the transaction's record on top of a state; called again after each rebase. Page files
        are never written again.
    commit_token
        32 hexadecimal digits that no other commit has.
    now_us
        The clock; commit times stay monotone whatever it says.

    Notes
    -----
    One request where nobody races. Each commit that came in between costs one read and one create.
    """
    tries = 0
    while True:
        check_writable(state.features)
        record = build(state)
        commit = Commit(
            version=Version(state.version + 1),
            timestamp_us=max(now_us(), state.timestamp_us + 1),
            token=commit_token,
            parent_digest=state.digest,
            records=(record,),
            checkpoint=state.newest_checkpoint,
            features=state.features,
        )
        data, digest = encode_commit(commit)
        tries += 1
        settled = yield from _settle(commit.version, commit_token, data)
        if isinstance(settled, Unknown):
            return settled
        if settled is None:
            landed = with_digest(commit, digest)
            return Committed(commit.version, replay(state, [landed], load_manifest), tries)
        if isinstance(settled, Tombstone):
            outcomes = dict(settled.transactions)
            if outcomes.get(record.token) == COMMITTED:
                return Committed(settled.version, state, tries)
            cleaned = Overlap(settled.version, "retention", "vacuum", "its slot has been cleaned away")
            return Conflict(cleaned, settled.version, tries)
        overlap = find_overlap(record, settled, serializable)
        if overlap is not None:
            return Conflict(overlap, settled.version, tries)
        state = replay(state, [settled], load_manifest)
        if state.retention is not None and record.read_version < state.retention.min_epoch:
            late = f"transactions that read before version {state.retention.min_epoch} are refused since then"
            return Conflict(Overlap(settled.version, "retention", "vacuum", late), settled.version, tries)
        if not (yield Pause(tries)):
            return Conflict(None, state.version, tries)


def _settle(
    version: int, token: str, data: bytes
) -> Generator[Request, Response, Commit | Tombstone | Unknown | None]:
    """Put the bytes into the slot until it is clear who holds it: None if we do."""
    attempt = 0
    reason = ""
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if isinstance(outcome, Created):
            return None
        found = yield ReadSlot(version)
        if isinstance(found, Tombstone) or (isinstance(found, Commit) and found.token != token):
            return found
        if isinstance(found, Commit):
            if isinstance(outcome, Exists):
                return None
            reason = f"the commit is there, but storage does not say that it is durable: {outcome!r}"
        elif isinstance(found, ReadFailed):
            reason = found.reason
        elif found is not None:
            raise DamageError(f"Slot {version} gave an answer of kind {type(found).__name__}.")
        attempt += 1
        if not (yield Pause(attempt)):
            return Unknown(version, token, data, reason or f"the slot stayed empty after {outcome!r}")
