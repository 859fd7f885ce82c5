"""What must not grow (DESIGN.md, section 6), counted in requests."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from spark_pages.format.names import commit_key
from tests.transaction.stores import LOOKS, metered, reads_and_looks, store_with

ROWS = pa.table({"n": list(range(10)), "s": list("abcdefghij")})


def folders(keys: tuple[str, ...]) -> Counter[str]:
    """How many requests went to each kind of object."""
    return Counter(key.rsplit("/", 1)[0] if key.count("/") > 1 else key.split("/")[-1] for key in keys)


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_small_commit_is_one_create_and_no_read(with_checkpoint):
    store = store_with(ROWS, ROWS)
    if with_checkpoint:
        store.checkpoint()
    store, meter = metered(store)
    with store.transaction() as txn:
        txn.append("t", ROWS)
    txn = store.transaction()
    before = meter.counts

    txn.append("t", ROWS)
    txn.commit()

    counts = meter.counts - before
    assert (counts.creates, counts.requests) == (1, 1)


def test_a_large_commit_adds_one_page_file():
    store, meter = metered(store_with(ROWS))
    store.snapshot()
    txn = store.transaction()
    txn.append("t", pa.table({"n": list(range(50_000)), "s": [f"{i}" for i in range(50_000)]}))
    before = meter.counts

    txn.commit()

    counts = meter.counts - before
    assert (counts.puts, counts.creates) == (1, 1)
    # a page file bears the version read, so the newest one is looked for first
    assert reads_and_looks(counts) == (2, LOOKS)


def test_page_manifests_that_list_pages_of_several_columns_are_read_once():
    store = store_with(ROWS)
    for _ in range(6):
        txn = store.transaction()
        txn._page_bytes = 16
        txn.append("t", pa.table({"n": list(range(2000)), "s": ["a text of its own"] * 2000}))
        txn.commit()
    store, meter = metered(store)
    table = store.snapshot().table("t")

    runs = [table.directory.chain(column).all_pages() for column in ("n", "s")]

    assert all(run.num_rows == 12_010 for run in runs)
    assert folders(meter.counts.keys)["_log/manifests"] == 6


def test_a_refresh_with_nothing_new_is_one_round_of_looks():
    store, meter = metered(store_with(ROWS))
    store.snapshot()
    before = meter.counts

    store.snapshot()

    assert reads_and_looks(meter.counts - before) == (0, LOOKS)


def test_to_open_and_locate_a_row_reads_one_object_on_each_floor(small_trees):
    store = store_with(*[ROWS] * 60)
    store.checkpoint()
    cold, meter = metered(store)

    found = cold.snapshot().table("t").directory.locate_row("n", 305)

    assert (found.page_position, found.row_in_page) == (30, 5)
    assert meter.counts.creates == meter.counts.puts == meter.counts.lists == 0
    assert meter.looked_for == [commit_key(slot) for slot in (0, 62, 63, 64, 66, 70, 78, 94, 126, 61)]
    assert folders(meter.counts.keys) - folders(tuple(meter.looked_for)) == {
        "_last_checkpoint": 1,
        "_log/checkpoints": 1,
        "_log/catalog": 1,
        "_log/parts": 1,
        "_log/segments": 1,
        "00000000000000000061.avro": 1,  # proves that the hint is of this store
    }


def test_a_checkpoint_after_one_append_writes_a_tail_and_leaves_old_segments_alone(small_trees):
    store = store_with(*[ROWS] * 60)
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", ROWS)
    store, meter = metered(store)
    store.snapshot()
    before = meter.counts

    store.checkpoint()

    counts = meter.counts - before
    asked = folders(counts.keys)
    written_and_looked_for = 2
    assert {asked[f"_log/{kind}"] for kind in ("segments", "parts", "stats")} == {written_and_looked_for}
    assert (counts.creates, counts.puts, counts.sizes, counts.lists) == (0, 6, 5, 0)
    assert (counts.gets, counts.stamps) == (2, LOOKS)  # the root read back, the hint that is replaced


def test_a_checkpoint_after_one_update_rewrites_one_path_of_the_tree(small_trees):
    store = store_with(*[ROWS] * 60)
    store.checkpoint()
    with store.transaction() as txn:
        txn.update_rows("t", [305], {"n": [0]})
    store, meter = metered(store)
    store.snapshot()
    before = meter.counts

    store.checkpoint()

    counts = meter.counts - before
    asked = folders(counts.keys)
    assert asked["_log/segments"] <= 6  # read, written and looked for, a neighbour perhaps too
    assert asked["_log/parts"] <= 6
    assert counts.puts <= 9


def test_a_checkpoint_with_nothing_new_writes_nothing():
    store, meter = metered(store_with(ROWS))
    first = store.checkpoint()
    before = meter.counts

    assert store.checkpoint() == first

    assert reads_and_looks(meter.counts - before) == (0, LOOKS)


def test_opening_without_a_hint_finds_the_head_by_halving():
    store = store_with(*[ROWS] * 60)
    cold, meter = metered(store)
    store.checkpoint()
    store.object_store.delete("_log/_last_checkpoint")
    with store.transaction() as txn:
        txn.append("t", ROWS)

    assert cold.snapshot().version == txn.version

    assert meter.counts.lists == 0
    assert reads_and_looks(meter.counts) == (16, 2 * LOOKS)
