"""Keys: the only names by which objects of a store are reached.

A key is relative to the root of its store, and is never encoded, decoded or normalised on its way to
storage: one object has one spelling, the same one on every backend.
"""

from __future__ import annotations

import re
from functools import lru_cache

from spark_pages.errors import InvalidKeyError

MAX_KEY_CHARS = 512
"""Longest key. S3 and Azure allow 1,024 bytes, of which the prefix of the store takes a share."""

MAX_PART_CHARS = 200
"""Longest part between two slashes; file systems allow 255 bytes."""

RESERVED_FOLDER = "_tmp"
"""Holds the unfinished files of local stores. No key lies in it, on any backend."""

_PART = re.compile(r"[a-z0-9._-]+")
_HINT = "Keys are relative, made of [a-z0-9._-] and single slashes, without '.' and '..' as parts."


def check_key(key: str) -> str:
    """The key itself, known to follow the grammar and to stay under the root.

    Parameters
    ----------
    key
        One or more parts of ``[a-z0-9._-]``, joined by single slashes.

    Returns
    -------
    str
        ``key``, unchanged.

    Raises
    ------
    InvalidKeyError
        If a part is empty, ``.`` or ``..``, if a character is outside the grammar, if the key or a part is
        too long, or if it lies in the reserved folder ``_tmp``. Generate names inside the grammar instead.

    Notes
    -----
    O(length of the key), no request.
    """
    if not is_key(key):
        raise InvalidKeyError(
            f"Cannot use {_shown(key)} as a key: it leaves the root or the grammar of keys.", hint=_HINT
        )
    return key


def is_key(name: object) -> bool:
    """Whether `check_key` would accept the name.

    Parameters
    ----------
    name
        Anything, such as what a listing of foreign files holds.

    Returns
    -------
    bool
        True if the name is a key.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_KEY_CHARS:
        return False
    parts = name.split("/")
    return parts[0] != RESERVED_FOLDER and all(_is_part(part) for part in parts)


def check_prefix(prefix: str) -> str:
    """The prefix itself, known to be the beginning of some key, or empty.

    Parameters
    ----------
    prefix
        Empty for the whole store, a folder with its slash (``pages/``), or the beginning of a name
        (``_log/000``).

    Returns
    -------
    str
        ``prefix``, unchanged.

    Raises
    ------
    InvalidKeyError
        If no key can begin with it.
    """
    if prefix != "" and not is_key(prefix.removesuffix("/")):
        raise InvalidKeyError(
            f"Cannot list the prefix {_shown(prefix)}: it is not the beginning of a key.", hint=_HINT
        )
    return prefix


def split_key(key: str) -> tuple[list[str], str]:
    """The folders above an object, outermost first, and its own name.

    Parameters
    ----------
    key
        A key that `check_key` accepted.

    Returns
    -------
    tuple of list of str, and str
        ``(["_log", "parts"], "a")`` for ``_log/parts/a``.
    """
    *folders, name = key.split("/")
    return folders, name


def _is_part(part: str) -> bool:
    return part not in (".", "..") and len(part) <= MAX_PART_CHARS and _PART.fullmatch(part) is not None


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"


@lru_cache(1024)
def split_known_key(key: str) -> tuple[list[str], str]:
    """Split a key as `split_key` once it is checked; for keys that are looked for again and again."""
    return split_key(check_key(key))
