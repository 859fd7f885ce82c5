"""The rows that a transaction updates, and whether those that landed first have left them alone. Pure.

A row is known by its number, and what commits do to it by the rows that their splices touch; see
`spark_pages.changes.row_changes`. Which pages hold it does not matter here: appends and page compaction
move rows to other pages and touch none of those that were there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spark_pages.changes.row_changes import ChainTrace
from spark_pages.model.actions import IntentKind, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey


class UpdatedRows:
    """Rows of some chains, followed from the version in which they were read.

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

    def outlive(self, record: TransactionRecord) -> bool:
        """Go on by a transaction that landed; gives whether rows and tables are what they were."""
        for intent in record.intents:
            if intent.table_id in self._tables and intent.kind is not IntentKind.REQUIRE:
                return False
        return all(map(self._outlive, record.splices))

    def _outlive(self, splice: Splice) -> bool:
        key = splice.table_id, splice.field_id
        if key not in self._rows:
            return True
        touched = np.array(self._traces[key].splice(splice), np.int64).reshape(-1, 2)
        kept = self._traces[key].kept
        return all(rows[-1] < kept and _are_apart(rows, touched) for rows in self._rows[key])


def _are_apart(rows: NDArray[np.int64], touched: NDArray[np.int64]) -> bool:
    first, end = np.searchsorted(rows, touched).T
    return bool((first == end).all())
