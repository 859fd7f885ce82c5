"""Reading markup as a browser would, to see what a hostile name can do."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>]]>\x00\u202e{}%s\ud800"
"""A name that uses everything that HTML, XML and format strings give a meaning."""


class Elements(HTMLParser):
    """Every element of a document, with its attributes, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def elements(html: str) -> Elements:
    parser = Elements()
    parser.feed(html)
    parser.close()
    return parser


def pictures_in(html: str) -> list[str]:
    """The SVG documents that images of a page hold."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    return [base64.b64decode(each).decode() for each in found]


def assert_harmless(html: str) -> None:
    """Nothing runs, nothing is loaded, and no style sheet is needed."""
    seen = elements(html)
    names = {name for name, _ in seen.found}
    assert names <= {"div", "b", "code", "table", "thead", "tbody", "tr", "th", "td", "img"}
    for _, attributes in seen.found:
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("src") or "data:image/svg+xml;base64,").startswith(
            "data:image/svg+xml;base64,"
        )
    for svg in pictures_in(html):
        assert_plain_svg(svg)


def assert_plain_svg(svg: str) -> None:
    """SVG that a code host shows as it is: shapes and attributes, no script, style, reference or font."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    shapes = {f"{space}{name}" for name in ("svg", "title", "rect", "line", "circle", "path", "text")}
    for element in root.iter():
        assert element.tag in shapes
        given = set(element.attrib)
        assert not {name for name in given if name.startswith("on")} | given & {
            "style",
            "class",
            "href",
            "id",
        }
    assert "url(" not in svg
