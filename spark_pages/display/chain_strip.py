"""The chain strip: x is the row, each page a box, its colour the file that it is in.

Chains of many pages are drawn by columns of a few pixels, grey where several files share one, and a profile
below tells how many pages begin there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.display.canvas import FONT_SIZE, WIDTH, Canvas, Key, Picture, whole_ticks
from spark_pages.display.markup import BLUE, FAINT, INK, ORANGE, SERIES
from spark_pages.display.text import count, shorten, size

INLINE, CONSTANT, UNLOADED = -1, -2, -3
"""Codes of pages that are in no file: kept in a commit, said by a descriptor, or not loaded yet."""

_SEVERAL = -4

MOST_BOXES = 300
"""Pages of a lane that get a box each."""

BINS = 344
_NAMED_FILES = 6
_KNOWN_FILES = 4096
_PROFILE = 18
_KEYS = {
    INLINE: Key("none", "in the log", stroke=INK),
    CONSTANT: Key(INK, "one value, no bytes"),
    UNLOADED: Key(INK, "not loaded", opacity=FAINT),
    _SEVERAL: Key(INK, "several files", opacity=0.45),
}
_NEW = Key(INK, "bar above: not in the lane below")


@dataclass(frozen=True, eq=False, slots=True)
class Lane:
    """The pages of one chain, in row order.

    Attributes
    ----------
    label
        What the lane is, such as ``version 5``.
    ends : int64, shape (n_boxes,)
        Row behind the last one of each page; does not decrease.
    files : int32, shape (n_boxes,)
        Place in `names` of the file of each page, or one of the codes for none.
    names
        Keys of files.
    ids : int64, shape (n_boxes,)
        Page ids; 0 where nothing is loaded.
    pages : int64, shape (n_boxes,)
        Pages that a box stands for: 1, or more where nothing is loaded.
    """

    label: str
    ends: NDArray[np.int64]
    files: NDArray[np.int32]
    names: pa.StringArray
    ids: NDArray[np.int64]
    pages: NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        """Rows of the chain."""
        return int(self.ends[-1]) if len(self.ends) else 0


@dataclass(frozen=True, eq=False, slots=True)
class _Boxes:
    """Boxes of a lane.

    `codes[i]` is drawn from row `edges[i]` to `edges[i + 1]`, with whether it is marked, and how many pages
    begin there if a box stands for several.
    """

    edges: NDArray[Any]
    codes: NDArray[np.int64]
    marks: NDArray[np.bool_] | None
    profile: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where rows are on the picture: row 0 at `left`, `scale` pixels a row, boxes `box` pixels high."""

    left: float
    scale: float
    box: float


def chain_strip(title: str, lanes: Sequence[Lane]) -> Picture:
    """Draw a lane for each state of one chain, newest first, and mark what the next lane lacks.

    Notes
    -----
    O(pages log pages), in numpy. Whatever the number of pages, a lane takes `BINS` boxes at most, and as many
    marks.
    """
    rows = max((lane.num_rows for lane in lanes), default=0)
    frame = _Frame(0, WIDTH / max(rows, 1), 26)
    pages = ", ".join(f"{lane.label} {count(int(lane.pages.sum()), 'page')}" for lane in lanes)
    canvas = Canvas(f"{title}: {pages}")
    canvas.text(0, 14, title, bold=True, room=WIDTH)
    y = 22.0
    coded, names = _one_coding(lanes)
    drawn: set[int] = set()
    for lane, files, older in zip(lanes, coded, [*lanes[1:], None], strict=True):
        new = None if older is None else ~np.isin(lane.ids, older.ids)
        told = f"{count(int(lane.pages.sum()), 'page')}, {count(lane.num_rows, 'row')}"
        if new is not None:
            told += f", {int(lane.pages[new].sum()):,} of the pages new"
        canvas.text(0, y + 13, lane.label, small=True, room=WIDTH / 2)
        canvas.text(WIDTH, y + 13, told, anchor="end", small=True)
        boxes = _boxes(lane, files, new, frame)
        drawn.update(np.unique(boxes.codes).tolist())
        y = _draw_lane(canvas, y + 24, boxes, frame) + 8
    _draw_rows(canvas, y, rows, frame)
    return canvas.finish(canvas.legend(y + 30, _legend(drawn, names, len(lanes) > 1)))


def table_strip(title: str, lanes: Sequence[Lane]) -> Picture:
    """Draw a lane for each column of a table. Costs as of `chain_strip`."""
    rows = max((lane.num_rows for lane in lanes), default=0)
    left = 130
    frame = _Frame(left, (WIDTH - left) / max(rows, 1), 14)
    canvas = Canvas(f"{title}: {count(len(lanes), 'column')}, {count(rows, 'row')}")
    canvas.text(0, 14, title, bold=True, room=WIDTH)
    y = 24.0
    coded, names = _one_coding(lanes)
    drawn: set[int] = set()
    for lane, files in zip(lanes, coded, strict=True):
        boxes = _boxes(lane, files, None, frame)
        drawn.update(np.unique(boxes.codes).tolist())
        canvas.text(left - 10, y + 11, lane.label, anchor="end", small=True, room=left - 14)
        y = _draw_lane(canvas, y, boxes, frame) + 5
    _draw_rows(canvas, y, rows, frame)
    return canvas.finish(canvas.legend(y + 30, _legend(drawn, names, marked=False)))


