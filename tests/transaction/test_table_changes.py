"""Tables dropped, brought back, renamed, emptied and altered, in one transaction with rows or without."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import (
    ColumnNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.store import Store
from tests.invariants import check_nothing_needed_is_gone, check_versions_stay, rows_of

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "s": [str(number) for number in numbers]}, SCHEMA)


@pytest.fixture
def flights(store: Store) -> Store:
    """A store with a table of three rows."""
    with store.transaction() as txn:
        txn.create_table("flights", SCHEMA)
        txn.append("flights", rows(1, 2, 3))
    return store


def values(store: Store, table: str = "flights", **version: int) -> dict[str, list]:
    return store.snapshot(**version).table(table).read().to_pydict()


def live_rows_of_table_zero(store: Store) -> list[tuple]:
    zero = store.snapshot().table("system.catalog")
    found = zero.read(["kind", "table_id", "name", "deleted_by"]).to_pylist()
    return [(r["kind"], r["name"]) for r in found if r["deleted_by"] is None and r["table_id"]]


def check_like_a_newcomer(store: Store) -> None:
    """A process that opens the store, with and without a checkpoint, sees the same."""
    assert rows_of(Store(store.object_store)) == rows_of(store)
    store.checkpoint()
    assert rows_of(Store(store.object_store)) == rows_of(store)
    assert store.verify().ok


# whole tables


def test_a_dropped_table_is_gone_and_earlier_versions_keep_it(flights):
    before = flights.snapshot().version

    with flights.transaction() as txn:
        txn.drop_table("flights")

    assert flights.snapshot().tables() == []
    with pytest.raises(TableNotFoundError):
        flights.snapshot().table("flights")
    assert values(flights, version=before)["n"] == [1, 2, 3]
    assert live_rows_of_table_zero(flights) == []
    check_like_a_newcomer(flights)


def test_a_dropped_table_comes_back_with_its_rows(flights):
    with flights.transaction() as txn:
        txn.drop_table("flights")
    flights.checkpoint()

    with flights.transaction() as txn:
        txn.undrop_table("flights")

    assert values(flights)["n"] == [1, 2, 3]
    assert live_rows_of_table_zero(flights) == [("table", "flights"), ("column", "n"), ("column", "s")]
    check_like_a_newcomer(flights)


def test_of_several_tables_of_a_name_the_one_dropped_last_comes_back(flights):
    with flights.transaction() as txn:
        txn.drop_table("flights")
        txn.create_table("flights", SCHEMA)
        txn.append("flights", rows(9))
    with flights.transaction() as txn:
        txn.drop_table("flights")
    with flights.transaction() as txn:
        txn.undrop_table("flights")
    assert values(flights)["n"] == [9]

    with flights.transaction() as txn:
        txn.rename_table("flights", "newer")
        txn.undrop_table("flights")

    assert (values(flights)["n"], values(flights, "newer")["n"]) == ([1, 2, 3], [9])
    check_like_a_newcomer(flights)


def test_a_column_added_after_a_table_came_back_never_gets_an_id_of_before(flights):
    with flights.transaction() as txn:
        txn.add_column("flights", pa.field("later", pa.int64()), default=5)
    with flights.transaction() as txn:
        txn.drop_column("flights", "later")
    with flights.transaction() as txn:
        txn.drop_table("flights")
    with flights.transaction() as txn:
        txn.undrop_table("flights")
        txn.add_column("flights", pa.field("later", pa.int64()))

    assert values(flights)["later"] == [None] * 3
    assert flights.snapshot().table("flights").definition.field_ids == {"n": 1, "s": 2, "later": 4}


def test_what_was_never_dropped_does_not_come_back(flights):
    with pytest.raises(TableNotFoundError, match="Cannot bring back table 'planes'"):
        flights.transaction().undrop_table("planes")
    with pytest.raises(TableExistsError):
        flights.transaction().undrop_table("flights")


def test_a_renamed_table_keeps_rows_history_and_id(flights):
    before = flights.snapshot()

    with flights.transaction() as txn:
        txn.rename_table("flights", "departures")
        txn.append("departures", rows(4))

    after = flights.snapshot().table("departures")
    assert after.read()["n"].to_pylist() == [1, 2, 3, 4]
    assert after.definition.table_id == before.table("flights").definition.table_id
    assert before.table("flights").num_rows == 3
    assert flights.snapshot().tables() == ["departures"]
    check_like_a_newcomer(flights)


def test_tables_change_names_with_each_other_in_one_transaction(flights):
    with flights.transaction() as txn:
        txn.create_table("planes", SCHEMA)
        txn.append("planes", rows(7))
    with flights.transaction() as txn:
        txn.rename_table("flights", "aside")
        txn.rename_table("planes", "flights")
        txn.rename_table("aside", "planes")

    assert (values(flights)["n"], values(flights, "planes")["n"]) == ([7], [1, 2, 3])
    check_like_a_newcomer(flights)


def test_a_truncated_table_has_the_rows_appended_since(flights):
    before = flights.snapshot().version

    with flights.transaction() as txn:
        txn.append("flights", rows(4))
        txn.truncate_table("flights")
        txn.append("flights", rows(8, 9))

    assert values(flights)["n"] == [8, 9]
    assert values(flights, version=before)["n"] == [1, 2, 3]
    check_like_a_newcomer(flights)


def test_a_name_is_given_once(flights):
    with flights.transaction() as txn:
        txn.create_table("planes", SCHEMA)
        for taken in ("flights", "planes"):
            with pytest.raises(TableExistsError):
                txn.create_table(taken, SCHEMA)
        with pytest.raises(TableExistsError):
            txn.rename_table("flights", "planes")
        txn.drop_table("flights")
        with pytest.raises(TableNotFoundError, match="this transaction has dropped"):
            txn.append("flights", rows(1))
        txn.rename_table("planes", "flights")
        txn.append("flights", rows(5))

    assert flights.snapshot().tables() == ["flights"]
    assert values(flights)["n"] == [5]


def test_a_table_made_and_dropped_by_one_transaction_leaves_nothing(flights):
    with flights.transaction() as txn:
        txn.create_table("a", SCHEMA)
        txn.create_table("b", SCHEMA)
        txn.append("a", rows(1))
        txn.drop_table("a")
        txn.create_table("c", SCHEMA)
        txn.append("c", rows(3))

    assert flights.snapshot().tables() == ["b", "c", "flights"]
    assert (values(flights, "b")["n"], values(flights, "c")["n"]) == ([], [3])


def test_the_catalogs_own_table_stays(flights):
    with flights.transaction() as txn:
        for change in (txn.drop_table, txn.truncate_table):
            with pytest.raises(InvalidInputError, match="the store's own"):
                change("system.catalog")
        with pytest.raises(InvalidInputError, match="the store's own"):
            txn.rename_table("flights", "system.flights")


# columns


@pytest.mark.parametrize("default", [None, 5])
def test_a_new_column_has_one_value_in_all_rows_and_no_page_is_written_for_them(flights, default):
    files = len(flights.object_store.list("pages/"))

    with flights.transaction() as txn:
        txn.append("flights", rows(4))
        txn.add_column("flights", pa.field("delay", pa.int32()), default=default)
        txn.append("flights", rows(6).append_column("delay", pa.array([60], pa.int32())))

    assert values(flights)["delay"] == [default] * 4 + [60]
    assert flights.snapshot().table("flights").take([5 - 1, 0], ["delay"])["delay"].to_pylist() == [
        60,
        default,
    ]
    assert len(flights.object_store.list("pages/")) == files
    check_like_a_newcomer(flights)


def test_a_new_column_of_a_large_table_is_cut_into_pages_that_are_quick_to_read(flights):
    many = 200_000
    with flights.transaction() as txn:
        txn.append("flights", pa.table({"n": range(many), "s": ["x"] * many}, SCHEMA))
    with flights.transaction() as txn:
        txn.add_column("flights", pa.field("delay", pa.int64(), nullable=False), default=1)

    table = flights.snapshot().table("flights")
    assert table.pages("delay")["entry_count"].to_pylist() == [65_536] * 3 + [many + 3 - 3 * 65_536]
    assert table.read(["delay"], filter=[("n", "==", 150_000)])["delay"].to_pylist() == [1]


def test_a_column_that_may_not_be_null_needs_a_default_where_there_are_rows(flights):
    column = pa.field("delay", pa.int64(), nullable=False)
    with flights.transaction() as txn:
        with pytest.raises(SchemaMismatchError, match="3 rows have no value"):
            txn.add_column("flights", column)
        with pytest.raises(SchemaMismatchError, match="as default of column"):
            txn.add_column("flights", column, default="late")
        txn.truncate_table("flights")
        txn.add_column("flights", column)
        with pytest.raises(SchemaMismatchError):
            txn.append("flights", rows(1))
        txn.append("flights", rows(1).append_column(column, pa.array([2], pa.int64())))

    assert values(flights) == {"n": [1], "s": ["1"], "delay": [2]}


def test_a_dropped_column_is_gone_and_earlier_versions_keep_it(flights):
    before = flights.snapshot().version

    with flights.transaction() as txn:
        txn.append("flights", rows(4))
        txn.drop_column("flights", "s")
        txn.append("flights", rows(5).select(["n"]))

    assert values(flights) == {"n": [1, 2, 3, 4, 5]}
    assert values(flights, version=before)["s"] == ["1", "2", "3"]
    with pytest.raises(InvalidInputError, match=r"Cannot drop column .* the only one"):
        flights.transaction().drop_column("flights", "n")
    check_like_a_newcomer(flights)


def test_a_renamed_column_keeps_its_values_and_updates_staged_before(flights):
    with flights.transaction() as txn:
        txn.update_rows("flights", [1], {"s": ["two"]})
        txn.rename_column("flights", "s", "text")
        txn.update_rows("flights", [2], {"text": ["three"]})

    assert values(flights) == {"n": [1, 2, 3], "text": ["1", "two", "three"]}
    with pytest.raises(ColumnNotFoundError):
        flights.transaction().rename_column("flights", "s", "t")
    with pytest.raises(InvalidInputError, match="one of that name"):
        flights.transaction().rename_column("flights", "n", "text")
    check_like_a_newcomer(flights)


def test_properties_of_a_table_are_set_and_taken_away(flights):
    with flights.transaction() as txn:
        txn.set_table_properties("flights", {"owner": "etl", "codec": "none"})
    with flights.transaction() as txn:
        txn.set_table_properties("flights", {"codec": None})

    assert flights.snapshot().table("flights").definition.properties == {"owner": "etl"}


# with others


def test_a_transaction_reads_the_tables_that_it_has_changed(flights):
    txn = flights.transaction()
    txn.rename_table("flights", "departures")
    txn.add_column("departures", pa.field("delay", pa.int64()), default=0)

    assert txn.table("departures").read().to_pydict()["delay"] == [0, 0, 0]
    txn.rollback()
    assert flights.snapshot().tables() == ["flights"]


def test_changes_of_different_tables_never_conflict_and_the_catalog_tells_of_both(flights):
    with flights.transaction() as txn:
        txn.create_table("planes", SCHEMA)
    one, two = flights.transaction(), Store(flights.object_store).transaction()
    one.rename_column("flights", "s", "text")
    two.rename_column("planes", "s", "text")
    two.create_table("airports", SCHEMA)

    one.commit()
    two.commit()

    assert [name for kind, name in live_rows_of_table_zero(flights) if kind == "column"] == [
        "n",
        "text",
    ] * 2 + ["n", "s"]
    check_like_a_newcomer(flights)


def test_versions_stay_readable_over_changes_of_tables_compaction_and_vacuum(flights):
    history = {}

    def note():
        history[flights.snapshot().version] = rows_of(flights)

    note()
    for change in (
        lambda txn: txn.add_column("flights", pa.field("delay", pa.int64()), default=1),
        lambda txn: txn.append("flights", rows(5)),
        lambda txn: txn.rename_table("flights", "old"),
        lambda txn: txn.create_table("flights", SCHEMA),
        lambda txn: txn.append("flights", rows(6, 7)),
        lambda txn: txn.drop_table("old"),
        lambda txn: txn.drop_column("flights", "s"),
        lambda txn: txn.truncate_table("flights"),
    ):
        with flights.transaction() as txn:
            change(txn)
        note()
        if flights.snapshot().version % 3 == 0:
            flights.checkpoint()
    flights.vacuum(retention=4)
    note()

    check_versions_stay(flights.object_store, history)
    check_nothing_needed_is_gone(flights.object_store)
    flights.restore(version=min(v for v in history if v > flights.snapshot().version - 4))
    check_like_a_newcomer(flights)


def test_restore_undoes_changes_of_tables(flights):
    before = flights.snapshot().version
    with flights.transaction() as txn:
        txn.truncate_table("flights")
        txn.add_column("flights", pa.field("delay", pa.int64()))
        txn.rename_table("flights", "departures")
        txn.create_table("flights", SCHEMA)

    flights.restore(version=before)

    assert rows_of(flights) == {"flights": flights.snapshot(version=before).table("flights").read()}
    check_like_a_newcomer(flights)


def test_a_new_column_of_an_unaligned_table_is_as_long_as_its_shortest_one(flights):
    with flights.transaction() as txn:
        txn.create_table("loose", SCHEMA, aligned=False)
        txn.append("loose", rows(1, 2).select(["n"]))
        txn.append("loose", rows(1).select(["s"]))
    with flights.transaction() as txn:
        txn.add_column("loose", pa.field("more", pa.int64()), default=3)

    assert values(flights, "loose") == {"n": [1], "s": ["1"], "more": [3]}
