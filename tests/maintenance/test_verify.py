from __future__ import annotations

import math
import os
import struct
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, StoreNotFoundError
from spark_pages.format.digest import digest_of
from spark_pages.format.names import HINT_KEY, commit_key, root_key
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.checkpoint.root import encode_root
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.last_checkpoint import write_hint
from spark_pages.maintenance.verify import comparisons
from spark_pages.maintenance.verify.faults import FaultKind, Verification
from spark_pages.maintenance.verify.verify import verify
from spark_pages.model.actions import CheckpointRef, Retention, TransactionRecord
from spark_pages.model.location import Location
from spark_pages.model.page import PageStats
from spark_pages.model.run import PageRun
from spark_pages.storage import MeteredStore, open_object_store
from spark_pages.store import Store
from spark_pages.transaction import page_writer, placement
from tests.effort import some
from tests.maintenance.stores import flip, forge, keys_of, rich_store, slot
from tests.transaction.stores import QUIET, store_with


@pytest.fixture
def rich(url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    return rich_store(url, monkeypatch)


def told(found: Verification) -> str:
    return "\n".join(map(str, found.damage))


@pytest.mark.parametrize("pages", ["all", "sample", "none"])
def test_a_whole_store_is_ok_and_counted(rich: Store, pages: str) -> None:
    found = verify(rich.object_store, pages=pages)

    assert found.faults == ()
    assert found.ok
    assert found.version == 8
    assert (found.checkpoints, found.replayed) == (4, 4)
    assert found.pages > 60
    assert {"all": found.pages_read == found.pages, "none": not found.pages_read}.get(
        pages, 0 < found.pages_read < found.pages
    )


def test_verifying_writes_nothing(rich: Store) -> None:
    metered = MeteredStore(rich.object_store)

    verify(metered, pages="all")

    assert (metered.counts.puts, metered.counts.creates, metered.counts.deletes) == (0, 0, 0)


@pytest.mark.sampled
def test_every_object_that_is_lost_is_named(rich: Store) -> None:
    for key in some(keys_of(rich), 3):
        data = rich.object_store.get(key)
        rich.object_store.delete(key)

        found = verify(rich.object_store, pages="none")

        newest = commit_key(8)  # without it the log ends one version earlier, as it did before
        if key == HINT_KEY:
            assert [fault.kind for fault in found.faults] == [FaultKind.HINT]
        elif key != newest:
            assert not found.ok, key
            assert any(fault.key == key and fault.kind is FaultKind.MISSING for fault in found.damage), key
        rich.object_store.put(key, data)
    assert verify(rich.object_store).ok


@pytest.mark.sampled
def test_every_object_that_is_damaged_is_named(rich: Store) -> None:
    for key in some(keys_of(rich), 3):
        data = rich.object_store.get(key)
        flip(rich.object_store, key, 70)

        found = verify(rich.object_store, pages="all")

        if key == HINT_KEY:
            assert found.ok
        else:
            assert any(fault.key == key and fault.kind is FaultKind.DAMAGED for fault in found.damage), key
        rich.object_store.put(key, data)


def test_a_lost_page_file_is_told_by_column_rows_and_version(rich: Store) -> None:
    keys = keys_of(rich, "pages/00000000000000000004-")
    key = next(key for key in keys if key in told_paths(rich, "u"))
    rich.object_store.delete(key)

    found = verify(rich.object_store, pages="none")

    (fault,) = found.damage
    assert (fault.kind, fault.key) == (FaultKind.MISSING, key)
    assert "of u.x, added by version 5, rows [0, 40000) at version 8" in fault.what


def told_paths(store: Store, table: str) -> set[str]:
    return set(store.snapshot().table(table).pages().column("path").to_pylist())


def test_a_page_file_that_ends_early_is_told_without_reading_pages(rich: Store) -> None:
    key = next(iter(told_paths(rich, "u")))
    rich.object_store.put(key, rich.object_store.get(key)[:8192])

    found = verify(rich.object_store, pages="none")

    assert [fault.key for fault in found.damage] == [key]
    assert "ends at byte 8192" in told(found)


def test_one_damaged_page_is_told_with_its_rows(url: str) -> None:
    store = store_with(pa.table({"n": np.random.default_rng(1).integers(0, 1 << 60, 50_000)}))
    pages = store.snapshot().table("t").pages()
    page = pages.slice(2, 1).to_pylist()[0]
    flip(store.object_store, page["path"], page["offset"] + 200)

    found = verify(store.object_store, pages="all")

    start = page["first_row"]
    assert f"rows [{start}, {start + page['entry_count']}) at version 2" in told(found)
    assert f"page {page['page_id']:016x} of t.n" in told(found)


def test_one_bit_of_the_padding_behind_a_page_is_told_with_file_page_and_rows(url: str) -> None:
    store = store_with(pa.table({"n": np.random.default_rng(1).integers(0, 1 << 60, 50_000)}))
    pages = store.snapshot().table("t").pages().to_pylist()
    page = pages[2]
    flip(store.object_store, page["path"], page["offset"] + page["actual_len"] + 5)

    (fault,) = verify(store.object_store, pages="all").damage

    start = page["first_row"]
    assert (fault.kind, fault.key) == (FaultKind.DAMAGED, page["path"])
    assert f"{page['path']}@{page['offset']}: it should have" in fault.what
    assert f"page {page['page_id']:016x} of t.n" in fault.what
    assert f"rows [{start}, {start + page['entry_count']}) at version 2" in fault.what
    assert store.snapshot().table("t").read().num_rows == 50_000


def test_a_commit_of_another_history_breaks_the_chain(rich: Store) -> None:
    forge(rich.object_store, replace(slot(rich.object_store, 6), token="ab" * 16))

    found = verify(rich.object_store, pages="none")

    assert any(fault.key == commit_key(7) and "another history" in fault.what for fault in found.damage)


def test_a_log_whose_end_was_cut_off_is_told_by_what_was_written_for_it(rich: Store) -> None:
    rich.object_store.delete(commit_key(7))
    rich.object_store.delete(commit_key(8))

    found = verify(rich.object_store, pages="none")

    assert commit_key(7) in {fault.key for fault in found.damage}
    assert "Versions 7 to 7 are lost" in told(found)


def test_a_lost_commit_of_a_vacuum_is_told_by_the_slots_that_it_has_cleaned(rich: Store) -> None:
    version = rich.vacuum(retention=4).version
    rich.object_store.delete(commit_key(version))

    found = verify(rich.object_store, pages="none")

    assert commit_key(version) in {fault.key for fault in found.damage}
    assert "has been cleaned. The commit of the vacuum that did so is lost" in told(found)


def test_two_slots_that_were_swapped_are_both_named(rich: Store) -> None:
    one, two = rich.object_store.get(commit_key(2)), rich.object_store.get(commit_key(3))
    rich.object_store.put(commit_key(2), two)
    rich.object_store.put(commit_key(3), one)

    found = verify(rich.object_store, pages="none")

    assert {commit_key(2), commit_key(3)} <= {fault.key for fault in found.damage}


def test_a_transaction_that_is_twice_in_the_log_is_told(rich: Store) -> None:
    last = slot(rich.object_store, 8)
    again = replace(last, version=9, parent_digest=last.digest, timestamp_us=last.timestamp_us + 1)
    forge(rich.object_store, replace(again, token="cd" * 16))

    found = verify(rich.object_store, pages="none")

    assert "repeats a token, of its commit or of a transaction, of version 8" in told(found)


def test_a_commit_with_the_token_of_another_is_told(rich: Store) -> None:
    last = slot(rich.object_store, 8)
    again = replace(last, version=9, parent_digest=last.digest, timestamp_us=last.timestamp_us + 1)
    records = tuple(replace(each, token=f"{number:032x}") for number, each in enumerate(last.records, 1))
    forge(rich.object_store, replace(again, records=records))

    found = verify(rich.object_store, pages="none")

    assert "repeats a token, of its commit or of a transaction, of version 8" in told(found)


def test_times_that_go_back_are_told(rich: Store) -> None:
    last = slot(rich.object_store, 8)
    forge(rich.object_store, replace(last, timestamp_us=slot(rich.object_store, 7).timestamp_us))

    found = verify(rich.object_store, pages="none")

    assert "Opening a version by its time may be wrong" in told(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"apps": {"app": (9, 1)}}, "says apps is"),
        ({"tags": {"x": 1}}, "says tags is"),
        ({"next_table_id": 17}, "says next_table_id is"),
        ({"edits": {}}, "holds other pages of column"),
        ({"tables": {}, "names": {}}, "other tables than the intents"),
    ],
)
def test_a_checkpoint_that_says_otherwise_than_the_log_is_told(url: str, change: dict, says: str) -> None:
    store = store_with(pa.table({"n": [1]}))
    store.checkpoint()
    with store.transaction(app_id="app", app_version=1) as txn:
        txn.create_table("new", pa.schema([("x", pa.int64())]))
        txn.append("t", pa.table({"n": [2]}))
    head = store.snapshot().log
    forged = write_checkpoint(
        store.object_store, replace(head.state, **change), head.checkpoint, "0" * 32
    ).ref
    write_hint(store.object_store, forged)

    found = verify(store.object_store)

    assert says in told(found)
    assert forged.location.key in {fault.key for fault in found.damage}


