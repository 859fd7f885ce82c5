"""Checks of the storage protocol: keys, byte ranges and answers, and one more read of a wrong answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from spark_pages.arguments import check_kind, shortened
from spark_pages.errors import DamageError, InvalidInputError, InvalidKeyError, SparkPagesError

# Keys: the only names by which objects of a store are reached.
#
# A key is relative to the root of its store, and is never encoded, decoded or normalised on its way to
# storage: one object has one spelling, the same one on every backend.

MAX_KEY_CHARS = 512
"""Longest key. S3 and Azure allow 1,024 bytes, of which the prefix of the store takes a share."""

MAX_PART_CHARS = 200
"""Longest part between two slashes; file systems allow 255 bytes."""

RESERVED_FOLDER = "_tmp"
"""Holds the unfinished files of local stores. No key lies in it, on any backend."""

_PART = re.compile(r"[a-z0-9._-]+")
_HINT = "Keys are relative, made of [a-z0-9._-] and single slashes, without '.' and '..' as parts."


def check_key(key: str) -> str:
    """Return the key after verifying its grammar, and that it stays under the root.

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
    """Return the prefix after verifying that a key may begin with it.

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
    if not (isinstance(prefix, str) and (prefix == "" or is_key(prefix.removesuffix("/")))):
        raise InvalidKeyError(
            f"Cannot list the prefix {_shown(prefix)}: it is not the beginning of a key.", hint=_HINT
        )
    return prefix


def split_key(key: str) -> tuple[list[str], str]:
    """Split a key into its folders, outermost first, and its own name.

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
    if not isinstance(key, str):
        return shortened(key)
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"


@lru_cache(1024)
def split_known_key(key: str) -> tuple[list[str], str]:
    """Split a key as `split_key` once it is checked; for keys that are looked for again and again."""
    return split_key(check_key(key))


MAX_END = 2**63 - 1
"""No object ends behind this byte; a range that does was not written by us."""


def check_range(key: str, offset: int, length: int) -> tuple[int, int]:
    """Return a valid range as numbers of Python, because sums of small numbers of numpy overflow.

    Parameters
    ----------
    key
        Named in the message.
    offset, length
        First byte and number of bytes.

    Raises
    ------
    InvalidInputError
        If one of them is negative, or no whole number.
    DamageError
        If the end overflows 63 bits, as only a forged or damaged descriptor says.
    """
    _check_whole(offset, "offset")
    _check_whole(length, "length")
    offset, length = int(offset), int(length)
    if offset < 0 or length < 0:
        raise InvalidInputError(
            f"Cannot read a range of object {key!r}: it was asked for with offset {offset} and length "
            f"{length}.",
            hint="Pass `offset` and `length` in bytes from 0.",
            key=key,
        )
    if offset + length > MAX_END:
        raise past_end(key, offset, length, found=None)
    return offset, length


def check_ranges(key: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return valid ranges as `check_range` does.

    Raises as `check_range` if a range is invalid, and InvalidInputError if they are no list of pairs.
    """
    try:
        len(ranges)  # an iterator would be at its end afterwards
        return [check_range(key, offset, length) for offset, length in ranges]
    except SparkPagesError:
        raise
    except (TypeError, ValueError, LookupError):
        raise InvalidInputError(
            f"Cannot read ranges of object {key!r}: expected a list of pairs of an offset and a length.",
            hint="Pass `ranges` such as [(0, 4096)].",
            key=key,
        ) from None


def check_data(data: object) -> None:
    """Raise InvalidInputError if what is to be written is not bytes."""
    try:
        memoryview(data).release()  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        check_kind(data, bytes, "data", "bytes, or a buffer of them")


def check_most_bytes(most_bytes: object) -> None:
    """Raise InvalidInputError if a limit is no whole number."""
    _check_whole(most_bytes, "most_bytes")


def _check_whole(value: object, what: str) -> None:
    if value.__class__ is not int:  # most are, and there are many
        check_kind(None if isinstance(value, bool) else value, int | np.integer, what, "a number of bytes")


def check_answer(key: str, offset: int, length: int, data: bytes) -> bytes:
    """Return the bytes after verifying that they are as long as the range.

    Parameters
    ----------
    key, offset, length
        What was asked for.
    data
        What came.

    Returns
    -------
    bytes
        ``data``, unchanged.

    Raises
    ------
    DamageError
        If the answer is shorter (or longer) than the range.
    """
    if len(data) != length:
        raise past_end(key, offset, length, found=f"{len(data)} bytes were answered")
    return data


def check_length(key: str, length: int, most_bytes: int) -> None:
    """Raise DamageError if an object is longer than its referrer or the format allows.

    Parameters
    ----------
    key
        Named in the message.
    length
        Bytes of the object.
    most_bytes
        The most that it may have.
    """
    if length > most_bytes:
        raise DamageError(
            f"Cannot read object {key!r}: it holds {length} bytes, expected at most {most_bytes}.",
            hint="Run `spark-pages verify URL`: the object has grown or was replaced.",
            key=key,
        )


def past_end(key: str, offset: int, length: int, found: str | None) -> DamageError:
    """Create the error for an object that does not hold a range.

    Parameters
    ----------
    key, offset, length
        What was asked for.
    found
        What is there instead, in words, if known.

    Returns
    -------
    DamageError
        For the caller to raise.
    """
    return DamageError(
        f"Cannot read bytes {offset} to {offset + length} (exclusive) of object {key!r}: "
        f"{found or 'no object is that long'}.",
        hint="Run `spark-pages verify URL`: the object was cut short or replaced.",
        key=key,
        offset=offset,
        length=length,
    )


def requests_for(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the number of requests that `ObjectStore.get_ranges` makes.

    Parameters
    ----------
    ranges
        Pairs of offset and length.

    Returns
    -------
    int
        Number of groups of ranges that touch or overlap; empty ranges need none.

    Notes
    -----
    O(n · log n).
    """
    return sum(1 for _ in _group_ends(sorted(asked for asked in ranges if asked[1] > 0)))


def _group_ends(in_order: Iterable[tuple[int, int]]) -> Iterable[int]:
    end = None
    for offset, length in in_order:
        if end is not None and offset > end:
            yield end
        end = max(end or 0, offset + length)
    if end is not None:
        yield end


Answer = TypeVar("Answer")


def read_checked(read: Callable[[], Answer]) -> Answer:
    """Read and check something; where the check fails, once more.

    Parameters
    ----------
    read
        Fetches bytes, checks them and returns what they hold. It must fetch anew at each call.

    Raises
    ------
    DamageError
        If the second answer is wrong too.

    Notes
    -----
    A proxy, a cache or a bad cable may have spoiled the first answer: the object itself can be right. Costs
    nothing where the first answer is right.
    """
    try:
        return read()
    except DamageError:
        return read()
