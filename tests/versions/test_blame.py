"""Blame: which commit wrote a row."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from spark_pages.errors import ColumnNotFoundError, RowDeletedError, RowOutOfRangeError, TableNotFoundError
from spark_pages.format.commit import encode_tombstone
from spark_pages.format.names import commit_key
from spark_pages.model.actions import COMMITTED, Tombstone
from spark_pages.runtime import writer_name
from spark_pages.store import Store
from spark_pages.transaction import deleted_rows as deleted_rows_module
from tests.transaction.stores import LOOKS, metered, reads_and_looks, store_with
from tests.versions import hand
from tests.versions.hand import numbers


@pytest.fixture
def ten() -> Store:
    """Rows 0 to 9 of version 2; row 3 of ``n`` is of version 3, rows 10 to 14 are of version 4."""
    store = store_with(numbers(0, 10))
    with store.transaction(operation="correct") as txn:
        txn.update_rows("t", [3], {"n": [0]})
    with store.transaction(operation="more") as txn:
        txn.append("t", numbers(10, 15))
    return store


def versions(store: Store, column: str = "n") -> list[int]:
    rows = store.snapshot().table("t").num_rows
    found = [store.blame("t", column, row) for row in range(rows)]
    assert all(each.exact for each in found)
    return [each.version for each in found]


OF_N, OF_S = [2] * 3 + [3] + [2] * 6 + [4] * 5, [2] * 10 + [4] * 5


def test_each_row_is_told_with_the_commit_that_wrote_it(ten):
    found = ten.blame("t", "n", 3)

    assert (found.version, found.operation, found.exact) == (3, "correct", True)
    assert (found.writer, found.timestamp) == (writer_name(), ten.snapshot(version=3).timestamp)
    assert str(found) == f"version 3: correct by {writer_name()}"
    assert (versions(ten), versions(ten, "s")) == (OF_N, OF_S)


def test_compactions_and_checkpoints_do_not_count(ten):
    ten.compact_pages("t")
    ten.checkpoint()
    with ten.transaction() as txn:
        txn.append("t", numbers(15, 16))
    ten.compact_pages("t")
    assert ten.snapshot().table("t").pages().num_rows == 2

    late = Store(ten.object_store)

    assert versions(late) == [*OF_N, txn.version]
    assert versions(late, "s") == [*OF_S, txn.version]


def test_a_restore_wrote_the_rows_that_it_brought_back_and_no_others(ten):
    restored = ten.restore(version=2)

    assert versions(ten) == [2] * 3 + [restored] + [2] * 6
    assert versions(ten, "s") == [2] * 10


def test_a_restore_wrote_the_rows_that_had_gone_beside_those_that_had_changed(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [2], {"n": [0]})
    hand.replace_tail(ten, "t", 6, {"n": [], "s": []})

    restored = ten.restore(version=2)

    assert versions(ten) == [2, 2, restored, restored, 2, 2] + [restored] * 4
    assert versions(ten, "s") == [2] * 6 + [restored] * 4


def test_an_append_that_landed_behind_another_wrote_its_own_rows(ten):
    late, early = ten.transaction(), ten.transaction()
    late.append("t", numbers(20, 22))
    early.append("t", numbers(15, 16))
    assert (early.commit(), late.commit()) == (5, 6)

    assert versions(ten)[14:] == [4, 5, 6, 6]


def test_rows_in_any_of_the_pages_of_a_large_append_are_its_own():
    store = store_with(numbers(0, 10), numbers(10, 60_000))

    found = [store.blame("t", "n", row).version for row in (9, 10, 30_000, 59_999)]

    assert found == [2, 3, 3, 3]


def test_several_splices_of_one_chain_in_one_commit_are_told_apart(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(15, 17))
        txn.append("t", numbers(17, 18))
    with ten.transaction() as txn:
        txn.update_rows("t", [0, 12], {"n": [7, 7]})

    assert versions(ten) == [6, *OF_N[1:12], 6, *OF_N[13:], 5, 5, 5]


def test_a_tail_that_was_rewritten_keeps_the_writers_of_the_rows_it_kept(ten):
    hand.replace_tail(ten, "t", 12, {"n": [1, 2], "s": ["a", "b"]})

    assert versions(ten) == [*OF_N[:12], 5, 5]


def test_a_row_that_nobody_compacted_costs_one_commit(ten):
    for _ in range(20):
        with ten.transaction() as txn:
            txn.append("t", numbers(0, 1))
    ten.checkpoint()
    late, meter = metered(ten)
    late.snapshot().table("t").take([3])
    before, looks = meter.counts, len(meter.looked_for)

    assert late.blame("t", "n", 3).version == 3
    read = Counter((meter.counts - before).keys) - Counter(meter.looked_for[looks:])
    assert [key for key in read if "/checkpoints/" not in key] == [commit_key(3)]


def test_an_update_of_other_rows_of_its_page_costs_one_commit_more_and_no_snapshot(ten):
    for value in range(20):
        with ten.transaction() as txn:
            txn.update_rows("t", [0, 1], {"n": [value, value]})
    late, meter = metered(ten)
    head = late.snapshot()
    before, looks = meter.counts, len(meter.looked_for)

    assert late.blame("t", "n", 5).version == 2
    assert late.blame("t", "n", 1).version == head.version
    commits = [commit_key(version) for version in range(2, head.version + 1)]
    read = Counter((meter.counts - before).keys) - Counter(meter.looked_for[looks:])
    assert set(read) <= set(commits)
    assert read.total() <= len(commits) + 1


def test_rows_of_pages_that_were_spliced_in_one_commit_are_told_without_a_snapshot():
    store = store_with(numbers(0, 400_000))
    rows = [0, 100_000, 200_000, 300_000]
    with store.transaction() as txn:
        txn.update_rows("t", rows, {"n": rows})
    (commit,) = store._log.commits(txn.version, txn.version + 1)
    assert len(commit.records[0].splices) > 2
    late, meter = metered(store)
    late.snapshot()
    before = meter.counts

    found = [late.blame("t", "n", row).version for row in (100_000, 100_001)]

    assert found == [txn.version, 2]
    reads, looks = reads_and_looks(meter.counts - before)
    assert reads <= 3
    assert looks == 2 * LOOKS


def test_where_the_commit_was_cleaned_away_a_version_at_or_before_is_told(ten):
    checkpoint = ten.checkpoint()
    (second,) = ten._log.commits(2, 3)
    hand.retain(ten, 4)
    tombstone = Tombstone(
        second.version,
        second.timestamp_us,
        second.token,
        second.digest,
        tuple((record.token, COMMITTED) for record in second.records),
        checkpoint,
    )
    ten.object_store.put(commit_key(2), encode_tombstone(tombstone)[0])
    late = Store(ten.object_store)

    found = late.blame("t", "s", 5)

    assert (found.version, found.exact, found.operation, found.writer) == (2, False, None, None)
    assert found.timestamp == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=second.timestamp_us)
    assert str(found) == "at or before version 2"
    assert late.blame("t", "n", 3).exact


def test_a_compaction_behind_which_nothing_can_be_read_gives_the_version_before_it(ten):
    (compacted,) = (done["version"] for done in ten.compact_pages("t"))
    ten.checkpoint()
    hand.retain(ten, compacted)
    late = Store(ten.object_store)

    found = late.blame("t", "n", 3)

    assert (found.version, found.exact) == (compacted - 1, False)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("u", "n", 0), TableNotFoundError),
        (("t", "m", 0), ColumnNotFoundError),
        (("t", "n", 15), RowOutOfRangeError),
        (("t", "n", -1), RowOutOfRangeError),
    ],
)
def test_what_is_not_there_is_refused_by_name(ten, given, error):
    told = rf"Cannot find row {given[2]} of column 'n' of table 't'" if error is RowOutOfRangeError else None

    with pytest.raises(error, match=told):
        ten.blame(*given)


def deleted_rows_store() -> Store:
    store = store_with(pa.table({"n": range(100)}))
    with store.transaction(operation="correct") as txn:
        txn.update_rows("t", [3], {"n": [-3]})
    with store.transaction(operation="forget") as txn:
        txn.delete("t", [3, 50])
    with store.transaction(operation="forget more") as txn:
        txn.delete("t", [4, 60])
    store.compact_pages("t", purge=True)
    return store


def test_blame_of_a_deleted_row_names_writer_and_deleter():
    store = deleted_rows_store()

    found = store.blame("t", "n", 3)

    assert (found.version, found.operation) == (3, "correct")
    assert found.deleted_by is not None
    assert (found.deleted_by.version, found.deleted_by.operation) == (4, "forget")
    assert str(found).startswith("version 3: correct by ")
    assert "; deleted version 4: forget by " in str(found)
    assert store.blame("t", "n", 5).deleted_by is None


def test_a_read_of_a_deleted_row_names_the_version_and_operation_that_deleted_it():
    table = deleted_rows_store().snapshot().table("t")

    for row, version, operation in ((3, 4, "forget"), (50, 4, "forget"), (60, 5, "forget more")):
        with pytest.raises(
            RowDeletedError, match=f"in version {version} by operation '{operation}'"
        ) as caught:
            table.take([row])
        assert caught.value.context["version"] == version


def test_a_coarsened_delete_is_not_blamed_for_rows_that_were_dead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deleted_rows_module, "MOST_RANGES", 1)
    store = store_with(pa.table({"n": range(100)}))
    for rows in ([3, 50], [10, 20, 30]):
        with store.transaction() as txn:
            txn.delete("t", rows)

    assert store.blame("t", "n", 50).deleted_by.version == 3
    assert store.blame("t", "n", 20).deleted_by.version == 4


def test_a_read_of_a_row_whose_deletion_was_cleaned_away_names_a_version_before():
    store = deleted_rows_store()
    store.vacuum(retention=1)

    with pytest.raises(RowDeletedError, match=r"in version [0-9]+ or before"):
        store.snapshot().table("t").take([3])
    assert not store.blame("t", "n", 3).exact