@pytest.mark.parametrize("column", ["page_id", "entry_count", "payload_entries", "actual_len", "checksum"])
def test_a_checkpoint_with_another_page_than_the_log_is_told(url: str, column: str) -> None:
    store = store_with(pa.table({"n": [1, 2, 3]}))
    state = store.snapshot().log.state
    (edit,) = state.edits[1, 1]
    pages = edit.added.pages
    index = pages.schema.get_field_index(column)
    other = pc.add(pages.column(index), pa.scalar(1, pages.column(index).type))
    lying = PageRun(pages.set_column(index, pages.schema.field(index), other))
    edits = {**state.edits, (1, 1): (replace(edit, added=lying),)}
    forged = write_checkpoint(store.object_store, replace(state, edits=edits), None, "0" * 32).ref
    write_hint(store.object_store, forged)

    found = verify(store.object_store, pages="none")

    assert "holds other pages of column 1 of table 1 than the log, from page 0" in told(found)


@pytest.mark.parametrize("field", ["pages", "first_pages", "first_rows", "last_pages", "last_rows"])
def test_counts_that_do_not_add_up_on_the_way_down_are_told(url: str, field: str) -> None:
    store = store_with(pa.table({"n": [1]}))
    ref = store.checkpoint()
    root = TreeReader(store.object_store).root(ref)
    (part,) = root.parts
    lying = replace(root, parts=(replace(part, **{field: getattr(part, field) + 1}),))
    data = encode_root(lying)
    key = root_key(ref.version, digest_of(data))
    store.object_store.put(key, data)
    location = Location(key, len(data), digest_of(data), original_length=len(data))
    write_hint(store.object_store, CheckpointRef(ref.version, location))

    found = verify(store.object_store)

    assert any(fault.key == key and "but it holds" in fault.what for fault in found.damage)


