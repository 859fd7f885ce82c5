"""HTML and SVG as text, escaped where it is made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from spark_pages.display.text import fit, shorten

INK = "#767f8c"
"""Text and thin lines: a contrast of 4.0 to white and of 4.7 to the near-black of dark notebooks."""

BLUE, ORANGE, GREEN = "#2b83c6", "#e69f00", "#009e73"
PURPLE, SKY, RED = "#cc79a7", "#56b4e9", "#d55e00"
"""Okabe and Ito's colours, told apart in all common kinds of colour blindness; the blue is a little lighter
than theirs, for dark pages."""

SERIES = (BLUE, ORANGE, GREEN, SKY, RED, PURPLE)
"""For things in a row: each differs much from its neighbours, in brightness too."""

FAINT = 0.18
"""Opacity of grounds and grids."""

# Not `html.escape`: importing it costs as much as all of this package, and who opens a store imports this.
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})

MOST_ROWS = 100
"""Rows that a table shows; it tells how many more there are."""


class Markup(str):
    """Text that is markup already; any other text is escaped when it becomes part of some."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Create an element.

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
    """Create markup that shows a value."""
    return value if isinstance(value, Markup) else Markup(_escaped(value))


def joined(*parts: object) -> Markup:
    """Concatenate markup."""
    return Markup("".join(map(text, parts)))


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], more: int = 0, right: Collection[str] = ()
) -> Markup:
    """Create a table: numbers right-aligned, the rest left-aligned, long text without its middle.

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
    """Create a card: a heading, its subject, and parts below each other."""
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


# Pictures have one ink that holds on both grounds; a page knows its ground, and can do better.
_STYLE = f"""
:root {{ color-scheme: light dark; --ink: #24292f; --ground: #ffffff; --line: #d0d7de; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #c9d1d9; --ground: #0d1117; --line: #30363d; }} }}
body {{ margin: 2rem auto; max-width: 880px; padding: 0 1rem; color: var(--ink); background: var(--ground);
  font: 14px/1.5 ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; }}
h1 {{ font-size: 1.4rem; overflow-wrap: anywhere; margin-bottom: 0.2rem; }}
h2 {{ font-size: 1.1rem; margin: 2.2rem 0 0.6rem; overflow-wrap: anywhere; }}
svg {{ display: block; max-width: 100%; height: auto; margin: 0.8rem 0; }}
svg text[fill="{INK}"] {{ fill: var(--ink); }}
table {{ border-collapse: collapse; margin: 0.6rem 0; font-variant-numeric: tabular-nums; display: block;
  overflow-x: auto; }}
th, td {{ padding: 0.15rem 1.1rem 0.15rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th {{ font-weight: 600; }}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, subtitle: object, sections: Iterable[Markup]) -> Markup:
    """Create an HTML document without scripts and external resources, for light and dark screens."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
        Markup(tag("meta", http_equiv="Content-Security-Policy", content=_POLICY).removesuffix("</meta>")),
        tag("title", title),
        tag("style", Markup(_STYLE)),
    )
    body = tag("body", tag("h1", title), tag("p", subtitle), *sections)
    return joined(Markup("<!doctype html>\n"), tag("html", head, body, lang="en"), "\n")
