"""Commits and tombstones as bytes: an Avro container that carries its own digest.

Pure. The digest stands in the container's metadata as 64 hexadecimal characters and covers the
whole object with those characters replaced by zeros, so that no bit of a commit is unguarded.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import fastavro
import pyarrow as pa

from spark_pages.arrow.stored_types import schema_from_bytes, schema_to_bytes
from spark_pages.errors import DamageError, InvalidInputError, SparkPagesError
from spark_pages.format.commit_schema import (
    ACCEPTED_SCHEMAS,
    CONTENT,
    EARLIER_SCHEMAS,
    HEADER_BEGINNINGS,
    HEADING,
    LONG_CONTENT,
    SHORT_SCHEMA,
    TOLD_SCHEMA,
    TRANSACTION_NUMBER,
    TRANSACTIONS_SCHEMA,
)
from spark_pages.format.container import (
    AvroReader,
    ContainerSchema,
    TooManyItemsError,
    UnknownSchemaError,
    avro_count,
    decode_container,
    encode_container,
)
from spark_pages.format.features import FORMAT_VERSION, check_readable
from spark_pages.format.page_columns import pack_numbers, pages_from_avro, pages_to_avro, unpack_numbers
from spark_pages.format.validate import why_commit_is_invalid
from spark_pages.model.actions import (
    CatalogIntent,
    CheckpointRef,
    Claim,
    Commit,
    Features,
    IntentKind,
    Lease,
    ManifestRef,
    Retention,
    Splice,
    Tag,
    Tombstone,
    TransactionRecord,
    UpkeepNote,
)
from spark_pages.model.ids import FieldId, TableId, Version
from spark_pages.model.location import Location
from spark_pages.model.table import TableDefinition

_SCHEMA = ContainerSchema(*ACCEPTED_SCHEMAS, earlier=EARLIER_SCHEMAS)
MAX_COMMIT_BYTES = 64 << 20
"""A larger slot is refused before it is parsed; a writer that needs more uses page manifests."""

_COMMIT = "spark_pages.CommitHeader"
"""The first record of a slot that is not cleaned."""

_NONE: Mapping[str, EncodedTransaction] = MappingProxyType({})


_NOT_AVRO = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Raised by fastavro, and by what prepares values for it, where a value does not fit its field."""

_ORDINAL_BYTES = 10


def encode_commit(commit: Commit, encoded: Mapping[str, EncodedTransaction] = _NONE) -> tuple[bytes, str]:
    """Bytes of a commit, and its digest. The same commit always gives the same bytes.

    Parameters
    ----------
    encoded
        Transactions of it that have been encoded before, by token.

    Raises
    ------
    InvalidInputError
        If it is too large for any reader.
    """
    header = {
        "format_version": FORMAT_VERSION,
        "reader_features": list(commit.features.reader),
        "writer_features": list(commit.features.writer),
        "version": commit.version,
        "timestamp_us": commit.timestamp_us,
        "token": commit.token,
        "parent_digest": commit.parent_digest,
        "checkpoint": _checkpoint_to_avro(commit.checkpoint) if commit.checkpoint else None,
        "compacted": commit.compacted,
        "transactions": len(commit.records),
        "store_id": commit.store_id,
    }
    schema = TRANSACTIONS_SCHEMA
    if commit.upkeep:
        schema = TOLD_SCHEMA
        header["upkeep"] = [upkeep_to_plain(note) for note in commit.upkeep]
    records: list[Any] = [(_COMMIT, header)]
    for record in commit.records:
        transaction = encoded.get(record.token) or EncodedTransaction.of(record)
        records.append(transaction.at(record.base_ordinal))
    try:
        data, digest = encode_container(schema, records, bytes.fromhex(commit.token))
    except TooManyItemsError as error:
        raise InvalidInputError(
            f"Cannot write commit {commit.version}: {error}.",
            hint="Split it into several transactions, each of fewer pages: `store.transaction()` for each "
            "part.",
        ) from error
    if len(data) > MAX_COMMIT_BYTES:
        raise InvalidInputError(
            f"Cannot write commit {commit.version}: it would have {len(data)} bytes, and a commit holds at "
            f"most {MAX_COMMIT_BYTES}.",
            hint="Split it into several transactions, each of fewer pages: `store.transaction()` for each "
            "part.",
            size_bytes=len(data),
        )
    return data, digest


