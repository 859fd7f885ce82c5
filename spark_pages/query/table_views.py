"""A table in the forms that other libraries take: datasets, data frames, lazy frames, batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa

from spark_pages.arguments import as_flag, as_int, as_names, shortened
from spark_pages.boundary import guarded, public_names
from spark_pages.catalog.resolve import find_columns
from spark_pages.errors import InvalidInputError, MissingDependencyError, RowOutOfRangeError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from spark_pages.query.batches import Batches
    from spark_pages.query.dataset import TableDataset


@guarded()
class TableViews:
    """Methods of a table that hand it to other libraries."""

    schema: Any
    num_rows: Any
    read: Any
    take: Any
    rows_at: Any
    scan: Any

    def __dir__(self) -> list[str]:
        return public_names(self, _INTERNAL)

    def dataset(self) -> TableDataset:
        """Return the table as a dataset for pyarrow, DuckDB and Polars.

        Returns
        -------
        TableDataset
            A `pyarrow.dataset.Dataset`. DuckDB reads it by its variable name, Polars by
            ``polars.scan_pyarrow_dataset``.

        Notes
        -----
        Reads nothing. Projections, filters and limits reach the pages: see `TableDataset`.
        """
        from spark_pages.query.dataset import TableDataset  # noqa: PLC0415 - pyarrow.dataset takes 40 ms

        table: Any = self
        return TableDataset(table)

    def scan_polars(self) -> pl.LazyFrame:
        """Return the table as a Polars query, whose projections, filters and limits reach the pages.

        Raises
        ------
        MissingDependencyError
            If Polars is not installed.

        Notes
        -----
        Reads nothing until the query is collected. Counting rows reads no page.
        """
        from spark_pages.query.polars_source import scan_polars  # noqa: PLC0415 - an extra

        return scan_polars(self)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read all rows as a pandas frame. For options of the conversion, use ``read().to_pandas(…)``.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        _require("pandas")
        return self.read(columns).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read all rows as a Polars frame.

        Raises
        ------
        MissingDependencyError
            If Polars is not installed.
        """
        rows = self.read(columns)
        if len(set(rows.column_names)) < rows.num_columns:
            raise InvalidInputError(
                "Cannot make a Polars frame: a column is named twice.", hint="Name each of `columns` once."
            )
        found: pl.DataFrame = _require("polars").from_arrow(rows)
        return found

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows as a stream in Arrow's C interface: a `scan`, for whoever takes Arrow.

        ``polars.DataFrame(table)``, ``pyarrow.table(table)`` and DuckDB's ``FROM table`` read it, and
        `Transaction.append` takes it into another table.
        """
        return self.scan().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read all rows batch by batch, as `scan` does."""
        return iter(self.scan())

    def head(self, n: int = 5) -> pa.Table:
        """Read the first live rows.

        Notes
        -----
        Reads the pages that hold them.
        """
        return self.read(limit=as_int(n, "n", "a number of rows", 0))

    def batches(
        self,
        batch_rows: int = 1024,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        shard: tuple[int, int] = (0, 1),
        columns: Sequence[str] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Batches:
        """Iterate over batches of live rows for training, in random order if you like.

        Parameters
        ----------
        batch_rows
            Rows of a batch; the last one may have fewer.
        shuffle
            Whether to read whole pages in random order, and to shuffle rows within windows of about 32 MiB.
        seed
            A number that gives the same order again, such as that of the epoch; None for another each time.
        shard
            Which part to read of how many, from 0: ``(rank, world_size)``. With one seed, shards have no row
            in common, and together all rows.
        columns
            Which columns, in which order; all by default.
        state
            What `Batches.state` returned, to go on there. Pass the other arguments as before.

        Returns
        -------
        Batches
            An iterator over `pyarrow.RecordBatch`, with a method `state`.

        Raises
        ------
        ColumnNotFoundError, InvalidInputError

        Notes
        -----
        Reads each page once, but for those at the ends of what is read together. Holds three windows: one is
        read while you work on another. The caches are left to other readers.
        """
        from spark_pages.query.batches import Batches, BatchSettings  # noqa: PLC0415 - for training alone

        table: Any = self
        wanted = table.columns if columns is None else as_names(columns, "columns")
        names = tuple(find_columns(table.definition, wanted))
        if not names:
            raise InvalidInputError(
                "Cannot make batches without columns: rows would have nothing in them.",
                hint="Name some in `columns`, or leave it out.",
            )
        part, parts = (as_int(each, "shard", "two numbers, such as (0, 4)", 0) for each in _pair(shard))
        if part >= parts:
            raise InvalidInputError(
                f"Cannot read shard {part} of {parts}: shards are numbered from 0.",
                hint=f"Pass `shard` as ({max(parts - 1, 0)}, {max(parts, 1)}).",
            )
        size = as_int(batch_rows, "batch_rows", "a number of rows, 1 or more", 1)
        order = None
        if as_flag(shuffle, "shuffle"):
            known = state.get("seed") if isinstance(state, Mapping) else None
            order = known if seed is None else as_int(seed, "seed", "a number", 0)
            order = int(np.random.default_rng().integers(1 << 62)) if order is None else order
        return Batches(table, BatchSettings(names, size, order, part, parts), state)

    def sample(self, n: int, seed: int | None = None) -> pa.Table:
        """Read live rows drawn at random, each at most once, in the order of the table.

        Parameters
        ----------
        n
            How many rows; all of them where the table has fewer.
        seed
            A number that gives the same rows again; None for others each time.
        """
        count = min(as_int(n, "n", "a number of rows", 0), self.num_rows)
        seed = None if seed is None else as_int(seed, "seed", "a number", 0)
        drawn = np.random.default_rng(seed).choice(self.num_rows, count, replace=False, shuffle=False)
        return self.take(self.rows_at(np.sort(drawn)))

    def count_rows(self, filter: Any = None) -> int:
        """Count the live rows that meet a condition. Without one, no page is read."""
        return int(self.num_rows if filter is None else self.read([], filter=filter).num_rows)

    @overload
    def __getitem__(self, wanted: str) -> pa.ChunkedArray: ...
    @overload
    def __getitem__(self, wanted: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, wanted: list[str] | slice) -> pa.Table: ...
    def __getitem__(self, wanted: Any) -> Any:
        """Read a column by its name, columns by a list of names, or live rows by position.

        ``t["id"]`` is a column and ``t[["id", "name"]]`` a table of two. ``t[5]`` is the sixth live row as a
        dict, ``t[-1]`` the last one, and ``t[5:10]`` a table of five rows. Row numbers, which `take` and
        `read` use, count deleted rows too.
        """
        if isinstance(wanted, str):
            return self.read([wanted]).column(0)
        if isinstance(wanted, list):
            return self.read(as_names(wanted, "columns"))
        if isinstance(wanted, slice):
            return self._rows_of(wanted)
        position = as_int(wanted, "the position of a row")
        count = self.num_rows
        if not -count <= position < count:
            raise RowOutOfRangeError(
                f"Cannot read row {position}: the table has {count} live rows.",
                hint=f"Use a position from {-count} to {count - 1}.",
                num_rows=count,
            )
        return self.take(self.rows_at([position % count])).to_pylist()[0]

    def _rows_of(self, wanted: slice) -> pa.Table:
        """Read the live rows of a slice, which may reach past the end as slices of Python do."""
        start, stop, step = (
            None if each is None else as_int(each, "an end or step of a slice")
            for each in (wanted.start, wanted.stop, wanted.step)
        )
        if step == 0:
            raise InvalidInputError(
                "Cannot read rows in steps of 0: a step leads to other rows.",
                hint="Leave the step out, or write `table[::2]`.",
            )
        positions = range(*slice(start, stop, step).indices(self.num_rows))
        if positions.step != 1 or not positions:
            return self.take(self.rows_at(np.array(positions, np.int64)))
        first, last = self.rows_at([positions[0], positions[-1]]).tolist()
        return self.read(start=first, stop=last + 1)


def _pair(shard: object) -> tuple[object, object]:
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise InvalidInputError(
            f"Cannot use {shortened(shard)} as shard: expected two numbers, a part and the number of parts.",
            hint="Pass `shard` as (rank, world_size), such as (0, 4).",
        )
    return shard[0], shard[1]


def _require(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"Cannot make a {name} frame: {name} is not installed.",
            hint=f"Install it with: pip install {name}.",
        ) from error


_INTERNAL = frozenset(
    (
        "are_live",
        "blocks",
        "candidate_rows",
        "filter_columns",
        "marks",
        "page_folder",
        "page_handler",
        "page_options",
        "page_values",
        "reopen",
        "rows_in",
        "rows_to_read",
    )
)
"""Methods for the library itself, which `dir` leaves out."""