@pytest.mark.parametrize(
    "lie",
    [
        PageStats(1, None, None, False),
        PageStats(0, (5).to_bytes(8, "little"), (9).to_bytes(8, "little"), True),
        PageStats(0, (1).to_bytes(8, "little"), (8).to_bytes(8, "little"), False),
        PageStats(0, None, None, True),
        PageStats(0, b"short", b"short", False),
    ],
)
def test_statistics_that_are_not_true_are_told(monkeypatch: pytest.MonkeyPatch, lie: PageStats) -> None:
    monkeypatch.setattr(page_writer, "stats_of_pages", lambda _, bounds: [lie] * (len(bounds) - 1))
    store = store_with(pa.table({"n": [1, 9]}))
    store.checkpoint()

    found = verify(store.object_store)

    assert "other values than its statistics say: page" in told(found)
    assert "of t.n" in told(found)


@pytest.mark.parametrize(
    "truth",
    [
        PageStats(0, (0).to_bytes(8, "little"), (10).to_bytes(8, "little"), False),
        PageStats(0, None, (9).to_bytes(8, "little"), False),
        PageStats(0, None, None, False),
    ],
)
def test_statistics_that_are_wider_than_ours_are_true(
    monkeypatch: pytest.MonkeyPatch, truth: PageStats
) -> None:
    monkeypatch.setattr(page_writer, "stats_of_pages", lambda _, bounds: [truth] * (len(bounds) - 1))
    store = store_with(pa.table({"n": [1, 9]}))

    assert verify(store.object_store).ok


