"""What reads cost: counted for a reader, for a handler since it was made, and for one question."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Requests sent, bytes read (padding included) and pages got."""

    requests: int = 0
    bytes: int = 0
    pages: int = 0

    def __add__(self, other: ReadCounts) -> ReadCounts:
        return ReadCounts(self.requests + other.requests, self.bytes + other.bytes, self.pages + other.pages)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a page handler has done since it was made; subtract two to see what lies between.

    Attributes
    ----------
    upc_hits
        Pages found decoded.
    cpc_hits
        Pages whose compressed bytes were at hand, in the CPC or in the descriptor, and were decoded.
    misses, requests, bytes_read
        Pages that had to be read, the requests that took, and their bytes with padding.
    evictions
        Entries that either cache dropped.
    upc_bytes, cpc_bytes
        What the caches hold now; of a difference, by how much that grew.
    """

    upc_hits: int = 0
    cpc_hits: int = 0
    misses: int = 0
    requests: int = 0
    bytes_read: int = 0
    evictions: int = 0
    upc_bytes: int = 0
    cpc_bytes: int = 0

    def __sub__(self, earlier: CacheStats) -> CacheStats:
        names = [each.name for each in fields(self)]
        return CacheStats(**{name: getattr(self, name) - getattr(earlier, name) for name in names})

    def _repr_html_(self) -> str:
        cells = [(each.name.replace("_", " "), getattr(self, each.name)) for each in fields(self)]
        heads = "".join(f"<th>{name}</th>" for name, _ in cells)
        values = "".join(f"<td>{value:,}</td>" for _, value in cells)
        return f"<table><tr>{heads}</tr><tr>{values}</tr></table>"


@dataclass(slots=True)
class ReadTrace:
    """Collects what one question touched; hand the same one to several calls and it adds up.

    Not shared between threads. The counts are those of `CacheStats`; a page asked for twice in one
    call counts once.

    Attributes
    ----------
    page_ids
        Ids of the pages touched, 16 hexadecimal digits each, in the order first asked for in each call.
    """

    page_ids: list[str] = field(default_factory=list)
    upc_hits: int = 0
    cpc_hits: int = 0
    misses: int = 0
    requests: int = 0
    bytes_read: int = 0

    def add(
        self, *, page_ids: list[str], upc_hits: int, cpc_hits: int, misses: int, read: ReadCounts
    ) -> None:
        """The counts of one call are part of the trace."""
        self.page_ids.extend(page_ids)
        self.upc_hits += upc_hits
        self.cpc_hits += cpc_hits
        self.misses += misses
        self.requests += read.requests
        self.bytes_read += read.bytes
