from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.io import PlainPage, encode_page
from spark_pages.io.pages.page_codec import open_page
from spark_pages.tables.reading.gathering import gather_in_parts
from tests.io.test_plain_page import PLAIN, values_of

ROWS = 700


def page_of(values: pa.Array) -> PlainPage:
    for _ in range(2):
        page = open_page(
            encode_page(values).data, where="pages/x@0", expected_checksum=None, expected_entries=None
        )
    assert isinstance(page, PlainPage)
    return page


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", PLAIN.values(), ids=PLAIN)
def test_a_few_entries_of_pages_are_the_same_however_often_they_are_taken(kind, nulls):
    columns = [values_of(kind, ROWS, nulls, seed) for seed in range(3)]
    pages = [page_of(values) for values in columns]
    offsets = np.array([3, 3, 699, 0, 250, 17, 698], np.int64)
    bounds = np.array([0, 3, 5, 7], np.int64)
    order = np.array([6, 0, 5, 1, 4, 2, 3], np.int64)
    whole = pa.concat_arrays(columns)
    expected = whole.take(pa.array((offsets + np.repeat([0, ROWS, 2 * ROWS], [3, 2, 2]))[order]))

    for _ in range(3):
        found = gather_in_parts(pages, bounds, offsets, order, kind)

        found.validate(full=True)
        assert found.combine_chunks().equals(expected)


def test_a_page_is_put_together_when_it_is_taken_from_a_second_time(monkeypatch):
    made = []
    real = PlainPage.array
    monkeypatch.setattr(PlainPage, "array", lambda page: made.append(page) or real(page))
    pages = [page_of(pa.array(np.random.default_rng(seed).integers(0, 99, ROWS))) for seed in range(2)]
    question = (np.array([0, 1, 2]), np.array([5, 6]), None, pa.int64())

    gather_in_parts(pages, *question)
    at_first = len(made)
    gather_in_parts(pages, *question)

    assert (at_first, len(made)) == (0, 2)
