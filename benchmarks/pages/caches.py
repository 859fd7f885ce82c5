"""Hit rate of point reads alone, and while a scan of ten times the cache runs beside them.

Readers ask for pages as people do: a few of them most of the time (Zipf). The scan goes through all pages in
order with ``admit=False``, as `Table.scan` does: it may use free room of the compressed cache. For comparison
another one is admitted to the caches.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import uuid4

import numpy as np

from benchmarks.log.report import Row, arguments, show
from benchmarks.pages.page_set import write_page_files
from spark_pages.io import CacheConfig, PageHandler, ReadTrace
from spark_pages.model.page import PageDescriptor
from spark_pages.storage import open_object_store

DECODED_PAGE_BYTES = 115_000
"""About what a page of the set takes in the decoded cache, with its compressed bytes."""


def hit_rate(handler: PageHandler, pages: Sequence[PageDescriptor], order: Sequence[int]) -> float:
    """Share of the point reads that no request was made for."""
    trace = ReadTrace()
    for number in order:
        handler.get_page(pages[number], trace=trace)
    return 1 - trace.misses / len(order)


def scan(handler: PageHandler, pages: Sequence[PageDescriptor], admit: bool, stop: threading.Event) -> None:
    """Read all pages in order, again and again."""
    while not stop.is_set():
        for first in range(0, len(pages), 32):
            handler.get_pages(pages[first : first + 32], admit=admit)
            if stop.is_set():
                return


def rows_of(count: int, reads: int) -> list[Row]:
    """The table: one row for each way to scan."""
    store = open_object_store(f"memory://{uuid4().hex}")
    pages = write_page_files(store, count)
    chance = np.random.default_rng(1)
    popular = chance.permutation(count)
    order = popular[np.minimum(chance.zipf(1.3, reads) - 1, count - 1)].tolist()
    budget = count * DECODED_PAGE_BYTES // 10
    found = []
    for name, admit in (
        ("no scan", None),
        ("a scan beside, not admitted", False),
        ("a scan beside, admitted", True),
    ):
        handler = PageHandler(store, CacheConfig(decoded_bytes=budget, compressed_bytes=budget // 4))
        hit_rate(handler, pages, order)
        stop = threading.Event()
        beside = threading.Thread(target=scan, args=(handler, pages, bool(admit), stop))
        before = handler.stats()
        if admit is not None:
            beside.start()
        rate = hit_rate(handler, pages, order)
        stop.set()
        if admit is not None:
            beside.join()
        spent = handler.stats() - before
        found.append(
            {
                "": name,
                "point reads": len(order),
                "hit rate": rate,
                "kept": rate / (found[0]["hit rate"] if found else rate),
                "scanned, times the cache": (spent.misses + spent.joined) * DECODED_PAGE_BYTES / budget,
                "evictions": spent.evictions,
            }
        )
    return found


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--reads", type=int, default=60_000)
    given = parser.parse_args()
    title = f"Point reads on {given.pages:,} pages, cache for a tenth of them"
    show(title, rows_of(given.pages, given.reads), given.json)


if __name__ == "__main__":
    main()
