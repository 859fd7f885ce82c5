"""Erased rows are gone: from every object, as soon as nothing keeps it, and the report says what does."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, InvalidInputError, TableNotFoundError
from spark_pages.io import CacheConfig
from spark_pages.maintenance.erase.report import ErasureReport
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.storage import open_object_store
from spark_pages.store import Store
from spark_pages.transaction import placement
from tests.maintenance.erase.secrets import places_of
from tests.maintenance.vacuum.stores import Clock, opened

SECRET = "q9Zx7secret"
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("l", pa.list_(pa.string())),
        ("b", pa.large_binary()),
    ]
)
ROWS = 12_000
HIDDEN = range(4_000, 5_000)
WHERE = f"s >= '{SECRET}' and s < '{SECRET}~'"


def rows(first: int, count: int, hidden: range = range(0)) -> pa.Table:
    """Rows whose text is a secret where the number is a hidden one."""
    numbers = range(first, first + count)
    texts = [f"{SECRET if each in hidden else 'plain'}{each:06d}" for each in numbers]
    columns = (numbers, texts, texts, [[each] for each in texts], [each.encode() for each in texts])
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA)


def planted(store: Store) -> Store:
    """A secret in page files, tails, checkpoints, compacted ranges, bloom filters and dropped columns."""
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"bloom.s": "true"})
        txn.append("t", rows(0, ROWS, HIDDEN))
        txn.create_table("u", pa.schema([("x", pa.int64())]))
        txn.append("u", {"x": np.arange(20_000)})
    with store.transaction() as txn:
        txn.add_column("t", pa.field("gone", pa.string()))
        txn.add_column("t", pa.field("was", pa.string()))
    with store.transaction() as txn:
        secrets = [f"{SECRET}{row}" for row in HIDDEN]
        txn.update_rows("t", list(HIDDEN), {"gone": secrets})
        txn.update_rows("t", list(HIDDEN), {"was": secrets})
    with store.transaction() as txn:
        txn.drop_column("t", "gone")
        txn.update_rows("t", list(HIDDEN), {"was": [None] * len(HIDDEN)})
    store.checkpoint()
    for number in range(18):
        with store.transaction() as txn:
            first = ROWS + 3 * number
            txn.append("t", rows(first, 3, range(first, first + 1)))
    store.checkpoint()
    store.compact_log()
    return store


def few(clock: Clock | None = None) -> Store:
    store = opened(open_object_store(f"memory://{uuid4().hex}"), clock)
    created = sp.create(store.url)
    with created.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", rows(0, 100, range(10)))
    return store


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time_ns() // 1_000)


def test_a_secret_of_a_thousand_rows_is_in_no_byte_after_the_stated_time(clock: Clock):
    url = f"memory://{uuid4().hex}"
    sp.create(url)
    store = planted(opened(open_object_store(url), clock))
    before = store.snapshot().table("t").read(filter=f"not ({WHERE})").to_pylist()
    assert len(places_of(SECRET.encode(), store.object_store)) > 20

    report = store.erase("t", where=WHERE).execute()
    assert report.num_rows == 1_018
    assert not report.done
    assert report.next_at is not None
    clock.now_us = int(report.next_at.timestamp() * 1_000_000) + 1
    left = store.resume_erase(ErasureReport.from_json(report.to_json())).execute()

    assert left.done, left
    assert places_of(SECRET.encode(), store.object_store) == set()
    assert store.verify("all", erased=left).ok
    assert store.snapshot().table("t").read().to_pylist() == before
    assert store.snapshot().table("u").num_rows == 20_000


def test_the_plan_lists_every_object_in_which_the_secret_is(clock: Clock):
    url = f"memory://{uuid4().hex}"
    sp.create(url)
    store = planted(opened(open_object_store(url), clock))

    plan = store.erase("t", where=WHERE)

    assert places_of(SECRET.encode(), store.object_store) <= {each.key for each in plan.objects}
    assert plan.row_numbers.tolist() == store.snapshot().table("t").row_numbers(WHERE).tolist()
    assert plan.versions == (1, store.version)


def test_an_erase_without_retention_leaves_nothing():
    store = few()

    report = store.erase("t", where=WHERE, retention=1).execute()

    assert report.done
    assert places_of(SECRET.encode(), store.object_store) == set()
    assert store.verify("all", erased=report).ok


def test_a_plan_changes_nothing():
    store = few()
    keys = {info.key for info in store.object_store.list("")}

    plan = store.erase("t", where=WHERE)

    assert (plan.num_rows, plan.table) == (10, "t")
    assert {info.key for info in store.object_store.list("")} == keys


def test_a_tag_keeps_what_it_names_and_the_report_says_so():
    store = few()
    store.tag("kept")
    assert store.erase("t", where=WHERE).tags == ("kept",)

    report = store.erase("t", where=WHERE, retention=1).execute()

    assert {each.kept_by for each in report.kept} == {"tag 'kept' (version 1): delete it with `delete_tag`"}
    assert report.next_at is None
    assert store.snapshot(tag="kept").table("t").num_rows == 100
    store.delete_tag("kept")
    assert store.resume_erase(report, retention=1).execute().done


def test_a_lease_keeps_what_it_names_until_it_ends(clock: Clock):
    store = few(clock)
    with store.snapshot().lease(timedelta(hours=1)):
        plan = store.erase("t", where=WHERE, retention=1)
        report = plan.execute()

    ends = datetime.fromtimestamp(clock.now_us / 1_000_000, UTC) + timedelta(hours=1)
    assert len(plan.leases) == 1
    assert {each.kept_by for each in report.kept} == {"a lease"}
    assert report.next_at is not None
    assert abs(report.next_at - ends) < timedelta(seconds=1)


def test_a_number_of_versions_keeps_them():
    store = few()
    report = store.erase("t", where=WHERE, retention=5).execute()

    assert {each.kept_by for each in report.kept} == {"retention of 5 versions"}


def test_the_text_of_the_condition_is_in_no_commit():
    store = few()
    store.erase("t", where=f"s = '{SECRET}000003' and n < 987654").execute()

    assert places_of(b"987654", store.object_store) == set()


def test_a_commit_whose_parameters_may_tell_of_the_rows_is_a_holder():
    store = few()
    with store.transaction(parameters={"where": f"{SECRET}000003"}) as txn:
        txn.delete("t", [3])
    told = store.version

    plan = store.erase("t", rows=[3])

    assert f"_log/{told:020d}.avro" in {each.key for each in plan.objects}


def test_rows_that_are_deleted_already_are_erased_by_number():
    store = few()
    with store.transaction() as txn:
        txn.delete("t", where=WHERE)

    report = store.erase("t", rows=range(10), retention=1).execute()

    assert report.done
    assert places_of(SECRET.encode(), store.object_store) == set()


def test_an_erase_conflicts_with_an_update_of_its_rows():
    store = few()
    plan = store.erase("t", where=WHERE)
    with store.transaction() as txn:
        txn.update_rows("t", [3], {"s": ["other"]})

    with pytest.raises(CommitConflictError, match="changed rows"):
        plan.execute()
    assert store.snapshot().table("t").num_rows == 100


def test_a_restore_that_brings_rows_back_is_told_by_the_proof():
    store = few()
    report = store.erase("t", where=WHERE).execute()
    store.restore(version=1)

    found = store.verify("none", erased=report)

    assert FaultKind.ERASED in {fault.kind for fault in found.faults}
    assert store.erase("t", where=WHERE).num_rows == 10


def test_an_object_that_is_put_back_is_told_by_the_proof():
    store = few()
    key = store.erase("t", where=WHERE).objects[0].key
    data = store.object_store.get(key)
    report = store.erase("t", where=WHERE, retention=1).execute()
    assert store.verify("none", erased=report).ok
    store.object_store.delete(key)
    store.object_store.put(key, data)

    found = store.verify("none", erased=report)

    assert key in {fault.key for fault in found.faults if fault.kind is FaultKind.ERASED}


def test_the_disk_cache_of_the_store_is_emptied(tmp_path: Path):
    url = few().url
    cache = CacheConfig(disk_path=str(tmp_path / "cache"), disk_bytes=64 << 20)
    store = sp.open(url, cache=cache)
    with store.transaction() as txn:
        txn.append("t", rows(100, ROWS, HIDDEN))
    store.snapshot().table("t").take([4_000])
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))

    store.erase("t", where=WHERE).execute()

    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_orphans_with_the_secret_go_too():
    store = few()
    report = store.erase("t", where=WHERE).execute()
    secret = store.object_store.get("_log/00000000000000000001.avro")
    orphan = f"pages/{1:020d}-{'0' * 32}-0.pages"
    store.object_store.put(orphan, secret)
    assert orphan in {f.key for f in store.verify("none", erased=report).faults if f.kind is FaultKind.ERASED}

    left = store.resume_erase(report, retention=1).execute()

    assert store.verify("none", erased=left).ok


def test_a_report_can_be_read_back():
    report = few().erase("t", where=WHERE).execute()

    assert ErasureReport.from_json(report.to_json()) == report
    assert report.objects_table().num_rows == len(report.objects)


def test_a_report_of_another_store_is_refused():
    report = few().erase("t", where=WHERE).execute()
    with pytest.raises(InvalidInputError, match="it is of another store"):
        few().resume_erase(report)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"rows": 1}'])
def test_text_that_is_no_report_is_refused(text: str):
    with pytest.raises(InvalidInputError, match="Cannot read the report of an erase"):
        ErasureReport.from_json(text)


@pytest.mark.parametrize("given", [{}, {"rows": [1], "where": "n = 1"}, {"where": False}])
def test_rows_or_a_condition_are_needed(given: dict):
    with pytest.raises(InvalidInputError, match="give rows or where"):
        few().erase("t", **given)


def test_the_proof_finds_rows_of_a_table_that_was_dropped_since():
    store = few()
    report = store.erase("t", where=WHERE).execute()
    with store.transaction() as txn:
        txn.drop_table("t")

    assert not store.verify("none", erased=report).ok
    with pytest.raises(TableNotFoundError, match="Cannot erase rows of table 't': it was dropped"):
        store.resume_erase(report)


def test_page_manifests_with_the_secret_go_too(monkeypatch: pytest.MonkeyPatch):
    store = few()
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 2)
    with store.transaction() as txn:
        txn.append("t", rows(100, ROWS, HIDDEN))
    monkeypatch.undo()

    plan = store.erase("t", where=WHERE, retention=1)

    assert places_of(SECRET.encode(), store.object_store) <= {each.key for each in plan.objects}
    assert "manifest" in {each.kind for each in plan.objects}
    assert plan.execute().done
    assert places_of(SECRET.encode(), store.object_store) == set()


def test_a_registered_page_file_is_kept_by_its_writer():
    store = few()
    with store.transaction() as txn:
        txn.append("t", rows(100, ROWS, HIDDEN))
    table = store.snapshot().table("t")
    path = table.directory.chain("s").latest().disk_path
    foreign = "imports/by-another.pages"
    store.object_store.put(foreign, store.object_store.get(path))
    register_copies(store, table, foreign)

    report = store.erase("u", where=WHERE, retention=1).execute()

    assert {(each.key, each.kept_by) for each in report.kept} == {
        (foreign, "its writer registered it, and vacuum deletes no such file")
    }


def register_copies(store: Store, table: sp.Table, path: str) -> None:
    """Register the pages of a table that lie in page files under another key, as table ``u``."""
    with store.transaction() as txn:
        txn.create_table("u", SCHEMA)
        directory = txn.directory("u")
        for column in SCHEMA.names:
            for page in filter(lambda page: page.disk_path, table.directory.chain(column).pages):
                directory.register_page(column, path, page.offset)
