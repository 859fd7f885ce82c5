"""The obstore clients of one remote store in one process.

Two rules live here. A create must never be retried inside the client: when the first attempt was applied
and its answer lost, the second is told "already exists", of the caller's own object. And the threads of
obstore do not survive a fork: once this process has used them, every request of a forked child would hang.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.store import MemoryStore, from_url
from obstore.store import ObjectStore as ObstoreStore

from spark_pages.errors import InvalidInputError, StorageError
from spark_pages.storage.failures import describe, is_failure
from spark_pages.storage.obstore_options import obstore_options

REMOTE_SCHEMES = ("s3", "s3a", "gs", "az", "abfss", "memory")
_ONE_ATTEMPT = {"max_retries": 0}
_PATIENT = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


@dataclass(slots=True)
class _Threads:
    """Those of obstore, one set per process; ``pid`` is the process that started them."""

    pid: int | None = None


_threads = _Threads()


@dataclass(frozen=True, slots=True)
class Clients:
    """Two clients of the same root.

    Attributes
    ----------
    pid
        The process that built them, and the only one that may use them.
    once
        Sends every request once: for creates.
    patient
        Sends again what failed: for reads, and for writes that are safe to repeat.
    """

    pid: int
    once: ObstoreStore
    patient: ObstoreStore


def clean_url(url: str) -> str:
    """The URL without a trailing slash, known to carry neither a password nor a query.

    Parameters
    ----------
    url
        An address with one of `REMOTE_SCHEMES`.

    Returns
    -------
    str
        Safe to show.

    Raises
    ------
    InvalidInputError
        If it has no bucket, or holds what may be a secret; the message does not repeat the URL.
    """
    scheme, separator, rest = url.partition("://")
    parsed = urlsplit(f"{scheme}://{rest}")
    user, at, _ = parsed.netloc.rpartition("@")
    if not separator or scheme not in REMOTE_SCHEMES:
        raise InvalidInputError("The address of a remote store must begin with a known scheme and ://.")
    if "?" in url or "#" in url or (at and (scheme != "abfss" or ":" in user)):
        raise InvalidInputError(
            f"The {scheme}:// address holds a user name, password, query or fragment.",
            hint="Give credentials as storage_options; an address is logged and shown.",
        )
    if not parsed.netloc and scheme != "memory":
        raise InvalidInputError(f"The {scheme}:// address names no bucket or container.")
    return url.rstrip("/") if parsed.netloc else f"{scheme}://default"


def client_builder(url: str, options: Mapping[str, Any] | None) -> Callable[[], Clients]:
    """A function that builds the clients of a store in whatever process calls it.

    Parameters
    ----------
    url
        What `clean_url` gave.
    options
        Passed to `obstore.store.from_url`, as `obstore_options` gives them. ``retry_config`` is used for
        everything but creates. They are kept in the function, where no ``vars`` and no repr shows them.

    Returns
    -------
    callable
        Makes no request. Raises `InvalidInputError` where the options are wrong, or obstore refuses them; the
        message holds their names and no value.
    """
    kept = dict(options or {})

    def build() -> Clients:
        if url.startswith("memory://"):
            shared = _memory_store(url.removeprefix("memory://"))
            return Clients(os.getpid(), shared, shared)
        wanted = {"retry_config": _PATIENT, **obstore_options(kept)}
        return Clients(
            os.getpid(),
            once=_connect(url, {**wanted, "retry_config": _ONE_ATTEMPT}, names=kept),
            patient=_connect(url, wanted, names=kept),
        )

    return build


def claim_threads(url: str) -> None:
    """The process may use the threads of obstore; from now on its forked children may not.

    Parameters
    ----------
    url
        Of the store that is about to make a request. Stores in memory need no threads, and are let through.

    Raises
    ------
    StorageError
        At once, instead of hanging for ever, if they were started by the process that this one was forked
        from. Building a new client does not help: the threads belong to the library, not to the client.
    """
    if _threads.pid is None:
        _threads.pid = os.getpid()
    elif _threads.pid != os.getpid() and not url.startswith("memory://"):
        raise StorageError(
            f"Process {os.getpid()} was forked from process {_threads.pid} after that had used remote "
            f"storage, so requests to {url} would hang.",
            hint="Start processes with the 'spawn' method, or fork before the first use of a remote store.",
        )


def _memory_store(name: str) -> MemoryStore:
    with _memory_lock:
        return _memory_stores.setdefault(name, MemoryStore())


def _connect(url: str, options: dict[str, Any], names: Iterable[str]) -> ObstoreStore:
    try:
        return from_url(url, **options)
    except BaseException as error:
        if not is_failure(error):
            raise
        kind = describe(error)
    raise InvalidInputError(
        f"obstore refused the storage options of {url} ({kind}); their names are: "
        f"{', '.join(sorted(names)) or 'none'}.",
        hint=_hint(url, names),
    )


def _hint(url: str, names: Iterable[str]) -> str:
    account = any(name.removeprefix("azure_storage_") == "account_name" for name in names)
    if url.startswith("az://") and not account and "AZURE_STORAGE_ACCOUNT_NAME" not in os.environ:
        return "Name the account: by the option account_name, or by AZURE_STORAGE_ACCOUNT_NAME."
    return "Use the names of obstore; docs/storage.md has an example."
