"""Constraints: what is checked when they are added, at every commit, and while others write."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import (
    CommitConflictError,
    ConstraintError,
    InvalidInputError,
    SchemaMismatchError,
    TableNotFoundError,
)
from spark_pages.io import ReadTrace
from spark_pages.model.page import PendingPage
from spark_pages.store import Store
from tests.invariants import check_table_zero

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("low", pa.int64()), ("high", pa.int64())])


@pytest.fixture
def keyed(store: Store) -> Store:
    """A table with a key and a check over two columns, and 100,000 rows in several pages."""
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", {"n": range(100_000), "low": [1] * 100_000, "high": [2] * 100_000})
        txn.add_constraint("t", "pk", primary_key=["n"])
        txn.add_constraint("t", "ordered", check="low <= high")
    return store


def rows(n: list[int], low: list[int | None], high: list[int | None]) -> dict[str, pa.Array]:
    return {name: pa.array(each, pa.int64()) for name, each in zip(SCHEMA.names, (n, low, high), strict=True)}


# checks


def test_rows_that_break_a_check_are_not_appended_and_unknown_ones_pass(keyed):
    txn = keyed.transaction()
    with pytest.raises(ConstraintError, match=r"1 of them break .* 'ordered': low <= high.*number 1 of them"):
        txn.append("t", rows([100_000, 100_001], [1, 3], [1, 2]))
    txn.append("t", rows([100_002], [None], [0]))

    txn.commit()

    assert keyed.snapshot().table("t").num_rows == 100_001


def test_an_update_is_checked_with_what_the_row_holds_otherwise(keyed):
    with pytest.raises(ConstraintError, match="'low': 3, 'high': 2"), keyed.transaction() as txn:
        txn.update_rows("t", [5], {"low": [3]})
    with keyed.transaction() as txn:
        txn.update_rows("t", [5, 6], {"low": [3, 1]})
        txn.update_rows("t", [5], {"high": [3]})

    assert keyed.snapshot().table("t").take([5, 6]).to_pylist() == [
        {"n": 5, "low": 3, "high": 3},
        {"n": 6, "low": 1, "high": 2},
    ]


def test_two_updates_that_together_break_a_check_do_not_both_happen(keyed):
    one, two = keyed.transaction(), Store(keyed.object_store).transaction()
    one.update_rows("t", [5], {"low": [2]})
    two.update_rows("t", [5], {"high": [1]})

    one.commit()

    with pytest.raises(CommitConflictError, match="relies"):
        two.commit()


def test_a_check_that_rows_break_is_not_added(keyed):
    with pytest.raises(ConstraintError, match=r"1 rows break n < 99999; the first has \{'n': 99999\}"):
        keyed.transaction().add_constraint("t", "small", check="n < 99999")
    with keyed.transaction() as txn:
        txn.add_constraint("t", "small", check="n < 200000")

    with pytest.raises(ConstraintError, match="'small'"):
        keyed.transaction().append("t", rows([200_000], [1], [1]))


def test_a_check_that_statistics_prove_reads_no_page(keyed):
    keyed.checkpoint()
    other = Store(keyed.object_store)
    txn = other.transaction()
    txn.table("t")
    before = other.cache_stats.requests

    txn.add_constraint("t", "small", check="n < 200000")

    assert other.cache_stats.requests == before


def test_a_check_holds_its_columns_and_the_key_does_not_hold_their_names(keyed):
    for change in (
        lambda txn: txn.drop_column("t", "low"),
        lambda txn: txn.rename_column("t", "low", "least"),
        lambda txn: txn.drop_column("t", "n"),
    ):
        with pytest.raises(InvalidInputError, match="Drop the constraint first"):
            change(keyed.transaction())

    with keyed.transaction() as txn:
        txn.rename_column("t", "n", "number")
        txn.drop_constraint("t", "ordered")
        txn.drop_column("t", "low")

    with pytest.raises(ConstraintError, match="'number': 7"), keyed.transaction() as txn:
        txn.append("t", {"number": [7]})
    with pytest.raises(InvalidInputError, match="drop constraint 'ordered' of 't': it has 'pk'"):
        keyed.transaction().drop_constraint("t", "ordered")
    check_table_zero(keyed)


# the primary key


def test_a_key_that_is_there_is_not_there_twice(keyed):
    for numbers in ([5], [100_000, 100_000], [100_001, 99_999]):
        with pytest.raises(ConstraintError, match="primary key"), keyed.transaction() as txn:
            txn.append("t", rows(numbers, [None] * len(numbers), [None] * len(numbers)))
    assert keyed.snapshot().table("t").num_rows == 100_000

    with keyed.transaction() as txn:
        txn.append("t", rows([100_000], [1], [1]))
        txn.append("t", rows([-1], [1], [1]))
    assert keyed.snapshot().table("t").num_rows == 100_002


def test_updates_of_keys_are_compared_too(keyed):
    with pytest.raises(ConstraintError, match="primary key"), keyed.transaction() as txn:
        txn.update_rows("t", [5], {"n": [6]})
    with keyed.transaction() as txn:
        txn.update_rows("t", [5, 6], {"n": [6, 5]})
        txn.update_rows("t", [7], {"n": [1 << 40]})
        txn.append("t", rows([7], [1], [1]))

    assert keyed.snapshot().table("t").take([5, 6, 7, 100_000], ["n"])["n"].to_pylist() == [6, 5, 1 << 40, 7]


def test_keys_that_statistics_tell_apart_are_compared_without_reading_a_page(keyed):
    keyed.checkpoint()
    other = Store(keyed.object_store)
    assert other.snapshot().table("t").num_rows == 100_000
    before = other.cache_stats.requests

    with other.transaction() as txn:
        txn.append("t", rows([100_000, 200_000], [1, 1], [1, 1]))
    disjoint = other.cache_stats.requests - before
    with pytest.raises(ConstraintError), other.transaction() as txn:
        txn.append("t", rows([50_000], [1], [1]))

    assert disjoint == 0
    assert other.cache_stats.requests - before == 1


def test_of_two_writers_of_one_table_with_a_key_one_wins(keyed):
    one, two = keyed.transaction(), Store(keyed.object_store).transaction()
    one.append("t", rows([100_000], [1], [1]))
    two.append("t", rows([100_000], [2], [2]))

    one.commit()

    with pytest.raises(ConstraintError, match="'n': 100000"):
        two.commit()


def test_a_writer_that_has_not_heard_of_the_newest_rows_compares_with_them(keyed):
    other = Store(keyed.object_store)
    other.snapshot()
    with keyed.transaction() as txn:
        txn.append("t", rows([100_000], [1], [1]))

    with pytest.raises(ConstraintError), other.transaction() as txn:
        txn.append("t", rows([100_000], [1], [1]))


def test_a_key_of_several_columns_is_unique_as_a_whole(store):
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([pa.field(name, pa.string(), nullable=False) for name in "ab"]))
        txn.add_constraint("t", "pk", primary_key=["a", "b"])
        txn.append("t", {"a": ["x", "x", "y"], "b": ["1", "2", "1"]})

    with pytest.raises(ConstraintError, match=r"\{'a': 'x', 'b': '2'\}"), store.transaction() as txn:
        txn.append("t", {"a": ["z", "x"], "b": ["1", "2"]})
    with store.transaction() as txn:
        txn.append("t", {"a": ["y"], "b": ["2"]})


def test_what_cannot_be_a_key_is_refused(store):
    with store.transaction() as txn:
        txn.create_table(
            "t", pa.schema([("a", pa.int64()), pa.field("l", pa.list_(pa.int8()), nullable=False)])
        )
        txn.append("t", {"a": [1, 1], "l": [[1], [2]]})
    txn = store.transaction()
    with pytest.raises(InvalidInputError, match="may be null"):
        txn.add_constraint("t", "pk", primary_key=["a"])
    with pytest.raises(InvalidInputError, match=r"Cannot add a primary key to .* have no order"):
        txn.add_constraint("t", "pk", primary_key=["l"])
    txn.set_nullable("t", "a", False)
    with pytest.raises(ConstraintError, match="more than once"):
        txn.add_constraint("t", "pk", primary_key=["a"])
    txn.update_rows("t", [1], {"a": [2]})
    txn.add_constraint("t", "pk", primary_key=["a"])
    with pytest.raises(InvalidInputError, match="Cannot add a primary key to 't': it has one already"):
        txn.add_constraint("t", "pk2", primary_key=["a"])
    with pytest.raises(InvalidInputError, match="one of that name"):
        txn.add_constraint("t", "pk", check="a > 0")
    with pytest.raises(InvalidInputError, match="exactly one"):
        txn.add_constraint("t", "nothing")
    with pytest.raises(InvalidInputError, match="primary key, which is never null"):
        txn.set_nullable("t", "a", True)


def test_pages_that_others_wrote_are_not_registered_where_nobody_would_check_them(keyed):
    pending = PendingPage("n", "theirs/a.pages", 0, 4096, 64, 1)

    with pytest.raises(InvalidInputError, match="constraints"), keyed.transaction() as txn:
        txn.directory("t").register_batch([pending])


def test_many_random_appends_leave_the_key_unique(store):
    draw = np.random.default_rng(3)
    there: set[int] = set()
    with store.transaction() as txn:
        txn.create_table(
            "t", pa.schema([pa.field("n", pa.int64(), nullable=False)]), properties={"bloom": "true"}
        )
        txn.add_constraint("t", "pk", primary_key=["n"])
    for _ in range(25):
        numbers = draw.integers(0, 300, draw.integers(1, 12)).tolist()
        fits = len(set(numbers)) == len(numbers) and there.isdisjoint(numbers)
        try:
            with store.transaction() as txn:
                txn.append("t", {"n": numbers})
        except ConstraintError:
            assert not fits
        else:
            assert fits
            there |= set(numbers)
    assert sorted(store.snapshot().table("t").read()["n"].to_pylist()) == sorted(there)


# foreign keys


@pytest.fixture
def referring(keyed: Store) -> Store:
    """The same, with a table that refers to it and to itself."""
    with keyed.transaction() as txn:
        txn.create_table(
            "child", pa.schema([("parent", pa.int32()), ("id", pa.int64()), ("next", pa.int64())])
        )
        txn.add_constraint("child", "of", foreign_key=(["parent"], "t", ["n"]))
        txn.add_constraint("child", "chain", foreign_key=(["next"], "child", ["id"]))
    return keyed


@pytest.mark.parametrize(
    "change",
    [
        lambda txn: txn.drop_table("t"),
        lambda txn: txn.rename_table("t", "u"),
        lambda txn: txn.rename_column("t", "n", "m"),
        lambda txn: txn.rename_column("child", "id", "m"),
        lambda txn: txn.drop_column("child", "parent"),
    ],
    ids=["drop", "rename", "rename a column", "rename a column of its own", "drop the column that refers"],
)
def test_what_a_foreign_key_refers_to_stays(referring, change):
    with pytest.raises(InvalidInputError, match="Drop the constraint first"):
        change(referring.transaction())


def test_once_the_key_is_gone_the_table_may_go(referring):
    with referring.transaction() as txn:
        txn.drop_constraint("child", "of")
        txn.drop_table("t")
    with referring.transaction() as txn:
        txn.drop_table("child")

    assert referring.snapshot().tables() == []


def test_a_table_that_refers_does_not_come_back_alone(referring):
    with referring.transaction() as txn:
        txn.drop_table("child")
    with referring.transaction() as txn:
        txn.drop_table("t")
    with pytest.raises(InvalidInputError, match="foreign key 'of' refers to 't'"):
        referring.transaction().undrop_table("child")

    with referring.transaction() as txn:
        txn.undrop_table("t")
        txn.undrop_table("child")

    with pytest.raises(InvalidInputError, match="'child' refers to it"):
        referring.transaction().drop_table("t")
    check_table_zero(referring)


@pytest.mark.parametrize("first", ["the key", "the drop"])
def test_a_table_is_not_dropped_while_a_key_to_it_is_added(keyed, first):
    with keyed.transaction() as txn:
        txn.create_table("child", pa.schema([("parent", pa.int64())]))
    adding, dropping = keyed.transaction(), Store(keyed.object_store).transaction()
    adding.add_constraint("child", "of", foreign_key=(["parent"], "t", ["n"]))
    dropping.drop_table("t")
    one, two = (adding, dropping) if first == "the key" else (dropping, adding)

    one.commit()

    with pytest.raises(CommitConflictError, match="table 't'"):
        two.commit()


def test_a_foreign_key_needs_tables_columns_and_types_that_fit(referring):
    txn = referring.transaction()
    with pytest.raises(TableNotFoundError):
        txn.add_constraint("child", "x", foreign_key=(["parent"], "nowhere", ["n"]))
    with pytest.raises(InvalidInputError, match="as many"):
        txn.add_constraint("child", "x", foreign_key=(["parent", "id"], "t", ["n"]))
    txn.create_table("names", pa.schema([("name", pa.string())]))
    with pytest.raises(SchemaMismatchError, match=r"Cannot add a foreign key to .* is of type"):
        txn.add_constraint("child", "x", foreign_key=(["parent"], "names", ["name"]))


def test_tables_that_are_made_together_refer_to_each_other_by_their_final_ids(store):
    with store.transaction() as txn:
        for name in ("b", "a"):
            txn.create_table(name, pa.schema([("n", pa.int64())]))
        txn.add_constraint("b", "fk", foreign_key=(["n"], "a", ["n"]))

    told = store.snapshot().table("system.constraints").read(["table", "references", "columns_there"])
    assert told.to_pylist() == [{"table": "b", "references": "a", "columns_there": ["n"]}]
    with pytest.raises(InvalidInputError, match="'b' refers to it"):
        store.transaction().drop_table("a")


def test_a_table_that_refers_to_itself_is_renamed_and_goes_on_to_do_so(referring):
    with referring.transaction() as txn:
        txn.rename_table("child", "grandchild")

    told = referring.snapshot().table("system.constraints").read(filter="name = 'chain'").to_pylist()
    assert [(row["table"], row["references"]) for row in told] == [("grandchild", "grandchild")]


def test_a_table_made_after_another_ones_schema_has_none_of_its_rules(keyed):
    with keyed.transaction() as txn:
        txn.create_table("like", keyed.snapshot().table("t").definition.schema)
        txn.append("like", rows([1, 1], [9, 9], [0, 0]))

    assert keyed.snapshot().table("like").definition.field_ids == {"n": 1, "low": 2, "high": 3}
    assert set(keyed.snapshot().table("system.constraints").read()["table"].to_pylist()) == {"t"}


def test_reading_a_table_with_constraints_costs_what_it_did(keyed):
    trace = ReadTrace()

    keyed.snapshot().table("t").read(["n"], start=0, stop=10, trace=trace)

    assert len(trace.page_ids) == 1
