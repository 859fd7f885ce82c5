"""How what is staged gets into the log: prepared once, then brought in on top of what is newest.

Follow a commit from `Committer.commit` over `_prepare` (pages get their places, rules are checked) and
`_submit` to `Log.commit`, which asks back, by `_build`, for the record on top of each version it tries.

Some are more patient than that. The pages of an update may be others by the time it lands, though nobody
touched its rows: an append has taken the last pages of the table along, a compaction has joined them, an
update has changed another row. Then `_anew` rewrites the pages that hold these rows by now. And keys that
have landed meanwhile are compared with those that the transaction brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.resolve import show_name
from spark_pages.changes.feed import commits_in_turn
from spark_pages.changes.idempotency import AppliedVersion, landed_in, latest_applied
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
from spark_pages.log.commit.protocol_types import Duplicate, EncodedRecord
from spark_pages.log.conflict_error import ConflictTest, is_vacuum
from spark_pages.log.log import Log
from spark_pages.log.reopen import conflict_if_vacuumed, retry_after_vacuum, retrying
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import TableId
from spark_pages.model.table import NAMESPACE_NAMES, TableDefinition
from spark_pages.transaction.keys import changed_keys, check_key, written_keys
from spark_pages.transaction.page_file_names import PageFileNames
from spark_pages.transaction.placement import PlacedChanges, StagedSplice, place_splices, stays_inline
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.rebase import ComparedKeys, UpdatedRows, surviving_pages
from spark_pages.transaction.staged import StagedChanges, TransactionInfo
from spark_pages.transaction.staged_rows import StagedRows
from spark_pages.transaction.staged_tables import StagedTables
from spark_pages.transaction.tail_merge import TailMerge
from spark_pages.transaction.update_buffer import SortedUpdates
from spark_pages.transaction.update_checks import check_updates
from spark_pages.transaction.written_rows import with_written

Prepare = Callable[[LogState], PlacedChanges]
"""Gives, on top of a state, splices and pages that have their places."""


@dataclass(eq=False, slots=True)
class _Late:
    """What is done again, until it has landed, of a transaction that updates rows or brings primary keys.

    Attributes
    ----------
    updates
        By table and column.
    rewritten
        The splices of these.
    appends
        The other splices.
    compared
        Up to this version what landed has left alone all that the transaction rests on.
    rows, keys
        The updated rows and the new keys, once somebody was first.
    gone
        Ids of pages that others have taken out meanwhile.
    """

    updates: Mapping[tuple[TableId, str], SortedUpdates]
    rewritten: list[StagedSplice]
    appends: list[StagedSplice]
    compared: int
    rows: UpdatedRows | None = None
    keys: ComparedKeys | None = None
    gone: set[int] = field(default_factory=set)


class Committer:
    """The commit of one transaction.

    Parameters
    ----------
    log, now_us
        The log, and the clock.
    heading, work, rows, tables, standing, page_files
        What the transaction says of itself, what is staged and on what, and the names of its page files.
    read
        Tables that a serializable transaction has read; None where isolation does not ask for it.
    """

    def __init__(
        self,
        log: Log,
        now_us: Callable[[], int],
        heading: TransactionInfo,
        work: StagedChanges,
        rows: StagedRows,
        tables: StagedTables,
        standing: ReadVersion,
        page_files: PageFileNames,
        read: set[int] | None,
    ) -> None:
        self._log = log
        self._now_us = now_us
        self._heading = heading
        self._work = work
        self._rows = rows
        self._tables = tables
        self._standing = standing
        self._page_files = page_files
        self._manifests = count()
        self._read = read
        self._tried = 0
        self._relied: set[TableId] = set()
        """Tables whose rows were compared with a check."""
        self._keyed: set[TableId] = set()
        """Tables whose rows were compared with new keys."""

    def landed(self) -> AppliedVersion | None:
        """Where the pair of application and number is on the version that the transaction stands on."""
        return self._landed_in(self._standing.base.state)

    def _landed_in(self, state: LogState) -> AppliedVersion | None:
        return landed_in(self._log, state, self._heading.app_id, self._heading.app_version)

    def commit(self) -> AppliedVersion:
        """All that was staged is in the log, durably.

        Raises
        ------
        CommitConflictError, CommitUnknownError, RaggedTableError, ConstraintError

        Notes
        -----
        What it met may have been itself, brought by another process: then its pair of application and number
        tells where that landed.
        """
        try:
            with conflict_if_vacuumed(self._standing.version):
                return self._commit_or_tell()
        except (CommitConflictError, ConstraintError) as error:
            landed = None if self._heading.app_id is None else self._landed_in(self._log.refresh().state)
            if landed is not None:
                self._standing.ended = True
                return landed
            if isinstance(error, CommitConflictError):
                raise self._standing.told(error, _met(error)) from error.__cause__
            raise

    def _commit_or_tell(self) -> AppliedVersion:
        """Commit; where an object is gone, tell that retention has passed the version, if it has."""
        try:
            return self._commit()
        except ObjectNotFoundError:
            self._log.reopen(self._standing.version)
            raise

    def _commit(self) -> AppliedVersion:
        first, second, third = self._log.turn(self._rows.are_few)
        with first, second, third:
            prepare, is_fixed, late = self._prepare()
            if prepare is None:
                return AppliedVersion(self._standing.version)
            ready = self._ready(prepare) if is_fixed else None
        if late is None:
            return self._submit(prepare, ready)
        with self._log.key_turn if self._keyed else nullcontext():
            return self._bring_in_or_anew(prepare, ready, late)

    def _prepare(self) -> tuple[Prepare | None, bool, _Late | None]:
        """What gives, on top of a state, the splices and their pages; and whether on any state the same.

        None where nothing is staged. Last, what may be said anew.
        """
        pending, rewritten, swap, keyed = self._checked()
        # Whatever may be refused has been: until here the transaction goes on as if nobody had asked.
        self._standing.ended = True
        self._work.splices = pending.splices
        self._rows.forget_temporary()
        late = self._late(pending.splices, rewritten, keyed)
        self._work.updates.clear()
        if swap is not None:
            return swap.on, False, late
        if self._work.empty and self._heading.app_id is None:
            return None, True, None
        return self._placed(), True, late

    @retrying
    def _checked(self) -> tuple[StagedChanges, int, TailMerge | None, bool]:
        """All that is staged, held against the rules of its tables.

        Returns
        -------
        tuple
            With the updates as pages; the number of splices that hold these, which come first; what is
            committed instead where little was appended; and whether a table has a primary key.
        """
        lasting = self._work.lasting().definitions.values()
        keyed = [each for each in lasting if key_columns(each)]
        self._relied, self._keyed = set(), set()
        if self._work.updates:
            self._relied = check_updates(
                self._work, self._tables.updates(), self._tables.snapshot().table_of, self._rows.at_once_bytes
            )
        of_many = self._log.shared  # of which only one could swap a page
        swap = None if of_many else self._rows.swap(self._now_us())
        if swap is None:
            self._rows.settle()
        rewritten = self._tables.rewrites()
        pending = self._work.lasting().with_pages(rewritten)
        pending.check_removed_once()
        pending.check_ragged()
        placed = None if swap is None else swap.swap
        for definition in keyed:
            changed = changed_keys(definition, pending.splices if placed is None else placed.splices)
            if changed is not None:
                check_key(self._tables.with_pages(show_name(definition), pending, placed), changed)
                self._keyed.add(definition.table_id)
        return pending, len(rewritten), swap, bool(keyed)

    def move_on(self) -> int:
        """The transaction stands on what is kept; see `ReadVersion.move_on`."""
        return self._tables.move_on()

    def _late(self, splices: list[StagedSplice], rewritten: int, keyed: bool) -> _Late | None:
        """What may be said anew; nothing of a transaction that does more than update and append rows.

        Parameters
        ----------
        splices, rewritten
            All that it does to pages, and how many of them, the first ones, come of updates.
        keyed
            Whether a table that it writes to has a primary key.
        """
        work, others = self._work, splices[rewritten:]
        more = (work.created, work.ddl, work.written and work.updates, work.properties, work.claims)
        if not (work.updates or keyed) or any(more) or any(splice.removed for splice in others):
            return None
        return _Late(self._tables.updates(), splices[:rewritten], others, self._standing.version)

    def _placed(self) -> Prepare:
        """Every page has its place, and what was written by others is beside it."""
        if not stays_inline(self._work.splices):
            self._standing.pin_latest()  # objects bear the version read, by which vacuum judges them
            with self._log.checking():
                prepared = self._stored()
        else:
            prepared = self._stored()
        for definition in self._work.definitions.values():
            appended = written_keys(definition, self._work.written) if key_columns(definition) else None
            if appended is not None:
                check_key(self._tables.table_with(show_name(definition), self._work, prepared), appended)
                self._keyed.add(definition.table_id)
        return lambda _: prepared

    def _stored(self) -> PlacedChanges:
        """Page files and manifests are durable."""
        prepared = place_splices(
            self._log.store, self._work.splices, self._page_files.next_for, self._next_manifest()
        )
        if self._work.written:
            prepared = with_written(self._log.store, prepared, self._work.written, self._next_manifest())
        self._rows.wait()
        return prepared

    def _next_manifest(self) -> str:
        """Id of the next page manifest: none is written twice, though what it would list is said anew."""
        return f"{self._standing.version:020d}-{self._heading.token}-{next(self._manifests)}"

    def _ready(self, prepare: Prepare) -> EncodedRecord | None:
        """What the log is told whatever others commit meanwhile, unless that is a change of the catalog."""
        state = self._log.known().state
        work = self._work
        depends = work.created or work.ddl or work.claims or self._heading.app_id is not None
        if depends or state.catalog_version > self._work.since:
            return None
        record = self._record(prepare, state)
        if record.manifests:
            return None
        return EncodedRecord(record, EncodedTransaction.of(record), self._work.since)

    def _bring_in_or_anew(self, prepare: Prepare, ready: EncodedRecord | None, late: _Late) -> AppliedVersion:
        """Commit; after each conflict anew, as long as nobody touched what it rests on and there is time."""
        has_time, losses = self._log.after_losses(), count(1)
        if self._keyed and not late.updates and late.compared < self._log.known().state.version:
            prepare, ready = retry_after_vacuum(partial(self._anew, prepare, late)) or prepare, None
        while True:
            try:
                return self._submit(prepare, ready, late.compared)
            except CommitConflictError:
                anew = (
                    retry_after_vacuum(partial(self._anew, prepare, late)) if has_time(next(losses)) else None
                )
                if anew is None:
                    raise
            prepare, ready = anew, None

    def _anew(self, prepare: Prepare, late: _Late) -> Prepare | None:
        """The same with updates done on the pages that hold their rows by now; None where it is too late.

        Raises
        ------
        ConstraintError
            If one of its keys has landed meanwhile.
        UnsupportedFormatError
            If the newest version asks its writers to know what this release does not.

        Notes
        -----
        The version read, and the names of page files, stay what they were: so a vacuum that has passed that
        version since, or a rule of isolation, is in the way as ever. Pages that nobody has taken out are not
        rewritten again, and what was written for them stays: so each try is quicker than the one before.
        """
        known = self._log.known()
        newest = known if late.compared < known.state.version else self._log.refresh()
        check_writable(newest.state.features)  # before any page file is written for it
        if not self._is_spared(prepare, late, newest.state):
            return None
        if late.updates:
            overtaken = self._overtaken(late)
            self._work.splices = late.appends
            late.rewritten += self._tables.rewrites_on(newest, late.updates, overtaken)
            self._work.splices = [*late.rewritten, *late.appends]
            prepare = self._placed()
        if late.keys is not None:
            for definition, rows in late.keys.landed():
                prepared = prepare(newest.state)
                check_key(self._tables.table_with(show_name(definition), self._work, prepared, newest), rows)
            late.keys.compared(newest.num_rows)
        return prepare

    def _overtaken(self, late: _Late) -> dict[tuple[TableId, str], NDArray[np.int64]]:
        """Ranges with the updated rows whose pages others have taken out; what was rewritten of other pages
        stays.
        """
        kept: list[StagedSplice] = []
        rows: dict[ChainKey, list[tuple[int, int]]] = {}
        for splice in late.rewritten:
            stays, overtaken = surviving_pages(splice, late.gone)
            kept += stays
            if overtaken:
                rows.setdefault((splice.table_id, splice.field_id), []).extend(overtaken)
        late.rewritten = kept
        found = {}
        for table_id, column in late.updates:
            bounds = rows.get((table_id, self._work.definitions[table_id].field_ids[column]))
            if bounds is not None:
                found[table_id, column] = np.array(sorted(bounds), np.int64)
        return found

    def _is_spared(self, prepare: Prepare, late: _Late, state: LogState) -> bool:
        """Whether what landed up to a state left the rows alone, and is in the way by nothing but pages."""
        if state.retention is not None and self._standing.version < state.retention.min_epoch:
            return False
        if late.rows is None:
            definitions = self._work.definitions
            rows: dict[ChainKey, Sequence[NDArray[np.int64]]] = {
                (table_id, definitions[table_id].field_ids[column]): updates.rows
                for (table_id, column), updates in late.updates.items()
            }
            late.rows = UpdatedRows(rows, self._standing.base.num_rows)
        if late.keys is None:
            keyed = [self._work.definitions[table_id] for table_id in self._keyed]
            late.keys = ComparedKeys(keyed, self._standing.base.num_rows)
        chains = {(splice.table_id, splice.field_id) for splice in late.rewritten}
        mine, needed = without_pages(self._record(prepare, state)), self._needed(late.keys.tables)
        try:
            landed = late.compared + 1, state.version + 1
            for commit in self._log.recent(*landed) or commits_in_turn(self._log, *landed):
                met = find_overlap(mine, commit.version, commit.records, needed, self._named)
                if met is not None or not all(map(late.rows.outlive, commit.records)):
                    return False
                if not late.keys.feed(commit):
                    return False
                for splice in chain.from_iterable(record.splices for record in commit.records):
                    if (splice.table_id, splice.field_id) in chains:
                        late.gone.update(splice.removed)
                late.compared = commit.version
        except SnapshotExpiredError:  # a vacuum has cleaned them away
            return False
        return True

    def _submit(self, prepare: Prepare, ready: EncodedRecord | None, compared: int = -1) -> AppliedVersion:
        """Commit; once more on the newest version where that may help.

        It does where a conflict may only come from standing on an old one, and where a vacuum has taken away
        what must be read of the version on top of which it is brought in.
        """
        try:
            return self._send(prepare, ready, compared)
        except CommitConflictError:
            if self._standing.is_pinned:
                raise
        except (ObjectNotFoundError, SnapshotExpiredError):
            self._log.refresh()
        self._standing.pin_latest()
        return self._send(prepare, None, compared)  # it reads a newer version now, and says so

    def _send(self, prepare: Prepare, ready: EncodedRecord | None, compared: int) -> AppliedVersion:
        build, needed = self._build(prepare), self._needed()
        try:
            committed = self._log.commit(
                self._standing.base, build, needed, ready, self._named, compared, self._tried
            )
        except CommitConflictError as error:
            self._tried = error.context["tries"]
            raise
        if committed.commit is not None:
            return AppliedVersion(committed.version)
        return self._landed_in(committed.state) or AppliedVersion(committed.version)

    def _build(self, prepare: Prepare) -> Callable[[LogState], TransactionRecord | Duplicate]:
        def build(state: LogState) -> TransactionRecord | Duplicate:
            landed = latest_applied(state, self._heading.app_id, self._heading.app_version)
            return self._record(prepare, state) if landed is None else Duplicate(landed)

        return build

    def _record(self, prepare: Prepare, state: LogState) -> TransactionRecord:
        version, show = self._standing.version, self._tables.of_state
        if self._work.claims:
            check_free(
                self._work.claims, state.claims, self._now_us(), partial(self._named_in, show(state).log)
            )
        return self._work.record(self._heading, prepare(state), version, state, show)

    def _needed(self, followed: frozenset[TableId] = frozenset()) -> frozenset[int]:
        """Tables whose rows must not change before the commit, but for those whose keys are followed."""
        needed = frozenset(self._relied | (self._keyed - followed))
        return needed if self._read is None else needed | self._work.tables() | self._read

    def _named_in(self, shown: LogSnapshot, table_id: int, field_id: int | None) -> str:
        """Name a table or column of a snapshot, as `_named` does."""
        known = {definition.table_id: definition for definition in shown.tables()}
        return _name(known.get(TableId(table_id)), table_id, field_id)

    def _named(self, table_id: int, field_id: int | None) -> str:
        """``column 'day' of table 'flights'``, for people; by its id what is not in the read version."""
        definition = self._work.definitions.get(TableId(table_id))
        if definition is None:
            with suppress(SparkPagesError):  # a conflict is told whether or not the catalog can be read
                return self._named_in(self._standing.base, table_id, field_id)
        return _name(definition, table_id, field_id)


def _name(definition: TableDefinition | None, table_id: int, field_id: int | None) -> str:
    if definition is None:
        return by_ids(table_id, field_id)
    table = f"table {show_name(definition)!r}"
    columns = [name for name, each in definition.field_ids.items() if each == field_id]
    return f"column {columns[0]!r} of {table}" if columns else table


def _met(error: CommitConflictError) -> ConflictTest:
    """What a transaction met that was told of a conflict without being told with whom."""
    table_id = error.context.get("table_id")
    if isinstance(error.__cause__, SnapshotExpiredError):
        return is_vacuum
    if table_id is not None:
        return lambda record: any(splice.table_id == table_id for splice in record.splices)
    return lambda record: any(intent.namespace_id == NAMESPACE_NAMES for intent in record.intents)
