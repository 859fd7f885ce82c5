"""Updates of single rows: buffered by table and column in bounded memory, the oldest ones in a file.

`UpdateBuffer.add` takes what a caller gives, `UpdateBuffer.sorted` gives it back in the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary, number_column, numbers_of
from spark_pages.arrow.compact import referenced_bytes, retains_extra_memory
from spark_pages.arrow.join import DoesNotFitError, copied, join, take_entries, with_wide_dictionaries
from spark_pages.errors import InvalidInputError
from spark_pages.format.pages.page_codec import compacted_for_ipc
from spark_pages.model.ids import TableId
from spark_pages.transaction.spill import Spilled, SpillFile

_ARRAY_BYTES = 512
"""What an array takes besides its bytes, about; an update of one row is two of them."""

_ROWS_AT_ONCE = 1 << 16

Batch = tuple[NDArray[np.int64], pa.Array]
"""Rows, and as many values."""


class Updates:
    """Updates of one column, in the order given: later ones win.

    Attributes
    ----------
    count
        How many were added.

    Notes
    -----
    A batch in a file is older than all that wait.
    """

    __slots__ = ("_kind", "_sorted", "_spilled", "_waiting", "count")

    def __init__(self) -> None:
        self._spilled: list[Spilled] = []
        self._waiting: list[Batch] = []
        self._kind: pa.DataType | None = None
        self._sorted: SortedUpdates | None = None
        self.count = 0

    def add(self, batches: Sequence[Batch] | Sequence[Spilled]) -> None:
        """Add updates: waiting ones, or spilled ones if none waits."""
        for each in batches:
            if isinstance(each, Spilled):
                self._spilled.append(each)
            else:
                self._waiting.append(each)
        self.count += len(batches)
        self._sorted = None

    def mark(self) -> tuple[int, int, int]:
        """Return a mark to `rewind` to, valid until updates are joined or spilled."""
        return len(self._spilled), len(self._waiting), self.count

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Discard what was added since the mark."""
        spilled, waiting, self.count = mark
        del self._spilled[spilled:], self._waiting[waiting:]
        self._sorted = None

    def gather(self) -> int:
        """Those that wait are one batch, with the last value of each row; gives the bytes that it takes."""
        if not self._waiting:
            return 0
        self._waiting = [last_wins(self._waiting)]
        return memory_of(self._waiting[0])

    def spill(self, file: SpillFile) -> None:
        """None waits any more.

        Raises
        ------
        StorageError
            If the file takes no more: then they wait as before.
        """
        if self._waiting:
            self._spilled.append(spilled(last_wins(self._waiting), file))
            self._waiting, self._sorted = [], None

    def widen(self, kind: pa.DataType) -> None:
        """Widen the type of the values."""
        self._waiting = [(rows, values.cast(kind)) for rows, values in self._waiting]
        self._kind, self._sorted = kind, None

    def sorted(self) -> SortedUpdates:
        """All of them, to be read by rows."""
        if self._sorted is None:
            self.gather()
            opened = [each.open() for each in self._spilled]
            batches = [(numbers_of(each.column(0)), each.column(1)) for each in opened]
            self._sorted = SortedUpdates([*batches, *self._waiting], self._kind)
        return self._sorted


@dataclass(frozen=True, eq=False, slots=True)
class SortedUpdates:
    """Updates of one column in batches: rows increase in each of them, and later batches win.

    Attributes
    ----------
    batches
        At least one, none of them empty.
    kind
        The type that the column has got since; None where it is that of the values.
    """

    batches: Sequence[Batch]
    kind: pa.DataType | None = None

    @classmethod
    def of(cls, rows: NDArray[np.int64], values: pa.Array) -> SortedUpdates:
        """Create sorted updates of rows in any order."""
        return cls([last_wins([(rows, values)])])

    @property
    def rows(self) -> list[NDArray[np.int64]]:
        """The rows of each batch, increasing."""
        return [rows for rows, _ in self.batches]

    def between(self, bounds: NDArray[np.int64]) -> Batch:
        """Those of some rows: the rows, increasing, and the last value given for each.

        Parameters
        ----------
        bounds : int64, shape (n_ranges, 2)
            First row and end row of ranges that do not overlap, in order.
        """
        found: list[Batch] = []
        for numbers, given in self.batches:
            first, end = np.searchsorted(numbers, bounds).T
            if (first[1:] == end[:-1]).all():
                low, high = int(first[0]), int(end[-1])
                rows, values = numbers[low:high], given.slice(low, high - low)
            else:
                counts = end - first
                places = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
                rows, values = numbers[places], take_entries(given, number_column(places, pa.int64()))
            if len(rows) or (not found and numbers is self.batches[-1][0]):
                found.append((rows, _alone(values if self.kind is None else values.cast(self.kind))))
        return last_wins(found)

    def size_between(self, bounds: NDArray[np.int64]) -> tuple[int, int]:
        """How many entries `between` looks at, and how many bytes they have, about."""
        count, size = 0, 0
        for rows, values in self.batches:
            first, end = np.searchsorted(rows, bounds).T
            inside, low, high = int((end - first).sum()), int(first[0]), int(end[-1])
            if inside:
                count += inside
                size += bytes_of(values, low, high) * inside // (high - low) + 8 * inside
        return count, size


