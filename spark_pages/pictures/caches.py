"""The picture of a cache: where the pages of each call came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from spark_pages.display.cache_calls import cache_calls
from spark_pages.display.canvas import Picture
from spark_pages.io import CacheStats


def cache(calls: Mapping[str, CacheStats] | Iterable[CacheStats], title: str = "page cache") -> Picture:
    """A bar for each call, by the tier that its pages came from.

    Parameters
    ----------
    calls
        What each call took, by its name or without names: ``store.cache_stats`` after it less that before it.
    """
    labels = [str(name) for name in calls] if isinstance(calls, Mapping) else []
    spent = list(calls.values() if isinstance(calls, Mapping) else calls)
    tiers = [[s.upc_hits, s.cpc_hits, s.disk_hits, s.joined, s.misses] for s in spent]
    pages = np.array(tiers, dtype=np.int64).reshape(-1, 5)
    return cache_calls(title, pages, np.array([s.bytes_read for s in spent], dtype=np.int64), labels)
