"""The decompressed payload of a page, an Arrow IPC stream of one record batch, read cheaply."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from spark_pages.arrow.columns import has_dictionary
from spark_pages.arrow.validate_array import check_values
from spark_pages.errors import DamageError
from spark_pages.format.pages.arrow_message import is_compressed_within
from spark_pages.format.pages.ipc_layout import learn

_COLUMNS = (
    ["data"],
    ["data", "prefix_meta"],
    ["data", "suffix_meta"],
    ["data", "prefix_meta", "suffix_meta"],
)
_MESSAGE = struct.Struct("<II")
_CONTINUATION = 0xFFFF_FFFF
_KNOWN_SCHEMAS = 512


@dataclass(frozen=True, slots=True)
class _Schema:
    """The schema at the start of a stream, and whether the record batch follows it at once."""

    schema: pa.Schema
    batch_follows: bool


_schemas: dict[bytes, _Schema] = {}
"""By the bytes of the schema message: pages of a column have the same, which is parsed once."""


def read_payload(stream: pa.Buffer, *, where: str) -> pa.RecordBatch:
    """The record batch of the stream; its buffers share the memory of `stream`.

    Parameters
    ----------
    stream
        The decompressed payload.
    where
        What is being read, for error messages: ``path@offset``.

    Raises
    ------
    DamageError
        If this is not an Arrow stream of one record batch with the columns of a page, if it is compressed by
        Arrow, or if its buffers lie outside of it, or its values outside of them.

    Notes
    -----
    5 µs for a schema seen before, 15 µs else. No copy.
    """
    try:
        length = _schema_length(stream)
        message = memoryview(stream)[:length].tobytes()
        known = _schemas.get(message)
        if known is None:
            known = _read_schema(stream, message, where)
        if is_compressed_within(stream):
            raise DamageError(f"Refused {where}: its Arrow payload is compressed once more.")
        if known.batch_follows:
            batch = pa.ipc.read_record_batch(stream.slice(length), known.schema)
        else:
            with pa.ipc.open_stream(stream) as reader:
                batch = reader.read_next_batch()
        for column in batch.columns:
            check_values(column)
        if known.batch_follows:
            learn(message, memoryview(stream)[length:], known.schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, StopIteration, struct.error) as error:
        raise DamageError(
            f"Cannot decode {where}: expected an Arrow stream of one record batch, found {error!r}."
        ) from error
    return batch


def _schema_length(stream: pa.Buffer) -> int:
    """Bytes of the first message of the stream: a schema has no body."""
    if stream.size < _MESSAGE.size:
        raise ValueError(f"{stream.size} bytes")
    mark, length = _MESSAGE.unpack_from(stream)
    if mark != _CONTINUATION or not 0 < length <= stream.size - _MESSAGE.size:
        raise ValueError(f"a first message of {length} bytes behind the mark {mark:08x}")
    return _MESSAGE.size + int(length)


def _read_schema(stream: pa.Buffer, message: bytes, where: str) -> _Schema:
    with pa.ipc.open_stream(stream) as reader:
        schema = reader.schema
    if schema.names not in _COLUMNS:
        raise DamageError(
            f"Cannot decode {where}: expected columns data, prefix_meta?, suffix_meta?, found {schema.names}."
        )
    strange = [field.name for field in schema if field.name != "data" and field.type != pa.binary()]
    if strange:
        raise DamageError(f"Cannot decode {where}: expected {', '.join(strange)} to be binary.")
    known = _Schema(schema, batch_follows=not any(map(has_dictionary, schema.types)))
    if len(_schemas) >= _KNOWN_SCHEMAS:  # metadata of its own in every page would fill the memory
        _schemas.clear()
    _schemas[message] = known
    return known
