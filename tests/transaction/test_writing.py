from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages import store as store_module
from spark_pages.errors import (
    CommitConflictError,
    InvalidInputError,
    RowOutOfRangeError,
    SchemaMismatchError,
    StorageError,
    StoreExistsError,
    StoreNotFoundError,
    TableExistsError,
)
from spark_pages.model.page import PageKind
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.invariants import check_store
from tests.transaction.stores import store_with

TABLE = pa.table({"n": pa.array([1, 2, 3]), "s": pa.array(["a", None, "c"])})
KEYED = pa.table({"n": [1, 2]}, pa.schema([pa.field("n", pa.int64(), nullable=False)]))


def column(store: Store, name: str = "n", version: int | None = None) -> list[object]:
    return store.snapshot(version=version).table("t").read([name]).column(0).to_pylist()


def test_the_last_value_given_for_a_row_wins_and_older_versions_keep_theirs():
    store = store_with(TABLE, TABLE)

    with store.transaction() as txn:
        txn.update_rows("t", [4, 0, 4], {"n": [10, 20, 30]})
        txn.update_rows("t", [0], {"n": [40]})

    assert column(store) == [40, 2, 3, 1, 30, 3]
    assert column(store, version=txn.version - 1) == [1, 2, 3, 1, 2, 3]
    check_store(store)


def test_a_table_under_two_spellings_of_its_name_is_one_table():
    store = store_with(TABLE)

    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [10]})
        txn.update_rows("default.t", [1], {"n": [20]})

    assert column(store) == [10, 20, 3]
    check_store(store)


def test_a_name_is_given_once_whatever_its_spelling(store):
    txn = store.transaction()
    txn.create_table("default.x", TABLE.schema)

    with pytest.raises(TableExistsError):
        txn.create_table("x", TABLE.schema)

    txn.append("x", TABLE)
    txn.commit()
    assert store.snapshot().table("default.x").num_rows == 3


def test_append_and_update_of_one_transaction_do_not_disturb_each_other():
    store = store_with(TABLE)

    with store.transaction() as txn:
        txn.append("t", TABLE)
        txn.update_rows("t", [1], {"s": ["new"]})

    assert column(store, "s") == ["a", "new", "c", "a", None, "c"]
    check_store(store)


def test_null_may_be_written_over_a_value():
    store = store_with(TABLE)

    with store.transaction() as txn:
        txn.update_rows("t", [0, 2], {"s": [None, None]})

    assert column(store, "s") == [None, None, None]


@pytest.mark.parametrize("rows", [[3], [-1]])
def test_a_row_that_is_not_there_cannot_be_updated(rows):
    txn = store_with(TABLE).transaction()

    with pytest.raises(RowOutOfRangeError):
        txn.update_rows("t", rows, {"n": [0]})


def test_as_many_values_as_rows_are_needed():
    with pytest.raises(InvalidInputError, match="2 rows but 1 values"):
        store_with(TABLE).transaction().update_rows("t", [0, 1], {"n": [5]})


def test_an_update_of_no_rows_changes_nothing():
    store = store_with(TABLE)

    with store.transaction() as txn:
        txn.update_rows("t", [], {"n": []})

    assert column(store) == [1, 2, 3]


def test_a_missing_nullable_column_is_a_constant_of_null():
    store = store_with(TABLE)

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4, 5]}))

    page = store.snapshot().table("t").directory.latest("s")
    assert column(store, "s") == ["a", None, "c", None, None]
    assert (page.kind, page.entry_count) == (PageKind.CONSTANT, 2)
    check_store(store)


def test_a_constant_page_can_be_updated():
    store = store_with(TABLE)
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4, 5]}))

    with store.transaction() as txn:
        txn.update_rows("t", [4], {"s": ["e"]})

    assert column(store, "s") == ["a", None, "c", None, "e"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"n": [1], "nn": [1]}, "no column 'nn'"),
        ({"n": ["x"]}, "do not fit"),
        ({"n": [1.5]}, "do not fit"),
        ({"s": ["x"]}, "missing and not nullable"),
        ({"n": pa.array([None], pa.int64())}, "not nullable"),
    ],
)
def test_data_that_does_not_fit_the_schema_is_refused_and_nothing_is_written(data, message):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
    store = store_with(schema=schema)
    before = store.object_store.list("")

    with pytest.raises(SchemaMismatchError, match=message), store.transaction() as txn:
        txn.append("t", pa.table(data))

    assert store.snapshot().version == 1
    assert [each.key for each in store.object_store.list("")] == [each.key for each in before]


