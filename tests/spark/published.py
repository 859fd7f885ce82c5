"""What a Delta client finds of a published store, put together as docs/delta-tables.md says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import spark_pages as sp
from spark_pages.model.page_schema import STATS_SCHEMA
from spark_pages.spark.page_frame import COMPARED
from spark_pages.spark.publish import PARTS, ROOTS, SEGMENTS

PUBLISHED = ("page_id", "entry_count", "actual_len", "checksum")
"""Columns that no checkpoint leaves out."""


def folder(store: sp.Store) -> Path:
    return Path(store.url.removeprefix("file://"))


def table(store: sp.Store, root: str, version: int | None = None) -> DeltaTable:
    return DeltaTable(f"{store.url}/{root}", version=version)


def _files(store: sp.Store, root: str, version: int | None) -> dict[str, pa.Table]:
    named = {Path(uri).name for uri in table(store, root, version).file_uris()}
    return {name: pq.read_table(folder(store) / root / name) for name in named}


def descriptors(store: sp.Store, version: int | None = None) -> dict[tuple[int, int], pa.Table]:
    """Descriptors of every chain, in order: rows of the root, of its parts, and of their segments."""
    (root,) = _files(store, ROOTS.root, version).values()
    parts = _files(store, PARTS.root, version)
    segments = _files(store, SEGMENTS.root, version)
    order = [
        node for part in root["digest"].to_pylist() for node in parts[f"{part}.parquet"]["digest"].to_pylist()
    ]
    chains: dict[tuple[int, int], list[pa.Table]] = {}
    for digest in order:
        held = segments.pop(f"{digest}.parquet")
        keys = held["table_id"].to_numpy() << 32 | held["field_id"].to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
        for start, stop in pairwise(bounds):
            if stop > start:
                key = (int(keys[start]) >> 32, int(keys[start]) & 0xFFFFFFFF)
                chains.setdefault(key, []).append(held.slice(start, stop - start))
    assert not segments, "the root names every segment"
    return {key: pa.concat_tables(of).combine_chunks() for key, of in chains.items()}


def local_rows(store: sp.Store, version: int) -> pa.Table:
    """Every descriptor with its first row, but not where the page is, chain by chain, from the snapshot."""
    snapshot, tables = store.snapshot(version).log, []
    for table_id, field_id in sorted(snapshot.chain_keys()):
        run = snapshot.chain((table_id, field_id)).all_pages()
        columns = {
            "table_id": np.full(run.num_pages, table_id),
            "field_id": np.full(run.num_pages, field_id),
            "first_row": run.prefix_entries.astype(np.int64) - run.numbers("entry_count"),
        }
        for name in COMPARED:
            columns[name] = (run.stats if name in STATS_SCHEMA.names else run.pages).column(name)
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def published_rows(store: sp.Store, version: int) -> pa.Table:
    """The same numbers as `local_rows` has, as far as they are published, through `deltalake`."""
    tables = []
    for (table_id, field_id), chain in sorted(descriptors(store, version).items()):
        ends = np.cumsum(chain["entry_count"].to_numpy())
        columns = {
            "table_id": np.full(len(chain), table_id),
            "field_id": np.full(len(chain), field_id),
            "first_row": ends - chain["entry_count"].to_numpy(),
        }
        tables.append(pa.table({**columns, **{name: chain[name] for name in PUBLISHED}}))
    return pa.concat_tables(tables)
