"""The changes that a transaction has staged: a value that knows no storage and no log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_pages.errors import InvalidInputError, RaggedTableError
from spark_pages.log.state import TableName
from spark_pages.model.actions import Claim
from spark_pages.model.ids import TableId, format_page_id, is_temporary
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.column_types import check_read_back
from spark_pages.transaction.ingest import TableIngest
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.staged_ddl import StagedDdl
from spark_pages.transaction.written_rows import StagedWrites


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
    ddl: StagedDdl = field(default_factory=StagedDdl)
    properties: dict[str, str | None] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    since: int = -1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        changes = (self.created, self.splices, self.appends, self.written, self.ddl, self.properties)
        return not any((*changes, self.claims))

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
        kept = replace(self, definitions=dict(self.definitions), appends=dict(self.appends))
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

    def forget(self, table_id: TableId) -> None:
        """Drop all that is staged for the rows of a table."""
        self.definitions.pop(table_id, None)
        self.appends.pop(table_id, None)
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
                    f"The columns of {definition.name!r} would grow by different numbers of rows: {growth}."
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
                    f"This transaction would replace page {page} of table {name!r} twice: for an update "
                    f"of its rows, and whole.",
                    hint="Do one of them in another transaction.",
                )
            ids.update(splice.removed)
