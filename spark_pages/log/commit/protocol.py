"""The commit rule, once: put if absent, settle doubt by reading back, rebase, try the next slot.

A generator without I/O. It yields requests and is sent their outcomes, so that a simulation can
drive the very code that is shipped; `driver.CommitDriver` drives it against storage. Its result is a
value for each transaction: `Committed`, `Conflict`, `Unknown`, `Refused`, or `Deferred` (`messages`).

The rule in five lines:

1. Create slot V+1 with the commit's bytes. Created: committed.
2. Any other answer says nothing. Read the slot and compare the commit token.
3. Our token: committed, once storage has answered "created" or "exists", which it does for durable
   objects only. Empty, or not known to be durable: create the *same bytes in the same slot* again.
4. Another commit: check for conflicts with it, rebase on it, go on with the next slot. Where it is the turn
   of others, read first what they commit; that is advice, and nothing rests on it.
5. No clear answer before the deadline: unknown. Nothing is deleted.

Several transactions of one process share a commit (group commit). Each is checked for conflicts on its
own, against what landed since it read and against those before it in the group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from spark_pages.errors import DamageError, InvalidInputError, StorageError
from spark_pages.format.commit import (
    MAX_COMMIT_BYTES,
    EncodedTransaction,
    encode_commit,
    with_digest,
)
from spark_pages.format.features import check_writable, with_needs
from spark_pages.format.names import commit_key
from spark_pages.log.commit.conflict import Overlap, find_overlap, only_appends
from spark_pages.log.commit.protocol_types import (
    Committed,
    Conflict,
    CreateSlot,
    Deferred,
    Duplicate,
    GroupMember,
    Outcome,
    ReadFailed,
    ReadSlot,
    ReadSlots,
    Refused,
    Request,
    Response,
    Slot,
    Unknown,
    Wait,
    Yield,
)
from spark_pages.log.fairness import NOBODY, SLOW, is_for_slow, is_lagging, schedule, should_recheck
from spark_pages.log.replay import Fold, LoadManifest, replay
from spark_pages.log.state import LogState
from spark_pages.log.store_identity import foreign_error
from spark_pages.model.actions import COMMITTED, Commit, Tombstone, TransactionRecord
from spark_pages.model.ids import Version
from spark_pages.storage.store import Created, Doubtful, Exists, NotCreated

GROUP_INLINE_BYTES = 256 << 10
"""Inline pages of a group commit; a transaction that would exceed this waits for the next commit."""

GROUP_BYTES = MAX_COMMIT_BYTES // 2
"""Encoded bytes of a group commit, likewise: half of what a commit may have, so that its header fits too."""

GROUP_PAGES = 10_000
"""Page descriptors of a group commit, likewise."""

IfStopped = Callable[[Sequence[Outcome]], object]

_STOPPED = "the thread that committed it together with its own was stopped"


def commit_protocol(
    state: LogState,
    members: Sequence[GroupMember],
    *,
    new_token: Callable[[], str],
    now_us: Callable[[], int],
    load_manifest: LoadManifest,
    writer: str = "",
    if_stopped: IfStopped = lambda _: None,
) -> Generator[Request, Response, list[Outcome]]:
    """Bring transactions into the log together on top of `state`, or say of each why not.

    Parameters
    ----------
    state
        The newest state known; not older than what any member has read.
    members
        The transactions, in order. The first one is never put off.
    new_token
        Gives 32 hexadecimal digits that no other commit has.
    now_us
        The clock; commit times stay monotone whatever it says.
    writer
        As whom other writers know this process, which lets them commit where it is their turn (`fairness`);
        without a name it takes no turns.
    if_stopped
        Told before each slot that is tried what the outcomes are should the thread be stopped from then on.

    Returns
    -------
    list of Outcome
        One for each member, in order.

    Notes
    -----
    One request where nobody races and all have read the newest state. Each slot that is lost costs one read
    and one create. What others commit in their turns is read, several slots at once; so is, from the second
    lost slot on, all that came in between.
    """
    group = _Group(members)
    oldest = min(member.valid_until for member in members)
    if oldest < state.version:
        since = yield ReadSlots(oldest + 1, state.version + 1)
        for slot in _slots(since):
            group.check(slot, state)
    commit_token = new_token()
    arrived = state.version
    tries = 0
    while True:
        stands_on = yield from _yield_to_others(state, group, load_manifest, writer, arrived)
        if stands_on is None:
            return group.outcomes()
        state = stands_on
        check_writable(state.features)
        records = group.build(state, load_manifest)
        if not records:
            return group.outcomes()
        commit = Commit(
            version=Version(state.version + 1),
            timestamp_us=max(now_us(), state.timestamp_us + 1),
            token=commit_token,
            parent_digest=state.digest,
            records=records,
            checkpoint=state.newest_checkpoint,
            features=with_needs(state.features, records),
            store_id=state.store_id or (commit_token if state.version < 0 else ""),
            compacted=state.compacted,
            upkeep=state.upkeep,
        )
        try:
            data, digest = encode_commit(commit, group.encoded)
        except InvalidInputError as too_large:  # `build` has put nothing beside such a transaction
            return group.finish(Refused(too_large, tries))
        tries += 1
        group.tries = tries
        if_stopped(group.stopped(Unknown(commit.version, commit_token, data, _STOPPED, tries)))
        settled = yield from put_slot(commit.version, commit_token, data)
        if isinstance(settled, Unknown):
            return group.finish(replace(settled, tries=tries))
        if isinstance(settled, NotCreated):
            error = StorageError(
                f"Cannot create commit {commit.version}: {settled.reason} Nothing was committed.",
                hint=settled.hint
                or "Run `spark-pages doctor URL`: it tries what a store needs of its storage.",
            )
            return group.finish(Refused(error))
        if settled is None:
            commit = with_digest(commit, digest)
            return group.finish(Committed(commit.version, group.after(commit), tries, commit))
        if state.store_id and settled.id_of_store not in ("", state.store_id):
            return group.finish(Refused(foreign_error(settled.version)))
        if isinstance(settled, Tombstone):
            return group.resolve_by_tombstone(settled, state)
        state = replay(state, [settled], load_manifest)
        group.check(settled, state)
        if group.decided:
            return group.outcomes()
        if not (yield Wait(tries, lost=True)):
            return group.finish(Conflict(None, state.version, tries, settled.records[0].writer))


def _yield_to_others(
    state: LogState, group: _Group, load_manifest: LoadManifest, writer: str, arrived: int
) -> Generator[Request, Response, LogState | None]:
    """Return the state after the commits of others whose turn it is, and all after a second loss.

    None where every member has met something of it. Who has lost slot after slot waits for nobody's turn.
    """
    late = is_lagging(group.tries)
    knows_head = group.tries < 2
    looks, gave_way = 0, -1
    while True:
        first = NOBODY
        if writer and not late:
            gives_way = gave_way != state.version and is_for_slow(state.turns, state.properties)
            first = SLOW if gives_way else schedule(state.turns, state.properties, writer, arrived)
        if not first.writers and knows_head:
            return state
        came = _slots((yield Yield(state.version + 1, first)))
        for slot in came:
            if isinstance(slot, Commit):
                state = replay(state, [slot], load_manifest)
            group.check(slot, state)
        if group.decided:
            return None
        if first.slow:
            gave_way = state.version
            continue
        if not came:
            return state
        looks += 1
        knows_head = not late or not should_recheck(len(came), looks)


Settled = Slot | Unknown | NotCreated | None


def put_slot(
    version: int, token: str, data: bytes, in_doubt: bool = False
) -> Generator[Request, Response, Settled]:
    """Put the bytes into the slot until it is clear who holds it: None if we do.

    Parameters
    ----------
    in_doubt
        Whether the bytes may be in the slot from an earlier try.
    """
    attempt = 0
    while True:
        outcome = yield CreateSlot(commit_key(version), data)
        if isinstance(outcome, Created):
            return None
        if isinstance(outcome, NotCreated) and not in_doubt:
            return outcome
        in_doubt = True
        found = yield ReadSlot(version)
        if isinstance(found, Tombstone) or (isinstance(found, Commit) and found.token != token):
            return found
        if isinstance(found, Commit):
            if isinstance(outcome, Exists):
                return None
            reason = f"the commit is there, but storage does not say that it is durable: {_in_words(outcome)}"
        elif isinstance(found, ReadFailed):
            reason = found.reason
        elif found is None:
            reason = f"the slot stayed empty: {_in_words(outcome)}"
        else:
            raise DamageError(f"Cannot settle slot {version}: the answer is of kind {type(found).__name__}.")
        attempt += 1
        if not (yield Wait(attempt)):
            return Unknown(version, token, data, reason)


def _in_words(outcome: Response) -> str:
    return outcome.reason if isinstance(outcome, Doubtful | NotCreated) else "storage says that it is taken"


def _slots(response: Response) -> list[Slot]:
    if not isinstance(response, list):
        raise DamageError(f"Cannot read slots: the answer is of kind {type(response).__name__}.")
    return response


class _Group:
    """The members, which of them are in the commit that is being tried, and the outcomes so far.

    Attributes
    ----------
    encoded
        By token, those in the commit: each is encoded before it joins, so that one that cannot be encoded is
        refused by itself.
    tries
        Slots that were tried.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self._members = members
        self._outcomes: dict[int, Outcome] = {}
        self._built: dict[int, TransactionRecord] = {}
        self._said: dict[int, tuple[LogState, TransactionRecord | Duplicate]] = {}
        self._fold: Fold | None = None
        self.encoded: dict[str, EncodedTransaction] = {}
        self.tries = 0

    def build(self, base: LogState, load_manifest: LoadManifest) -> tuple[TransactionRecord, ...]:
        """Build the records of the group on top of the state."""
        self._built, self.encoded = {}, {}
        fold = self._fold = Fold(base, load_manifest)
        others: list[TransactionRecord] = []  # that do more than append
        pages = inline = size = 0
        for index, member in enumerate(self._members):
            if index in self._outcomes:
                continue
            try:
                ready = member.ready if member.ready is not None and member.ready.is_valid_on(base) else None
                record = self._rebased_on(fold.state() if self._built and ready is None else base, index)
            except Exception as error:  # noqa: BLE001 - it is raised where this member waits
                self._outcomes[index] = Refused(error, self.tries)
                continue
            if isinstance(record, Duplicate):
                if record.version <= base.version:  # else a member of this group brings the pair
                    self._outcomes[index] = Committed(record.version, base, self.tries)
                continue
            appends = only_appends(record)
            met = others if appends and not member.reads else self._built.values()
            more_pages, more_inline = num_pages(record), record.own.inline_bytes
            if self._built and (
                pages + more_pages > GROUP_PAGES
                or inline + more_inline > GROUP_INLINE_BYTES
                or find_overlap(record, base.version + 1, met, member.reads) is not None
            ):
                continue
            if pages:
                record = _from_ordinal(record, pages)
            try:
                encoded = ready.encoded if ready is not None else EncodedTransaction.of(record)
            except InvalidInputError as error:
                self._outcomes[index] = Refused(error, self.tries)
                continue
            if self._built and size + encoded.num_bytes > GROUP_BYTES:
                continue
            try:
                fold.record(record, base.version + 1)
            except Exception as error:  # noqa: BLE001 - likewise; the fold may hold a part of it
                self._outcomes[index] = Refused(error, self.tries)
                return self.build(base, load_manifest)
            pages, inline, size = pages + more_pages, inline + more_inline, size + encoded.num_bytes
            self._built[index] = record
            self.encoded[record.token] = encoded
            if not appends:
                others.append(record)
        return tuple(self._built.values())

    def after(self, commit: Commit) -> LogState:
        """Return the state after the commit that was built last, which is applied already."""
        assert self._fold is not None
        self._fold.finish_commit(commit)
        return self._fold.state()

    def check(self, slot: Slot, state: LogState) -> None:
        """Sort out the members that cannot be put after what landed; `state` is not older than it."""
        if isinstance(slot, Tombstone):
            for index, member in enumerate(self._members):
                if index not in self._outcomes and member.valid_until < slot.version:
                    self._outcomes[index] = Conflict(_cleaned(slot), slot.version, self.tries)
            return
        others = [record for record in slot.records if not only_appends(record)]
        for index, member in enumerate(self._members):
            if index in self._outcomes or member.valid_until >= slot.version:
                continue
            record = self._built.get(index) or self._build_record(index, state)
            if record is None:
                continue
            met = others if only_appends(record) and not member.reads else slot.records
            overlap = find_overlap(record, slot.version, met, member.reads, member.named)
            if overlap is not None:
                # What it says on the newer state may not meet the other: an append that was to swap the tail,
                # or that lacks a new column.
                record = self._build_record(index, state, anew=True) or record
                met = others if only_appends(record) and not member.reads else slot.records
                overlap = find_overlap(record, slot.version, met, member.reads, member.named)
            if overlap is None:
                overlap = _vacuumed(member, slot)
            if overlap is not None:
                self._outcomes[index] = Conflict(overlap, slot.version, self.tries)

    def _build_record(self, index: int, state: LogState, *, anew: bool = False) -> TransactionRecord | None:
        """Build the record of a member that is not in the commit, to check conflicts only.

        Parameters
        ----------
        anew
            Whether on this very state; else what it said on an older one will do.
        """
        try:
            record = self._rebased_on(
                self._said[index][0] if index in self._said and not anew else state, index
            )
        except Exception:  # noqa: BLE001 - it is refused when its turn comes
            return None
        return None if isinstance(record, Duplicate) else record

    def _rebased_on(self, state: LogState, index: int) -> TransactionRecord | Duplicate:
        """Rebase a member on a state; the result for the last state is cached."""
        ready = self._members[index].ready
        if ready is not None and ready.is_valid_on(state):
            return ready.record
        if index not in self._said or self._said[index][0] is not state:
            self._said[index] = state, self._members[index].build(state)
        return self._said[index][1]

    def finish(self, outcome: Outcome) -> list[Outcome]:
        """All that are in the commit have this outcome."""
        self._outcomes |= dict.fromkeys(self._built, outcome)
        return self.outcomes()

    def stopped(self, unknown: Unknown) -> list[Outcome]:
        """Return the outcomes if the fate of the commit stays unknown."""
        return [unknown if index in self._built else outcome for index, outcome in enumerate(self.outcomes())]

    def resolve_by_tombstone(self, slot: Tombstone, state: LogState) -> list[Outcome]:
        """Return the outcomes for a slot that is a tombstone, by its tokens."""
        outcomes = dict(slot.transactions)
        for index, record in self._built.items():
            if outcomes.get(record.token) == COMMITTED:
                self._outcomes[index] = Committed(slot.version, state, self.tries)
            else:
                self._outcomes[index] = Conflict(_cleaned(slot), slot.version, self.tries)
        return self.outcomes()

    @property
    def decided(self) -> bool:
        """Whether every member has its outcome."""
        return len(self._outcomes) == len(self._members)

    def outcomes(self) -> list[Outcome]:
        """One for each member."""
        return [self._outcomes.get(index) or Deferred() for index in range(len(self._members))]


def _cleaned(slot: Tombstone) -> Overlap:
    return Overlap(slot.version, "", "", "it has been cleaned away since")


def _vacuumed(member: GroupMember, slot: Commit) -> Overlap | None:
    """Return the vacuum in this commit, if it refuses the read version of the member."""
    for other in slot.records:
        if other.retention is not None and member.read_version < other.retention.min_epoch:
            late = f"transactions that read before version {other.retention.min_epoch} are refused since then"
            return Overlap(slot.version, other.writer, other.operation, late)
    return None


def num_pages(record: TransactionRecord) -> int:
    """Pages that the record brings, its own and those of its manifests."""
    return record.own.num_pages + sum(manifest.num_pages for manifest in record.manifests)


def _from_ordinal(record: TransactionRecord, base: int) -> TransactionRecord:
    """Shift the ordinals of a record to follow those of the records before it."""
    manifests = tuple(
        replace(manifest, base_ordinal=manifest.base_ordinal + base) for manifest in record.manifests
    )
    return replace(record, base_ordinal=record.base_ordinal + base, manifests=manifests)
