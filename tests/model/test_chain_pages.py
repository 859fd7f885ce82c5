"""`ColumnChain.pages` and `ColumnChain.prefix_entries`: the two arrays of seed 000."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import UnloadedRun
from tests.effort import examples
from tests.io.strategies import steady
from tests.model.chains import pieces_and_counts, run_of
from tests.transaction.stores import store_with
from tests.versions.hand import numbers

quick = settings(steady, max_examples=examples(40))
indices = st.one_of(st.none(), st.integers(-40, 40))


@quick
@given(pieces_and_counts())
def test_prefix_entries_are_the_running_sums_of_the_entry_counts_of_the_pages(drawn):
    pieces, counts = drawn
    chain = ColumnChain(pieces)

    assert chain.prefix_entries.dtype == np.uint64
    assert chain.prefix_entries.tolist() == [*accumulate(counts)]
    assert [page.entry_count for page in chain.pages] == counts
    assert len(chain.pages) == len(chain.prefix_entries) == chain.num_pages


@quick
@given(pieces_and_counts(), st.slices(40))
def test_a_slice_of_the_pages_is_that_slice_of_all_of_them(drawn, part):
    pages = ColumnChain(drawn[0]).pages

    assert pages[part] == tuple(pages)[part]


def test_an_index_from_the_end_is_the_latest_page_and_one_outside_is_an_index_error():
    chain = ColumnChain([run_of([3, 8])])

    assert chain.pages[-1] == chain.latest()
    with pytest.raises(IndexError):
        chain.pages[2]


def test_one_page_loads_the_piece_that_holds_it_and_the_length_none():
    loaded = []

    def lazy(number):
        return UnloadedRun(2, 10, lambda: loaded.append(number) or [run_of([4, 6], 2 * number)])

    pages = ColumnChain([lazy(number) for number in range(5)]).pages

    assert (len(pages), loaded) == (10, [])
    assert (pages[7].page_id, loaded) == (7, [3])


def test_nobody_can_change_the_pages_or_the_sums():
    chain = ColumnChain([run_of([3, 8])])

    with pytest.raises(TypeError):
        chain.pages[0] = chain.pages[1]
    with pytest.raises(ValueError, match="read-only"):
        chain.prefix_entries[0] = 1


def test_the_chain_of_a_table_has_the_pages_that_the_table_lists():
    table = store_with(numbers(0, 10)).snapshot().table("t")

    chain = table.directory.chain("n")

    assert [page.page_id for page in chain.pages] == table.pages("n")["page_id"].to_pylist()
    assert chain.prefix_entries.tolist() == [10]
