"""Which stores this release may read, and which it may write. Pure.

A store names the features that somebody must know who reads it, and those that somebody must know who
writes it. Every commit repeats both, so that whoever has the head of the log knows them.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_pages.errors import UnsupportedFormatError
from spark_pages.format.names import LOCATION_PROPERTY
from spark_pages.model.actions import Features, TransactionRecord
from spark_pages.model.ids import LIVENESS
from spark_pages.model.table import (
    BUILT_IN,
    CHECKS_KEY,
    CONSTRAINTS_KEY,
    STORED_KEY,
    TableDefinition,
)

FORMAT_VERSION = 1
"""The format that this release writes, and the newest that it reads."""

NAMESPACES = "namespaces"
"""Definitions may describe namespaces and types, and tables may lie in namespaces that users made."""

WIDENED = "widened-columns"
"""Pages of a column may hold values of a narrower type."""

CONSTRAINTS = "constraints"
"""Tables may have constraints, and columns domains, that writers keep."""

LOCATIONS = "locations"
"""Page files may lie outside of ``pages/``, where a namespace says so."""

NAN_BOUNDS = "nan-bounds"
"""Bounds of a page may pass NaN over, where its statistics say that it has some."""

DELETED_ROWS = "deleted-rows"
"""Tables may have liveness chains, which say which rows are dead."""

READER_FEATURES = frozenset({NAMESPACES, WIDENED, NAN_BOUNDS, DELETED_ROWS})
"""What this release knows to read."""

WRITER_FEATURES = frozenset({CONSTRAINTS, LOCATIONS})
"""What this release knows to respect when it writes."""


def check_readable(format_version: int, reader_features: Iterable[str], key: str) -> None:
    """Refuse an object that needs a newer release to be read.

    Raises
    ------
    UnsupportedFormatError
        Names the object, and what it needs.
    """
    unknown = sorted(set(reader_features) - READER_FEATURES)
    if format_version > FORMAT_VERSION or unknown:
        needs = f" with reader features {', '.join(unknown)}" if unknown else ""
        raise UnsupportedFormatError(
            f"Cannot read {key}: it needs format {format_version}{needs}; this release reads format "
            f"{FORMAT_VERSION} with {', '.join(sorted(READER_FEATURES)) or 'no'} features.",
            hint="Upgrade to the release that wrote it, or a later one: `pip install --upgrade spark-pages`.",
            key=key,
        )


def check_writable(features: Features) -> None:
    """Refuse to write to a store that asks more of its writers than this release knows.

    Raises
    ------
    UnsupportedFormatError
        Names the features.
    """
    unknown = sorted(set(features.writer) - WRITER_FEATURES)
    if unknown:
        raise UnsupportedFormatError(
            f"Cannot write to the store: it asks its writers to know {', '.join(unknown)}, which this "
            "release does not. It may be read.",
            hint="Upgrade before writing: `pip install --upgrade spark-pages`.",
            features=unknown,
        )


def with_needs(features: Features, records: Iterable[TransactionRecord]) -> Features:
    """Return the features of a commit: those of its parent and those that its records need."""
    reader, writer = set(features.reader), set(features.writer)
    for record in records:
        if record.own.have_nan or any(manifest.have_nan for manifest in record.manifests):
            reader.add(NAN_BOUNDS)
        if any(splice.field_id == LIVENESS for splice in record.splices):
            reader.add(DELETED_ROWS)
        if any(name.startswith(LOCATION_PROPERTY) for name in record.properties):
            writer.add(LOCATIONS)
        for intent in record.intents:
            if intent.namespace_id not in BUILT_IN.values():
                reader.add(NAMESPACES)
            if intent.definition is not None:
                reader |= _read_needs(intent.definition)
                writer |= _write_needs(intent.definition)
    if (reader, writer) == (set(features.reader), set(features.writer)):
        return features
    return Features(tuple(sorted(reader)), tuple(sorted(writer)))


def _read_needs(definition: TableDefinition) -> set[str]:
    widened = any(STORED_KEY in (column.metadata or {}) for column in definition.schema)
    return {WIDENED} if widened else set()


def _write_needs(definition: TableDefinition) -> set[str]:
    keys = [CHECKS_KEY in (column.metadata or {}) for column in definition.schema]
    constrained = CONSTRAINTS_KEY in (definition.schema.metadata or {}) or any(keys)
    return {CONSTRAINTS} if constrained else set()
