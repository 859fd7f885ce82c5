"""What reading a long tail of the log costs, counted in requests (DESIGN.md, section 6)."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from spark_pages.store import Store
from tests.transaction.stores import LOOKS, Meter, metered, reads_and_looks, store_with

ROWS = pa.table({"n": list(range(10)), "s": list("abcdefghij")})


def append(store: Store, count: int) -> None:
    for _ in range(count):
        with store.transaction() as txn:
            txn.append("t", ROWS)


def reader_of(store: Store) -> tuple[Store, Meter]:
    reader, meter = metered(store)
    reader.snapshot()
    return reader, meter


def cost_of_refresh(reader: Store, meter: Meter) -> tuple[int, int, int]:
    """Reads, how many of them found nothing, and rounds of looks."""
    before, looked_before = meter.counts, len(meter.looked_for)
    version = reader.snapshot().version
    counts = meter.counts - before
    reads = Counter(counts.keys) - Counter(meter.looked_for[looked_before:])
    there = {each.key for each in meter.list("_log/")}
    assert version == reader.snapshot().version
    return reads.total(), sum(reads[key] for key in reads if key not in there), counts.stamps // LOOKS


@pytest.mark.parametrize(
    ("new", "cost"), [(0, (0, 0, 1)), (1, (1, 0, 2)), (2, (2, 0, 2)), (3, (4, 1, 2)), (100, (101, 1, 6))]
)
def test_what_a_refresh_costs_without_log_compaction(new, cost):
    store = store_with(*[ROWS] * 3)
    reader, meter = reader_of(store)
    append(store, new)

    assert cost_of_refresh(reader, meter) == cost


@pytest.mark.parametrize("new", [0, 1])
def test_a_refresh_over_at_most_one_commit_does_not_ask_for_ranges(new):
    store = store_with(*[ROWS] * 40)
    store.compact_log()
    reader, meter = reader_of(store)
    append(store, new)

    assert cost_of_refresh(reader, meter) == (new, 0, 1 + new)


def test_a_refresh_over_100_commits_reads_at_most_8_objects_wherever_it_begins():
    store = store_with(*[ROWS] * 20)
    readers = {}
    costs = []

    for version in range(22, 152):
        readers[version + 99] = reader_of(store) if version < 52 and version % 5 == 2 else None
        append(store, 1)
        if readers.get(version):
            store.compact_log()
            costs.append(cost_of_refresh(*readers[version]))

    assert len(costs) == 6
    assert max(reads for reads, _, _ in costs) == 8
    assert max(misses for _, misses, _ in costs) == 0
    assert max(looks for _, _, looks in costs) == 3


def test_small_commits_are_read_in_a_fraction_of_their_bytes():
    store = store_with(*[ROWS] * 3)
    slots, ranges = reader_of(store), reader_of(store)
    append(store, 64)

    slots[0].snapshot()
    before = ranges[1].counts
    store.compact_log()
    ranges[0].snapshot()

    assert (ranges[1].counts - before).bytes_read * 10 < slots[1].counts.bytes_read


def test_a_cold_open_100_commits_after_a_checkpoint_takes_at_most_8_requests_more():
    store = store_with(*[ROWS] * 30)
    store.checkpoint()
    _, at_once = reader_of(store)
    append(store, 100)
    store.compact_log()

    _, late = reader_of(store)

    assert reads_and_looks(at_once.counts) == (3, LOOKS)
    assert reads_and_looks(late.counts) == (6, LOOKS)


def test_history_reads_ranges():
    store = store_with(*[ROWS] * 62)
    store.compact_log()
    reader, meter = reader_of(store)
    before = meter.counts

    history = reader.history()
    assert history.column("transaction").null_count == 1, "the log compaction"
    assert history.num_rows == 65

    assert reads_and_looks(meter.counts - before) == (2, LOOKS)


def test_a_store_without_a_checkpoint_is_opened_from_ranges():
    store = store_with(*[ROWS] * 62)
    store.compact_log()

    _, meter = reader_of(store)

    assert reads_and_looks(meter.counts) == (4, LOOKS)


def test_log_compaction_reads_each_slot_once_and_asks_once_for_each_range():
    store, meter = reader_of(store_with(*[ROWS] * 62))
    before = meter.counts

    done = store.compact_log()

    counts = meter.counts - before
    assert len(done.keys) == 4 + 2 + 1
    assert counts.creates == len(done.keys)
    assert counts.sizes == len(done.keys) + 1  # whether 64 slots are in a range, or need a bundle
    # the early half of each larger range; the hint
    assert (counts.gets, counts.stamps) == (64 + 3 + 1, LOOKS)
    assert counts.puts == 1
