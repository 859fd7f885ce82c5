"""The obstore clients of one remote store in one process.

Two rules live here. A create must never be retried inside the client: when the first attempt was applied
and its answer lost, the second is told "already exists", of the caller's own object. And the threads of
obstore do not survive a fork: once this process has used them, every request of a forked child would hang.
"""

from __future__ import annotations

import os
import re
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
    """Return the URL without a trailing slash. Raise if it has a password or a query.

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
        raise InvalidInputError(
            "Cannot use the address of a remote store: it must begin with a known scheme and ://.",
            hint="Write it like s3://bucket/folder, gs://bucket/folder or az://container/folder.",
        )
    if "?" in url or "#" in url or (at and (scheme != "abfss" or ":" in user)):
        raise InvalidInputError(
            f"Cannot use the {scheme}:// address: it holds a user name, password, query or fragment.",
            hint="Give credentials as `storage_options`; an address is logged and shown.",
        )
    if not parsed.netloc and scheme != "memory":
        raise InvalidInputError(
            f"Cannot use the {scheme}:// address: it names no bucket or container.",
            hint=f"Write {scheme}://NAME/folder, with the name of the bucket or container.",
        )
    return url.rstrip("/") if parsed.netloc else f"{scheme}://default"


def client_builder(url: str, options: Mapping[str, Any] | None) -> Callable[[], Clients]:
    """Return a function that builds the clients of a store in any process.

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
    """Allow this process to use obstore's threads. Children forked later may not use them.

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
            f"Cannot send requests to {url}: process {os.getpid()} was forked from process "
            f"{_threads.pid} after that had used remote storage, so they would hang.",
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
        f"Cannot use the storage options of {url}: obstore refused them ({kind}); their names are: "
        f"{', '.join(sorted(names)) or 'none'}.",
        hint=_hint(url, names),
    )


def _hint(url: str, names: Iterable[str]) -> str:
    account = any(name.removeprefix("azure_storage_") == "account_name" for name in names)
    if url.startswith("az://") and not account and "AZURE_STORAGE_ACCOUNT_NAME" not in os.environ:
        return "Name the account: by the option account_name, or by AZURE_STORAGE_ACCOUNT_NAME."
    return "Use the names of obstore; docs/storage.md has an example."


_OF_CLIENT = frozenset(
    (
        "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
        "default_headers", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host",
        "proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses", "read_timeout",
        "root_certificate", "timeout", "user_agent",
    )
)  # fmt: skip
_PREFIX = re.compile("^(aws|google|azure_storage|azure)_")
_ENDPOINT = (re.compile(r"https?://[^\s/?#]+[^\s?#]*"), "a URL such as https://host:port")
_REGION = (re.compile("[A-Za-z0-9-]+"), "a region such as eu-central-1")
_RULES = {"endpoint": _ENDPOINT, "endpoint_url": _ENDPOINT, "region": _REGION, "default_region": _REGION}
_DURATIONS = ("retry_timeout", "init_backoff", "max_backoff")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def obstore_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to the names and types of obstore.

    Parameters
    ----------
    given
        Those of a caller or a profile. An option of the HTTP client may stand in ``client_options``, alone,
        or as ``client_options.NAME``. Names may be those of environment variables, such as ``AWS_REGION``.

    Raises
    ------
    InvalidInputError
        If a duration of ``retry_config`` is none, or one of these two is no table. Shows no value.
    """
    options: dict[str, Any] = {}
    client: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, value in given.items():
        own = _client_name(name)
        key = name.lower() if own is None else own
        one = _PREFIX.sub("", key)
        if one in spelled:
            raise InvalidInputError(
                f"Cannot use the storage options {spelled[one]} and {name}: they are the same one.",
                hint=f"Leave out one of {spelled[one]} and {name}.",
            )
        spelled[one] = name
        if own is None:
            _check_value(name, one, value)
            options[key] = value
        else:
            client[own] = value
    if client or "client_options" in options:
        options["client_options"] = {**_table(options, "client_options"), **client}
    if "retry_config" in options:
        options["retry_config"] = _with_durations(_table(options, "retry_config"), "retry_config")
    return options


def _client_name(name: str) -> str | None:
    """Return the name of an HTTP client option, or None. Obstore panics at ``AWS_ALLOW_HTTP``."""
    lower = name.lower()
    plain = lower.removeprefix("client_options.")
    bare = _PREFIX.sub("", plain)
    return bare if plain != lower or bare in _OF_CLIENT else None


def _check_value(name: str, plain: str, value: Any) -> None:
    """Raise InvalidInputError where obstore would panic at the first request."""
    rule = _RULES.get(plain)
    if rule is not None and not (isinstance(value, str) and rule[0].fullmatch(value)):
        raise InvalidInputError(
            f"Cannot use the storage option {name}: expected {rule[1]}.", hint=f"Set {name} to {rule[1]}."
        )


def _table(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = options.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidInputError(
            f"Cannot use the storage option {name}: it is a {type(found).__name__}, expected names "
            "and values.",
            hint=f"Write it as {name}={{'key': 'value'}}.",
        )
    return dict(found)


def _with_durations(table: dict[str, Any], where: str) -> dict[str, Any]:
    for name, value in table.items():
        if name in _DURATIONS:
            table[name] = _duration(f"{where}.{name}", value)
        elif name == "backoff":
            table[name] = _with_durations(_table(table, name), f"{where}.{name}")
    return table


def _duration(name: str, value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return timedelta(seconds=value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidInputError(
            f"Cannot use the storage option {name}: a {type(value).__name__} that cannot be read as a "
            "duration.",
            hint="Give seconds, such as 10, or text such as '500ms', '10s' or '2m'.",
        )
    return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
