"""What survives of a transaction when others commit first: rewritten pages, updated rows, new keys.

An update commits if nobody touched its rows, though their pages are others by now. `surviving_pages` keeps
the pages that nobody replaced, `UpdatedRows` follows the rows, and `KeyRecheck` follows the new keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spark_pages.catalog.constraints import key_columns
from spark_pages.changes.row_changes import ChainTrace, Changes
from spark_pages.model.actions import Commit, IntentKind, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import TableId
from spark_pages.model.row_ranges import RowRanges, union
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.page_writer import StagedPage
from spark_pages.transaction.placement import StagedSplice


class KeyRecheck:
    """Follow the new keys of one transaction from the version with whose keys they were compared.

    Parameters
    ----------
    definitions
        The tables.
    rows_then
        Gives how many rows a chain had in that version.
    """

    def __init__(self, definitions: Iterable[TableDefinition], rows_then: Callable[[ChainKey], int]) -> None:
        self._definitions = {each.table_id: each for each in definitions}
        self.restart(rows_then)

    @property
    def tables(self) -> frozenset[TableId]:
        """Ids of the tables."""
        return frozenset(self._definitions)

    def restart(self, rows_then: Callable[[ChainKey], int]) -> None:
        """Start at another version, in which chains have so many rows."""
        self._changes = {table_id: Changes(rows_then, table_id) for table_id in self._definitions}

    def feed(self, commit: Commit) -> bool:
        """Follow one more commit; return whether the tables are unchanged, but for rows."""
        for record in commit.records:
            for intent in record.intents:
                if intent.table_id in self._definitions and intent.kind is not IntentKind.REQUIRE:
                    return False
        for changes in self._changes.values():
            changes.feed(commit)
        return True

    def changed(self) -> Iterator[tuple[TableDefinition, RowRanges]]:
        """Yield the tables in which keys were committed since, with their rows."""
        for definition in self._definitions.values():
            changes = self._changes[definition.table_id]
            fields = [definition.field_ids[name] for name in key_columns(definition)]
            traces = [changes.traces[key] for key in changes.traces if key[1] in fields]
            if traces:
                yield definition, union([rows for each in traces for rows in (each.updated, each.inserted)])


def surviving_pages(
    splice: StagedSplice, replaced: set[int]
) -> tuple[list[StagedSplice], list[tuple[int, int]]]:
    """Split a splice that replaces pages one by one into what survives and what must be rewritten.

    Parameters
    ----------
    replaced
        Ids of pages that others have replaced.

    Returns
    -------
    tuple
        The splice split into runs of pages that still exist; and the rows [first, end) of the other pages.
    """
    if replaced.isdisjoint(splice.removed):
        return [splice], []
    is_replaced = np.array([page in replaced for page in splice.removed])
    entries = [page.entries if isinstance(page, StagedPage) else page.entry_count for page in splice.pages]
    rows = (splice.first_row + np.cumsum([0, *entries])).tolist()
    touched = np.array(splice.touched, np.int64).reshape(-1, 2)
    kept, lost = [], []
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(is_replaced)) + 1).tolist(), len(is_replaced)]):
        first, end = rows[start], rows[stop]
        if is_replaced[start]:
            lost.append((first, end))
            continue
        there = touched[(touched[:, 1] > first) & (touched[:, 0] < end)].clip(first, end)
        kept.append(
            StagedSplice(
                splice.table_id,
                splice.field_id,
                first,
                splice.removed[start:stop],
                end - first,
                splice.pages[start:stop],
                touched=tuple(map(tuple, there.tolist())),
            )
        )
    return kept, lost


class UpdatedRows:
    """Follow rows of some chains from the version in which they were read.

    Parameters
    ----------
    rows : arrays of int64 by chain
        Row numbers, increasing in each array, which has at least one.
    rows_then
        Gives how many rows a chain had in that version.
    """

    def __init__(
        self, rows: Mapping[ChainKey, Sequence[NDArray[np.int64]]], rows_then: Callable[[ChainKey], int]
    ) -> None:
        self._rows = rows
        self._traces = {key: ChainTrace(rows_then(key)) for key in rows}
        self._tables = {key[0] for key in rows}

    def survive(self, record: TransactionRecord) -> bool:
        """Follow one more transaction; return whether rows and tables are unchanged."""
        for intent in record.intents:
            if intent.table_id in self._tables and intent.kind is not IntentKind.REQUIRE:
                return False
        return all(map(self._survive, record.splices))

    def _survive(self, splice: Splice) -> bool:
        key = splice.table_id, splice.field_id
        if key not in self._rows:
            return True
        touched = np.array(self._traces[key].splice(splice), np.int64).reshape(-1, 2)
        kept = self._traces[key].kept
        return all(rows[-1] < kept and _are_apart(rows, touched) for rows in self._rows[key])


def _are_apart(rows: NDArray[np.int64], touched: NDArray[np.int64]) -> bool:
    first, end = np.searchsorted(rows, touched).T
    return bool((first == end).all())
