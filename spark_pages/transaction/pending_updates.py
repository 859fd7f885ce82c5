"""Updates on their way to the commit: no more than a budget of what callers give waits in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.model.ids import TableId
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.spill import Spilled, SpillFile
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.update_buffer import (
    Batch,
    Updates,
    alone_if_few,
    exact_bytes_of,
    last_wins,
    memory_of,
    own,
    portions,
    spilled,
)

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 64 << 20
"""No budget is taken for smaller or larger than these; no text of a batch exceeds one array."""


class WaitingUpdates:
    """The updates of one transaction.

    Parameters
    ----------
    work
        Receives them.
    memory_bytes
        Memory that they may take; to join them takes twice as much beside it for a moment.

    Notes
    -----
    What waits is joined when it exceeds the budget. If that does not make it half as much, it goes to a file.
    What is more by itself goes there in pieces. So memory and mappings are bounded however many updates there
    are, and updates of single rows touch no file.
    """

    def __init__(self, work: StagedChanges, memory_bytes: int) -> None:
        self._work = work
        self._most_bytes = min(max(memory_bytes, _LEAST_BYTES), _MOST_BYTES)
        self._bytes = 0
        self._file = SpillFile()

    def take(
        self, definition: TableDefinition, rows: NDArray[np.int64], given: Mapping[str, Sequence[pa.Array]]
    ) -> None:
        """Rows of a table hold other values; if that fails, what was staged before is staged, and no more.

        Parameters
        ----------
        rows
            In any order, at least one.
        given
            As many values for each of some columns, in the memory of the caller.

        Raises
        ------
        StorageError
            If they exceed the budget, and there is no room for them in a file.
        """
        batches = {(definition.table_id, name): _batches(rows, arrays) for name, arrays in given.items()}
        size = sum([memory_of(each) for some in batches.values() for each in some])
        if self._bytes + size > self._most_bytes:  # of slices that was too much
            batches = {key: [alone_if_few(each) for each in some] for key, some in batches.items()}
            size = sum([exact_bytes_of(each) for some in batches.values() for each in some])
            if self._bytes + size > self._most_bytes:
                self._make_room(size)
        if size > self._most_bytes:
            self._put(definition, {key: self._spilled(some) for key, some in batches.items()})
        else:
            self._put(definition, {key: [own(each) for each in some] for key, some in batches.items()})
            self._bytes += size

    def _make_room(self, size: int) -> None:
        """So many bytes more stay in the budget, or nothing waits."""
        updates = self._work.updates.values()
        self._bytes = sum([each.gather() for each in updates])
        if 2 * (self._bytes + size) > self._most_bytes:
            for each in updates:
                each.spill(self._file)
            self._bytes = 0

    def _spilled(self, batches: Iterable[Batch]) -> list[Spilled]:
        return [spilled(last_wins(each), self._file) for each in portions(batches, self._most_bytes // 2)]

    def _put(
        self,
        definition: TableDefinition,
        parts: Mapping[tuple[TableId, str], Sequence[Batch] | Sequence[Spilled]],
    ) -> None:
        """All of these are staged, or none is."""
        updates, definitions = self._work.updates, self._work.definitions
        known = {key: (each, each.mark()) for key in parts if (each := updates.get(key)) is not None}
        before = definitions.get(definition.table_id)
        try:
            definitions[definition.table_id] = definition
            for key, some in parts.items():
                if key not in known:
                    updates[key] = Updates()
                updates[key].add(some)
        except BaseException:
            for key in parts:
                if key not in known:
                    updates.pop(key, None)
            for each, mark in known.values():
                each.rewind(mark)
            if before is None:
                definitions.pop(definition.table_id, None)
            raise

    def clear(self) -> None:
        """None of them is held any more."""
        self._file, self._bytes = SpillFile(), 0


def _batches(rows: NDArray[np.int64], arrays: Sequence[pa.Array]) -> list[Batch]:
    ends = accumulate(map(len, arrays))
    return [(rows[end - len(each) : end], each) for end, each in zip(ends, arrays, strict=True) if len(each)]
