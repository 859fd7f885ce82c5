"""Page manifests as a survey reads them: each once, as long as there is room to keep it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import pyarrow as pa

from spark_pages.errors import DamageError
from spark_pages.format.digest import fetch_object
from spark_pages.format.segment import decode_manifest
from spark_pages.maintenance.verify.faults import Findings
from spark_pages.model.actions import ManifestRef
from spark_pages.storage.store import ObjectStore

_ROOM = 256 << 20

Listed = tuple[pa.RecordBatch, pa.RecordBatch]
"""Pages and statistics, row for row."""


@dataclass(eq=False, slots=True)
class ManifestReader:
    """Reads page manifests, and keeps those used last, up to 256 MiB of memory.

    A commit that updated thousands of scattered rows has a splice for each, all of the same manifest, and the
    splices of several such commits lie between each other in a chain.
    """

    store: ObjectStore
    findings: Findings
    _kept: OrderedDict[str, Listed] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def read(self, manifest: ManifestRef) -> Listed:
        """Pages and statistics of a page manifest, counted."""
        key = manifest.location.key
        if key not in self._kept:
            data = self.findings.get(lambda _: fetch_object(self.store, manifest.location), key)
            self._keep(key, decode_manifest(data, key))
        self._kept.move_to_end(key)
        listed = self._kept[key]
        if listed[0].num_rows != manifest.num_pages:
            raise DamageError(
                f"Cannot read manifest {key}: it should list {manifest.num_pages} pages but lists "
                f"{listed[0].num_rows}."
            )
        return listed

    def _keep(self, key: str, listed: Listed) -> None:
        self._kept[key] = listed
        self._bytes += _bytes_of(listed)
        while self._bytes > _ROOM and len(self._kept) > 1:
            self._bytes -= _bytes_of(self._kept.popitem(last=False)[1])


def _bytes_of(listed: Listed) -> int:
    pages, stats = listed
    return int(pages.nbytes) + int(stats.nbytes)
