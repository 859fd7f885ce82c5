"""What page compaction rewrites, and what becomes of it where other transactions commit meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError
from spark_pages.maintenance import compaction_plan as compaction_plan
from spark_pages.maintenance.compact import compact_table, rewrite_locally
from spark_pages.maintenance.compaction_plan import plan_compaction
from spark_pages.model.actions import Claim
from spark_pages.model.ids import FieldId, TableId
from spark_pages.runtime import Runtime
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.transaction.page_writer import inline_page, stage_constant
from spark_pages.transaction.transaction import Transaction
from tests.invariants import check_store
from tests.transaction.stores import store_with

ROWS = 4_000


def store_of_small_pages(url: str, *columns: str) -> Store:
    store = sp.create(url, properties={"tail_page_bytes": "0"})
    rows = {name: np.arange(ROWS) for name in columns}
    with store.transaction() as txn:
        txn.create_table("t", pa.table(rows).schema, properties={"page_bytes": "1024"})
        txn.append("t", pa.table(rows))
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "16384"})
    return store


def compact(store: Store, meanwhile: Callable[[], None]):
    """Compacts table ``t``; something happens when its pages have been written."""

    def rewrite(txn, table, tasks):
        pages = rewrite_locally(txn, table, tasks)
        meanwhile()
        return pages

    return compact_table(partial(store.transaction), "t", Runtime(), rewrite)


def update(store: Store, column: str, row: int) -> None:
    with store.transaction() as txn:
        txn.update_rows("t", [row], {column: [-1]})


def test_another_commit_costs_the_run_that_it_touched_and_not_the_job(url: str) -> None:
    store = store_of_small_pages(url, "a", "b")

    done = compact(store, lambda: update(store, "a", 5))

    after = store.snapshot()
    table = after.table("t")
    assert (len(done.tasks), done.conflicts) == (1, 1)
    assert table.pages("b").num_rows < 8 < table.pages("a").num_rows
    assert table.read(["a"], stop=6).column("a").to_pylist() == [0, 1, 2, 3, 4, -1]
    assert after.log.state.claims == ()
    assert store.verify("all").ok
    (again,) = store.compact_pages("t")
    assert (again["runs"], again["conflicts"]) == (1, 0)
    check_store(store)


def test_a_stream_of_small_appends_costs_no_run(url: str) -> None:
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
    written = 0

    def append(count: int) -> None:
        nonlocal written
        for _ in range(count):
            with store.transaction() as txn:
                txn.append("t", {"a": [written]})
            written += 1

    def begin(operation: str = "write", **options: Any) -> Transaction:
        if operation == "compact pages" and store.snapshot().log.state.claims:
            append(5)
        return store.transaction(operation, **options)

    def rewrite(txn, table, tasks):
        pages = rewrite_locally(txn, table, tasks)
        append(5)
        return pages

    append(6)
    done = compact_table(begin, "t", Runtime(), rewrite)

    assert (len(done.tasks), done.conflicts) == (1, 0)
    assert done.tasks[0].run.num_rows == 6, "what the claim covers, and not what has come since"
    assert store.snapshot().table("t").read()["a"].to_pylist() == list(range(written))
    check_store(store)


def test_last_pages_that_an_append_takes_along_before_they_are_claimed_are_compacted_all_the_same(
    url: str,
) -> None:
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", {"a": np.arange(100)})

    def append() -> None:
        with store.transaction() as txn:
            txn.append("t", {"a": [store.snapshot().table("t").num_rows]})

    def begin(operation: str = "write", **options: Any) -> Transaction:
        if operation == "claim rows":
            append()
        return store.transaction(operation, **options)

    for _ in range(3):
        append()
    assert store.snapshot().table("t").pages("a").column("entry_count").to_pylist() == [100, 1, 1, 1]
    done = compact_table(begin, "t", Runtime())

    assert done.as_dict("t") | {"version": None} == {
        "table": "t",
        "runs": 1,
        "pages_before": 2,
        "pages_after": 1,
        "version": None,
        "claimed_by_others": 0,
        "conflicts": 0,
        "purged_pages": 0,
    }
    assert store.snapshot().table("t").read()["a"].to_pylist() == list(range(104))
    check_store(store)


def test_a_second_try_keeps_the_version_that_its_page_files_tell_vacuum(url: str) -> None:
    store = store_of_small_pages(url, "a", "b")

    def vacuumed() -> None:
        update(store, "a", 5)
        store.vacuum(retention=1)

    with pytest.raises(CommitConflictError):  # files of so old a writer may be gone
        compact(store, vacuumed)

    assert store.snapshot().log.state.claims == ()
    assert store.verify("all").ok


@pytest.mark.parametrize("owner", ["this process", "one that has ended", "one of another machine"])
def test_rows_that_a_job_of_this_machine_claimed_and_left_by_dying_are_free(url: str, owner: str) -> None:
    store = store_of_small_pages(url, "a")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host, process = socket.gethostname(), os.getpid()
    name = {
        "this process": f"me@{host}:{process}",
        "one that has ended": f"me@{host}:{ended.pid}",
        "one of another machine": f"me@{host}.elsewhere:{ended.pid}",
    }[owner]
    table = store.snapshot().table("t").definition
    expires = Runtime().now_us() + 60_000_000
    with store.transaction() as txn:
        field_id = table.field_ids["a"]
        txn.claim(Claim(table.table_id, field_id, 0, 5, f"{name} 01234567", 1, expires))

    done = store.compact_pages("t")

    assert [each["claimed_by_others"] for each in done] == [0 if owner == "one that has ended" else 1]
    left = [claim.owner for claim in store.snapshot().log.state.claims]
    assert left == ([] if owner == "one that has ended" else [f"{name} 01234567"])


def test_a_job_all_of_whose_runs_were_touched_commits_nothing(url: str) -> None:
    store = store_of_small_pages(url, "a")
    before = store.snapshot().version

    with pytest.raises(CommitConflictError):
        compact(store, lambda: update(store, "a", 5))

    claim, other, release = 1, 1, 1
    assert store.snapshot().version == before + claim + other + release


def test_of_a_job_that_outlives_its_claims_and_one_that_takes_them_the_first_to_commit_wins(url: str) -> None:
    store = store_of_small_pages(url, "a")
    clock = Runtime()
    later = replace(clock, now_us=lambda: clock.now_us() + 601_000_000)
    done = []

    with pytest.raises(CommitConflictError):
        compact(store, lambda: done.append(compact_table(partial(store.transaction), "t", later)))

    assert [(len(each.tasks), each.claimed_by_others) for each in done] == [(1, 0)]
    assert store.snapshot().log.state.claims == ()
    assert store.snapshot().table("t").read().column("a").to_pylist() == list(range(ROWS))
    assert store.verify("all").ok


@pytest.mark.parametrize("change", ["drop_table", "truncate_table"])
def test_a_table_that_goes_meanwhile_is_a_conflict(url: str, change: str) -> None:
    store = store_of_small_pages(url, "a", "b")

    def gone() -> None:
        with store.transaction() as txn:
            getattr(txn, change)("t")

    with pytest.raises(CommitConflictError):
        compact(store, gone)


def test_large_pages_are_split_and_full_ones_stay(url: str) -> None:
    store = sp.create(url)
    rows = pa.table(
        {"n": np.arange(ROWS), "text": [f"{n:040d}" for n in range(ROWS)], "full": np.arange(ROWS)}
    )
    with store.transaction() as txn:
        properties = {"page_bytes": "1048576", "page_bytes.full": "4096", "codec": "none"}
        txn.create_table("t", rows.schema, properties=properties)
        txn.append("t", rows)
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "4096"})
    full = store.snapshot().table("t").pages("full")

    (done,) = store.compact_pages("t")
    (again,) = store.compact_pages("t")

    table = store.snapshot().table("t")
    assert (done["pages_before"], again["runs"]) == (2, 0)
    assert table.pages("n").num_rows >= ROWS * 8 // 4096
    assert table.pages("text").num_rows >= ROWS * 44 // 4096
    assert table.pages("full").column("page_id").equals(full.column("page_id"))
    assert table.read().equals(rows)


def test_a_value_larger_than_a_page_is_left_alone(url: str) -> None:
    store = sp.create(url)
    rows = pa.table({"text": ["x" * 50_000, "y" * 50_000]})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "4096", "codec": "none"})
        txn.append("t", rows)

    assert plan_compaction(store.snapshot().table("t")) == []


def test_a_long_run_is_cut_and_leaves_at_most_one_page_that_is_not_full_for_each_piece(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_plan, "_PAGES_OF_A_RUN", 1)
    store = store_of_small_pages(url, "a")

    planned = plan_compaction(store.snapshot().table("t"))
    (done,) = store.compact_pages("t")

    assert len(planned) == done["runs"] == ROWS * 8 // 16384 + 1
    assert sum(task.run.num_rows for task in planned) == ROWS
    assert store.snapshot().table("t").read(["a"]).column("a").to_pylist() == list(range(ROWS))


def spans(store: Store, column: str) -> int:
    """How many stretches of page files hold the column."""
    pages = store.snapshot().table("t").pages(column)
    columns = (pages[name].to_pylist() for name in ("path", "offset", "alloc_len"))
    ends = [(path, offset, offset + size) for path, offset, size in zip(*columns, strict=True)]
    return 1 + sum((path, end) != after[:2] for (path, _, end), after in pairwise(ends))


def commits_of_full_pages(store: Store, commits: int, pages: int = 1) -> None:
    random = np.random.default_rng(7)
    for _ in range(commits):
        with store.transaction() as txn:
            txn.append("t", pa.table({name: random.random(2048 * pages) for name in "ab"}))


def test_full_pages_that_lie_scattered_over_page_files_are_written_side_by_side_once(url: str) -> None:
    store = sp.create(url, properties={"tail_page_bytes": "0", "checkpoint_commits": "0"})
    with store.transaction() as txn:
        schema = pa.schema([("a", pa.float64()), ("b", pa.float64())])
        txn.create_table("t", schema, properties={"page_bytes": "16384"})
    commits_of_full_pages(store, 20)
    rows = store.snapshot().table("t").read()
    before = spans(store, "a")

    (done,) = store.compact_pages("t")

    assert before == 20
    assert (done["pages_before"], done["pages_after"]) == (40, 40)
    assert spans(store, "a") == spans(store, "b") == 1
    reader = sp.open(url)
    assert reader.snapshot().table("t").read(["a"]).equals(rows.select(["a"]))
    assert reader.cache_stats.requests == 1
    commits_of_full_pages(store, 3, pages=3)
    assert plan_compaction(store.snapshot().table("t")) == [], (
        "three requests for nine pages are not worth it"
    )
    commits_of_full_pages(store, 5)
    assert [task.run.num_pages for task in plan_compaction(store.snapshot().table("t"))] == [14, 14]
    check_store(store)


def test_pages_that_a_few_updates_moved_away_stay_where_they_are(url: str) -> None:
    store = sp.create(url, properties={"tail_page_bytes": "0"})
    numbers = np.random.default_rng(7).random(200_000)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.float64())]), properties={"page_bytes": "16384"})
        txn.append("t", pa.table({"a": numbers}))
    for row in (5_000, 60_000, 150_000):
        update(store, "a", row)

    assert spans(store, "a") == 7
    assert plan_compaction(store.snapshot().table("t")) == []


class Meeting(MeteredStore):
    """Storage that answers the first two requests for a page manifest only once both have come."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.asked: list[str] = []
        self._both = Barrier(2)

    def get(self, key: str, *most: int) -> bytes:
        if key.startswith("_log/manifests/"):
            self.asked.append(key)
            if len(self.asked) <= self._both.parties:
                self._both.wait(timeout=60)
        return super().get(key, *most)


