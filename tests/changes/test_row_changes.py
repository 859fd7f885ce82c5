"""The change feed: what happened between two versions, by pages and by ranges of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.changes.page_changes import page_changes
from spark_pages.changes.row_changes import ChainTrace, Changes, row_changes
from spark_pages.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from spark_pages.model.actions import Splice
from spark_pages.store import Store
from tests.transaction.stores import store_with
from tests.versions import hand
from tests.versions.hand import numbers


@pytest.fixture
def ten() -> Store:
    """Table ``t`` has rows 0 to 9 at version 2."""
    return store_with(numbers(0, 10))


def by_rows(store: Store, start: int, end: int, column: str = "n") -> list[tuple[str, int, int]]:
    told = store.changes(start + 1, end, table="t", granularity="rows").to_pylist()
    return [(row["change"], row["first_row"], row["end_row"]) for row in told if row["column"] == column]


def kinds(store: Store, start: int, end: int) -> list[tuple[int, str, int | None]]:
    """Version, change and entry count of the changes of column ``n``."""
    told = store.changes(start + 1, end).to_pylist()
    return [(row["version"], row["change"], row["entry_count"]) for row in told if row["field_id"] == 1]


def test_rows_are_told_by_table_column_and_range(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [1, 2, 7], {"s": ["x", "y", "z"]})
        txn.append("t", numbers(10, 12))

    told = ten.changes(3, 3, granularity="rows")

    assert told.to_pylist() == [
        told_row("n", 1, "inserted", 10, 12),
        told_row("s", 2, "updated", 1, 3),
        told_row("s", 2, "updated", 7, 8),
        told_row("s", 2, "inserted", 10, 12),
    ]


def told_row(column: str, field_id: int, change: str, first_row: int, end_row: int) -> dict[str, object]:
    return {
        "table_id": 1,
        "table": "t",
        "field_id": field_id,
        "column": column,
        "change": change,
        "first_row": first_row,
        "end_row": end_row,
    }


def test_compaction_changes_pages_and_no_row():
    store = store_with(*(numbers(i, i + 1) for i in range(5)))
    head = store.snapshot().version

    store.compact_pages("t")

    now = store.snapshot().version
    assert store.changes(head + 1, now, granularity="rows").num_rows == 0
    pages = store.changes(head + 1, now)
    assert set(pages.column("change").to_pylist()) == {"replaced", "added"}
    assert set(pages.column("data_change").to_pylist()) == {False}


def test_a_row_updated_and_then_compacted_is_updated_and_one_updated_twice_is_told_once(ten):
    for value in (1, 2):
        with ten.transaction() as txn:
            txn.update_rows("t", [4], {"n": [value]})
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 11))
    ten.compact_pages("t")

    assert by_rows(ten, 2, ten.snapshot().version) == [("updated", 4, 5), ("inserted", 10, 11)]


def test_a_row_inserted_and_then_updated_is_inserted(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 12))
    with ten.transaction() as txn:
        txn.update_rows("t", [11], {"n": [0]})

    assert by_rows(ten, 2, 4) == [("inserted", 10, 12)]
    assert by_rows(ten, 3, 4) == [("updated", 11, 12)]


def test_an_append_that_landed_behind_another_is_told_where_it_landed(ten):
    late, early = ten.transaction(), ten.transaction()
    late.append("t", numbers(20, 25))
    early.append("t", numbers(10, 13))
    early.commit()
    late.commit()

    assert by_rows(ten, 2, 3) == [("inserted", 10, 13)]
    assert by_rows(ten, 3, 4) == [("inserted", 13, 18)]
    assert by_rows(ten, 2, 4) == [("inserted", 10, 18)]


def test_rows_that_went_and_others_that_came_in_their_place_are_removed_and_inserted(ten):
    hand.replace_tail(ten, "t", 6, {"n": [], "s": []})
    hand.replace_tail(ten, "t", 6, {"n": [1, 2], "s": ["a", "b"]})

    assert by_rows(ten, 2, 3) == [("removed", 6, 10)]
    assert by_rows(ten, 2, 4) == [("inserted", 6, 8), ("removed", 6, 10)]


def test_a_tail_that_grows_keeps_the_rows_that_it_had(ten):
    hand.replace_tail(ten, "t", 9, {"n": [9, 10], "s": ["a", "b"]})

    assert by_rows(ten, 2, 3) == [("updated", 9, 10), ("inserted", 10, 11)]


def test_a_truncate_removes_every_row_that_was_there(ten):
    hand.truncate(ten, "t")
    with ten.transaction() as txn:
        txn.append("t", numbers(0, 3))

    assert by_rows(ten, 2, 3) == [("removed", 0, 10)]
    assert by_rows(ten, 2, 4) == [("inserted", 0, 3), ("removed", 0, 10)]


def test_a_table_that_came_is_inserted_one_that_went_removed_one_that_came_and_went_nothing(ten):
    with ten.transaction() as txn:
        txn.create_table("u", pa.schema([("x", pa.int64())]))
        txn.append("u", pa.table({"x": [1, 2]}))
    hand.drop(ten, "t")
    hand.drop(ten, "u")

    assert [row["change"] for row in ten.changes(3, 3, granularity="rows").to_pylist()] == ["inserted"]
    assert by_rows(ten, 2, 4) == [("removed", 0, 10)]
    gone = ten.changes(3, 5, granularity="rows").to_pylist()
    assert {(row["table"], row["change"]) for row in gone} == {("t", "removed")}


def test_a_table_that_went_and_came_back_unchanged_is_not_told(ten):
    hand.drop(ten, "t")
    ten.restore(version=2)

    assert ten.changes(3, 4, granularity="rows").num_rows == 0
    assert by_rows(ten, 3, 4) == [("inserted", 0, 10)]


def test_a_restore_tells_the_rows_that_it_brought_back(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [4], {"n": [0]})
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 12))
    ten.restore(version=2)

    assert by_rows(ten, 4, 5) == [("updated", 4, 5), ("removed", 10, 12)]
    assert by_rows(ten, 4, 5, "s") == [("removed", 10, 12)]


def test_a_column_that_came_is_inserted_and_one_that_went_removed(ten):
    swapped = hand.fields(n=pa.int64(), s=pa.string(), extra=pa.int32())
    hand.set_schema(ten, "t", swapped.remove(1), next_field_id=4)

    told = ten.changes(3, 3, granularity="rows").to_pylist()

    assert told == [told_row("s", 2, "removed", 0, 10)]


def test_before_the_store_there_was_nothing(ten):
    assert by_rows(ten, -1, 2) == [("inserted", 0, 10)]
    assert kinds(ten, -1, 2) == [(2, "added", 10)]


def test_table_zero_is_told_only_where_it_is_asked_for(ten):
    assert set(ten.changes(0, 2).column("table_id").to_pylist()) == {1}
    assert set(ten.changes(0, 2, granularity="rows").column("table_id").to_pylist()) == {1}
    told = ten.changes(1, 1, table="system.catalog", granularity="rows").to_pylist()
    assert {(row["table"], row["change"], row["end_row"] - row["first_row"]) for row in told} == {
        ("system.catalog", "inserted", 3)
    }


def test_pages_are_told_as_added_replaced_and_removed(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [4], {"n": [0]})
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 12))
    hand.replace_tail(ten, "t", 10, {"n": [], "s": []})

    assert kinds(ten, 2, 5) == [
        (3, "replaced", None),
        (3, "added", 10),
        (4, "added", 2),
        (5, "removed", None),
    ]


@pytest.mark.parametrize("start", [2, 3])
def test_a_page_whose_entry_count_alone_changed_is_told_as_that(ten, start):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 15))
    before = ten.snapshot().table("t").pages("n").column("page_id")[-1].as_py()
    hand.recount_last_page(ten, "t", 3)

    told = [row for row in ten.changes(start + 1, 4).to_pylist() if row["version"] == 4]

    assert [row["change"] for row in told] == ["entry_count_changed"] * 2
    assert (told[0]["old_page_id"], told[0]["entry_count"]) == (before, 3)
    assert by_rows(ten, 3, 4) == [("removed", 13, 15)]


def test_a_page_rewritten_with_more_rows_is_replaced(ten):
    hand.replace_tail(ten, "t", 9, {"n": [9, 10], "s": ["a", "b"]}, page_bytes=1 << 16)

    assert kinds(ten, 2, 3) == [(3, "replaced", None), (3, "added", 11)]


def test_a_truncate_removes_every_page_that_was_there(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [4], {"n": [0]})
    pages = ten.snapshot().table("t").pages("n").column("page_id").to_pylist()
    hand.truncate(ten, "t")

    told = ten.changes(3, 4, table="t").to_pylist()

    gone = [row["page_id"] for row in told if row["field_id"] == 1 and row["version"] == 4]
    assert gone == pages


def test_a_table_is_found_by_its_old_name_where_it_is_gone(ten):
    hand.rename(ten, {"t": "u"})

    assert ten.changes(2, 3, table="t").equals(ten.changes(2, 3, table="u"))
    with pytest.raises(TableNotFoundError):
        ten.changes(2, 3, table="v")


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [(4, 2, "start is after end"), (-1, 2, r"-1 .* as start"), (0, -1, r"-1 .* as end")],
)
def test_ends_that_make_no_sense_are_refused(ten, start, end, message):
    with pytest.raises(InvalidInputError, match=message):
        ten.changes(start, end)


def test_a_range_of_one_version_is_the_changes_of_its_commit(ten):
    for first in (10, 20, 30):
        with ten.transaction() as txn:
            txn.append("t", numbers(first, first + 10))

    assert set(ten.changes(4, 4, granularity="pages").column("version").to_pylist()) == {4}
    assert set(ten.changes(4, 4, granularity="rows").column("first_row").to_pylist()) == {20}


@pytest.mark.parametrize("granularity", ["rows", "pages"])
def test_a_range_that_ends_before_it_starts_has_no_changes(ten, granularity):
    assert ten.changes(3, 2, granularity=granularity).num_rows == 0


def test_a_range_from_version_0_has_the_commit_that_made_the_table(ten):
    everything = ten.changes(0, 2, granularity="rows")

    assert everything.select(["change", "first_row", "end_row"]).slice(0, 1).to_pylist() == [
        {"change": "inserted", "first_row": 0, "end_row": 10}
    ]


def test_an_end_that_never_was_is_refused_with_the_range(ten):
    with pytest.raises(VersionNotFoundError, match=r"version 9\b.*end of the changes.* versions 0 to 2"):
        ten.changes(1, 9)


def test_a_grain_that_does_not_exist_is_refused(ten):
    with pytest.raises(InvalidInputError, match="'pages' or 'rows'"):
        ten.changes(1, 1, granularity="row")


def test_any_iterable_of_commits_gives_the_same(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [4], {"n": [0]})
    log = ten._log
    then, now = log.snapshot(1), log.snapshot(3)
    commits = log.commits(2, 4)

    assert row_changes(iter(commits), then, now, None, ten._pages).equals(
        ten.changes(2, 3, granularity="rows")
    )
    assert page_changes(iter(commits), then, None, log.load_manifest).equals(ten.changes(2, 3))


def test_a_splice_that_does_not_say_what_it_touched_touches_all_that_it_puts_in():
    trace = ChainTrace(10)
    trace.splice(Splice(1, 1, 4, (7,), 3, 0, 0, 1, 3, touched=()))

    assert (trace.updated.starts.tolist(), trace.updated.ends.tolist()) == ([4], [7])


def test_memory_follows_what_is_touched_not_how_often(monkeypatch):
    monkeypatch.setattr("spark_pages.changes.row_changes._PENDING_RANGES", 8)
    trace = Changes(lambda _: 100).trace((1, 1))
    for step in range(1000):
        trace.splice(Splice(1, 1, 5, (step,), 1, 0, 0, 1, 1, touched=((5, 6),)))

    assert len(trace._touched._pending) < 10
    assert trace.updated.starts.tolist() == [5]