def encode_tombstone(tombstone: Tombstone) -> tuple[bytes, str]:
    """Bytes of a tombstone, and the digest of these bytes."""
    record = {
        "version": tombstone.version,
        "timestamp_us": tombstone.timestamp_us,
        "token": tombstone.token,
        "digest": tombstone.digest,
        "transactions": [{"token": token, "outcome": outcome} for token, outcome in tombstone.transactions],
        "checkpoint": _checkpoint_to_avro(tombstone.checkpoint),
        "store_id": tombstone.store_id,
    }
    return encode_container(SHORT_SCHEMA, [("spark_pages.Tombstone", record)], bytes.fromhex(tombstone.token))


def decode_slot(data: bytes, key: str) -> Commit | Tombstone:
    """Decode the content of a slot.

    Parameters
    ----------
    data
        The whole object.
    key
        Its name, for messages.

    Raises
    ------
    DamageError
        If it is not what was written.
    UnsupportedFormatError
        If it needs a newer release.
    """
    if len(data) > MAX_COMMIT_BYTES:
        raise DamageError(
            f"Cannot read commit {key}: it holds {len(data)} bytes, expected at most {MAX_COMMIT_BYTES}.",
            key=key,
        )
    try:
        records, claimed = decode_container(data, _SCHEMA, key)
        slot = _from_records(records, claimed, len(data), key)
        wrong = why_commit_is_invalid(slot) if isinstance(slot, Commit) else None
        if wrong is not None:
            raise DamageError(
                f"Cannot read commit {key}: it holds numbers that cannot be true: {wrong}.", key=key
            )
        return slot
    except SparkPagesError:
        raise
    except Exception as error:
        _refuse_newer(error, key)
        raise DamageError(
            f"Cannot read commit {key}: expected an Avro container of spark_pages, found {len(data)} "
            f"bytes that fail with {type(error).__name__}: {str(error)[:200]}.",
            key=key,
        ) from error


def is_commit(data: bytes, version: int, key: str) -> bool:
    """Whether undamaged bytes hold the commit of this version, and not its tombstone.

    Raises
    ------
    DamageError
        If they are damaged, or of another version.

    Notes
    -----
    Looks at the header alone: some 0.1 ms.
    """
    name, _, _ = _heading(data, version, key)
    return name == _COMMIT


def slot_digest(data: bytes, version: int, key: str) -> str:
    """Return the digest of the commit in a slot, or of the commit that its tombstone replaced.

    Raises
    ------
    DamageError
        If they are damaged, or of another version.
    UnsupportedFormatError
        If they need a newer release.

    Notes
    -----
    As `is_commit`, whatever the commit holds.
    """
    name, header, claimed = _heading(data, version, key)
    if name != _COMMIT:
        return str(header["digest"])
    check_readable(header["format_version"], header["reader_features"], key)
    return claimed


def _heading(data: bytes, version: int, key: str) -> tuple[str, dict[str, Any], str]:
    """Return the first record, its name, and the digest of all, which is verified."""
    try:
        ((name, header),), claimed = decode_container(data, _SCHEMA, key, most=1)
        found = header["version"]
    except SparkPagesError:
        raise
    except Exception as error:
        _refuse_newer(error, key)
        raise DamageError(
            f"Cannot read commit {key}: its header is not one of a commit ({type(error).__name__}).", key=key
        ) from error
    if found != version:
        raise DamageError(
            f"Cannot read commit {key}: it holds commit {found}, so objects were swapped.", key=key
        )
    return name, header, claimed


