"""Update by conditions and overwrite: what they change, count, refuse and leave alone."""

# ruff: noqa: S608 - statements are what is tested here

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp
from spark_pages import (
    ColumnNotFoundError,
    CommitConflictError,
    ConstraintError,
    InvalidInputError,
    RowDeletedError,
    SchemaMismatchError,
    Store,
    TableNotFoundError,
)

SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.int8()))])


@pytest.fixture
def store() -> Iterator[Store]:
    """Ten rows, of which row 3 is deleted."""
    with sp.create(f"memory://{uuid4().hex}") as store:
        with store.transaction() as txn:
            txn.create_table("t", SCHEMA)
            txn.create_table("ragged", SCHEMA, aligned=False)
            txn.append("t", {"n": range(10), "x": [n / 2 for n in range(10)], "s": list("abcdefghij")})
        with store.transaction() as txn:
            txn.delete("t", 3)
        yield store


def values(store: Store, column: str, rows: list[int]) -> list[Any]:
    return store.snapshot().table("t").take(rows, [column])[column].to_pylist()


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("n < 5", 4),
        ([("n", "<", 5)], 4),
        (pc.field("n") < 5, 4),
        (True, 9),
        ("n > 99", 0),
    ],
)
def test_the_rows_of_a_condition_get_literals_and_computed_values(
    store: Store, where: Any, count: int
) -> None:
    with store.transaction() as txn:
        updated = txn.update("t", {"s": "new", "x": sp.expr("x * 10 + n"), "l": [1, 2]}, where=where)
    changed = store.snapshot().table("t").read(filter="s = 'new'")
    assert updated == count
    assert changed["x"].to_pylist() == [n * 6.0 for n in changed["n"].to_pylist()]
    assert changed["l"].to_pylist() == [[1, 2]] * count
    assert changed.num_rows == count


def test_rows_by_number_are_updated_by_expressions(store: Store) -> None:
    with store.transaction() as txn:
        assert txn.update("t", {"n": sp.expr("-n"), "s": sp.expr("s || s")}, [9, 1, 9]) == 2
    assert values(store, "n", [1, 2, 9]) == [-1, 2, -9]
    assert values(store, "s", [1, 2, 9]) == ["bb", "c", "jj"]


def test_expressions_see_the_old_values_of_all_columns(store: Store) -> None:
    with store.transaction() as txn:
        txn.update("t", {"n": sp.expr("CAST(2 * x AS BIGINT) + 1"), "x": sp.expr("n")}, where="n = 4")
    assert (values(store, "n", [4]), values(store, "x", [4])) == ([5], [4.0])


def test_an_update_sees_what_the_transaction_has_staged(store: Store) -> None:
    with store.transaction() as txn:
        txn.update("t", {"n": 100}, where="n = 0")
        txn.delete("t", where="n = 1")
        assert txn.update("t", {"s": "staged"}, where="n = 100 or n = 1") == 1
    assert store.snapshot().table("t").row_numbers("s = 'staged'").tolist() == [0]


@pytest.mark.parametrize("assignments", [{"s": "a"}, {"s": sp.expr("'a'"), "n": sp.expr("n * 1")}])
def test_equal_values_are_not_written(store: Store, assignments: dict[str, Any]) -> None:
    before = store.snapshot().version
    with store.transaction() as txn:
        assert txn.update("t", assignments, where="n = 0") == 1
    assert store.snapshot().version == before


def test_only_rows_that_change_are_touched(store: Store) -> None:
    with store.transaction() as txn:
        assert txn.update("t", {"n": 5}, where="n in (4, 5, 6)") == 3
        assert txn.update_rows("t", [7, 8], {"s": ["h", "other"]}, only_changed=True) == 2
    version = store.snapshot().version
    changed = [store.blame("t", "n", row).version == version for row in (4, 5, 6)]
    assert changed == [True, False, True]
    assert [store.blame("t", "s", row).version == version for row in (7, 8)] == [False, True]