def test_an_exception_in_the_block_leaves_nothing():
    store = store_with(TABLE)
    before = [each.key for each in store.object_store.list("")]

    with pytest.raises(ZeroDivisionError), store.transaction() as txn:  # noqa: PT012 - the block fails as a whole
        txn.append("t", TABLE)
        txn.create_table("u", TABLE.schema)
        raise ZeroDivisionError

    assert [each.key for each in store.object_store.list("")] == before
    assert store.snapshot().tables() == ["t"]
    with pytest.raises(InvalidInputError, match=r"has ended\. Open another"):
        txn.append("t", TABLE)


def test_a_transaction_without_changes_commits_nothing():
    store = store_with(TABLE)

    with store.transaction() as txn:
        pass

    assert txn.version == store.snapshot().version == 2


def test_the_same_application_version_lands_once():
    store = store_with(TABLE)
    versions = []

    for app_version in (1, 1, 2, 1, 2):
        with store.transaction(app_id="etl", app_version=app_version) as txn:
            txn.append("t", pa.table({"n": [app_version]}))
        versions.append(txn.version)

    assert column(store) == [1, 2, 3, 1, 2]
    assert versions == [3, 3, 4, 3, 4]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_older_number_of_an_application_is_found_where_it_landed_or_refused(checkpoint):
    store = store_with(TABLE)
    for app_version in (10, 20, 30):
        with store.transaction(app_id="etl", app_version=app_version) as txn:
            txn.append("t", TABLE)
        for _ in range(20):
            with store.transaction(app_id="other", app_version=store.snapshot().version) as txn:
                txn.append("t", TABLE)
    if checkpoint:
        store.checkpoint()
        store.compact_log()
    store = Store(store.object_store)
    before = store.snapshot().version

    def again(number):
        txn = store.transaction(app_id="etl", app_version=number)
        txn.append("t", TABLE)
        return txn.commit()

    assert [again(number) for number in (10, 20, 30)] == [3, 24, 45]
    for passed_over in (5, 15, 29):
        with pytest.raises(
            InvalidInputError, match=f"Cannot commit number {passed_over} of application 'etl'"
        ):
            again(passed_over)
    store.vacuum(retention=1)
    assert again(30) == 45
    for number in (10, 15):  # the second one never landed, and nothing tells that any more
        txn = store.transaction(app_id="etl", app_version=number)
        txn.append("t", TABLE)
        assert (txn.commit(), txn.version_is_exact) == (45, False)
    assert store.snapshot().table("t").num_rows == (1 + 3 * 21) * 3
    assert all(
        row["app_id"] is None for row in store.history(limit=store.snapshot().version - before).to_pylist()
    )


@pytest.mark.parametrize("rows", [None, TABLE.slice(0, 0)])
def test_a_number_with_which_nothing_was_written_has_landed_all_the_same(rows):
    store = store_with(TABLE)
    with store.transaction(app_id="etl", app_version=1) as nothing:
        if rows is not None:
            nothing.append("t", rows)

    with store.transaction(app_id="etl", app_version=1) as again:
        again.append("t", TABLE)

    assert (nothing.version, again.version) == (3, 3)
    assert len(column(store)) == 3
    check_store(store)


def test_an_older_number_that_is_committed_beside_a_newer_one_learns_that_it_came_too_late():
    store = store_with(TABLE)
    first, second = (store.transaction(app_id="etl", app_version=number) for number in (1, 2))
    first.append("t", TABLE)
    second.append("t", TABLE)
    second.commit()

    with pytest.raises(InvalidInputError, match="Cannot commit number 1 of application 'etl'"):
        first.commit()
    assert len(column(store)) == 6


