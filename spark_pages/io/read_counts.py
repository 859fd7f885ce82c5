"""What reads cost: counted for a handler since it was made, and for one question."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from spark_pages.arguments import check_kind
from spark_pages.display.markup import Markup, card, table
from spark_pages.display.text import count, size
from spark_pages.io.system_cache import Way


@dataclass(frozen=True, slots=True, repr=False)
class CacheStats:
    """What a page handler has done since it was made; subtract two to see what lies between.

    Attributes
    ----------
    decoded_hits
        Pages found decoded.
    compressed_hits
        Pages whose compressed bytes were at hand, in the compressed cache or in the descriptor, and were
        decoded.
    misses, requests, bytes_read
        Pages that had to be read, the requests that took, and their bytes with padding and gaps.
    direct_requests, cached_requests
        Those of the requests that read a local disk past the operating system's cache, and those that this
        cache answered.
    evictions
        Pages that left memory to keep the budgets.
    decoded_bytes, compressed_bytes
        What the caches hold now; of a difference, by how much that grew.
    bloom_cache_bytes, statistics_bytes, node_bytes
        What is held of bloom filters, of statistics of pages, and of log nodes, likewise.
    coalesced
        Pages that were read without a request of their own, because a neighbour had one.
    joined
        Pages that another call was loading already: they were waited for, and not loaded twice.
    disk_hits
        Pages found in the disk cache; they are no misses.
    demotions
        Pages that left the decoded cache with their compressed bytes kept in the compressed cache.
    bloom_hits
        Bloom filters found in memory.
    bloom_requests, bloom_bytes
        Requests for bloom filters, and their bytes with gaps. They are not among `requests` and `bytes_read`.
    """

    decoded_hits: int = 0
    compressed_hits: int = 0
    misses: int = 0
    requests: int = 0
    bytes_read: int = 0
    direct_requests: int = 0
    cached_requests: int = 0
    evictions: int = 0
    decoded_bytes: int = 0
    compressed_bytes: int = 0
    bloom_cache_bytes: int = 0
    statistics_bytes: int = 0
    node_bytes: int = 0
    coalesced: int = 0
    joined: int = 0
    disk_hits: int = 0
    demotions: int = 0
    bloom_hits: int = 0
    bloom_requests: int = 0
    bloom_bytes: int = 0

    def __sub__(self, earlier: CacheStats) -> CacheStats:
        return CacheStats(**{name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS})

    @property
    def hits(self) -> int:
        """Pages that were had without asking storage."""
        return self.decoded_hits + self.compressed_hits + self.joined + self.disk_hits

    def __repr__(self) -> str:
        pages = self.hits + self.misses
        return (
            f"CacheStats({count(pages, 'page')}: {self.decoded_hits:,} decoded, "
            f"{self.compressed_hits:,} compressed, {self.disk_hits:,} on disk, "
            f"{self.joined:,} joined, {self.misses:,} read in "
            f"{count(self.requests, 'request')} of {size(self.bytes_read)}{_ways(self)}{_blooms(self)}; "
            f"{count(self.evictions, 'eviction')}; holds {size(self.decoded_bytes)} decoded, "
            f"{size(self.compressed_bytes)} compressed, {size(self.bloom_cache_bytes)} of bloom filters, "
            f"{size(self.statistics_bytes)} of statistics, {size(self.node_bytes)} of log nodes)"
        )

    def _repr_html_(self) -> str:
        return self.card

    @property
    def card(self) -> Markup:
        """The counters as a table, by where pages came from."""
        pages = self.hits + self.misses
        rows: list[list[object]] = [
            ["decoded", self.decoded_hits, size(self.decoded_bytes)],
            ["compressed", self.compressed_hits, size(self.compressed_bytes)],
            ["disk", self.disk_hits, ""],
            ["another call", self.joined, ""],
            ["bloom filters in memory", "", size(self.bloom_cache_bytes)],
            ["statistics in memory", "", size(self.statistics_bytes)],
            ["log nodes in memory", "", size(self.node_bytes)],
            [
                f"storage, {count(self.requests, 'request')}{_ways(self)}",
                self.misses,
                f"{size(self.bytes_read)} read",
            ],
        ]
        if self.bloom_hits or self.bloom_requests:
            asked = f"bloom filters, {count(self.bloom_requests, 'request')}"
            rows.append([asked, "", f"{size(self.bloom_bytes)} read"])
        share = f", {self.hits / pages:.0%} without storage" if pages else ""
        left = f"{count(self.evictions, 'page')} left memory" if self.evictions else ""
        told = table(["from", "pages", "bytes"], rows, right=["bytes"])
        return card(f"{count(pages, 'page')} asked for{share}", told, left)


_COUNTERS = tuple(each.name for each in fields(CacheStats))


def _ways(counts: CacheStats | ReadCounts) -> str:
    """Which way requests went, where files of a local disk were read."""
    if not (counts.direct_requests or counts.cached_requests):
        return ""
    return f" ({counts.direct_requests:,} direct, {counts.cached_requests:,} from the system's cache)"


def _blooms(counts: CacheStats | ReadCounts) -> str:
    """Bloom filters in words, where any were asked."""
    if not (counts.bloom_hits or counts.bloom_requests):
        return ""
    read = f"{count(counts.bloom_requests, 'request')} of {size(counts.bloom_bytes)}"
    return f", bloom filters: {counts.bloom_hits:,} in memory, others in {read}"


@dataclass(slots=True)
class ReadCounts:
    """Counters of `CacheStats` that grow, of one call or of many."""

    decoded_hits: int = 0
    compressed_hits: int = 0
    misses: int = 0
    requests: int = 0
    bytes_read: int = 0
    direct_requests: int = 0
    cached_requests: int = 0
    evictions: int = 0
    coalesced: int = 0
    joined: int = 0
    disk_hits: int = 0
    bloom_hits: int = 0
    bloom_requests: int = 0
    bloom_bytes: int = 0

    def add(self, other: ReadCounts) -> None:
        """Add other counts."""
        check_kind(other, ReadCounts, "other", "a ReadTrace")
        self.decoded_hits += other.decoded_hits
        self.compressed_hits += other.compressed_hits
        self.misses += other.misses
        self.requests += other.requests
        self.bytes_read += other.bytes_read
        self.direct_requests += other.direct_requests
        self.cached_requests += other.cached_requests
        self.evictions += other.evictions
        self.coalesced += other.coalesced
        self.joined += other.joined
        self.disk_hits += other.disk_hits
        self.bloom_hits += other.bloom_hits
        self.bloom_requests += other.bloom_requests
        self.bloom_bytes += other.bloom_bytes


def request_counts(size_bytes: int, pages: int, way: Way = Way.STORAGE) -> ReadCounts:
    """Return the counts of one request that has read some pages, or one of them again."""
    return ReadCounts(
        misses=pages,
        requests=1,
        bytes_read=size_bytes,
        direct_requests=int(way is Way.DIRECT),
        cached_requests=int(way is Way.CACHED),
        coalesced=pages - 1,
    )


@dataclass(slots=True)
class ReadTrace(ReadCounts):
    """Collects what one question touched; hand the same one to several calls and it adds up.

    Not shared between threads. The counts are those of `CacheStats`; a page asked for twice in one
    call counts once.

    Attributes
    ----------
    page_ids
        Ids of the pages touched, 16 hexadecimal digits each, in the order first asked for in each call.
    """

    page_ids: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        some = "; " * bool(self.page_ids) + " ".join(self.page_ids[:3]) + " …" * (len(self.page_ids) > 3)
        return (
            f"ReadTrace({count(len(self.page_ids), 'page')}: {self.decoded_hits:,} decoded, "
            f"{self.compressed_hits:,} compressed, {self.disk_hits:,} on disk, "
            f"{self.joined:,} joined, {self.misses:,} read in "
            f"{count(self.requests, 'request')} of {size(self.bytes_read)}{_ways(self)}{_blooms(self)}{some})"
        )

    def merge(self, other: ReadTrace) -> None:
        """Add the counts of another trace."""
        check_kind(other, ReadTrace, "other", "a ReadTrace")
        self.page_ids.extend(other.page_ids)
        for each in fields(self):
            if each.name != "page_ids":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