@pytest.mark.parametrize("new", [-0.0, None, float("nan")])
def test_zero_null_and_nan_differ(store: Store, new: float | None) -> None:
    before = store.snapshot().version
    with store.transaction() as txn:
        txn.update("t", {"x": new}, where="n = 0")
    assert store.snapshot().version == before + 1
    with store.transaction() as txn:
        txn.update("t", {"x": new}, where="n = 0")
    assert store.snapshot().version == before + 1


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda t: t.update("t", {"n": 1}), InvalidInputError, "give rows or where"),
        (lambda t: t.update("t", {"n": 1}, [1], where="n = 1"), InvalidInputError, "give rows or where"),
        (lambda t: t.update("t", {"n": 1}, where=False), InvalidInputError, "give rows or where"),
        (lambda t: t.update("t", {}, where=True), InvalidInputError, "no column is assigned"),
        (lambda t: t.update("t", {"q": 1}, where=True), ColumnNotFoundError, "'q'"),
        (lambda t: t.update("nowhere", {"n": 1}, where=True), TableNotFoundError, "nowhere"),
        (lambda t: t.update("ragged", {"n": 1}, where=True), InvalidInputError, "not aligned"),
        (lambda t: t.overwrite("ragged", {"n": [1]}), InvalidInputError, "not aligned"),
        (lambda t: t.update("t", {"n": 1}, [3]), RowDeletedError, "row 3"),
        (lambda t: t.update("t", {"n": 1.5}, where=True), SchemaMismatchError, "'n'"),
        (lambda t: t.update("t", {"n": sp.expr("x")}, where=True), SchemaMismatchError, "'n'"),
        (lambda t: t.update("t", {"n": sp.expr("n + 1e300")}, where=True), SchemaMismatchError, "'n'"),
        (lambda t: t.update("t", {"l": sp.expr("[1000]")}, where=True), SchemaMismatchError, "'l'"),
        (lambda t: t.update("t", {"n": sp.expr("nix")}, where=True), ColumnNotFoundError, "'nix'"),
        (lambda t: t.update("t", {"n": sp.expr("sum(n)")}, where=True), InvalidInputError, "Cannot run"),
        (lambda t: t.update("t", {"n": sp.expr("(SELECT 1)")}, where=True), InvalidInputError, "a subquery"),
        (lambda t: t.update("t", {"n": sp.expr("n, n")}, where=True), InvalidInputError, "one value"),
        (lambda t: t.update("t", {"n": sp.expr("n FROM t")}, where=True), InvalidInputError, "one value"),
        (lambda t: t.update("t", {"n": sp.expr("unnest([1, n])")}, [0]), InvalidInputError, "several"),
        (lambda _: sp.expr(5), InvalidInputError, "text"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_staged(
    store: Store, call: Any, kind: type[Exception], message: str
) -> None:
    before = store.snapshot().version
    with store.transaction() as txn, pytest.raises(kind, match=message):
        call(txn)
    assert store.snapshot().version == before


def test_rows_appended_by_the_same_transaction_are_refused_by_name(store: Store) -> None:
    with store.transaction() as txn:
        txn.append("t", {"n": [77]})
        with pytest.raises(InvalidInputError, match="row 10 of table 't': this transaction appended it"):
            txn.update("t", {"n": 1}, where="n = 77")
        with pytest.raises(InvalidInputError, match="has appended some"):
            txn.overwrite("t", {"n": [1]})


def test_overwrite_deletes_the_rows_it_read_and_goes_on_with_the_numbers(store: Store) -> None:
    with store.transaction() as txn, store.transaction() as other:
        assert txn.overwrite("t", {"n": [20, 21]}) == 2
        other.append("t", {"n": [30]})
        other.commit()
    table = store.snapshot().table("t")
    assert sorted(table.read(["n"])["n"].to_pylist()) == [20, 21, 30]
    assert table.row_numbers().tolist() == [10, 11, 12]
    assert store.verify().ok


def test_overwrite_conflicts_with_appends_under_serializable_isolation(store: Store) -> None:
    txn = store.transaction(isolation="serializable")
    txn.overwrite("t", {"n": [20]})
    with store.transaction() as other:
        other.append("t", {"n": [30]})
    with pytest.raises(CommitConflictError):
        txn.commit()


@pytest.mark.parametrize("verb", ["update", "delete"])
def test_a_condition_conflicts_with_rows_appended_since_under_serializable_isolation(
    store: Store, verb: str
) -> None:
    txn = store.transaction(isolation="serializable")
    count = txn.delete("t", where="n > 5") if verb == "delete" else txn.update("t", {"n": 0}, where="n > 5")
    with store.transaction() as other:
        other.append("t", {"n": [30]})
    assert count == 4
    with pytest.raises(CommitConflictError):
        txn.commit()


def test_overwrite_keeps_a_key_and_takes_its_values_again(store: Store) -> None:
    with store.transaction() as txn:
        txn.set_nullable("t", "n", False)
        txn.add_constraint("t", "k", primary_key=["n"])
    with store.transaction() as txn:
        txn.overwrite("t", {"n": [1, 2]})
    assert store.snapshot().table("t").read(["n"])["n"].to_pylist() == [1, 2]
    with pytest.raises(ConstraintError), store.transaction() as txn:
        txn.overwrite("t", {"n": [1, 1]})


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.float32(), "1e300", "1e\\+300 would become inf"),
        (pa.float32(), "'1e300'", "would become inf"),
        (pa.float16(), "100000", "become inf|not in range"),
        (pa.date32(), "TIMESTAMP '2020-01-01 10:00:00'", "10, 0.* would become"),
        (pa.date64(), "TIMESTAMP '2020-01-01 10:00:00'", "10, 0.* would become"),
        (pa.time64("us"), "TIMESTAMP '2020-01-01 10:00:00'", "no date"),
        (pa.decimal128(10, 2), "0.015::DOUBLE", "0.015 would become"),
        (pa.bool_(), "2", "2 would become True"),
        (pa.bool_(), "0.5::DOUBLE", "0.5 would become True"),
    ],
)
def test_sql_refuses_values_that_a_cast_would_cut(kind: pa.DataType, value: str, reason: str) -> None:
    with sp.create(f"memory://{uuid4().hex}") as store:
        with store.transaction() as txn:
            txn.create_table("t", pa.schema([("v", kind)]))
            txn.append("t", pa.table({"v": pa.nulls(1, kind)}))
        for statement in (f"UPDATE t SET v = {value}", f"INSERT INTO t VALUES ({value})"):
            with pytest.raises(SchemaMismatchError, match=reason):
                store.sql(statement)
        with store.transaction() as txn, pytest.raises(SchemaMismatchError, match=reason):
            txn.update("t", {"v": sp.expr(value)}, where=True)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (pa.float32(), "'inf'::DOUBLE", float("inf")),
        (pa.float32(), "0.5::DOUBLE", 0.5),
        (pa.float64(), "1.23456789012345678901", 1.2345678901234567),
        (pa.date32(), "TIMESTAMP '2020-01-01 00:00:00'", dt.date(2020, 1, 1)),
        (pa.decimal128(10, 2), "0.1::DOUBLE", Decimal("0.10")),
        (pa.bool_(), "1", True),
    ],
)
def test_sql_writes_values_of_other_types_that_fit(kind: pa.DataType, value: str, found: Any) -> None:
    with sp.create(f"memory://{uuid4().hex}") as store:
        with store.transaction() as txn:
            txn.create_table("t", pa.schema([("v", kind)]))
            txn.append("t", pa.table({"v": pa.nulls(1, kind)}))
        store.sql(f"UPDATE t SET v = {value}")
        assert store.snapshot().table("t").read()["v"].to_pylist() == [found]


