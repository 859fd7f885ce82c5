from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import DamageError
from spark_pages.format.pages.page_codec import open_page
from spark_pages.io import Codec, LazyPage, encode_page
from spark_pages.query.concat import gather_in_parts
from tests.format.test_lazy_page import PLAIN, values_of
from tests.format.test_validate_array import FORGED, forged

ROWS = 700


def page_of(values: pa.Array) -> LazyPage:
    for _ in range(2):
        page = open_page(
            encode_page(values).data, where="pages/x@0", expected_checksum=None, expected_entries=None
        )
    assert isinstance(page, LazyPage)
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


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.large_binary()], ids=str)
def test_a_page_is_put_together_when_it_is_taken_from_a_second_time(kind, monkeypatch):
    made = []
    real = LazyPage.array
    monkeypatch.setattr(LazyPage, "array", lambda page: made.append(page) or real(page))
    pages = [page_of(values_of(kind, ROWS, False, seed)) for seed in range(2)]
    question = (np.array([0, 1, 2]), np.array([5, 6]), None, kind)

    gather_in_parts(pages, *question)
    at_first = len(made)
    gather_in_parts(pages, *question)

    assert (at_first, len(made)) == (0, 2)


def test_long_text_and_much_of_it_is_copied_by_arrow_and_the_same():
    columns = [pa.array([f"{row}é" * (900 if row == 5 else 1) for row in range(ROWS)]) for _ in range(2)]
    pages = [page_of(values) for values in columns]
    offsets = np.array([5, 6, 6, *range(100, 150), 5], np.int64)

    found = gather_in_parts(pages, np.array([0, 2, 54]), offsets, None, pa.string())

    assert found.combine_chunks().equals(columns[0].take(pa.array(offsets)))


def test_text_of_many_pages_is_the_same_whatever_they_are():
    pages, columns = [], []
    for number in range(150):
        length = 3000 if 70 <= number < 140 else 3
        values = pa.array(
            [None if row % 7 == number % 11 else f"{number}-{row}" + "é" * length for row in range(20)]
        )
        columns.append(values)
        pages.append(values if number % 40 == 39 else page_of(values))
    bounds = np.concatenate([[0], np.cumsum(np.arange(150) % 3)])
    offsets = np.random.default_rng(4).integers(0, 20, bounds[-1])
    shift = np.repeat(np.arange(150) * 20, np.diff(bounds))
    expected = pa.concat_arrays(columns).take(pa.array(offsets + shift))

    for _ in range(3):
        found = gather_in_parts(pages, bounds, offsets, None, pa.string())

        found.validate(full=True)
        assert found.combine_chunks().equals(expected)


TEXTS = {name: case for name, case in FORGED.items() if pa.types.is_string(case[0].type)}


@pytest.mark.parametrize("case", TEXTS.values(), ids=TEXTS)
def test_entries_of_text_that_lead_out_of_their_page_or_are_none_are_damage(case):
    good, bad = encode_page(case[0], codec=Codec.NONE), forged(*case)
    pages = [
        open_page(page.data, where=f"pages/x@{at}", expected_checksum=None, expected_entries=None)
        for at, page in enumerate([good, good, bad, good])
    ][1:]
    rows = len(case[0])
    wanted = np.array([0, *range(12), 49, 50, rows - 1, 0], np.int64)

    with pytest.raises(DamageError, match=r"pages/x@2"):
        gather_in_parts(pages, np.array([0, 1, 16, 17]), wanted, None, case[0].type)
