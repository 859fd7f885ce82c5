"""Checkpoints of a Delta log as bytes: all that holds at a version, one action a row. Pure.

Source: the Delta transaction log protocol, "Checkpoints". What clients write there besides (statistics as
columns, tombstones, deletion vectors) is read over: no table of ours has any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def encode_checkpoint(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """The checkpoint as a Parquet file.

    Parameters
    ----------
    actions
        As JSON has them; what is not in the schema of a checkpoint is left out.
    """
    table = pa.Table.from_pylist([_as_row(action) for action in actions], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy")
    return bytes(sink.getvalue())


def decode_checkpoint(data: bytes) -> list[dict[str, Any]]:
    """Its actions as JSON would have them: maps as objects, and nothing that is null.

    Raises
    ------
    ArrowException, KeyError, ValueError
        If this is no checkpoint, or one whose actions are in other files.
    """
    rows = pq.read_table(pa.BufferReader(data)).to_pylist(maps_as_pydicts="strict")
    actions = [_without_nulls(row) for row in rows]
    if any("sidecar" in action for action in actions):
        raise ValueError("A checkpoint with sidecars.")
    return actions


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is null in a file of columns is left out in JSON."""
    return {
        name: _without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in row.items()
        if value is not None
    }


def _as_row(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action with maps in the form that Arrow takes."""
    made = {name: action.get(name) for name in _SCHEMA.names}
    if meta := made["metaData"]:
        form = {**meta["format"], "options": [*meta["format"].get("options", {}).items()]}
        made["metaData"] = {**meta, "format": form, "configuration": [*meta.get("configuration", {}).items()]}
    if add := made["add"]:
        made["add"] = {**add, "partitionValues": [*add["partitionValues"].items()]}
    return made