def test_page_manifests_are_read_several_at_a_time_and_each_once(url: str) -> None:
    store = store_of_many_manifests(url)
    listed = [info.key for info in store.object_store.list("_log/manifests/")]
    objects = Meeting(store.object_store)

    (done,) = Store(objects).compact_pages("t")

    assert done["pages_after"] < done["pages_before"]
    assert len(listed) > 2
    assert sorted(key for key in objects.asked if key in listed) == sorted(listed)


def store_of_many_manifests(url: str) -> Store:
    store = sp.create(url, properties={"tail_page_bytes": "0"})
    rows = pa.table({"a": np.arange(100_000), "b": np.arange(100_000)})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "1024"})
    for _ in range(5):
        with store.transaction() as txn:
            txn.append("t", rows)
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "16384"})
    return store


def test_pages_replaced_by_a_transaction_that_has_not_looked_are_not_replaced_twice():
    store = store_with(pa.table({"k": [1, 2, 3]}), pa.table({"k": [4]}))
    other = Store(store.object_store)
    run = other.snapshot().table("t").directory.chain("k").all_pages()
    txn = other.transaction()
    new = inline_page(stage_constant(pa.scalar(1, pa.int64()), 4))
    txn.replace_pages(TableId(1), FieldId(1), 0, run.page_ids.tolist(), [new])
    store.compact_pages("t")

    with pytest.raises(CommitConflictError, match="both replace 2 pages"):
        txn.commit()

    assert Store(store.object_store).snapshot().table("t").read()["k"].to_pylist() == [1, 2, 3, 4]
