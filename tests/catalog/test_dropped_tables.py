"""Dropped tables: they come back until retention has passed the drop; then vacuum frees their pages."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import TableNotFoundError
from spark_pages.io import PageHandler
from spark_pages.maintenance import purge
from spark_pages.model.actions import IntentKind
from spark_pages.store import Store
from tests.invariants import check_nothing_needed_is_gone, check_table_zero, check_versions_stay, rows_of
from tests.transaction.stores import QUIET

NOISE = np.random.default_rng(0).integers(0, 1 << 62, 30_000)
SCHEMA = pa.schema([("n", pa.int64()), ("m", pa.int64())])


@pytest.fixture
def dropped(url: str) -> Store:
    """Version 1 makes two tables, version 2 drops a column of one of them, and version 3 that table."""
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        for name in ("gone", "kept"):
            txn.create_table(name, SCHEMA)
            txn.append(name, {"n": NOISE, "m": NOISE})
    with store.transaction() as txn:
        txn.drop_column("gone", "m")
    with store.transaction() as txn:
        txn.drop_table("gone")
    return store


def files(store: Store) -> int:
    return sum(info.size_bytes > 300_000 for info in store.object_store.list("pages/"))


def test_vacuum_keeps_a_dropped_table_that_a_kept_version_has(dropped):
    dropped.vacuum(retention=2)

    with dropped.transaction() as txn:
        txn.undrop_table("gone")

    assert dropped.snapshot().table("gone").num_rows == len(NOISE)
    assert files(dropped) == 2


def test_once_no_version_has_it_vacuum_frees_its_pages_and_those_of_columns_dropped_before(dropped):
    kept = rows_of(dropped)

    result = dropped.vacuum(retention=1)

    assert files(dropped) == 1
    assert result.size_bytes > 2 * NOISE.nbytes * 0.9
    with pytest.raises(TableNotFoundError, match="that can come back"):
        dropped.transaction().undrop_table("gone")
    assert rows_of(dropped) == rows_of(Store(dropped.object_store)) == kept
    check_table_zero(dropped)
    check_nothing_needed_is_gone(dropped.object_store)
    assert dropped.verify(pages="all").ok
    assert dropped.vacuum(retention=1).version is None


def test_a_table_that_has_the_name_of_a_purged_one_stays_for_those_who_know_both(dropped):
    with dropped.transaction() as txn:
        txn.create_table("gone", SCHEMA)  # version 4
    ref = Store(dropped.object_store).checkpoint()
    for number in range(2):
        with dropped.transaction() as txn:
            txn.append("kept", {"n": [number], "m": [number]})
    other = Store(dropped.object_store)
    other.vacuum_plan(retention=2).execute()
    purge.purge_dropped(other._log, other._runtime, PageHandler(other.object_store))

    dropped.snapshot()
    dropped._log._newest.rebase_on_checkpoint(ref)
    dropped.checkpoint()

    assert dropped.snapshot().tables() == Store(dropped.object_store).snapshot().tables() == ["gone", "kept"]


def test_where_more_versions_are_kept_its_pages_go_with_them(dropped):
    history = {}
    for number in range(8):
        with dropped.transaction() as txn:
            txn.append("kept", {"n": [number], "m": [number]})
        dropped.vacuum(retention=2)
        history[dropped.snapshot().version] = rows_of(dropped)
        check_nothing_needed_is_gone(dropped.object_store)

    assert files(dropped) == 1
    operations = dropped.history()["operation"].to_pylist()
    assert operations.count("purge") <= 1
    check_versions_stay(dropped.object_store, history)


@pytest.mark.parametrize("hold", ["tag", "lease"])
def test_a_version_that_somebody_holds_keeps_the_table(dropped, hold):
    if hold == "tag":
        dropped.tag("before", 2)
    else:
        dropped.snapshot(version=2).lease(timedelta(hours=1))
    dropped.vacuum(retention=1)

    with dropped.transaction() as txn:
        txn.undrop_table("gone")

    assert dropped.snapshot().table("gone").read()["n"].to_numpy().sum() == NOISE.sum()


def test_a_table_that_comes_back_while_vacuum_looks_stays(dropped, monkeypatch):
    other = Store(dropped.object_store)
    seen = purge.unreferenced_drops

    def then_undropped(zero, oldest):
        found = seen(zero, oldest)
        with other.transaction() as txn:
            txn.undrop_table("gone")
        return found

    monkeypatch.setattr(purge, "unreferenced_drops", then_undropped)
    dropped.vacuum(retention=1)

    assert dropped.snapshot().table("gone").num_rows == len(NOISE)
    check_table_zero(dropped)


def test_an_undrop_that_is_overtaken_by_vacuum_is_a_conflict_or_finds_nothing(dropped):
    late = Store(dropped.object_store).transaction()
    late.undrop_table("gone")
    dropped.vacuum(retention=1)

    with pytest.raises(sp.SparkPagesError):
        late.commit()
    assert dropped.snapshot().tables() == ["kept"]


def test_a_table_dropped_under_a_name_that_is_used_again_goes_and_its_namesake_stays(dropped):
    with dropped.transaction() as txn:
        txn.create_table("gone", SCHEMA)
        txn.append("gone", {"n": [1], "m": [2]})

    dropped.vacuum(retention=1)

    assert files(dropped) == 1
    assert dropped.snapshot().table("gone").num_rows == 1
    check_table_zero(dropped)


def test_a_table_comes_back_under_the_name_that_it_had_last(dropped):
    with dropped.transaction() as txn:
        txn.rename_table("kept", "renamed")
        txn.drop_column("renamed", "m")
    with dropped.transaction() as txn:
        txn.drop_table("renamed")

    with pytest.raises(
        TableNotFoundError, match="Cannot bring back table 'kept': none of that name has been dropped"
    ):
        dropped.transaction().undrop_table("kept")
    with dropped.transaction() as txn:
        txn.undrop_table("renamed")

    assert dropped.snapshot().table("renamed").schema.names == ["n"]
    assert dropped.verify(pages="all").ok


def test_its_namespace_can_keep_a_table_longer(dropped):
    with dropped.transaction() as txn:
        txn.undrop_table("gone")
        txn.create_namespace("safe", {"retention_seconds": "3600"})
        txn.rename_table("gone", "safe.gone")
    with dropped.transaction() as txn:
        txn.drop_table("safe.gone")
    dropped.vacuum(retention=1)
    with dropped.transaction() as txn:
        txn.undrop_table("safe.gone")
    assert dropped.snapshot().table("safe.gone").num_rows == len(NOISE)

    with dropped.transaction() as txn:
        txn.drop_table("safe.gone")
        txn.set_namespace_properties("safe", {"retention_seconds": "0"})
    dropped.vacuum(retention=1)

    with pytest.raises(TableNotFoundError):
        dropped.transaction().undrop_table("safe.gone")


def test_the_log_is_told_with_all_columns_that_the_table_ever_had(dropped):
    Store(dropped.object_store).vacuum_plan(retention=1).execute()

    version = purge.purge_dropped(dropped._log, dropped._runtime, PageHandler(dropped.object_store))

    (commit,) = dropped._log.commits(version, version + 1)
    (intent,) = commit.records[0].intents
    assert (intent.kind, intent.name) == (IntentKind.PURGE, "gone")
    assert sorted(intent.definition.field_ids.values()) == [1, 2]
    assert purge.purge_dropped(dropped._log, dropped._runtime, PageHandler(dropped.object_store)) is None
