"""What a store says of itself: identity, format, properties, and who holds what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from spark_pages.format.features import FORMAT_VERSION
from spark_pages.format.names import LOCATION_PROPERTY
from spark_pages.log.commit_times import RESETS_PROPERTY
from spark_pages.log.log import Log
from spark_pages.log.state import LogState


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """Facts of a store as of one version; claims and leases as of now.

    Attributes
    ----------
    store_id
        Identity of the store; empty where it was created before stores had one.
    version, timestamp_us
        The version, and when it was committed, in microseconds since 1970.
    format_version
        Format on storage that this release writes.
    reader_features, writer_features
        Features that a release must know to read the store, and to write it.
    properties
        Properties that have been set, by name.
    tags
        Versions by the tags that name them.
    claims, leases
        As `Store.claims` and `Store.leases`.
    """

    store_id: str
    version: int
    timestamp_us: int
    format_version: int
    reader_features: tuple[str, ...]
    writer_features: tuple[str, ...]
    properties: Mapping[str, str]
    tags: Mapping[str, int]
    claims: pa.Table
    leases: pa.Table

    @classmethod
    def of(cls, state: LogState, claims: pa.Table, leases: pa.Table) -> StoreInfo:
        """Facts of a state of the log."""
        return cls(
            store_id=state.store_id,
            version=state.version,
            timestamp_us=state.timestamp_us,
            format_version=FORMAT_VERSION,
            reader_features=tuple(sorted(state.features.reader)),
            writer_features=tuple(sorted(state.features.writer)),
            properties=store_properties(state),
            tags=MappingProxyType(dict(sorted(state.tags.items()))),
            claims=claims,
            leases=leases,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as ``--json`` shows them: names, numbers, lists and mappings."""
        return {
            "store_id": self.store_id,
            "format_version": self.format_version,
            "reader_features": list(self.reader_features),
            "writer_features": list(self.writer_features),
            "properties": dict(self.properties),
            "tags": dict(self.tags),
            "claims": self.claims.to_pylist(),
            "leases": self.leases.to_pylist(),
        }


class Describable(Protocol):
    """A store, as far as its description uses one."""

    _log: Log

    def claims(self) -> pa.Table:
        """See `Store.claims`."""

    def leases(self) -> pa.Table:
        """See `Store.leases`."""


class InfoVerbs:
    """Verbs of a store that describe it."""

    @property
    def properties(self: Describable) -> Mapping[str, str]:
        """Properties of the newest version, by name; read-only. `Transaction.set_properties` changes them."""
        return store_properties(self._log.refresh().state)

    def info(self: Describable) -> StoreInfo:
        """Describe the store: identity, format version, features, properties, tags, claims and leases."""
        return StoreInfo.of(self._log.refresh().state, self.claims(), self.leases())


def store_properties(state: LogState) -> Mapping[str, str]:
    """Return the properties that users set, by name; read-only."""
    given = {name: value for name, value in sorted(state.properties.items()) if not _is_own(name)}
    return MappingProxyType(given)


def _is_own(name: str) -> bool:
    """Whether the store itself remembers something under a name."""
    return name == RESETS_PROPERTY or name.startswith(LOCATION_PROPERTY)
