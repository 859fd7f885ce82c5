"""Pages from a disk, from the caches and from an object store, beside what bare system calls do.

The bare loop reads with `preadv` and O_DIRECT into one buffer, checks xxh3_64 and calls
`lz4.block.decompress`. It drops each page before it reads the next ("dropped"), or keeps 64 as whoever
uses them would ("kept"). The handler does the same and all its other checks, gives Arrow, and keeps 64.
The same random pages, the same number of calling threads, rounds in turn, medians.
"""

from __future__ import annotations

import mmap
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from uuid import uuid4

import lz4.block
import xxhash

from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.slow_store import SlowStore
from benchmarks.pages.page_set import KINDS, encoded, write_page_files
from spark_pages.io import CacheConfig, Codec, PageHandler, PageHeader, ReadTrace, decode_page, parse_header
from spark_pages.model.page import PAGE_HEADER_SIZE, PageDescriptor
from spark_pages.storage import MeteredStore, open_object_store

THREADS = (1, 2, 4, 8, 16)
BATCH = 64
Fetch = Callable[[Sequence[PageDescriptor]], None]


class Bare:
    """The plain loop over open files."""

    def __init__(self, root: str, pages: Sequence[PageDescriptor], keep: int) -> None:
        self._files = {
            path: os.open(os.path.join(root, path), os.O_RDONLY | os.O_DIRECT)
            for path in {page.disk_path for page in pages}
        }
        self._sizes = {}
        for page in pages:
            if page.checksum not in self._sizes:
                with open(os.path.join(root, page.disk_path), "rb") as file:
                    header = os.pread(file.fileno(), PAGE_HEADER_SIZE, page.offset)
                self._sizes[page.checksum] = parse_header(header)
        self._keep = keep

    def __call__(self, pages: Sequence[PageDescriptor]) -> None:
        """Fetch the pages."""
        memory = memoryview(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept: list[bytes] = []
        for page in pages:
            os.preadv(self._files[page.disk_path], [memory[: page.alloc_len]], page.offset)
            payload = memory[PAGE_HEADER_SIZE : page.actual_len]
            if xxhash.xxh3_64_intdigest(payload) != page.checksum:
                raise RuntimeError("a page differs")
            kept.append(decompressed(payload, self._sizes[page.checksum]))
            if len(kept) >= self._keep:
                kept = []


def decompressed(payload: memoryview, header: PageHeader) -> bytes:
    """The payload as the bare loop makes it."""
    if header.codec is Codec.NONE:
        return bytes(payload)
    block: bytes = lz4.block.decompress(payload, uncompressed_size=header.uncompressed_size)
    return block


def batches(handler: PageHandler) -> Fetch:
    """Fetch by the handler, many pages a call."""

    def fetch(pages: Sequence[PageDescriptor]) -> None:
        for first in range(0, len(pages), BATCH):
            handler.get_pages(pages[first : first + BATCH], admit=False)

    return fetch


def one_by_one(handler: PageHandler) -> Fetch:
    """Fetch by the handler, a page a call."""

    def fetch(pages: Sequence[PageDescriptor]) -> None:
        for page in pages:
            handler.get_page(page, admit=False)

    return fetch


@dataclass(frozen=True)
class Speed:
    """Pages a second, and microseconds of processor time a page, of the system too."""

    per_s: float
    cpu_us: float


def timed(fetch: Fetch, pages: Sequence[PageDescriptor], pool: ThreadPoolExecutor, threads: int) -> Speed:
    """With so many threads of the pool, each of which has its share."""
    shares = [pages[first::threads] for first in range(threads)]
    started, cpu = time.perf_counter(), time.process_time()
    list(pool.map(fetch, shares))
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Speed(len(pages) / took, cpu / len(pages) * 1e6)


def from_disk(
    folder: str, count: int, rounds: int, asked: int, kinds: tuple[str, ...], counts: Sequence[int]
) -> list[Row]:
    """Random pages of a local disk."""
    root = os.path.join(folder, "-".join(kinds))
    store = open_object_store(root)
    log_note(f"writing {count:,} pages of {', '.join(kinds)}")
    pages = write_page_files(store, count, kinds)
    dropped, kept = Bare(root, pages, 1), Bare(root, pages, BATCH)
    chance = random.Random(1)
    rows = []
    for threads in counts:
        # Threads that live as long as those of a server: the first page faults of a thread are not the point.
        pool = ThreadPoolExecutor(threads)
        handler = PageHandler(store, CacheConfig(decoded_bytes=0, compressed_bytes=0, threads=1))
        alone = PageHandler(store, CacheConfig(decoded_bytes=0, compressed_bytes=0))
        ways: dict[str, tuple[Fetch, int]] = {
            "bare, dropped": (dropped, threads),
            "bare, kept": (kept, threads),
            "get_pages": (batches(handler), threads),
            "get_page": (one_by_one(handler), threads),
            "one call": (batches(alone), 1),
        }
        found: dict[str, list[Speed]] = {name: [] for name in ways}
        for _ in range(rounds):
            some = chance.sample(pages, asked)
            for name, (fetch, width) in ways.items():
                found[name].append(timed(fetch, some, pool, width))
        pool.shutdown()
        rows.append(
            {
                "threads": threads,
                **{f"{name} /s": round(median(each.per_s for each in found[name])) for name in ways},
                **{
                    f"get_pages : {peer}": median(
                        ours.per_s / theirs.per_s
                        for ours, theirs in zip(found["get_pages"], found[f"bare, {peer}"], strict=True)
                    )
                    for peer in ("dropped", "kept")
                },
                **{
                    f"CPU µs {name}": median(each.cpu_us for each in found[name])
                    for name in ("bare, dropped", "bare, kept", "get_pages")
                },
            }
        )
        log_note(str(rows[-1]))
    return rows


def microseconds(work: Callable[[], object], times: int = 2_000, rounds: int = 9) -> float:
    """Of one call: the median of some rounds."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(times):
            work()
        found.append((time.perf_counter() - started) / times)
    return median(found) * 1e6


def hits() -> list[Row]:
    """Pages that the caches have."""
    rows = []
    for kind in KINDS:
        store = open_object_store(f"memory://{uuid4().hex}")
        (page,) = write_page_files(store, 1, (kind,))
        data = memoryview(encoded(kind, 0).data)
        header, payload = parse_header(data), data[PAGE_HEADER_SIZE:]
        warm, packed = PageHandler(store), PageHandler(store, decoded_bytes=0)
        for handler in (warm, packed):
            handler.get_page(page)
        bare = microseconds(lambda p=payload, h=header: decompressed(p, h))
        whole = microseconds(
            lambda d=data, p=page: decode_page(
                d, where="", expected_checksum=p.checksum, expected_entries=p.payload_entries
            )
        )
        compressed = microseconds(lambda h=packed, p=page: h.get_page(p))
        rows.append(
            {
                "page": kind,
                "page cache (decoded) hit µs": microseconds(lambda h=warm, p=page: h.get_page(p)),
                "page cache (compressed) hit µs": compressed,
                "lz4 µs": bare,
                "decode_page µs": whole,
                "compressed cache : lz4": compressed / bare,
                "compressed cache : decode_page": compressed / whole,
            }
        )
    return rows


def from_object_store(latency_ms: float) -> list[Row]:
    """Every so-and-so-many-th page of an object store in memory, each request slowed down."""
    store = MeteredStore(open_object_store(f"memory://{uuid4().hex}"))
    pages = write_page_files(store, 2_000)
    chance = random.Random(1)
    asks = {
        "all": pages,
        "every 2nd": pages[::2],
        "runs of 8, gaps of 1": [page for n, page in enumerate(pages) if n % 9],
        "runs of 16, gaps of 4": [page for n, page in enumerate(pages) if n % 20 < 16],
        "200 at random": chance.sample(pages, 200),
    }
    rows = []
    for name, asked in asks.items():
        slow = SlowStore(store, latency_ms / 1e3)
        before, trace, started = slow.counts, ReadTrace(), time.perf_counter()
        PageHandler(slow).get_pages(asked, admit=False, trace=trace)
        took_s = time.perf_counter() - started
        spent = slow.counts - before
        size = sum(page.actual_len for page in asked)
        ordered = sorted(asked, key=place)
        runs = sum(not follows(*each) for each in pairwise([None, *ordered]))
        rows.append(
            {
                "asked": name,
                "pages": len(asked),
                "runs": runs,
                "requests": spent.requests,
                "bytes : pages": spent.bytes_read / size,
                "ms": took_s * 1e3,
                "ms one by one": spent.requests * latency_ms,
            }
        )
    return rows


def place(page: PageDescriptor) -> tuple[str, int]:
    """Where a page is, for sorting."""
    return page.disk_path, page.offset


def follows(before: PageDescriptor | None, page: PageDescriptor | None) -> bool:
    """Whether a page lies right behind another."""
    return (
        before is not None
        and page is not None
        and place(page) == (before.disk_path, before.offset + before.alloc_len)
    )


def main() -> None:
    """Print the three tables."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=20_000, help="pages on the disk")
    parser.add_argument("--asked", type=int, default=2_000, help="pages fetched in a round")
    parser.add_argument("--threads", type=int, nargs="*", default=THREADS, help="calling threads")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="on the disk to measure; by default a temporary one")
    parser.add_argument("--without-disk", action="store_true", help="leave out the first table")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="of the object store")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, ignore_cleanup_errors=True) as folder:
        for kinds in () if given.without_disk else (("prices",), KINDS):
            rows = from_disk(folder, given.pages, given.rounds, given.asked, kinds, given.threads)
            show(f"Random pages of 64 KiB from a local disk: {', '.join(kinds)}", rows, given.json)
    show("Pages that a cache has", hits(), given.json)
    show(
        f"An object store, {given.latency_ms:.0f} ms a request",
        from_object_store(given.latency_ms),
        given.json,
    )


if __name__ == "__main__":
    main()
