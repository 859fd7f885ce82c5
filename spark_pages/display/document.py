"""A page of its own: everything that it needs is in it."""

from __future__ import annotations

from collections.abc import Iterable

from spark_pages.display.colours import INK
from spark_pages.display.markup import Markup, joined, tag

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
    """An HTML document that loads nothing and runs nothing, for light and dark screens."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
        Markup(tag("meta", http_equiv="Content-Security-Policy", content=_POLICY).removesuffix("</meta>")),
        tag("title", title),
        tag("style", Markup(_STYLE)),
    )
    body = tag("body", tag("h1", title), tag("p", subtitle), *sections)
    return joined(Markup("<!doctype html>\n"), tag("html", head, body, lang="en"), "\n")
