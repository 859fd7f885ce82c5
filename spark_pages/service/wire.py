"""Answers as bytes: a JSON header, and page descriptors as record batches beside it. Pure.

`docs/service.md` ("On the wire") is the specification. What a client reads is checked as if it came from
storage: columns, types, numbers that cannot be true.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from spark_pages.arrow.stored_types import schema_to_bytes
from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.format.commit import definition_from_plain, definition_to_plain
from spark_pages.format.names import part_key, segment_key, stats_key
from spark_pages.format.validate import find_invalid_page
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain_tree import ChainEdit, UnloadedRun
from spark_pages.model.ids import LIVENESS, Version
from spark_pages.model.location import Location
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, empty_batch
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.service.responses import (
    PieceName,
    RedoLocation,
    SegmentLocation,
    TableMetaChanges,
    TableMetaSnapshot,
    piece_names,
)

PROTOCOL = 3
"""What client and service must agree on."""

DESCRIPTORS = pa.schema(
    [
        *(
            pa.field("path", pa.string()) if field.name == "path" else field.with_nullable(True)
            for field in PAGE_SCHEMA
        ),
        *STATS_SCHEMA,
    ]
)
"""Pages and their statistics, side by side."""

BYTES = pa.schema([pa.field("range", pa.int32()), pa.field("data", pa.binary())])
"""Parts of the ranges asked for, by number, in order."""

LoadEdit = Callable[[PieceName], PageRun]
"""Gives the pages of a splice that lists them in a page manifest."""

_MALFORMED = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

Decoded = TypeVar("Decoded")


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """An answer on its way: what is said once, and rows that may be cut anywhere."""

    header: dict[str, Any]
    rows: pa.RecordBatch

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        return self.rows.schema

    def split(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """Split the rows into batches of about so many bytes, each in own memory; at least one batch."""
        per_row = max(1, self.rows.nbytes // max(1, self.rows.num_rows))
        step = max(1, most_bytes // per_row)
        for start in range(0, max(1, self.rows.num_rows), step):
            # A slice would keep all rows in memory for as long as it is on its way.
            stop = min(start + step, self.rows.num_rows)
            yield self.rows.take(pa.array(range(start, stop), pa.int64()))


@dataclass(frozen=True, eq=False, slots=True)
class BytesFrame:
    """Stretches of page files on their way."""

    parts: Sequence[bytes]

    @property
    def header(self) -> dict[str, Any]:
        """Empty."""
        return {}

    @property
    def schema(self) -> pa.Schema:
        """`BYTES`."""
        return BYTES

    def split(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """Split the ranges into batches of at most so many bytes, each in own memory; at least one batch."""
        numbers: list[int] = []
        pieces: list[memoryview] = []
        room = most_bytes
        for number, data in enumerate(self.parts):
            view = memoryview(data)
            for start in range(0, len(view), most_bytes):
                piece = view[start : start + most_bytes]
                if len(piece) > room:
                    yield _bytes_batch(numbers, pieces)
                    numbers, pieces, room = [], [], most_bytes
                numbers.append(number)
                pieces.append(piece)
                room -= len(piece)
        yield _bytes_batch(numbers, pieces)


def _bytes_batch(numbers: list[int], pieces: list[memoryview]) -> pa.RecordBatch:
    columns = [pa.array(numbers, pa.int32()), pa.array(pieces, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=BYTES)


def encode_header(header: dict[str, Any]) -> bytes:
    """Encode the header as JSON."""
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode()


def decode_header(data: bytes) -> dict[str, Any]:
    """Decode the header.

    Raises
    ------
    DamageError
        If they hold none.
    """
    value = _understood(lambda: json.loads(data))
    if not isinstance(value, dict):
        raise DamageError("Cannot use the answer of the service: its header is no JSON object.")
    return value


def descriptor_rows(pages: pa.RecordBatch, stats: pa.RecordBatch | None) -> pa.RecordBatch:
    """Pages and statistics as rows of `DESCRIPTORS`; nulls where statistics are not wanted."""
    columns = [
        column.cast(pa.string()) if field.name == "path" else column
        for field, column in zip(PAGE_SCHEMA, pages.columns, strict=True)
    ]
    if stats is None:
        columns += [pa.nulls(pages.num_rows, field.type) for field in STATS_SCHEMA]
    else:
        columns += stats.columns
    return pa.RecordBatch.from_arrays(columns, schema=DESCRIPTORS)


def frame_of_table(table: pa.Table, header: dict[str, Any] | None = None) -> Frame:
    """Put a table of any columns on its way."""
    whole = table.combine_chunks()
    rows = next(iter(whole.to_batches()), None)
    return Frame(header or {}, rows if rows is not None else empty_batch(table.schema))


def table_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the rows of an answer as a table.

    Raises
    ------
    DamageError
        If they have other columns than the schema, or are no valid Arrow data.
    """

    def read() -> pa.Table:
        table = pa.Table.from_batches(batches, schema)
        table.validate(full=True)
        return table

    return _understood(read)


