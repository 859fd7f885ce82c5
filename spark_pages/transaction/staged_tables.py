"""Tables and names as a transaction sees them: its read version, and staged changes on top of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_pages.catalog.references import NameReference, new_references
from spark_pages.catalog.resolve import (
    find_table,
    look_up,
    look_up_in,
    name_of_new,
    same_table,
    show_name,
    split_name,
    table_missing_error,
)
from spark_pages.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.log.reopen import retrying
from spark_pages.log.replay import Fold
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import TableName
from spark_pages.model.ids import TEMPORARY_TABLES, TableId, is_temporary
from spark_pages.model.names import fold_name
from spark_pages.model.table import (
    NAMESPACE_NAMES,
    SYSTEM_NAMESPACE,
    TEMPORARY_NAMESPACE,
    TYPE_NAMES,
    TableDefinition,
)
from spark_pages.query.directory import PageDirectory
from spark_pages.query.table import Table
from spark_pages.transaction.placement import PlacedChanges, Staged, pages_in_order, place_in_memory
from spark_pages.transaction.record import build_record
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.staging import release, rewrite_pending, settle, wait_for_flushed
from spark_pages.transaction.state import TransactionState


@retrying
def staged_table(
    state: TransactionState, name: str, on_read: Callable[[TableId], object] | None = None
) -> Table:
    """Return a table with all staged changes.

    Parameters
    ----------
    on_read
        Called with the ids of tables whose rows it shows, see `Snapshot.watched`.
    """
    return table_with_pages(state, name, _pending(state, ragged=False), on_read=on_read)


@retrying
def staged_directory(state: TransactionState, name: str) -> tuple[PageDirectory, list[Staged]]:
    """Return the pages of a table with all staged changes; its columns may differ in length.

    Returns
    -------
    directory
        Staged pages are in it as pages of the next version.
    pages
        All staged pages, of whatever table, by their ordinals in that version.
    """
    pending = _pending(state, ragged=True)
    found = table_with_pages(state, name, pending).directory
    return found, pages_in_order(pending.splices)


def committed_directory(state: TransactionState, definition: TableDefinition) -> PageDirectory:
    """Return the directory of a table in the read version, whatever the transaction has renamed since."""
    found = same_table(state.base, definition)
    if found is None:
        raise table_missing_error(definition, state.version)
    return state.snapshot().table_of(found).directory


def _pending(state: TransactionState, ragged: bool) -> StagedChanges:
    """Return the staged changes, with rewritten pages instead of updates."""
    settle(state)
    rewritten = rewrite_pending(state)
    release(state, rewritten)
    pending = state.staged.with_splices(rewritten)
    pending.check_removed_once()
    if not ragged:
        pending.check_ragged()
    return pending


def table_with_pages(
    state: TransactionState,
    name: str,
    changes: StagedChanges,
    placed: PlacedChanges | None = None,
    on_read: Callable[[TableId], object] | None = None,
) -> Table:
    """Return a table with some changes: their pages, or those that are placed already."""
    wait_for_flushed(state)
    placed = placed or place_in_memory(state.store, changes.splices)
    return table_with(state, name, changes, placed, on_read=on_read)


def table_with(
    state: TransactionState,
    name: str,
    changes: StagedChanges,
    placed: PlacedChanges,
    base: LogSnapshot | None = None,
    on_read: Callable[[TableId], object] | None = None,
) -> Table:
    """Return a table with some changes whose pages have their places.

    Parameters
    ----------
    base
        A version newer than the read version.
    """
    base = base or state.base
    record = build_record(state, changes, placed, base.state)

    def on(below: LogSnapshot) -> LogSnapshot:
        fold = Fold(below.state, state.log.load_manifest)
        fold.record(record, below.state.version + 1)
        return state.log.open(fold.state(), below)

    staged = state.view(on(base)).uncommitted(lambda version: on(state.log.reopen(version)))
    return (staged if on_read is None else staged.watched(on_read)).table(name)


PROVISIONAL = TableId(-1000)
"""Ids of new tables, types and namespaces lie below, until the commit gives them theirs."""


@dataclass(frozen=True, slots=True)
class StagedNames:
    """Look up and change what has a name, as a transaction sees it.

    Attributes
    ----------
    state
        The transaction.
    """

    state: TransactionState

    def table(self, name: TableName) -> TableDefinition | None:
        """Return what has this name."""
        found = self.state.staged.created.get(name) or self.state.staged.ddl.find(name)
        if found is None:
            found = self.state.base.table(name)
            if found is not None and self.state.staged.ddl.hides(found):
                return None
        return found

    def alike(self, name: TableName) -> list[str]:
        """Names in the same namespace that differ from this one by case at most."""
        there = [each for each in self.state.base.alike(name) if self.table((name[0], each)) is not None]
        folded = fold_name(name[1])
        staged = [
            each.name
            for each in self._staged()
            if each.namespace_id == name[0] and fold_name(each.name) == folded
        ]
        return list(dict.fromkeys([*there, *staged]))

    def known(self, text: str) -> TableDefinition | None:
        """Return the table of this name or None; without a namespace, a temporary table comes first."""
        namespace, name = split_name(text)
        temporary = None
        if not namespace and any(is_temporary(each.table_id) for each in self.state.staged.created.values()):
            temporary = look_up_in(TEMPORARY_NAMESPACE, name, self)
        return temporary or look_up(text, self)

    def find(self, text: str) -> TableDefinition:
        """Return the table of this name.

        Raises
        ------
        TableNotFoundError
        """
        try:
            found = self.known(text)
        except NamespaceNotFoundError:
            found = None
        if found is None:
            self.state.pin_latest()
            try:
                found = self.known(text)
            except NamespaceNotFoundError as missing:
                raise TableNotFoundError(missing.message, hint=missing.hint, table=text) from missing
        if found is not None:
            return found
        found = find_table(self.state.base, text)  # raises, with what is wrong
        raise TableNotFoundError(
            f"Cannot find table {text!r}: this transaction has dropped or renamed it.",
            hint="Use its new name, or call `rollback()` and begin again.",
            table=text,
        )

    def free(self, text: str) -> TableName:
        """Return the name, which no table has.

        Raises
        ------
        InvalidInputError, NamespaceNotFoundError, TableExistsError
            If it is in the namespace of the store, in one that does not exist, or taken.
        """
        name, _ = name_of_new(text, self)
        if name[0] == SYSTEM_NAMESPACE:
            raise InvalidInputError(
                f"Cannot name a table {text!r}: the namespace 'system' is the store's own.",
                hint=f"Choose another namespace, such as 'default.{text.rpartition('.')[2]}'.",
            )
        if self.table(name) is not None:
            raise TableExistsError(
                f"Cannot name a table {text!r}: there is one of that name at version {self.state.version}.",
                hint="Choose another name; `snapshot.tables()` lists those that there are.",
                table=text,
            )
        return name

    def live(self, within: int | None = None) -> list[TableDefinition]:
        """Return all definitions, or those whose names are in a namespace. Reads that part of the catalog."""
        there = [each for each in self.state.base.tables(within) if not self.state.staged.ddl.hides(each)]
        return there + [each for each in self._staged() if within is None or each.namespace_id == within]

    def _staged(self) -> list[TableDefinition]:
        """Return what the transaction has created, altered or restored."""
        staged = self.state.staged
        return [*staged.created.values(), *staged.ddl.altered.values(), *staged.ddl.restored.values()]

    def create(self, definition: TableDefinition) -> None:
        """Stage something new, and require what it refers to."""
        self._require(None, definition)
        self.state.staged.create(definition)

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """Stage another definition, and require what it refers to and the old one does not."""
        self._require(old, new)
        self.state.staged.alter(old, new)

    def undrop(self, definition: TableDefinition) -> None:
        """Stage a dropped table as it was, and require what it refers to."""
        self._require(None, definition)
        self.state.staged.ddl.restored[definition.table_id] = definition

    def _require(self, before: TableDefinition | None, after: TableDefinition) -> None:
        """Make the commit conflict with the removal of what a definition refers to.

        Raises
        ------
        InvalidInputError
            If it is not there.
        """
        for need in new_references(before, after):
            found = self._needed(need)
            if not need.matches(found):
                raise InvalidInputError(
                    f"Cannot define {show_name(after)!r}: it refers to {need.kind} {need.name!r}, which is "
                    "not there.",
                    hint=f"Create {need.kind} {need.name!r} first, or bring a table back: "
                    "`transaction.undrop_table`.",
                )
            assert found is not None
            self.state.staged.ddl.require(found)

    def _needed(self, need: NameReference) -> TableDefinition | None:
        if need.kind == "namespace":
            return self.table((NAMESPACE_NAMES, need.name))
        if need.kind == "type":
            return self.table((TYPE_NAMES, need.name))
        return look_up(need.name, self)  # not `known`, which prefers temporary tables

    def new_id(self) -> TableId:
        """Return an id for something new, until the commit gives it its own."""
        taken = [
            each.table_id for each in self.state.staged.created.values() if not is_temporary(each.table_id)
        ]
        return TableId(min([PROVISIONAL, *taken]) - 1)

    def new_temporary_id(self) -> TableId:
        """Return the id of a new temporary table."""
        taken = [each.table_id for each in self.state.staged.created.values() if is_temporary(each.table_id)]
        return TableId(max([TEMPORARY_TABLES, *taken]) + 1)

    def to_write(self, text: str) -> TableDefinition:
        """Return a table whose rows and definition users may change.

        Raises
        ------
        TableNotFoundError
        InvalidInputError
            If the table is the store's own.
        """
        definition = self.find(text)
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(
                f"Cannot change {show_name(definition)!r}: it is the store's own.",
                hint="Change tables by the methods of `transaction`, such as `create_table`.",
            )
        return definition

    def to_change(self, text: str) -> TableDefinition:
        """Return the same, after rows staged until now were put into pages."""
        self.state.pin_latest()
        settle(self.state)
        return self.to_write(text)
