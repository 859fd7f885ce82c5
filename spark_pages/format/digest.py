"""BLAKE2b-256 over whole objects: guards against damage and mix-ups, not against an attacker."""

from __future__ import annotations

from hashlib import blake2b

from spark_pages.errors import DamageError
from spark_pages.model.location import Location
from spark_pages.storage.checks import read_checked
from spark_pages.storage.store import MAX_OBJECT_BYTES, ObjectStore

DIGEST_HEX_LENGTH = 64


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """Digest in hexadecimal, 64 characters."""
    return digester(data).hexdigest()


def digester(data: bytes | bytearray | memoryview) -> blake2b:
    """Start a digest of these bytes, to which more can be added."""
    return blake2b(data, digest_size=32)


def check_object(data: bytes, location: Location) -> bytes:
    """Return the bytes after verifying them against the location that refers to them.

    Raises
    ------
    DamageError
        If length or digest differ.
    """
    if len(data) != location.length:
        raise DamageError(
            f"Cannot read {location.key}: expected {location.length} bytes, found {len(data)}, so it "
            "was cut or replaced.",
            key=location.key,
        )
    found = digest_of(data)
    if found != location.digest:
        raise DamageError(
            f"Cannot read {location.key}: expected digest {location.digest}, found {found}, so it was "
            "damaged or replaced.",
            key=location.key,
        )
    return data


def fetch_object(store: ObjectStore, location: Location) -> bytes:
    """Read an object that its referrer names by length and digest.

    Raises
    ------
    ObjectNotFoundError
        If there is no such object.
    DamageError
        If length or digest differ, twice. No more than that length is read.
    """
    most_bytes = min(location.length, MAX_OBJECT_BYTES)
    return read_checked(lambda: check_object(store.get(location.key, most_bytes), location))


def locate(key: str, data: bytes) -> Location:
    """Create the location of a whole object that holds these bytes."""
    return Location(key, len(data), digest_of(data), original_length=len(data))
