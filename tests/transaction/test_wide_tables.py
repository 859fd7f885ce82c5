"""Work on wide tables grows with their columns, not with their square."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from spark_pages.catalog.page_options import PageOptions
from spark_pages.transaction.ingest import TableIngest
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.staged import StagedChanges
from tests.transaction.stores import store_with

WIDTHS = [10, 200]


class Watched:
    """Rows of which is counted what is asked of them."""

    def __init__(self, rows: pa.Table) -> None:
        self.asked: Counter[str] = Counter()
        self._rows = rows

    def __getattr__(self, name: str) -> object:
        self.asked[name] += 1
        return getattr(self._rows, name)


class Passed(list[StagedSplice]):
    """Splices that count how often somebody goes through them."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def definition_of(columns: int):
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(columns)])
    return store_with(schema=schema).snapshot().table("t").definition


def splices_of(definition) -> list[StagedSplice]:
    return [
        StagedSplice(definition.table_id, field_id, 0, (), 0, [])
        for field_id in definition.field_ids.values()
    ]


@pytest.mark.parametrize("columns", WIDTHS)
def test_an_append_asks_for_the_names_of_the_columns_once(columns):
    definition = definition_of(columns)
    ingest = TableIngest(definition, PageOptions.of(definition), splices_of(definition))
    rows = Watched(pa.table({name: pa.array([1, 2]) for name in definition.field_ids}))

    ingest.add(rows)

    assert (rows.asked["column_names"], rows.asked["column"]) == (1, 0)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_lengths_of_all_columns_are_found_in_one_pass_over_what_is_staged(columns):
    definition = definition_of(columns)
    work = StagedChanges(
        definitions={definition.table_id: definition}, splices=Passed(splices_of(definition))
    )

    work.check_ragged()

    assert work.splices.passes == 1


def test_fifteen_hundred_columns_are_made_appended_to_and_read():
    rows = pa.table({f"c{number}": pa.array([number, number + 1]) for number in range(1500)})

    store = store_with(rows, rows)

    table = store.snapshot().table("t")
    assert table.num_rows == 4
    assert table.read(["c7", "c1499"]).to_pydict() == {"c7": [7, 8] * 2, "c1499": [1499, 1500] * 2}
