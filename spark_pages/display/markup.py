"""HTML and SVG as text, escaped where it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_pages.display.text import fit, shorten

# Not `html.escape`: importing it costs as much as all of this package, and who opens a store imports this.
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})

MOST_ROWS = 100
"""Rows that a table shows; it tells how many more there are."""


class Markup(str):
    """Text that is markup already; any other text is escaped when it becomes part of some."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element.

    Parameters
    ----------
    children
        `Markup` goes in as it is, everything else as escaped text.
    attributes
        An underscore stands for a hyphen, and one at the end for nothing; None leaves the attribute out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(str, map(text, children)))
    return Markup(f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}></{name}>")


def text(value: object) -> Markup:
    """The value as markup that shows it."""
    return value if isinstance(value, Markup) else Markup(_escaped(value))


def joined(*parts: object) -> Markup:
    """The parts one after another."""
    return Markup("".join(map(text, parts)))


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], more: int = 0, right: Collection[str] = ()
) -> Markup:
    """A table: numbers to the right, all else to the left, long text without its middle.

    Parameters
    ----------
    rows
        The first `MOST_ROWS` of them are shown.
    more
        Rows that there are besides those given.
    right
        Heads of further columns whose cells stand to the right, such as sizes.
    """
    shown = rows[:MOST_ROWS]
    turned = [
        name in right or any(_is_number(row[index]) for row in shown) for index, name in enumerate(heads)
    ]
    body = [
        tag("tr", *(_cell("td", _shown(value), turned[index]) for index, value in enumerate(row)))
        for row in shown
    ]
    more += len(rows) - len(shown)
    if more:
        body.append(tag("tr", tag("td", f"… and {more:,} more", colspan=len(heads))))
    head = tag("tr", *(_cell("th", name, turned[index]) for index, name in enumerate(heads)))
    return tag("table", tag("thead", head), tag("tbody", *body))


def facts(values: Mapping[str, object]) -> Markup:
    """Names and values, one a line."""
    rows = (
        tag("tr", _cell("th", name, right=False), _cell("td", _shown(value), right=False))
        for name, value in values.items()
    )
    return tag("table", tag("tbody", *rows))


def card(heading: object, *parts: object) -> Markup:
    """A heading, what it is about, and parts below each other."""
    return tag("div", tag("div", heading), *(tag("div", part) for part in parts))


def _escaped(value: object) -> str:
    return fit(str(value)).translate(_ESCAPED)


def _cell(name: str, value: object, right: bool) -> Markup:
    side = "right" if right else "left"  # notebooks turn all cells to the right, code hosts strip styles
    return tag(name, value, align=side, style=f"text-align:{side}")


def _shown(value: object) -> object:
    match value:
        case Markup():
            return value
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return shorten(str(value), 160)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
