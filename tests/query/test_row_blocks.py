"""Row blocks: together, the parts of pages that a block lists are its rows, column by column."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp
from spark_pages.errors import ColumnNotFoundError, InvalidInputError
from spark_pages.query.table import Table
from spark_pages.store import Store
from tests.transaction.stores import QUIET, store_with

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("c", pa.int8())])


@pytest.fixture(scope="module")
def table() -> Table:
    """Columns whose pages end at different rows, one of them a constant for some."""
    store = store_with(schema=SCHEMA)
    for first in range(0, 300, 100):
        rows = {"n": range(first, first + 100), "s": [f"{n:0{n % 30}d}" for n in range(first, first + 100)]}
        with store.transaction() as txn:
            txn._page_bytes = 200 + first
            txn.append("t", pa.table(rows if first else {**rows, "c": pa.array([1] * 100, pa.int8())}))
    return store.snapshot().table("t")


def rows_of(table: Table, block: pa.Table, column: str) -> list[object]:
    """The rows of a block, put together from the parts of pages that it lists."""
    pages = table.directory.chain(column).all_pages()
    found: list[object] = []
    for part in block.filter(pc.equal(block["column"], column)).to_pylist():
        (values,) = table.page_values(column, [pages.descriptor(part["page_position"])])
        found += values[part["start"] : part["stop"]].to_pylist()
    return found


@pytest.mark.parametrize("by", [None, "n", "s", "c", 1, 7, 100, 1000])
def test_the_parts_of_a_block_are_its_rows(table, by):
    blocks = table.blocks(by)

    numbers = blocks["block"].to_numpy()
    assert np.array_equal(np.unique(numbers), np.arange(numbers[-1] + 1))
    for number in range(0, int(numbers[-1]) + 1, max(1, len(np.unique(numbers)) // 12)):
        block = blocks.filter(pc.equal(blocks["block"], number))
        first, end = block["first_row"][0].as_py(), block["end_row"][0].as_py()
        for column in SCHEMA.names:
            assert rows_of(table, block, column) == table.read([column], first, end)[column].to_pylist()
    assert blocks["end_row"][-1].as_py() == table.num_rows == 300


def test_a_block_of_a_column_s_page_lists_that_page_whole_and_alone(table):
    blocks = table.blocks("s")

    own = blocks.filter(pc.equal(blocks["column"], "s"))
    pages = table.pages("s")
    assert own["page_position"].to_pylist() == own["block"].to_pylist() == list(range(pages.num_rows))
    assert own["start"].to_pylist() == [0] * pages.num_rows
    assert own["stop"].to_pylist() == pages["entry_count"].to_pylist()


def test_by_default_blocks_are_those_of_the_column_with_most_pages(table):
    assert table.blocks().equals(table.blocks("s"))


def test_a_block_tells_places_and_statistics_of_pages(table):
    part = table.blocks("n").slice(0, 1).to_pylist()[0]

    page = table.directory.chain("n").all_pages().descriptor(0)
    assert (part["column"], part["field_id"], part["page_id"]) == ("n", 1, page.page_id)
    assert (part["path"], part["offset"], part["actual_len"]) == (
        page.disk_path or None,
        page.offset,
        page.actual_len,
    )
    assert (part["min"], part["null_count"]) == ((0).to_bytes(8, "little"), 0)


def test_blocks_of_columns_of_different_length_end_with_the_shortest():
    store: Store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.int64())]), aligned=False)
        txn.append("t", pa.table({"a": range(10)}))
        txn.append("t", pa.table({"b": range(4)}))

    blocks = store.snapshot().table("t").blocks(3)

    assert blocks["column"].to_pylist() == ["a", "b", "a", "b"]
    assert (
        list(zip(blocks["start"].to_pylist(), blocks["stop"].to_pylist(), strict=True))
        == [(0, 3)] * 2 + [(3, 4)] * 2
    )


def test_a_table_without_rows_has_no_block():
    assert store_with(schema=SCHEMA).snapshot().table("t").blocks().num_rows == 0
    assert store_with(schema=SCHEMA).snapshot().table("t").blocks(5).num_rows == 0


def test_blocks_that_cannot_be_are_refused(table):
    with pytest.raises(InvalidInputError, match="a number of rows from 1"):
        table.blocks(0)
    with pytest.raises(ColumnNotFoundError):
        table.blocks("x")
