"""Draw the pictures of docs/concepts.md.

Run ``python docs/images/concepts.py`` after a change to this file. A test compares the pictures with it.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH = 720
GREY, BLUE, ORANGE, GREEN, PURPLE = "#767f8c", "#2b83c6", "#c77700", "#008a63", "#8d5fb5"
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def box(x: int, y: int, width: int, label: str, colour: str, note: str = "") -> str:
    """Draw a labelled box of 34 pixels height, with an optional note below it."""
    middle = x + width / 2
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="34" rx="4" fill="{colour}"/>',
        f'<text x="{middle}" y="{y + 22}" fill="#ffffff" font-size="13" text-anchor="middle">'
        f"{escape(label)}</text>",
    ]
    if note:
        parts.append(text(middle, y + 51, note, "middle"))
    return "".join(parts)


def text(x: float, y: float, words: str, anchor: str = "start", weight: int = 400) -> str:
    """Write one line of grey text."""
    return (
        f'<text x="{x}" y="{y}" fill="{GREY}" font-size="12" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    """Draw an arrow from the first point to the second."""
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{GREY}" stroke-width="1.5" '
        f'marker-end="url(#head)"/>'
    )


def picture(title: str, height: int, *parts: str) -> str:
    """Put the parts into one SVG document."""
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" font-family="{escape(FONT)}"><title>{escape(title)}</title>'
        f"{head}{''.join(parts)}</svg>\n"
    )


def page() -> str:
    """Draw a page inside a page file."""
    return picture(
        "A page is an aligned, compressed run of values of one column inside a page file.",
        140,
        text(0, 16, "page file  pages/…-0.pages", weight=600),
        box(0, 30, 170, "page of distance", BLUE, "rows 0 to 8,191"),
        box(180, 30, 130, "page of distance", BLUE, "rows 8,192 to 16,383"),
        box(320, 30, 150, "page of day", GREEN, "rows 0 to 16,383"),
        f'<line x1="0" y1="104" x2="{WIDTH}" y2="104" stroke="{GREY}"/>',
        *(f'<line x1="{x}" y1="100" x2="{x}" y2="108" stroke="{GREY}"/>' for x in (1, 180, 320, 480)),
        text(1, 125, "offset 0"),
        text(180, 125, "65,536", "middle"),
        text(320, 125, "110,592", "middle"),
        text(480, 125, "each offset is a multiple of 4,096"),
    )


def chain() -> str:
    """Draw a column chain with its prefix sums, and a search for one row."""
    return picture(
        "A chain lists the pages of a column with running sums of their rows.",
        150,
        text(0, 32, "pages"),
        box(110, 10, 140, "8,192 rows", BLUE),
        box(260, 10, 140, "8,192 rows", BLUE),
        box(410, 10, 90, "3,616 rows", BLUE),
        text(0, 78, "prefix_entries"),
        text(180, 78, "8,192", "middle"),
        text(330, 78, "16,384", "middle"),
        text(455, 78, "20,000", "middle"),
        arrow(330, 118, 330, 88),
        text(
            110,
            134,
            "row 12,345: the first sum above it is 16,384; page 1, at 12,345 − 8,192 = 4,153",
        ),
    )


def commit() -> str:
    """Draw the log as a row of numbered commits."""
    return picture(
        "The log is a sequence of numbered commits; each is created only if its number is free.",
        130,
        box(0, 20, 110, "commit 0", PURPLE, "creates the store"),
        arrow(112, 37, 146, 37),
        box(148, 20, 110, "commit 1", PURPLE, "creates a table"),
        arrow(260, 37, 294, 37),
        box(296, 20, 110, "commit 2", PURPLE, "appends rows"),
        arrow(408, 37, 442, 37),
        f'<rect x="444" y="20" width="110" height="34" rx="4" fill="none" stroke="{GREY}" '
        'stroke-dasharray="5 4"/>',
        text(499, 42, "commit 3", "middle"),
        text(499, 71, "free", "middle"),
        text(
            0,
            112,
            "A writer puts commit 3 if no object has that name. If another was first, it tries 4.",
        ),
    )


def checkpoint() -> str:
    """Draw the tree of a checkpoint, and what two checkpoints share."""
    return picture(
        "A checkpoint is a tree of immutable objects; two checkpoints share what has not changed.",
        220,
        box(120, 10, 180, "root of version 100", PURPLE),
        box(420, 10, 180, "root of version 200", ORANGE),
        arrow(190, 46, 130, 84),
        arrow(230, 46, 340, 84),
        arrow(500, 46, 380, 84),
        arrow(540, 46, 610, 84),
        box(60, 86, 140, "manifest part", PURPLE),
        box(290, 86, 140, "manifest part", PURPLE, ""),
        box(540, 86, 140, "manifest part", ORANGE),
        arrow(110, 122, 60, 160),
        arrow(150, 122, 195, 160),
        arrow(360, 122, 360, 160),
        arrow(590, 122, 520, 160),
        arrow(630, 122, 655, 160),
        box(0, 162, 120, "segment", PURPLE, "8,192 pages"),
        box(135, 162, 120, "segment", PURPLE),
        box(300, 162, 120, "segment", PURPLE, "in both checkpoints"),
        box(455, 162, 120, "segment", ORANGE),
        box(595, 162, 120, "segment", ORANGE),
    )


def snapshot() -> str:
    """Draw a snapshot as a checkpoint plus the commits after it."""
    return picture(
        "A snapshot of version 205 is the checkpoint of version 200 plus commits 201 to 205.",
        140,
        box(0, 20, 190, "checkpoint of version 200", ORANGE),
        text(200, 42, "+"),
        *(box(222 + 76 * i, 20, 70, f"{201 + i}", PURPLE) for i in range(5)),
        text(610, 42, "="),
        f'<rect x="0" y="80" width="{WIDTH - 1}" height="34" rx="4" fill="none" stroke="{GREY}"/>',
        text(WIDTH / 2, 102, "snapshot of version 205: all its tables, columns and pages", "middle"),
        text(0, 134, "Nodes of the checkpoint are read when you need them, not when you open the snapshot."),
    )


def transaction() -> str:
    """Draw two transactions that commit at the same time."""
    return picture(
        "Two transactions that touch other rows both commit; two that touch the same row conflict.",
        190,
        text(
            0,
            16,
            "A transaction reads one version and commits all changes as the next one.",
            weight=600,
        ),
        box(0, 36, 110, "version 7", GREY),
        arrow(112, 53, 216, 53),
        box(218, 36, 190, "A: update row 5", BLUE),
        arrow(410, 53, 506, 53),
        box(508, 36, 110, "version 8", BLUE),
        arrow(60, 72, 216, 112),
        box(218, 96, 190, "B: update row 900", GREEN),
        arrow(410, 113, 506, 113),
        box(508, 96, 110, "version 9", GREEN, "rebased on 8"),
        arrow(40, 72, 216, 182),
        box(218, 166, 190, "C: update row 5", ORANGE),
        arrow(410, 183, 506, 183),
        text(512, 180, "CommitConflictError:"),
        text(512, 196, "A has changed row 5"),
    )


PICTURES = {
    "page": page,
    "chain": chain,
    "commit": commit,
    "checkpoint": checkpoint,
    "snapshot": snapshot,
    "transaction": transaction,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / f"concept_{name}.svg").write_text(draw(), encoding="utf-8")
