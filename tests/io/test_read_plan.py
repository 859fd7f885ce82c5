from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError
from spark_pages.io.read_plan import ReadRange, join_spans, plan_spans
from tests.io.strategies import steady

MANY = 1 << 30


def page(offset: int, actual_len: int = 4000, path: str = "a", alloc_len: int | None = None):
    return (path, offset, -(-actual_len // 4096) * 4096 if alloc_len is None else alloc_len, actual_len, 0, 1)


def shown(spans: list[ReadRange]) -> list[tuple[str, int, int, int]]:
    return [(span.path, span.start, span.used_stop, len(span.keys)) for span in spans]


def test_neighbours_are_one_span_whatever_the_order():
    found = plan_spans([page(8192), page(0), page(4096)], MANY)

    assert shown(found) == [("a", 0, 8192 + 4000, 3)]
    assert found[0].stop == 12288


def test_a_gap_and_another_object_begin_a_span():
    found = plan_spans([page(0), page(8192), page(12288, path="b")], MANY)

    assert shown(found) == [("a", 0, 4000, 1), ("a", 8192, 12192, 1), ("b", 12288, 16288, 1)]


def test_a_span_is_cut_before_it_is_too_long_but_a_page_never_is():
    found = plan_spans([page(0), page(4096), page(8192), page(12288, 40_000)], 8192)

    assert shown(found) == [("a", 0, 8096, 2), ("a", 8192, 12192, 1), ("a", 12288, 52288, 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        page(5),
        page(-4096),
        page(0, alloc_len=100),
        page(0, 5000, alloc_len=4096),
        page(0, 63),
        page(0, 1 << 40, alloc_len=4096),
    ],
)
def test_a_place_that_cannot_be_is_damage(wrong):
    with pytest.raises(DamageError, match=r"of 'a': expected a multiple of 4096"):
        plan_spans([wrong], MANY)


def test_small_gaps_between_large_pages_are_read_across():
    spans = plan_spans([page(0, 65_000), page(65_536 + 4096, 65_000)], MANY)

    assert shown(join_spans(spans, MANY, None)) == [("a", 0, 65_536 + 4096 + 65_000, 2)]


def test_gaps_that_cost_more_than_a_tenth_are_skipped():
    spans = plan_spans([page(0, 65_000), page(2 * 65_536, 65_000)], MANY)

    assert len(join_spans(spans, MANY, None)) == 2


def test_the_smallest_gaps_are_read_first():
    pages = [page(0, 65_536), page(65_536 + 16_384, 65_536), page(2 * 65_536 + 20_480, 65_536)]

    assert shown(join_spans(plan_spans(pages, MANY), MANY, None)) == [
        ("a", 0, 65_536, 1),
        ("a", 65_536 + 16_384, 3 * 65_536 + 20_480, 2),
    ]


def test_a_gap_that_was_chosen_is_read_at_any_cost_and_none_above_it():
    pages = [page(0), page(1 << 16), page(1 << 20)]

    found = join_spans(plan_spans(pages, MANY), MANY, gap_bytes=1 << 16)

    assert shown(found) == [("a", 0, (1 << 16) + 4000, 2), ("a", 1 << 20, (1 << 20) + 4000, 1)]


def test_no_span_is_joined_above_the_largest_request():
    pages = [page(n * 65_536 + n * 4096, 65_536) for n in range(4)]

    found = join_spans(plan_spans(pages, 150_000), 150_000, gap_bytes=4096)

    assert [len(span.keys) for span in found] == [2, 2]


def test_spans_of_different_objects_are_never_joined():
    spans = plan_spans([page(0), page(8192, path="b")], MANY)

    assert len(join_spans(spans, MANY, gap_bytes=MANY)) == 2


@steady
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(64, 200_000)), max_size=40))
def test_every_page_is_in_one_span_and_gaps_cost_at_most_a_tenth(sizes):
    offset, pages = 0, []
    for gap, size in sizes:
        pages.append(page(offset + gap * 4096, size))
        offset = pages[-1][1] + pages[-1][2]
    spans = plan_spans(pages, 1 << 20)

    joined = join_spans(spans, 1 << 20, None)

    asked = sum(size for _, size in sizes)
    assert [key for span in joined for key in span.keys] == sorted(pages)
    assert all(
        span.start <= key[1] and key[1] + key[3] <= span.used_stop for span in joined for key in span.keys
    )
    without = sum(span.used_stop - span.start for span in spans)
    assert sum(span.used_stop - span.start for span in joined) <= max(without, 1.1 * asked)
