"""Options of the caches of a store, and of how its storage is read."""

from __future__ import annotations

import os
from dataclasses import dataclass

from spark_pages.arguments import MOST_NUMBER, as_int, as_path
from spark_pages.memory_budget import (
    BLOOM_BYTES,
    COMPRESSED_BYTES,
    DECODED_BYTES,
    NODE_BYTES,
    STATISTICS_BYTES,
    CacheBudgets,
    shared_budgets,
)

READ_THREADS = 16
"""Enough to hide the latency of an object store behind the decoding of what has come."""


_MOST_THREADS = 1 << 12

BUDGETS = ("decoded_bytes", "compressed_bytes", "bloom_bytes", "statistics_bytes", "node_bytes")
"""Options that bound memory."""


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Budgets of the caches in memory, and how storage is read.

    Stores of one process whose five budgets are equal share them: two stores that are opened with the
    defaults hold together what one may hold.

    Attributes
    ----------
    decoded_bytes
        Uncompressed pages; 0 keeps none.
    compressed_bytes
        Stored bytes of pages that left the uncompressed ones, and of pages that scans have read as long as
        there is free room; 0 keeps none.
    bloom_bytes
        Bloom filters of pages.
    statistics_bytes
        Statistics of pages: minimum, maximum, counts.
    node_bytes
        Log nodes: the objects of checkpoints that say where pages are.
    disk_path
        A folder on a local disk that keeps pages of an object store; None keeps none. Several processes and
        several stores may share it. Stores that are on a local disk themselves make no use of it.
    disk_bytes
        Most bytes in that folder.
    threads
        Most requests to an object store that one call has in flight. A local disk needs no more threads than
        there are processors, and gets no more.
    gap_bytes
        Object stores: two pages of an object share a request if at most so many bytes lie between them. None
        bridges the smallest gaps, as long as what is read is at most 1.1 times what was asked for.
    """

    decoded_bytes: int = DECODED_BYTES
    compressed_bytes: int = COMPRESSED_BYTES
    bloom_bytes: int = BLOOM_BYTES
    statistics_bytes: int = STATISTICS_BYTES
    node_bytes: int = NODE_BYTES
    disk_path: str | os.PathLike[str] | None = None
    disk_bytes: int = 8 << 30
    threads: int = READ_THREADS
    gap_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in (*BUDGETS, "disk_bytes", "gap_bytes"):
            if name != "gap_bytes" or self.gap_bytes is not None:
                number = as_int(getattr(self, name), name, "a number of bytes", 0, MOST_NUMBER)
                object.__setattr__(self, name, number)
        threads = as_int(self.threads, "threads", "a number of threads", 1, _MOST_THREADS)
        object.__setattr__(self, "threads", threads)
        if self.disk_path is not None:
            as_path(self.disk_path, "disk_path")


def budgets_of(config: CacheConfig) -> CacheBudgets:
    """Return the budgets of this process that have the sizes of a configuration."""
    return shared_budgets(*(getattr(config, name) for name in BUDGETS))
