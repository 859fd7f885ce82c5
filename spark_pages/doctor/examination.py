"""All checks, in the order in which a failure of one explains those after it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from spark_pages.doctor.checks import Check, Status, warning
from spark_pages.doctor.machine import check_machine
from spark_pages.doctor.races import race
from spark_pages.doctor.storage import check_clock, check_fork, check_objects, check_reach, check_store
from spark_pages.errors import SparkPagesError
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore

_FOLDER = "_doctor/"


@dataclass(frozen=True, slots=True)
class Examination:
    """What the doctor found.

    Attributes
    ----------
    url
        Which storage.
    checks
        Every check.
    """

    url: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; there may be warnings."""
        return all(check.status is not Status.FAILED for check in self.checks)


def examine(url: str, storage_options: Mapping[str, Any] | None = None) -> Examination:
    """This machine and the storage at an address have been looked at.

    Notes
    -----
    Writes some twenty small objects below ``_doctor/`` and removes them. A minute at most where storage
    answers; nothing of a store that is there is touched.
    """
    store = open_object_store(url, storage_options)
    shared = not store.url.startswith("memory://")
    found = examine_storage(store, Runtime(), url if shared else None, storage_options)
    _remove_folder(store, _FOLDER)
    return Examination(store.url, (*check_machine(), *found))


def examine_storage(
    store: ObjectStore,
    runtime: Runtime,
    address: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Check]:
    """The checks of storage alone.

    Parameters
    ----------
    address, options
        How other processes reach the same storage; None where they cannot.
    """
    prefix = f"{_FOLDER}{runtime.token()}/"
    reach = check_reach(store, f"{prefix}object")
    checks = [reach]
    try:
        if reach.status is Status.OK:
            checks += race(store, prefix, address, options)
            checks += check_objects(store, f"{prefix}object")
            checks.append(check_clock(store, runtime, f"{prefix}time"))
            if address is not None:
                checks.append(check_fork(store, f"{prefix}fork", address, options))
            checks += check_store(store, runtime)
    finally:
        checks += _clean(store, prefix)
    return checks


def _clean(store: ObjectStore, prefix: str) -> list[Check]:
    try:
        for info in store.list(prefix):
            store.delete(info.key)
        left = len(store.list(prefix))
        _remove_folder(store, prefix)
    except SparkPagesError as error:
        return [warning("cleaning up", error.message, f"Remove what is below {prefix}.")]
    return (
        [warning("cleaning up", f"{left} objects stayed", f"Remove what is below {prefix}.")] if left else []
    )


def _remove_folder(store: ObjectStore, prefix: str) -> None:
    """The folder is gone, if it is one on a disk and is empty."""
    path = store.local_path(f"{prefix}object")
    if path is not None:
        with suppress(OSError):
            os.rmdir(os.path.dirname(path))
