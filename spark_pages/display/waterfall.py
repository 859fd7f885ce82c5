"""The request waterfall: what one question asked of storage, and when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spark_pages.display.axis import ticks
from spark_pages.display.canvas import FONT_SIZE, WIDTH, Canvas, Key, Picture, text_width
from spark_pages.display.colours import BLUE, FAINT, INK, ORANGE, PURPLE, RED
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
    """A line for each request, in the order in which they began.

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
