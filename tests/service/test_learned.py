"""A client knows which pieces hold the bytes that it reads, and asks for no more of them than it must."""

from __future__ import annotations

import spark_pages as sp
from spark_pages.model.added_pages import NewPage, page_batches
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import PageRun
from spark_pages.service.remote_objects import PageIndex
from spark_pages.service.responses import PieceName
from tests.service.stores import store_with_a_past, write_more


def run_at(path: str, *offsets: int) -> PageRun:
    """Pages of 4 KiB at these offsets of a file."""
    pages = [NewPage(1, 1, PageKind.FILE, path, at, 4096, 100, 0, None, PageStats(0)) for at in offsets]
    return PageRun(page_batches(pages)[0])


def test_only_pieces_that_hold_bytes_of_the_range_are_named():
    learned: PageIndex[str] = PageIndex()
    learned.add("one", PieceName(1, "a"), run_at("f", 0, 4096, 40960), blooms=False)
    learned.add("one", PieceName(2, "b"), run_at("f", 8192), blooms=False)

    assert learned.of("f", 0, 4096) == {("one", False): [PieceName(1, "a")]}
    assert learned.of("f", 8192, 4096) == {("one", False): [PieceName(2, "b")]}
    assert learned.of("f", 12288, 4096) == {}
    assert learned.of("g", 0, 4096) == {}
    assert set(learned.of("f", 0, 50_000)["one", False]) == {PieceName(1, "a"), PieceName(2, "b")}


def test_what_newer_pieces_hold_is_not_asked_of_older_ones():
    learned: PageIndex[str] = PageIndex()
    learned.add("old", PieceName(1, "a"), run_at("f", 0, 4096), blooms=False)
    learned.add("new", PieceName(1, "b"), run_at("f", 4096, 8192), blooms=False)

    assert learned.of("f", 4096, 4096) == {("new", False): [PieceName(1, "b")]}
    assert learned.of("f", 0, 4096) == {("old", False): [PieceName(1, "a")]}
    assert set(learned.of("f", 0, 8192)) == {("new", False), ("old", False)}


def test_pages_of_several_tables_and_versions_are_read_beside_each_other(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    client = serve(store).connect()
    tables: list[tuple[sp.Table, sp.Table]] = []
    for turn in range(4):
        for name in ("t", "other", "private.secrets"):
            version = store.snapshot().version
            tables.append((client.snapshot(version).table(name), store.snapshot(version).table(name)))
            tables[-1][0].directory.locate_row(tables[-1][0].columns[0], 0)
        write_more(store, 1000 * turn)
        if turn % 2:
            store.checkpoint()

    for ours, theirs in (*tables, *reversed(tables)):
        client.pages.clear()
        assert ours.read().equals(theirs.read())
