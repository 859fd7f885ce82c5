"""The pages of a chain between two bounds of pages, however the chain is loaded."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import UnloadedRun
from spark_pages.model.row_ranges import RowRanges
from tests.model.chains import pieces_and_counts, promise, run_of


@given(pieces_and_counts(), st.data())
def test_pages_between_two_bounds_are_those_and_follow_each_other(chain, data):
    pieces, counts = chain
    bounds = [0, *accumulate(counts)]
    first = data.draw(st.sampled_from(bounds))
    end = data.draw(st.sampled_from([row for row in bounds if row >= first]) | st.just(1 << 62))

    found = ColumnChain(pieces).pages_between(first, end).page_ids.tolist()

    filled = {i for i, n in enumerate(counts) if n and first <= bounds[i] and bounds[i + 1] <= end}
    inside = {i for i, n in enumerate(counts) if first <= bounds[i] < end and bounds[i + 1] <= end}
    assert filled <= set(found) <= inside
    assert found == list(range(found[0], found[0] + len(found))) if found else not filled


@given(pieces_and_counts(), st.data())
def test_several_ranges_at_once_are_what_each_is_alone(chain, data):
    pieces, counts = chain
    bounds = [0, *accumulate(counts)]
    some = sorted(data.draw(st.sets(st.sampled_from(bounds), max_size=4)))
    places = list(pairwise(some))

    found = ColumnChain(pieces).runs_between(places)

    alone = [ColumnChain(pieces).pages_between(*place) for place in places]
    assert [run.page_ids.tolist() for run in found] == [run.page_ids.tolist() for run in alone]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_ranges_between_two_rows_hold_the_rows_between_them(ranges, first, last):
    joined = RowRanges.joined(np.array(ranges, dtype=np.int64).reshape(-1, 2))

    between = joined.between(first, last)

    assert set(between.rows().tolist()) == set(joined.rows().tolist()) & set(range(first, last))


def test_only_what_holds_the_rows_is_loaded():
    loaded: list[int] = []

    def watched(number: int) -> UnloadedRun:
        lazy = promise([run_of([10, 10], 2 * number)])
        return UnloadedRun(2, 20, lambda: loaded.append(number) or lazy.expand())

    chain = ColumnChain([watched(number) for number in range(5)])

    assert chain.pages_between(20, 40).page_ids.tolist() == [2, 3]
    assert chain.pages_between(100, 1 << 62).num_pages == 0
    assert loaded == [1]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8))
def test_joined_ranges_hold_the_same_rows_and_neither_touch_nor_overlap(ranges):
    joined = RowRanges.joined(np.array(ranges, dtype=np.int64).reshape(-1, 2))

    rows = {row for start, end in ranges for row in range(start, end)}
    told = list(zip(joined.starts.tolist(), joined.ends.tolist(), strict=True))
    assert {row for start, end in told for row in range(start, end)} == rows
    assert all(start < end for start, end in told)
    assert all(one[1] < two[0] for one, two in pairwise(told))