NAN = math.nan
ONE, EIGHT, NINE, TEN = (struct.pack("<d", number) for number in (1, 8, 9, 10))


@pytest.mark.parametrize(
    ("values", "lie"),
    [
        ([1.0, NAN, 9.0], PageStats(0, ONE, NINE, True)),
        ([1.0, NAN, 9.0], PageStats(0, ONE, TEN, False)),
        ([1.0, NAN, 9.0], PageStats(0, ONE, EIGHT, True, nan=True)),
        ([1.0, NAN, 9.0], PageStats(0, ONE, EIGHT, False, nan=True)),
        ([1.0, NAN, 9.0], PageStats(0, None, None, True, nan=True)),
        ([1.0, 9.0], PageStats(0, ONE, NINE, True, nan=True)),
        ([1.0, 9.0], PageStats(0, None, None, False, nan=True)),
        ([NAN, NAN], PageStats(0, ONE, NINE, False, nan=True)),
        ([NAN, NAN], PageStats(0, None, None, True)),
        ([None, None], PageStats(2, None, None, True, nan=True)),
    ],
)
def test_statistics_that_are_not_true_of_a_nan_are_told(
    monkeypatch: pytest.MonkeyPatch, values: list[float], lie: PageStats
) -> None:
    monkeypatch.setattr(page_writer, "stats_of_pages", lambda _, bounds: [lie] * (len(bounds) - 1))
    store = store_with(pa.table({"x": pa.array(values, pa.float64())}))

    assert "other values than its statistics say: page" in told(verify(store.object_store))


@pytest.mark.parametrize(
    ("values", "truth"),
    [
        ([1.0, NAN, 9.0], PageStats(0, None, None, False)),
        ([1.0, NAN, 9.0], PageStats(0, None, None, False, nan=True)),
        ([1.0, NAN, 9.0], PageStats(0, ONE, NINE, True, nan=True)),
        ([1.0, NAN, 9.0], PageStats(0, ONE, TEN, False, nan=True)),
        ([NAN, NAN], PageStats(0, None, None, False)),
        ([NAN, NAN], PageStats(0, None, None, True, nan=True)),
    ],
)
def test_statistics_of_pages_with_a_nan_are_true_if_they_say_less_as_those_of_earlier_releases_do(
    monkeypatch: pytest.MonkeyPatch, values: list[float], truth: PageStats
) -> None:
    monkeypatch.setattr(page_writer, "stats_of_pages", lambda _, bounds: [truth] * (len(bounds) - 1))
    store = store_with(pa.table({"x": pa.array(values, pa.float64())}))

    assert verify(store.object_store).ok


def test_columns_of_different_length_are_told() -> None:
    store = store_with(pa.table({"a": [1], "b": [2]}))
    last = slot(store.object_store, 2)
    (record,) = last.records
    forge(store.object_store, replace(last, records=(replace(record, splices=record.splices[:1]),)))

    found = verify(store.object_store)

    assert "different length: {'a': 1, 'b': 0}" in told(found)


def test_columns_of_different_length_are_told_where_only_a_checkpoint_has_them() -> None:
    store = store_with(pa.table({"a": [1], "b": [2]}))
    last = slot(store.object_store, 2)
    (record,) = last.records
    forge(store.object_store, replace(last, records=(replace(record, splices=record.splices[:1]),)))
    store = Store(store.object_store)
    with store.transaction() as txn:
        txn.create_table("other", pa.schema([("n", pa.int64())]))
    store.checkpoint()
    store.vacuum(retention=0)

    found = verify(store.object_store)

    assert "shows the columns of 't' of different length: {'a': 1, 'b': 0}" in told(found)
    assert [fault.key for fault in found.damage] == [root_of(store, 3)]


def root_of(store: Store, version: int) -> str:
    (key,) = keys_of(store, f"_log/checkpoints/{version:020d}-")
    return key


