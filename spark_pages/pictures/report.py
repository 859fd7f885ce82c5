"""One page about one store: what is in it, what happened to it, and what a read of it takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from spark_pages.display.canvas import Picture
from spark_pages.display.chain_strip import Lane, table_strip
from spark_pages.display.markup import Markup, document, joined, table, tag
from spark_pages.display.text import count, moment, size
from spark_pages.errors import SparkPagesError
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_drawing import lane_of
from spark_pages.pictures.charts import (
    MOST_TRANSACTIONS,
    cache,
    chain,
    compaction,
    log_of,
    newest_checkpoint,
    waterfall,
)
from spark_pages.pictures.health import health, stored_bytes
from spark_pages.query.table import Table
from spark_pages.store import Store

MOST_TABLES = 12
MOST_COLUMNS = 8
MOST_COMMITS = 20
MOST_PAGES = 200_000
"""Chains with more pages are shown as far as they are loaded."""

_ROWS = 100
_MORE_ROWS = 5_000
_COMMIT_HEADS = {
    "version": "version",
    "timestamp": "time, UTC",
    "operation": "operation",
    "read_version": "read",
    "rows_added": "rows in",
    "rows_updated": "updated",
    "rows_removed": "out",
    "pages_added": "pages in",
    "pages_removed": "out",
    "bytes_added": "bytes in",
}


def report_page(store: Store) -> Markup:
    """Create a self-contained page: no script, no font, no link.

    Notes
    -----
    Writes nothing. Reads at most `MOST_TRANSACTIONS` commits, the newest, descriptors of at most
    `MOST_TABLES` tables, of columns with at most `MOST_PAGES` pages, and `_ROWS` rows of the largest
    table. What cannot be read is told in its place on the page.
    """
    snapshot = store.snapshot()
    history = store.history(MOST_TRANSACTIONS)
    names = snapshot.tables()
    tables = [snapshot.table(name) for name in names[:MOST_TABLES]]
    sections = [
        _section(
            "Is the store in order?", lambda: health(store, tables, newest_checkpoint(store), MOST_PAGES)
        ),
        _section(
            "The log",
            lambda: joined(log_of("commits", history, newest_checkpoint(store)).inline, _commits(history)),
        ),
        _section("Tables", lambda: _overview(tables, len(names) - len(tables))),
        *(_section(f"Table {each.name}", partial(_table, store, each)) for each in tables),
        _section("The last page compaction", lambda: _compaction(store, history)),
        _section("One read", lambda: _read(store, tables)),
    ]
    heading = joined(
        f"version {snapshot.version:,} of {moment(snapshot.log.state.timestamp_us)} UTC · ",
        count(len(names), "table"),
    )
    return document(f"spark-pages: {store.url}", heading, sections)


def _section(title: str, make: Callable[[], Markup | None]) -> Markup:
    """Create a part of the page; empty if there is nothing to show."""
    try:
        inner = make()
    except SparkPagesError as error:
        inner = tag("p", f"This could not be read: {error}")
    return joined(tag("h2", title), inner) if inner else Markup()


def _commits(history: pa.Table) -> Markup:
    rows = []
    for each in history.slice(0, MOST_COMMITS).select(list(_COMMIT_HEADS)).to_pylist():
        each["timestamp"] = f"{each['timestamp']:%Y-%m-%d %H:%M:%S}"
        each["bytes_added"] = None if each["bytes_added"] is None else size(each["bytes_added"])
        rows.append(["" if value is None else value for value in each.values()])
    return table(list(_COMMIT_HEADS.values()), rows, max(history.num_rows - MOST_COMMITS, 0), ["bytes in"])


def _overview(tables: list[Table], more: int) -> Markup:
    rows = [
        [
            each.name,
            each.num_rows,
            len(each.columns),
            sum(_chain(each, name).num_pages for name in each.columns),
            stored_bytes(each, MOST_PAGES),
        ]
        for each in tables
    ]
    return table(["table", "rows", "columns", "pages", "bytes"], rows, more, ["bytes"])


def _table(store: Store, shown: Table) -> Markup:
    names = _some(shown)
    lanes = [_lane(name, _chain(shown, name)) for name in names]
    rows = [
        [
            name,
            str(shown.schema.field(name).type),
            _chain(shown, name).num_pages,
            -(-shown.end_row // max(_chain(shown, name).num_pages, 1)),
        ]
        for name in names
    ]
    columns = table(["column", "type", "pages", "rows a page"], rows, len(shown.columns) - len(names))
    strip = table_strip("pages of the columns", lanes)
    changed = _changed(store, shown, names)
    return joined(columns, strip.inline, changed.inline if changed else "")


def _changed(store: Store, shown: Table, names: list[str]) -> Picture | None:
    """Draw the first column that the newest commit changed, before and after."""
    if not shown.version:
        return None
    try:
        before = store.snapshot(version=shown.version - 1).table(shown.name)
        for name in names:
            now = _chain(shown, name)
            if name in before.columns and now.num_pages <= MOST_PAGES:
                ids, old = now.all_pages().page_ids, before.directory.chain(name).all_pages().page_ids
                if ids.tobytes() != old.tobytes():
                    return chain(shown, name, before)
    except SparkPagesError:  # that version, or that table of it, is not there
        return None
    return None


def _compaction(store: Store, history: pa.Table) -> Markup | None:
    for each in history.select(["version", "operation", "parameters", "pages_removed"]).to_pylist():
        if each["operation"] == "compact pages" and each["pages_removed"]:
            name = dict(each["parameters"]).get("table", "")
            after = store.snapshot(version=each["version"])
            before = store.snapshot(version=each["version"] - 1)
            if name in after.tables() and name in before.tables():
                return compaction(before.table(name), after.table(name)).inline
    return None


def _read(store: Store, tables: list[Table]) -> Markup | None:
    """Draw the requests for some rows of the largest table, and the source of their pages."""
    largest = max(tables, key=lambda each: each.num_rows, default=None)
    if largest is None or not largest.num_rows:
        return None
    name, columns = largest.name, _some(largest)
    start = max(largest.end_row // 2 - _ROWS // 2, 0)
    stop = min(start + _ROWS, largest.end_row)
    what = f"rows [{start:,} … {stop:,}) of {name}, {count(len(columns), 'column')}"

    def ask(fresh: Store) -> None:
        fresh.snapshot().table(name).read(columns, start, stop)

    asked = waterfall(store, ask, what)
    again = Store(store.object_store)
    source = again.snapshot().table(name)
    end = min(stop + _MORE_ROWS, largest.end_row)
    ranges = {
        "cold": (start, stop),
        "again": (start, stop),
        "and more": (start, end),
        "all again": (start, end),
    }
    calls = {}
    for label, (first, last) in ranges.items():
        before = again.cache_stats
        source.read(columns, first, last)
        calls[label] = again.cache_stats - before
    return joined(asked.inline, cache(calls, "where pages come from").inline)


def _lane(name: str, shown: ColumnChain) -> Lane:
    """All pages of a chain, or as many as are loaded where they are too many."""
    return lane_of(name, [shown.all_pages()] if shown.num_pages <= MOST_PAGES else shown.pieces)


def _some(shown: Table) -> list[str]:
    return shown.columns[:MOST_COLUMNS]


def _chain(shown: Table, name: str) -> ColumnChain:
    return shown.directory.chain(name)
