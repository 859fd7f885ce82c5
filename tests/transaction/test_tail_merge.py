"""A stream of small appends: few pages, bounded bytes, no reads, and the same rows whoever else commits."""

from __future__ import annotations

import os
import threading
from uuid import uuid4

import pyarrow as pa

import spark_pages as sp
from spark_pages.format.pages import batch_encoder
from spark_pages.io import encode_page
from spark_pages.maintenance.claims import claim_rows, release_claims
from spark_pages.model.page import PageKind
from spark_pages.runtime import Runtime
from spark_pages.storage import MeteredStore
from spark_pages.store import Store
from spark_pages.transaction import page_writer
from spark_pages.transaction.transaction import Transaction
from tests.effort import LONG
from tests.invariants import check_store
from tests.transaction.stores import QUIET, metered

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
APPENDS = 10_000 if LONG else 450


def rows(start: int, count: int = 1) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"n": numbers, "s": [f"row {i}" for i in numbers]}, schema=SCHEMA)


def new_store(**properties: str) -> Store:
    quiet = {key: value for key, value in QUIET.items() if key != "tail_page_bytes"}
    store = sp.create(f"memory://{uuid4().hex}", properties=quiet | properties)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    return store


def append(store: Store, data: pa.Table) -> Transaction:
    with store.transaction() as txn:
        txn.append("t", data)
    return txn


def entries(store: Store, column: str = "n") -> list[int]:
    return store.snapshot().table("t").pages(column)["entry_count"].to_pylist()


def test_appends_of_one_row_are_carried_like_the_digits_of_a_number():
    store = new_store()
    found = []

    for index in range(17):
        append(store, rows(index))
        found.append(entries(store))

    assert found[2:6] == [[1, 1, 1], [4], [4, 1], [4, 1, 1]]
    assert found[14:] == [[4, 4, 4, 1, 1, 1], [16], [16, 1]]
    assert store.snapshot().table("t").read().equals(rows(0, 17))
    check_store(store)


def test_a_long_stream_of_appends_writes_one_object_each_reads_nothing_and_leaves_few_pages():
    store, meter = metered(new_store())
    append(store, rows(0))
    sizes, requests = [], []

    for index in range(1, APPENDS):
        before = meter.counts
        version = append(store, rows(index)).version
        counts = meter.counts - before
        requests.append((counts.creates, counts.requests))
        sizes.append(store.object_store.size(f"_log/{version:020d}.avro"))
        if not index % 100:
            store.checkpoint()
            store.snapshot().table("t")  # asks for the catalog of the checkpoint, once

    frame = min(sizes)
    assert set(requests) == {(1, 1)}
    assert sum(sizes) / len(sizes) < 1.1 * frame, "on average a row and what it has carried"
    assert max(sizes) < frame + (16 << 10)
    assert len(entries(store)) <= 3 * 6 + APPENDS * 8 // (4 << 10)
    assert store.snapshot().table("t").read().equals(rows(0, APPENDS))
    check_store(store)


def test_the_tail_is_carried_over_a_checkpoint_and_by_a_process_that_has_just_opened_the_store():
    store = new_store()
    for index in range(3):
        append(store, rows(index))
    store.checkpoint()
    append(store, rows(3))
    over_checkpoint = entries(store)
    for index in range(4, 7):
        append(Store(store.object_store), rows(index))
    append(Store(store.object_store), rows(7))

    assert over_checkpoint == [4]
    assert entries(store) == [4, 4]
    assert store.snapshot().table("t").read().equals(rows(0, 8))
    check_store(store)
    store.checkpoint()
    check_store(Store(store.object_store))


def test_a_checkpoint_after_a_stream_of_appends_leaves_the_segments_before_it_alone(small_trees):
    store = new_store(tail_page_bytes="0")
    for index in range(60):
        append(store, rows(index))
    store.checkpoint()
    with store.transaction() as txn:
        txn.set_properties({"tail_page_bytes": "8192"})
    store, meter = metered(store)
    for index in range(60, 80):
        append(store, rows(index))
    before = meter.counts

    store.checkpoint()

    written = [key for key in (meter.counts - before).keys if key.startswith("_log/segments/")]
    assert entries(store)[60:] == [16, 4]
    assert len(set(written)) == 1, "one tail run, and nothing of the base"
    check_store(Store(store.object_store))


def test_two_processes_that_append_at_once_both_land_and_neither_fails():
    store = new_store()
    for index in range(3):
        append(store, rows(index))
    first, second = store.transaction(), Store(store.object_store).transaction()
    first.append("t", rows(3))
    second.append("t", rows(4))

    first.commit()
    second.commit()

    assert entries(store) == [4, 1], "the second is a plain append behind the first"
    assert store.snapshot().table("t").read().equals(rows(0, 5))
    check_store(store)