def test_two_open_transactions_of_the_same_application_version_land_once():
    store = store_with(TABLE)
    first, second = (store.transaction(app_id="etl", app_version=7) for _ in range(2))
    first.append("t", TABLE)
    second.append("t", TABLE)

    assert first.commit() == second.commit() == 3
    assert len(column(store)) == 6


def _makes_a_table(txn: Transaction) -> None:
    txn.create_table("u", TABLE.schema)
    txn.append("u", TABLE)


def _begins_anew(txn: Transaction) -> None:
    txn.truncate_table("t")
    txn.append("t", TABLE)


def _adds_to_what_it_has_read(txn: Transaction) -> None:
    txn.append("t", txn.table("t").read())


@pytest.mark.parametrize(
    ("does", "isolation"),
    [
        (lambda txn: txn.update_rows("t", [1], {"n": [20]}), "snapshot"),
        (lambda txn: txn.append("keyed", KEYED), "snapshot"),
        (_makes_a_table, "snapshot"),
        (_begins_anew, "snapshot"),
        (_adds_to_what_it_has_read, "serializable"),
    ],
    ids=["update", "primary keys", "create", "truncate", "serializable"],
)
@pytest.mark.parametrize("is_passed", [False, True], ids=["", "and a vacuum"])
def test_who_meets_itself_brought_by_another_process_is_told_where_that_landed(does, isolation, is_passed):
    store = store_with(TABLE)
    with store.transaction() as txn:
        txn.create_table("keyed", KEYED.schema)
        txn.add_constraint("keyed", "key", primary_key=["n"])
    other = Store(store.object_store)
    once, again = (
        each.transaction(app_id="etl", app_version=7, isolation=isolation) for each in (other, store)
    )
    does(once)
    does(again)

    landed = once.commit()
    if is_passed:
        other.vacuum(retention=1)

    assert again.commit() == again.version == landed
    assert [row["app_version"] for row in store.history().to_pylist()].count(7) <= 1
    assert store.verify("all").ok


def test_exactly_once_survives_a_checkpoint():
    store = store_with(TABLE)
    for _ in range(2):
        with store.transaction(app_id="etl", app_version=7) as txn:
            txn.append("t", TABLE)
        store.checkpoint()
        store = Store(store.object_store)

    assert len(column(store)) == 6


def test_updates_of_the_same_row_conflict_and_those_of_others_do_not():
    store = store_with(TABLE, TABLE)
    first, second, third, fourth = (store.transaction() for _ in range(4))
    first.update_rows("t", [0], {"n": [10]})
    second.update_rows("t", [0, 1], {"n": [20, 21]})
    third.update_rows("t", [5], {"n": [30]})
    fourth.update_rows("t", [2], {"n": [40]})

    first.commit()
    third.commit()
    with pytest.raises(CommitConflictError, match="both replace 1 page"):
        second.commit()
    fourth.commit()

    assert column(store) == [10, 2, 40, 1, 2, 30]
    check_store(store)


def test_tables_created_side_by_side_get_their_own_numbers():
    store = store_with(TABLE)
    first, second = store.transaction(), store.transaction()
    for txn, name in ((first, "x"), (second, "y")):
        txn.create_table(name, TABLE.schema)
        txn.append(name, TABLE.slice(0, 2 if name == "x" else 1))

    first.commit()
    second.commit()

    snapshot = check_store(store)
    assert [d.name for d in snapshot.tables()] == ["catalog", "t", "x", "y"]
    assert [store.snapshot().table(name).num_rows for name in ("x", "y")] == [2, 1]


def test_serializable_isolation_refuses_an_append_after_another():
    store = store_with(TABLE)
    txn = store.transaction(isolation="serializable")
    txn.append("t", TABLE)
    with store.transaction() as other:
        other.append("t", TABLE)

    with pytest.raises(CommitConflictError, match="serializable"):
        txn.commit()


def test_small_appends_ride_in_the_commit_and_large_ones_in_a_page_file():
    many = np.random.default_rng(1).integers(-(2**60), 2**60, 100_000)  # that no codec makes small
    store = store_with(TABLE, pa.table({"n": many}, schema=TABLE.schema.remove(1)))

    pages = store.snapshot().table("t").directory.chain("n").all_pages()

    kinds = pages.numbers("kind").tolist()
    assert kinds[0] == PageKind.INLINE
    assert set(kinds[1:]) == {PageKind.FILE}
    assert len(store.object_store.list("pages/")) == 1


