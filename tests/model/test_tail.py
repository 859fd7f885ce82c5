"""What is kept in mind of the end of a chain: its last pages, so many and so large, one append or many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.model.added_pages import NewPage
from spark_pages.model.chain_tree import ChainEdit
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import PageRun
from spark_pages.model.tail import MOST_BYTES, MOST_PAGES, ChainTail


def edit(number: int, size_bytes: int) -> ChainEdit:
    """The append of an inline page of one row."""
    page = NewPage(1, 1, PageKind.INLINE, "", 0, 0, size_bytes, 0, bytes(size_bytes), PageStats(0))
    return ChainEdit(number, (), 0, PageRun.of_few([number], (page,)), version=number)


def kept(sizes: list[int]) -> list[int]:
    """The ids of the pages that are worth their memory, from the definition."""
    last: list[int] = []
    held = 0
    for number in reversed(range(len(sizes))):
        held += sizes[number]
        if len(last) == MOST_PAGES or held > MOST_BYTES:
            break
        last.insert(0, number)
    return last


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [1] * MOST_PAGES,
        [1] * (MOST_PAGES + 1),
        [MOST_BYTES],
        [MOST_BYTES, 1],
        [1, MOST_BYTES + 1],
        [8 << 10] * 9,
    ],
)
def test_of_the_last_pages_as_many_are_kept_as_are_worth_their_memory(sizes):
    edits = [edit(number, size) for number, size in enumerate(sizes)]
    together = ChainTail(0).after(edits)
    one_by_one = ChainTail(0)
    for each in edits:
        one_by_one = one_by_one.after([each])

    assert [page.page_id for page in together.pages] == kept(sizes)
    assert (together.rows, together.before) == (len(sizes), len(sizes))
    assert one_by_one == together


@given(st.lists(st.integers(1, 3 << 10), max_size=150), st.integers(1, 150))
def test_appends_one_by_one_or_together_leave_the_same_tail(sizes, step):
    edits = [edit(number, size) for number, size in enumerate(sizes)]
    bit_by_bit = ChainTail(0)
    for first in range(0, len(edits), step):
        bit_by_bit = bit_by_bit.after(edits[first : first + step])

    assert bit_by_bit == ChainTail(0).after(edits)
    assert [page.page_id for page in bit_by_bit.pages] == kept(sizes)
