"""The Avro schema of a commit. Part of the format: `docs/format.md` ("Commits") explains each field."""

from __future__ import annotations

import io
import json
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
    """Return the function that writes a field with lists of bytes, or None for other fields."""
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
    """Prefix each item with its length. Avro writes a length below 64 as one byte of twice that."""
    size = sizes[0]
    if (sizes == size).all():  # as those of numbers
        rows = np.empty((len(sizes), 1 + size), np.uint8)
        rows[:, 0], rows[:, 1:] = 2 * size, items.reshape(len(sizes), size)
        return rows
    return np.insert(items, np.cumsum(sizes) - sizes, 2 * sizes)


_NAMESPACE = "spark_pages"


def _record(name: str, *fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """Create a record schema. The third part of a field is its default in commits that lack it."""
    return {
        "type": "record",
        "name": name,
        "namespace": _NAMESPACE,
        "fields": [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields],
    }


def _without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the record schema of earlier releases, which lacked some fields."""
    return {**record, "fields": [field for field in record["fields"] if field["name"] not in names]}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _known(schema: dict[str, Any]) -> dict[str, Any]:
    """Names that others may refer to, as fastavro takes them."""
    names: dict[str, Any] = {}
    fastavro.parse_schema(schema, names)
    return names


_STRING_MAP = {"type": "map", "values": "string"}

_LOCATION = _record(
    "Location",
    ("key", "string"),
    ("offset", "long"),
    ("length", "long"),
    ("original_length", "long"),
    ("shared", "boolean"),
    ("digest", "string"),
)
_CHECKPOINT = _record("CheckpointRef", ("version", "long"), ("location", _LOCATION))
_UPKEEP = _record(
    "UpkeepNote",
    ("operation", "string"),
    ("writer", "string"),
    ("timestamp_us", "long"),
    ("reached", "long"),
    ("objects", "long"),
    ("size_bytes", "long"),
)
_HEADER_FIELDS: tuple[tuple[str, Any], ...] = (
    ("format_version", "int"),
    ("reader_features", _array("string")),
    ("writer_features", _array("string")),
    ("version", "long"),
    ("timestamp_us", "long"),
    ("token", "string"),
    ("parent_digest", "string"),
    ("checkpoint", ["null", _CHECKPOINT]),
    ("compacted", "long"),
    ("transactions", "int"),
)
_STORE_ID = ("store_id", "string", "")
_UPKEEP_NOTES: tuple[str, Any, Any] = ("upkeep", _array(_UPKEEP), [])
_HEADER = _record("CommitHeader", *_HEADER_FIELDS, _STORE_ID, _UPKEEP_NOTES)
_SHORT_HEADER = _record("CommitHeader", *_HEADER_FIELDS, _STORE_ID)
_PAGES = _record(
    "Pages",
    ("entry_count", "bytes"),
    ("payload_entries", "bytes"),
    ("kind", "bytes"),
    ("paths", _array("string")),
    ("path", "bytes"),
    ("offset", "bytes"),
    ("alloc_len", "bytes"),
    ("actual_len", "bytes"),
    ("checksum", "bytes"),
    ("given", "bytes"),
    ("data", _array("bytes")),
    ("null_count", "bytes"),
    ("min", _array("bytes")),
    ("max", _array("bytes")),
    ("distinct", "bytes", ""),
    ("bloom_offset", "bytes", ""),
    ("bloom_length", "bytes", ""),
    ("bloom_checksum", "bytes", ""),
)
_MANIFEST = _record(
    "ManifestRef",
    ("location", "spark_pages.Location"),
    ("base_ordinal", "long"),
    ("num_pages", "long"),
    ("page_bytes", "long"),
)


def _splice(numbers: Any) -> dict[str, Any]:
    """Create the schema of a splice whose lists of numbers have the given type."""
    return _record(
        "Splice",
        ("table_id", "long"),
        ("field_id", "int"),
        ("first_row", "long"),
        ("removed", numbers),
        ("removed_entries", "long"),
        ("source", "int"),
        ("start", "long"),
        ("stop", "long"),
        ("added_entries", "long"),
        ("data_change", "boolean"),
        ("touched", numbers),
    )


_SPLICE = _splice("bytes")
_DEFINITION = _record(
    "TableDefinition",
    ("schema", "bytes"),
    ("next_field_id", "int"),
    ("aligned", "boolean"),
    ("properties", _STRING_MAP),
    ("created_at_us", "long"),
)
_INTENT = _record(
    "CatalogIntent",
    ("kind", "string"),
    ("table_id", "long"),
    ("namespace_id", "long"),
    ("name", "string"),
    ("definition", ["null", _DEFINITION]),
    ("old_namespace_id", ["null", "long"]),
    ("old_name", ["null", "string"]),
    ("columns", ["null", _array("int")], None),
)
_TAG = _record("Tag", ("name", "string"), ("version", ["null", "long"]))
_LEASE = _record("Lease", ("lease_id", "string"), ("version", "long"), ("expires_at_us", "long"))
_CLAIM = _record(
    "Claim",
    ("table_id", "long"),
    ("field_id", "int"),
    ("first_row", "long"),
    ("end_row", "long"),
    ("owner", "string"),
    ("fence", "long"),
    ("expires_at_us", "long"),
)
_RETENTION = _record(
    "Retention",
    ("min_epoch", "long"),
    ("min_readable", "long"),
    ("checkpoint", ["null", "spark_pages.CheckpointRef"]),
)
_HEADING_FIELDS: tuple[tuple[str, Any], ...] = (
    ("token", "string"),
    ("operation", "string"),
    ("parameters", _STRING_MAP),
    ("writer", "string"),
    ("app_id", ["null", "string"]),
    ("app_version", ["null", "long"]),
    ("read_version", "long"),
)


def _content_fields(
    pages: dict[str, Any], intent: dict[str, Any], splice: dict[str, Any]
) -> tuple[tuple[str, Any], ...]:
    """Fields of a transaction behind its first ordinal."""
    return (
        ("pages", pages),
        ("manifests", _array(_MANIFEST)),
        ("splices", _array(splice)),
        ("intents", _array(intent)),
        ("tags", _array(_TAG)),
        ("leases", _array(_LEASE)),
        ("claims", _array(_CLAIM)),
        ("retention", ["null", _RETENTION]),
        ("properties", {"type": "map", "values": ["null", "string"]}),
    )


def _transaction(
    pages: dict[str, Any], intent: dict[str, Any], splice: dict[str, Any] = _SPLICE
) -> dict[str, Any]:
    content = _content_fields(pages, intent, splice)
    return _record("Transaction", *_HEADING_FIELDS, ("base_ordinal", "long"), *content)


_CONTENT_FIELDS = _content_fields(_PAGES, _INTENT, _SPLICE)
_TRANSACTION = _transaction(_PAGES, _INTENT)
_TOMBSTONE = _record(
    "Tombstone",
    ("version", "long"),
    ("timestamp_us", "long"),
    ("token", "string"),
    ("digest", "string"),
    ("transactions", _array(_STRING_MAP)),
    ("checkpoint", "spark_pages.CheckpointRef"),
    _STORE_ID,
)

COMMIT_SCHEMA = fastavro.parse_schema([_HEADER, _TRANSACTION, _TOMBSTONE])
"""Union of what a slot can hold: a header followed by transactions, or a tombstone."""

TOLD_SCHEMA = fastavro.parse_schema([_HEADER, _TRANSACTION])
"""What a commit holds that tells of upkeep: the beginning of the union, so that its numbers are the same."""

SHORT_SCHEMA = fastavro.parse_schema([_SHORT_HEADER, _TRANSACTION, _TOMBSTONE])
"""The union without upkeep, of which few commits tell: a small commit is mostly schema."""

TRANSACTIONS_SCHEMA = fastavro.parse_schema([_SHORT_HEADER, _TRANSACTION])
"""The beginning of that: what most commits hold."""

_INTENT_WITHOUT_COLUMNS = _without(_INTENT, "columns")
_PAGES_WITHOUT_BLOOMS = _without(_PAGES, "distinct", "bloom_offset", "bloom_length", "bloom_checksum")
_ARRAY_SPLICE = _splice(_array("long"))
_LISTED_TRANSACTION = _transaction(_PAGES, _INTENT, _ARRAY_SPLICE)
_OLD_TRANSACTION = _transaction(_PAGES, _INTENT_WITHOUT_COLUMNS, _ARRAY_SPLICE)
_OLDEST_TRANSACTION = _transaction(_PAGES_WITHOUT_BLOOMS, _INTENT_WITHOUT_COLUMNS, _ARRAY_SPLICE)

ACCEPTED_SCHEMAS = (COMMIT_SCHEMA, TOLD_SCHEMA, SHORT_SCHEMA, TRANSACTIONS_SCHEMA)
"""Schemas that a slot of this release may have; the first holds every field."""

_NAMELESS_HEADER, _NAMELESS_SHORT_HEADER, _NAMELESS_TOMBSTONE = (
    _without(each, "store_id") for each in (_HEADER, _SHORT_HEADER, _TOMBSTONE)
)

EARLIER_SCHEMAS = tuple(
    fastavro.parse_schema(each)
    for each in (
        [_HEADER, _LISTED_TRANSACTION, _TOMBSTONE],
        [_HEADER, _LISTED_TRANSACTION],
        [_SHORT_HEADER, _LISTED_TRANSACTION, _TOMBSTONE],
        [_SHORT_HEADER, _LISTED_TRANSACTION],
        [_NAMELESS_HEADER, _LISTED_TRANSACTION, _NAMELESS_TOMBSTONE],
        [_NAMELESS_HEADER, _LISTED_TRANSACTION],
        [_NAMELESS_SHORT_HEADER, _LISTED_TRANSACTION, _NAMELESS_TOMBSTONE],
        [_NAMELESS_SHORT_HEADER, _LISTED_TRANSACTION],
        [_NAMELESS_SHORT_HEADER, _OLD_TRANSACTION, _NAMELESS_TOMBSTONE],
        [_NAMELESS_SHORT_HEADER, _OLD_TRANSACTION],
        [_NAMELESS_SHORT_HEADER, _OLDEST_TRANSACTION, _NAMELESS_TOMBSTONE],
    )
)
"""Slots of earlier releases: before numbers were packed, before stores had ids, before intents named
columns, before bloom filters."""

_FIRST_FIELDS = (("format_version", "int"), ("reader_features", _array("string")))
_BEGINNING = {"type": "record", "name": "CommitHeader", "namespace": _NAMESPACE}
_LONG_BEGINNING = {"type": "record", "name": f"{_NAMESPACE}.CommitHeader"}
_FIELDS = [{"name": name, "type": kind} for name, kind in _FIRST_FIELDS]
HEADER_BEGINNINGS = (
    json.dumps([{**_BEGINNING, "fields": _FIELDS}], separators=(",", ":")).encode()[: -len("]}]")],
    json.dumps([{**_LONG_BEGINNING, "fields": _FIELDS}]).encode()[: -len("]}]")],
)
"""What the schema of a commit of any format begins with, in its short and its long form."""

TRANSACTION_NUMBER = b"\x02"
"""Stands before a transaction: it is the second in each of these unions."""

HEADING = fastavro.parse_schema(_record("Transaction", *_HEADING_FIELDS))
"""The beginning of a transaction, up to its first ordinal, which depends on those before it in the commit."""

CONTENT = fastavro.parse_schema(_record("Transaction", *_CONTENT_FIELDS), _known(_CHECKPOINT))
"""What is behind that."""

LONG_CONTENT = LongRecord(_record("Transaction", *_CONTENT_FIELDS), [_CHECKPOINT])
"""Writes that of a transaction of many pages."""
