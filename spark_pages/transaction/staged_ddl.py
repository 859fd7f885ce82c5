"""Tables dropped, renamed, emptied and altered by one transaction, until it commits.

Definitions are values: a change replaces the definition that was there (`catalog.evolution`), and the log is
told of what became of each table at the end, not of the steps. Conflicts are decided on these intents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from spark_pages.catalog.alterations import columns_changed
from spark_pages.catalog.differences import Difference, differences, dropped, truncated, undropped
from spark_pages.errors import InvalidInputError
from spark_pages.log.state import TableName
from spark_pages.model.actions import CatalogIntent, IntentKind
from spark_pages.model.ids import TableId
from spark_pages.model.table import TableDefinition


@dataclass(eq=False, slots=True)
class StagedDdl:
    """What becomes of tables that are there.

    Attributes
    ----------
    before
        Definitions that the tables had when the transaction found them, by id, of all below.
    altered
        Definitions that they get.
    dropped, truncated
        Tables that go, and tables of which all rows go.
    restored
        Dropped tables that come back, as they were.
    required
        Namespaces, types and tables on which it relies, by id.
    new_columns
        Rows that columns had to be given when they came, by table and field id: as many as the table had.
    defaults
        What such a column holds in rows that it is given; missing where it can be given none.
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
        """The table that gets this name, if one that was there does."""
        for definition in (*self.altered.values(), *self.restored.values()):
            if (definition.namespace_id, definition.name) == name:
                return definition
        return None

    def hides(self, definition: TableDefinition) -> bool:
        """Whether the table no longer is what it was when the transaction found it."""
        return definition.table_id in self.dropped or definition.table_id in self.altered

    def require(self, definition: TableDefinition) -> None:
        """The commit conflicts with a change of this; of what is new in the transaction nobody else knows."""
        if definition.table_id >= 0:
            self.required[definition.table_id] = definition

    def check_not_truncated(self, definition: TableDefinition, what: str) -> None:
        """Refuse to do something to the rows of a table that this transaction has truncated.

        Raises
        ------
        InvalidInputError
        """
        if definition.table_id in self.truncated:
            raise InvalidInputError(
                f"Cannot {what} {definition.name!r} in the transaction that truncates it.",
                hint="Append rows, or commit first.",
            )

    def keep(self, definition: TableDefinition) -> None:
        """Remember what the table was before its first change."""
        self.before.setdefault(definition.table_id, definition)

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """The table has another definition from now on."""
        self.keep(old)
        target = self.restored if old.table_id in self.restored else self.altered
        target[old.table_id] = new

    def drop(self, definition: TableDefinition) -> None:
        """The table goes, under whatever name; rows that were to go do so all the same."""
        if self.restored.pop(definition.table_id, None) is not None:
            self.before.pop(definition.table_id, None)
            return
        self.keep(definition)
        self.altered.pop(definition.table_id, None)
        self.dropped.add(definition.table_id)

    def truncate(self, definition: TableDefinition) -> None:
        """All rows of the table go."""
        self.keep(definition)
        self.truncated.add(definition.table_id)

    def intents(self) -> Iterator[CatalogIntent]:
        """What the log is told: rows go first, then names become free, then they are given."""
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
        """What the history is told, in the order of the intents."""
        for table_id in sorted(self.truncated):
            yield truncated(self.before[table_id])
        for table_id in sorted(self.dropped):
            yield dropped(self.before[table_id])
        for table_id, new in sorted(self.altered.items()):
            yield from differences(self.before[table_id], new)
        for _, definition in sorted(self.restored.items()):
            yield undropped(definition)

    def _columns_changed(self, was: TableDefinition, new: TableDefinition) -> tuple[int, ...] | None:
        """What the log is told of columns; None also where one comes that cannot be given more rows."""
        changed = columns_changed(was, new)
        coming = {*new.field_ids.values()}.difference(was.field_ids.values())
        return changed if all((new.table_id, each) in self.defaults for each in coming) else None

    def ended(self) -> list[TableId]:
        """Tables whose rows in table 0 end."""
        return sorted(self.dropped | self.altered.keys())

    def described(self) -> list[TableDefinition]:
        """Definitions that table 0 is told anew."""
        return [definition for _, definition in sorted({**self.altered, **self.restored}.items())]
