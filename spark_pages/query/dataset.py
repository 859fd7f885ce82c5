"""A table as a dataset: what pyarrow, DuckDB and Polars read with projection, filters and limits.

They know datasets by the class of pyarrow, so `TableDataset` derives from it. Nothing of the class itself is
used: each reading is a `TableScanner`, which scans the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from spark_pages.arguments import as_int, shortened
from spark_pages.boundary import guarded
from spark_pages.errors import InvalidInputError


class _Source(Protocol):
    """What a dataset needs of a table."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def num_rows(self) -> int: ...

    def _scan_few(
        self, columns: Sequence[str], filter: pc.Expression | None, batch_rows: int | None
    ) -> pa.RecordBatchReader: ...

    def rows_at(self, positions: Any) -> Any: ...

    def take(self, rows: Any, columns: Sequence[str]) -> pa.Table: ...


class TableDataset(ds.FileSystemDataset):  # type: ignore[misc] # pyarrow ships no types
    """A table of one version as a `pyarrow.dataset.Dataset`.

    Obtained from `Table.dataset` and `Snapshot.dataset`. DuckDB reads it by ``FROM dataset``, Polars by
    ``polars.scan_pyarrow_dataset(dataset)``.

    Parameters
    ----------
    source
        The table.
    condition
        What all rows of the dataset pass; None for every row.

    Notes
    -----
    A scan reads the pages of the columns that it needs, and of these the ones that its filter does not prune.
    `count_rows` without a filter reads nothing.
    """

    def __init__(self, source: _Source, condition: pc.Expression | None = None) -> None:
        # Functions of Arrow in C++ bypass the methods below. They find one file, whose absence they report;
        # without it they would follow a null pointer.
        file = ds.ParquetFileFormat()
        fragment = file.make_fragment(_NO_FILE, fs.LocalFileSystem())
        super().__init__([fragment], source.schema, file, fs.LocalFileSystem())
        self._source = source
        self._condition = condition

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the table. A condition of Arrow cannot be pickled in every release."""
        return (type(self), (self._source, self._condition))

    def __repr__(self) -> str:
        return f"TableDataset({self._source!r})"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._source.schema

    def scanner(
        self, columns: Any = None, filter: Any = None, batch_size: Any = None, **_: Any
    ) -> TableScanner:
        """Describe one reading. The options of pyarrow that tune readers of files have no effect.

        Parameters
        ----------
        columns
            Names, in order; or expressions by the names of the results.
        filter
            A `pyarrow.compute.Expression`, with the meaning that Arrow gives it.
        batch_size
            Most rows of a batch.
        """
        condition = _both(self._condition, checked_condition(filter))
        return TableScanner(self._source, columns, condition, batch_size)

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read the rows; arguments as of `scanner`."""
        return self.scanner(*args, **options).to_table()

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read the rows batch by batch; arguments as of `scanner`."""
        return self.scanner(*args, **options).to_batches()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """Read the first rows; further arguments as of `scanner`."""
        return self.scanner(*args, **options).head(num_rows)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Read rows by their position in the dataset; further arguments as of `scanner`."""
        return self.scanner(*args, **options).take(indices)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Count the rows. Without a condition no page is read."""
        return self.scanner([], filter, **options).count_rows()

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return the dataset of the rows that pass a condition, besides the one that it has."""
        return TableDataset(self._source, _both(self._condition, checked_condition(expression)))

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Read all rows and sort them."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *args: Any, **options: Any) -> ds.InMemoryDataset:
        """Read all rows and join them with those of another dataset."""
        return self._in_memory().join(_in_memory(right_dataset), *args, **options)

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> ds.InMemoryDataset:
        """Read all rows and join them with the nearest ones of another dataset."""
        return self._in_memory().join_asof(_in_memory(right_dataset), *args, **options)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:  # noqa: ARG002 - as in pyarrow
        """Refuse: pages are no fragments that can be read alone."""
        raise InvalidInputError(
            "Cannot list the fragments of a table: it has none.",
            hint="`table.pages(column)` lists the pages of a column.",
        )

    def replace_schema(self, schema: pa.Schema) -> TableDataset:  # noqa: ARG002 - as in pyarrow
        """Refuse: the schema is that of the table."""
        raise InvalidInputError(
            "Cannot replace the schema of a table in a dataset: the store has it.",
            hint="Cast the columns that you read: `column.cast(type)`.",
        )

    @property
    def files(self) -> list[str]:
        """No files: rows come from pages."""
        return []

    def _in_memory(self) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table())


