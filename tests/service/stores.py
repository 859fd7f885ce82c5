"""A store with a past, and services on it, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages.log.replay import Fold, LoadManifest
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import Commit
from spark_pages.model.chain_tree import ChainEdit, ChainKey
from spark_pages.service.metadata import MetadataService
from spark_pages.service.table_view import LocalPieces, TableView
from spark_pages.store import Store
from tests.invariants import check_same_pages

QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
"""Nobody looks after the store beside commits, so requests can be counted."""

SECRET_NUMBERS = [700_000 + i for i in range(40)]
"""Values of the table ``private.secrets``, which nobody without a token for it may see."""


def rows(start: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(start).integers(0, 1 << 40, count)
    return pa.table({"n": pa.array(range(start, start + count), pa.int64()), "v": pa.array(numbers)})


def store_with_a_past(url: str | None = None, versions: int = 6, count: int = 40) -> Store:
    """Two tables in ``default``, one in ``private``; appends, updates, a new column; no checkpoint yet."""
    store = sp.create(url or f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_namespace("private")
    with store.transaction() as txn:
        txn.create_table("t", rows(0, 1).schema)
        txn.create_table("other", pa.schema([("x", pa.int32())]))
        txn.create_table("private.secrets", pa.schema([("s", pa.int64())]))
    for turn in range(versions):
        with store.transaction() as txn:
            txn.append("t", rows(turn * count, count))
            txn.append("other", pa.table({"x": pa.array(range(turn + 3), pa.int32())}))
        with store.transaction() as txn:
            txn.append("private.secrets", pa.table({"s": pa.array(SECRET_NUMBERS, pa.int64())}))
        with store.transaction() as txn:
            txn.update_rows("t", [turn * count // 2], {"v": [-turn - 1]})
    return store


def write_more(store: Store, start: int = 1000, count: int = 30) -> int:
    """One more commit to ``t``; gives its version."""
    columns = store.snapshot().table("t").columns
    data = rows(start, count)
    for name in columns[2:]:
        data = data.append_column(name, pa.array([7] * count, pa.int32()))
    with store.transaction() as txn:
        txn.append("t", data)
    return txn.version


def served(
    service: MetadataService,
    db: str,
    table: str,
    version: int | None = None,
    older: TableView | None = None,
) -> TableView:
    """The table as a client in this process builds it."""
    answer = service.get_table_meta_snapshot(db, table, version)
    return TableView(answer, LocalPieces(service, db, table, answer.version), older)


def check_same_table(one: TableView, other: LogSnapshot, places: bool = True) -> None:
    """Every descriptor and statistic is what storage says; with `places`, also where each page is."""
    definition = one.definition
    assert one.state.version == other.state.version
    assert one.state.timestamp_us == other.state.timestamp_us
    assert other.table((definition.namespace_id, definition.name)) == definition
    for field_id in definition.field_ids.values():
        key: ChainKey = (definition.table_id, field_id)
        ours, theirs = one.chain(key), other.chain(key)
        assert (ours.num_rows, ours.num_pages) == (theirs.num_rows, theirs.num_pages)
        our, their = ours.all_pages(), theirs.all_pages()
        if places:
            assert our.descriptors() == their.descriptors(), (definition.name, field_id)
        check_same_pages(our, their, key)


def forget_all_but(store: Store, versions: int) -> None:
    """Vacuum, with so many of the newest versions kept."""
    store.vacuum(retention=versions)


def splices_of(
    commits: Sequence[Commit], table_id: int, load_manifest: LoadManifest
) -> dict[int, tuple[ChainEdit, ...]]:
    """What consecutive commits did to a table: redo that was told by location, read by who can read storage.

    Raises
    ------
    DamageError
        If the commits do not continue each other.
    """
    if not commits:
        return {}
    first = commits[0]
    before = LogState(version=first.version - 1, digest=first.parent_digest)
    fold = Fold(before, load_manifest)
    for commit in commits:
        fold.commit(commit)
    return {field_id: edits for (table, field_id), edits in fold.state().edits.items() if table == table_id}
