"""The changes that a transaction has staged: values that know no storage and no log.

Definitions are values: a change replaces the definition (`catalog.evolution`), and the record has the outcome
for each table, not the steps. Conflicts are decided on these intents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.catalog.differences import Difference, differences, dropped, truncated, undropped
from spark_pages.catalog.evolution import columns_changed
from spark_pages.errors import InvalidInputError, RaggedTableError
from spark_pages.log.state import TableName
from spark_pages.model.actions import CatalogIntent, Claim, IntentKind
from spark_pages.model.ids import LIVENESS, TableId, format_page_id, is_temporary
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.column_types import check_read_back
from spark_pages.transaction.ingest import TableIngest
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.written_rows import StagedWrites


@dataclass(eq=False, slots=True)
class StagedDdl:
    """Staged changes of existing tables.

    Attributes
    ----------
    before
        Definitions of all tables below in the read version, by id.
    altered
        Their new definitions.
    dropped, truncated
        Tables to drop, and tables to empty.
    restored
        Dropped tables to restore, as they were.
    required
        Namespaces, types and tables that the changes depend on, by id.
    new_columns
        Rows that a new column was given when it was added, by table and field id: as many as the table had.
    defaults
        Value of such a column in rows that it is given; missing if it cannot be given any.
    """

    before: dict[TableId, TableDefinition] = field(default_factory=dict)
    altered: dict[TableId, TableDefinition] = field(default_factory=dict)
    dropped: set[TableId] = field(default_factory=set)
    truncated: set[TableId] = field(default_factory=set)
    restored: dict[TableId, TableDefinition] = field(default_factory=dict)
    required: dict[TableId, TableDefinition] = field(default_factory=dict)
    new_columns: dict[tuple[TableId, int], int] = field(default_factory=dict)
    defaults: dict[tuple[TableId, int], pa.Scalar] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.before or self.restored)

    def find(self, name: TableName) -> TableDefinition | None:
        """Return the existing table that gets this name."""
        for definition in (*self.altered.values(), *self.restored.values()):
            if (definition.namespace_id, definition.name) == name:
                return definition
        return None

    def hides(self, definition: TableDefinition) -> bool:
        """Return whether the table is dropped or altered."""
        return definition.table_id in self.dropped or definition.table_id in self.altered

    def require(self, definition: TableDefinition) -> None:
        """Make the commit conflict with a change of this, unless it is new in the transaction."""
        if definition.table_id >= 0:
            self.required[definition.table_id] = definition

    def check_not_truncated(self, definition: TableDefinition, what: str) -> None:
        """Raise InvalidInputError if this transaction has truncated the table."""
        if definition.table_id in self.truncated:
            raise InvalidInputError(
                f"Cannot {what} {definition.name!r}: this transaction truncates it.",
                hint="Append rows, or call `commit()` first.",
            )

    def keep(self, definition: TableDefinition) -> None:
        """Remember what the table was before its first change."""
        self.before.setdefault(definition.table_id, definition)

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """Replace the definition of a table."""
        self.keep(old)
        target = self.restored if old.table_id in self.restored else self.altered
        target[old.table_id] = new

    def drop(self, definition: TableDefinition) -> None:
        """Drop a table, whatever its name; a truncate of it stays staged."""
        if self.restored.pop(definition.table_id, None) is not None:
            self.before.pop(definition.table_id, None)
            return
        self.keep(definition)
        self.altered.pop(definition.table_id, None)
        self.dropped.add(definition.table_id)

    def truncate(self, definition: TableDefinition) -> None:
        """Remove all rows of a table."""
        self.keep(definition)
        self.truncated.add(definition.table_id)

    def intents(self) -> Iterator[CatalogIntent]:
        """Yield the intents of the record: truncates first, then drops, then names that are taken."""
        for table_id in sorted(self.truncated):
            old = self.before[table_id]
            yield CatalogIntent(IntentKind.TRUNCATE, table_id, old.namespace_id, old.name, old)
        for table_id in sorted(self.dropped):
            old = self.before[table_id]
            yield CatalogIntent(IntentKind.DROP, table_id, old.namespace_id, old.name)
        for table_id, new in sorted(self.altered.items()):
            was = self.before[table_id]
            old_name = (was.namespace_id, was.name)
            name = (new.namespace_id, new.name)
            yield CatalogIntent(
                IntentKind.ALTER,
                table_id,
                *name,
                new,
                old_name if old_name != name else None,
                self._columns_changed(was, new),
            )
        for table_id, definition in sorted(self.restored.items()):
            name = (definition.namespace_id, definition.name)
            yield CatalogIntent(IntentKind.UNDROP, table_id, *name, definition)
        for table_id, definition in sorted(self.required.items()):
            if table_id not in self.before and table_id not in self.restored:
                yield CatalogIntent(IntentKind.REQUIRE, table_id, definition.namespace_id, definition.name)

    def differences(self) -> Iterator[Difference]:
        """Yield the differences for the history, in the order of the intents."""
        for table_id in sorted(self.truncated):
            yield truncated(self.before[table_id])
        for table_id in sorted(self.dropped):
            yield dropped(self.before[table_id])
        for table_id, new in sorted(self.altered.items()):
            yield from differences(self.before[table_id], new)
        for _, definition in sorted(self.restored.items()):
            yield undropped(definition)

    def _columns_changed(self, was: TableDefinition, new: TableDefinition) -> tuple[int, ...] | None:
        """Return the changed columns for the intent; None also if a new column cannot be given rows."""
        changed = columns_changed(was, new)
        coming = {*new.field_ids.values()}.difference(was.field_ids.values())
        return changed if all((new.table_id, each) in self.defaults for each in coming) else None

    def ended(self) -> list[TableId]:
        """Return the tables whose rows in table 0 end."""
        return sorted(self.dropped | self.altered.keys())

    def described(self) -> list[TableDefinition]:
        """Return the definitions that table 0 gets new rows for."""
        return [definition for _, definition in sorted({**self.altered, **self.restored}.items())]


@dataclass(eq=False, slots=True)
class StagedChanges:
    """Staged changes; fields in the order in which they take effect.

    Attributes
    ----------
    created
        New tables by name; their ids are negative until the commit.
    definitions
        Tables that are written to, new ones too, by id.
    splices
        Changes of chains.
    appends
        Appended rows that are not in `splices` yet, by table.
    written
        Appends whose pages other processes have written.
    deleted
        Deleted rows by table, increasing: rows that were live in the read version.
    ddl
        Changes of existing tables.
    properties, claims
        Of the store.
    since
        The version of the log in which the tables were found first.
    """

    created: dict[TableName, TableDefinition] = field(default_factory=dict)
    definitions: dict[TableId, TableDefinition] = field(default_factory=dict)
    splices: list[StagedSplice] = field(default_factory=list)
    appends: dict[TableId, TableIngest] = field(default_factory=dict)
    written: list[StagedWrites] = field(default_factory=list)
    deleted: dict[TableId, NDArray[np.int64]] = field(default_factory=dict)
    ddl: StagedDdl = field(default_factory=StagedDdl)
    properties: dict[str, str | None] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    since: int = -1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        changes = (self.created, self.splices, self.appends, self.written, self.deleted, self.ddl)
        return not any((*changes, self.properties, self.claims))

    def clear(self) -> None:
        """Drop all staged changes; collections that were handed on stay as they are."""
        fresh = StagedChanges()
        for name in StagedChanges.__slots__:
            setattr(self, name, getattr(fresh, name))

    def with_splices(self, rewritten: Sequence[StagedSplice]) -> StagedChanges:
        """Return the same changes with some splices before the others."""
        return replace(self, splices=[*rewritten, *self.splices]) if rewritten else self

    def lasting(self) -> StagedChanges:
        """Return the same changes without temporary tables, which end with the transaction."""
        if not any(map(is_temporary, self.definitions)):
            return self
        kept = replace(
            self,
            definitions=dict(self.definitions),
            appends=dict(self.appends),
            deleted=dict(self.deleted),
        )
        kept.forget_temporary()
        return kept

    def tables(self) -> frozenset[int]:
        """Return the ids of tables of the snapshot that are written to."""
        return frozenset(table_id for table_id in self.definitions if table_id >= 0)

    def staged_rows(self, table_id: TableId) -> Mapping[int, int]:
        """Return the rows by which each chain of a table grows; others are left out."""
        rows: dict[int, int] = {}
        for splice in self.splices:
            if splice.table_id == table_id:
                grown = splice.added_entries - splice.removed_entries
                rows[splice.field_id] = rows.get(splice.field_id, 0) + grown
        return rows

    def end_of_kept_rows(self, table_id: TableId) -> int | None:
        """Return the row at which a table is shortened, at its lowest; None where no row is taken away."""
        return min(
            (
                splice.first_row + splice.added_entries
                for splice in self.splices
                if splice.table_id == table_id
                and splice.field_id != LIVENESS
                and splice.added_entries < splice.removed_entries
            ),
            default=None,
        )

    def forget(self, table_id: TableId) -> None:
        """Drop all that is staged for the rows of a table."""
        self.definitions.pop(table_id, None)
        self.appends.pop(table_id, None)
        self.deleted.pop(table_id, None)
        self.splices = [splice for splice in self.splices if splice.table_id != table_id]
        self.written = [writes for writes in self.written if writes.table_id != table_id]

    def forget_temporary(self) -> None:
        """Drop temporary tables."""
        self.created = {name: each for name, each in self.created.items() if not is_temporary(each.table_id)}
        for table_id in [table_id for table_id in self.definitions if is_temporary(table_id)]:
            self.forget(table_id)

    def create(self, definition: TableDefinition) -> None:
        """Add a new table, type or namespace.

        Raises
        ------
        InvalidInputError
            If its schema is not read as it is written.
        """
        check_read_back(definition.name, definition.schema)
        self.created[definition.namespace_id, definition.name] = definition

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """Replace the definition of something that exists, or is new in the transaction.

        Raises
        ------
        InvalidInputError
            As `create`.
        """
        check_read_back(new.name, new.schema)
        if old.table_id < 0:
            self.created = {
                (d.namespace_id, d.name): d
                for d in (new if each is old else each for each in self.created.values())
            }
        else:
            self.ddl.alter(old, new)
        if old.table_id in self.definitions:
            self.definitions[old.table_id] = new

    def drop(self, definition: TableDefinition) -> None:
        """Drop something that exists, or is new in the transaction."""
        if definition.table_id < 0:
            del self.created[definition.namespace_id, definition.name]
        else:
            self.ddl.drop(definition)

    def check_ragged(self) -> None:
        """Raise RaggedTableError if the columns of an aligned table would differ in length."""
        for table_id, definition in self.definitions.items():
            if not definition.aligned:
                continue
            staged = self.staged_rows(table_id)
            growth = {
                name: staged.get(field_id, 0) - self.ddl.new_columns.get((table_id, field_id), 0)
                for name, field_id in definition.field_ids.items()
            }
            if len(set(growth.values())) > 1:
                raise RaggedTableError(
                    f"Cannot commit to {definition.name!r}: its columns would grow by different "
                    f"numbers of rows: {growth}.",
                    hint="Register as many rows for every column, or create the table with aligned=False.",
                )

    def check_removed_once(self) -> None:
        """Raise InvalidInputError if a page would be replaced twice."""
        removed: dict[tuple[int, int], set[int]] = {}
        for splice in self.splices:
            ids = removed.setdefault((splice.table_id, splice.field_id), set())
            if not ids.isdisjoint(splice.removed):
                page = format_page_id(min(ids.intersection(splice.removed)))
                table = self.definitions.get(splice.table_id)
                name = table.name if table else splice.table_id
                raise InvalidInputError(
                    f"Cannot replace page {page} of table {name!r} twice in one transaction: for an "
                    "update of its rows, and whole.",
                    hint="Do one of them in another `store.transaction()`.",
                )
            ids.update(splice.removed)