def _refuse_newer(error: Exception, key: str) -> None:
    """Raise UnsupportedFormatError if decoding failed because the commit has the schema of a newer format.

    Notes
    -----
    Every format begins the header with the same two fields, so they are read without its schema. A format
    with another schema has a higher version or another feature; else the container is foreign or forged.
    """
    if not isinstance(error, UnknownSchemaError) or not error.schema.startswith(HEADER_BEGINNINGS):
        return
    try:
        needs = _format_and_features(error.block)
    except ValueError:
        return
    check_readable(*needs, key)


def _format_and_features(block: AvroReader) -> tuple[int, list[str]]:
    """`format_version` and `reader_features` of the header that a block begins with."""
    _records, _size, _union = block.number(), block.number(), block.number()
    version = block.number()
    features: list[str] = []
    while count := block.count():
        features += [block.bytes().decode() for _ in range(count)]
    return version, features


def _from_records(records: list[Any], digest: str, size_bytes: int, key: str) -> Commit | Tombstone:
    kinds = [name for name, _ in records]
    if kinds == ["spark_pages.Tombstone"]:
        record = records[0][1]
        return Tombstone(
            Version(record["version"]),
            record["timestamp_us"],
            record["token"],
            record["digest"],
            tuple((item["token"], item["outcome"]) for item in record["transactions"]),
            _checkpoint_from_avro(record["checkpoint"]),
            record.get("store_id", ""),
        )
    if not kinds or kinds[0] != _COMMIT or set(kinds[1:]) != {"spark_pages.Transaction"}:
        raise DamageError(
            f"Cannot read commit {key}: expected a commit header and transactions, found {kinds}.", key=key
        )
    header = records[0][1]
    check_readable(header["format_version"], header["reader_features"], key)
    if header["transactions"] != len(records) - 1:
        raise DamageError(
            f"Cannot read commit {key}: it announces {header['transactions']} transactions but holds "
            f"{len(records) - 1}.",
            key=key,
        )
    return Commit(
        version=Version(header["version"]),
        timestamp_us=header["timestamp_us"],
        token=header["token"],
        parent_digest=header["parent_digest"],
        records=tuple(_transaction_from_avro(record) for _, record in records[1:]),
        checkpoint=_checkpoint_from_avro(header["checkpoint"]) if header["checkpoint"] else None,
        compacted=header["compacted"],
        upkeep=tuple(upkeep_from_plain(note) for note in header.get("upkeep", ())),
        features=Features(tuple(header["reader_features"]), tuple(header["writer_features"])),
        store_id=header.get("store_id", ""),
        digest=digest,
        size_bytes=size_bytes,
    )


def with_digest(commit: Commit, digest: str) -> Commit:
    """Attach the digest that the bytes of a commit carry."""
    return replace(commit, digest=digest)


def location_to_avro(location: Location) -> dict[str, Any]:
    """Convert a location to plain values, the same in Avro and JSON."""
    return {
        "key": location.key,
        "offset": location.offset,
        "length": location.length,
        "original_length": location.original_length,
        "shared": location.shared,
        "digest": location.digest,
    }


def location_from_avro(value: dict[str, Any]) -> Location:
    """Create a location from plain values."""
    return Location(
        value["key"],
        value["length"],
        value["digest"],
        value["offset"],
        value["original_length"],
        value["shared"],
    )


def _checkpoint_to_avro(checkpoint: CheckpointRef) -> dict[str, Any]:
    return {"version": checkpoint.version, "location": location_to_avro(checkpoint.location)}


def _checkpoint_from_avro(value: dict[str, Any]) -> CheckpointRef:
    return CheckpointRef(Version(value["version"]), location_from_avro(value["location"]))