def _one_coding(lanes: Sequence[Lane]) -> tuple[list[NDArray[np.int64]], list[str]]:
    """Files of all lanes under one numbering, in the order in which they come; names of the first of them."""
    every = pa.chunked_array([lane.names for lane in lanes], pa.string()).combine_chunks()
    every = every.dictionary_encode()
    same = np.append(every.indices.to_numpy(zero_copy_only=False).astype(np.int64), 0)
    coded, first = [], 0
    for lane in lanes:
        coded.append(
            np.where(lane.files >= 0, same[np.maximum(lane.files, 0) + first], lane.files).astype(np.int64)
        )
        first += len(lane.names)
    whole = np.concatenate(coded) if coded else np.zeros(0, np.int64)
    found, at = np.unique(whole[whole >= 0], return_index=True)
    rank = np.zeros(int(found[-1]) + 1 if len(found) else 1, np.int64)
    order = found[np.argsort(at)]
    rank[order] = np.arange(len(order))
    renamed = [np.where(files >= 0, rank[np.maximum(files, 0)], files) for files in coded]
    return renamed, every.dictionary.take(pa.array(order[:_KNOWN_FILES])).to_pylist()


def _boxes(lane: Lane, files: NDArray[np.int64], new: NDArray[np.bool_] | None, frame: _Frame) -> _Boxes:
    """Return the boxes of a lane."""
    starts = np.concatenate([[0], lane.ends[:-1]])
    if len(lane.ends) <= MOST_BOXES:
        held = np.flatnonzero(lane.ends > starts)
        edges = np.append(starts[held], lane.num_rows)
        return _Boxes(edges, files[held], None if new is None else new[held], None)
    n = max(1, round(BINS * lane.num_rows * frame.scale / WIDTH))
    edges = np.linspace(0, lane.num_rows, n + 1)
    middle = np.searchsorted(lane.ends, (edges[:-1] + edges[1:]) / 2, side="right")
    changes = np.histogram(starts[1:][files[1:] != files[:-1]], edges)[0]
    marks = None if new is None else (np.histogram(starts[new], edges)[0] > 0) | new[middle]
    profile = np.histogram(starts, edges, weights=lane.pages)[0]
    return _Boxes(edges, np.where(changes > 1, _SEVERAL, files[middle]), marks, profile)


def _draw_lane(canvas: Canvas, y: float, boxes: _Boxes, frame: _Frame) -> float:
    """Draw the lane at `y`, and return the y below it."""
    x = (boxes.edges * frame.scale + frame.left).tolist()
    single = boxes.profile is None  # each box is a page, and a gap tells it from the next
    for first, end in _equal_runs(boxes.codes, single):
        gap = 0.0 if not single else 1.0 if x[end] - x[first] > 2.5 else 0.25
        _draw_box(canvas, x[first], y, x[end] - x[first] - gap, frame.box, int(boxes.codes[first]))
    if boxes.marks is not None:
        for first, end in _equal_runs(boxes.marks):
            if boxes.marks[first]:
                canvas.rect(x[first], y - 4, x[end] - x[first], 2.4, INK)
    if boxes.profile is None:
        return y + frame.box
    base, top = y + frame.box + 3 + _PROFILE, float(boxes.profile.max()) or 1.0
    heights = (base - boxes.profile / top * _PROFILE).tolist()
    points = "".join(f"L{x[i]:.1f} {high:.1f}H{x[i + 1]:.1f}" for i, high in enumerate(heights))
    canvas.path(f"M{x[0]:.1f} {base:.1f}{points}V{base:.1f}Z", fill=INK, opacity=0.45)
    step = count(round((boxes.edges[-1] - boxes.edges[0]) / len(heights)), "row")
    canvas.text(frame.left, base + 12, f"pages in every {step}: {top:,.0f} at most", small=True)
    return base + 14


def _draw_box(canvas: Canvas, x: float, y: float, width: float, height: float, code: int) -> None:
    if code == INLINE:
        canvas.rect(x + 0.5, y + 0.5, width - 1, height - 1, "none", stroke=INK)
    elif code == CONSTANT:
        canvas.rect(x, y + height * 0.75, width, height / 4, INK)
    else:
        key = _KEYS.get(code) or Key(SERIES[code % len(SERIES)], "")
        canvas.rect(x, y, width, height, key.fill, opacity=key.opacity)


