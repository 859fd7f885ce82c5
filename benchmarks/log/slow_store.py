"""A store far away: every request takes a while, and how many had to wait for each other is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from spark_pages.storage import MeteredStore
from spark_pages.storage.store import CreateOutcome, ObjectStore

T = TypeVar("T")


class SlowStore(MeteredStore):
    """A metered store with a latency.

    Attributes
    ----------
    depth
        Length of the longest chain of requests that each began after the one before had ended.
    """

    def __init__(self, inner: ObjectStore, latency_s: float) -> None:
        super().__init__(inner)
        self._latency_s = latency_s
        self._depth_lock = threading.Lock()
        self.depth = 0

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`."""
        return self._slowly(lambda: super(SlowStore, self).create(key, data))

    def put(self, key: str, data: Any) -> None:
        """See `ObjectStore.put`."""
        self._slowly(lambda: super(SlowStore, self).put(key, data))

    def get(self, key: str, *most: int) -> bytes:
        """See `ObjectStore.get`."""
        return self._slowly(lambda: super(SlowStore, self).get(key, *most))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        return self._slowly(lambda: super(SlowStore, self).get_range(key, offset, length))

    def stamps(self, keys: Sequence[str]) -> list[str | None]:
        """See `ObjectStore.stamps`; the keys are looked for at the same time."""
        return self._slowly(lambda: super(SlowStore, self).stamps(keys))

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        return self._slowly(lambda: super(SlowStore, self).size(key))

    def _slowly(self, request: Callable[[], T]) -> T:
        with self._depth_lock:
            depth = self.depth + 1
        time.sleep(self._latency_s)
        try:
            return request()
        finally:
            with self._depth_lock:
                self.depth = max(self.depth, depth)
