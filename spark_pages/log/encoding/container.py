"""Avro containers that carry their own digest: the outer form of slots and of compacted ranges. Pure.

The digest stands in the container's metadata as 64 hexadecimal characters and covers the whole object
with those characters replaced by zeros, so that no bit of the object is unguarded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

import fastavro

from spark_pages.errors import DamageError
from spark_pages.log.digest import DIGEST_HEX_LENGTH, digest_of, digester

DIGEST_KEY = "spark_pages.digest"
_ZEROS = "0" * DIGEST_HEX_LENGTH
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16


@dataclass(frozen=True, eq=False, slots=True)
class _Form:
    """What all containers of a schema have in common: it is most of a small commit.

    Attributes
    ----------
    schema
        Kept, so that no other gets its id.
    before, behind
        What a container begins with, up to the digest and from there to the sync marker.
    digested
        The digest so far, with zeros in its place.
    """

    schema: Any
    before: bytes
    behind: bytes
    digested: blake2b

    @classmethod
    def of(cls, schema: Any) -> _Form:
        head = io.BytesIO(_MAGIC)
        head.seek(len(_MAGIC))
        metadata = {
            "avro.codec": b"null",
            "avro.schema": _shortest(_long_form(schema)),
            DIGEST_KEY: _ZEROS.encode(),
        }
        fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, metadata)
        before, _, behind = head.getvalue().partition(_ZEROS.encode())
        return cls(schema, before, behind, digester(head.getvalue()))


_forms: dict[int, _Form] = {}


def encode_container(schema: Any, records: Sequence[Any], sync_marker: bytes) -> tuple[bytes, str]:
    """Bytes of a container with one block, and its digest. The same records always give the same bytes.

    Parameters
    ----------
    records
        Values, or bytes where somebody has encoded one already.
    """
    form = _forms.get(id(schema))
    if form is None:
        form = _forms[id(schema)] = _Form.of(schema)
    parts = [sync_marker]
    if records:
        encoded = [each if isinstance(each, bytes) else _encoded(schema, each) for each in records]
        parts += [avro_count(len(encoded)), avro_count(sum(map(len, encoded))), *encoded, sync_marker]
    rest = b"".join(parts)
    digested = form.digested.copy()
    digested.update(rest)
    digest = digested.hexdigest()
    return b"".join((form.before, digest.encode(), form.behind, rest)), digest


def avro_count(value: int) -> bytes:
    """A count as Avro writes it: twice the value, seven bits to a byte, the lowest first."""
    rest = 2 * value
    digits = bytearray()
    while rest > 127:
        digits.append(rest & 127 | 128)
        rest >>= 7
    digits.append(rest)
    return bytes(digits)


def _encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _long_form(schema: Any) -> bytes:
    """The schema as fastavro writes it, and as earlier releases had it in their containers."""
    out = io.BytesIO()
    fastavro.writer(out, schema, [], codec="null", sync_marker=bytes(_SYNC_BYTES))
    return _metadata(out.getvalue())[0]["avro.schema"]


def _shortest(schema: bytes) -> bytes:
    """The same schema in fewer bytes: no spaces and defaults, and a namespace in the outer records alone."""
    return json.dumps(_shortened(json.loads(schema), ""), separators=(",", ":")).encode()


def _shortened(schema: Any, inside: str) -> Any:
    """The schema with names relative to the namespace that it stands in."""
    if isinstance(schema, list):
        return [_shortened(each, inside) for each in schema]
    if isinstance(schema, str):
        return schema.removeprefix(f"{inside}.") if inside else schema
    if schema["type"] != "record":
        return {key: _shortened(each, inside) for key, each in schema.items()}
    namespace, _, name = schema["name"].rpartition(".")
    # What is there needs no default: that is for readers.
    fields = [
        {"name": field["name"], "type": _shortened(field["type"], namespace)} for field in schema["fields"]
    ]
    of = {} if namespace == inside else {"namespace": namespace}
    return {"type": "record", "name": name, **of, "fields": fields}


def check_container(data: bytes, claimed: str, key: str) -> None:
    """Refuse a container whose digest is not the one that it carries.

    Raises
    ------
    DamageError
        Names the object.
    """
    hexadecimal = claimed.encode()
    if len(hexadecimal) != DIGEST_HEX_LENGTH or data.count(hexadecimal) != 1:
        raise DamageError(f"{key} does not carry its digest exactly once: it was damaged.", key=key)
    found = digest_of(data.replace(hexadecimal, _ZEROS.encode()))
    if found != claimed:
        raise DamageError(f"{key} should have digest {claimed} but has {found}: it was damaged.", key=key)


class ContainerSchema:
    """A schema, and the forms in which containers of this release and of earlier ones hold it.

    Parameters
    ----------
    parsed
        What `fastavro.parse_schema` gave.
    others
        Schemas of containers that hold less, likewise: unions of the first of its records, and records
        without fields for which it has a default.

    Attributes
    ----------
    written
        What a known form is decoded with; a field that it lacks is not in what it gives.
    """

    def __init__(self, parsed: Any, *others: Any) -> None:
        self.parsed = parsed
        self.written: dict[bytes | None, Any] = {}
        for each in (*others, parsed):
            long = _long_form(each)
            self.written |= {long: each, _shortest(long): each}


def decode_container(
    data: bytes, schema: ContainerSchema, key: str, most: int | None = None
) -> tuple[list[Any], str]:
    """The records, with their names where the schema is a union, and the digest once it is known to be right.

    Parameters
    ----------
    most
        Decode so many records at most.

    Raises
    ------
    DamageError
        If the digest is wrong. What else an object that is no such container makes the decoder raise is for
        the caller to name.

    Notes
    -----
    A container that holds the schema in a known form is decoded without parsing it again.
    """
    metadata, block = _metadata(data)
    known = schema.written.get(metadata.get("avro.schema"))
    claimed = metadata.get(DIGEST_KEY, b"").decode()
    check_container(data, claimed, key)
    names: dict[str, Any] = {"return_record_name": True, "return_record_name_override": True}
    if known is None or metadata.get("avro.codec") != b"null":
        reader = fastavro.reader(io.BytesIO(data), reader_schema=schema.parsed, **names)
        return list(islice(reader, most)), claimed
    source = io.BytesIO(data)
    source.seek(block)
    count, size = _long(source), _long(source)
    end = source.tell() + size
    wanted = count if most is None else min(count, most)
    records = [fastavro.schemaless_reader(source, known, None, **names) for _ in range(wanted)]
    if (wanted == count and source.tell() != end) or len(data) != end + _SYNC_BYTES:
        raise ValueError("the block does not end where it says")
    return records, claimed


def _metadata(data: bytes) -> tuple[dict[str, bytes], int]:
    """The metadata of a container, and where its first block begins."""
    source = io.BytesIO(data)
    if source.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("not an Avro container")
    metadata: dict[str, bytes] = {}
    while count := _long(source):
        if count < 0:
            count = -count
            _long(source)
        for _ in range(count):
            name = _bytes(source).decode()
            metadata[name] = _bytes(source)
    return metadata, source.tell() + _SYNC_BYTES


def _long(source: io.BytesIO) -> int:
    shift = number = 0
    while True:
        (byte,) = source.read(1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7


def _bytes(source: io.BytesIO) -> bytes:
    length = _long(source)
    found = source.read(length) if length >= 0 else b""
    if len(found) != length:
        raise ValueError("the container ends too early")
    return found
