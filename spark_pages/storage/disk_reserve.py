"""Space that a local store holds back, so that a vacuum has room to begin on a full disk.

A vacuum commits before it deletes, and may have to write a checkpoint first. So each store on a local disk
keeps a file without content beside its folders. It is no object, and whoever deletes it loses nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from spark_pages.errors import StorageError
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import ObjectStore

RESERVE_BYTES = 512 * 1024
"""Holds the checkpoint of a small store, the commit of a vacuum, and a tombstone."""

_NAME = "RESERVE"
"""No key is spelt with capitals, so the file is no object."""

Result = TypeVar("Result")


def keep_reserve(store: ObjectStore) -> None:
    """Hold space back, if the store is on a local disk and there is room."""
    if isinstance(store, DurableLocalStore):
        with suppress(OSError), store.root_folder() as folder:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(_NAME, flags, 0o666, dir_fd=folder)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
                elif os.write(descriptor, bytes(RESERVE_BYTES)) < RESERVE_BYTES:
                    os.unlink(_NAME, dir_fd=folder)
            except OSError:
                os.unlink(_NAME, dir_fd=folder)
            finally:
                os.close(descriptor)


def release_reserve(store: ObjectStore) -> bool:
    """Give the space back to the disk; whether there was any."""
    if isinstance(store, DurableLocalStore):
        with suppress(OSError), store.root_folder() as folder:
            os.unlink(_NAME, dir_fd=folder)
            return True
    return False


def with_reserve(store: ObjectStore, work: Callable[[], Result]) -> Result:
    """Do work that frees space; once more, with the reserve, if storage refuses it.

    Parameters
    ----------
    work
        May be repeated.
    """
    try:
        return work()
    except StorageError:
        if not release_reserve(store):
            raise
    return work()