def test_a_query_in_with_cannot_take_the_name_of_the_table(store: Store) -> None:
    for statement in ("DELETE FROM t", "UPDATE T SET n = 0"):
        with pytest.raises(InvalidInputError, match="WITH gives another meaning"):
            store.sql(f"WITH t AS (SELECT n, _row FROM t WHERE n > 5) {statement}")
    assert store.sql("WITH w AS (SELECT 5 AS n) DELETE FROM t AS w RETURNING w.n").num_rows == 9


def test_a_temporary_table_hides_a_table_from_statements_that_change_rows(store: Store) -> None:
    store.sql("CREATE TEMPORARY TABLE ragged AS SELECT 5 AS n")
    store.sql("CREATE TEMPORARY TABLE t AS SELECT 5 AS n")
    for statement in ("DELETE FROM t", "UPDATE t SET n = 1", "DELETE FROM temp.t"):
        with pytest.raises(InvalidInputError, match="'t': it is a temporary table"):
            store.sql(statement)
    counted = store.sql("DELETE FROM default.t WHERE n IN (SELECT n FROM ragged)")
    assert counted["rows"].to_pylist() == [1]
    assert values(store, "n", [4, 6]) == [4, 6]
    assert store.snapshot().table("t").num_rows == 8


@pytest.mark.parametrize("name", ["_row", "_ROW"])
def test_a_column_of_the_name_of_the_row_numbers_hides_them_in_any_case(store: Store, name: str) -> None:
    with store.transaction() as txn:
        txn.rename_column("t", "n", name)
    assert store.sql("SELECT _row FROM t WHERE _Row > 7").to_pydict() == {name: [8, 9]}
    for statement in ("DELETE FROM t WHERE _row = 8", "UPDATE t SET s = 'new' WHERE _row = 8"):
        with pytest.raises(InvalidInputError, match=f"its column '{name}' hides the row numbers"):
            store.sql(statement)


def test_sql_refuses_rows_and_columns_that_the_transaction_added_by_name(store: Store) -> None:
    with store.transaction() as txn:
        txn.sql("INSERT INTO t (n) VALUES (77)")
        with pytest.raises(InvalidInputError, match="row 10 of table 't': this transaction appended it"):
            txn.sql("UPDATE t SET s = 'new'")
    with store.transaction() as txn:
        txn.add_column("t", pa.field("k", pa.int8()))
        with pytest.raises(InvalidInputError, match="'k' of table 't': this transaction added the column"):
            txn.sql("UPDATE t SET k = 1")


@pytest.mark.parametrize(
    ("rows", "given", "found"), [([0, 0], [1, 0], [0, 1]), ([1, 0, 1, 0], [5, 6, 7, 8], [8, 7])]
)
def test_the_last_value_of_a_row_wins_where_only_changes_are_written(
    store: Store, rows: list[int], given: list[int], found: list[int]
) -> None:
    with store.transaction() as txn:
        assert txn.update_rows("t", rows, {"n": given}, only_changed=True) == len(rows)
    assert values(store, "n", [0, 1]) == found
