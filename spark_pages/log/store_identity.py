"""Identity of a store: whether the log at the address is still the one that this process has open.

A handle remembers the id of its store (the token of commit 0), and the stamps of slot 0 and of the newest
slot that it knows. Where a stamp is another one, that slot is read, and its id or digest compared.
`docs/storage.md` ("When a store is replaced") says how often, and which race remains.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_pages.errors import DamageError, InvalidKeyError, StoreNotFoundError, StoreReplacedError
from spark_pages.format.names import commit_key
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.storage.store import ObjectStore

CHECK_EVERY_S = 5.0
"""A writer on remote storage checks again before a commit once its last check is this old."""

_PROBES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Slots that are looked for at once, counted from the first one that may be empty."""

_MOST_STAMPS = 128

_logger = logging.getLogger(__name__)

Slot = Commit | Tombstone


@dataclass(frozen=True, slots=True)
class ExistingSlots:
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
    digest
        Reads the digest of a commit in its slot, cleaned or not; None where the slot is empty.
    monotonic_s
        Clock for the age of checks.

    Attributes
    ----------
    store_id
        Id of the store that is open; empty until it is known.
    """

    def __init__(
        self,
        store: ObjectStore,
        read: Callable[[int], Slot | None],
        digest: Callable[[int], str | None],
        monotonic_s: Callable[[], float],
    ) -> None:
        self.store_id = ""
        self._store = store
        self._read = read
        self._digest = digest
        self._monotonic_s = monotonic_s
        self._stamp: str | None = None
        self._stamps: dict[str, str] = {}
        self._lost: int | None = None
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
    def is_changed(self) -> bool:
        """Whether the log at the address was found to be neither the one that was read nor a later state."""
        return self._is_replaced or self._lost is not None

    @property
    def is_due(self) -> bool:
        """Whether a writer must look at the store before it commits."""
        if self._checked_s is None or self.is_local or self._foreign is not None or self.is_changed:
            return True
        return self._monotonic_s() - self._checked_s > CHECK_EVERY_S

    def set_store_id(self, store_id: str) -> None:
        """Remember the id of the store, unless it is known."""
        self.store_id = self.store_id or store_id

    def is_foreign(self, slot: Slot) -> bool:
        """Whether a slot holds a commit of another store."""
        found = slot.id_of_store
        return bool(self.store_id and found) and found != self.store_id

    def find_slots(self, start: int, digest: str = "") -> ExistingSlots:
        """Look for the slots from `start` on, and compare slot 0 and the newest known one with those known.

        Parameters
        ----------
        digest
            Of the commit before `start`, which this process knows as the newest one. Without it that slot is
            being read in the same round, and its stamp is remembered.

        Notes
        -----
        One parallel round of ten requests without a body; on a local disk some 20 µs. One more where slot 0
        or the newest known one is another object than before, or was found without its stamp.
        """
        began = self._monotonic_s()
        keys = [commit_key(start + each) for each in _PROBES]
        newest = commit_key(start - 1) if start > 1 else None  # slot 0 is looked for anyway
        first, *found = self._store.stamps([commit_key(0), *keys, *([newest] if newest else [])])
        stamp = found.pop() if newest else None
        self._compare(first)
        if newest is None:
            self._lost = None
        elif digest:
            self._compare_newest(start - 1, digest, stamp)
        elif stamp is not None:
            self._keep({newest: stamp})
        self._checked_s, self._foreign = began, None
        if self.is_changed:
            return ExistingSlots(start, ())
        seen = {key: each for key, each in zip(keys, found, strict=True) if each is not None}
        if not seen:
            return ExistingSlots(start, ())
        self._keep(seen)
        return ExistingSlots(
            start, tuple(start + each for each, key in zip(_PROBES, keys, strict=True) if key in seen)
        )

    def note_created(self, key: str, stamp: str | None) -> None:
        """Remember the stamp of a slot that this process has just written, where storage gave it."""
        if stamp is not None:
            self._keep({key: stamp})

    def _keep(self, seen: Mapping[str, str]) -> None:
        """Remember stamps of slots; the oldest ones are forgotten."""
        known = {**self._stamps, **seen}
        self._stamps = known if len(known) <= _MOST_STAMPS else dict([*known.items()][-_MOST_STAMPS // 2 :])

    def remember(self) -> None:
        """Remember the stamp of slot 0, which this process has just written or read."""
        (self._stamp,) = self._store.stamps([commit_key(0)])

    def _compare_newest(self, version: int, digest: str, stamp: str | None) -> None:
        """Compare the newest known slot with the one seen before; read it where it is another object."""
        key = commit_key(version)
        if self._is_gone or (stamp is not None and stamp == self._stamps.get(key)):
            self._lost = None
        elif self._digest(version) == digest:
            self._lost = None
            if stamp is not None:
                self._keep({key: stamp})
        else:
            self._lost = version
            if not self._is_replaced:
                self._warn(
                    version,
                    "%s of %s is not the one that was read before: an earlier copy of the store was put back "
                    "while it was open here, or its log was changed. What was read is kept; nothing new will "
                    "be seen, and nothing can be committed. Open the store again.",
                    key,
                    self._store.url,
                )

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

    def note_foreign_commit(self, slot: Slot) -> None:
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
        """Raise StoreReplacedError if the log was found not to be the one that was read, or a later state."""
        if self.is_changed:
            raise self.replaced(0)

    def check_writable(self) -> None:
        """Raise if the last look has found that a commit would not go into the store that is open.

        Raises
        ------
        StoreReplacedError
            If the store was replaced, also by an earlier copy of itself, or a commit of another one stands in
            the way.
        StoreNotFoundError
            If slot 0 is gone.
        """
        if self._foreign is not None and not self.is_changed:
            raise self.replaced(self._foreign)
        if not self._is_gone:
            self.check_same()
        else:
            raise StoreNotFoundError(
                f"Cannot commit to the store at {self._store.url}: its first commit, {commit_key(0)}, is "
                "missing. Nothing was written.",
                hint="If the store was removed, create it again and open it. Else put the object back from a "
                "copy; `spark-pages verify URL` reports what is missing.",
                url=self._store.url,
            )

    def replaced(self, version: int) -> StoreReplacedError:
        """Create the error for a slot that holds a commit of another store."""
        if self._lost is not None and not self._is_replaced:
            return StoreReplacedError(
                f"Cannot use the store at {self._store.url}: {commit_key(self._lost)} is missing, or is "
                "another commit than the one that was read. An earlier copy of the store was put back while "
                "it was open, or its log was changed. Nothing was written.",
                hint="Open it again by `spark_pages.open(url)`, look at what it holds now, and repeat "
                "what you wanted to do.",
                url=self._store.url,
                version=self._lost,
            )
        if version == 0 or self._is_replaced:
            return StoreReplacedError(
                f"Cannot use the store at {self._store.url}: it was removed and another one was created at "
                "its address while it was open. Nothing was written.",
                hint="Open it again by `spark_pages.open(url)`, look at what it holds now, and repeat "
                "what you wanted to do.",
                url=self._store.url,
            )
        return foreign_error(version, self._store.url)


def foreign_error(version: int, url: str = "") -> StoreReplacedError:
    """Create the error for a slot after the head that holds a commit of another store."""
    key = commit_key(version)
    return StoreReplacedError(
        f"Cannot commit to the store{url and f' at {url}'}: {key} holds a commit of another store. "
        "Nothing was committed.",
        hint="If this store is the newer one, run `spark-pages repair URL --apply`, which moves that object "
        "away. If it was replaced, open the store again.",
        key=key,
    )


def gap_error(missing: int, later: int, is_foreign: bool = False) -> DamageError:
    """Create the error for a slot without a commit of this store before a later commit."""
    key = commit_key(missing)
    what = "holds a commit of another store" if is_foreign else "is missing"
    return DamageError(
        f"Cannot read the log: {key} {what}, though {commit_key(later)} is there, so it has a gap.",
        hint="Put the object back from a copy of the store; `spark-pages verify URL` tells what is missing.",
        key=key,
    )
