from __future__ import annotations

from copy import copy

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.arrow.columns import number_column, optional_text
from spark_pages.model.chain import ColumnChain
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, empty_batch, no_stats
from spark_pages.model.run import PageRun
from tests.model.chains import run_of


def with_paths(indices: list[int], given: list[bool], paths: list[str]) -> pa.RecordBatch:
    """Descriptors whose paths have these indices, also where they are null."""
    batch = run_of([1] * len(indices)).pages
    column = pa.DictionaryArray.from_arrays(
        number_column(np.array(indices, np.int32), pa.int32(), np.array(given)), optional_text(paths)
    )
    return batch.set_column(PAGE_SCHEMA.get_field_index("path"), PAGE_SCHEMA.field("path"), column)


@pytest.mark.parametrize("behind_a_null", [-1, 1 << 30, -(1 << 30)])
def test_what_stands_behind_a_null_path_is_never_followed(behind_a_null):
    one = with_paths([0, 1], [True, True], ["a", "b"])
    two = with_paths([behind_a_null, 0], [False, True], ["b"])
    three = with_paths([behind_a_null] * 2, [False, False], [])

    joined = concat_batches([one, two, three], PAGE_SCHEMA)
    again = concat_batches([two, joined, three], PAGE_SCHEMA)

    assert joined.column("path").to_pylist() == ["a", "b", None, "b", None, None]
    assert again.column("path").to_pylist() == [None, "b", "a", "b", None, "b", None, None, None, None]
    assert again.column("path").dictionary.to_pylist() == ["b", "a"]


@pytest.mark.parametrize("more", [0, 1], ids=["as a batch", "as values"])
def test_a_slice_of_a_slice_counts_its_own_rows_and_ends_where_the_run_ends(more):
    counts = [3, 0, 2, 4, 0, 1, 2 + more]
    run = run_of(counts, 100)

    for start in range(8):
        for stop in range(start, 12):
            part = run.slice(start, 7).slice(0, stop - start)
            wanted = counts[start:stop]
            assert (part.num_pages, part.num_rows) == (len(wanted), sum(wanted))
            assert part.page_ids.tolist() == [100 + page for page in range(7)][start:stop]
            assert part.prefix_entries.tolist() == np.cumsum(wanted).tolist()
            assert [part.rows_before(page) for page in range(len(wanted) + 1)] == [
                sum(wanted[:page]) for page in range(len(wanted) + 1)
            ]


@pytest.mark.parametrize("more", [0, 1], ids=["as a batch", "as values"])
def test_pages_that_may_touch_rows_are_all_that_begin_end_or_lie_there(more):
    counts = [3, 0, 2, 4, 0, 1, 2 + more]
    run = run_of([9, *counts, 5 - more]).slice(1, 8)
    ends = np.cumsum(counts).tolist()

    for first in range(sum(counts) + 1):
        for last in range(first, sum(counts) + 1):
            start, stop = run.overlapping(first, last)
            begins = [end - count for end, count in zip(ends, counts, strict=True)]
            inside = [p for p in range(7) if begins[p] <= last and ends[p] >= first]
            assert start <= inside[0]
            assert inside[-1] < stop <= 7


def test_batches_without_rows_and_no_batches_join_to_nothing():
    for schema in (PAGE_SCHEMA, STATS_SCHEMA):
        assert concat_batches([], schema).num_rows == 0
        assert concat_batches([empty_batch(schema), empty_batch(schema)], schema).schema == schema


def test_a_slice_brings_only_its_own_pages():
    batch = with_paths([0, 1, 0], [True, False, True], ["a", "b"])

    joined = concat_batches([batch.slice(1), batch.slice(0, 1)], PAGE_SCHEMA)

    assert joined.column("path").to_pylist() == [None, "a", "a"]
    joined.validate(full=True)


def test_statistics_of_a_slice_do_not_go_through_all_slices_before_it():
    loaded = []

    def load_stats():
        loaded.append(1)
        return no_stats(5_000)

    run = PageRun(run_of([1] * 5_000).pages, load_stats)
    for _ in range(4_990):  # as splices leave the rest of a run behind them, one after another
        run = run.slice(1, run.num_pages)

    assert run.stats.num_rows == 10
    assert run.slice(2, 5).stats.num_rows == 3
    assert loaded == [1]


MANY = PageRun(run_of([1] * 5).pages, lambda: no_stats(5))
RUNS = {"whole": MANY, "slice": MANY.slice(1, 4), "few": run_of([1, 2])}
PUBLIC = ["few", "load_stats", "base_position", "num_pages", "num_rows", "pages", "page_ids", "stats", "else"]


@pytest.mark.parametrize("name", [*PUBLIC, "_batch", "_ids", "_slice_of"])
@pytest.mark.parametrize("kind", ["whole", "slice", "few"])
def test_nothing_of_a_run_can_be_set_or_deleted(kind, name):
    run = RUNS[kind]
    before = (run.num_pages, run.num_rows, run.page_ids.tolist(), run.pages.to_pylist())

    with pytest.raises(AttributeError, match="it is immutable"):
        setattr(run, name, 7)
    with pytest.raises(AttributeError, match="it is immutable"):
        delattr(run, name)

    assert before == (run.num_pages, run.num_rows, run.page_ids.tolist(), run.pages.to_pylist())


@pytest.mark.parametrize("name", ["num_rows", "num_pages", "pages", "prefix_entries", "pieces", "else"])
def test_nothing_of_a_chain_can_be_set(name):
    chain = ColumnChain([MANY])

    with pytest.raises(AttributeError):
        setattr(chain, name, 7)


def test_arrays_of_a_run_cannot_be_changed():
    run = MANY

    arrays = (run.page_ids, run.prefix_entries, run.numbers("entry_count"), run.slice(1, 3).page_ids)
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 99


def test_a_run_is_copied_as_it_is():
    for run in RUNS.values():
        assert copy(run).pages.equals(run.pages)
        assert run.with_base_position(3).base_position == 3
        assert run.base_position == -1
