"""Updates land behind whoever left their rows alone, whatever became of the pages; else they conflict."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import (
    CommitConflictError,
    CommitUnknownError,
    ConstraintError,
    UnsupportedFormatError,
)
from spark_pages.maintenance.compact import compact_table
from spark_pages.model.actions import Claim
from spark_pages.model.ids import FieldId, TableId
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from spark_pages.transaction import committer, placement, staging
from spark_pages.transaction.rebase import UpdatedRows
from spark_pages.transaction.staging import rewrite_updates
from spark_pages.transaction.transaction import Transaction
from tests.effort import examples
from tests.invariants import check_store
from tests.log.newer import ask
from tests.transaction.stores import QUIET, Doubting
from tests.versions.hand import retain

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def rows(start: int, count: int = 1) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"n": numbers, "s": [f"row {i}" for i in numbers]}, schema=SCHEMA)


def store_of_appends(appends: int, **properties: str) -> Store:
    """A store whose table ``t`` has so many rows, each appended by a commit of its own."""
    quiet = {key: value for key, value in QUIET.items() if key != "tail_page_bytes"}
    store = sp.create(f"memory://{uuid4().hex}", properties=quiet | properties)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    append(store, *range(appends))
    return store


def append(store: Store, *numbers: int) -> None:
    """The rows come one by one from another process."""
    other = Store(store.object_store)
    for number in numbers:
        with other.transaction("append") as txn:
            txn.append("t", rows(number))


def update(store: Store, row: int, value: int, column: str = "n") -> None:
    with Store(store.object_store).transaction("correct") as txn:
        txn.update_rows("t", [row], {column: [value]})


def compact(store: Store) -> None:
    """All small pages become one, whoever is writing."""
    compact_table(Store(store.object_store).transaction, "t", Runtime())


def updating(store: Store, row: int, value: int, **given: str) -> Transaction:
    txn = store.transaction("fix", **given)
    txn.update_rows("t", [row], {"n": [value]})
    return txn


def numbers(store: Store) -> list[int]:
    return Store(store.object_store).snapshot().table("t").read()["n"].to_pylist()


def swap(store: Store) -> None:
    """An append takes the last three pages along."""
    append(store, 3)
    assert store.snapshot().table("t").pages("n")["entry_count"].to_pylist() == [4]


# what leaves the rows alone


def test_an_update_lands_behind_an_append_that_took_its_page_along():
    store = store_of_appends(3)
    txn = updating(store, 1, 77)

    swap(store)
    txn.commit()

    assert numbers(store) == [0, 77, 2, 3]
    check_store(store)


def test_an_update_lands_behind_a_stream_of_appends_that_took_its_page_along_again_and_again():
    store = store_of_appends(2)
    txn = updating(store, 1, 77)

    append(store, *range(2, 90))
    txn.commit()

    assert numbers(store) == [0, 77, *range(2, 90)]
    check_store(store)


def test_an_update_lands_behind_a_compaction_of_its_pages():
    store = store_of_appends(3, tail_page_bytes="0")
    txn = updating(store, 1, 77)

    compact(store)
    txn.commit()

    assert store.snapshot().table("t").pages("n")["entry_count"].to_pylist() == [3]
    assert numbers(store) == [0, 77, 2]
    check_store(store)


def test_an_update_lands_behind_one_of_another_row_of_its_page():
    store = store_of_appends(3)
    compact(store)
    txn = updating(store, 1, 77)

    update(store, 2, 88)
    txn.commit()

    assert numbers(store) == [0, 77, 88]
    check_store(store)


def test_an_update_of_several_columns_is_anew_in_those_whose_pages_went():
    store = store_of_appends(3)
    compact(store)
    txn = store.transaction()
    txn.update_rows("t", [2, 0], {"n": [22, 20], "s": ["two", "nil"]})

    update(store, 1, 88)
    txn.commit()

    assert Store(store.object_store).snapshot().table("t").read().to_pydict() == {
        "n": [20, 88, 22],
        "s": ["nil", "row 1", "two"],
    }
    check_store(store)


def test_rows_that_the_transaction_appends_land_with_its_update_behind_those_of_others():
    store = store_of_appends(3)
    txn = updating(store, 1, 77)
    txn.append("t", rows(50, 2))

    swap(store)
    txn.commit()

    assert numbers(store) == [0, 77, 2, 3, 50, 51]
    check_store(store)


def test_what_is_too_large_for_the_commit_is_written_anew_in_files_and_manifests_of_other_names(monkeypatch):
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 1)
    store = store_of_appends(0)
    with store.transaction() as txn:
        txn.append("t", rows(0, 30_000))
    changed = list(range(0, 30_000, 2))
    txn = store.transaction()
    txn.update_rows("t", changed, {"n": [-1] * 15_000, "s": [uuid4().hex for _ in changed]})
    read, token = txn.snapshot.version, txn._state.info.token

    update(store, 29_999, -2)
    version = txn.commit()

    expected = [-1 if not row % 2 else row for row in range(29_999)]
    assert numbers(store) == [*expected, -2]
    (landed,) = store._log.commits(version, version + 1)
    manifests = {info.key for info in store.object_store.list("_log/manifests/") if str(token) in info.key}
    files = {info.key for info in store.object_store.list("pages/") if str(token) in info.key}
    assert len(manifests) == 2, "that of the first try is an orphan"
    assert len(files) == 2, "most pages are still in that of the first try"
    assert {key[:26] for key in files} == {f"pages/{read:020d}"}, "by which vacuum judges them"
    assert landed.records[0].manifests[0].location.key in manifests
    assert landed.records[0].read_version == read
    check_store(store)


def test_an_update_is_not_written_anew_where_a_newer_release_asks_for_more_by_now():
    store = store_of_appends(0)
    with store.transaction() as txn:
        txn.append("t", rows(0, 30_000))
    txn = store.transaction()
    changed = list(range(0, 30_000, 2))
    txn.update_rows("t", changed, {"s": [uuid4().hex for _ in changed]})
    with Store(store.object_store).transaction() as other:
        other.update_rows("t", [29_999], {"s": ["another row of a page"]})
    ask(Store(store.object_store))

    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        txn.commit()

    token = str(txn._state.info.token)
    assert len([info for info in store.object_store.list("pages/") if token in info.key]) == 1, (
        "of the first try"
    )


def test_a_pair_of_exactly_once_lands_once_with_an_update_that_is_anew():
    store = store_of_appends(3)
    txn = store.transaction(app_id="etl", app_version=7)
    txn.update_rows("t", [1], {"n": [77]})

    swap(store)
    version = txn.commit()
    with store.transaction(app_id="etl", app_version=7) as again:
        again.update_rows("t", [1], {"n": [99]})

    assert again.version == version
    assert numbers(store) == [0, 77, 2, 3]


def test_change_feed_blame_and_history_tell_of_the_update_and_of_nothing_that_was_moved():
    store = store_of_appends(3)
    txn = updating(store, 1, 77)
    read = txn.snapshot.version

    swap(store)
    version = txn.commit()

    (change,) = store.changes(version, version, table="t", granularity="rows").to_pylist()
    assert [change[name] for name in ("column", "change", "first_row", "end_row")] == ["n", "updated", 1, 2]
    assert [store.blame("t", "n", row).version for row in range(4)] == [2, version, 4, 5]
    (told,) = store.history(limit=1).to_pylist()
    assert (told["operation"], told["read_version"], told["rows_added"]) == ("fix", read, 0)


# what does not


OTHERS: dict[str, Callable[[Store], None]] = {
    "an update of the row": lambda store: update(store, 1, 88),
    "one to the value that was there": lambda store: update(store, 1, 1),
    "an update, then an append that takes it along": lambda store: (update(store, 1, 88), append(store, 3)),
    "an append that takes the row along, then an update": lambda s: (append(s, 3), update(s, 1, 88)),
    "an update, then a compaction": lambda store: (update(store, 1, 88), compact(store)),
    "a compaction, then an update": lambda store: (compact(store), update(store, 1, 88)),
    "an update that is taken back": lambda store: (
        update(store, 1, 88),
        Store(store.object_store).restore(version=4),
    ),
    "a truncation": lambda store: table_change(store, lambda txn: txn.truncate_table("t")),
    "a truncation, and as many rows again": lambda store: (
        table_change(store, lambda txn: txn.truncate_table("t")),
        append(store, 0, 1, 2, 3),
    ),
    "a drop": lambda store: table_change(store, lambda txn: txn.drop_table("t")),
    "a drop that is undone": lambda store: (
        table_change(store, lambda txn: txn.drop_table("t")),
        table_change(store, lambda txn: txn.undrop_table("t")),
    ),
    "a drop of the column": lambda store: (
        append(store, 3),
        table_change(store, lambda txn: txn.drop_column("t", "n")),
    ),
    "a table that is there under another name, and an append": lambda store: (
        append(store, 3),
        table_change(store, lambda txn: txn.rename_table("t", "u")),
    ),
    "fewer rows": lambda store: table_change(store, fewer_rows),
    "fewer rows, and more again": lambda store: (table_change(store, fewer_rows), append(store, 1, 2)),
}


def table_change(store: Store, change: Callable[[Transaction], object]) -> None:
    with Store(store.object_store).transaction("change") as txn:
        change(txn)


def fewer_rows(txn: Transaction) -> None:
    """The rows from row 1 on go."""
    for column in SCHEMA.names:
        txn.directory("t").update_latest_entry_count(column, 1)


@pytest.mark.parametrize("meanwhile", OTHERS)
def test_an_update_conflicts_with_whatever_may_have_changed_its_row(meanwhile):
    store = store_of_appends(3)
    if "fewer" in meanwhile:
        compact(store)
    txn = updating(store, 1, 77)
    OTHERS[meanwhile](store)
    before = Store(store.object_store).snapshot()

    with pytest.raises(CommitConflictError, match="Nothing was committed, after") as failure:
        txn.commit()

    assert failure.value.context["read_version"] < failure.value.context["conflicting_version"]
    assert Store(store.object_store).snapshot().version == before.version
    check_store(store)


def test_one_row_that_somebody_has_touched_is_enough_to_refuse_all_of_them():
    store = store_of_appends(3)
    txn = store.transaction()
    txn.update_rows("t", [0, 2], {"n": [70, 72]})
    txn.update_rows("t", [1], {"s": ["one"]})

    swap(store)
    update(store, 2, 88)
    with pytest.raises(CommitConflictError, match="both replace 1 page of column 'n' of table 't'"):
        txn.commit()

    assert numbers(store) == [0, 1, 88, 3]


def test_serializable_isolation_is_a_conflict_with_rows_that_came_and_none_with_a_compaction():
    store = store_of_appends(2)
    beside_append = updating(store, 1, 77, isolation="serializable")
    append(store, 2, 3)
    beside_compaction = updating(store, 0, 70, isolation="serializable")

    compact(store)
    beside_compaction.commit()
    with pytest.raises(CommitConflictError):
        beside_append.commit()

    assert numbers(store) == [70, 1, 2, 3]
    check_store(store)


def test_a_serializable_update_conflicts_with_changes_of_another_table_that_it_read():
    store = store_of_appends(3)
    with store.transaction() as other:
        other.create_table("u", SCHEMA)
    txn = store.transaction(isolation="serializable")
    assert txn.table("u").num_rows == 0
    txn.update_rows("t", [1], {"n": [77]})

    compact(store)
    table_change(store, lambda other: other.append("u", rows(0)))
    with pytest.raises(CommitConflictError):
        txn.commit()

    assert numbers(store) == [0, 1, 2]


def test_an_update_that_a_check_has_compared_with_other_columns_conflicts_with_any_change_of_rows():
    store = store_of_appends(3)
    table_change(store, lambda txn: txn.add_constraint("t", "named", check="n < 100 OR s > 'a'"))
    compared, alone = updating(store, 1, 77), store.transaction()
    alone.update_rows("t", [1], {"n": [78], "s": ["seven"]})

    swap(store)
    with pytest.raises(CommitConflictError):
        compared.commit()
    alone.commit()

    assert numbers(store) == [0, 78, 2, 3]


def test_an_update_of_a_key_is_refused_behind_rows_that_have_it():
    store = store_of_appends(3)
    table_change(store, lambda txn: txn.set_nullable("t", "n", False))
    table_change(store, lambda txn: txn.add_constraint("t", "key", primary_key=["n"]))
    txn = updating(store, 1, 3)

    append(store, 3)
    compact(store)
    with pytest.raises(ConstraintError, match="'n': 3"):
        txn.commit()

    assert numbers(store) == [0, 1, 2, 3]


def test_a_transaction_that_does_more_than_update_and_append_stays_a_conflict():
    store = store_of_appends(3)
    txn = updating(store, 1, 77)
    txn.claim(Claim(TableId(1), FieldId(1), 0, 1, "me", 1, 2**62))

    swap(store)
    with pytest.raises(CommitConflictError, match="both replace 1 page"):
        txn.commit()

    assert numbers(store) == [0, 1, 2, 3]


def test_a_vacuum_that_has_passed_the_version_read_is_in_the_way_as_ever():
    store = store_of_appends(3)
    txn = updating(store, 1, 77)

    swap(store)
    append(store, 4)
    Store(store.object_store).vacuum(retention=1)
    with pytest.raises(CommitConflictError):
        txn.commit()

    assert numbers(store) == [0, 1, 2, 3, 4]


def test_so_is_one_that_has_cleaned_nothing_away_yet():
    store = store_of_appends(3)
    txn = updating(store, 1, 77)

    swap(store)
    retain(store, min_readable=0, min_epoch=5)
    with pytest.raises(CommitConflictError, match="both replace 1 page"):
        txn.commit()

    assert numbers(store) == [0, 1, 2, 3]


# again and again


def beside_each_commit(monkeypatch: pytest.MonkeyPatch, store: Store, *steps: Callable[[], object]) -> None:
    """Before the transactions of this store are given to the log, the next of these happens."""
    log, commit, left = store._log, store._log.commit_member, iter(steps)

    def late(*args, **given):
        next(left, lambda: None)()
        return commit(*args, **given)

    monkeypatch.setattr(log, "commit_member", late)


def test_an_update_that_is_overtaken_while_it_is_done_anew_is_done_once_more(monkeypatch):
    store = store_of_appends(3)
    txn = updating(store, 1, 77)
    beside_each_commit(
        monkeypatch, store, lambda: compact(store), lambda: update(store, 2, 88), lambda: update(store, 0, 66)
    )

    txn.commit()

    assert numbers(store) == [66, 77, 88]
    check_store(store)


def test_only_pages_that_others_have_taken_out_are_rewritten_anew(monkeypatch):
    store = store_of_appends(0)
    with store.transaction() as txn:
        txn.append("t", rows(0, 60_000))
    pages = store.snapshot().table("t").pages("s").num_rows
    assert pages > 6
    changed = list(range(0, 60_000, 2))
    txn = store.transaction()
    txn.update_rows("t", changed, {"s": [f"new {row}" for row in changed]})
    beside_each_commit(
        monkeypatch, store, lambda: other_text(store, 1), lambda: other_text(store, 30_001, 59_999)
    )
    rewritten = pages_rewritten(monkeypatch)

    version = txn.commit()

    assert rewritten == [pages, 1, 1, 2, 2], "each time the others first"
    (landed,) = store._log.commits(version, version + 1)
    assert sum(len(splice.removed) for splice in landed.records[0].splices) == pages
    text = store.snapshot().table("t").read()["s"].to_pylist()
    assert text[0::2] == [f"new {row}" for row in changed]
    assert [row for row in range(1, 60_000, 2) if text[row] != f"row {row}"] == [1, 30_001, 59_999]
    feed = store.changes(version, version, granularity="rows")
    touched = zip(feed["first_row"].to_pylist(), feed["end_row"].to_pylist(), strict=True)
    assert sorted(row for first, end in touched for row in range(first, end)) == changed
    check_store(store)


def other_text(store: Store, *of: int) -> None:
    with Store(store.object_store).transaction("correct") as txn:
        txn.update_rows("t", list(of), {"s": ["another row of the page"] * len(of)})


def pages_rewritten(monkeypatch) -> list[int]:
    """How many pages each commit rewrites, and each try of it."""
    tries: list[int] = []

    def counted(*given):
        found = rewrite_updates(*given)
        tries.append(sum(len(splice.removed) for splice in found))
        return found

    for module in (staging, committer):
        monkeypatch.setattr(module, "rewrite_updates", counted)
    return tries


@pytest.mark.parametrize("seed", range(6))
def test_an_update_of_many_rows_lands_right_however_often_others_move_rows_between_its_tries(
    monkeypatch, seed
):
    chance = random.Random(seed)
    store = store_of_appends(24)
    expected = list(range(24))
    mine = sorted(chance.sample(range(24), 10))
    txn = store.transaction()
    for first in (0, 5):
        txn.update_rows("t", mine[first : first + 5], {"n": [1_000 + row for row in mine[first : first + 5]]})

    def other() -> None:
        match chance.randrange(4):
            case 0:
                compact(store)
            case 1:
                append(store, len(expected))
                expected.append(len(expected))
            case _:
                row = chance.choice([each for each in range(24) if each not in mine])
                expected[row] = -row
                update(store, row, -row)

    beside_each_commit(monkeypatch, store, *[other] * 12)
    txn.commit()

    for row in mine:
        expected[row] = 1_000 + row
    assert numbers(store) == expected
    check_store(store)


def test_a_row_that_is_touched_while_the_update_is_done_anew_is_a_conflict(monkeypatch):
    store = store_of_appends(3)
    txn = updating(store, 1, 77)
    beside_each_commit(monkeypatch, store, lambda: append(store, 3), lambda: update(store, 1, 88))

    with pytest.raises(CommitConflictError, match=r"\(correct\).*after 2 tries") as failure:
        txn.commit()

    assert failure.value.context["tries"] == 2
    assert numbers(store) == [0, 88, 2, 3]


def test_an_update_is_not_done_anew_once_the_time_of_its_commit_is_up():
    objects = store_of_appends(3).object_store
    seconds = count(0, 61)
    store = Store(objects, replace(Runtime(), monotonic_s=lambda: next(seconds), sleep_s=lambda _: None))
    txn = updating(store, 1, 77)

    append(Store(objects), 3)
    with pytest.raises(CommitConflictError):
        txn.commit()

    assert numbers(Store(objects)) == [0, 1, 2, 3]


@pytest.mark.parametrize("lands", [False, True])
def test_an_update_that_was_done_anew_and_is_in_doubt_is_resumed(monkeypatch, lands):
    objects = Doubting(store_of_appends(3), lands)
    seconds = count()
    store = Store(objects, replace(Runtime(), monotonic_s=lambda: next(seconds), sleep_s=lambda _: None))
    txn = updating(store, 1, 77)
    beside_each_commit(monkeypatch, store, lambda: append(store, 3), lambda: setattr(objects, "broken", True))
    with pytest.raises(CommitUnknownError) as failure:
        txn.commit()
    objects.broken = False

    version = Store(objects).resume(failure.value)

    assert store.resume(failure.value) == version
    assert numbers(store) == [0, 77, 2, 3]
    check_store(store)


def test_nothing_is_compared_twice(monkeypatch):
    store = store_of_appends(3)
    txn = updating(store, 1, 77)
    compared: list[int] = []
    survive = UpdatedRows.survive

    def noting(self, record):
        compared.append(record.read_version)
        return survive(self, record)

    monkeypatch.setattr(UpdatedRows, "survive", noting)
    beside_each_commit(monkeypatch, store, lambda: append(store, 3, 4), lambda: update(store, 2, 88))

    txn.commit()

    assert compared == [4, 5, 6]
    assert numbers(store) == [0, 77, 88, 3, 4]


# many


ROWS = 6
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 1), st.sets(st.integers(0, ROWS - 1), min_size=1)),
        st.tuples(st.just("commit"), st.integers(0, 1), st.none()),
        st.tuples(st.just("update"), st.none(), st.integers(0, ROWS - 1)),
        st.tuples(st.just("append"), st.none(), st.integers(1, 4)),
        st.tuples(st.just("compact"), st.none(), st.none()),
    ),
    max_size=14,
)


class Beside:
    """Two transactions that stay open, beside others; and the rows as they must be."""

    def __init__(self) -> None:
        self.store = store_of_appends(ROWS)
        self.rows = list(range(ROWS))
        self.open: dict[int, tuple[Transaction, dict[int, int]]] = {}
        self.met: dict[int, set[int]] = {}
        self.values = count(100)

    def step(self, what: str, which: int | None, of: set[int] | int | None) -> None:
        getattr(self, f"do_{what}")(which, of)

    def do_open(self, which: int, changed: set[int]) -> None:
        txn = Store(self.store.object_store).transaction()
        values = [next(self.values) for _ in changed]
        txn.update_rows("t", sorted(changed), {"n": values})
        self.open[which] = txn, dict(zip(sorted(changed), values, strict=True))
        self.met[which] = set()

    def do_commit(self, which: int, _: None) -> None:
        txn, changed = self.open.pop(which, (None, {}))
        if txn is None:
            return
        try:
            txn.commit()
        except CommitConflictError:
            assert self.met[which] & set(changed), "a conflict without a reason"
            return
        assert not self.met[which] & set(changed), "an update is lost"
        self.note(changed)

    def do_update(self, _: None, row: int) -> None:
        value = next(self.values)
        update(self.store, row, value)
        self.note({row: value})

    def do_append(self, _: None, many: int) -> None:
        values = [next(self.values) for _ in range(many)]
        append(self.store, *values)
        self.rows += values

    def do_compact(self, *_: None) -> None:
        compact(self.store)

    def note(self, changed: dict[int, int]) -> None:
        for row, value in changed.items():
            self.rows[row] = value
        for met in self.met.values():
            met |= set(changed)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_an_update_lands_exactly_where_nobody_has_touched_its_rows_since_it_read_them(steps):
    beside = Beside()

    for step in steps:
        beside.step(*step)

    assert numbers(beside.store) == beside.rows
    check_store(beside.store)


def test_counters_in_rows_of_one_page_lose_no_step_beside_appends_and_compactions():
    store = store_of_appends(0)
    append(store, 0, 0, 0, 0)
    done = threading.Event()
    stepped: list[int] = []

    def steps(row: int) -> None:
        mine = Store(store.object_store)
        for _ in range(12):
            with suppress(CommitConflictError):  # another one was at the same counter
                with mine.transaction() as txn:
                    (value,) = txn.table("t").take([row], ["n"])["n"].to_pylist()
                    txn.update_rows("t", [row], {"n": [value + 1]})
                stepped.append(row)

    def others() -> None:
        while not done.is_set():
            append(store, 1_000, 1_001)
            with suppress(CommitConflictError):
                compact(store)

    threads = [threading.Thread(target=steps, args=(row,)) for row in (0, 1, 3, 3)]
    beside = threading.Thread(target=others)
    for thread in (beside, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    beside.join()

    found = numbers(store)
    assert found[:4] == [12, 12, 0, stepped.count(3)]
    assert stepped.count(3) >= 12, "one of two lands"
    assert set(found[4:]) <= {1_000, 1_001}
    check_store(store)