def test_a_transaction_of_many_pages_lists_them_in_a_manifest():
    store = store_with(TABLE)
    txn = store.transaction()
    txn._page_bytes = 16
    txn.create_table("u", pa.schema([("n", pa.int64())]))
    txn.append("u", pa.table({"n": list(range(10_000))}))
    txn.append("t", TABLE)

    txn.commit()

    assert len(store.object_store.list("_log/manifests/")) == 1
    assert len(store.object_store.get(f"_log/{txn.version:020d}.avro")) < 20_000
    assert store.snapshot().table("u").read().column(0).to_pylist() == list(range(10_000))
    check_store(store)
    store.checkpoint()
    check_store(Store(store.object_store))


def test_page_compaction_keeps_rows_and_readers_of_older_versions():
    store = store_with(*[TABLE] * 6)
    before = store.snapshot().table("t")
    rows = before.read()

    store.compact_pages()

    after = store.snapshot().table("t")
    assert after.directory.chain("n").num_pages == 1
    assert after.read().equals(rows)
    assert before.read().equals(rows)
    assert all(not changed for changed in store.changes(8, 8).column("data_change").to_pylist())
    check_store(store)


def test_a_store_is_made_once_and_opened_only_where_there_is_one(url):
    first = store_module.create(url)

    with pytest.raises(StoreNotFoundError):
        store_module.open(url + "other")
    with pytest.raises(StoreExistsError):
        Store(first.object_store)._log.create(lambda _: store_module.first_record(first._runtime, {}))


def test_a_table_is_rows_to_whoever_takes_arrow_and_so_to_another_table(store):
    with store.transaction() as txn:
        txn.create_table("t", TABLE.schema)
        txn.create_table("copy", TABLE.schema)
        txn.append("t", TABLE)
    table = store.snapshot().table("t")

    with store.transaction() as txn:
        txn.append("copy", table)

    assert pa.table(table).equals(TABLE)
    assert store.snapshot().table("copy").read().equals(TABLE)


def test_a_store_that_cannot_be_made_where_it_should_be_is_told_why_and_not_called_one_that_is_there(
    tmp_path,
):
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(StorageError, match="Not a directory"):
        store_module.create(str(tmp_path / "file" / "store"))

    assert (tmp_path / "file").read_text() == "no folder"


def test_a_row_that_is_not_there_is_told_with_its_column_and_table(store):
    with store.transaction() as txn:
        txn.create_table("t", TABLE.schema)
        txn.append("t", TABLE)
    directory = store.snapshot().table("t").directory
    told = rf"Cannot find row 1000 of column 'n' of table 't': it has {TABLE.num_rows} rows"

    with pytest.raises(RowOutOfRangeError, match=told):
        directory.locate_row("n", 1000)
    with pytest.raises(RowOutOfRangeError, match=rf"{told}|Cannot find row 1000 of table 't'"):
        directory.locate_rows("n", [0, 1000])
    with pytest.raises(RowOutOfRangeError, match=told), store.transaction() as txn:
        txn.update_rows("t", [0, 1000], {"n": [1, 2]})


def test_columns_of_a_table_that_is_not_aligned_may_differ_in_length(store):
    with store.transaction() as txn:
        txn.create_table("u", TABLE.schema, aligned=False)
        txn.append("u", pa.table({"n": [1, 2]}))
    with store.transaction() as txn:
        txn.append("u", pa.table({"s": ["x"]}))

    table = store.snapshot().table("u")
    assert table.num_rows == 1
    assert table.directory.chain("n").num_rows == 2
    assert table.read().to_pydict() == {"n": [1], "s": ["x"]}


def test_history_tells_each_transaction_newest_first():
    store = store_with(TABLE, TABLE)

    history = store.history().to_pylist()

    assert [row["version"] for row in history] == [3, 2, 1, 0]
    assert [row["rows_added"] for row in history] == [3, 3, 0, 0]
    assert [row["tables_created"] for row in history] == [0, 0, 1, 0]
    assert store.history(limit=1).num_rows == 1
