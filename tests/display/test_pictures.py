from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.display.canvas import Picture, ticks, whole_ticks
from spark_pages.display.chain_strip import (
    BINS,
    CONSTANT,
    INLINE,
    MOST_BOXES,
    MOST_COLUMNS,
    UNLOADED,
    ColumnEffect,
    Lane,
    chain_strip,
    compaction_effect,
    table_strip,
)
from spark_pages.display.log_lane import MOST_ARCS, CommitKind, LoggedTransactions, log_lane
from spark_pages.display.markup import INK, SERIES
from spark_pages.display.request_charts import MOST_LINES, ShownRequest, cache_calls, waterfall
from tests.display.reading import HOSTILE, assert_plain_svg, elements, pictures_in


def lane(
    label: str, counts: list[int], files: list[int], names: tuple[str, ...] = ("pages/a", "pages/b")
) -> Lane:
    n = len(counts)
    return Lane(
        label=label,
        ends=np.cumsum(counts).astype(np.int64),
        files=np.array(files, np.int32),
        names=pa.array(names, pa.string()),
        ids=np.arange(1, n + 1),
        pages=np.ones(n, np.int64),
    )


def boxes(picture: Picture, fill: str, high: float | None = None) -> list[dict[str, str | None]]:
    """Boxes of a colour, those of the legend apart."""
    return [
        attributes
        for name, attributes in elements(picture.svg).found
        if name == "rect" and attributes["fill"] == fill and attributes["width"] != "11"
        and (high is None or float(attributes["height"] or 0) == high)
    ]  # fmt: skip


def log(n: int, **given: object) -> LoggedTransactions:
    values: dict[str, object] = {
        "versions": np.arange(n),
        "read_versions": np.arange(n) - 1,
        "times_us": np.arange(n) * 1_000_000,
        "kinds": np.zeros(n, np.int8),
        "checkpoints": np.zeros(0, np.int64),
    }
    return LoggedTransactions(**(values | given))  # type: ignore[arg-type]


def request(index: int, what: str = "pages", failed: bool = False) -> ShownRequest:
    return ShownRequest(what, f"pages/{index}", index / 100, index / 100 + 0.01, 4096, failed)


# the chain strip


def test_each_page_is_a_box_as_wide_as_its_rows_in_the_colour_of_its_file():
    picture = chain_strip("t.c", [lane("version 1", [300, 100], [0, 1])])

    first, second = boxes(picture, SERIES[0]), boxes(picture, SERIES[1])
    assert (len(first), len(second)) == (1, 1)
    assert float(first[0]["width"]) == pytest.approx(3 * float(second[0]["width"]), rel=0.02)


def test_pages_without_a_file_look_different():
    picture = chain_strip("t.c", [lane("version 1", [10, 10, 10], [INLINE, CONSTANT, UNLOADED], ())])

    words = elements(picture.svg).words
    assert {"in the log", "one value, no bytes", "not loaded"} <= set(words)
    assert len(boxes(picture, "none")) == 1


def test_pages_that_the_version_before_lacks_are_marked():
    now, before = lane("version 2", [10, 10, 10], [0, 1, 0]), lane("version 1", [10, 10], [0, 0])

    picture = chain_strip("t.c", [now, before])

    assert "3 pages, 30 rows, 1 of the pages new" in elements(picture.svg).words
    (mark,) = boxes(picture, INK, high=2.4)
    assert float(mark["x"] or 0) == pytest.approx(860 * 2 / 3, abs=0.1)


def test_a_file_has_one_colour_in_both_lanes_whatever_their_numbering():
    now = lane("version 2", [10, 10], [0, 1], ("pages/new", "pages/old"))
    before = lane("version 1", [10, 10], [0, 0], ("pages/old",))

    picture = chain_strip("t.c", [now, before])

    assert (len(boxes(picture, SERIES[0])), len(boxes(picture, SERIES[1]))) == (1, 3)


