"""Object stores that count or time the requests to another store."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from spark_pages.runtime import Runtime
from spark_pages.storage.checks import check_key, requests_for
from spark_pages.storage.store import MAX_OBJECT_BYTES, Created, CreateOutcome, ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What a store was asked for, up to one moment or between two (``after - before``).

    Attributes
    ----------
    creates, puts, gets, sizes, lists, deletes
        Calls of the method of that name, whether or not they succeeded.
    ranges
        Requests of `get_range` and `get_ranges`: ranges that touch or overlap share one.
    stamps
        Keys that `stamps` was asked for: each is a request.
    bytes_read, bytes_written
        Bytes of the objects and ranges that were answered, and of those that were surely stored.
    keys
        The key of every request, in the order of the calls; a listing counts with its prefix.
    """

    creates: int = 0
    puts: int = 0
    gets: int = 0
    ranges: int = 0
    sizes: int = 0
    lists: int = 0
    deletes: int = 0
    stamps: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    keys: tuple[str, ...] = field(default=(), repr=False)

    @property
    def requests(self) -> int:
        """Number of requests of every kind."""
        reads = self.gets + self.ranges + self.sizes + self.stamps + self.lists
        return self.creates + self.puts + self.deletes + reads

    def __sub__(self, before: RequestCounts) -> RequestCounts:
        """Return the requests since an earlier snapshot of the same store."""
        names = [each.name for each in fields(self) if each.name != "keys"]
        return RequestCounts(
            **{name: getattr(self, name) - getattr(before, name) for name in names},
            keys=self.keys[len(before.keys) :],
        )


class MeteredStore:
    """The inner store, with every request counted.

    Parameters
    ----------
    inner
        The store that answers.

    Notes
    -----
    `local_path` is always None, so that no read passes by the meter. Retries inside a client are not seen.
    Memory grows by one reference per request.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._counters: dict[str, int] = {}
        self._keys: list[str] = []

    def __repr__(self) -> str:
        return f"MeteredStore({self._inner!r})"

    @property
    def url(self) -> str:
        """See `ObjectStore.url`."""
        return self._inner.url

    @property
    def counts(self) -> RequestCounts:
        """Everything counted until now: a snapshot that does not change.

        Notes
        -----
        O(number of requests), for the keys.
        """
        with self._lock:
            return RequestCounts(**self._counters, keys=tuple(self._keys))

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`."""
        self._count("creates", key)
        outcome = self._inner.create(key, data)
        if isinstance(outcome, Created):
            self._add("bytes_written", len(data))
        return outcome

    def put(self, key: str, data: Buffer) -> None:
        """See `ObjectStore.put`."""
        self._count("puts", key)
        self._inner.put(key, data)
        self._add("bytes_written", memoryview(data).nbytes)

    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """See `ObjectStore.get`."""
        self._count("gets", key)
        data = self._inner.get(key, most_bytes)
        self._add("bytes_read", len(data))
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        self._count("ranges", key, requests_for([(offset, length)]))
        data = self._inner.get_range(key, offset, length)
        self._add("bytes_read", len(data))
        return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """See `ObjectStore.get_ranges`."""
        self._count("ranges", key, requests_for(ranges))
        answers = self._inner.get_ranges(key, ranges)
        self._add("bytes_read", sum(len(data) for data in answers))
        return answers

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        self._count("sizes", key)
        return self._inner.size(key)

    def stamps(self, keys: Sequence[str]) -> builtins.list[str | None]:
        """See `ObjectStore.stamps`."""
        for key in keys:
            self._count("stamps", key)
        return self._inner.stamps(keys)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """See `ObjectStore.list`."""
        self._count("lists", prefix)
        return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._count("deletes", key)
        self._inner.delete(key)

    def local_path(self, key: str) -> str | None:
        """See `ObjectStore.local_path`; None, so that no read passes by the meter."""
        check_key(key)
        return None

    def now_us(self) -> int | None:
        """See `ObjectStore.now_us`; not counted."""
        return self._inner.now_us()

    def _count(self, counter: str, key: str, requests: int = 1) -> None:
        with self._lock:
            self._counters[counter] = self._counters.get(counter, 0) + requests
            self._keys.extend([key] * requests)

    def _add(self, counter: str, amount: int) -> None:
        with self._lock:
            self._counters[counter] = self._counters.get(counter, 0) + amount


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
        """Record the call in the block, with the sizes that it reports."""
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
