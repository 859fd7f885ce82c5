"""Avro records with long lists of bytes, given as Arrow columns, in the bytes that fastavro makes. Pure.

fastavro takes half a microsecond for each item of a list, so that least and greatest values of a thousand
pages take longer than everything else that is done to commit them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import ends_of

_LIST = fastavro.parse_schema({"type": "array", "items": "bytes"})
_ONE_BYTE = 64
"""The length of shorter items is one byte."""

_Write = Callable[[io.BytesIO, Any], object]


class LongRecord:
    """Writes records of a schema of which lists of bytes, also those in records in it, may be long.

    Parameters
    ----------
    schema
        A record, not parsed.
    named
        Schemas that it refers to by name, not parsed.

    Notes
    -----
    A record in Avro is its fields one after another, and nothing else. So fastavro writes those between the
    lists, as records that have no others.
    """

    def __init__(self, schema: dict[str, Any], named: Sequence[dict[str, Any]] = ()) -> None:
        self._parts: list[tuple[Any, str, _Write | None]] = []
        between: list[Any] = []
        for field in (*schema["fields"], None):
            write = None if field is None else _writer_of(field["type"])
            if field is not None and write is None:
                between.append(field)
                continue
            known: dict[str, Any] = {}
            for each in named:
                fastavro.parse_schema(each, known)
            parsed = fastavro.parse_schema({**schema, "fields": between}, known)
            self._parts.append((parsed, "" if field is None else field["name"], write))
            between = []

    def write(self, out: io.BytesIO, record: dict[str, Any]) -> None:
        """Put a record behind what is there."""
        for between, name, write in self._parts:
            fastavro.schemaless_writer(out, between, record)
            if write is not None:
                write(out, record[name])


def _writer_of(kind: Any) -> _Write | None:
    """What writes a field with lists of bytes; None for others."""
    if kind == _LIST:
        return write_list
    fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "record" else []
    return LongRecord(kind).write if any(_writer_of(field["type"]) for field in fields) else None


def write_list(out: io.BytesIO, items: pa.BinaryArray) -> None:
    """Put a list of bytes, none of them null, behind what is there.

    How many they are, each behind its length, and a zero.
    """
    data = items.buffers()[2] if len(items) else None
    if not data or (sizes := np.diff(ends := ends_of(items))).max() >= _ONE_BYTE:
        fastavro.schemaless_writer(out, _LIST, items.to_pylist())
        return
    fastavro.schemaless_writer(out, "long", len(items))
    out.write(_with_lengths(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], sizes).data)
    fastavro.schemaless_writer(out, "long", 0)


def _with_lengths(items: NDArray[np.uint8], sizes: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
    """The items, each behind its length: in Avro a number below 64 is a byte of twice as much."""
    size = sizes[0]
    if (sizes == size).all():  # as those of numbers
        rows = np.empty((len(sizes), 1 + size), np.uint8)
        rows[:, 0], rows[:, 1:] = 2 * size, items.reshape(len(sizes), size)
        return rows
    return np.insert(items, np.cumsum(sizes) - sizes, 2 * sizes)
