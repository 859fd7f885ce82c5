"""A table as an IO source of Polars: its engine requests columns, a condition and a number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_pages.errors import MissingDependencyError
from spark_pages.query.predicates.polars_filter import polars_conjuncts

if TYPE_CHECKING:
    import polars as pl


def scan_polars(table: Any) -> pl.LazyFrame:
    """Return a query of a table; see `Table.scan_polars`."""
    try:
        import polars as pl  # noqa: PLC0415 - an extra
        from polars.io.plugins import register_io_source  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            "Cannot make a Polars query: Polars is not installed.", hint="Install it: `pip install polars`."
        ) from error
    names = table.schema.names
    # To count rows, Polars reads the first column of a source. This one is null, and needs no page.
    counted = "rows" + "_" * max(map(len, names), default=0)
    empty = pl.from_arrow(table.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    schema: Any = pl.Schema([(counted, pl.Null()), *empty.schema.items()])

    def batches(
        columns: list[str] | None, condition: pl.Expr | None, n_rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema) if columns is None else columns
        read = [name for name in wanted if name != counted]
        pushed = None if condition is None else polars_conjuncts(condition, table.schema)
        if condition is not None:  # tested again below, by Polars
            read += [name for name in condition.meta.root_names() if name not in read and name != counted]
        left = n_rows
        for batch in table._scan_few(read, pushed, batch_rows):
            frame = _frame(pl, batch, counted)
            if condition is not None:
                frame = frame.filter(condition)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame.select(wanted)
            if left == 0:
                return

    return register_io_source(batches, schema=schema).select(names)


def _frame(pl: Any, batch: Any, counted: str) -> Any:
    """Return a batch with the column that counts its rows."""
    if batch.num_columns:
        return pl.from_arrow(batch).with_columns(pl.lit(None).alias(counted))
    return pl.DataFrame({counted: pl.Series(counted, [None], pl.Null).new_from_index(0, batch.num_rows)})
