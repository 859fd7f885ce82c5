"""The commit of a transaction: validate, place pages, commit, and rebase after a conflict.

`Committer.commit` runs the stages in order: `_validate` checks the staged changes against the rules of their
tables, `_place` gives every page its place, and `_submit` hands the result to `Log.commit_member`, which
requests the record (`record.py`) on top of each version that it tries.

After a conflict, `_rebase` may try again. Others may have replaced the pages of an update without touching
its rows: an append has merged the tail of the table, a compaction has joined pages, an update has changed
another row. Then the pages that hold the rows by now are rewritten. And keys that others have committed
meanwhile are compared with those of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.resolve import show_name
from spark_pages.changes.feed import iterate_commits
from spark_pages.changes.idempotency import AppliedVersion, find_applied, latest_applied
from spark_pages.errors import (
    CommitConflictError,
    ConstraintError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    SparkPagesError,
)
from spark_pages.format.commit import EncodedTransaction
from spark_pages.format.features import check_writable
from spark_pages.log.claims import check_free
from spark_pages.log.commit.conflict import by_ids, find_overlap, without_pages
from spark_pages.log.commit.protocol_types import Duplicate, EncodedRecord, GroupMember
from spark_pages.log.conflict_error import ConflictTest, attach_conflicting_commit, is_vacuum
from spark_pages.log.reopen import conflict_if_vacuumed, retry_after_vacuum, retrying
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS, TableId
from spark_pages.model.table import NAMESPACE_NAMES, TableDefinition
from spark_pages.transaction.constraints import check_updates
from spark_pages.transaction.keys import changed_keys, check_key, written_keys
from spark_pages.transaction.placement import PlacedChanges, StagedSplice, place_splices, stays_inline
from spark_pages.transaction.rebase import KeyRecheck, UpdatedRows, surviving_pages
from spark_pages.transaction.record import build_record, snapshot_of
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.staged_tables import table_with, table_with_pages
from spark_pages.transaction.staging import (
    are_few_rows,
    rewrite_marks,
    rewrite_pending,
    rewrite_updates,
    settle,
    wait_for_flushed,
)
from spark_pages.transaction.state import TransactionState
from spark_pages.transaction.tail_merge import TailMerge, plan_tail_merge
from spark_pages.transaction.update_buffer import SortedUpdates, UpdateKey
from spark_pages.transaction.written_rows import with_written

Placed = PlacedChanges | TailMerge
"""Splices whose pages have their places, on top of any state (`on`)."""


@dataclass(frozen=True, slots=True)
class _Validated:
    """Staged changes that keep the rules of their tables.

    Attributes
    ----------
    changes
        The changes, with rewritten pages instead of updates.
    num_rewritten
        Number of splices with rewritten pages, which come first.
    tail_merge
        What is committed instead where few rows are appended.
    is_keyed
        Whether a table has a primary key.
    checked_tables, keyed_tables
        Tables of which rows were read for a check; tables whose rows were compared with new keys.
    """

    changes: StagedChanges
    num_rewritten: int
    tail_merge: TailMerge | None
    is_keyed: bool
    checked_tables: set[TableId]
    keyed_tables: set[TableId]


@dataclass(eq=False, slots=True)
class _RebaseInputs:
    """What is rebased, until it is committed, of a transaction that updates rows or adds primary keys.

    Attributes
    ----------
    updates
        By table and column.
    rewritten, marks
        The splices of these, and those of deletes.
    appends
        The other splices.
    compared
        Commits up to this version have left alone all that the transaction depends on.
    rows, keys
        The updated rows and the new keys, after the first conflict.
    replaced
        Ids of pages that others have replaced meanwhile.
    """

    updates: Mapping[UpdateKey, SortedUpdates]
    rewritten: list[StagedSplice]
    marks: list[StagedSplice]
    appends: list[StagedSplice]
    compared: int
    rows: UpdatedRows | None = None
    keys: KeyRecheck | None = None
    replaced: set[int] = field(default_factory=set)


class Committer:
    """The commit of one transaction.

    Parameters
    ----------
    state
        The transaction.
    """

    def __init__(self, state: TransactionState) -> None:
        self._state = state
        self._log = state.log
        self._manifests = count()
        self._tried = 0
        self._checked_tables: set[TableId] = set()
        self._keyed_tables: set[TableId] = set()

    def applied_version(self) -> AppliedVersion | None:
        """Return where the pair of application and number was committed, up to the read version."""
        return None if self._state.info.app_id is None else self._applied_in(self._state.base.state)

    def _applied_in(self, state: LogState) -> AppliedVersion | None:
        info = self._state.info
        return find_applied(self._log, state, info.app_id, info.app_version)

    def commit(self) -> AppliedVersion:
        """Commit all staged changes durably.

        Raises
        ------
        CommitConflictError, CommitUnknownError, RaggedTableError, ConstraintError

        Notes
        -----
        The conflict may be with the same pair of application and number, committed by another process: then
        this is no conflict, and the version of that commit is returned.
        """
        state = self._state
        try:
            with conflict_if_vacuumed(state.version):
                return self._commit_or_reopen()
        except (CommitConflictError, ConstraintError) as error:
            applied = None if state.info.app_id is None else self._applied_in(self._log.refresh().state)
            if applied is not None:
                state.ended = True
                return applied
            if isinstance(error, CommitConflictError):
                raise attach_conflicting_commit(
                    error, self._log, state.version, _conflicting(error)
                ) from error.__cause__
            raise

    def _commit_or_reopen(self) -> AppliedVersion:
        """Commit; raise SnapshotExpiredError if an object is missing because retention has passed it."""
        try:
            return self._commit()
        except ObjectNotFoundError:
            self._log.reopen(self._state.version)
            raise

    def _commit(self) -> AppliedVersion:
        state = self._state
        first, second, third = self._log.append_lock(are_few_rows(state))
        with first, second, third:
            validated = _validate(state)
            # Whatever may be refused has been: until here the transaction can continue.
            state.ended = True
            self._checked_tables, self._keyed_tables = validated.checked_tables, validated.keyed_tables
            state.staged.splices = validated.changes.splices
            state.staged.forget_temporary()
            inputs = self._rebase_inputs(validated)
            state.updates.drain()
            merge = validated.tail_merge
            if merge is None and state.is_empty and state.info.app_id is None:
                return AppliedVersion(state.version)
            placed: Placed = merge or self._place()
            encoded = None if merge else self._encode(placed)
        if inputs is None:
            return self._submit(placed, encoded)
        with self._log.key_lock if self._keyed_tables else nullcontext():
            return self._submit_or_rebase(placed, encoded, inputs)

    def _rebase_inputs(self, validated: _Validated) -> _RebaseInputs | None:
        """Return what may be rebased; None for a transaction that does more than update and append rows."""
        state, staged = self._state, self._state.staged
        splices, num_rewritten = validated.changes.splices, validated.num_rewritten
        others = splices[num_rewritten:]
        more = (
            staged.created,
            staged.ddl,
            staged.written and (state.updates or staged.deleted),
            staged.properties,
            staged.claims,
        )
        if not (state.updates or staged.deleted or validated.is_keyed) or any(more):
            return None
        if any(each.removed for each in others):
            return None
        rewritten = [each for each in splices[:num_rewritten] if each.field_id != LIVENESS]
        marks = [each for each in splices[:num_rewritten] if each.field_id == LIVENESS]
        return _RebaseInputs(state.updates.sorted(), rewritten, marks, others, state.version)

    def _place(self) -> PlacedChanges:
        """Give every page its place, and add what other processes have written."""
        state, staged = self._state, self._state.staged
        if not stays_inline(staged.splices):
            state.pin_latest()  # objects bear the read version, by which vacuum judges them
            with self._log.checking():
                placed = self._write_pages()
        else:
            placed = self._write_pages()
        for definition in staged.definitions.values():
            appended = written_keys(definition, staged.written) if key_columns(definition) else None
            if appended is not None:
                check_key(table_with(state, show_name(definition), staged, placed), appended)
                self._keyed_tables.add(definition.table_id)
        return placed

    def _write_pages(self) -> PlacedChanges:
        """Make page files and page manifests durable, where they are needed."""
        state, staged = self._state, self._state.staged
        placed = place_splices(state.store, staged.splices, state.next_page_file_of, self._next_manifest())
        if staged.written:
            placed = with_written(state.store, placed, staged.written, self._next_manifest())
        wait_for_flushed(state)
        return placed

    def _next_manifest(self) -> str:
        """Return the id of the next page manifest: a rebase lists its pages in another one."""
        return f"{self._state.version:020d}-{self._state.info.token}-{next(self._manifests)}"

    def _encode(self, placed: Placed) -> EncodedRecord | None:
        """Return the encoded record if no commit but a change of the catalog can change it, else None."""
        known, staged = self._log.known().state, self._state.staged
        depends = staged.created or staged.ddl or staged.claims or self._state.info.app_id is not None
        if depends or known.catalog_version > staged.since:
            return None
        record = self._record(placed, known)
        if record.manifests:
            return None
        return EncodedRecord(record, EncodedTransaction.of(record), staged.since)

    # submit

    def _submit(self, placed: Placed, encoded: EncodedRecord | None, compared: int = -1) -> AppliedVersion:
        """Commit; once more on the newest version where that may help.

        It does where the conflict comes from an old read version that nothing depends on, and where a vacuum
        has removed what the record needs of the version that it is built on.
        """
        try:
            return self._send(placed, encoded, compared)
        except CommitConflictError:
            if self._state.read_version.is_pinned:
                raise
        except (ObjectNotFoundError, SnapshotExpiredError):
            self._log.refresh()
        self._state.pin_latest()
        return self._send(placed, None, compared)  # its read version is a newer one now

    def _send(self, placed: Placed, encoded: EncodedRecord | None, compared: int) -> AppliedVersion:
        build = partial(self._build, placed)
        member = GroupMember(self._state.version, build, self._reads(), encoded, self._named, compared)
        try:
            committed = self._log.commit_member(member, self._tried)
        except CommitConflictError as error:
            self._tried = error.context["tries"]
            raise
        if committed.commit is not None:
            return AppliedVersion(committed.version)
        return self._applied_in(committed.state) or AppliedVersion(committed.version)

    def _build(self, placed: Placed, on: LogState) -> TransactionRecord | Duplicate:
        applied = latest_applied(on, self._state.info.app_id, self._state.info.app_version)
        return self._record(placed, on) if applied is None else Duplicate(applied)

    def _record(self, placed: Placed, on: LogState) -> TransactionRecord:
        state = self._state
        if state.staged.claims:
            named = partial(_named_in, snapshot_of(state, on).log)
            check_free(state.staged.claims, on.claims, state.runtime.now_us(), named)
            for each in state.staged.claims:
                if each.expires_at_us:
                    state.log.check_lasts(each.expires_at_us, f"a claim for {each.owner!r}")
        return build_record(state, state.staged, placed.on(on), on)

    def _reads(self, followed: frozenset[TableId] = frozenset()) -> frozenset[int]:
        """Return tables whose rows must not change before the commit, but those whose keys are followed."""
        needed = frozenset(self._checked_tables | (self._keyed_tables - followed))
        read = self._state.read_tables
        return needed if read is None else needed | self._state.staged.tables() | read

    # rebase

    def _submit_or_rebase(
        self, placed: Placed, encoded: EncodedRecord | None, inputs: _RebaseInputs
    ) -> AppliedVersion:
        """Commit; rebase after each conflict, while the rows are unchanged and there is time."""
        has_time, losses = self._log.after_losses(), count(1)
        rebase = partial(self._rebase, inputs=inputs)
        if self._keyed_tables and not inputs.updates and inputs.compared < self._log.known().state.version:
            placed, encoded = retry_after_vacuum(partial(rebase, placed)) or placed, None
        while True:
            try:
                return self._submit(placed, encoded, inputs.compared)
            except CommitConflictError:
                rebased = retry_after_vacuum(partial(rebase, placed)) if has_time(next(losses)) else None
                if rebased is None:
                    raise
            placed, encoded = rebased, None

    def _rebase(self, placed: Placed, inputs: _RebaseInputs) -> Placed | None:
        """Return the changes with updates of the pages that hold their rows by now; None if that cannot be.

        Raises
        ------
        ConstraintError
            If one of its keys has been committed meanwhile.
        UnsupportedFormatError
            If the newest version requires a feature of writers that this release does not know.

        Notes
        -----
        Read version and names of page files stay: so a vacuum that has passed that version, or a rule of
        isolation, still is a conflict. Pages that nobody has replaced are not rewritten again, and what was
        written for them stays: so each try is quicker than the one before.
        """
        state, known = self._state, self._log.known()
        newest = known if inputs.compared < known.state.version else self._log.refresh()
        check_writable(newest.state.features)  # before any page file is written for it
        if not self._is_unaffected(placed, inputs, newest.state):
            return None
        if inputs.updates or inputs.marks:
            placed = self._rebase_pages(inputs, newest)
        if inputs.keys is not None:
            for definition, rows in inputs.keys.changed():
                on = placed.on(newest.state)
                check_key(table_with(state, show_name(definition), state.staged, on, newest), rows)
            inputs.keys.restart(newest.num_rows)
        return placed

    def _rebase_pages(self, inputs: _RebaseInputs, newest: LogSnapshot) -> PlacedChanges:
        """Rewrite the pages of a newer version that hold updated or deleted rows and that others replaced."""
        state, table_of = self._state, self._state.view(newest).table_of
        lost = self._lost_rows(inputs)
        state.staged.splices = inputs.appends
        inputs.rewritten += rewrite_updates(state, inputs.updates, table_of, lost)
        inputs.marks = rewrite_marks(state, table_of)
        state.staged.splices = [*inputs.rewritten, *inputs.marks, *inputs.appends]
        return self._place()

    def _lost_rows(self, inputs: _RebaseInputs) -> dict[UpdateKey, NDArray[np.int64]]:
        """Return ranges with the updated rows whose pages others have replaced; keep the other pages."""
        kept: list[StagedSplice] = []
        rows: dict[ChainKey, list[tuple[int, int]]] = {}
        for splice in inputs.rewritten:
            surviving, lost = surviving_pages(splice, inputs.replaced)
            kept += surviving
            if lost:
                rows.setdefault((splice.table_id, splice.field_id), []).extend(lost)
        inputs.rewritten = kept
        found = {}
        for table_id, column in inputs.updates:
            bounds = rows.get((table_id, self._state.staged.definitions[table_id].field_ids[column]))
            if bounds is not None:
                found[table_id, column] = np.array(sorted(bounds), np.int64)
        return found

    def _is_unaffected(self, placed: Placed, inputs: _RebaseInputs, on: LogState) -> bool:
        """Return whether commits up to a state left the rows alone, and conflict in nothing but pages."""
        state, definitions = self._state, self._state.staged.definitions
        if on.retention is not None and state.version < on.retention.min_epoch:
            return False
        if inputs.rows is None:
            rows: dict[ChainKey, Sequence[NDArray[np.int64]]] = {
                (table_id, definitions[table_id].field_ids[column]): updates.rows
                for (table_id, column), updates in inputs.updates.items()
            }
            inputs.rows = UpdatedRows(rows, state.base.num_rows)
        if inputs.keys is None:
            keyed = [definitions[table_id] for table_id in self._keyed_tables]
            inputs.keys = KeyRecheck(keyed, state.base.num_rows)
        chains = {(splice.table_id, splice.field_id) for splice in inputs.rewritten}
        mine, reads = without_pages(self._record(placed, on)), self._reads(inputs.keys.tables)
        try:
            between = inputs.compared + 1, on.version + 1
            for commit in self._log.recent(*between) or iterate_commits(self._log, *between):
                overlap = find_overlap(mine, commit.version, commit.records, reads, self._named)
                if overlap is not None or not all(map(inputs.rows.survive, commit.records)):
                    return False
                if not inputs.keys.feed(commit):
                    return False
                for splice in chain.from_iterable(record.splices for record in commit.records):
                    if (splice.table_id, splice.field_id) in chains:
                        inputs.replaced.update(splice.removed)
                inputs.compared = commit.version
        except SnapshotExpiredError:  # a vacuum has cleaned them away
            return False
        return True

    def _named(self, table_id: int, field_id: int | None) -> str:
        """``column 'day' of table 'flights'``, for people; by its id what is not in the read version."""
        definition = self._state.staged.definitions.get(TableId(table_id))
        if definition is None:
            with suppress(SparkPagesError):  # the conflict is reported whether or not the catalog can be read
                return _named_in(self._state.base, table_id, field_id)
        return _name(definition, table_id, field_id)


@retrying
def _validate(state: TransactionState) -> _Validated:
    """Check the staged changes against the rules of their tables.

    Raises
    ------
    InvalidInputError, RaggedTableError, ConstraintError
    """
    staged = state.staged
    keyed = [each for each in staged.lasting().definitions.values() if key_columns(each)]
    checked_tables: set[TableId] = set()
    keyed_tables: set[TableId] = set()
    if state.updates:
        added = {key: staged.ddl.defaults.get(key) for key in staged.ddl.new_columns}
        table_of, memory_bytes = state.snapshot().table_of, state.at_once_bytes
        checked_tables = check_updates(
            staged.definitions, state.updates.sorted(), added, table_of, memory_bytes
        )
    is_grouped = state.log.shared  # of the members of a group, only one could merge a tail
    merge = None if is_grouped else plan_tail_merge(state)
    if merge is None:
        settle(state)
    rewritten = rewrite_pending(state)
    changes = staged.lasting().with_splices(rewritten)
    changes.check_removed_once()
    changes.check_ragged()
    merged = None if merge is None else merge.merged
    for definition in keyed:
        changed = changed_keys(definition, changes.splices if merged is None else merged.splices)
        if changed is not None:
            check_key(table_with_pages(state, show_name(definition), changes, merged), changed)
            keyed_tables.add(definition.table_id)
    return _Validated(changes, len(rewritten), merge, bool(keyed), checked_tables, keyed_tables)


def _named_in(shown: LogSnapshot, table_id: int, field_id: int | None) -> str:
    """Name a table or column of a snapshot, as `Committer._named` does."""
    known = {definition.table_id: definition for definition in shown.tables()}
    return _name(known.get(TableId(table_id)), table_id, field_id)


def _name(definition: TableDefinition | None, table_id: int, field_id: int | None) -> str:
    if definition is None:
        return by_ids(table_id, field_id)
    table = f"table {show_name(definition)!r}"
    columns = [name for name, each in definition.field_ids.items() if each == field_id]
    return f"column {columns[0]!r} of {table}" if columns else table


def _conflicting(error: CommitConflictError) -> ConflictTest:
    """Return a predicate that finds the commit behind an unattributed conflict."""
    table_id = error.context.get("table_id")
    if isinstance(error.__cause__, SnapshotExpiredError):
        return is_vacuum
    if table_id is not None:
        return lambda record: any(splice.table_id == table_id for splice in record.splices)
    return lambda record: any(intent.namespace_id == NAMESPACE_NAMES for intent in record.intents)
