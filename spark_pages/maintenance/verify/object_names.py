"""Names of tables and columns for messages: whatever definitions have been seen so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_pages.arrow.stored_types import unavailable
from spark_pages.catalog.resolve import show_name
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS
from spark_pages.model.table import TableDefinition

_SHOWN = 6
_LIVENESS_FIELD = pa.field("the liveness chain", pa.bool_())


class TableNames:
    """The newest definition seen of every table, dropped ones too."""

    def __init__(self) -> None:
        self._tables: dict[int, TableDefinition] = {}
        self._marked: set[int] = set()

    def add_definitions(self, definitions: Iterable[TableDefinition]) -> None:
        """Add definitions to those known."""
        for definition in definitions:
            self._tables[definition.table_id] = definition

    def mark(self, chain: ChainKey) -> None:
        """Remember that a table has dead rows, if the chain is a liveness chain.

        Values of dead rows may be null in columns that are not nullable.
        """
        if chain[1] == LIVENESS:
            self._marked.add(chain[0])

    def table(self, table_id: int) -> TableDefinition | None:
        """Return the definition of a table."""
        return self._tables.get(table_id)

    def field(self, key: ChainKey) -> pa.Field | None:
        """Return the column of a chain, if its table is known."""
        definition = self._tables.get(key[0])
        if definition is None:
            return None
        if key[1] == LIVENESS:
            return _LIVENESS_FIELD
        names = [name for name, field_id in definition.field_ids.items() if field_id == key[1]]
        if not names:
            return None
        field = definition.schema.field(names[0])
        return field.with_nullable(True) if key[0] in self._marked else field

    def unavailable(self, key: ChainKey) -> bool:
        """Whether the type of the column of a chain cannot be constructed."""
        column = self.field(key)
        return column is not None and unavailable(column) is not None

    def all_unavailable(self) -> Iterator[tuple[str, str]]:
        """Columns whose types cannot be constructed, as ``table.column``, and why."""
        for definition in self._tables.values():
            for name, why in definition.unavailable.items():
                yield f"{show_name(definition)}.{name}", why

    def show(self, key: ChainKey) -> str:
        """``table.column``, or the ids where the table is not known."""
        column = self.field(key)
        if column is None:
            return f"column {key[1]} of table {key[0]}"
        return f"{show_name(self._tables[key[0]])}.{column.name}"

    def show_span(self, first: ChainKey, last: ChainKey) -> str:
        """Name the columns from one chain to another."""
        known = sorted(
            (table_id, field_id)
            for table_id, definition in self._tables.items()
            if first[0] <= table_id <= last[0]
            for _, field_id in definition.chains
        )
        inside: list[ChainKey] = [key for key in known if first <= key <= last]
        inside = inside or [first, last]
        shown = [self.show(key) for key in inside[:_SHOWN]]
        more = len(inside) - len(shown)
        return ", ".join(shown) + (f" and {more} more columns" if more else "")
