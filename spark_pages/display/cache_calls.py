"""The cache: where the pages of each call came from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spark_pages.display.axis import whole_ticks
from spark_pages.display.canvas import WIDTH, Canvas, Key, Picture, text_width
from spark_pages.display.colours import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, SKY
from spark_pages.display.text import count, size

TIERS = ("decoded", "compressed", "disk", "another call", "storage")
"""From the quickest to the slowest."""

MOST_BARS = 64
_COLOURS = (GREEN, SKY, PURPLE, BLUE, ORANGE)
_LEFT, _PLOT = 52, 130


def cache_calls(
    title: str, pages: NDArray[np.int64], bytes_read: NDArray[np.int64], labels: Sequence[str] = ()
) -> Picture:
    """A bar for each call.

    Parameters
    ----------
    pages : int64, shape (n_calls, 5)
        Pages of each call by `TIERS`.
    bytes_read : int64, shape (n_calls,)
        Bytes that storage gave.
    labels
        Names of the calls; numbers where there are none.

    Notes
    -----
    More than `MOST_BARS` calls are added up in equal shares, one bar for each.
    """
    calls = len(pages)
    total, hits = int(pages.sum()), int(pages[:, :4].sum())
    share = f", {hits / total:.0%} without storage" if total else ""
    canvas = Canvas(f"{title}: {count(total, 'page')} in {count(calls, 'call')}{share}")
    canvas.text(0, 14, title, bold=True, room=WIDTH * 0.55)
    told = f"{count(total, 'page')} in {count(calls, 'call')}{share}; {size(int(bytes_read.sum()))} read"
    canvas.text(WIDTH, 14, told, anchor="end", small=True)
    if not calls:
        canvas.text(0, 40, "no call yet")
        return canvas.finish(50)
    each = -(-calls // MOST_BARS)
    firsts = np.arange(0, calls, each)
    bars = np.add.reduceat(pages, firsts, axis=0)
    top = max(int(bars.sum(axis=1).max()), 1)
    base = 34.0 + _PLOT
    for tick in whole_ticks(top, 4):
        y = base - tick / top * _PLOT
        canvas.rect(_LEFT, y - 0.5, WIDTH - _LEFT, 1, INK, opacity=FAINT * 1.6)
        canvas.text(_LEFT - 6, y + 4, f"{tick:,}", anchor="end", small=True)
    wide = min((WIDTH - _LEFT) / len(bars), 90)
    gap = 1 if wide < 10 else wide * 0.18
    for index, bar in enumerate(bars.tolist()):
        y = base
        for colour, part in zip(_COLOURS, bar, strict=True):
            high = part / top * _PLOT
            y -= high
            if part:
                canvas.rect(_LEFT + index * wide + gap / 2, y, wide - gap, high, colour)
    canvas.line(_LEFT, base, WIDTH, base)
    _draw_labels(canvas, labels, firsts, each, wide, base)
    entries = [
        Key(colour, f"{name}: {int(part):,}")
        for colour, name, part in zip(_COLOURS, TIERS, pages.sum(axis=0), strict=True)
        if part
    ]
    return canvas.finish(canvas.legend(base + 30, entries))


def _draw_labels(
    canvas: Canvas, labels: Sequence[str], firsts: NDArray[np.int64], each: int, wide: float, base: float
) -> None:
    """Under each bar what it is, as far as there is room."""
    free_from = 0.0
    for index, first in enumerate(firsts.tolist()):
        named = each == 1 and first < len(labels)
        words = labels[first] if named else f"call {first + 1}" if not index else f"{first + 1}"
        room = text_width(words, small=True)
        if named:
            room = min(room, max(wide - 6, 30))
        middle = min(_LEFT + (index + 0.5) * wide, WIDTH - room / 2)
        if middle - room / 2 >= free_from:
            canvas.text(middle, base + 16, words, anchor="middle", small=True, room=room + 1)
            free_from = middle + room / 2 + 6
