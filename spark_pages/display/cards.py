"""Cards that stores, snapshots and tables show in a notebook. Pure: plain values in, markup out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from spark_pages.display.chain_strip import Lane, table_strip
from spark_pages.display.markup import Markup, card, joined, table, tag
from spark_pages.display.text import count

_MOST_TAGS = 20


def store_card(
    url: str, snapshot: Markup | str, tags: Mapping[str, int] | None = None, cache: Markup | str = ""
) -> Markup:
    """Draw a store: its address, its newest version, its tags and its caches.

    Parameters
    ----------
    snapshot
        The card of the newest version, or a sentence that says why there is none.
    tags
        Tagged versions, by tag.
    cache
        The card of the page caches; empty while nothing was read.
    """
    rows = [[name, version] for name, version in sorted((tags or {}).items())]
    tagged = table(["tag", "version"], rows[:_MOST_TAGS], len(rows) - len(rows[:_MOST_TAGS])) if rows else ""
    return card(joined("store ", tag("b", url)), snapshot, tagged, cache)


def snapshot_card(
    version: int, timestamp: datetime, tables: Sequence[tuple[str, int, int]], num_tables: int
) -> Markup:
    """Draw a version: number, time, and its first tables.

    Parameters
    ----------
    tables
        Name, rows and columns of the tables shown.
    num_tables
        Number of all tables of the version.
    """
    heading = joined(
        tag("b", f"version {version:,}"),
        f" · {timestamp:%Y-%m-%d %H:%M:%S} UTC · {count(num_tables, 'table')}",
    )
    rows = [list(each) for each in tables]
    return card(heading, table(["table", "rows", "columns"], rows, num_tables - len(rows)) if rows else "")


def table_card(
    name: str,
    version: int | None,
    num_rows: int,
    columns: Sequence[tuple[str, str, bool, int]],
    lanes: Sequence[Lane],
    num_columns: int,
) -> Markup:
    """Draw a table: rows, columns, and the pages of its first columns.

    Parameters
    ----------
    columns
        Name, type, nullability and number of pages of the columns shown.
    lanes
        Pages of the first columns, for the strip.
    num_columns
        Number of all columns.
    """
    heading = joined(
        tag("b", name),
        f" · {count(num_rows, 'row')} · {count(num_columns, 'column')}",
        "" if version is None else f" · version {version:,}",
    )
    rows = [[column, kind, "yes" if nullable else "no", pages] for column, kind, nullable, pages in columns]
    described = table(["column", "type", "nullable", "pages"], rows, num_columns - len(rows))
    title = f"pages, the first {len(lanes)} columns" if num_columns > len(lanes) else "pages"
    return card(heading, described, table_strip(title, list(lanes)).image)
