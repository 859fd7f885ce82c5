"""Pages that take the place of others say how many rows they show."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError
from spark_pages.io import page_stats
from spark_pages.transaction.page_writer import stage_page
from tests.transaction.stores import store_with


def test_a_page_that_does_not_say_how_many_rows_it_shows_replaces_nothing():
    values = pa.array([1, 2, 3])
    store = store_with(pa.table({"n": values}))
    table = store.snapshot().table("t")
    definition = table.definition
    removed = table.pages("n")["page_id"].to_pylist()
    staged = stage_page(values, page_stats(values))

    with store.transaction() as txn, pytest.raises(InvalidInputError, match="how many rows it shows"):
        txn.replace_pages(definition.table_id, definition.field_ids["n"], 0, removed, [staged])

    assert store.snapshot().table("t").read().to_pydict() == {"n": [1, 2, 3]}
    assert store.verify(pages="all").ok
