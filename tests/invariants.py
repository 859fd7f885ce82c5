"""What must hold of every store at every version (DESIGN.md, section 5); any test may call these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.catalog.table_zero import kind_of
from spark_pages.errors import SnapshotExpiredError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.log import Log
from spark_pages.log.replay import replay
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.maintenance.verify.comparisons import described
from spark_pages.model.actions import Commit
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.run import PageRun
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store

WITHOUT_LOCATION = ("page_id", "entry_count", "payload_entries", "checksum", "actual_len")
"""Columns of a descriptor that every way to one snapshot must agree on."""


def check_store(store: Store) -> LogSnapshot:
    """Every invariant of the newest version; gives its snapshot."""
    head = store.snapshot()
    check_snapshot(head.log)
    check_table_zero(store)
    check_against_replay(store._log, head.log)
    if head.log.checkpoint is not None:
        check_checkpoint(head.log.checkpoint)
    return head.log


def check_snapshot(snapshot: LogSnapshot) -> None:
    """Chains add up, and all columns of an aligned table are equally long."""
    for definition in snapshot.tables():
        lengths = {
            name: check_rows(snapshot, (definition.table_id, field_id))
            for name, field_id in definition.field_ids.items()
        }
        assert not definition.aligned or len(set(lengths.values())) <= 1, (definition.name, lengths)


def check_rows(snapshot: LogSnapshot, key: ChainKey) -> int:
    """A chain adds up, and so does what is told of it without applying edits; gives its rows."""
    told = snapshot.num_rows(key)
    assert told == check_chain(snapshot.chain(key))
    return told


def check_chain(chain: ColumnChain) -> int:
    """Totals, running sums, ids and places of one chain agree; gives its rows."""
    pages = chain.all_pages()
    entries = pages.numbers("entry_count").astype(object)
    assert chain.num_pages == pages.num_pages
    assert chain.num_rows == sum(entries)
    assert pages.prefix_entries.tolist() == np.cumsum(entries).tolist()
    assert len(set(pages.page_ids.tolist())) == pages.num_pages, "a page is twice in its chain"
    assert pages.stats.num_rows == pages.num_pages
    first_row = 0
    for position, page in enumerate(pages.descriptors(0, pages.num_pages)):
        if page.entry_count:
            for offset in (0, page.entry_count - 1):
                found = chain.locate_row(first_row + offset)
                assert (found.page_position, found.row_in_page, found.page) == (position, offset, page)
        first_row += page.entry_count
        if page.kind is PageKind.FILE:
            assert page.offset % PAGE_ALIGNMENT == 0
            assert page.alloc_len % PAGE_ALIGNMENT == 0
            assert 0 < page.actual_len <= page.alloc_len
            assert page.data is None
        else:
            assert page.data is not None
            assert (page.disk_path, page.offset, page.alloc_len) == ("", 0, 0)
    return chain.num_rows


def check_against_replay(log: Log, snapshot: LogSnapshot) -> None:
    """Checkpoint plus delta equals the whole log replayed, descriptor by descriptor."""
    version = snapshot.state.version
    whole = LogSnapshot(replay(LogState(), log.commits(0, version + 1), log.load_manifest), None)
    check_same(snapshot, whole)


def check_same(one: LogSnapshot, other: LogSnapshot) -> None:
    """Two ways to one version give the same tables, chains and small things."""
    assert plain(one) == plain(other)
    assert [described(d) for d in one.tables()] == [described(d) for d in other.tables()]
    assert list(one.chain_keys()) == list(other.chain_keys())
    for key in one.chain_keys():
        check_same_pages(one.chain(key).all_pages(), other.chain(key).all_pages(), key)


def check_same_pages(one: PageRun, other: PageRun, key: ChainKey | None = None) -> None:
    """Two runs describe the same pages; where they are kept may differ."""
    for name in WITHOUT_LOCATION:
        assert one.pages.column(name).equals(other.pages.column(name)), (key, name)
    assert one.stats.equals(other.stats), key


def plain(snapshot: LogSnapshot) -> dict[str, object]:
    """What a state says beside chains and tables."""
    state = snapshot.state
    names = ("version", "timestamp_us", "token", "digest", "next_table_id", "claims", "retention")
    maps = ("apps", "properties", "tags", "leases")
    return {
        **{name: getattr(state, name) for name in names},
        **{name: dict(getattr(state, name)) for name in maps},
    }


def check_table_zero(store: Store) -> None:
    """The live rows of table 0 describe exactly the live tables, and so do the definitions."""
    snapshot = store.snapshot()
    rows = snapshot.table("system.catalog").read().to_pylist()
    assert [row["row_id"] for row in rows] == list(range(len(rows)))
    assert all(0 <= row["created_by"] <= snapshot.version for row in rows)
    ended = [row for row in rows if row["deleted_by"] is not None]
    assert all(row["created_by"] < row["deleted_by"] <= snapshot.version for row in ended)
    rows = [row for row in rows if row["deleted_by"] is None]
    tables = [row for row in rows if row["kind"] in ("table", "namespace", "type")]
    columns = [row for row in rows if row["kind"] == "column"]
    live = {definition.table_id: definition for definition in snapshot.log.tables()}
    assert sorted(row["table_id"] for row in tables) == sorted(live), "table 0 and the definitions differ"
    assert len(live) == len(snapshot.log.tables())
    assert all(row["kind"] == kind_of(live[row["table_id"]]) for row in tables)
    assert max(live) < snapshot.log.state.next_table_id
    for row in tables:
        definition = live[row["table_id"]]
        schema = pa.ipc.read_schema(pa.py_buffer(row["arrow_schema"]))
        assert schema.equals(definition.schema, check_metadata=True)
        assert (row["namespace_id"], row["name"]) == (definition.namespace_id, definition.name)
        assert json.loads(row["metadata"])["aligned"] == definition.aligned
        assert snapshot.log.table((definition.namespace_id, definition.name)).table_id == row["table_id"]
        told = {each["name"]: each["field_id"] for each in columns if each["table_id"] == row["table_id"]}
        assert told == (dict(definition.field_ids) if definition.is_table else {})


def check_checkpoint(checkpoint: Checkpoint, max_pages: int | None = None) -> None:
    """Every node of the tree is in order, and says of its content what is true."""
    tree = checkpoint.tree
    for level, parts in checkpoint.levels().items():
        _check_order(parts)
        assert all(part.level == level for part in parts)
        seen: list[ChainKey] = []
        for part in parts:
            children = tree.part(part)
            _check_order(children)
            keys: list[ChainKey] = []
            entries: list[int] = []
            for child in children:
                segment = tree.segment(child)
                inside = list(zip(segment.table_ids.tolist(), segment.field_ids.tolist(), strict=True))
                counts = segment.pages.column("entry_count").to_pylist()
                _check_node(child, inside, counts)
                assert max_pages is None or child.pages <= max_pages
                keys += inside
                entries += counts
            _check_node(part, keys, entries)
            seen += keys
        assert seen == sorted(seen), "the chains of a level are not in order"
    files = checkpoint.root.catalog
    names = [[(d.namespace_id, d.name) for d in tree.catalog(file.location)] for file in files]
    assert all((file.first, file.last) == (of[0], of[-1]) for file, of in zip(files, names, strict=True))
    flat = [name for of in names for name in of]
    assert flat == sorted(set(flat))


def _check_order(nodes: list[Node]) -> None:
    assert all(node.first <= node.last for node in nodes)
    assert all(one.last <= two.first for one, two in pairwise(nodes))


def _check_node(node: Node, keys: list[ChainKey], entries: list[int]) -> None:
    def count(key: ChainKey) -> tuple[int, int]:
        mine = [n for k, n in zip(keys, entries, strict=True) if k == key]
        return len(mine), sum(mine)

    assert keys, "a node without pages"
    assert keys == sorted(keys)
    assert (node.first, node.last, node.pages) == (keys[0], keys[-1], len(keys))
    assert (node.first_pages, node.first_rows) == count(node.first)
    assert (node.last_pages, node.last_rows) == count(node.last)


Rows = dict[str, pa.Table]
"""Table name to its rows."""


def rows_of(store: Store, version: int | None = None) -> Rows:
    """All rows of all tables as of a version."""
    snapshot = store.snapshot(version=version)
    return {name: snapshot.table(name).read() for name in snapshot.tables()}


def check_versions_stay(objects: ObjectStore, history: Mapping[int, Rows]) -> None:
    """Every version that can be read has the rows that it always had; the others are refused by name.

    Read by a newcomer, with empty caches, so that nothing that is gone can be answered from memory.
    """
    store = Store(objects, Runtime(map=lambda work, items: [work(item) for item in items]))
    head = store.snapshot()
    retention = head.log.state.retention
    oldest = retention.min_readable if retention else 0
    for version in sorted(history):
        if version < oldest:
            with pytest.raises(SnapshotExpiredError, match=rf"ersion {version}\b"):
                store.snapshot(version=version)
        else:
            assert rows_of(store, version) == history[version], f"version {version} moved"
    assert all(version >= oldest for version in head.log.state.tags.values()), "a tag was passed"


def check_nothing_needed_is_gone(objects: ObjectStore) -> None:
    """Whatever a readable version names is in storage: page files, and the checkpoints to read it from."""
    store = Store(objects)
    there = {info.key for info in objects.list("")}
    head = store.snapshot()
    retention = head.log.state.retention
    oldest = retention.min_readable if retention else 0
    for version in range(oldest, head.version + 1):
        state = store.snapshot(version=version).log
        for key in state.chain_keys():
            paths = set(state.chain(key).all_pages().pages.column("path").to_pylist()) - {None}
            assert paths <= there, f"version {version} names {sorted(paths - there)}, which is gone"
        slot = store._log._slots.read(version)
        assert isinstance(slot, Commit), f"slot {version} can be read but was cleaned"
    for version in range(oldest):
        assert store._log._slots.read(version) is not None, f"slot {version} is empty: it could be taken"