def test_a_table_zero_that_differs_from_the_intents_is_told() -> None:
    store = store_with(schema=pa.schema([("a", pa.int64())]))
    last = slot(store.object_store, 1)
    (record,) = last.records
    (intent,) = record.intents
    other = replace(intent, name="other", definition=replace(intent.definition, name="other"))
    forge(store.object_store, replace(last, records=(replace(record, intents=(other,)),)))

    found = verify(store.object_store)

    assert "table 0 describes table 1, 'other', otherwise than the log" in told(found)


def test_what_nothing_names_is_a_notice(rich: Store) -> None:
    rich.object_store.put("pages/00000000000000000007-" + "0" * 32 + "-0.pages", b"x")
    rich.object_store.put("_log/segments/" + "0" * 64 + ".parquet", b"x")

    found = verify(rich.object_store)

    assert found.ok
    assert [notice.kind for notice in found.notices] == [FaultKind.ORPHAN] * 2


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1}', b"\xff" * 9000])
def test_a_hint_without_sense_is_a_notice(rich: Store, content: bytes) -> None:
    rich.object_store.put(HINT_KEY, content)

    found = verify(rich.object_store, pages="none")

    assert found.ok
    assert [notice.kind for notice in found.notices] == [FaultKind.HINT]


def test_a_verification_shows_itself_with_one_of_a_thing_and_many(rich: Store) -> None:
    rich.object_store.put(HINT_KEY, b"wrong")

    shown = repr(verify(rich.object_store, pages="none"))

    assert "ok; 1 notice, " in shown
    assert f"{len(list(rich.object_store.list('_log/checkpoints/'))):,} checkpoints, " in shown


def test_unfinished_files_are_a_notice_once_they_are_a_day_old(tmp_path: Path) -> None:
    sp.create(tmp_path / "store")
    for name, age_s in (("0" * 32, 2 * 86_400), ("1" * 32, 60)):
        file = tmp_path / "store" / "_tmp" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"half")
        os.utime(file, (time.time() - age_s, time.time() - age_s))

    found = verify(open_object_store(tmp_path / "store"))

    assert [notice.key for notice in found.notices] == [f"_tmp/{'0' * 32}"]


def test_the_result_is_a_table_and_a_text(rich: Store) -> None:
    for key in keys_of(rich, "_log/segments/"):
        rich.object_store.delete(key)

    found = verify(rich.object_store)

    assert found.table().column_names == ["kind", "key", "what", "remedy", "harmless"]
    assert found.table().num_rows == len(found.faults) > 0
    assert "_log/segments/" in repr(found)
    assert "It holds 5 pages of u.x" in repr(found)


def test_there_must_be_a_store_and_a_known_way_to_read_pages(url: str, store: Store) -> None:
    with pytest.raises(StoreNotFoundError):
        verify(open_object_store(f"{url}x"))
    with pytest.raises(InvalidInputError, match="expected 'all', 'sample' or 'none'"):
        verify(store.object_store, pages="some")
    with pytest.raises(InvalidInputError, match="fraction"):
        verify(store.object_store, fraction=2)


def test_a_checkpoint_that_was_overtaken_is_needed_by_nobody(rich: Store) -> None:
    head = rich.snapshot().log
    stray = write_checkpoint(rich.object_store, head.state, head.checkpoint, "f" * 32).ref
    rich.object_store.delete(stray.location.key)

    assert verify(rich.object_store).ok
    assert Checkpoint(head.state.base, TreeReader(rich.object_store)).ref == head.state.base


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_a_store_is_ok_after_a_vacuum_and_what_is_kept_is_still_checked(rich: Store, keep: int) -> None:
    rich.vacuum(retention=keep)

    found = verify(rich.object_store, pages="all")
    paths = told_paths(rich, "u")
    for path in paths:
        rich.object_store.delete(path)
    damaged = verify(rich.object_store, pages="none")

    assert found.damage == ()
    assert found.pages_read >= rich.snapshot().table("u").pages().num_rows
    assert paths <= {fault.key for fault in damaged.damage}


