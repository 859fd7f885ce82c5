"""The Avro schema of a commit. Part of the format: `docs/format.md` ("Commits") explains each field."""

from __future__ import annotations

from typing import Any

import fastavro

from spark_pages.log.encoding.long_record import LongRecord

_NAMESPACE = "spark_pages"


def _record(name: str, *fields: tuple[str, Any] | tuple[str, Any, Any]) -> dict[str, Any]:
    """A record; the third part of a field, where there is one, is what it is in commits that lack it."""
    return {
        "type": "record",
        "name": name,
        "namespace": _NAMESPACE,
        "fields": [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields],
    }


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
_HEADER = _record("CommitHeader", *_HEADER_FIELDS, ("upkeep", _array(_UPKEEP), []))
_SHORT_HEADER = _record("CommitHeader", *_HEADER_FIELDS)
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
_SPLICE = _record(
    "Splice",
    ("table_id", "long"),
    ("field_id", "int"),
    ("first_row", "long"),
    ("removed", _array("long")),
    ("removed_entries", "long"),
    ("source", "int"),
    ("start", "long"),
    ("stop", "long"),
    ("added_entries", "long"),
    ("data_change", "boolean"),
    ("touched", _array("long")),
)
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
_CONTENT_FIELDS: tuple[tuple[str, Any], ...] = (
    ("pages", _PAGES),
    ("manifests", _array(_MANIFEST)),
    ("splices", _array(_SPLICE)),
    ("intents", _array(_INTENT)),
    ("tags", _array(_TAG)),
    ("leases", _array(_LEASE)),
    ("claims", _array(_CLAIM)),
    ("retention", ["null", _RETENTION]),
    ("properties", {"type": "map", "values": ["null", "string"]}),
)
_TRANSACTION = _record("Transaction", *_HEADING_FIELDS, ("base_ordinal", "long"), *_CONTENT_FIELDS)
_TOMBSTONE = _record(
    "Tombstone",
    ("version", "long"),
    ("timestamp_us", "long"),
    ("token", "string"),
    ("digest", "string"),
    ("transactions", _array(_STRING_MAP)),
    ("checkpoint", "spark_pages.CheckpointRef"),
)

COMMIT_SCHEMA = fastavro.parse_schema([_HEADER, _TRANSACTION, _TOMBSTONE])
"""Union of what a slot can hold: a header followed by transactions, or a tombstone."""

TOLD_SCHEMA = fastavro.parse_schema([_HEADER, _TRANSACTION])
"""What a commit holds that tells of upkeep: the beginning of the union, so that its numbers are the same."""

SHORT_SCHEMA = fastavro.parse_schema([_SHORT_HEADER, _TRANSACTION, _TOMBSTONE])
"""The union without upkeep, of which few commits tell: a small commit is mostly schema."""

TRANSACTIONS_SCHEMA = fastavro.parse_schema([_SHORT_HEADER, _TRANSACTION])
"""The beginning of that: what most commits hold."""

TRANSACTION_NUMBER = b"\x02"
"""Stands before a transaction: it is the second in each of these unions."""

HEADING = fastavro.parse_schema(_record("Transaction", *_HEADING_FIELDS))
"""The beginning of a transaction, up to its first ordinal, which depends on those before it in the commit."""

CONTENT = fastavro.parse_schema(_record("Transaction", *_CONTENT_FIELDS), _known(_CHECKPOINT))
"""What is behind that."""

LONG_CONTENT = LongRecord(_record("Transaction", *_CONTENT_FIELDS), [_CHECKPOINT])
"""Writes that of a transaction of many pages."""
