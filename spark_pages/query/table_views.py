"""A table in the forms that other libraries take: datasets, data frames, lazy frames, batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from spark_pages.arguments import as_names, shortened
from spark_pages.boundary import guarded
from spark_pages.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from spark_pages.query.dataset import TableDataset


@guarded()
class TableViews:
    """Methods of a table that hand it to other libraries."""

    schema: Any
    num_rows: Any
    read: Any
    scan: Any

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

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read all rows batch by batch, as `scan` does."""
        return iter(self.scan())

    @overload
    def __getitem__(self, wanted: str) -> pa.ChunkedArray: ...
    @overload
    def __getitem__(self, wanted: list[str]) -> pa.Table: ...
    def __getitem__(self, wanted: Any) -> Any:
        """Read a column by its name, or some columns by a list of names."""
        if isinstance(wanted, str):
            return self.read([wanted]).column(0)
        if isinstance(wanted, list):
            return self.read(as_names(wanted, "columns"))
        raise InvalidInputError(
            f"Cannot read {shortened(wanted)} of a table: expected the name of a column or a list of names.",
            hint="Use take for rows by number, and read(start=…, stop=…) for a range of rows.",
        )


def _require(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"Cannot make a {name} frame: {name} is not installed.",
            hint=f"Install it with: pip install {name}.",
        ) from error
