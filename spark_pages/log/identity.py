"""Identity of a store: whether the log at the address is still the one that this process has open.

A handle remembers the id of its store (the token of commit 0) and the stamp of slot 0. Where the stamp is
another one, slot 0 is read and its id compared. `docs/storage.md` ("When a store is replaced") says how
often, and which race remains.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from spark_pages.errors import DamageError, InvalidKeyError, StoreNotFoundError, StoreReplacedError
from spark_pages.format.names import commit_key
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.storage.store import ObjectStore

CHECK_EVERY_S = 5.0
"""A writer on remote storage checks again before a commit once its last check is this old."""

_PROBES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Slots that are looked for at once, counted from the first one that may be empty."""

_logger = logging.getLogger(__name__)

Slot = Commit | Tombstone


@dataclass(frozen=True, slots=True)
class Look:
    """Which slots from `start` on existed at one moment, as far as they were looked for.

    Attributes
    ----------
    start
        The first slot looked for.
    present
        Those that existed, ascending.
    """

    start: int
    present: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Number of slots from `start` up to the last one that existed."""
        return self.present[-1] + 1 - self.start if self.present else 0


class StoreIdentity:
    """What a handle knows of the store at its address; safe to share between threads.

    Parameters
    ----------
    store
        Where the log is kept.
    read
        Reads a slot; None where it is empty.
    monotonic_s
        Clock for the age of checks.

    Attributes
    ----------
    store_id
        Id of the store that is open; empty until it is known.
    """

    def __init__(
        self, store: ObjectStore, read: Callable[[int], Slot | None], monotonic_s: Callable[[], float]
    ) -> None:
        self.store_id = ""
        self._store = store
        self._read = read
        self._monotonic_s = monotonic_s
        self._stamp: str | None = None
        self._checked_s: float | None = None
        self._is_local: bool | None = None
        self._foreign: int | None = None
        self._warned: set[int] = set()
        self._is_replaced = self._is_gone = False

    @property
    def is_local(self) -> bool:
        """Whether slots are files of this machine, which take microseconds to look for."""
        if self._is_local is None:
            try:
                self._is_local = self._store.local_path(commit_key(0)) is not None
            except InvalidKeyError:  # a link below the root: whoever reads it reports it
                self._is_local = False
        return self._is_local

    @property
    def is_replaced(self) -> bool:
        """Whether slot 0 was found to hold the first commit of another store."""
        return self._is_replaced

    @property
    def is_due(self) -> bool:
        """Whether a writer must look at the store before it commits."""
        if self._checked_s is None or self.is_local or self._foreign is not None or self._is_replaced:
            return True
        return self._monotonic_s() - self._checked_s > CHECK_EVERY_S

    def learn(self, store_id: str) -> None:
        """Remember the id of the store, unless it is known."""
        self.store_id = self.store_id or store_id

    def is_foreign(self, slot: Slot) -> bool:
        """Whether a slot holds a commit of another store."""
        found = slot.id_of_store
        return bool(self.store_id and found) and found != self.store_id

    def look(self, start: int) -> Look:
        """Look for the slots from `start` on, and compare slot 0 with the one seen before.

        Notes
        -----
        One parallel round of nine requests without a body; on a local disk some 20 µs.
        """
        began = self._monotonic_s()
        wanted = [start + each for each in _PROBES]
        first, *found = self._store.stamps([commit_key(0), *map(commit_key, wanted)])
        self._compare(first)
        self._checked_s, self._foreign = began, None
        if self._is_replaced:
            return Look(start, ())
        return Look(
            start, tuple(each for each, stamp in zip(wanted, found, strict=True) if stamp is not None)
        )

    def remember(self) -> None:
        """Remember the stamp of slot 0, which this process has just written or read."""
        (self._stamp,) = self._store.stamps([commit_key(0)])

    def _compare(self, stamp: str | None) -> None:
        """Compare slot 0 with the one seen before; read it where it is another object."""
        self._is_gone = stamp is None
        if stamp is None or stamp == self._stamp:
            return
        if self._stamp is None or not self.store_id:
            self._stamp = stamp  # seen while the store is being opened
            return
        first = self._read(0)
        if first is None:
            self._is_gone = True
            return
        self._is_replaced = self.is_foreign(first)
        if self._is_replaced:
            self._warn(
                0,
                "The store at %s was replaced by another one while it was open here. What was read is kept; "
                "nothing new will be seen, and nothing can be committed. Open the store again.",
                self._store.url,
            )
        else:
            self._stamp = stamp

    def meet(self, slot: Slot) -> None:
        """Note a commit of another store behind the head, and warn once."""
        self._foreign = slot.version
        self._warn(
            slot.version,
            "%s of %s is of another store: a process that had an earlier store open at this address wrote "
            "it. The versions before it are served; nothing can be committed until "
            "`spark-pages repair URL --apply` has moved it away.",
            commit_key(slot.version),
            self._store.url,
        )

    def _warn(self, about: int, text: str, *values: object) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _logger.warning(text, *values)

    def check_same(self) -> None:
        """Raise StoreReplacedError if slot 0 was found to be that of another store."""
        if self._is_replaced:
            raise self.replaced(0)

    def check_writable(self) -> None:
        """Raise if the last look has found that a commit would not go into the store that is open.

        Raises
        ------
        StoreReplacedError
            If the store was replaced, or a commit of another one stands in the way.
        StoreNotFoundError
            If slot 0 is gone.
        """
        self.check_same()
        if self._foreign is not None:
            raise self.replaced(self._foreign)
        if self._is_gone:
            raise StoreNotFoundError(
                f"Cannot commit to the store at {self._store.url}: its first commit, {commit_key(0)}, is "
                "missing. Nothing was written.",
                hint="If the store was removed, create it again and open it. Else put the object back from a "
                "copy; `spark-pages verify URL` reports what is missing.",
                url=self._store.url,
            )

    def replaced(self, version: int) -> StoreReplacedError:
        """The error for a slot that holds a commit of another store."""
        if version == 0 or self._is_replaced:
            return StoreReplacedError(
                f"Cannot use the store at {self._store.url}: it was removed and another one was created at "
                "its address while it was open. Nothing was written.",
                hint="Open the store again, look at what it holds now, and repeat what you wanted to do.",
                url=self._store.url,
            )
        return foreign_error(version, self._store.url)


def foreign_error(version: int, url: str = "") -> StoreReplacedError:
    """The error for a slot behind the head that holds a commit of another store."""
    key = commit_key(version)
    return StoreReplacedError(
        f"Cannot commit to the store{url and f' at {url}'}: {key} holds a commit of another store. "
        "Nothing was committed.",
        hint="If this store is the newer one, run `spark-pages repair URL --apply`, which moves that object "
        "away. If it was replaced, open the store again.",
        key=key,
    )


def gap_error(missing: int, later: int, is_foreign: bool = False) -> DamageError:
    """The error for a slot without a commit of this store, although a later one has one."""
    key = commit_key(missing)
    what = "holds a commit of another store" if is_foreign else "is missing"
    return DamageError(
        f"{key} {what}, though {commit_key(later)} is there: the log has a gap.",
        hint="Put the object back from a copy of the store; `spark-pages verify URL` tells what is missing.",
        key=key,
    )
