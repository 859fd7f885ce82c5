"""Avro containers that carry their own digest: the outer form of slots and of compacted ranges. Pure.

The digest stands in the container's metadata as 64 hexadecimal characters and covers the whole object
with those characters replaced by zeros, so that no bit of the object is unguarded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import fastavro

from spark_pages.errors import DamageError
from spark_pages.format.digest import DIGEST_HEX_LENGTH, digest_of, digester

# What Avro values would take in memory once they are decoded, found without decoding them. Pure.
#
# An empty map is one byte in Avro and a hundred in Python, so an object of the size that the format allows
# may decode to gigabytes. Announced items count before one of them is looked at.

_TEXT_BYTES = 64
_MAP_BYTES = 96
_RECORD_BYTES = 320
_FIELD_BYTES = 64
"""Upper estimate of the bytes that Python needs for one decoded value."""

_Skip = Callable[["_Walk"], None]


class TooManyItemsError(ValueError):
    """Raised for values that would take too much memory once they are decoded."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"it holds so many items that they would take more than {most_bytes} bytes of memory"
        )


class _Walk:
    """A position in the data, and how much may still be decoded."""

    __slots__ = ("data", "left", "most", "position")

    def __init__(self, data: bytes, position: int, most_bytes: int) -> None:
        self.data = data
        self.position = position
        self.left = self.most = most_bytes

    def spend(self, size_bytes: int) -> None:
        self.left -= size_bytes
        if self.left < 0:
            raise TooManyItemsError(self.most)

    def number(self) -> int:
        number = shift = 0
        end = self.position + _LONGEST_NUMBER
        for position in range(self.position, end):
            byte = self.data[position]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position + 1
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise ValueError(f"no number at byte {self.position}")

    def items(self) -> int:
        count = self.number()
        if count < 0:  # followed by the size of the block in bytes
            self.number()
        return abs(count)


def check_decoded_size(data: bytes, position: int, schema: Any, count: int, most_bytes: int) -> None:
    """Refuse Avro values that would take too much memory.

    Parameters
    ----------
    position
        Where the first of `count` values begins.
    schema
        A trusted one, that does not refer to itself.

    Raises
    ------
    TooManyItemsError
        If they would take more than `most_bytes`.
    ValueError
        If they end behind the data.

    Notes
    -----
    Some 0.3 µs for each field.
    """
    walk = _Walk(data, position, most_bytes)
    _, skip = _skipper(schema, {})
    try:
        for _ in range(count):
            skip(walk)
    except IndexError:
        raise ValueError("a value ends behind the data") from None


