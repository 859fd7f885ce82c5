"""The primary keys that a transaction brings, and those that landed since it compared its own.

Its keys were compared with all that were there. Others have compared theirs likewise; so only keys that have
landed since need to be looked at: what that costs follows what landed, not what the transaction brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from spark_pages.catalog.constraints import key_columns
from spark_pages.changes.row_changes import Changes
from spark_pages.model.actions import Commit, IntentKind
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import TableId
from spark_pages.model.row_ranges import RowRanges, union
from spark_pages.model.table import TableDefinition


class ComparedKeys:
    """The new keys of one transaction, followed from the version on which they were compared.

    Parameters
    ----------
    definitions
        The tables.
    rows_then
        Gives how many rows a chain had in that version.
    """

    def __init__(self, definitions: Iterable[TableDefinition], rows_then: Callable[[ChainKey], int]) -> None:
        self._definitions = {each.table_id: each for each in definitions}
        self.compared(rows_then)

    @property
    def tables(self) -> frozenset[TableId]:
        """Ids of the tables."""
        return frozenset(self._definitions)

    def compared(self, rows_then: Callable[[ChainKey], int]) -> None:
        """They were compared with all keys of a version in which chains have so many rows."""
        self._changes = {table_id: Changes(rows_then, table_id) for table_id in self._definitions}

    def feed(self, commit: Commit) -> bool:
        """Go on by a commit that landed; gives whether the tables are what they were, but for rows."""
        for record in commit.records:
            for intent in record.intents:
                if intent.table_id in self._definitions and intent.kind is not IntentKind.REQUIRE:
                    return False
        for changes in self._changes.values():
            changes.feed(commit)
        return True

    def landed(self) -> Iterator[tuple[TableDefinition, RowRanges]]:
        """The tables in which keys landed since, with their rows."""
        for definition in self._definitions.values():
            changes = self._changes[definition.table_id]
            fields = [definition.field_ids[name] for name in key_columns(definition)]
            traces = [changes.traces[key] for key in changes.traces if key[1] in fields]
            if traces:
                yield definition, union([rows for each in traces for rows in (each.updated, each.inserted)])
