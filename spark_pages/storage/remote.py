"""A store in S3, Google Cloud Storage or Azure, or in the memory of this process, through obstore."""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from mmap import mmap
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError

from spark_pages.arguments import as_list
from spark_pages.errors import InvalidInputError, ObjectNotFoundError, StorageError
from spark_pages.runtime import map_in_threads
from spark_pages.storage.checks import (
    check_answer,
    check_data,
    check_key,
    check_length,
    check_most_bytes,
    check_prefix,
    check_ranges,
    is_key,
    past_end,
)
from spark_pages.storage.clients import Clients, claim_threads, clean_url, client_builder
from spark_pages.storage.failures import describe, is_failure, refusal, storage_error
from spark_pages.storage.profiles import options_of
from spark_pages.storage.store import (
    CLOCK_PREFIX,
    MAX_OBJECT_BYTES,
    Created,
    CreateOutcome,
    Doubtful,
    Exists,
    NotCreated,
    ObjectInfo,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Answer = TypeVar("_Answer")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PART_BYTES, _MOST_PARTS = 5 << 20, 10_000
"""How a large object is sent: S3 takes no smaller parts, and no more of them."""


class RemoteStore:
    """Objects are those of a bucket below a prefix, or of a named memory of this process.

    Parameters
    ----------
    url
        ``s3://``, ``s3a://``, ``gs://`` or ``az://`` with bucket and prefix, ``abfss://``, or
        ``memory://name``: two stores of one name in one process share their objects.
    storage_options
        Passed to obstore under the names they have; see `obstore.store.S3Store` and its like. Or
        ``{"profile": name}``: those of a profile; see `spark_pages.storage.profiles`.

    Raises
    ------
    InvalidInputError
        If the URL is wrong or holds a secret, or there is no such profile. Wrong options are found at the
        first use.

    Notes
    -----
    No request is made here. Clients are built at the first use, once per process. A store shows its URL only,
    and is pickled as that and the name of its profile; with other options, which may hold secrets, it
    refuses.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._url = clean_url(url)
        self._profile = (storage_options or {}).get("profile")
        self._reopens = not storage_options or self._profile is not None
        self._build = client_builder(self._url, options_of(storage_options))
        self._built: Clients | None = None

    def __repr__(self) -> str:
        return f"RemoteStore({self._url!r})"

    def __reduce__(self) -> tuple[type[RemoteStore], tuple[str, dict[str, str] | None]]:
        if self._url.startswith("memory://"):
            raise InvalidInputError(
                f"Cannot pickle the store at {self._url}: it is in the memory of this process alone.",
                hint="Use a folder or an object store, such as file:///data/store.",
            )
        if not self._reopens:
            raise InvalidInputError(
                f"Cannot pickle the store at {self._url}: its options may hold secrets.",
                hint="Open it with storage_options={'profile': name}, or by credentials of the environment.",
            )
        return RemoteStore, (self._url, {"profile": self._profile} if self._profile else None)

    @property
    def url(self) -> str:
        """See `ObjectStore.url`."""
        return self._url

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`.

        Raises `StorageError`, and sends nothing, in a process forked after remote storage was used.
        """
        check_key(key)
        check_data(data)
        client = self._clients().once
        try:
            answer = obstore.put(client, key, data, mode="create")
        except AlreadyExistsError:
            return Exists()
        except BaseException as error:
            if not is_failure(error):
                raise
            failed = f"creating {key!r} in {self._url} failed"
            refused = refusal(error)
            if refused is not None:
                return NotCreated(f"{failed}: {refused} ({describe(error)}).")
            return Doubtful(f"{failed}: {describe(error)}.")
        return Created(answer["e_tag"])

    def put(self, key: str, data: Buffer) -> None:
        """See `ObjectStore.put`."""
        check_data(data)
        client = self._clients().patient
        # What is mapped goes out part by part, but the memory of this process needs bytes of its own.
        is_mapped = isinstance(data, mmap) and not self._url.startswith("memory://")
        body = data if is_mapped or isinstance(data, bytes) else bytes(memoryview(data))
        part_bytes = max(_PART_BYTES, -(-memoryview(body).nbytes // _MOST_PARTS))
        self._ask("write", check_key(key), lambda: obstore.put(client, key, body, chunk_size=part_bytes))

    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """See `ObjectStore.get`; the length comes before the bytes, in the same answer."""
        check_most_bytes(most_bytes)
        client = self._clients().patient

        def answer() -> bytes | int:
            found = obstore.get(client, key)
            size_bytes = found.meta["size"]
            return size_bytes if size_bytes > most_bytes else bytes(found.bytes())

        data = self._ask("read", check_key(key), answer)
        if isinstance(data, int):
            check_length(key, data, most_bytes)
        assert isinstance(data, bytes)
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`; after a failure a second request asks for the size."""
        return self.get_ranges(key, [(offset, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """See `ObjectStore.get_ranges`; at most ten requests at a time."""
        check_key(key)
        ranges = check_ranges(key, ranges)
        asked = [(offset, length) for offset, length in ranges if length]  # obstore refuses empty ones
        answers = iter(self._fetch(key, asked) if asked else [])
        return [
            check_answer(key, offset, length, next(answers)) if length else b"" for offset, length in ranges
        ]

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        client = self._clients().patient
        return self._ask("Sizing", check_key(key), lambda: int(obstore.head(client, key)["size"]))

    def stamps(self, keys: Sequence[str]) -> builtins.list[str | None]:
        """See `ObjectStore.stamps`; at most eight requests at a time."""
        keys = as_list(keys, str, "keys", "keys of objects")
        client = self._clients().patient

        def stamp(key: str) -> str | None:
            try:
                found = self._ask("Sizing", check_key(key), lambda: obstore.head(client, key))
            except ObjectNotFoundError:
                return None
            return str(found["e_tag"] or f"{found['last_modified']}-{found['size']}")

        if self._url.startswith("memory://"):
            return [stamp(key) for key in keys]
        return map_in_threads(stamp, keys)

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """See `ObjectStore.list`."""
        folder = check_prefix(prefix).rpartition("/")[0]
        client = self._clients().patient
        found = self._ask("list", prefix, lambda: builtins.list(_listed(client, folder)))
        return sorted((info for info in found if info.key.startswith(prefix)), key=lambda info: info.key)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        client = self._clients().patient
        try:
            self._ask("delete", check_key(key), lambda: obstore.delete(client, key))
        except ObjectNotFoundError:
            return

    def local_path(self, key: str) -> str | None:
        """See `ObjectStore.local_path`; None."""
        check_key(key)
        return None

    def now_us(self) -> int | None:
        """See `ObjectStore.now_us`; obstore does not hand on the date of an answer, so an object is written.

        A store in memory has the clock of this machine.
        """
        if self._url.startswith("memory://"):
            return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000
        client, key = self._clients().patient, f"{CLOCK_PREFIX}{os.urandom(8).hex()}"
        self.put(key, b"")
        try:
            modified = self._ask("date", key, lambda: obstore.head(client, key)["last_modified"])
        finally:
            with suppress(StorageError):  # who may not delete leaves it: nobody reads it
                self.delete(key)
        return int((modified - _EPOCH) // timedelta(microseconds=1))

    def _clients(self) -> Clients:
        claim_threads(self._url)
        built = self._built
        if built is None or built.pid != os.getpid():  # a race builds twice, which is harmless; a lock is not
            built = self._built = self._build()
        return built

    def _fetch(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        client = self._clients().patient
        starts = [offset for offset, _ in ranges]
        lengths = [length for _, length in ranges]
        try:
            return self._ask(
                "read a range of",
                key,
                lambda: [
                    bytes(answer)
                    # coalesce=0: what is read across a gap is decided above, where its cost is known
                    for answer in obstore.get_ranges(client, key, starts=starts, lengths=lengths, coalesce=0)
                ],
            )
        except StorageError:
            self._refuse_past_end(key, ranges)
            raise

    def _refuse_past_end(self, key: str, ranges: Sequence[tuple[int, int]]) -> None:
        size_bytes = self.size(key)
        for offset, length in ranges:
            if offset + length > size_bytes:
                raise past_end(key, offset, length, found=f"it ends at {size_bytes}")

    def _ask(self, action: str, key: str, request: Callable[[], _Answer]) -> _Answer:
        try:
            return request()
        except BaseException as error:
            if not is_failure(error):
                raise
            failure = storage_error(error, action, key, self._url)
        raise failure


def _listed(client: Any, folder: str) -> Iterator[ObjectInfo]:
    for batch in obstore.list(client, folder or None, chunk_size=1_000):
        for found in batch:
            if is_key(found["path"]):
                modified_at_us = (found["last_modified"] - _EPOCH) // timedelta(microseconds=1)
                yield ObjectInfo(found["path"], found["size"], modified_at_us)
