"""Objects of the right form with lying content: numbers and texts of a good one, replaced as some bytes say.

Blind mutations of Parquet and Avro mostly end in their parsers. A forger writes good Parquet.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from spark_pages.format.commit_schema import COMMIT_SCHEMA
from spark_pages.format.container import encode_container

_EDIT_BYTES = 11
_ROOT_KEY = b"spark_pages.root"
_TEXTS = ("", "..", "/", "pages/a", "\0", "é", "x" * 300, "0" * 64)
_NUMBERS = (0, 1, -1, 2, 63, 64, 4096, -4096, 1 << 31, (1 << 31) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63))


def forged_parquet(good: bytes, data: bytes) -> bytes:
    """A Parquet file with some cells, and some leaves of the root's JSON, replaced."""
    file = pq.ParquetFile(pa.BufferReader(good))
    table = file.read()
    metadata = dict(file.metadata.metadata or {})
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    for place, number in _edits(data):
        name = table.column_names[place % len(columns)]
        values = columns[name]
        if values:
            values[place // len(columns) % len(values)] = _like(table.schema.field(name).type, number)
    if _ROOT_KEY in metadata:
        document = json.loads(metadata[_ROOT_KEY])
        _replace(document, data)
        metadata[_ROOT_KEY] = json.dumps(document).encode()
    forged = pa.table({name: pa.array(columns[name], table.schema.field(name).type) for name in columns})
    out = io.BytesIO()
    with pq.ParquetWriter(out, forged.schema, store_schema=False, compression="zstd") as writer:
        writer.write_table(forged)
        metadata.pop(b"ARROW:schema", None)
        writer.add_key_value_metadata(metadata)
    return out.getvalue()


def forged_slot(good: bytes, data: bytes) -> bytes:
    """A commit or tombstone with some numbers and texts replaced, and its digest right."""
    reader = fastavro.reader(io.BytesIO(good), return_record_name=True, return_record_name_override=True)
    records = list(reader)
    for record in records:
        _replace(record[1], data)
    try:
        return encode_container(COMMIT_SCHEMA, records, bytes(16))[0]
    except (TypeError, ValueError, OverflowError, AttributeError, LookupError):  # nothing that Avro can write
        return good


def _edits(data: bytes) -> Iterator[tuple[int, int]]:
    """Pairs of a place and a number: one that the bytes spell, or one that tells."""
    for start in range(0, len(data) - _EDIT_BYTES + 1, _EDIT_BYTES):
        which, place, number = data[start], data[start + 1 : start + 3], data[start + 3 : start + _EDIT_BYTES]
        spelt = int.from_bytes(number, "little", signed=True)
        told = _NUMBERS[spelt % len(_NUMBERS)] if which % 2 else spelt
        yield int.from_bytes(place, "little"), told


def _replace(document: Any, data: bytes) -> None:
    """Leaves of nested values take other values of the same type."""
    leaves = list(_leaves(document))
    for place, number in _edits(data):
        if leaves:
            holder, key = leaves[place % len(leaves)]
            holder[key] = _other(holder[key], number)


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        if isinstance(inner, dict | list) and inner:
            yield from _leaves(inner)
        elif not isinstance(value, tuple):
            yield value, key


def _other(value: Any, number: int) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return number
    if isinstance(value, str):
        return _TEXTS[number % len(_TEXTS)]
    if isinstance(value, bytes):
        spelt = number.to_bytes(8, "little", signed=True)
        return value[:-1] if number % 5 == 0 else (spelt + value[8:])[: len(value)]
    if isinstance(value, list):
        return [number] * (number % 4)
    return value


def _like(kind: pa.DataType, number: int) -> Any:
    if pa.types.is_integer(kind):
        width = kind.bit_width
        return ((number + (1 << (width - 1))) % (1 << width)) - (1 << (width - 1))
    if pa.types.is_boolean(kind):
        return bool(number % 2)
    if pa.types.is_string(kind):
        return None if number % 7 == 0 else _TEXTS[number % len(_TEXTS)]
    return None if number % 3 == 0 else number.to_bytes(8, "little", signed=True) * (number % 5)
