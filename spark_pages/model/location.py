"""Where an object, or a part of one, is kept (seed 004)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """The place of some bytes, and what they must be.

    Attributes
    ----------
    key
        Key relative to the root.
    offset, length
        First byte and number of bytes.
    original_length
        Bytes after decompression; equals `length` where nothing is compressed.
    digest
        BLAKE2b-256 of the bytes in hexadecimal.
    shared
        Whether other referrers may name the same object.
    """

    key: str
    length: int
    digest: str
    offset: int = 0
    original_length: int = -1
    shared: bool = True
