"""A store that remembers when each request began and ended, for pictures of what a question took."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_pages.runtime import Runtime
from spark_pages.storage.keys import check_key
from spark_pages.storage.store import MAX_OBJECT_BYTES, CreateOutcome, ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One call of a store.

    Attributes
    ----------
    method
        Its name, such as ``get_range``.
    key
        The object, or the prefix of a listing.
    offset
        First byte that was asked for, or None where the whole object was.
    start_s, end_s
        When it began and ended, by the clock of the store.
    size_bytes
        Bytes of the answer.
    failed
        Whether it raised an error.
    """

    method: str
    key: str
    offset: int | None
    start_s: float
    end_s: float
    size_bytes: int
    failed: bool


class TimedStore:
    """The inner store, with the time of every request.

    Parameters
    ----------
    inner
        The store that answers.
    clock_s
        Seconds, never going back; by default those of `Runtime`.

    Notes
    -----
    `local_path` is always None, so that no read passes by it: a local store is read as a remote one would be.
    Memory grows by one `TimedRequest` per call. Safe to share between threads.
    """

    def __init__(self, inner: ObjectStore, clock_s: Callable[[], float] | None = None) -> None:
        self._inner = inner
        self._clock_s = clock_s or Runtime().monotonic_s
        self._lock = threading.Lock()
        self._requests: list[TimedRequest] = []

    def __repr__(self) -> str:
        return f"TimedStore({self._inner!r})"

    @property
    def url(self) -> str:
        """See `ObjectStore.url`."""
        return self._inner.url

    @property
    def requests(self) -> builtins.list[TimedRequest]:
        """What was asked so far, in the order in which the answers came."""
        with self._lock:
            return list(self._requests)

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`."""
        with self._timed("create", key):
            return self._inner.create(key, data)

    def put(self, key: str, data: Buffer) -> None:
        """See `ObjectStore.put`."""
        with self._timed("put", key):
            self._inner.put(key, data)

    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """See `ObjectStore.get`."""
        with self._timed("get", key) as answered:
            data = self._inner.get(key, most_bytes)
            answered.append(len(data))
            return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        with self._timed("get_range", key, offset) as answered:
            data = self._inner.get_range(key, offset, length)
            answered.append(len(data))
            return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """See `ObjectStore.get_ranges`."""
        first = min((offset for offset, _ in ranges), default=None)
        with self._timed("get_ranges", key, first) as answered:
            found = self._inner.get_ranges(key, ranges)
            answered.extend(map(len, found))
            return found

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        with self._timed("size", key):
            return self._inner.size(key)

    def stamps(self, keys: Sequence[str]) -> builtins.list[str | None]:
        """See `ObjectStore.stamps`; one entry, with the first key."""
        if not keys:
            return []
        with self._timed("stamps", keys[0]):
            return self._inner.stamps(keys)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """See `ObjectStore.list`."""
        with self._timed("list", prefix):
            return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        with self._timed("delete", key):
            self._inner.delete(key)

    def local_path(self, key: str) -> str | None:
        """See `ObjectStore.local_path`; None, so that no read passes by the clock."""
        check_key(key)
        return None

    def now_us(self) -> int | None:
        """See `ObjectStore.now_us`; not timed."""
        return self._inner.now_us()

    @contextmanager
    def _timed(self, method: str, key: str, offset: int | None = None) -> Iterator[builtins.list[int]]:
        """The call in the block is remembered, with the sizes that it hands over."""
        answered: builtins.list[int] = []
        failed = False
        start_s = self._clock_s()
        try:
            yield answered
        except BaseException:
            failed = True
            raise
        finally:
            end_s = self._clock_s()
            request = TimedRequest(method, key, offset, start_s, end_s, sum(answered), failed)
            with self._lock:
                self._requests.append(request)
