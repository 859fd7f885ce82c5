from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError
from spark_pages.format.pages.paginate import plan_pages
from tests.io.strategies import NESTED, ORDERED, arrays, dictionary_arrays, steady


@steady
@given(arrays({**ORDERED, **NESTED}) | dictionary_arrays(), st.integers(1, 300))
def test_boundaries_rise_from_the_first_row_to_the_last(array, target):
    boundaries = plan_pages(array, target)

    assert boundaries.dtype == np.int64
    assert boundaries[0] == 0
    assert boundaries[-1] == len(array)
    assert (np.diff(boundaries) > 0).all()


@steady
@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 300), st.integers(0, 5))
def test_no_page_of_text_or_binary_exceeds_the_target_unless_it_is_one_value(lengths, target, skip):
    array = pa.array([bytes(length) for length in lengths]).slice(min(skip, len(lengths) - 1))

    boundaries = plan_pages(array, target)

    sizes = [(b - a, sum(4 + len(v.as_py()) for v in array[a:b])) for a, b in pairwise(boundaries)]
    assert all(size <= target or entries == 1 for entries, size in sizes)


@pytest.mark.parametrize(
    ("kind", "entries"),
    [(pa.int64(), 8192), (pa.int8(), 65536), (pa.bool_(), 524288), (pa.binary(24), 2728)],
)
def test_a_page_of_fixed_width_fills_the_target_in_multiples_of_eight(kind, entries):
    array = pa.nulls(1_200_000, kind)

    assert plan_pages(array)[1] == entries


def test_values_that_fill_a_page_to_the_last_byte_share_it():
    assert plan_pages(pa.array(["aaaa", "bbbb", "cccc"]), 16).tolist() == [0, 2, 3]


def test_a_large_value_among_small_ones_has_a_page_of_its_own():
    array = pa.array(["a"] * 10 + ["b" * 100_000] + ["c"] * 10)

    assert plan_pages(array).tolist() == [0, 10, 11, 21]


def test_an_empty_column_has_no_pages():
    assert plan_pages(pa.array([], pa.int64())).tolist() == [0]


def test_a_target_of_nothing_is_refused():
    with pytest.raises(InvalidInputError):
        plan_pages(pa.array([1]), 0)


def test_text_of_about_one_length_is_cut_into_pages_of_as_many_entries_each():
    lengths = np.random.default_rng(1).integers(8, 18, 60_000)
    texts = pa.array(["x" * length for length in lengths.tolist()])

    counts = np.diff(plan_pages(texts)).tolist()

    assert len(set(counts[:-1])) == 1
    assert min(texts.slice(0, counts[0]).nbytes, 65_536) > 0.96 * 65_536