def _draw_rows(canvas: Canvas, y: float, rows: int, frame: _Frame) -> None:
    """Draw the axis of row numbers."""
    canvas.line(frame.left, y, WIDTH, y)
    for tick in whole_ticks(rows):
        x = frame.left + tick * frame.scale
        canvas.line(x, y, x, y + 4)
        anchor = "start" if x < frame.left + 30 else "end" if x > WIDTH - 40 else "middle"
        canvas.text(x, y + 17, f"row {tick:,}" if not tick else f"{tick:,}", anchor=anchor, small=True)


def _legend(codes: set[int], names: Sequence[str], marked: bool) -> Iterator[Key]:
    """Iterate over the legend of the drawn codes."""
    files = sorted(code for code in codes if code >= 0)
    for code in files[:_NAMED_FILES]:
        if code < len(names):
            yield Key(SERIES[code % len(SERIES)], _file(names[code]))
    if len(files) > _NAMED_FILES:
        yield Key("none", "and more files, in the same colours again")
    yield from (key for code, key in _KEYS.items() if code in codes)
    if marked:
        yield _NEW


def _file(key: str) -> str:
    """Shorten a key: no folder, no leading zeros, no middle."""
    return shorten(re.sub(r"^0+(?=\d)", "", key.rpartition("/")[2]), 26)


def _equal_runs(values: NDArray[Any], single: bool = False) -> Iterator[tuple[int, int]]:
    """Where equal values stand next to each other, or each by itself: first, and one behind the last."""
    cuts = np.arange(1, len(values)) if single else np.flatnonzero(values[1:] != values[:-1]) + 1
    return pairwise([0, *cuts.tolist(), len(values)] if len(values) else [])


MOST_COLUMNS = 40
_LEFT, _RIGHT, _LINE = 170, 300, 24


@dataclass(frozen=True, slots=True)
class ColumnEffect:
    """One column, before and after.

    Attributes
    ----------
    name
        The column.
    pages_before, pages_after
        Its pages.
    bytes_before, bytes_after
        Their bytes as stored.
    """

    name: str
    pages_before: int
    pages_after: int
    bytes_before: int
    bytes_after: int


def compaction_effect(title: str, columns: Sequence[ColumnEffect]) -> Picture:
    """Draw a line for each column on a logarithmic scale; of many, those that changed most."""
    before, after = sum(c.pages_before for c in columns), sum(c.pages_after for c in columns)
    canvas = Canvas(f"{title}: {before:,} → {count(after, 'page')}")
    canvas.text(0, 14, title, bold=True, room=WIDTH - _RIGHT)
    stored = f"{size(sum(c.bytes_before for c in columns))} → {size(sum(c.bytes_after for c in columns))}"
    canvas.text(WIDTH, 14, f"{before:,} → {count(after, 'page')}, {stored}", anchor="end", small=True)
    shown = columns
    if len(columns) > MOST_COLUMNS:
        shown = sorted(columns, key=lambda c: c.pages_after - c.pages_before)[:MOST_COLUMNS]
    counts = [pages for c in shown for pages in (c.pages_before, c.pages_after)]
    low = math.floor(math.log10(max(min(counts, default=1), 1)))
    high = max(math.ceil(math.log10(max(counts, default=1) or 1)), low + 1)

    def place(pages: int) -> float:
        return _LEFT + (math.log10(max(pages, 1)) - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    y = 30.0
    bottom = y + _LINE * len(shown)
    for power in range(low, high + 1):
        x = place(10**power)
        canvas.rect(x - 0.5, y, 1, bottom - y, INK, opacity=FAINT * 1.6)
        canvas.text(x, bottom + 15, f"{10**power:,}", anchor="middle", small=True)
    for column in shown:
        middle = y + _LINE / 2
        canvas.text(_LEFT - 14, middle + FONT_SIZE / 3, column.name, anchor="end", room=_LEFT - 20)
        start, end = place(column.pages_before), place(column.pages_after)
        if abs(start - end) > 1:
            canvas.line(start, middle, end, middle, width=2.5)
        canvas.circle(start, middle, 5, "none", stroke=ORANGE)
        canvas.circle(end, middle, 5, BLUE)
        told = (
            f"{column.pages_before:,} → {count(column.pages_after, 'page')}, "
            f"{size(column.bytes_before)} → {size(column.bytes_after)}"
        )
        canvas.text(WIDTH, middle + FONT_SIZE / 3, told, anchor="end", small=True, room=_RIGHT - 8)
        y += _LINE
    canvas.text(_LEFT - 14, bottom + 15, "pages", anchor="end", small=True)
    keys = [Key("none", "before", stroke=ORANGE), Key(BLUE, "after")]
    if len(columns) > len(shown):
        keys.append(Key("none", f"and {len(columns) - len(shown):,} columns more, where it did less"))
    return canvas.finish(canvas.legend(bottom + 30, keys))
