"""Batches for training: whole pages in random order, rows shuffled within windows, and a state to resume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import shortened
from spark_pages.arrow.columns import number_column
from spark_pages.arrow.join import DoesNotFitError, join, take_entries
from spark_pages.boundary import guarded
from spark_pages.errors import InvalidInputError
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.model.row_ranges import RowRanges
from spark_pages.query.directory import PageDirectory
from spark_pages.query.scan import prefetch

BLOCK_BYTES = 2 << 20
"""Most bytes of a block, about, where a column has so many pages: the smallest piece that is read at once."""

WINDOW_BYTES = 32 << 20
"""Bytes of a window, about, within which rows are shuffled."""


class _Readable(Protocol):
    name: str
    directory: PageDirectory

    @property
    def version(self) -> int | None: ...
    @property
    def end_row(self) -> int: ...
    def rows_in(self, columns: Iterable[str], ranges: RowRanges) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What decides which rows are in which batch.

    Attributes
    ----------
    columns
        Names of the columns, in order.
    batch_rows
        Rows of a batch; the last one may have fewer.
    seed
        Seed of the order; None for the order of the table.
    shard, num_shards
        Which part of the blocks, of how many.
    """

    columns: tuple[str, ...]
    batch_rows: int
    seed: int | None
    shard: int
    num_shards: int


@guarded()
class Batches:
    """An iterator over batches of a table, which can be resumed.

    Obtained from `Table.batches`.
    """

    def __init__(self, table: _Readable, settings: BatchSettings, state: Any = None) -> None:
        self._table = table
        self._settings = settings
        self._window, self._row = 0, 0
        if state is not None:
            self._window, self._row = self._resumed(state)
        self._iterator: Iterator[pa.RecordBatch] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._iterator is None:
            self._iterator = self._batches()
        return next(self._iterator)

    def state(self) -> dict[str, Any]:
        """Return where the next batch begins, as values that JSON has.

        Notes
        -----
        ``table.batches(…, state=state)`` with the same arguments, at the same version, in this process or
        another, yields the batches that would have come next.
        """
        return {**self._identity(), "window": self._window, "row": self._row}

    def _identity(self) -> dict[str, Any]:
        given = self._settings
        return {
            "table": self._table.name,
            "version": self._table.version,
            "columns": list(given.columns),
            "batch_rows": given.batch_rows,
            "seed": given.seed,
            "shard": [given.shard, given.num_shards],
        }

    def _resumed(self, state: Any) -> tuple[int, int]:
        given = state if isinstance(state, Mapping) else {}
        place = [each for each in map(given.get, ("window", "row")) if type(each) is int and each >= 0]
        if len(place) != 2:
            raise InvalidInputError(
                f"Cannot resume batches from {shortened(state)}: it is not a state of batches.",
                hint="Pass as `state` what `batches.state()` returned.",
            )
        mine = self._identity()
        other = next((key for key, value in mine.items() if state.get(key) != value), None)
        if other is not None:
            raise InvalidInputError(
                f"Cannot resume batches of table {self._table.name!r}: the state is of {other} "
                f"{shortened(state.get(other))}, and the call of {shortened(mine[other])}.",
                hint="Pass the arguments of the first call, and open `store.snapshot(version)` of the state.",
            )
        return place[0], place[1]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Read windows ahead by one, and split them into batches, which may reach over their ends."""
        windows = self._windows()
        first, skipped, size = self._window, self._row, self._settings.batch_rows
        jobs = (partial(self._read, number, windows[number]) for number in range(first, len(windows)))
        rest: list[pa.Table] = []
        have = 0
        for number, rows in enumerate(prefetch(jobs, 1), first):
            rows = rows.slice(skipped if number == first else 0)  # noqa: PLW2901
            begin = skipped if number == first else 0
            rest.append(rows)
            have += rows.num_rows
            taken = begin - (have - rows.num_rows)  # rows of this window before which the first batch ends
            while have >= size:
                whole = pa.concat_tables(rest)
                rest, have = [whole.slice(size)], have - size
                taken += size
                self._window, self._row = number, taken
                yield _one_batch(whole.slice(0, size))
        if have:
            self._window, self._row = len(windows), 0
            yield _one_batch(pa.concat_tables(rest))

    def _read(self, number: int, ranges: RowRanges) -> pa.Table:
        rows = self._table.rows_in(self._settings.columns, ranges)
        if self._settings.seed is None:
            return rows
        order = np.random.default_rng([self._settings.seed, number, 1]).permutation(rows.num_rows)
        places = number_column(order, pa.int64())
        columns = [take_entries(array, places) for array in _arrays(rows)]
        return pa.table(columns, schema=rows.schema)

    def _windows(self) -> list[RowRanges]:
        """Divide the blocks of the shard into windows."""
        bounds, block_bytes = block_bounds(self._table, self._settings.columns)
        order = np.arange(len(bounds) - 1)
        if self._settings.seed is not None:
            order = np.random.default_rng([self._settings.seed, 0]).permutation(order)
        mine = order[self._settings.shard :: self._settings.num_shards]
        count = max(1, int(WINDOW_BYTES // max(1.0, block_bytes)))
        parts = (np.sort(mine[start : start + count]) for start in range(0, len(mine), count))
        return [RowRanges.joined(np.stack([bounds[part], bounds[part + 1]], axis=1)) for part in parts]


def block_bounds(table: _Readable, columns: Iterable[str]) -> tuple[NDArray[np.int64], float]:
    """Divide a table into blocks that end where pages of a column end.

    Returns
    -------
    tuple
        Rows at which blocks begin and end (int64, one more than there are blocks), and the bytes of a block,
        about.

    Notes
    -----
    The column is the one with the fewest pages whose blocks are not larger than `BLOCK_BYTES`: pages of the
    others then lie within a block, but for those at its ends. Loads the descriptors of that column.
    """
    counts = {name: table.directory.chain(name).num_pages for name in columns}
    total = sum(counts.values()) * TARGET_PAGE_BYTES
    fine = [name for name, pages in counts.items() if pages and total / pages <= BLOCK_BYTES]
    by_pages = sorted(counts, key=lambda name: counts[name])
    chosen = next((name for name in by_pages if name in fine), by_pages[-1])
    ends = table.directory.chain(chosen).prefix_entries.astype(np.int64)
    each = max(1, int(BLOCK_BYTES // max(1.0, total / max(1, counts[chosen]))))  # pages of it in a block
    ends = ends[each - 1 :: each]
    bounds = np.unique(np.concatenate([[0], ends[ends < table.end_row], [table.end_row]])).astype(np.int64)
    return bounds, total / max(1, len(bounds) - 1)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(_arrays(rows), schema=rows.schema)


def _arrays(rows: pa.Table) -> list[pa.Array]:
    try:
        return [join(column.chunks, column.type) for column in rows.columns]
    except DoesNotFitError as error:
        raise InvalidInputError(
            f"Cannot make a batch of {rows.num_rows} rows: one array cannot hold them: {error}.",
            hint="Pass a smaller `batch_rows`, or scan the large columns by `table.scan`.",
        ) from error