def stretches(updates: Sequence[SortedUpdates], most_bytes: int) -> Iterator[NDArray[np.int64]]:
    """Iterate over row ranges, in order, that cover all updates.

    Each holds at most so many bytes of updates, or one row; see `SortedUpdates.between`.
    """
    numbers = [rows for each in updates for rows in each.rows]
    todo = [(min(int(rows[0]) for rows in numbers), max(int(rows[-1]) for rows in numbers) + 1)]
    while todo:
        first, end = todo.pop()
        bounds = np.array([[first, end]])
        counts, sizes = zip(*(each.size_between(bounds) for each in updates), strict=True)
        if end - first > 1 and (sum(sizes) > most_bytes or max(counts) > _ROWS_AT_ONCE):
            middle = (first + end) // 2
            todo += [(middle, end), (first, middle)]
        elif any(counts):
            yield bounds


def last_wins(batches: Sequence[Batch]) -> Batch:
    """Rows, increasing, and the last value given for each; dictionaries as `widened` makes them.

    Raises
    ------
    InvalidInputError
        If one array cannot hold the values.
    """
    rows = np.concatenate([rows for rows, _ in batches]) if len(batches) > 1 else batches[0][0]
    given = [with_wide_dictionaries(values) for _, values in batches]
    try:
        values = join(given, given[0].type)
        if (rows[1:] > rows[:-1]).all():
            return rows, values
        unique, last = np.unique(rows[::-1], return_index=True)
        return unique, take_entries(values, number_column(len(rows) - 1 - last, pa.int64()))
    except DoesNotFitError as error:
        raise InvalidInputError(
            f"Cannot update {len(rows)} rows at once: their values do not fit one array of type "
            f"{given[0].type}: {error}.",
            hint="Update fewer rows in one `store.transaction()`.",
        ) from error


def own(batch: Batch) -> Batch:
    """Copy a batch to own memory, without unused dictionary values."""
    rows, values = batch
    return rows.copy(), copied(_alone(values))


def alone_if_few(batch: Batch) -> Batch:
    """Drop unused dictionary values, if the batch is short."""
    rows, values = batch
    return (rows, _alone(values)) if len(rows) <= _ROWS_AT_ONCE else batch


def spilled(batch: Batch, file: SpillFile) -> Spilled:
    """Write a batch with increasing rows to a file."""
    rows, values = batch
    columns = [number_column(rows, pa.int64()), compacted_for_ipc(values)]
    return file.put(pa.record_batch(columns, ["row", "value"]))


def memory_of(batch: Batch) -> int:
    """Bytes that rows and values take, of a slice those of the whole array; found out quickly."""
    rows, values = batch
    return int(8 * len(rows) + values.get_total_buffer_size() + 2 * _ARRAY_BYTES)


def exact_bytes_of(batch: Batch) -> int:
    """Bytes that rows and values take in memory of their own."""
    rows, values = batch
    return 8 * len(rows) + bytes_of(values, 0, len(values)) + 2 * _ARRAY_BYTES


