"""What a checkpoint writes: how much, in which pieces, and that all of it is there before it is relied on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from spark_pages.errors import StorageError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint import writer as checkpoint_writer
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.checkpoint.root import CatalogFile
from spark_pages.log.checkpoint.writer import write_catalog
from spark_pages.log.state import LogState
from spark_pages.model.actions import Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages, NewPage, page_batches
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.invariants import check_checkpoint, check_store
from tests.transaction.stores import metered, store_with

ROW = pa.table({"n": [1]})


def checkpoint_of(store: Store) -> Checkpoint:
    found = store.snapshot().log.checkpoint
    assert found is not None
    return found


def segment_pages(checkpoint: Checkpoint, level: int = 0) -> list[int]:
    """Pages of each segment of a level, in order."""
    parts = checkpoint.levels().get(level, [])
    return [node.pages for part in parts for node in checkpoint.tree.part(part)]


def segment_digests(checkpoint: Checkpoint) -> set[str]:
    """Digests of the segments of the base."""
    return {node.digest for part in checkpoint.levels()[0] for node in checkpoint.tree.part(part)}


def part_sizes(checkpoint: Checkpoint, level: int = 0) -> list[int]:
    """Segments of each part of a level, in order."""
    return [len(checkpoint.tree.part(part)) for part in checkpoint.levels().get(level, [])]


def replace_pages(store: Store, start: int, stop: int) -> None:
    """Pages [start, stop) of the first column of table ``t`` give way to a single one."""
    read = store.snapshot().log
    run = read.chain((1, 1)).all_pages()
    first_row = sum(run.numbers("entry_count")[:start].tolist())
    gone = run.slice(start, stop)
    page = NewPage(gone.num_rows, gone.num_rows, PageKind.FILE, "pages/x", 0, 4096, 80, 1, None, PageStats(0))
    pages, stats = page_batches([page])
    removed = tuple(gone.page_ids.tolist())
    splice = Splice(
        TableId(1), FieldId(1), first_row, removed, gone.num_rows, 0, 0, 1, gone.num_rows, data_change=False
    )
    record = TransactionRecord(
        token=Runtime().token(),
        operation="compact",
        read_version=read.state.version,
        writer="test",
        own=AddedPages(pages, stats),
        splices=(splice,),
    )
    store._log.commit(read, lambda _: record)


# merging what a rewrite leaves small


def inner_node(nodes: list[Node]) -> tuple[int, int]:
    """Positions [start, stop) of the pages of a node in the middle of the first column of ``t``."""
    start = 0
    for node in nodes:
        count = node.count((1, 1))
        if count is not None and start and (node.first, node.last) == ((1, 1), (1, 1)):
            return start, start + count[0]
        start += count[0] if count else 0
    raise AssertionError("the tree is too small")


def inner_segment(checkpoint: Checkpoint) -> tuple[int, int]:
    """Positions of the pages of a segment."""
    return inner_node([node for part in checkpoint.levels()[0] for node in checkpoint.tree.part(part)])


def test_a_segment_that_a_rewrite_leaves_small_is_joined_with_a_neighbour(small_trees):
    small_trees(pages=16, segments=100)
    store = store_with(*[ROW] * 128)
    store.checkpoint()
    before = segment_pages(checkpoint_of(store))
    start, stop = inner_segment(checkpoint_of(store))

    replace_pages(store, start + 1, stop - 1)
    store.checkpoint()

    after = segment_pages(checkpoint_of(store))
    assert sum(after) == sum(before) - (stop - start - 3)
    assert min(after) >= 16 // 4
    check_checkpoint(checkpoint_of(store), max_pages=20)
    check_store(Store(store.object_store))


def test_joining_rewrites_at_most_about_one_more_segment(small_trees):
    small_trees(pages=16, segments=100)
    store = store_with(*[ROW] * 128)
    store.checkpoint()
    old = {
        node.digest
        for part in checkpoint_of(store).levels()[0]
        for node in checkpoint_of(store).tree.part(part)
    }

    start, stop = inner_segment(checkpoint_of(store))

    replace_pages(store, start + 1, stop - 1)
    store.checkpoint()

    new = segment_digests(checkpoint_of(store))
    assert len(old - new) <= 3
    assert len(new - old) <= 3


def test_small_segments_do_not_pile_up_over_many_rewrites(small_trees):
    small_trees(pages=8, segments=4)
    store = store_with(*[ROW] * 96)
    store.checkpoint()

    for first in range(24):
        replace_pages(store, first, first + 4)
        store.checkpoint()

    checkpoint = checkpoint_of(store)
    pages = segment_pages(checkpoint)
    assert len(pages) <= 2 * sum(pages) / 8
    assert len(part_sizes(checkpoint)) <= 2 * len(pages) / 4 + 1
    check_checkpoint(checkpoint, max_pages=10)
    check_store(Store(store.object_store))


def test_a_part_that_a_rewrite_leaves_small_is_joined_with_a_neighbour(small_trees):
    small_trees(pages=2, segments=16)
    store = store_with(*[ROW] * 140)
    store.checkpoint()
    start, stop = inner_node(checkpoint_of(store).levels()[0])

    replace_pages(store, start + 1, stop - 1)
    store.checkpoint()

    assert min(part_sizes(checkpoint_of(store))) >= 16 // 4
    check_store(Store(store.object_store))


# tail runs


def append_and_checkpoint(times: int) -> tuple[Store, list[int], int]:
    """A store after so many appends to twelve columns, each with a checkpoint.

    Also the number of tail runs after each, and the segments written by all of them.
    """
    rows = pa.table({f"c{i:02d}": [i] for i in range(12)})
    store, meter = metered(store_with(*[rows] * 60))
    store.checkpoint()
    before = meter.counts
    tail_runs = []
    for _ in range(times):
        with store.transaction() as txn:
            txn.append("t", rows)
        store.checkpoint()
        levels = checkpoint_of(store).levels()
        sizes = [sum(part.pages for part in levels[level]) for level in sorted(levels)[1:]]
        assert all(later <= earlier for earlier, later in itertools.pairwise(sizes)), sizes
        tail_runs.append(len(sizes))
    written = {key for key in (meter.counts - before).keys if "/segments/" in key}
    return Store(store.object_store), tail_runs, len(written)


def test_appends_over_and_over_rewrite_little_and_leave_few_tail_runs(small_trees):
    small_trees(pages=4)

    store, tail_runs, written = append_and_checkpoint(14)

    at_once = 14 * 12 // 4
    all_over_again = sum(12 * i // 4 for i in range(1, 15))
    assert max(tail_runs) > 1
    assert at_once < written < 0.7 * all_over_again
    check_store(store)


@pytest.mark.slow
def test_tail_runs_are_merged_when_there_are_as_many_as_allowed(small_trees, monkeypatch):
    small_trees(pages=4)
    monkeypatch.setattr(checkpoint_writer, "_MAX_TAIL_RUNS", 1)

    store, tail_runs, _ = append_and_checkpoint(14)

    assert tail_runs == [1] * 14
    check_store(store)


def test_a_row_of_the_base_is_located_without_reading_tail_runs(small_trees):
    rows = pa.table({"first": [1], "inner": [2], "last": [3]})
    store = store_with(*[rows] * 60)
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", rows)
    store.checkpoint()
    assert max(checkpoint_of(store).levels()) == 1
    cold, meter = metered(store)

    found = cold.snapshot().table("t").directory.locate_row("inner", 30)

    assert found.page_position == 30
    assert sum("/segments/" in key for key in meter.counts.keys) == 1
    assert cold.snapshot().table("t").directory.locate_row("inner", 60).page_position == 60
    assert sum("/segments/" in key for key in meter.counts.keys) == 2


# all of it is there


class Forgetful(MeteredStore):
    """Acknowledges every put, and keeps only a part of objects whose key contains some text."""

    def __init__(self, inner: ObjectStore, text: str, kept: slice | None) -> None:
        super().__init__(inner)
        self._text = text
        self._kept = kept

    def put(self, key: str, data: object) -> None:
        if self._text not in key:
            super().put(key, data)
        elif self._kept is not None:
            super().put(key, bytes(data)[self._kept])


@pytest.mark.parametrize("kept", [None, slice(-1)])
@pytest.mark.parametrize("folder", ["segments/", "stats/", "parts/", "catalog/", "checkpoints/", "pages/"])
def test_a_checkpoint_whose_objects_are_not_there_in_full_is_never_named(folder, kept):
    store = store_with(ROW)
    forgetful = Forgetful(store.object_store, folder, kept)

    with pytest.raises(StorageError, match=folder):
        Store(forgetful).checkpoint()

    assert store.snapshot().log.checkpoint is None
    assert "_log/_last_checkpoint" not in [each.key for each in store.object_store.list("_log/_")]


def test_the_root_is_put_when_all_else_has_been_found(small_trees):
    store, meter = metered(store_with(*[ROW] * 40))
    store.snapshot()
    before = meter.counts

    store.checkpoint()

    keys = (meter.counts - before).keys
    root = min(index for index, key in enumerate(keys) if "/checkpoints/" in key)
    others = [index for index, key in enumerate(keys) if "/segments/" in key or "/parts/" in key]
    assert max(others) < root


def test_an_object_writer_puts_the_same_object_once():
    meter = MeteredStore(store_with(ROW).object_store)
    objects = ObjectWriter(meter, map_in_threads)

    one, two = (objects.put(b"the same", lambda digest: f"_log/segments/{digest}") for _ in range(2))
    objects.wait_all()

    assert one == two
    assert (meter.counts.puts, meter.counts.sizes) == (1, 1)


# the catalog


def catalog_of(tables: int, columns: int, name: Callable[[int], str]) -> tuple[CatalogFile, ...]:
    """The catalog files of so many tables, whose columns `name` names."""
    store = store_with(ROW).object_store
    definitions = {}
    for i in range(2, 2 + tables):
        schema = with_field_ids(pa.schema([(name(j), pa.int64()) for j in range(columns)]))
        definitions[TableId(i)] = TableDefinition(TableId(i), f"t{i:04d}", schema, columns + 1)
    names = {(0, d.name): i for i, d in definitions.items()}
    objects = ObjectWriter(store, map_in_threads)
    files = write_catalog(objects, LogState(version=1, tables=definitions, names=names), None, 512)
    objects.wait_all()
    assert (files[0].first, files[-1].last) == ((0, "t0002"), (0, f"t{1 + tables:04d}"))
    assert all(one.last < two.first for one, two in itertools.pairwise(files))
    found = [d.name for file in files for d in TreeReader(store).catalog(file.location)]
    assert found == sorted(d.name for d in definitions.values())
    return files


def test_catalog_files_of_tables_unlike_each_other_are_cut_by_bytes():
    random = Random(5)

    files = catalog_of(128, 100, lambda _: random.randbytes(16).hex())

    assert len(files) > 1
    assert all(file.location.length <= 96 << 10 for file in files)


def test_catalog_files_of_tables_like_each_other_are_cut_by_their_columns():
    files = catalog_of(200, 100, lambda column: f"c{column}")

    assert len(files) == 2


def test_a_table_too_large_for_a_catalog_file_has_one_to_itself():
    random = Random(5)

    files = catalog_of(3, 5_000, lambda _: random.randbytes(16).hex())

    assert len(files) == 3
