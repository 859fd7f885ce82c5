"""Page descriptors as tables: one row for each page, or for each block of rows and page."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column
from spark_pages.errors import InvalidInputError
from spark_pages.model.chain import ColumnChain, RunSlice
from spark_pages.model.page_schema import STATS_SCHEMA, kind_names
from spark_pages.model.run import PageRun


def page_table(column: str, pages: RunSlice, position: int) -> pa.Table:
    """Return a row for each page, in row order.

    Parameters
    ----------
    column
        Whose pages they are.
    position
        Of the first of them in its chain, from 0.

    Returns
    -------
    pyarrow.Table
        ``column``, ``page_position``, ``first_row``, the fields of a descriptor, and ``null_count``.
    """
    run = pages.run
    prefix = run.prefix_entries.astype(np.int64)
    table = pa.table(
        {
            "column": pa.repeat(pa.scalar(column), run.num_pages),
            "page_position": np.arange(position, position + run.num_pages, dtype=np.int64),
            "first_row": pages.first_row + prefix - run.numbers("entry_count"),
        }
    )
    for field in run.pages.schema:
        value = run.pages.column(field.name)
        if pa.types.is_dictionary(field.type):
            value = value.cast(pa.string())
        if field.name == "kind":
            value = kind_names(value)
        if field.name != "data":
            table = table.append_column(field.name, value)
    return table.append_column("null_count", run.stats.column("null_count"))


Numbers = NDArray[np.int64]

_PAGE_COLUMNS = ("page_id", "kind", "path", "offset", "alloc_len", "actual_len")


def block_edges(chains: Mapping[str, ColumnChain], by: str | int | None, num_rows: int) -> Numbers:
    """Rows at which blocks begin, and the number of rows last.

    Parameters
    ----------
    chains
        The columns.
    by
        A column, each page of which is a block; a number of rows; or None for the column with most pages.

    Raises
    ------
    InvalidInputError
        If a block is to have no row.
    """
    if isinstance(by, int):
        if by < 1:
            raise InvalidInputError(
                f"Cannot form blocks of {by} rows: expected 1 at least.",
                hint="Pass `by` as a number of rows, such as 8192, or as a column.",
            )
        return np.append(np.arange(0, num_rows, by, dtype=np.int64), num_rows)
    if by is None:
        by = max(chains, key=lambda name: chains[name].num_pages)
    ends = np.minimum(chains[by].all_pages().prefix_entries.astype(np.int64), num_rows)
    return np.unique(np.concatenate([[0], ends, [num_rows]]))


def blocks_of(
    chains: Mapping[str, ColumnChain], field_ids: Mapping[str, int], by: str | int | None, num_rows: int
) -> pa.Table:
    """Return a row for each page and each block that it overlaps, by block, column and position.

    Returns
    -------
    pyarrow.Table
        ``block``, its ``first_row`` and ``end_row``; ``column``, ``field_id``, ``page_position`` in
        its chain; ``start`` and ``stop``, the rows of the page that are in the block; the place of the page,
        and its statistics as the format has them.

    Notes
    -----
    Loads all chains. O(pages + blocks) in numpy for each column.
    """
    edges = block_edges(chains, by, num_rows)
    parts = [_of_column(name, field_ids[name], chain.all_pages(), edges) for name, chain in chains.items()]
    table = pa.concat_tables(parts)
    order = np.argsort(table.column("block").to_numpy(), kind="stable")
    return table.take(number_column(order, pa.int64()))


def _of_column(name: str, field_id: int, pages: PageRun, edges: Numbers) -> pa.Table:
    ends = pages.prefix_entries.astype(np.int64)
    begins = ends - pages.numbers("entry_count")
    held = np.flatnonzero((ends > begins) & (begins < edges[-1]))
    begins, ends = begins[held], np.minimum(ends[held], edges[-1])
    first = np.searchsorted(edges, begins, side="right") - 1
    count = np.searchsorted(edges, ends, side="left") - first
    page = np.repeat(np.arange(len(held)), count)
    block = np.arange(len(page)) - np.repeat(np.cumsum(count) - count, count) + first[page]
    position = held[page]
    taken = number_column(position, pa.int64())
    described = pages.pages.take(taken)
    columns: dict[str, pa.Array] = {
        "block": number_column(block, pa.int64()),
        "first_row": number_column(edges[block], pa.int64()),
        "end_row": number_column(edges[block + 1], pa.int64()),
        "column": pa.repeat(pa.scalar(name), len(page)),
        "field_id": pa.repeat(pa.scalar(field_id, pa.int32()), len(page)),
        "page_position": taken,
        "start": number_column(np.maximum(edges[block] - begins[page], 0), pa.int64()),
        "stop": number_column(np.minimum(edges[block + 1], ends[page]) - begins[page], pa.int64()),
    }
    columns |= {each: described.column(each) for each in _PAGE_COLUMNS}
    columns["path"] = columns["path"].cast(pa.string())
    columns["kind"] = kind_names(columns["kind"])
    stats = pages.stats.take(taken)
    return pa.table(columns | {each: stats.column(each) for each in STATS_SCHEMA.names})