def test_a_vacuumed_store_whose_oldest_checkpoint_is_damaged_is_not_ok(rich: Store) -> None:
    rich.vacuum(retention=2)
    kept = Store(rich.object_store).snapshot().log.state.retention.checkpoint
    flip(rich.object_store, kept.location.key)

    found = verify(rich.object_store, pages="none")

    assert kept.location.key in {fault.key for fault in found.damage}


def test_a_store_that_is_written_to_meanwhile_is_ok(url: str) -> None:
    store = store_with(pa.table({"n": [1]}))
    stop = Event()

    def write() -> None:
        for number in range(200):
            with store.transaction() as txn:
                txn.append("t", pa.table({"n": [number]}))
            if number % 3 == 0:
                store.checkpoint()
            if stop.is_set():
                return

    writer = Thread(target=write)
    writer.start()
    found = [verify(store.object_store, pages="none") for _ in range(3)]
    stop.set()
    writer.join()

    assert [each.damage for each in found] == [()] * 3
    assert found[0].version < found[-1].version


def test_groups_tags_and_restores_are_ok(url: str) -> None:
    store = rich_store(url)
    store.tag("first", version=2)
    store.restore(version=3)
    store.compact_pages("t")
    store.checkpoint()

    found = verify(store.object_store, pages="all")

    assert found.faults == ()
    assert found.replayed == found.checkpoints


def test_commits_that_do_not_fit_on_the_chain_are_told() -> None:
    store = store_with(pa.table({"n": [1, 2]}))
    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [5]})
    last = slot(store.object_store, 3)
    (record,) = last.records
    (splice,) = record.splices
    wrong = replace(splice, removed=(splice.removed[0] + 1,))
    forge(store.object_store, replace(last, records=(replace(record, splices=(wrong,)),)))

    found = verify(store.object_store)

    assert "do not fit on t.n" in told(found)


def test_pages_of_another_type_or_with_nulls_that_must_not_be_are_told() -> None:
    store = store_with(pa.table({"n": [1, None]}))
    created = slot(store.object_store, 1)
    (record,) = created.records
    (intent,) = record.intents
    for field, says in (
        (pa.field("n", pa.int64(), nullable=False), "holds nulls in a column that is not nullable"),
        (pa.field("n", pa.int32()), "holds values of type int64 in a column of type int32"),
    ):
        schema = pa.schema([field.with_metadata(intent.definition.schema.field("n").metadata)])
        other = replace(intent, definition=replace(intent.definition, schema=schema))
        forge(store.object_store, replace(created, records=(replace(record, intents=(other,)),)))

        assert says in told(verify(store.object_store))


def test_a_page_manifest_is_read_once_however_many_splices_take_pages_from_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 100)
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]), properties={"page_bytes": "1024"})
        txn.append("t", {"n": np.arange(160_000)})
    for start in (0, 300, 600):
        with store.transaction() as txn:
            rows = np.arange(start, 160_000, 1000)
            txn.update_rows("t", rows, {"n": rows})
    store.checkpoint()
    named = [ref for commit in store._log.commits(1, 5) for each in commit.records for ref in each.manifests]
    read = []
    decode = comparisons.decode_manifest
    monkeypatch.setattr(
        comparisons, "decode_manifest", lambda data, key: read.append(key) or decode(data, key)
    )

    assert store.verify().ok

    assert len(named) == 4
    assert sorted(read) == sorted(ref.location.key for ref in named)


def test_pages_between_the_oldest_checkpoint_and_the_oldest_version_are_checked(url: str) -> None:
    store = store_with(pa.table({"n": [1]}))
    kept = store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": np.random.default_rng(1).integers(0, 1 << 60, 40_000)}))
    oldest = store.snapshot().version
    head = store.snapshot().log
    retention = Retention(oldest, oldest, kept)
    record = TransactionRecord("ab" * 16, "retain", oldest, "test", retention=retention)
    store._log.commit(head, lambda _: record)
    path = store.snapshot().table("t").pages().column("path")[-1].as_py()

    whole = verify(store.object_store, pages="all")
    store.object_store.delete(path)
    damaged = verify(store.object_store, pages="none")

    assert whole.damage == ()
    assert [fault.key for fault in damaged.damage] == [path]
