"""The root of a checkpoint: manifest parts, catalog files, and everything that is small. Pure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, overload

import pyarrow as pa

from spark_pages.arrow.columns import optional_bytes, optional_flags, optional_numbers, optional_text
from spark_pages.errors import DamageError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.commit import (
    definition_from_plain,
    definition_to_plain,
    location_from_avro,
    location_to_avro,
    retention_from_plain,
    retention_to_plain,
)
from spark_pages.format.digest import digest_of
from spark_pages.format.features import FORMAT_VERSION, check_readable
from spark_pages.format.names import catalog_key
from spark_pages.format.parquet import check_limits, decode_table, encode_table
from spark_pages.format.segment import decode_nodes, encode_nodes, written_for
from spark_pages.log.state import LogState, TableName
from spark_pages.model.actions import (
    CheckpointRef,
    Claim,
    Features,
    Lease,
)
from spark_pages.model.ids import FieldId, TableId, Version
from spark_pages.model.location import Location
from spark_pages.model.table import TableDefinition

_ROOT_KEY = b"spark_pages.root"
_MALFORMED = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What plain values of another form than expected make the code below raise."""

_CATALOG_SCHEMA = pa.schema(
    [
        pa.field("namespace_id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("table_id", pa.int64()),
        pa.field("schema", pa.binary()),
        pa.field("next_field_id", pa.int32()),
        pa.field("aligned", pa.bool_()),
        pa.field("properties", pa.string()),
        pa.field("created_at_us", pa.int64()),
    ]
)

_NAMES_SCHEMA = pa.schema(
    [pa.field("namespace_id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)]
)


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """Definitions of live tables, sorted by name, from `first` to `last`."""

    first: TableName
    last: TableName
    location: Location


@dataclass(frozen=True, eq=False, slots=True)
class Root:
    """A checkpoint: the state of the log at one version, whole.

    Attributes
    ----------
    state
        Everything but chains and tables: its `edits`, `tables` and `names` are empty.
    sequence
        Number of the checkpoint, from 0.
    predecessors
        For every k the newest earlier checkpoint whose sequence is a multiple of 2^k, newest first,
        with its sequence: any version is reached in a logarithmic number of steps.
    parts
        Manifest parts of all levels, base first, sorted inside a level.
    catalog
        Catalog files, sorted by name.
    table_zero
        `description_digest` of table 0; empty where the checkpoint is of an earlier release.
    """

    state: LogState
    sequence: int
    predecessors: tuple[tuple[int, CheckpointRef], ...]
    parts: tuple[Node, ...]
    catalog: tuple[CatalogFile, ...]
    table_zero: str = ""


def description_digest(definition: TableDefinition) -> str:
    """Return a digest of the column definitions of a table, to compare tables without reading them."""
    columns = [
        [definition.field_ids[column.name], column.name, str(column.type), column.nullable]
        for column in definition.schema
    ]
    told = [definition.table_id, definition.name, definition.next_field_id, definition.aligned, columns]
    return digest_of(json.dumps(told).encode())


def next_predecessors(root: Root, ref: CheckpointRef) -> tuple[tuple[int, CheckpointRef], ...]:
    """Return the predecessors that the checkpoint after this one names."""
    kept: list[tuple[int, CheckpointRef]] = []
    power = 1
    for sequence, predecessor in ((root.sequence, ref), *root.predecessors):
        if sequence % power == 0:
            kept.append((sequence, predecessor))
            while sequence % power == 0 and power <= sequence:
                power *= 2
    return tuple(kept)


def encode_root(root: Root) -> bytes:
    """Encode the root as Parquet: a row for each part, the rest as JSON in the file's metadata."""
    state = root.state
    document = {
        "format_version": FORMAT_VERSION,
        "reader_features": state.features.reader,
        "writer_features": state.features.writer,
        "version": state.version,
        "timestamp_us": state.timestamp_us,
        "token": state.token,
        "digest": state.digest,
        "store_id": state.store_id,
        "next_table_id": state.next_table_id,
        "sequence": root.sequence,
        "predecessors": [
            {"sequence": sequence, "version": ref.version, "location": location_to_avro(ref.location)}
            for sequence, ref in root.predecessors
        ],
        "catalog": [
            {
                "first": file.first,
                "last": file.last,
                "digest": file.location.digest,
                "length": file.location.length,
            }
            for file in root.catalog
        ],
        "table_zero": root.table_zero,
        "compacted": state.compacted,
        "apps": {app: list(value) for app, value in state.apps.items()},
        "properties": dict(state.properties),
        "tags": dict(state.tags),
        "leases": [asdict(lease) for lease in state.leases.values()],
        "claims": [asdict(claim) for claim in state.claims],
        "retention": retention_to_plain(state.retention),
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return encode_nodes(root.parts, {_ROOT_KEY: text.encode()})


def decode_root(data: bytes, key: str) -> Root:
    """Decode a root whose digest has been verified.

    Raises
    ------
    UnsupportedFormatError
        If it needs a newer release.
    DamageError
        If it does not follow the format.
    """
    try:
        value: dict[str, Any] = json.loads(check_limits(data).metadata[_ROOT_KEY])
        check_readable(value["format_version"], value["reader_features"], key)
        return Root(
            state=_state(value),
            sequence=value["sequence"],
            predecessors=tuple(
                (item["sequence"], CheckpointRef(item["version"], location_from_avro(item["location"])))
                for item in value["predecessors"]
            ),
            parts=tuple(decode_nodes(data, key)),
            catalog=tuple(
                CatalogFile(
                    _name(item["first"]),
                    _name(item["last"]),
                    Location(
                        catalog_key(item["digest"]),
                        item["length"],
                        item["digest"],
                        original_length=item["length"],
                    ),
                )
                for item in value["catalog"]
            ),
            table_zero=value.get("table_zero", ""),
        )
    except _MALFORMED as error:
        raise DamageError(
            f"Cannot read {key}: it is not the root of a checkpoint: {type(error).__name__}: {error}.",
            key=key,
        ) from error


def _name(value: Sequence[Any]) -> TableName:
    return int(value[0]), str(value[1])


def _state(value: dict[str, Any]) -> LogState:
    return LogState(
        version=value["version"],
        timestamp_us=value["timestamp_us"],
        token=value["token"],
        digest=value["digest"],
        features=Features(tuple(value["reader_features"]), tuple(value["writer_features"])),
        store_id=value.get("store_id", ""),
        next_table_id=value["next_table_id"],
        compacted=value["compacted"],
        apps={app: (int(pair[0]), int(pair[1])) for app, pair in value["apps"].items()},
        properties=value["properties"],
        tags={name: int(version) for name, version in value["tags"].items()},
        leases={
            item["lease_id"]: Lease(item["lease_id"], Version(item["version"]), item["expires_at_us"])
            for item in value["leases"]
        },
        claims=tuple(
            Claim(**{**item, "table_id": TableId(item["table_id"]), "field_id": FieldId(item["field_id"])})
            for item in value["claims"]
        ),
        retention=retention_from_plain(value["retention"]),
    )


def encode_catalog(definitions: Sequence[TableDefinition], version: int | None = None) -> bytes:
    """Encode a catalog file: definitions sorted by namespace and name. `version` is the checkpoint's."""
    plain = [definition_to_plain(definition) for definition in definitions]
    columns = [
        optional_numbers([d.namespace_id for d in definitions], pa.int64()),
        optional_text([d.name for d in definitions]),
        optional_numbers([d.table_id for d in definitions], pa.int64()),
        optional_bytes([p["schema"] for p in plain]),
        optional_numbers([p["next_field_id"] for p in plain], pa.int32()),
        optional_flags([p["aligned"] for p in plain]),
        optional_text([json.dumps(p["properties"], sort_keys=True) for p in plain]),
        optional_numbers([p["created_at_us"] for p in plain], pa.int64()),
    ]
    # Schemas resemble each other: zstd makes more of that than a dictionary of whole values.
    table = pa.table(columns, schema=_CATALOG_SCHEMA)
    return encode_table(table, dictionary=False, metadata=written_for(version), level=3)


class CatalogPage(Sequence[TableDefinition]):
    """The definitions of one catalog file, each made when it is first asked for.

    Parameters
    ----------
    data, key
        The file. All but the names is decoded with the first definition: schemas take a hundred times more.
    """

    def __init__(self, data: bytes, key: str) -> None:
        self._data = data
        self._key = key
        self._made: dict[int, TableDefinition] = {}
        told = decode_table(data, _NAMES_SCHEMA, key, stored=_CATALOG_SCHEMA)
        numbers, names = (told[column].to_pylist() for column in _NAMES_SCHEMA.names)
        self.names: list[TableName] = list(zip(numbers, names, strict=True))

    @cached_property
    def _rows(self) -> pa.Table:
        return pa.table(decode_table(self._data, _CATALOG_SCHEMA, self._key))

    def __len__(self) -> int:
        """How many tables the file describes."""
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> TableDefinition: ...
    @overload
    def __getitem__(self, index: slice) -> list[TableDefinition]: ...
    def __getitem__(self, index: int | slice) -> TableDefinition | list[TableDefinition]:
        """One definition, or several."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        made = self._made.get(index)
        if made is None:
            made = self._made[index] = self._make(index)
        return made

    def of_namespace(self, namespace_id: int | None) -> Sequence[TableDefinition]:
        """Those whose name is in a namespace, or all."""
        if namespace_id is None:
            return self
        start = bisect_left(self.names, (namespace_id, ""))
        return self[start : bisect_left(self.names, (namespace_id + 1, ""))]

    def _make(self, index: int) -> TableDefinition:
        (row,) = self._rows.slice(index, 1).to_pylist()
        try:
            plain = {**row, "properties": json.loads(row["properties"])}
            return definition_from_plain(plain, row["table_id"], row["namespace_id"], row["name"])
        except _MALFORMED as error:
            raise DamageError(
                f"Cannot read {self._key}: it is not a catalog file: {type(error).__name__}: {error}.",
                key=self._key,
            ) from error


def decode_catalog(data: bytes, key: str) -> CatalogPage:
    """Decode a catalog file whose digest has been verified."""
    return CatalogPage(data, key)
