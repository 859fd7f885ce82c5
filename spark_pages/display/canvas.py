"""A drawing surface that gives SVG of attributes alone: what code hosts strip is not used."""

from __future__ import annotations

import math
from binascii import b2a_base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spark_pages.display.markup import INK, Markup, tag
from spark_pages.display.text import fit, shorten


def ticks(end: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to `end`, no more than `most` + 1 of them."""
    if end <= 0:
        return [0.0]
    raw = end / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    return [step * index for index in range(int(end / step * (1 + 1e-9)) + 1)]


def whole_ticks(end: int, most: int = 6) -> list[int]:
    """Return ticks at whole numbers."""
    return sorted({round(tick) for tick in ticks(end, min(most, max(end, 1)))})


WIDTH = 860
"""Pixels of every picture from left to right; it shrinks where there is less room."""

FONT_SIZE = 12
_FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_CHAR_WIDTH = 0.58  # of a character, as a part of the font size: a little more than most fonts need


class Key(NamedTuple):
    """One entry of a legend: a box, filled, or empty if `fill` is ``"none"``, and what it means."""

    fill: str
    label: str
    stroke: str | None = None
    opacity: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished picture; notebooks show it as it is.

    Attributes
    ----------
    svg
        The picture as an SVG document; write it to a file, or put it into a page.
    caption
        What there is to see, in a sentence, for those who cannot.
    width, height
        Pixels.
    """

    svg: str
    caption: str
    width: int
    height: int

    def __repr__(self) -> str:
        return f"Picture({self.caption!r}, {self.width} × {self.height}, {len(self.svg):,} bytes)"

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.image

    @property
    def image(self) -> Markup:
        """The picture as an ``<img>``, which holds it: code hosts keep these, and strip ``<svg>``."""
        data = b2a_base64(self.svg.encode(), newline=False).decode()
        source = f"data:image/svg+xml;base64,{data}"
        return Markup(tag("img", src=source, alt=self.caption, width=self.width).removesuffix("</img>"))

    @property
    def inline(self) -> Markup:
        """The picture as an ``<svg>`` element, for a page of one's own."""
        return Markup(self.svg)


class Canvas:
    """Shapes, drawn one over the other.

    Parameters
    ----------
    caption
        See `Picture`.
    """

    def __init__(self, caption: str) -> None:
        self._caption = shorten(fit(caption), 300)
        self._shapes: list[Markup] = []

    def __len__(self) -> int:
        return len(self._shapes)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        opacity: float | None = None,
        stroke: str | None = None,
        rounded: float | None = None,
    ) -> None:
        """Draw a box."""
        shape = {"x": _n(x), "y": _n(y), "width": _n(max(width, 0.4)), "height": _n(height), "fill": fill}
        self._add("rect", **shape, fill_opacity=opacity, stroke=stroke, rx=rounded)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, width: float = 1) -> None:
        """Draw a straight line."""
        ends = {"x1": _n(x1), "y1": _n(y1), "x2": _n(x2), "y2": _n(y2)}
        self._add("line", **ends, stroke=INK, stroke_width=_n(width))

    def circle(self, x: float, y: float, radius: float, fill: str, *, stroke: str | None = None) -> None:
        """Draw a disc, or a ring if `fill` is ``"none"``."""
        width = 1.6 if stroke else None
        self._add("circle", cx=_n(x), cy=_n(y), r=_n(radius), fill=fill, stroke=stroke, stroke_width=width)

    def path(
        self,
        points: str,
        *,
        fill: str = "none",
        stroke: str | None = None,
        opacity: float | None = None,
        width: float | None = None,
    ) -> None:
        """Draw an SVG path."""
        self._add("path", d=points, fill=fill, stroke=stroke, opacity=opacity, stroke_width=width)

    def diamond(self, x: float, y: float, radius: float, fill: str) -> None:
        """Draw a diamond around a point."""
        self.path(
            f"M{_n(x - radius)} {_n(y)}L{_n(x)} {_n(y - radius)}L{_n(x + radius)} {_n(y)}"
            f"L{_n(x)} {_n(y + radius)}Z",
            fill=fill,
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        bold: bool = False,
        small: bool = False,
        room: float | None = None,
    ) -> None:
        """Words whose base line begins, ends or is centred at a point; shortened to the room given."""
        font_size = FONT_SIZE - 1 if small else FONT_SIZE
        if room is not None:
            words = shorten(words, max(int(room / (font_size * _CHAR_WIDTH)), 1))
        self._add(
            "text",
            words,
            x=_n(x),
            y=_n(y),
            fill=INK,
            font_size=font_size,
            font_weight="600" if bold else None,
            text_anchor=None if anchor == "start" else anchor,
        )

    def legend(self, y: float, keys: Iterable[Key]) -> float:
        """Boxes and what they mean, in as many lines as that takes; gives the y below the last."""
        x = 0.0
        for key in keys:
            shown = shorten(key.label, 48)
            wide = 18 + text_width(shown, small=True) + 16
            if x and x + wide > WIDTH:
                x, y = 0.0, y + 18
            self.rect(x, y, 11, 11, key.fill, stroke=key.stroke, opacity=key.opacity, rounded=2)
            self.text(x + 17, y + 10, shown, small=True)
            x += wide
        return y + 18

    def finish(self, height: float) -> Picture:
        """Return the picture at this height in pixels."""
        whole = int(height + 0.999)
        svg = tag(
            "svg",
            tag("title", self._caption),
            *self._shapes,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {whole}",
            width=WIDTH,
            height=whole,
            role="img",
            font_family=_FONT,
        )
        return Picture(str(svg), self._caption, WIDTH, whole)

    def _add(self, name: str, *children: object, **attributes: object) -> None:
        self._shapes.append(tag(name, *children, **attributes))


def text_width(words: str, small: bool = False) -> float:
    """About how many pixels the words take."""
    return len(words) * (FONT_SIZE - 1 if small else FONT_SIZE) * _CHAR_WIDTH


def _n(value: float) -> str:
    """Format a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