def rows_of(batches: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Pages and statistics that the rows tell.

    Raises
    ------
    DamageError
        If they have other columns, or numbers that cannot be true.
    """
    if not batches or any(not batch.schema.equals(DESCRIPTORS) for batch in batches):
        raise DamageError(
            "Cannot use the answer of the service: its columns are not those of page descriptors."
        )
    columns = [
        pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(len(DESCRIPTORS))
    ]
    width = len(PAGE_SCHEMA)
    places = [
        column.dictionary_encode() if field.name == "path" else column
        for field, column in zip(PAGE_SCHEMA, columns[:width], strict=True)
    ]
    for field, column in zip(PAGE_SCHEMA, places, strict=True):
        if not field.nullable and column.null_count:
            raise DamageError(
                f"Cannot use the answer of the service: its page descriptors lack their {field.name}."
            )
    pages = pa.RecordBatch.from_arrays(places, schema=PAGE_SCHEMA)
    wrong = find_invalid_page(pages)
    if wrong is not None:
        raise DamageError(
            f"Cannot use the answer of the service: its page descriptors cannot be true: {wrong}."
        )
    return pages, pa.RecordBatch.from_arrays(columns[width:], schema=STATS_SCHEMA)


def frame_of_snapshot(answer: TableMetaSnapshot) -> Frame:
    """Encode an answer of `get_table_meta_snapshot`."""
    redo, rows = _redo_to_plain(answer.redo)
    header = {
        "table": _table_to_plain(answer.definition),
        "version": answer.version,
        "timestamp_us": answer.timestamp_us,
        "checkpoint": _checkpoint_to_plain(answer.checkpoint),
        "places": {
            field_id: list(map(location_to_plain, found)) for field_id, found in answer.places.items()
        },
        "redo": redo,
    }
    return Frame(header, rows)


def snapshot_of_frame(
    header: dict[str, Any], batches: Sequence[pa.RecordBatch], load_edit: LoadEdit
) -> TableMetaSnapshot:
    """Decode an answer of `get_table_meta_snapshot`.

    Raises
    ------
    DamageError
        If it holds none.
    """

    def decode() -> TableMetaSnapshot:
        definition = _table_from_plain(header["table"])
        return TableMetaSnapshot(
            definition.table_id,
            definition,
            int(header["version"]),
            int(header["timestamp_us"]),
            _checkpoint_from_plain(header["checkpoint"]),
            {
                int(field_id): tuple(map(location_from_plain, found))
                for field_id, found in header["places"].items()
            },
            _redo_from_plain(header["redo"], batches, load_edit),
        )

    return _understood(decode)


def frame_of_changes(answer: TableMetaChanges) -> Frame:
    """Encode an answer of `collect_table_meta_changes_in_range`."""
    redo, rows = _redo_to_plain(answer.hot_redo)
    header = {
        "table": _table_to_plain(answer.definition),
        "from": answer.from_,
        "to": answer.to,
        "timestamp_us": answer.timestamp_us,
        "checkpoint": _checkpoint_to_plain(answer.checkpoint),
        "redo_locations": [
            [each.key, each.first_version, each.last_version] for each in answer.redo_locations
        ],
        "redo": redo,
    }
    return Frame(header, rows)


def changes_of_frame(
    header: dict[str, Any], batches: Sequence[pa.RecordBatch], load_edit: LoadEdit
) -> TableMetaChanges:
    """Decode an answer of `collect_table_meta_changes_in_range`; raises as `snapshot_of_frame`."""

    def decode() -> TableMetaChanges:
        definition = _table_from_plain(header["table"])
        return TableMetaChanges(
            definition.table_id,
            definition,
            int(header["from"]),
            int(header["to"]),
            int(header["timestamp_us"]),
            _checkpoint_from_plain(header["checkpoint"]),
            tuple(RedoLocation(str(key), int(a), int(b)) for key, a, b in header["redo_locations"]),
            _redo_from_plain(header["redo"], batches, load_edit),
        )

    return _understood(decode)


def location_to_plain(place: SegmentLocation) -> list[Any]:
    """Convert a place to plain values without the keys, which follow from the digests."""
    stats = [place.stats.digest, place.stats.length] if place.stats else ["", 0]
    return [
        *(place.location.digest, place.location.length, *stats),
        *(place.is_part, place.level, place.pages, place.rows),
    ]


def location_from_plain(value: Sequence[Any]) -> SegmentLocation:
    """Create a place from plain values."""
    digest, length, stats_digest, stats_length, is_part, level, pages, rows = value
    stats = None
    if stats_length:
        stats = Location(stats_key(str(stats_digest)), int(stats_length), str(stats_digest))
    key = part_key(str(digest)) if is_part else segment_key(str(digest))
    location = Location(key, int(length), str(digest), original_length=int(length))
    if min(int(level), int(pages), int(rows)) < 0:
        raise ValueError("a place with negative numbers")
    return SegmentLocation(location, stats, bool(is_part), int(level), int(pages), int(rows))


def _redo_to_plain(redo: Any) -> tuple[dict[str, Any], pa.RecordBatch]:
    plain: dict[str, Any] = {}
    pages, stats, at = [], [], 0
    for field_id, edits in redo.items():
        listed = plain[str(field_id)] = []
        for edit in edits:
            added, start = edit.added, at
            if isinstance(added, PageRun):
                pages.append(added.pages)
                stats.append(added.stats)
                at += added.num_pages
            removed = base64.b64encode(np.array(edit.removed, "<i8").tobytes()).decode()
            listed.append(
                [
                    *(edit.version, edit.first_row, removed, edit.removed_entries, edit.clears),
                    *(isinstance(added, UnloadedRun), start, added.num_pages, added.num_rows),
                ]
            )
    return plain, descriptor_rows(concat_batches(pages, PAGE_SCHEMA), concat_batches(stats, STATS_SCHEMA))


def _redo_from_plain(
    value: Any, batches: Sequence[pa.RecordBatch], load_edit: LoadEdit
) -> dict[int, tuple[ChainEdit, ...]]:
    pages, stats = rows_of(batches)
    redo: dict[int, tuple[ChainEdit, ...]] = {}
    for text, listed in value.items():
        field_id = int(text)
        edits = []
        for version, first_row, removed, removed_entries, clears, lazy, start, count, rows in listed:
            added: PageRun | UnloadedRun
            if lazy:
                added = UnloadedRun(int(count), int(rows), lambda: [])
            elif not 0 <= start <= start + count <= pages.num_rows:
                raise ValueError("a splice adds pages that are not there")
            else:
                added = PageRun(pages.slice(start, count), _sliced(stats, start, count))
            ids = tuple(np.frombuffer(base64.b64decode(removed, validate=True), "<i8").tolist())
            place = int(first_row), ids, int(removed_entries)
            edits.append(ChainEdit(*place, added, bool(clears), int(version), exact=field_id == LIVENESS))
        names = piece_names(field_id, tuple(edits))
        redo[field_id] = tuple(
            _with_loader(edit, name, load_edit) for edit, name in zip(edits, names, strict=True)
        )
    return redo


def _sliced(stats: pa.RecordBatch, start: int, count: int) -> Callable[[], pa.RecordBatch]:
    return lambda: stats.slice(start, count)


def _with_loader(edit: ChainEdit, name: PieceName, load_edit: LoadEdit) -> ChainEdit:
    added = edit.added
    if isinstance(added, PageRun):
        return edit
    promise = UnloadedRun(added.num_pages, added.num_rows, lambda: [load_edit(name)])
    return replace(edit, added=promise)


def _table_to_plain(definition: TableDefinition) -> dict[str, Any]:
    plain = definition_to_plain(definition)
    return {
        **plain,
        "schema": base64.b64encode(plain["schema"]).decode(),
        "table_id": definition.table_id,
        "namespace_id": definition.namespace_id,
        "name": definition.name,
    }


def _table_from_plain(value: dict[str, Any]) -> TableDefinition:
    plain = {**value, "schema": base64.b64decode(value["schema"], validate=True)}
    return definition_from_plain(plain, value["table_id"], value["namespace_id"], value["name"])


def _checkpoint_to_plain(ref: CheckpointRef | None) -> list[Any] | None:
    return None if ref is None else [ref.version, ref.location.key, ref.location.length, ref.location.digest]


def _checkpoint_from_plain(value: Sequence[Any] | None) -> CheckpointRef | None:
    if value is None:
        return None
    version, key, length, digest = value
    return CheckpointRef(
        Version(int(version)), Location(str(key), int(length), str(digest), original_length=int(length))
    )


def _understood(decode: Callable[[], Decoded]) -> Decoded:
    try:
        return decode()
    except SparkPagesError:
        raise
    except _MALFORMED as error:
        raise DamageError(
            "Cannot use the answer of the service: its form is not understood: "
            f"{type(error).__name__}: {str(error)[:200]}.",
            hint="Client and service may be of different releases: `pip install --upgrade spark-pages` on "
            "both sides.",
        ) from error


def no_rows() -> pa.RecordBatch:
    """No descriptors."""
    return descriptor_rows(empty_batch(PAGE_SCHEMA), empty_batch(STATS_SCHEMA))


def object_to_plain(definition: TableDefinition) -> list[Any]:
    """Convert a namespace or a type to plain values."""
    schema = base64.b64encode(schema_to_bytes(definition.schema)).decode()
    return [
        definition.namespace_id, definition.table_id, definition.name, schema,
        dict(definition.properties), definition.created_at_us,
    ]  # fmt: skip


def object_from_plain(told: list[Any]) -> TableDefinition:
    """Create a namespace or a type from plain values.

    Raises
    ------
    DamageError, LookupError, TypeError, ValueError
        If it is none.
    """
    namespace_id, table_id, name, schema, properties, created_at_us = told
    plain = {
        "schema": base64.b64decode(schema),
        "next_field_id": 2,
        "aligned": True,
        "properties": {str(key): str(value) for key, value in properties.items()},
        "created_at_us": int(created_at_us),
    }
    return definition_from_plain(plain, int(table_id), int(namespace_id), str(name))
