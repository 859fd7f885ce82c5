"""Byte ranges: what may be asked for, what an answer must be, and how many requests they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_pages.errors import DamageError, InvalidInputError

MAX_END = 2**63 - 1
"""No object ends behind this byte; a range that does was not written by us."""


def check_range(key: str, offset: int, length: int) -> None:
    """The range can be asked for.

    Parameters
    ----------
    key
        Named in the message.
    offset, length
        First byte and number of bytes.

    Raises
    ------
    InvalidInputError
        If one of them is negative.
    DamageError
        If the end overflows 63 bits, as only a forged or damaged descriptor says.
    """
    if offset < 0 or length < 0:
        raise InvalidInputError(
            f"Cannot read a range of object {key!r}: it was asked for with offset {offset} and length "
            f"{length}.",
            hint="Pass `offset` and `length` in bytes from 0.",
            key=key,
        )
    if offset + length > MAX_END:
        raise past_end(key, offset, length, found=None)


def check_answer(key: str, offset: int, length: int, data: bytes) -> bytes:
    """The answer itself, known to be as long as the range.

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
    """The error that says that an object does not hold a range.

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
    """Number of requests that `ObjectStore.get_ranges` makes.

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
