"""From an address to the store that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from spark_pages.arguments import as_path, as_str, check_kind, shortened
from spark_pages.errors import InvalidInputError
from spark_pages.storage.clients import REMOTE_SCHEMES
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.remote import RemoteStore
from spark_pages.storage.store import ObjectStore

_FILE = "file:/"
_ALMOST = re.compile(
    "(file|s3a?|s3n|gs|gcs|az|azure|abfss?|wasbs?|adl|memory|hdfs|dbfs|https?)(:[/\\\\]*|[/\\\\]{2,})",
    re.IGNORECASE,
)
"""What begins like a URL: a scheme, then a colon, or several slashes without one."""

_KNOWN = ", ".join(f"{scheme}://" for scheme in ("file", *REMOTE_SCHEMES))


def open_object_store(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> ObjectStore:
    """Open the storage at an address, without looking for a store there.

    Parameters
    ----------
    url
        A path (absolute, relative to the working directory, or with ``~``), ``file:///path`` (or
        ``file:/path``), ``s3://bucket/prefix`` (or ``s3a://``), ``gs://bucket/prefix``,
        ``az://container/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``, or ``memory://name``.
    storage_options
        Credentials and settings, passed to obstore under the names they have, or ``{"profile": name}``, which
        lets the store be pickled; see `spark_pages.storage.profiles`. For S3 such as
        ``access_key_id``, ``secret_access_key``, ``region``, ``endpoint``; settings of the HTTP client in
        ``client_options``, of retries in ``retry_config``.

    Returns
    -------
    ObjectStore
        Nothing was made and no request was sent.

    Raises
    ------
    InvalidInputError
        If the scheme is unknown, a secret is part of the address, or options are given for an address that
        takes none.
    """
    check_kind(storage_options, Mapping | None, "storage_options", "names and values")
    for name in storage_options or ():
        as_str(name, "a name in storage_options")
    address = as_path(url, "the address of a store", "a path or a URL such as file:///folder")
    folder, scheme = folder_of(address), address.partition("://")[0]
    if folder is None and scheme not in REMOTE_SCHEMES:
        raise InvalidInputError(
            f"Cannot open {scheme}://: no storage is known for it.", hint=f"Use a path or {_KNOWN}."
        )
    if storage_options and (folder is not None or scheme == "memory"):
        raise InvalidInputError(
            f"Cannot use storage options for {address}: it takes none, but was given "
            f"{', '.join(sorted(storage_options))}.",
            hint="Leave out `storage_options`, or check the address.",
        )
    return RemoteStore(address, storage_options) if folder is None else DurableLocalStore(folder)


def folder_of(address: str) -> str | None:
    """Return the folder that an address names, or None for object storage and memory.

    Raises
    ------
    InvalidInputError
        If it begins with ``file:``, and what follows is no absolute path; or with another scheme, but not
        as a URL does, such as ``s3:/bucket``.
    """
    if address[: len(_FILE)].lower() == _FILE:  # Java writes one slash after it
        return _path_of(address[len(_FILE) - 1 :].removeprefix("//"))
    _refuse_misspelled(address)
    return None if "://" in address else os.path.expanduser(address)


def _refuse_misspelled(address: str) -> None:
    """Raise InvalidInputError for an almost right URL, which would be a folder of a strange name."""
    found = _ALMOST.match(address)
    if found is None or address.startswith(f"{found[1].lower()}://"):
        return
    scheme, rest = found[1].lower(), address[found.end() :].lstrip("/\\")
    right = f"{scheme}://{rest}"
    if scheme == "file":
        right = f"file:///absolute/path, or the path itself: {rest or '.'}"
    elif scheme not in REMOTE_SCHEMES:
        right = f"a path, or {_KNOWN}"
    if "@" in address or "?" in address:  # which may be secrets
        raise InvalidInputError(
            "Cannot use the address of a store: it is misspelled.", hint=f"Use a path or {_KNOWN}."
        )
    raise InvalidInputError(
        f"Cannot use {shortened(address)} as the address of a store: it is no URL of one.",
        hint=f"Write {right}. A folder of this name is written ./{address}.",
    )


def _path_of(rest: str) -> str:
    path = unquote(rest.removeprefix("localhost"))
    if not path.startswith("/") or "\0" in path or "?" in rest or "#" in rest:
        raise InvalidInputError(
            "Cannot use a file:// address: it must hold an absolute path, and neither host, query "
            "nor fragment.",
            hint="Write file:///absolute/path, or give the path itself.",
        )
    return path
