"""Immutable objects on their way to storage: named by their digest, put several at once, looked for after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_pages.errors import ObjectNotFoundError, StorageError
from spark_pages.format.digest import digest_of
from spark_pages.model.location import Location
from spark_pages.runtime import Mapper
from spark_pages.storage.store import ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Buffer

_OBJECTS_AT_ONCE = 8
_BYTES_AT_ONCE = 32 << 20


class ObjectWriter:
    """Puts objects that nothing refers to yet; `wait_all` says that all of them are there, whole.

    Parameters
    ----------
    store
        Where they go.
    at_once
        Carries out the requests of one round.

    Notes
    -----
    Holds at most eight objects. An object that comes twice is written once.

    Attributes
    ----------
    objects, size_bytes
        What has come so far.
    """

    def __init__(self, store: ObjectStore, at_once: Mapper) -> None:
        self._store = store
        self._at_once = at_once
        self._queue: list[tuple[str, Buffer]] = []
        self._queued_bytes = 0
        self._sizes: dict[str, int] = {}
        self.objects = self.size_bytes = 0

    def put(self, data: bytes, name: Callable[[str], str]) -> Location:
        """Where the object will be: at the key that `name` makes of its digest."""
        digest = digest_of(data)
        location = Location(name(digest), len(data), digest, original_length=len(data))
        if location.key not in self._sizes:
            self.put_at(location.key, data)
        return location

    def put_at(self, key: str, data: Buffer) -> None:
        """Write an object at a key that no other object has."""
        size_bytes = memoryview(data).nbytes
        self._sizes[key] = size_bytes
        self.objects += 1
        self.size_bytes += size_bytes
        self._queue.append((key, data))
        self._queued_bytes += size_bytes
        if len(self._queue) >= _OBJECTS_AT_ONCE or self._queued_bytes >= _BYTES_AT_ONCE:
            self.send()

    def wait_all(self) -> None:
        """Every object is there with all its bytes.

        Raises
        ------
        StorageError
            If storage failed, or does not hold what it acknowledged.

        Notes
        -----
        One request for each object beside the one that wrote it, none of which carries its bytes.
        """
        self.send()
        self._at_once(self._look_for, list(self._sizes))
        self._sizes.clear()

    def send(self) -> None:
        """Whatever waits is in storage, so that it can be read."""
        queue, self._queue, self._queued_bytes = self._queue, [], 0
        self._at_once(lambda item: self._store.put(*item), queue)

    def _look_for(self, key: str) -> None:
        expected = self._sizes[key]
        try:
            found: int | None = self._store.size(key)
        except ObjectNotFoundError:
            found = None
        if found != expected:
            raise StorageError(
                f"Cannot rely on object {key}: storage acknowledged {expected} bytes, but holds "
                f"{'no such object' if found is None else f'{found} bytes'}.",
                hint="Run `spark-pages doctor URL`: a store that loses what it acknowledges cannot be used.",
                key=key,
            )
