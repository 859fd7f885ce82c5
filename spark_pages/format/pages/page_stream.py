"""The columns of a page as an Arrow IPC stream. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import pyarrow as pa

from spark_pages.arrow.columns import has_dictionary

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def stream_of(
    columns: Mapping[str, pa.Array], metadata: Mapping[str | bytes, str | bytes] | None
) -> tuple[pa.Buffer, pa.Buffer, Callable[[], pa.RecordBatch]]:
    """The columns as an Arrow IPC stream of one record batch, without its end: schema, and what follows.

    Also what reads the batch from there, without a copy.
    """
    schema, message = _schema_of(columns, metadata)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    if message is None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        whole = sink.getvalue()
        stream = whole.slice(0, whole.size - len(END_OF_STREAM))
        return whole.slice(0, 0), stream, lambda: pa.ipc.open_stream(whole).read_next_batch()
    body = batch.serialize()  # half of the time of a stream writer
    return message, body, lambda: pa.ipc.read_record_batch(body, schema)


def _schema_of(
    columns: Mapping[str, pa.Array], metadata: Mapping[str | bytes, str | bytes] | None
) -> tuple[pa.Schema, pa.Buffer | None]:
    """The schema of some columns, and its message in a stream; None where dictionaries stand behind it."""
    if not metadata and len(columns) == 1:
        kind = columns["data"].type
        if kind.num_fields == 0 and not pa.types.is_dictionary(kind):  # types that are equal are the same
            return _plain_schema(kind)
    return _with_message([pa.field(name, column.type) for name, column in columns.items()], metadata)


@lru_cache(256)
def _plain_schema(kind: pa.DataType) -> tuple[pa.Schema, pa.Buffer | None]:
    return _with_message([pa.field("data", kind)], None)


def _with_message(
    fields: list[pa.Field], metadata: Mapping[str | bytes, str | bytes] | None
) -> tuple[pa.Schema, pa.Buffer | None]:
    schema = pa.schema(fields, metadata)
    return schema, None if any(map(has_dictionary, schema.types)) else schema.serialize()
