"""Restore: a new commit that brings back rows, tables and properties of an earlier version."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    CommitConflictError,
    InvalidInputError,
    SnapshotExpiredError,
    VersionNotFoundError,
)
from spark_pages.model.actions import IntentKind
from spark_pages.model.chain_tree import ChainLayout
from spark_pages.model.page import PageKind
from spark_pages.storage.instrumented import RequestCounts
from spark_pages.store import Store
from spark_pages.transaction import placement
from spark_pages.versions import restore as restore_module
from spark_pages.versions import restore_plan
from tests.invariants import check_snapshot, check_store
from tests.transaction.stores import QUIET, metered, store_with
from tests.versions import hand
from tests.versions.hand import numbers


@pytest.fixture
def ten() -> Store:
    """Table ``t`` has rows 0 to 9 at version 2."""
    return store_with(numbers(0, 10))


def rows_of(store: Store, version: int | None = None, table: str = "t") -> list[dict[str, object]]:
    return store.snapshot(version=version).table(table).read().to_pylist()


def test_rows_are_what_they_were_and_the_history_stays(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [3], {"n": [333]})
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    version = ten.restore(version=2)

    assert version == 5
    assert rows_of(ten) == rows_of(ten, 2) == numbers(0, 10).to_pylist()
    assert len(rows_of(ten, 4)) == 20
    check_store(ten)


def test_a_restore_can_be_restored(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))
    ten.restore(version=2)

    ten.restore(version=3)

    assert rows_of(ten) == numbers(0, 20).to_pylist()
    check_store(ten)


@pytest.mark.parametrize("given", ["version", "timestamp", "tag"])
def test_a_version_is_named_by_number_time_or_tag_and_the_history_says_how(ten, given):
    ten.tag("good", version=2)
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))
    named = {"version": 2, "timestamp": ten.snapshot(version=2).timestamp, "tag": "good"}

    ten.restore(**{given: named[given]})

    assert rows_of(ten) == rows_of(ten, 2)
    (newest,) = ten.history(limit=1).to_pylist()
    assert newest["operation"] == "restore"
    assert dict(newest["parameters"]) == {"version": "2", given: str(named[given])}


@pytest.mark.parametrize("given", [{}, {"version": 2, "tag": "x"}])
def test_exactly_one_way_to_name_the_version_is_wanted(ten, given):
    with pytest.raises(InvalidInputError, match="exactly one of version, timestamp and tag"):
        ten.restore(**given)


def test_a_version_that_never_was_is_refused(ten):
    with pytest.raises(VersionNotFoundError, match=r"version 3\b.*versions 0 to 2"):
        ten.restore(version=3)


def test_where_nothing_differs_nothing_is_committed(ten):
    ten.compact_pages("t")
    ten.tag("x", version=1)
    head = ten.snapshot().version

    assert ten.restore(version=2) == head
    assert ten.restore(version=head) == head
    assert ten.snapshot().version == head


def test_tables_created_since_go_and_tables_dropped_since_come_back(ten):
    with ten.transaction() as txn:
        txn.create_table("later", numbers(0, 1).schema)
        txn.append("later", numbers(0, 3))
    hand.drop(ten, "t")

    version = ten.restore(version=2)

    assert ten.snapshot().tables() == ["t"]
    assert rows_of(ten) == numbers(0, 10).to_pylist()
    (commit,) = ten._log.commits(version, version + 1)
    assert [intent.kind for intent in commit.records[0].intents] == [IntentKind.DROP, IntentKind.UNDROP]
    check_store(ten)
    check_store(Store(ten.object_store))


def test_a_table_that_changed_before_it_was_dropped_comes_back_as_it_was(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [0], {"s": ["changed"]})
    hand.drop(ten, "t")
    ten.checkpoint()

    ten.restore(version=2)

    assert rows_of(ten) == numbers(0, 10).to_pylist()
    check_store(ten)


def test_tables_that_changed_names_with_each_other_change_them_back(ten):
    with ten.transaction() as txn:
        txn.create_table("u", pa.schema([("x", pa.int64())]))
    hand.rename(ten, {"t": "u", "u": "t"})
    assert ten.snapshot().table("u").num_rows == 10

    ten.restore(version=3)

    assert ten.snapshot().tables() == ["t", "u"]
    assert rows_of(ten) == numbers(0, 10).to_pylist()
    check_store(ten)


def test_a_name_that_another_table_has_taken_is_given_back(ten):
    hand.rename(ten, {"t": "old"})
    with ten.transaction() as txn:
        txn.create_table("t", pa.schema([("x", pa.int64())]))

    ten.restore(version=2)

    assert ten.snapshot().tables() == ["t"]
    assert rows_of(ten) == numbers(0, 10).to_pylist()
    check_store(ten)


def test_columns_go_back_but_field_ids_are_never_used_again(ten):
    added = hand.fields(n=pa.int64(), s=pa.string(), extra=pa.int32())
    hand.set_schema(ten, "t", added, next_field_id=4)

    ten.restore(version=2)

    definition = hand.definition(ten, "t")
    assert definition.bare_schema.names == ["n", "s"]
    assert definition.next_field_id == 4
    check_store(ten)


def test_a_column_that_was_dropped_comes_back_with_its_rows(ten):
    only_n = hand.fields(n=pa.int64())
    hand.set_schema(ten, "t", only_n, next_field_id=3)
    with ten.transaction() as txn:
        txn.append("t", pa.table({"n": [10, 11]}))
    ten.checkpoint()

    ten.restore(version=2)

    assert rows_of(ten) == numbers(0, 10).to_pylist()
    check_store(ten)


def test_a_truncated_table_is_filled_again(ten):
    hand.truncate(ten, "t")
    with ten.transaction() as txn:
        txn.append("t", numbers(50, 53))

    ten.restore(version=2)

    assert rows_of(ten) == numbers(0, 10).to_pylist()
    check_store(ten)


def test_a_purged_table_does_not_come_back(ten):
    hand.truncate(ten, "t", purge=True)

    with pytest.raises(InvalidInputError, match=r"version 2: table 't' was purged in version 3"):
        ten.restore(version=2)


def test_properties_are_what_they_were_those_set_since_are_gone(ten):
    with ten.transaction() as txn:
        txn.set_properties({"kept": "1", "changed": "old"})
    with ten.transaction() as txn:
        txn.set_properties({"changed": "new", "added": "x"})
    ten.checkpoint()

    ten.restore(version=3)

    wanted = dict(ten.snapshot(version=3).log.state.properties)
    assert wanted == wanted | {"kept": "1", "changed": "old"}
    assert "added" not in wanted
    assert dict(ten.snapshot().log.state.properties) == wanted
    assert dict(Store(ten.object_store).snapshot().log.state.properties) == wanted
    check_store(ten)


def test_what_applications_have_landed_and_tags_stay_as_they_are(ten):
    with ten.transaction(app_id="job", app_version=7) as txn:
        txn.append("t", numbers(10, 20))
    ten.tag("x", version=3)

    ten.restore(version=2)

    assert ten.tags() == {"x": 3}
    with ten.transaction(app_id="job", app_version=7) as txn:
        txn.append("t", numbers(10, 20))
    assert txn.version == 3
    assert rows_of(ten) == numbers(0, 10).to_pylist()


def test_compacted_pages_stay_compacted_where_no_row_changed():
    store = store_with(*(numbers(i, i + 1) for i in range(12)))
    version = store.snapshot().version
    store.compact_pages("t")
    compacted = store.snapshot().table("t").pages()
    with store.transaction() as txn:
        txn.append("t", numbers(12, 20))

    store.restore(version=version)

    assert store.snapshot().table("t").pages().equals(compacted)
    assert rows_of(store) == numbers(0, 12).to_pylist()


def test_only_what_differs_is_described_anew():
    store = store_with(numbers(0, 200_000))
    pages = store.snapshot().table("t").pages("n")
    with store.transaction() as txn:
        txn.update_rows("t", [100_000], {"n": [0]})

    version = store.restore(version=2)

    (commit,) = store._log.commits(version, version + 1)
    (splice,) = commit.records[0].splices
    assert splice.touched == ((100_000, 100_001),)
    assert (len(splice.removed), commit.records[0].pages.num_rows) == (1, 1)
    restored = store.snapshot().table("t").pages("n")
    location = ["path", "offset", "checksum", "entry_count"]
    assert restored.select(location).equals(pages.select(location))
    moved = np.flatnonzero(restored.column("page_id").to_numpy() != pages.column("page_id").to_numpy())
    assert len(moved) == 1


def test_a_restore_of_an_update_costs_the_same_however_long_the_chain_is(small_trees):
    small_trees(pages=8, segments=4)
    costs = [cost_of_undoing_one_update(numbers(0, rows)) for rows in (40_000, 400_000)]

    assert not [key for cost in costs for key in cost.keys if key.startswith("pages/")]
    assert costs[0].requests == costs[1].requests
    assert costs[1].bytes_read < 1.2 * costs[0].bytes_read
    assert costs[1].bytes_written == costs[0].bytes_written


def cost_of_undoing_one_update(rows: pa.Table) -> RequestCounts:
    store = store_with(rows)
    store.checkpoint()
    with store.transaction() as txn:
        txn.update_rows("t", [30_000], {"n": [0]})
    late, meter = metered(store)
    late.snapshot()
    before = meter.counts

    late.restore(version=2)

    assert store.snapshot().table("t").take([30_000]).to_pylist() == rows.slice(30_000, 1).to_pylist()
    return meter.counts - before


def test_what_undoes_many_updates_is_planned_together(monkeypatch):
    """Scattered updates are a splice each; compared and looked up each alone they cost their square."""
    layouts, compared = [], []
    of, alike = ChainLayout.of, restore_plan._equal_pages
    monkeypatch.setattr(ChainLayout, "of", lambda pieces: layouts.append(len(pieces)) or of(pieces))
    monkeypatch.setattr(restore_plan, "_equal_pages", lambda *runs: compared.append(1) or alike(*runs))
    work = []
    for n in (160, 320):
        store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
        with store.transaction() as txn:
            txn.create_table("t", numbers(0, 1).schema, properties={"page_bytes": "1024"})
        with store.transaction() as txn:
            txn.append("t", numbers(0, 1000 * n))
        rows = np.arange(0, 1000 * n, 1000)
        with store.transaction() as txn:
            txn.update_rows("t", rows, {"n": rows + 1})
        late = Store(store.object_store)
        layouts.clear()
        compared.clear()

        late.restore(version=2)

        work.append((len(layouts), len(compared)))
        assert late.snapshot().table("t").take(rows, columns=["n"]).column("n").to_pylist() == rows.tolist()
        check_store(Store(store.object_store))
    assert work[0] == work[1]


def test_many_pages_go_through_a_manifest(monkeypatch):
    monkeypatch.setattr(restore_module, "MANIFEST_PAGES", 3)
    store = store_with(numbers(0, 100_000))
    hand.truncate(store, "t")

    version = store.restore(version=2)

    (commit,) = store._log.commits(version, version + 1)
    record = commit.records[0]
    assert record.pages.num_rows == 0
    assert record.manifests[0].num_pages > 3
    assert record.manifests[0].location.key.startswith(f"_log/manifests/{record.read_version:020d}-")
    assert rows_of(store) == numbers(0, 100_000).to_pylist()
    check_store(Store(store.object_store))


def test_inline_pages_that_are_too_many_for_a_commit_get_a_page_file(monkeypatch):
    monkeypatch.setattr(restore_module, "INLINE_TRANSACTION_BYTES", 1000)
    store = store_with(*(numbers(i, i + 1) for i in range(20)))
    hand.truncate(store, "t")

    version = store.restore(version=21)

    (commit,) = store._log.commits(version, version + 1)
    kinds = set(commit.records[0].pages.column("kind").to_pylist())
    assert kinds == {int(PageKind.FILE)}
    assert rows_of(store) == numbers(0, 20).to_pylist()
    check_store(Store(store.object_store))


def test_more_pages_than_a_commit_can_name_are_refused_before_anything_is_written(ten, monkeypatch):
    monkeypatch.setattr(restore_module, "MAX_REMOVED_PAGES", 1)
    with ten.transaction() as txn:
        txn.update_rows("t", [0], {"n": [1]})
        txn.update_rows("t", [0], {"s": ["x"]})
    late, meter = metered(ten)

    with pytest.raises(InvalidInputError, match=r"version 2 .*: 2 pages would be removed, and at most 1 can"):
        late.restore(version=2)
    assert meter.counts.bytes_written == 0


def test_constants_come_back_as_constants():
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    store = sp.create(f"memory://{uuid4().hex}")
    with store.transaction() as txn:
        txn.create_table("t", schema)
        txn.append("t", pa.table({"n": [1, 2, 3]}))
    hand.truncate(store, "t")

    store.restore(version=1)

    assert rows_of(store) == [{"n": 1, "s": None}, {"n": 2, "s": None}, {"n": 3, "s": None}]
    assert store.snapshot().table("t").pages("s").column("kind").to_pylist() == ["constant"]


def test_commits_that_land_while_it_is_planned_are_undone_too(ten, monkeypatch):
    other = Store(ten.object_store)
    landing = iter(range(3))

    def plan(*given):
        for step in landing:
            with other.transaction() as txn:
                txn.append("t", numbers(100 + step, 101 + step))
            break
        return planned(*given)

    planned = restore_module.plan_restore
    monkeypatch.setattr(restore_module, "plan_restore", plan)
    with ten.transaction() as txn:
        txn.update_rows("t", [0], {"n": [99]})

    version = ten.restore(version=2)

    assert version == 7
    assert rows_of(ten) == numbers(0, 10).to_pylist()
    assert len(rows_of(ten, 6)) == 13
    check_store(ten)


def test_commits_that_change_no_rows_do_not_hold_it_up(ten, monkeypatch):
    other = Store(ten.object_store)
    plans = []

    def plan(*given):
        plans.append(1)
        other.tag(f"t{len(plans)}")
        return planned(*given)

    planned = restore_module.plan_restore
    monkeypatch.setattr(restore_module, "plan_restore", plan)
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    ten.restore(version=2)

    assert len(plans) == 1
    assert rows_of(ten) == numbers(0, 10).to_pylist()


def test_it_is_planned_again_where_retention_moves_though_the_version_is_kept(ten, monkeypatch):
    other = Store(ten.object_store)
    plans = []

    def plan(*given):
        plans.append(1)
        if len(plans) == 1:
            hand.retain(other, 2)
        return planned(*given)

    planned = restore_module.plan_restore
    monkeypatch.setattr(restore_module, "plan_restore", plan)
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    ten.restore(version=2)

    assert len(plans) == 2
    assert rows_of(ten) == numbers(0, 10).to_pylist()


def test_others_that_are_always_quicker_end_it_with_an_error(ten, monkeypatch):
    other = Store(ten.object_store)
    count = iter(range(1000))

    def plan(*given):
        with other.transaction() as txn:
            txn.append("t", numbers(100, 101 + next(count)))
        return planned(*given)

    planned = restore_module.plan_restore
    monkeypatch.setattr(restore_module, "plan_restore", plan)
    monkeypatch.setattr(restore_module, "_PATIENCE_S", 0.2)
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    with pytest.raises(
        CommitConflictError, match=r"restore version 2: others committed more quickly.*Nothing"
    ):
        ten.restore(version=2)
    assert "restore" not in ten.history().column("operation").to_pylist()


def test_retention_that_passes_the_version_meanwhile_refuses_it(ten, monkeypatch):
    other = Store(ten.object_store)

    def plan(*given):
        hand.retain(other, 3)
        return planned(*given)

    planned = restore_module.plan_restore
    monkeypatch.setattr(restore_module, "plan_restore", plan)
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    with pytest.raises(SnapshotExpiredError, match=r"version 2\b.*versions 3 to 4"):
        ten.restore(version=2)
    assert len(rows_of(ten)) == 20


@pytest.mark.parametrize("inline_bytes", [0, 1 << 16])
def test_vacuum_keeps_what_a_restore_has_brought_back(monkeypatch, inline_bytes):
    monkeypatch.setattr(restore_module, "INLINE_TRANSACTION_BYTES", inline_bytes)
    store = store_with(numbers(0, 30_000), numbers(30_000, 30_010))
    hand.truncate(store, "t")
    store.checkpoint()
    store.restore(version=3)
    store.checkpoint()

    store.vacuum(retention=1)

    late = Store(store.object_store)
    assert rows_of(late) == numbers(0, 30_010).to_pylist()
    with pytest.raises(SnapshotExpiredError):
        late.snapshot(version=3)
    check_snapshot(late.snapshot().log)


def test_what_a_tag_kept_through_a_vacuum_can_be_restored(ten):
    ten.tag("good", version=2)
    for step in range(5):
        with ten.transaction() as txn:
            txn.update_rows("t", [step], {"n": [0]})
        ten.checkpoint()
    ten.vacuum(retention=1)

    ten.restore(tag="good")

    assert rows_of(Store(ten.object_store)) == numbers(0, 10).to_pylist()


def test_a_list_of_pages_that_another_writer_left_is_read_where_a_restore_needs_it(monkeypatch):
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 2)
    store = store_with(numbers(0, 50_000), numbers(50_000, 50_010))
    with store.transaction() as txn:
        txn.update_rows("t", [40_000], {"n": [0]})

    store.restore(version=3)

    assert rows_of(store) == numbers(0, 50_010).to_pylist()
    check_store(Store(store.object_store))
