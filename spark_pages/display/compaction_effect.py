"""The compaction effect: pages of each column before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spark_pages.display.canvas import FONT_SIZE, WIDTH, Canvas, Key, Picture
from spark_pages.display.colours import BLUE, FAINT, INK, ORANGE
from spark_pages.display.text import count, size

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
    """A line for each column, on a scale of powers; of many, those where it did most."""
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
