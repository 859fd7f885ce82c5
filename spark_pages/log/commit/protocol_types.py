"""What the commit rule asks for, what it is answered, and what becomes of a transaction. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_pages.errors import CommitUnknownError, InvalidInputError
from spark_pages.format.commit import EncodedTransaction
from spark_pages.log.commit.conflict import Named, Overlap, by_ids
from spark_pages.log.fairness import CommitSchedule
from spark_pages.log.state import LogState
from spark_pages.model.actions import Commit, Tombstone, TransactionRecord
from spark_pages.storage.store import CreateOutcome


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
class ReadSlots:
    """Read slots [start, stop), which are known to be there; the answer is a list of what they hold."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Yield:
    """Wait for commits of others, whose turn it is; the answer is a list of what slots from `start` on hold.

    An empty list says that nobody came, or that there is no time left.

    Attributes
    ----------
    before
        Who is expected; where it is nobody, only what is there already is read.
    """

    start: int
    before: CommitSchedule


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next try; the answer says whether there is time left (bool).

    Attributes
    ----------
    attempt
        Tries so far.
    lost
        Whether another commit took the slot, rather than storage giving no clear answer.
    """

    attempt: int
    lost: bool = False


Request = CreateSlot | ReadSlot | ReadSlots | Yield | Wait


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The slot could not be read, for the reason given."""

    reason: str


Slot = Commit | Tombstone
Response = CreateOutcome | Slot | list[Slot] | ReadFailed | bool | None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The exactly-once pair of the transaction is in the log since `version`: there is nothing to do."""

    version: int


Build = Callable[[LogState], TransactionRecord | Duplicate]
"""Gives a transaction's record on top of a state; called again after each rebase."""


@dataclass(frozen=True, eq=False, slots=True)
class EncodedRecord:
    """What a transaction says on every state whose catalog is not newer than `since`.

    So it need not be shown what the other members of its group do, and is encoded before it waits for them,
    while others are on their way: what the leader of a group computes keeps all of it waiting.

    Attributes
    ----------
    record
        Without page manifests, whose ordinals depend on the other members.
    encoded
        Its bytes.
    since
        A version of the log.
    """

    record: TransactionRecord
    encoded: EncodedTransaction
    since: int

    def is_valid_on(self, state: LogState) -> bool:
        """Whether it says that on top of this state too."""
        return state.catalog_version <= self.since


@dataclass(frozen=True, eq=False, slots=True)
class GroupMember:
    """A transaction that is to be committed.

    Attributes
    ----------
    read_version
        Version that it read.
    build
        Gives its record.
    reads
        Tables whose rows must not have changed since then (serializable isolation); often none.
    ready
        What `build` gives, where its thread knew that already.
    named
        How it calls tables and columns, for what it is told of a conflict.
    compared
        Up to this version it has been compared with what landed already, and may be put behind that.
    """

    read_version: int
    build: Build
    reads: frozenset[int] = frozenset()
    ready: EncodedRecord | None = None
    named: Named = by_ids
    compared: int = -1

    @property
    def valid_until(self) -> int:
        """The version that it may be put behind as it is: only what came later may be in its way."""
        return max(self.read_version, self.compared)


@dataclass(frozen=True, eq=False, slots=True)
class Committed:
    """It is in the log.

    Attributes
    ----------
    version
        Where.
    state
        The newest one known, not older than that.
    commit
        What holds it; None where it had landed before.
    """

    version: int
    state: LogState
    tries: int
    commit: Commit | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """It is not in the log and never will be.

    Attributes
    ----------
    overlap
        What it met; None where others were quicker until the deadline.
    head, by
        The newest version, and who committed that.
    """

    overlap: Overlap | None
    head: int
    tries: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may be in slot `version`: the last bytes put there and the token tell, later."""

    version: int
    token: str
    data: bytes
    reason: str
    tries: int = 1

    @classmethod
    def from_error(cls, error: CommitUnknownError) -> Unknown:
        """Return the commit that an error carries.

        Raises
        ------
        InvalidInputError
            If it carries none.
        """
        known = error.context
        if not {"version", "token", "data"} <= known.keys():
            raise InvalidInputError(
                "Cannot resume the commit: the error does not carry it.",
                hint="Look for the commit in `Store.history`.",
            )
        return cls(known["version"], known["token"], known["data"], error.message, known.get("tries", 1))


@dataclass(frozen=True, eq=False, slots=True)
class Refused:
    """It could not be built on the newest state, or not be encoded; nothing of it is in the log."""

    error: Exception
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Deferred:
    """It was left for the next group: it overlaps with a member of this one, or there was no room."""


Outcome = Committed | Conflict | Unknown | Refused | Deferred