def test_an_append_that_has_looked_at_its_table_is_no_conflict_with_another_either():
    store = new_store()
    for index in range(3):
        append(store, rows(index))
    txn = store.transaction()
    assert txn.table("t").num_rows == 3
    txn.append("t", rows(3))
    append(Store(store.object_store), rows(4))

    txn.commit()

    assert store.snapshot().table("t").read()["n"].to_pylist() == [0, 1, 2, 4, 3]
    check_store(store)


def test_threads_of_one_process_that_append_at_once_lose_no_row():
    store = new_store()

    def many(first: int) -> None:
        for index in range(20):
            append(store, rows(first + index))

    threads = [threading.Thread(target=many, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = store.snapshot().table("t").read()
    assert sorted(found["n"].to_pylist()) == [100 * i + k for i in range(4) for k in range(20)]
    assert found["s"].to_pylist() == [f"row {n}" for n in found["n"].to_pylist()]
    check_store(store)


def test_an_update_of_the_tail_by_another_process_is_not_undone():
    store = new_store()
    for index in range(3):
        append(store, rows(index))
    txn = store.transaction()
    txn.append("t", rows(3))
    with Store(store.object_store).transaction() as other:
        other.update_rows("t", [1], {"n": [77]})

    txn.commit()

    assert store.snapshot().table("t").read()["n"].to_pylist() == [0, 77, 2, 3]
    check_store(store)


def test_pages_that_a_job_works_on_are_not_carried_until_it_lets_them_go():
    store = new_store()
    for index in range(3):
        append(store, rows(index))
    before = store.transaction()
    before.append("t", rows(3))

    claims = claim_rows(store.transaction, {(1, 1): (2, 3)}, "a job", Runtime())
    before.commit()
    append(store, rows(4))
    held = entries(store)
    with store.transaction() as txn:
        release_claims(txn, claims)
    append(store, rows(5))

    assert held == [1, 1, 1, 1, 1]
    assert entries(store) == [6]
    assert store.snapshot().table("t").read().equals(rows(0, 6))
    check_store(store)


def test_pages_of_a_job_that_died_are_carried_once_its_claim_has_expired():
    store = new_store()
    for index in range(3):
        append(store, rows(index))
    claim_rows(store.transaction, {(1, 1): (0, 3)}, "a job", Runtime(), seconds=0)

    append(store, rows(3))

    assert entries(store) == [4]


def test_what_changed_and_who_wrote_a_row_is_told_as_of_a_plain_append():
    store = new_store()
    versions = [append(store, rows(index)).version for index in range(8)]

    changed = store.changes(versions[2] + 1, versions[3], table="t", granularity="rows")

    assert {(row["first_row"], row["end_row"]) for row in changed.to_pylist()} == {(3, 4)}
    assert [store.blame("t", "n", row).version for row in range(8)] == versions
    assert store.history(limit=1)["rows_added"].to_pylist() == [1]


def test_older_versions_keep_their_pages():
    store = new_store()
    versions = [append(store, rows(index)).version for index in range(9)]

    found = [store.snapshot(version=v).table("t").read() for v in versions]

    assert [each.equals(rows(0, index + 1)) for index, each in enumerate(found)] == [True] * 9


def test_columns_that_appends_leave_out_stay_one_constant_page():
    store = new_store()

    for index in range(5):
        append(store, pa.table({"n": [index]}))

    (page,) = store.snapshot().table("t").directory.chain("s").all_pages().descriptors()
    assert (page.kind, page.entry_count) == (PageKind.CONSTANT, 5)
    assert store.snapshot().table("t").read().to_pydict() == {"n": [0, 1, 2, 3, 4], "s": [None] * 5}
    check_store(store)


def test_a_null_column_that_is_filled_later_and_left_out_again():
    store = new_store()

    for index in range(12):
        append(store, rows(index) if index % 5 > 2 else pa.table({"n": [index]}))

    table = store.snapshot().table("t")
    expected = [f"row {i}" if i % 5 > 2 else None for i in range(12)]
    assert table.read().to_pydict() == {"n": list(range(12)), "s": expected}
    check_store(store)


def test_entries_with_something_of_their_own_are_carried_with_it():
    store = new_store()

    for index in range(17):
        meta = {"n.prefix_meta": [b"p%d" % index], "s.suffix_meta": [None]} if index % 3 else None
        with store.transaction() as txn:
            txn.append("t", rows(index), entry_meta=meta)

    found = store.snapshot().table("t").read(entry_meta=True)
    assert (entries(store), entries(store, "s")) == ([16, 1], [16, 1])
    assert found["n.prefix_meta"].to_pylist() == [b"p%d" % i if i % 3 else None for i in range(17)]
    assert found["s.suffix_meta"].null_count == 17
    assert found.select(["n", "s"]).equals(rows(0, 17))
    check_store(store)


def test_pages_are_carried_among_those_with_the_same_metadata():
    store = new_store()
    told = [None] * 3 + [{"source": "radar"}] * 9 + [{b"source": b"tower"}] * 5

    for index, metadata in enumerate(told):
        with store.transaction() as txn:
            txn.append("t", rows(index), page_metadata=metadata and {"n": metadata})

    table = store.snapshot().table("t")
    found = table.read(entry_meta=True)["n.page_metadata"].to_pylist()
    assert entries(store) == [1, 1, 1, 4, 4, 1, 4, 1]
    assert entries(store, "s") == [16, 1]
    assert found == [None] * 3 + [[(b"source", b"radar")]] * 9 + [[(b"source", b"tower")]] * 5
    assert table.read().equals(rows(0, 17))
    check_store(store)


def test_a_page_that_is_too_large_to_be_joined_is_not_in_the_way_of_those_behind_it():
    store = new_store()

    append(store, pa.table({"n": [0], "s": [os.urandom(3_600).hex()]}))
    for index in range(1, 100):
        append(store, pa.table({"n": [index], "s": [os.urandom(100).hex()]}))

    assert len(entries(store, "s")) <= 12
    check_store(store)


def test_large_values_are_not_written_again_and_again():
    store = new_store()

    for index in range(8):
        append(store, pa.table({"n": [index], "s": ["x" * 5_000 + os.urandom(2_500).hex()]}))

    assert entries(store, "n") == [4, 4]
    assert entries(store, "s") == [1] * 8
    check_store(store)


def test_the_property_turns_it_off():
    store = new_store(tail_page_bytes="0")

    for index in range(5):
        append(store, rows(index))

    assert entries(store) == [1] * 5


def test_an_append_to_two_tables_carries_both_or_none():
    store = new_store()
    with store.transaction() as txn:
        txn.create_table("u", SCHEMA)
    for index in range(3):
        with store.transaction() as txn:
            txn.append("t", rows(index))
            txn.append("u", rows(index))
    txn = store.transaction()
    txn.append("t", rows(3))
    txn.append("u", rows(3))
    with Store(store.object_store).transaction() as other:
        other.append("u", rows(9))

    txn.commit()

    tables = [store.snapshot().table(name).read()["n"].to_pylist() for name in ("t", "u")]
    assert tables == [[0, 1, 2, 3], [0, 1, 2, 9, 3]]
    check_store(store)


def test_a_swap_asks_storage_for_nothing_before_its_commit():
    store = new_store()
    meter = MeteredStore(store.object_store)
    mine = Store(meter)
    for index in range(3):
        append(mine, rows(index))
    mine.checkpoint()
    mine.snapshot().table("t")  # asks for the catalog of the checkpoint, once
    before = meter.counts

    append(mine, rows(3))

    assert entries(Store(store.object_store)) == [4]

    assert ((meter.counts - before).creates, (meter.counts - before).requests) == (1, 1)


def test_each_page_is_encoded_once_whether_the_append_takes_others_along_or_not(monkeypatch):
    store = new_store()
    encoded: list[int] = []

    def counting(values: pa.Array, **options: object) -> object:
        encoded.append(len(values))
        return encode_page(values, **options)

    monkeypatch.setattr(page_writer, "encode_page", counting)
    monkeypatch.setattr(batch_encoder, "encode_page", counting)

    for index in range(4):
        append(store, rows(index))

    assert encoded == [1, 1, 1, 1, 1, 1, 4, 4]


def test_an_append_of_a_row_to_twenty_columns_is_an_object_of_12_kib_unless_it_takes_others_along():
    kinds = (pa.int64(), pa.uint64(), pa.int32(), pa.float64(), pa.float32(), pa.bool_(), pa.date32())
    schema = pa.schema([(f"c{i}", (*kinds, pa.string(), pa.string(), pa.int64())[i % 10]) for i in range(20)])
    base = new_store()
    with base.transaction() as txn:
        txn.create_table("wide", schema)
    store, meter = metered(base)
    few = pa.array([10_003], pa.int32())
    text = pa.array(["nineteen bytes each"])
    row = pa.table([text if field.type == pa.string() else few.cast(field.type) for field in schema], schema)
    with store.transaction() as txn:
        txn.append("wide", row)
    store.checkpoint()
    sizes = []

    for _ in range(24):
        before = meter.counts
        with store.transaction() as txn:
            txn.append("wide", row)
        assert (meter.counts - before).creates == 1
        sizes.append(store.object_store.size(f"_log/{txn.version:020d}.avro"))

    identity = 70  # bytes of the store's id, and of its field in the schema
    packed = 90  # bytes of the types in the schema by which splices pack page numbers
    assert sorted(sizes)[17] <= (12 << 10) + identity + packed, "three of four"
