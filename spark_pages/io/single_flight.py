"""One call's loading of pages, for other calls that want the same pages to wait for; and what it brings."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from spark_pages.errors import SparkPagesError
from spark_pages.format.pages.lazy_page import LazyPage, as_batch
from spark_pages.model.run import PageKey


@dataclass(slots=True)
class LoadedPage:
    """A page as it was decoded.

    Attributes
    ----------
    content
        The entries of its payload; those of a page that nobody meant to keep may not be put together yet.
    size_bytes
        Bytes that it holds on to in the decoded cache, `packed` included.
    packed
        Header and payload as stored, for the compressed cache; None where nobody wants them, or they can be
        had for nothing from the descriptor.
    used
        When it was used last, by `MemoryBudget.tick`.
    """

    content: pa.RecordBatch | LazyPage
    size_bytes: int
    packed: memoryview | None
    used: int = 0

    @property
    def batch(self) -> pa.RecordBatch:
        """The entries, put together once."""
        self.content = batch = as_batch(self.content)
        return batch

    def detach(self) -> None:
        """Copy the page out of the memory that it shares with the pages it was read with."""
        if isinstance(self.content, LazyPage):
            self.content = self.content.alone()

    @property
    def is_detached(self) -> bool:
        """Whether it shares no memory with them."""
        return not isinstance(self.content, LazyPage) or len(self.content.block.where) == 1


@dataclass(slots=True, eq=False)
class StoredBlock:
    """Stored bytes of pages that a scan has read together, in memory of their own.

    Attributes
    ----------
    memory_bytes
        What that memory takes.
    pages
        Header and payload of each page.
    keys
        Those of the pages that the compressed cache holds.
    """

    memory_bytes: int
    pages: dict[PageKey, memoryview]
    keys: set[PageKey] = field(default_factory=set)


class PendingLoad:
    """Pages that one call has taken on to load.

    The loading side calls `complete` and `fail` from any thread, and `finish` once, always. Others are
    expected, and then `wait`.

    Attributes
    ----------
    keys
        The pages.
    loaded
        What has come so far.
    wanted
        Pages that a waiting call wants to be kept, even if the loading one does not.
    barred
        Paths that were forgotten meanwhile: their pages must not be kept.
    spare
        Stored bytes of pages that nobody meant to keep, for free room of the compressed cache.
    """

    __slots__ = ("_changed", "_ended", "_failed", "barred", "keys", "loaded", "spare", "wanted")

    def __init__(self) -> None:
        self.keys: list[PageKey] = []
        self.loaded: dict[PageKey, LoadedPage] = {}
        self.wanted: set[PageKey] = set()
        self.barred: set[str] = set()
        self.spare: list[StoredBlock] = []
        self._failed: dict[PageKey, Exception] = {}
        self._changed: threading.Condition | None = None
        self._ended = False

    @property
    def is_finished(self) -> bool:
        """Whether nothing more comes."""
        return self._ended

    def reserve(self) -> None:
        """Somebody is going to wait. Not to be called by two threads at once."""
        if self._changed is None:
            self._changed = threading.Condition()

    def complete(self, key: PageKey, page: LoadedPage) -> None:
        """Complete the load of a page, and wake its waiters."""
        self.loaded[key] = page
        # Who is expected only after this look will find the page before it begins to wait.
        if self._changed is not None:
            self._wake(self._changed)

    def fail(self, keys: Iterable[PageKey], error: Exception) -> None:
        """Fail the load of incomplete pages; their waiters get the error."""
        for key in keys:
            if key not in self.loaded:
                self._failed.setdefault(key, error)
        if self._changed is not None:
            self._wake(self._changed)

    def finish(self) -> None:
        """Nothing more comes: a page that has neither come nor failed is for those who want it to load."""
        self._ended = True
        if self._changed is not None:
            self._wake(self._changed)

    def wait(self, keys: Iterable[PageKey]) -> dict[PageKey, LoadedPage]:
        """Those of the pages that come, once each has come or failed, or the load has finished.

        Raises
        ------
        Exception
            What made one of them fail; a copy, because several threads may raise it.
        """
        found = {}
        for key in keys:
            if not self._is_settled(key):
                assert self._changed is not None, "who waits must be expected"
                with self._changed:
                    while not self._is_settled(key):
                        self._changed.wait()
            if key in self.loaded:
                found[key] = self.loaded[key]
            elif key in self._failed:
                error = self._failed[key]
                raise copy.copy(error) if isinstance(error, SparkPagesError) else error
        return found

    def _is_settled(self, key: PageKey) -> bool:
        return key in self.loaded or key in self._failed or self._ended

    @staticmethod
    def _wake(changed: threading.Condition) -> None:
        with changed:
            changed.notify_all()
