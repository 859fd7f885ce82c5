"""A store with the latency of an object store: half of it before a request takes effect, half after."""

from __future__ import annotations

import time
from typing import Any

from spark_pages.storage.store import ObjectStore

_REQUESTS = frozenset({"create", "put", "get", "get_range", "get_ranges", "size", "list", "delete"})


class DelayedStore:
    """Passes every request on, later.

    Parameters
    ----------
    inner
        The store that answers.
    latency_s
        What each request takes longer.
    """

    def __init__(self, inner: ObjectStore, latency_s: float) -> None:
        self._inner = inner
        self._half_s = latency_s / 2

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _REQUESTS:
            return found

        def delayed(*args: Any, **kwargs: Any) -> Any:
            time.sleep(self._half_s)
            try:
                return found(*args, **kwargs)
            finally:
                time.sleep(self._half_s)

        return delayed
