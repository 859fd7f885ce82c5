"""The one boundary to storage: what the rest of spark_pages may ask of it, and what it answers.

Everything above talks to an `ObjectStore`; nothing above knows which backend it is. The contract in
words is here, the contract in tests is ``tests/contract/store_contract.py``, run against every backend.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from spark_pages.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc only from Python 3.12


@dataclass(frozen=True, slots=True)
class Created:
    """The object was created by this call, and is durable.

    Attributes
    ----------
    stamp
        What `ObjectStore.stamps` gives for it, where storage has answered that, too.
    """

    stamp: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """The store says that the key is taken.

    The object may be the caller's own, from an earlier call that ended in doubt, and after an HTTP 409 there
    may be none at all. Read the key back before you decide.
    """


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The object may have been created, may yet be created by a late request, or may never be.

    Create the same key with the same bytes again, and read back; never assume that it is absent.

    Attributes
    ----------
    reason
        What went wrong, in words, without secrets.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NotCreated:
    """The object was surely not created by this call, nor will be.

    Attributes
    ----------
    reason
        What went wrong, in words, without secrets.
    hint
        What to do about it.
    """

    reason: str
    hint: str = "Mend that, then try again."


MAX_OBJECT_BYTES = 1 << 30
"""The longest object that is read whole. Page files are read in ranges."""

CreateOutcome: TypeAlias = Created | Exists | Doubtful | NotCreated


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing tells of one object. Hints: nothing may depend on them being right.

    Attributes
    ----------
    key
        Key of the object, relative to the root.
    size_bytes
        Length of the object.
    modified_at_us
        Time of the last write by the clock of the storage, in microseconds since 1970 (UTC).
    """

    key: str
    size_bytes: int
    modified_at_us: int


CLOCK_PREFIX = "_log/_clock-"
"""Keys of objects that are written to read the clock of the storage, and deleted at once."""


@runtime_checkable
class ObjectStore(Protocol):
    """A flat set of named byte strings, under one root.

    Every method may be called from several threads. Every key is checked by `check_key` first, so each method
    may raise `InvalidKeyError`; it is not repeated below.
    """

    @property
    def url(self) -> str:
        """Address of the root, without secrets; `open_object_store` understands it."""
        ...

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """Exactly one of all creators of a key is told `Created`, and then its bytes are durable.

        Parameters
        ----------
        key
            Where to create the object.
        data
            The whole object.

        Returns
        -------
        Created or Exists or Doubtful or NotCreated
            A failure of the storage is a value here, never an exception, because it mostly does not tell
            whether the object was created. A local disk that fails before the object gets its name does.

        Raises
        ------
        InvalidInputError
            If the call or the options of the store are wrong: nothing was sent.

        Notes
        -----
        One request, never retried inside. On a local disk two syncs.
        """
        ...

    def put(self, key: str, data: Buffer) -> None:
        """Replace an object durably. Readers see the old object or the new one, each complete.

        For immutable objects under unique names, and for hints. Never for what two writers may race on.

        Parameters
        ----------
        key
            Where to write; an object that is there is replaced.
        data
            The whole object.

        Raises
        ------
        StorageError
            If it did not surely succeed. The object may be there all the same; putting it again is safe.

        Notes
        -----
        One request for a small object, several for a large one; retried inside.
        """
        ...

    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read a whole object.

        Parameters
        ----------
        key
            Which object.
        most_bytes
            Length that its referrer names, or the most that the format allows.

        Returns
        -------
        bytes
            All of it. Check length and digest against what refers to it.

        Raises
        ------
        ObjectNotFoundError
            If there is no such object.
        DamageError
            If it is longer. Nothing of that size is allocated.
        StorageError
            If it could not be read now.

        Notes
        -----
        One request; memory for the object.
        """
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes of the object, from ``offset``.

        Parameters
        ----------
        key
            Which object.
        offset, length
            First byte, from 0, and the number of bytes; a length of 0 gives ``b""`` without a request.

        Returns
        -------
        bytes
            ``length`` bytes, never fewer.

        Raises
        ------
        ObjectNotFoundError
            If there is no such object.
        DamageError
            If the object ends before the range does. Nothing of that size is allocated.
        InvalidInputError
            If offset or length is negative.
        StorageError
            If it could not be read now.

        Notes
        -----
        One request.
        """
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Read ranges of an object, in the given order.

        Parameters
        ----------
        key
            Which object.
        ranges
            Pairs of offset and length, in any order; they may overlap.

        Returns
        -------
        list of bytes
            One per range, each of exactly the length asked for.

        Raises
        ------
        ObjectNotFoundError, DamageError, InvalidInputError, StorageError
            As `get_range`.

        Notes
        -----
        One request per group of ranges that touch or overlap; a gap of one byte starts a new request. Whoever
        wants to read across gaps merges the ranges first.
        """
        ...

    def size(self, key: str) -> int:
        """Length of the object in bytes.

        Parameters
        ----------
        key
            Which object.

        Returns
        -------
        int
            Its length, from 0.

        Raises
        ------
        ObjectNotFoundError
            If there is no such object.
        StorageError
            If it could not be asked now.

        Notes
        -----
        One request.
        """
        ...

    def stamps(self, keys: Sequence[str]) -> builtins.list[str | None]:
        """Identify the objects that some keys hold now, without reading them.

        Parameters
        ----------
        keys
            Which objects; they need not exist.

        Returns
        -------
        list of str or None
            For each key, text that another object has not got that held the key before, or will hold it; None
            where the key holds no object. From the inode and the times of a file, or the ETag of an object.

        Raises
        ------
        StorageError
            If one of them could not be asked now.

        Notes
        -----
        One request for each key, all at the same time on remote storage. On a local disk no file is opened.
        """
        ...

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key begins with the prefix, sorted by key.

        Files that are not named by a key, and those of the reserved folder ``_tmp``, are left out.

        Parameters
        ----------
        prefix
            Compared as a string: empty, ``pages/`` or ``_log/000``.

        Returns
        -------
        list of ObjectInfo
            May miss what is created, or hold what is deleted, while it runs.

        Raises
        ------
        StorageError
            If it could not be listed now.

        Notes
        -----
        One request per 1,000 objects of the innermost folder of the prefix. For maintenance only: no answer
        about the state of the log may depend on it.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object. An absent one is no error.

        Parameters
        ----------
        key
            Which object.

        Raises
        ------
        StorageError
            If it did not surely succeed.

        Notes
        -----
        One request. Not synced on a local disk: a power cut may bring the object back.
        """
        ...

    def local_path(self, key: str) -> str | None:
        """Return the local path of an object that can be read directly, or None.

        Parameters
        ----------
        key
            Which object; that it exists is not checked.

        Returns
        -------
        str or None
            An absolute path without symbolic links, or None if reads must go through the store.
        """
        ...

    def now_us(self) -> int | None:
        """Read the clock of the storage, by the date that it gives to a new object.

        Returns
        -------
        int or None
            Microseconds since 1970 (UTC), of whole seconds where storage counts those; None if it tells none.

        Raises
        ------
        StorageError
            If the object cannot be written.

        Notes
        -----
        Three requests to an object store, which leave nothing behind; one unfinished file on a local disk.
        """
        ...


def size_if_there(store: ObjectStore, key: str) -> int | None:
    """Bytes of an object; None where there is none."""
    try:
        return store.size(key)
    except ObjectNotFoundError:
        return None
