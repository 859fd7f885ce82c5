"""Stores whose newest commits were made by a clock that was far ahead."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.catalog.table_zero import first_record
from spark_pages.errors import CommitError, InvalidInputError
from spark_pages.log.commit_times import MAX_TIME_US
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.store import Store
from tests.maintenance.vacuum.stores import Clock, Past, WatchedStore, new_past, opened

YEAR_S = 365 * 86_400


class Silent(WatchedStore):
    """Storage that does not tell its time."""

    def now_us(self) -> None:
        return None


def commit_ahead(past: Past, clock: Clock, years: int, times: int = 1) -> None:
    """Commit by a clock that is so far ahead, to a storage that does not notice."""
    store = opened(Silent(past.object_store), Clock(clock.now_us + years * YEAR_S * 1_000_000))
    for _ in range(times):
        append(store)


def append(store: Store) -> None:
    with store.transaction() as txn:
        txn.append("small", {"x": [1]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def past(clock: Clock) -> Past:
    return new_past(clock)


def as_of_now(store: Store, clock: Clock) -> int:
    return store.snapshot(timestamp=clock()).version


def test_a_clock_that_is_ahead_of_file_times_is_refused_and_nothing_is_committed(tmp_path: Path):
    store = sp.create(str(tmp_path / "store"))
    ahead = replace(Runtime(), now_us=lambda: time.time_ns() // 1000 + YEAR_S * 1_000_000)

    with (
        pytest.raises(CommitError, match="Cannot commit: the clock of this machine is"),
        Store(open_object_store(store.url), ahead).transaction() as txn,
    ):
        txn.create_namespace("n")

    assert sp.open(store.url).snapshot().version == 0


def test_no_store_is_created_by_a_clock_that_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + YEAR_S * 10**9)

    with pytest.raises(CommitError, match="Cannot commit: the clock of this machine is"):
        sp.create(str(tmp_path / "store"))


def test_a_store_in_memory_dates_its_commits_itself(monkeypatch: pytest.MonkeyPatch):
    real = time.time_ns
    store = sp.create("memory://dates-its-commits")
    monkeypatch.setattr(time, "time_ns", lambda: real() + YEAR_S * 10**9)

    with store.transaction() as txn:
        txn.create_namespace("n")

    assert store.snapshot().timestamp < datetime.now(UTC) + timedelta(minutes=1)


def test_a_reset_makes_time_travel_work_again(past: Past, clock: Clock):
    right = past.store.snapshot().version
    before = clock()
    commit_ahead(past, clock, years=74, times=2)
    append(past.store)
    stale = as_of_now(past.store, clock)

    reset = past.store.reset_clock()
    clock.pass_s(60)
    append(past.store)

    fresh = opened(past.object_store, clock)
    assert stale == right
    assert as_of_now(fresh, clock) == as_of_now(past.store, clock) == reset + 1
    assert fresh.snapshot(timestamp=clock.now_us - 30_000_000).version == reset
    assert fresh.snapshot(timestamp=before).version == right


def test_times_of_the_history_grow_after_a_reset_and_find_their_versions(past: Past, clock: Clock):
    commit_ahead(past, clock, years=74)
    past.store.reset_clock()
    append(past.store)

    rows = [row for row in past.store.history().to_pylist() if row["version"] is not None]

    assert max(row["timestamp"] for row in rows).timestamp() * 1e6 <= clock.now_us
    assert [past.store.snapshot(timestamp=row["timestamp"]).version for row in rows] == [
        row["version"] for row in rows
    ]
    assert past.store.blame("small", "x", 0).timestamp in [row["timestamp"] for row in rows]


def test_a_second_wrong_clock_after_a_reset_is_reset_as_well(past: Past, clock: Clock):
    commit_ahead(past, clock, years=1)
    past.store.reset_clock()
    append(past.store)
    commit_ahead(past, clock, years=50)
    newest = past.store.reset_clock()

    assert as_of_now(opened(past.object_store, clock), clock) == newest
    assert past.store.reset_clock() == newest


def test_a_store_whose_clock_is_right_is_not_reset(past: Past):
    before = past.store.snapshot().version

    assert past.store.reset_clock() == before
    assert past.store.snapshot().version == before


def test_a_restore_keeps_the_reset(past: Past, clock: Clock):
    right = past.store.snapshot().version
    commit_ahead(past, clock, years=74)
    past.store.reset_clock()

    restored = past.store.restore(version=right)

    assert as_of_now(opened(past.object_store, clock), clock) == restored


def test_a_checkpoint_and_a_vacuum_keep_the_reset(past: Past, clock: Clock):
    commit_ahead(past, clock, years=74)
    past.store.reset_clock()
    append(past.store)
    past.store.vacuum(retention=1)

    fresh = opened(past.object_store, clock)

    assert as_of_now(fresh, clock) == fresh.snapshot().version
    assert fresh.verify(pages="all").ok


def test_a_reset_cannot_be_set_as_a_property(past: Past):
    with pytest.raises(InvalidInputError, match="clock_resets"), past.store.transaction() as txn:
        txn.set_properties({"spark_pages.clock_resets": "1:2:3"})


@pytest.mark.parametrize("years", [74, 7_973, 9_000, 200_000])
def test_times_beyond_the_year_9999_can_be_shown(past: Past, clock: Clock, years: int, monkeypatch):
    monkeypatch.setattr("spark_pages.log.commit.driver.MAX_TIME_US", 1 << 63)  # as earlier releases did
    commit_ahead(past, clock, years=years)

    snapshot = opened(past.object_store, clock).snapshot()

    assert snapshot.timestamp > datetime(2090, 1, 1, tzinfo=UTC)
    assert "Snapshot(version" in repr(snapshot)
    assert snapshot._repr_html_()
    assert past.store.history().to_pylist()
    assert past.store.blame("small", "x", 0).timestamp == snapshot.timestamp
    assert past.store.reset_clock() == snapshot.version + 1
    assert as_of_now(past.store, clock) == snapshot.version + 1


SLOW_YEARS = 3


def slow(store: Store) -> Store:
    """A handle whose clock is some years behind."""
    behind_us = SLOW_YEARS * YEAR_S * 1_000_000
    return Store(
        open_object_store(store.url), replace(Runtime(), now_us=lambda: time.time_ns() // 1000 - behind_us)
    )


@pytest.fixture(params=["folder", "memory"])
def present(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid4().hex}"
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": [1, 2]})
    return store


def test_a_lease_or_claim_by_a_clock_that_is_years_slow_is_refused(present: Store):
    late = slow(present)
    before = present.snapshot().version

    for take in (
        lambda: late.snapshot().lease(timedelta(hours=1)),
        lambda: late.claim("t", stop=1, owner="me", duration=timedelta(hours=1)),
    ):
        with pytest.raises(CommitError, match=r"Cannot take a .*: it would be over at"):
            take()

    assert present.snapshot().version == before
    assert late.snapshot().lease(timedelta(days=365 * (SLOW_YEARS + 1))).expires_at is not None


def test_a_slow_clock_is_noticed_where_the_newest_commit_is_older_still(tmp_path: Path):
    ancient_us = time.time_ns() // 1000 - 5 * YEAR_S * 1_000_000
    store = Store(open_object_store(str(tmp_path / "store")), replace(Runtime(), now_us=lambda: ancient_us))
    store._log.create(lambda _: first_record(store._runtime, {}))
    late = slow(store)

    with pytest.raises(CommitError, match="by the clock of the store at"):
        late.snapshot().lease(timedelta(hours=1))


def test_a_lease_can_be_taken_though_the_newest_commit_is_of_a_fast_clock(past: Past, clock: Clock):
    commit_ahead(past, clock, years=74)

    with pytest.raises(CommitError, match="by the clock of the store at"):
        past.store.snapshot().lease(timedelta(hours=1))
    past.store.reset_clock()

    assert past.store.snapshot().lease(timedelta(hours=1)).expires_at is not None


@pytest.mark.parametrize("now_us", [-(1 << 63), -1, MAX_TIME_US + 1, (1 << 63) - 1, 1 << 63, 1 << 70])
def test_nothing_is_committed_by_a_clock_of_no_year_and_what_it_noted_harms_nobody(
    present: Store, now_us: int, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time_ns", lambda: now_us * 1000)
        for work in (
            lambda: sp.create(f"memory://{uuid4().hex}"),
            lambda: present.append("t", {"n": [3]}),
            lambda: present.tag("now"),
        ):
            with pytest.raises(CommitError, match="none of the years 1970 to 9999"):
                work()
        present.checkpoint()

    present.append("t", {"n": [4]})

    assert Store(present.object_store).snapshot().table("t").num_rows == 3
    assert present.verify().ok