def bytes_of(values: pa.Array, start: int, stop: int) -> int:
    """Bytes of the entries [start, stop); where entries share what they show, their part of the whole."""
    if _shares(values.type):
        return int(referenced_bytes(values) * (stop - start) // max(1, len(values)))
    return referenced_bytes(values.slice(start, stop - start))


def portions(batches: Iterable[Batch], most_bytes: int) -> Iterator[list[Batch]]:
    """Group batches, in order, into lists of at most so many bytes, or one row."""
    portion: list[Batch] = []
    held = 0
    for rows, values in batches:
        todo = [(0, len(rows))]
        while todo:
            start, stop = todo.pop()
            size = 8 * (stop - start) + bytes_of(values, start, stop) + 2 * _ARRAY_BYTES
            if stop - start > 1 and size > most_bytes:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
                continue
            if portion and held + size > most_bytes:
                yield portion
                portion, held = [], 0
            portion.append((rows[start:stop], values.slice(start, stop - start)))
            held += size
    if portion:
        yield portion


def _shares(kind: pa.DataType) -> bool:
    """Whether a slice of an array may hold on to, and be joined with, more than it shows."""
    return has_dictionary(kind) or retains_extra_memory(kind)


def _alone(values: pa.Array) -> pa.Array:
    return compacted_for_ipc(values) if _shares(values.type) else values


UpdateKey = tuple[TableId, str]
"""A table and the name of a column."""

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 64 << 20
"""Limits of the budget; up to the upper one, no text of a batch exceeds one array."""


class UpdateBuffer:
    """The row updates of one transaction, by table and column.

    Parameters
    ----------
    memory_bytes
        Memory that waiting updates may take; to join them takes twice as much for a moment.

    Notes
    -----
    Waiting updates are joined when they exceed the budget, and spilled to a file if that does not halve them.
    An update that exceeds the budget by itself goes to the file in pieces. So memory and mappings are bounded
    however many updates there are, and updates of single rows touch no file.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._columns: dict[UpdateKey, Updates] = {}
        self._most_bytes = min(max(memory_bytes, _LEAST_BYTES), _MOST_BYTES)
        self._bytes = 0
        self._file: SpillFile | None = None

    def __bool__(self) -> bool:
        return bool(self._columns)

    @property
    def count(self) -> int:
        """Number of batches that were added."""
        return sum([each.count for each in self._columns.values()])

    def add(
        self, table_id: TableId, rows: NDArray[np.int64], given: Mapping[str, Sequence[pa.Array]]
    ) -> None:
        """Add updates of some rows of a table; if that fails, none of them is added.

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
        batches = {(table_id, name): _batches(rows, arrays) for name, arrays in given.items()}
        size = sum([memory_of(each) for some in batches.values() for each in some])
        if self._bytes + size > self._most_bytes:  # of slices that was too much
            batches = {key: [alone_if_few(each) for each in some] for key, some in batches.items()}
            size = sum([exact_bytes_of(each) for some in batches.values() for each in some])
            if self._bytes + size > self._most_bytes:
                self._make_room(size)
        if size > self._most_bytes:
            self._put({key: self._spilled(some) for key, some in batches.items()})
        else:
            self._put({key: [own(each) for each in some] for key, some in batches.items()})
            self._bytes += size

    def _make_room(self, size: int) -> None:
        """Make so many bytes more fit the budget, or spill all that waits."""
        updates = self._columns.values()
        self._bytes = sum([each.gather() for each in updates])
        if 2 * (self._bytes + size) > self._most_bytes:
            for each in updates:
                each.spill(self._spill_file())
            self._bytes = 0

    def _spilled(self, batches: Iterable[Batch]) -> list[Spilled]:
        file = self._spill_file()
        return [spilled(last_wins(each), file) for each in portions(batches, self._most_bytes // 2)]

    def _spill_file(self) -> SpillFile:
        if self._file is None:
            self._file = SpillFile()
        return self._file

    def _put(self, parts: Mapping[UpdateKey, Sequence[Batch] | Sequence[Spilled]]) -> None:
        """Add all of these, or none."""
        columns = self._columns
        known = {key: (each, each.mark()) for key in parts if (each := columns.get(key)) is not None}
        try:
            for key, some in parts.items():
                if key not in known:
                    columns[key] = Updates()
                columns[key].add(some)
        except BaseException:
            for key in parts:
                if key not in known:
                    columns.pop(key, None)
            for each, mark in known.values():
                each.rewind(mark)
            raise

    def sorted(self) -> dict[UpdateKey, SortedUpdates]:
        """All updates, sorted by rows."""
        return {key: each.sorted() for key, each in self._columns.items()}

    def forget_table(self, table_id: TableId) -> None:
        """Drop the updates of a table."""
        for key in [key for key in self._columns if key[0] == table_id]:
            del self._columns[key]

    def forget_column(self, key: UpdateKey) -> None:
        """Drop the updates of a column."""
        self._columns.pop(key, None)

    def rename_column(self, key: UpdateKey, name: str) -> None:
        """Give a column another name."""
        updates = self._columns.pop(key, None)
        if updates is not None:
            self._columns[key[0], name] = updates

    def widen_column(self, key: UpdateKey, kind: pa.DataType) -> None:
        """Give a column a wider type."""
        if key in self._columns:
            self._columns[key].widen(kind)

    def drain(self) -> None:
        """Drop all updates, which have become pages; sorted ones stay readable."""
        self._columns = {}

    def clear(self) -> None:
        """Drop all updates and the file."""
        self._columns, self._file, self._bytes = {}, None, 0


def _batches(rows: NDArray[np.int64], arrays: Sequence[pa.Array]) -> list[Batch]:
    ends = accumulate(map(len, arrays))
    return [(rows[end - len(each) : end], each) for end, each in zip(ends, arrays, strict=True) if len(each)]
