"""Charts of requests: the waterfall of one read, and where several reads found their pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.display.canvas import FONT_SIZE, WIDTH, Canvas, Key, Picture, text_width, ticks, whole_ticks
from spark_pages.display.markup import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, RED, SKY
from spark_pages.display.text import count, seconds, size

MOST_LINES = 40
_LEFT, _LINE = 290, 19


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """One request.

    Attributes
    ----------
    what
        The kind of object, by which it is coloured: one of `KINDS`.
    key
        The object, and the place in it.
    start_s, end_s
        When it began and ended, in seconds since the question was asked.
    size_bytes
        Bytes of the answer.
    failed
        Whether it brought an error, such as that there is no such object.
    """

    what: str
    key: str
    start_s: float
    end_s: float
    size_bytes: int
    failed: bool = False


KINDS = {"commit": BLUE, "checkpoint": PURPLE, "pages": ORANGE}
"""Kinds of objects, with their colours."""


def waterfall(title: str, requests: Sequence[ShownRequest], total_s: float) -> Picture:
    """Draw a line for each request, in order of their start.

    Parameters
    ----------
    total_s
        Seconds until the answer was there.

    Notes
    -----
    The first `MOST_LINES` have a line of their own; the others share one, which shows when there were any.
    """
    read = sum(request.size_bytes for request in requests)
    told = f"{count(len(requests), 'request')}, {size(read)}, {seconds(total_s)}"
    canvas = Canvas(f"{title}: {told}")
    canvas.text(0, 14, title, bold=True, room=WIDTH - text_width(told) - 20)
    canvas.text(WIDTH, 14, told, anchor="end", small=True)
    ordered = sorted(requests, key=lambda request: request.start_s)
    shown, rest = ordered[:MOST_LINES], ordered[MOST_LINES:]
    total = max([total_s, *(request.end_s for request in requests)]) or 1e-9
    scale = (WIDTH - _LEFT - 4) / total
    y = 30.0
    bottom = y + _LINE * (len(shown) + bool(rest))
    for tick in ticks(total, 5):
        x = _LEFT + tick * scale
        canvas.rect(x - 0.5, y, 1, bottom - y, INK, opacity=FAINT * 1.6)
        words = seconds(tick) if tick else "0"
        anchor = "end" if x + text_width(words, small=True) / 2 > WIDTH else "middle"
        canvas.text(x, bottom + 15, words, anchor=anchor, small=True)
    for request in shown:
        _draw(canvas, request, y, scale)
        y += _LINE
    if rest:
        canvas.text(0, y + FONT_SIZE + 1, f"… and {count(len(rest), 'more request')}", small=True)
        first, last = rest[0].start_s, max(request.end_s for request in rest)
        canvas.rect(_LEFT + first * scale, y + 4, (last - first) * scale, _LINE - 8, INK, opacity=0.45)
    keys = [Key(KINDS[what], what) for what in KINDS if any(request.what == what for request in requests)]
    if any(request.failed for request in requests):
        keys.append(Key("none", "nothing there, or an error", stroke=RED))
    return canvas.finish(canvas.legend(bottom + 28, keys))


def _draw(canvas: Canvas, request: ShownRequest, y: float, scale: float) -> None:
    key = re.sub(r"0{4,}(?=\d)", "…", request.key)  # numbers are padded to 20 digits
    canvas.text(0, y + FONT_SIZE + 1, key, small=True, room=_LEFT - 24)
    x, wide = _LEFT + request.start_s * scale, max((request.end_s - request.start_s) * scale, 1.5)
    fill, stroke = ("none", RED) if request.failed else (KINDS[request.what], None)
    canvas.rect(x, y + 4, wide, _LINE - 8, fill, stroke=stroke, rounded=1.5)
    told = f"{size(request.size_bytes)}, {seconds(request.end_s - request.start_s)}"
    room = text_width(told, small=True)
    if x + wide + 6 + room <= WIDTH:
        canvas.text(x + wide + 6, y + FONT_SIZE + 1, told, small=True)
    elif x - 6 - room >= _LEFT:
        canvas.text(x - 6, y + FONT_SIZE + 1, told, anchor="end", small=True)


TIERS = ("decoded", "compressed", "disk", "another call", "storage")
"""From the quickest to the slowest."""

MOST_BARS = 64
_COLOURS = (GREEN, SKY, PURPLE, BLUE, ORANGE)
_CALLS_LEFT, _PLOT = 52, 130


def cache_calls(
    title: str, pages: NDArray[np.int64], bytes_read: NDArray[np.int64], labels: Sequence[str] = ()
) -> Picture:
    """Draw a bar for each call.

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
        canvas.rect(_CALLS_LEFT, y - 0.5, WIDTH - _CALLS_LEFT, 1, INK, opacity=FAINT * 1.6)
        canvas.text(_CALLS_LEFT - 6, y + 4, f"{tick:,}", anchor="end", small=True)
    wide = min((WIDTH - _CALLS_LEFT) / len(bars), 90)
    gap = 1 if wide < 10 else wide * 0.18
    for index, bar in enumerate(bars.tolist()):
        y = base
        for colour, part in zip(_COLOURS, bar, strict=True):
            high = part / top * _PLOT
            y -= high
            if part:
                canvas.rect(_CALLS_LEFT + index * wide + gap / 2, y, wide - gap, high, colour)
    canvas.line(_CALLS_LEFT, base, WIDTH, base)
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
        middle = min(_CALLS_LEFT + (index + 0.5) * wide, WIDTH - room / 2)
        if middle - room / 2 >= free_from:
            canvas.text(middle, base + 16, words, anchor="middle", small=True, room=room + 1)
            free_from = middle + room / 2 + 6