def test_a_chain_of_a_million_pages_is_a_small_picture():
    n = 1_000_000
    names = tuple(f"pages/{i}" for i in range(50))
    huge = lane("version 9", [8192] * n, (np.arange(n) // 20_000).tolist(), names)
    older = lane("version 8", [8192] * (n - 100), (np.arange(n - 100) // 20_000).tolist(), names)

    picture = chain_strip("t.c", [huge, older])

    assert len(elements(picture.svg).found) < 2 * (2 * BINS + 20)
    assert len(picture.svg) < 64 << 10
    assert len({each["fill"] for each in map(dict, boxes(picture, SERIES[2]))}) == 1
    assert "1,000,000 pages, 8,192,000,000 rows, 100 of the pages new" in elements(picture.svg).words


def test_a_column_of_pixels_with_several_files_has_no_colour_of_one():
    n = 50_000
    mixed = lane("version 1", [10] * n, [i % 2 for i in range(n)])

    picture = chain_strip("t.c", [mixed])

    assert boxes(picture, SERIES[0]) == boxes(picture, SERIES[1]) == []
    assert "several files" in elements(picture.svg).words


def test_one_page_more_than_get_boxes_are_drawn_in_columns():
    few, many = (
        lane("v", [1] * MOST_BOXES, [0] * MOST_BOXES),
        lane("v", [1] * (MOST_BOXES + 1), [0] * (MOST_BOXES + 1)),
    )

    assert len(boxes(chain_strip("t.c", [few]), SERIES[0])) == MOST_BOXES
    assert len(boxes(chain_strip("t.c", [many]), SERIES[0])) == 1


def test_a_chain_without_pages_is_a_picture_too():
    assert_plain_svg(chain_strip("t.c", [lane("version 0", [], [], ())]).svg)


def test_a_table_has_a_lane_for_each_column():
    picture = table_strip("t", [lane("a", [10], [0]), lane("b", [4, 6], [0, 1])])

    assert len(boxes(picture, SERIES[0])) == 2
    assert {"a", "b"} <= set(elements(picture.svg).words)


# the log lane


def test_each_transaction_is_a_dot_in_the_colour_of_its_kind():
    picture = log_lane("log", log(4, kinds=np.array([2, 0, 0, 1], np.int8)))

    fills = [attributes["fill"] for name, attributes in elements(picture.svg).found if name == "circle"]
    assert len(fills) == 4
    assert len(set(fills)) == 3


def test_commits_are_apart_by_their_order_and_not_by_their_times() -> None:
    late = log(6)
    spread = LoggedTransactions(
        late.versions, late.read_versions, np.array([0, 1, 2, 3, 4, 10**12]), late.kinds, late.checkpoints
    )

    centres = [float(each) for each in re.findall(r'cx="([\d.]+)"', log_lane("log", spread).svg)]

    assert len(set(np.diff(centres[:6]).round(3).tolist())) == 1


def test_a_rebase_is_an_arc_and_an_ordinary_commit_is_none():
    straight = log_lane("log", log(6))
    rebased = log_lane("log", log(6, read_versions=np.array([-1, 0, 0, 2, 3, 1])))

    assert [name for name, _ in elements(straight.svg).found].count("path") == 0
    assert [name for name, _ in elements(rebased.svg).found].count("path") == 2
    assert "6 transactions, 2 rebases" in elements(rebased.svg).words


def test_checkpoints_are_diamonds_below_their_commits():
    picture = log_lane("log", log(9, checkpoints=np.array([2, 5])))

    assert [name for name, _ in elements(picture.svg).found].count("path") == 2
    assert "2 checkpoints" in elements(picture.svg).words


def test_a_log_of_a_hundred_thousand_commits_is_a_small_picture():
    n = 100_000
    many = log(
        n,
        read_versions=np.maximum(np.arange(n) - 500, -1),
        kinds=(np.arange(n) % len(CommitKind)).astype(np.int8),
        checkpoints=np.arange(0, n, 64),
    )

    picture = log_lane("log", many)

    assert len(elements(picture.svg).found) < 4 * 62 + MOST_ARCS + 3 * 62 + 40
    assert len(picture.svg) < 64 << 10


@pytest.mark.parametrize("n", [0, 1])
def test_a_log_of_next_to_nothing_is_a_picture_too(n):
    assert_plain_svg(log_lane("log", log(n)).svg)


# caches, compaction, requests


def test_bars_are_as_high_as_their_pages():
    picture = cache_calls(
        "cache", np.array([[0, 0, 0, 0, 10], [5, 0, 0, 0, 5]]), np.array([100, 50]), ["cold", "warm"]
    )

    (storage_cold, storage_warm), (decoded,) = boxes(picture, "#e69f00"), boxes(picture, "#009e73")
    assert float(storage_cold["height"]) == 2 * float(storage_warm["height"]) == 2 * float(decoded["height"])
    assert "20 pages in 2 calls, 25% without storage; 150 B read" in elements(picture.svg).words
    assert {"cold", "warm"} <= set(elements(picture.svg).words)


def test_many_calls_share_bars():
    picture = cache_calls("cache", np.full((5_000, 5), 1), np.zeros(5_000, np.int64))

    assert len(boxes(picture, "#e69f00")) <= 64


def test_no_call_is_a_picture_too():
    assert_plain_svg(cache_calls("cache", np.zeros((0, 5), np.int64), np.zeros(0, np.int64)).svg)


def test_a_compaction_shows_the_columns_where_it_did_most():
    columns = [ColumnEffect(f"c{i}", 100 + i, 10, 5000, 4000) for i in range(MOST_COLUMNS + 7)]

    words = elements(compaction_effect("t", columns).svg).words

    assert "c46" in words
    assert "c0" not in words
    assert "and 7 columns more, where it did less" in words


def test_requests_stand_in_the_order_in_which_they_began():
    picture = waterfall("read", [request(2), request(1), request(0, failed=True)], 0.05)

    words = elements(picture.svg).words
    assert [word for word in words if word.startswith("pages/")] == ["pages/0", "pages/1", "pages/2"]
    assert "nothing there, or an error" in words
    assert "3 requests, 12.0 KiB, 50 ms" in words


def test_many_requests_share_a_line():
    picture = waterfall("read", [request(i) for i in range(5_000)], 60)

    assert len(boxes(picture, "#e69f00")) == MOST_LINES
    assert "… and 4,960 more requests" in elements(picture.svg).words


# all of them


@pytest.mark.parametrize(
    "picture",
    [
        chain_strip(HOSTILE, [lane(HOSTILE, [5, 5], [0, 1], (HOSTILE.replace("\ud800", ""), "b"))] * 2),
        table_strip(HOSTILE, [lane(HOSTILE, [5], [0])]),
        log_lane(HOSTILE, log(3)),
        cache_calls(HOSTILE, np.ones((1, 5), np.int64), np.ones(1, np.int64), [HOSTILE]),
        compaction_effect(HOSTILE, [ColumnEffect(HOSTILE, 3, 1, 10, 10)]),
        waterfall(HOSTILE, [ShownRequest("pages", HOSTILE, 0, 1, 1)], 1),
    ],
    ids=["chain", "table", "log", "cache", "compaction", "requests"],
)
def test_no_name_can_break_out_of_a_picture(picture):
    assert_plain_svg(picture.svg)
    assert [name for name, _ in elements(picture._repr_html_()).found] == ["img"]
    assert pictures_in(picture._repr_html_()) == [picture.svg]


def test_colours_are_told_apart_from_both_grounds_and_from_their_neighbours():
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    def contrast(one: str, other: str) -> float:
        low, high = sorted([light(one), light(other)])
        return (high + 0.05) / (low + 0.05)

    assert contrast(INK, "#ffffff") >= 4
    assert contrast(INK, "#111111") >= 4
    assert all(contrast(each, ground) >= 2 for each in SERIES for ground in ("#ffffff", "#111111"))
    assert all(contrast(a, b) >= 1.2 for a, b in pairwise([*SERIES, SERIES[0]]))


@pytest.mark.parametrize(
    ("end", "expected"), [(0, [0]), (5, [0, 1, 2, 3, 4, 5]), (336_776, [0, 100_000, 200_000, 300_000])]
)
def test_axes_have_round_numbers(end, expected):
    assert whole_ticks(end) == expected


def test_an_axis_of_seconds_may_have_fractions():
    assert ticks(0.05, 5) == pytest.approx([0, 0.01, 0.02, 0.03, 0.04, 0.05])