def _skipper(schema: Any, named: dict[str, tuple[int, _Skip]]) -> tuple[int, _Skip]:
    """Return the memory of the smallest value of a type, and a function that skips one value.

    Parameters
    ----------
    named
        Records met before, by name.
    """
    if isinstance(schema, list):
        return _union([_skipper(each, named) for each in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in named:
        return named[kind]
    if kind == "record":
        found = _record([_skipper(field["type"], named) for field in schema["fields"]])
        named[schema["name"]] = found
        return found
    if kind == "array":
        return _array(*_skipper(schema["items"], named))
    if kind == "map":
        return _map(*_skipper(schema["values"], named))
    return _PLAIN[kind]


def _skip_nothing(_: _Walk) -> None:
    pass


def _skip_flag(walk: _Walk) -> None:
    walk.position += 1


def _skip_number(walk: _Walk) -> None:
    walk.number()


def _skip_bytes(walk: _Walk) -> None:
    length = walk.number()
    end = walk.position + length
    if length < 0 or end > len(walk.data):
        raise ValueError(f"{length} bytes announced at byte {walk.position}")
    walk.spend(length)
    walk.position = end


_PLAIN: dict[str, tuple[int, _Skip]] = {
    "null": (0, _skip_nothing),
    "boolean": (0, _skip_flag),
    "int": (32, _skip_number),
    "long": (32, _skip_number),
    "string": (_TEXT_BYTES, _skip_bytes),
    "bytes": (_TEXT_BYTES, _skip_bytes),
}


def _union(branches: list[tuple[int, _Skip]]) -> tuple[int, _Skip]:
    def skip(walk: _Walk) -> None:
        size, branch = branches[walk.number()]
        walk.spend(size)
        branch(walk)

    return 0, skip


def _record(fields: list[tuple[int, _Skip]]) -> tuple[int, _Skip]:
    skips = [skip for _, skip in fields]

    def skip_all(walk: _Walk) -> None:
        for skip in skips:
            skip(walk)

    return _RECORD_BYTES + _FIELD_BYTES * len(fields), skip_all


def _array(size: int, skip: _Skip) -> tuple[int, _Skip]:
    def skip_items(walk: _Walk) -> None:
        while count := walk.items():
            walk.spend(count * (size + 8))
            for _ in range(count):
                skip(walk)

    return _MAP_BYTES, skip_items


def _map(size: int, skip: _Skip) -> tuple[int, _Skip]:
    def skip_items(walk: _Walk) -> None:
        while count := walk.items():
            walk.spend(count * (size + _TEXT_BYTES + _FIELD_BYTES))
            for _ in range(count):
                _skip_bytes(walk)
                skip(walk)

    return _MAP_BYTES, skip_items


DIGEST_KEY = "spark_pages.digest"
_ZEROS = "0" * DIGEST_HEX_LENGTH
_CODEC_KEY = "avro.codec"
_SCHEMA_KEY = "avro.schema"
_METADATA = frozenset({DIGEST_KEY, _CODEC_KEY, _SCHEMA_KEY})
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16

_MAX_HEAD_BYTES = 64 << 10
"""Schema, codec and digest take some 5 KiB."""

_LONGEST_NUMBER = 10
"""Bytes of 64 bits, seven to a byte."""

MAX_UNCHECKED_BYTES = 128 << 10
"""What a smaller block holds takes at most some 28 MiB once it is decoded. Of all items an empty tag takes
the most: 448 bytes for two."""

MAX_DECODED_BYTES = 512 << 20
"""What a container holds may take so much memory, as `check_decoded_size` counts."""

_MIN_DECODED_BYTES = 32 << 20
"""What may always be taken: more than `MAX_UNCHECKED_BYTES` can hold."""

MAX_EXPANSION = 64
"""A block may hold what takes so many times its bytes. Appends of one row to thousands of columns, which
expand most, take 44 times theirs."""

_MOST_ITEMS = 1024
"""Of arrays and maps that are read without fastavro: metadata of a container, and features."""


def most_decoded_bytes(block_bytes: int) -> int:
    """Return how much memory the values of a block may take, as `check_decoded_size` counts."""
    return min(MAX_DECODED_BYTES, max(_MIN_DECODED_BYTES, MAX_EXPANSION * block_bytes))


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
            _CODEC_KEY: b"null",
            _SCHEMA_KEY: _shortest(_long_form(schema)),
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

    Raises
    ------
    TooManyItemsError
        If no reader would decode them.
    """
    form = _forms.get(id(schema))
    if form is None:
        form = _forms[id(schema)] = _Form.of(schema)
    parts = [sync_marker]
    if records:
        encoded = [each if isinstance(each, bytes) else _encoded(schema, each) for each in records]
        size = sum(map(len, encoded))
        if size > MAX_UNCHECKED_BYTES:  # as every reader does
            check_decoded_size(b"".join(encoded), 0, schema, len(encoded), most_decoded_bytes(size))
        parts += [avro_count(len(encoded)), avro_count(size), *encoded, sync_marker]
    rest = b"".join(parts)
    digested = form.digested.copy()
    digested.update(rest)
    digest = digested.hexdigest()
    return b"".join((form.before, digest.encode(), form.behind, rest)), digest


def avro_count(value: int) -> bytes:
    """Encode a count as Avro does: twice the value, seven bits to a byte, lowest bits first."""
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
    """Return the schema as fastavro writes it, and as earlier releases wrote it."""
    out = io.BytesIO()
    fastavro.writer(out, schema, [], codec="null", sync_marker=bytes(_SYNC_BYTES))
    return _head(out.getvalue())[0][_SCHEMA_KEY]


def _shortest(schema: bytes) -> bytes:
    """Return the schema in fewer bytes: no spaces, no defaults, namespaces only in outer records."""
    return json.dumps(_shortened(json.loads(schema), ""), separators=(",", ":")).encode()


def _shortened(schema: Any, inside: str) -> Any:
    """Return the schema with names relative to the enclosing namespace."""
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
        raise DamageError(
            f"Cannot read {key}: it does not carry its digest exactly once, so it was damaged.", key=key
        )
    found = digest_of(data.replace(hexadecimal, _ZEROS.encode()))
    if found != claimed:
        raise DamageError(
            f"Cannot read {key}: expected digest {claimed}, found {found}, so it was damaged.", key=key
        )


class ContainerSchema:
    """The schemas that containers of one kind may hold: a finite list, compared byte by byte.

    Parameters
    ----------
    parsed
        What `fastavro.parse_schema` gave.
    others
        Schemas of containers that hold less, likewise: unions of the first of its records, and records
        without fields for which it has a default.
    earlier
        Schemas that earlier releases wrote. The first of them has all fields; what the others lack is
        filled in by its defaults.

    Attributes
    ----------
    written
        Schema to decode with, and schema to resolve against, by the bytes that a container holds. Without the
        latter, a field that the container lacks is not in what decoding gives.
    """

    def __init__(self, parsed: Any, *others: Any, earlier: Sequence[Any] = ()) -> None:
        self.parsed = parsed
        self.written: dict[bytes, tuple[Any, Any]] = {}
        resolved = [(each, earlier[0]) for each in earlier]
        for written, wanted in (*resolved, *((each, None) for each in (*others, parsed))):
            long = _long_form(written)
            self.written |= {long: (written, wanted), _shortest(long): (written, wanted)}


class UnknownSchemaError(ValueError):
    """Raised for an undamaged container whose schema is not accepted.

    Attributes
    ----------
    schema
        Its bytes, unparsed.
    block
        Reads the first 64 KiB of the block, which is not decoded.
    """

    def __init__(self, schema: bytes, block: AvroReader) -> None:
        super().__init__("its schema is not one of those of the format")
        self.schema = schema
        self.block = block


def decode_container(
    data: bytes, schema: ContainerSchema, key: str, most: int | None = None
) -> tuple[list[Any], str]:
    """Decode the records of a container, with their names where the schema is a union.

    Parameters
    ----------
    most
        Decode so many records at most.

    Returns
    -------
    list and str
        The records, and the digest of the container.

    Raises
    ------
    DamageError
        If the digest is wrong.
    UnknownSchemaError
        If the schema is not accepted.
    TooManyItemsError
        If they would take more memory than any.
    ValueError
        If the object is no such container. What the decoder raises is for the caller to name.

    Notes
    -----
    Anybody can compute a digest, and Avro executes its schema: a hostile one recurses until the process dies,
    or skips 2^60 values. So digest, codec, schema, and in a large block the number of items, are checked, in
    this order, before fastavro runs.
    """
    metadata, source = _head(data)
    claimed = metadata.get(DIGEST_KEY, b"").decode()
    check_container(data, claimed, key)
    if metadata.get(_CODEC_KEY) != b"null":
        raise ValueError("its codec is not null")
    written = metadata.get(_SCHEMA_KEY, b"")
    if written not in schema.written:
        begin = source.position
        raise UnknownSchemaError(written, AvroReader(data[begin : begin + _MAX_HEAD_BYTES], 0))
    known, resolved = schema.written[written]
    count, size = source.number(), source.number()
    end = source.position + size
    if not 0 < count <= size or len(data) != end + _SYNC_BYTES:
        raise ValueError("the block does not end where it says")
    wanted = count if most is None else min(count, most)
    if size > MAX_UNCHECKED_BYTES:
        check_decoded_size(data, source.position, known, wanted, most_decoded_bytes(size))
    block = io.BytesIO(data)
    block.seek(source.position)
    names: dict[str, Any] = {"return_record_name": True, "return_record_name_override": True}
    records = [fastavro.schemaless_reader(block, known, resolved, **names) for _ in range(wanted)]
    if wanted == count and block.tell() != end:
        raise ValueError("the block does not end where it says")
    return records, claimed


class AvroReader:
    """Numbers and bytes in Avro, each bounded by the format and by the end of the data.

    Parameters
    ----------
    data
        What to read.
    position
        Where the next value begins.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def number(self) -> int:
        """Read a long.

        Raises
        ------
        ValueError
            If it has more bytes than any long, or does not end.
        """
        number = 0
        start = self.position
        for index, byte in enumerate(self._data[start : start + _LONGEST_NUMBER]):
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.position = start + index + 1
                return (number >> 1) ^ -(number & 1)
        raise ValueError(f"no number at byte {start}")

    def bytes(self) -> bytes:
        """Read bytes, or a string in UTF-8.

        Raises
        ------
        ValueError
            If they do not end within the data.
        """
        length = self.number()
        start = self.position
        if not 0 <= length <= len(self._data) - start:
            raise ValueError(f"{length} bytes announced at byte {start}")
        self.position = start + length
        return self._data[start : self.position]

    def count(self) -> int:
        """Read how many items the next block of an array or map has; 0 at the end.

        Raises
        ------
        ValueError
            If they are more than any array has that is read this way.
        """
        count = self.number()
        if count < 0:  # followed by the size of the block in bytes
            count = -count
            self.number()
        if count > _MOST_ITEMS:
            raise ValueError(f"{count} items, expected at most {_MOST_ITEMS}")
        return count


def _head(data: bytes) -> tuple[dict[str, bytes], AvroReader]:
    """Metadata of a container, and a reader of its first block."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not an Avro container")
    source = AvroReader(data[:_MAX_HEAD_BYTES], len(_MAGIC))
    metadata: dict[str, bytes] = {}
    while count := source.count():
        for _ in range(count):
            name = source.bytes().decode()
            if name in metadata or name not in _METADATA:
                raise ValueError("metadata that the format does not have")
            metadata[name] = source.bytes()
    return metadata, AvroReader(data, source.position + _SYNC_BYTES)
