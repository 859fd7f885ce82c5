"""Updates on their way to the commit: no more than a budget of what callers give waits in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.model.table import TableDefinition
from spark_pages.tables.staging.spill_file import Spilled, SpillFile
from spark_pages.tables.staging.updates import (
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
from spark_pages.tables.staging.workspace import Workspace

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

    def __init__(self, work: Workspace, memory_bytes: int) -> None:
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
        batches = {name: list(_batches(rows, arrays)) for name, arrays in given.items()}
        size = _sum_of(memory_of, batches)
        if self._bytes + size > self._most_bytes:  # of slices that was too much
            batches = {name: [alone_if_few(each) for each in some] for name, some in batches.items()}
            size = _sum_of(exact_bytes_of, batches)
            if self._bytes + size > self._most_bytes:
                self._make_room(size)
        keep = self._spilled if size > self._most_bytes else _owned
        self._put(definition, {name: keep(some) for name, some in batches.items()})

    def _make_room(self, size: int) -> None:
        """So many bytes more stay in the budget, or nothing waits."""
        updates = self._work.updates.values()
        for each in updates:
            each.gather()
        self._bytes = sum(each.waiting_bytes for each in updates)
        if 2 * (self._bytes + size) > self._most_bytes:
            for each in updates:
                each.spill(self._file)
            self._bytes = 0

    def _spilled(self, batches: Iterable[Batch]) -> Sequence[Batch | Spilled]:
        return [spilled(last_wins(each), self._file) for each in portions(batches, self._most_bytes // 2)]

    def _put(self, definition: TableDefinition, parts: Mapping[str, Sequence[Batch | Spilled]]) -> None:
        """All of these are staged, or none is."""
        work, table_id = self._work, definition.table_id
        before = work.definitions.get(table_id)
        keys = {(table_id, name): some for name, some in parts.items()}
        marks = {key: work.updates[key].mark() for key in keys if key in work.updates}
        try:
            work.definitions[table_id] = definition
            for key, some in keys.items():
                updates = work.updates.setdefault(key, Updates())
                waiting = updates.waiting_bytes
                updates.add(some)
                self._bytes += updates.waiting_bytes - waiting
        except BaseException:
            for key in keys:
                if key in marks:
                    work.updates[key].rewind(marks[key])
                else:
                    work.updates.pop(key, None)
            if before is None:
                work.definitions.pop(table_id, None)
            raise

    def clear(self) -> None:
        """None of them is held any more."""
        self._file, self._bytes = SpillFile(), 0


def _batches(rows: NDArray[np.int64], arrays: Iterable[pa.Array]) -> Iterator[Batch]:
    first = 0
    for values in arrays:
        if len(values):
            yield rows[first : first + len(values)], values
        first += len(values)


def _owned(batches: Iterable[Batch]) -> Sequence[Batch | Spilled]:
    return [own(each) for each in batches]


def _sum_of(size: Callable[[Batch], int], batches: Mapping[str, Sequence[Batch]]) -> int:
    return sum(size(each) for some in batches.values() for each in some)
