"""Tables as a transaction sees them: the version that it stands on, and on top of it what is staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from spark_pages.catalog.needs import Need, new_needs
from spark_pages.catalog.resolve import find_table, namespace_id, parse_name, show_name, split_name
from spark_pages.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.log.log import Log
from spark_pages.log.reopen import retrying
from spark_pages.log.replay import Fold
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState, TableName
from spark_pages.model.ids import TEMPORARY_TABLES, TableId, is_temporary
from spark_pages.model.table import (
    NAMESPACE_NAMES,
    SYSTEM_NAMESPACE,
    TEMPORARY_NAMESPACE,
    TYPE_NAMES,
    TableDefinition,
)
from spark_pages.query.directory import PageDirectory
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.transaction.placement import PlacedChanges, StagedSplice, pages_in_order, place_in_memory
from spark_pages.transaction.provisional_ids import Staged
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.staged import StagedChanges, TransactionInfo
from spark_pages.transaction.staged_rows import StagedRows
from spark_pages.transaction.update_buffer import SortedUpdates


class StagedTables:
    """The tables of one transaction.

    Parameters
    ----------
    log, view
        Gives snapshots, and what readers see of one.
    heading, work, rows, standing
        What the transaction says of itself, what is staged, and on what.
    """

    def __init__(
        self,
        log: Log,
        view: Callable[[LogSnapshot], Snapshot],
        heading: TransactionInfo,
        work: StagedChanges,
        rows: StagedRows,
        standing: ReadVersion,
    ) -> None:
        self._log = log
        self._view = view
        self._heading = heading
        self._work = work
        self._rows = rows
        self._standing = standing

    def snapshot(self) -> Snapshot:
        """The version that the transaction stands on; what is staged is not in it."""
        return self._view(self._standing.base)

    def of_state(self, state: LogState) -> Snapshot:
        """What readers see of a state of the log."""
        return self._view(self._log.open(state))

    def move_on(self) -> int:
        """The transaction stands on what is kept; see `ReadVersion.move_on`."""
        return self._standing.move_on(is_used=not (self._work.empty and self._rows.empty))

    @retrying
    def table(self, name: str, on_read: Callable[[TableId], object] | None = None) -> Table:
        """A table with everything that is staged.

        Parameters
        ----------
        on_read
            Told the ids of tables whose rows it shows, see `Snapshot.watched`.
        """
        return self.with_pages(name, self._pending(ragged=False), on_read=on_read)

    @retrying
    def directory(self, name: str) -> tuple[PageDirectory, list[Staged]]:
        """The pages of a table with everything that is staged, whose columns may differ in length.

        Returns
        -------
        directory
            Staged pages are in it as pages of the next version.
        pages
            All pages that are staged, for whatever table, by their ordinals in that version.
        """
        pending = self._pending(ragged=True)
        found = self.with_pages(name, pending).directory
        return found, pages_in_order(pending.splices)

    def _pending(self, ragged: bool) -> StagedChanges:
        """What is staged, with the pages that updates touch in the place of the updates."""
        self._rows.settle()
        rewritten = self.rewrites()
        self._rows.let_go(rewritten)
        pending = self._work.with_pages(rewritten)
        pending.check_removed_once()
        if not ragged:
            pending.check_ragged()
        return pending

    def with_pages(
        self,
        name: str,
        pending: StagedChanges,
        placed: PlacedChanges | None = None,
        on_read: Callable[[TableId], object] | None = None,
    ) -> Table:
        """A table with what is staged in another workspace: its pages, or those that are placed already."""
        self._rows.wait()
        placed = placed or place_in_memory(self._log.store, pending.splices)
        return self.table_with(name, pending, placed, on_read=on_read)

    def table_with(
        self,
        name: str,
        work: StagedChanges,
        prepared: PlacedChanges,
        base: LogSnapshot | None = None,
        on_read: Callable[[TableId], object] | None = None,
    ) -> Table:
        """A table with what is staged in another workspace, whose pages have their places.

        Parameters
        ----------
        base
            A newer version than the one that the transaction stands on.
        """
        base = base or self._standing.base
        record = work.record(self._heading, prepared, self._standing.version, base.state, self.of_state)

        def on(below: LogSnapshot) -> LogSnapshot:
            fold = Fold(below.state, self._log.load_manifest)
            fold.record(record, below.state.version + 1)
            return self._log.open(fold.state(), below)

        staged = self._view(on(base)).uncommitted(lambda version: on(self._log.reopen(version)))
        return (staged if on_read is None else staged.watched(on_read)).table(name)

    def updates(self) -> dict[tuple[TableId, str], SortedUpdates]:
        """What is updated, by table and column."""
        return {key: each.sorted() for key, each in self._work.updates.items()}

    def rewrites(self) -> list[StagedSplice]:
        """Pages that updates touch, rewritten; see `StagedRows.rewrite`."""
        updates = self._work.updates
        return self._rows.rewrite(self.updates(), self.snapshot().table_of) if updates else []

    def rewrites_on(
        self,
        base: LogSnapshot,
        updates: Mapping[tuple[TableId, str], SortedUpdates],
        within: Mapping[tuple[TableId, str], NDArray[np.int64]],
    ) -> list[StagedSplice]:
        """The same of a newer version: the pages that hold some ranges of these rows."""
        return self._rows.rewrite(updates, self._view(base).table_of, within)


PROVISIONAL = TableId(-1000)
"""Ids of what a transaction makes lie below, until the commit gives them theirs."""


class StagedNames:
    """The names of one transaction.

    Parameters
    ----------
    work
        What is staged.
    standing
        The version that the transaction stands on.
    """

    def __init__(self, work: StagedChanges, standing: ReadVersion) -> None:
        self._work = work
        self._standing = standing

    def table(self, name: TableName) -> TableDefinition | None:
        """What has this name as the transaction sees it."""
        found = self._work.created.get(name) or self._work.ddl.find(name)
        if found is None:
            found = self._standing.base.table(name)
            if found is not None and self._work.ddl.hides(found):
                return None
        return found

    def known(self, text: str) -> TableDefinition | None:
        """The table of this name; where no namespace is said, a temporary one comes first."""
        namespace, name = split_name(text)
        temporary = None if namespace else self.table((TEMPORARY_NAMESPACE, name))
        return temporary or self.table((namespace_id(namespace or "default", self), name))

    def find(self, text: str) -> TableDefinition:
        """The table that has this name.

        Raises
        ------
        TableNotFoundError
        """
        try:
            found = self.known(text)
        except NamespaceNotFoundError:
            found = None
        if found is None:
            self._standing.pin_latest()
            try:
                found = self.known(text)
            except NamespaceNotFoundError as missing:
                raise TableNotFoundError(missing.message, hint=missing.hint, table=text) from missing
        if found is not None:
            return found
        found = find_table(self._standing.base, text)  # which tells what is wrong
        raise TableNotFoundError(
            f"There is no table {text!r} any more: this transaction has dropped or renamed it.", table=text
        )

    def free(self, text: str) -> TableName:
        """The name, which no table has.

        Raises
        ------
        InvalidInputError, NamespaceNotFoundError, TableExistsError
            If it lies in the store's own namespace, in none that there is, or is taken.
        """
        name = parse_name(text, self)
        if name[0] == SYSTEM_NAMESPACE:
            raise InvalidInputError(
                f"Cannot name a table {text!r}: the namespace 'system' is the store's own."
            )
        if self.table(name) is not None:
            raise TableExistsError(
                f"There is a table {text!r} at version {self._standing.version} already.", table=text
            )
        return name

    def namespace(self, definition: TableDefinition) -> TableDefinition | None:
        """What tells of the namespace of a table, where users made that."""
        found = self.table((NAMESPACE_NAMES, definition.namespace))
        return found if found is not None and found.table_id == definition.namespace_id else None

    def live(self, within: int | None = None) -> list[TableDefinition]:
        """All that there is, or what has its name in a namespace. Reads that part of the catalog."""
        there = [each for each in self._standing.base.tables(within) if not self._work.ddl.hides(each)]
        staged = [
            *self._work.created.values(),
            *self._work.ddl.altered.values(),
            *self._work.ddl.restored.values(),
        ]
        return there + [each for each in staged if within is None or each.namespace_id == within]

    def create(self, definition: TableDefinition) -> None:
        """Stage something new, and require what it refers to."""
        self._require(None, definition)
        self._work.create(definition)

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """Stage another definition, and require what it refers to and the old one does not."""
        self._require(old, new)
        self._work.alter(old, new)

    def undrop(self, definition: TableDefinition) -> None:
        """Stage a dropped table as it was, and require what it refers to."""
        self._require(None, definition)
        self._work.ddl.restored[definition.table_id] = definition

    def _require(self, before: TableDefinition | None, after: TableDefinition) -> None:
        """Make the commit conflict with the removal of what a definition refers to.

        Raises
        ------
        InvalidInputError
            If it is not there.
        """
        for need in new_needs(before, after):
            found = self._needed(need)
            if not need.is_met_by(found):
                raise InvalidInputError(
                    f"Cannot define {show_name(after)!r}: it refers to {need.kind} {need.name!r}, which is "
                    "not there.",
                    hint="Create it first, or bring it back.",
                )
            assert found is not None
            self._work.ddl.require(found)

    def _needed(self, need: Need) -> TableDefinition | None:
        if need.kind == "namespace":
            return self.table((NAMESPACE_NAMES, need.name))
        if need.kind == "type":
            return self.table((TYPE_NAMES, need.name))
        namespace, name = split_name(need.name)  # not `known`, which prefers temporary tables
        return self.table((namespace_id(namespace or "default", self), name))

    def new_id(self) -> TableId:
        """An id for what is new, until the commit gives it its own."""
        taken = [each.table_id for each in self._work.created.values() if not is_temporary(each.table_id)]
        return TableId(min([PROVISIONAL, *taken]) - 1)

    def new_temporary_id(self) -> TableId:
        """The id of a new temporary table."""
        taken = [each.table_id for each in self._work.created.values() if is_temporary(each.table_id)]
        return TableId(max([TEMPORARY_TABLES, *taken]) + 1)

    def refuse_system(self, definition: TableDefinition) -> None:
        """Refuse to change what is the store's own.

        Raises
        ------
        InvalidInputError
        """
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(f"Cannot change {show_name(definition)!r}: it is the store's own.")