@dataclass(frozen=True, slots=True)
class EncodedTransaction:
    """A transaction in Avro but for the ordinal of its first page.

    Attributes
    ----------
    heading, content
        What stands before it, and behind.
    """

    heading: bytes
    content: bytes

    @classmethod
    def of(cls, record: TransactionRecord) -> EncodedTransaction:
        """Encode a record without its `base_ordinal`. Records with manifests keep theirs.

        Raises
        ------
        InvalidInputError
            If the record holds what Avro cannot: text that is not Unicode, or a number of more than 63 bits.
        """
        content = io.BytesIO()
        try:
            if record.own.few is not None:
                fastavro.schemaless_writer(content, CONTENT, _content_to_avro(record))
            else:
                LONG_CONTENT.write(content, _content_to_avro(record))
            return cls(_heading_bytes(record), content.getvalue())
        except _NOT_AVRO as error:
            raise InvalidInputError(
                f"Cannot commit the transaction: the log cannot hold one of its values: {str(error)[:300]}.",
                hint="Use text without lone surrogates, and whole numbers of at most 63 bits.",
            ) from error

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes in a commit, at most."""
        return len(self.heading) + len(self.content) + _ORDINAL_BYTES

    def at(self, base_ordinal: int) -> bytes:
        """Return an item of the union of `commit_schema`."""
        return b"".join((self.heading, avro_count(base_ordinal), self.content))


def _heading_bytes(record: TransactionRecord) -> bytes:
    heading = {
        "token": record.token,
        "operation": record.operation,
        "parameters": dict(record.parameters),
        "writer": record.writer,
        "app_id": record.app_id,
        "app_version": record.app_version,
        "read_version": record.read_version,
    }
    out = io.BytesIO()
    out.write(TRANSACTION_NUMBER)
    fastavro.schemaless_writer(out, HEADING, heading)
    return out.getvalue()


def _content_to_avro(record: TransactionRecord) -> dict[str, Any]:
    return {
        "pages": pages_to_avro(record.own),
        "manifests": [
            {
                "location": location_to_avro(manifest.location),
                "base_ordinal": manifest.base_ordinal,
                "num_pages": manifest.num_pages,
                "page_bytes": manifest.page_bytes,
            }
            for manifest in record.manifests
        ],
        "splices": [_splice_to_avro(splice) for splice in record.splices],
        "intents": [_intent_to_avro(intent) for intent in record.intents],
        "tags": [{"name": tag.name, "version": tag.version} for tag in record.tags],
        "leases": [_fields(lease, Lease) for lease in record.leases],
        "claims": [_fields(claim, Claim) for claim in record.claims],
        "retention": retention_to_plain(record.retention),
        "properties": dict(record.properties),
    }


def retention_to_plain(retention: Retention | None) -> dict[str, Any] | None:
    """Convert retention bounds to plain values."""
    if retention is None:
        return None
    named = retention.checkpoint
    return {
        "min_epoch": retention.min_epoch,
        "min_readable": retention.min_readable,
        "checkpoint": None if named is None else _checkpoint_to_avro(named),
    }


def retention_from_plain(value: dict[str, Any] | None) -> Retention | None:
    """Create retention bounds from plain values."""
    if value is None:
        return None
    named = value["checkpoint"]
    return Retention(
        Version(value["min_epoch"]),
        Version(value["min_readable"]),
        None if named is None else _checkpoint_from_avro(named),
    )


def upkeep_to_plain(note: UpkeepNote) -> dict[str, Any]:
    """Convert a maintenance record to plain values, the same in Avro and JSON."""
    return _fields(note, UpkeepNote)


def upkeep_from_plain(value: dict[str, Any]) -> UpkeepNote:
    """Create a maintenance record from plain values."""
    told = {name: value[name] for name in UpkeepNote.__dataclass_fields__}
    return UpkeepNote(**{**told, "reached": Version(told["reached"])})


def _fields(value: Any, kind: type) -> dict[str, Any]:
    return {name: getattr(value, name) for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]


def _splice_to_avro(splice: Splice) -> dict[str, Any]:
    values = _fields(splice, Splice)
    values["removed"] = pack_numbers(splice.removed)
    values["touched"] = pack_numbers([bound for bounds in splice.touched for bound in bounds])
    return values


def _splice_from_avro(value: dict[str, Any]) -> Splice:
    bounds = _numbers(value["touched"])
    return Splice(
        **{
            **value,
            "removed": tuple(_numbers(value["removed"])),
            "touched": tuple(zip(bounds[::2], bounds[1::2], strict=True)),
        }
    )


def _numbers(value: bytes | list[int]) -> list[int]:
    """Integers as a splice lists them; earlier releases wrote arrays."""
    return unpack_numbers(value).tolist() if isinstance(value, bytes) else value


def _intent_to_avro(intent: CatalogIntent) -> dict[str, Any]:
    definition = intent.definition
    return {
        "kind": intent.kind.value,
        "table_id": intent.table_id,
        "namespace_id": intent.namespace_id,
        "name": intent.name,
        "definition": None if definition is None else definition_to_plain(definition),
        "old_namespace_id": intent.old_name[0] if intent.old_name else None,
        "old_name": intent.old_name[1] if intent.old_name else None,
        "columns": None if intent.columns is None else list(intent.columns),
    }


def definition_to_plain(definition: TableDefinition) -> dict[str, Any]:
    """Convert the parts of a definition that its intent lacks to plain values."""
    return {
        "schema": schema_to_bytes(definition.schema),
        "next_field_id": definition.next_field_id,
        "aligned": definition.aligned,
        "properties": dict(definition.properties),
        "created_at_us": definition.created_at_us,
    }


def definition_from_plain(
    value: dict[str, Any], table_id: int, namespace_id: int, name: str
) -> TableDefinition:
    """Create a definition from plain values.

    Raises
    ------
    DamageError
        If its schema cannot be read.
    """
    try:
        schema = schema_from_bytes(value["schema"])
        # Arrow decodes names only when it is asked for them.
        _ = [*schema.names, *(str(kind) for kind in schema.types if pa.types.is_nested(kind))]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DamageError(f"Cannot read the schema of table {name!r}: {error}.") from error
    return TableDefinition(
        table_id=TableId(table_id),
        name=name,
        schema=schema,
        next_field_id=value["next_field_id"],
        namespace_id=namespace_id,
        aligned=value["aligned"],
        properties=value["properties"],
        created_at_us=value["created_at_us"],
    )


def _intent_from_avro(value: dict[str, Any]) -> CatalogIntent:
    plain = value["definition"]
    definition = plain and definition_from_plain(
        plain, value["table_id"], value["namespace_id"], value["name"]
    )
    return CatalogIntent(
        IntentKind(value["kind"]),
        TableId(value["table_id"]),
        value["namespace_id"],
        value["name"],
        definition,
        None if value["old_name"] is None else (value["old_namespace_id"], value["old_name"]),
        None if value["columns"] is None else tuple(value["columns"]),
    )


def _transaction_from_avro(value: dict[str, Any]) -> TransactionRecord:
    return TransactionRecord(
        token=value["token"],
        operation=value["operation"],
        parameters=value["parameters"],
        writer=value["writer"],
        app_id=value["app_id"],
        app_version=value["app_version"],
        read_version=value["read_version"],
        base_ordinal=value["base_ordinal"],
        own=pages_from_avro(value["pages"]),
        manifests=tuple(
            ManifestRef(
                location_from_avro(item["location"]),
                item["base_ordinal"],
                item["num_pages"],
                item["page_bytes"],
            )
            for item in value["manifests"]
        ),
        splices=tuple(_splice_from_avro(item) for item in value["splices"]),
        intents=tuple(_intent_from_avro(item) for item in value["intents"]),
        tags=tuple(Tag(**item) for item in value["tags"]),
        leases=tuple(Lease(**item) for item in value["leases"]),
        claims=tuple(
            Claim(**{**item, "table_id": TableId(item["table_id"]), "field_id": FieldId(item["field_id"])})
            for item in value["claims"]
        ),
        retention=retention_from_plain(value["retention"]),
        properties=value["properties"],
    )