_NO_FILE = "a spark_pages table, which pyarrow reads by TableDataset.scanner() alone; use Table.scan()"
"""Shown by Arrow as a path that does not exist."""


def _in_memory(dataset: Any) -> Any:
    return dataset._in_memory() if isinstance(dataset, TableDataset) else dataset


def _both(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def checked_condition(filter: Any) -> pc.Expression | None:
    """Return a filter that is an expression of Arrow, or None."""
    if filter is not None and not isinstance(filter, pc.Expression):
        raise InvalidInputError(
            f"Cannot filter a dataset by {shortened(filter)}: expected a pyarrow.compute.Expression.",
            hint="Use Table.read(filter=…) for SQL text.",
        )
    return filter


@guarded()
class TableScanner:
    """One reading of a dataset, with the methods of `pyarrow.dataset.Scanner`."""

    def __init__(self, source: _Source, columns: Any, filter: pc.Expression | None, batch_size: Any) -> None:
        self._source = source
        self._filter = filter
        self._batch_rows = (
            None if batch_size is None else as_int(batch_size, "batch_size", "a number of rows", 1)
        )
        names = source.schema.names
        self._computed: dict[str, pc.Expression] | None = None
        if isinstance(columns, dict):
            self._computed = columns
            columns = [name for name in names if any(_reads(each, name) for each in columns.values())]
        self._columns: list[str] = list(names) if columns is None else list(columns)

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the table."""
        return self._source.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the batches."""
        schema = pa.schema([self._source.schema.field(name) for name in self._columns])
        return schema if self._computed is None else self._compute(schema.empty_table()).schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the batches as a stream."""
        if self._computed is not None:
            return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())
        return self._source._scan_few(self._columns, self._filter, self._batch_rows)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the batches one by one."""
        reader = self._source._scan_few(self._columns, self._filter, self._batch_rows)
        if self._computed is None:
            yield from reader
            return
        for batch in reader:
            yield from self._compute(pa.Table.from_batches([batch])).to_batches()

    def to_table(self) -> pa.Table:
        """Read all batches."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows."""
        wanted, found, batches = as_int(num_rows, "num_rows", "a number of rows", 0), 0, []
        if wanted:
            for batch in self.to_batches():
                batches.append(batch)
                found += batch.num_rows
                if found >= wanted:
                    break
        return pa.Table.from_batches(batches, self.projected_schema).slice(0, wanted)

    def take(self, indices: Any) -> pa.Table:
        """Read rows by their position among those that pass the filter."""
        if self._filter is None:
            rows = self._source.take(self._source.rows_at(indices), self._columns)
            return rows if self._computed is None else self._compute(rows)
        return self.to_table().take(pa.array(indices))

    def count_rows(self) -> int:
        """Count the rows."""
        if self._filter is None:
            return self._source.num_rows
        return sum(batch.num_rows for batch in self._source._scan_few([], self._filter, self._batch_rows))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the batches by Arrow's C interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _compute(self, rows: pa.Table) -> pa.Table:
        computed: Any = self._computed
        return ds.InMemoryDataset(rows).to_table(columns=computed)


def _reads(expression: pc.Expression, name: str) -> bool:
    """Whether an expression may read a column: it is named in its text."""
    return name in str(expression)
