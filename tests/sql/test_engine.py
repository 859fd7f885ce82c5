"""What DuckDB may not do, what happens where reading fails, and what one may rely on."""

# ruff: noqa: S608 - statements are what is made here
from __future__ import annotations

import multiprocessing
import sys
import threading

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import DamageError, InvalidInputError, MissingDependencyError, TableNotFoundError
from spark_pages.sql.engine import _database
from tests.transaction.stores import LOOKS, metered, store_with

ROWS = pa.table({"n": list(range(100)), "s": [f"{i}" * 400 for i in range(100)]})


@pytest.mark.parametrize(
    "forbidden",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '/tmp/never.csv'",
        "ATTACH '/tmp/never.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET temp_directory = '/tmp'",
        "EXPORT DATABASE '/tmp/never'",
        "SELECT * FROM ROWS",
    ],
)
def test_duckdb_itself_would_refuse_what_the_statements_do_not_let_through(forbidden):
    with pytest.raises(duckdb.Error, match=r"disabled|locked|not exist|forbidden|cannot|Cannot"):
        _database(-1).cursor().sql(forbidden)


def test_duckdb_has_no_place_to_write_to():
    result = _database(-1).cursor().sql("SELECT current_setting('temp_directory') AS place")

    assert result.fetchall() == [("",)]


def test_variables_of_python_are_no_tables(store):
    ROWS_HERE = ROWS  # noqa: N806, F841 - DuckDB would look for it by name

    with pytest.raises(TableNotFoundError):
        store.sql("SELECT * FROM rows_here")


def test_without_duckdb_a_query_names_the_extra_and_ddl_works(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    _database.cache_clear()

    made = store.sql("CREATE TABLE t (a INT)")
    with pytest.raises(MissingDependencyError) as told:
        store.sql("SELECT * FROM t")

    assert made.to_pylist() == [{"statement": "CREATE TABLE", "version": 1, "rows": None}]
    assert "spark-pages[sql]" in str(told.value)


def test_damage_found_while_duckdb_reads_is_told_as_damage(tmp_path):
    url = str(tmp_path / "store")
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", ROWS.schema)
        rows = np.random.default_rng(1).integers(0, 1 << 62, 100_000)
        txn.append("t", pa.table({"n": rows, "s": list(map(str, rows))}))
    files = [file for file in (tmp_path / "store" / "pages").rglob("*") if file.is_file()]
    for file in files:
        data = bytearray(file.read_bytes())
        data[64::4096] = bytes(255 - byte for byte in data[64::4096])
        file.write_bytes(data)

    assert files
    with pytest.raises(DamageError):
        sp.open(url).sql("SELECT max(s), max(n) FROM t")


def test_a_query_reads_all_tables_at_one_version(store):
    """Another one commits between the look-up of the first table and that of the second."""
    store.sql("CREATE TABLE a (n INT)")
    store.sql("CREATE TABLE b (n INT)")
    snapshot = type(store.snapshot())
    found, plain = [], snapshot.table

    def and_then_a_commit(self, name):
        table = plain(self, name)
        if not found:
            found.append(name)
            with store.transaction() as txn:
                txn.append("a", pa.table({"n": pa.array([1], pa.int32())}))
                txn.append("b", pa.table({"n": pa.array([1], pa.int32())}))
        return table

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshot, "table", and_then_a_commit)
        counts = store.sql("SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b")

    assert counts.to_pylist() == [{"a": 0, "b": 0}]
    assert store.sql("SELECT count(*) AS n FROM a").to_pylist() == [{"n": 1}]


def test_queries_of_several_threads_do_not_see_each_others_tables():
    stores = [store_with(pa.table({"n": [number] * 1000})) for number in range(4)]
    found: dict[int, set[int]] = {}

    def ask(number: int) -> None:
        rows = [stores[number].sql("SELECT DISTINCT n FROM t").column("n").to_pylist() for _ in range(5)]
        found[number] = {value for values in rows for value in values}

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {number: {number} for number in range(4)}


def test_a_query_that_is_warm_asks_storage_for_nothing_but_the_newest_version():
    store, meter = metered(store_with(ROWS))
    store.sql("SELECT count(*) FROM t WHERE n > 5")
    before = meter.counts

    store.sql("SELECT count(*) FROM t WHERE n > 5")

    asked = meter.counts - before
    assert (asked.requests - asked.stamps, asked.stamps) == (0, LOOKS)


def test_version_timestamp_and_tag_say_what_a_query_reads(store):
    store.sql("CREATE TABLE t (n INT)")
    store.sql("INSERT INTO t VALUES (1)")
    store.tag("first")
    at, as_of = store.snapshot().timestamp, "SELECT n FROM t TIMESTAMP AS OF {}"
    store.sql("INSERT INTO t VALUES (2)")

    found = [
        store.sql("SELECT n FROM t", version=2),
        store.sql("SELECT n FROM t", timestamp=at),
        store.sql("SELECT n FROM t", tag="first"),
        store.sql("SELECT n FROM t VERSION AS OF 'first'"),
        store.sql(as_of.format(f"'{at.isoformat()}'")),
        store.sql(as_of.format(f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f}'")),
    ]

    assert [table.column("n").to_pylist() for table in found] == [[1]] * 6
    with pytest.raises(InvalidInputError, match=r"Cannot run INSERT.* on an earlier version"):
        store.sql("INSERT INTO t VALUES (3)", version=2)


def test_a_statement_that_fails_leaves_nothing(store):
    with pytest.raises(InvalidInputError):
        store.sql("CREATE TABLE t (a INT, b INT, CHECK (nothing > 1))")

    assert (store.snapshot().version, store.snapshot().tables()) == (0, [])


def test_a_change_is_one_transaction_under_its_name(store):
    store.sql("CREATE TABLE t (n INT)")

    result = store.sql("INSERT INTO t SELECT * FROM range(3)")

    assert result.to_pylist() == [{"statement": "INSERT", "version": 2, "rows": 3}]
    assert store.history().column("operation").to_pylist()[:2] == ["insert", "create table"]


ODD = [
    'a"b',
    "a.b",
    " lead",
    "trail ",
    "Größe",
    "select",
    "a`b",
    "it's",
    "%s",
    "a\nb",
    "rowid",
    "table 0",
    "🙂",
    "main",
]


@pytest.mark.parametrize("name", ODD)
def test_any_name_can_be_that_of_a_column_a_table_and_an_item(name, store):
    rows = pa.table({each: [number, number + 1] for number, each in enumerate(ODD)})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    number, quoted = ODD.index(name), '"' + name.replace('"', '""') + '"'

    column = store.sql(f"SELECT {quoted} FROM t WHERE {quoted} = {number}")
    table = store.sql(f'SELECT {quoted}."select" FROM t AS {quoted} WHERE {quoted}."%s" > 8')
    common = f'WITH {quoted} AS (SELECT "%s" AS {quoted} FROM t)'
    item = store.sql(f"{common} SELECT {quoted} FROM {quoted} ORDER BY {quoted} DESC")

    assert column.to_pylist() == [{name: number}]
    assert table.to_pylist() == [{"select": 6}]
    assert item.to_pylist() == [{name: 9}, {name: 8}]


def test_a_fork_asks_a_database_of_its_own(store):
    store.sql("CREATE TABLE t AS SELECT 7 AS n")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    child = context.Process(target=lambda: answers.put(store.sql("SELECT n FROM t").to_pylist()))
    child.start()
    child.join(60)

    assert child.exitcode == 0
    assert answers.get() == [{"n": 7}]


@pytest.mark.parametrize(
    "text",
    [
        'SELECT " FROM l JOIN r',
        "CREATE  default TEMP TABLE x ( INT)",
        "SELECT t.x FROM (SELECT {'x' , : ,} AS t1 7 AS x).t",
    ],
)
def test_what_the_parser_trips_over_is_refused(store, text):
    with pytest.raises(InvalidInputError, match="Cannot read the statement"):
        store.sql(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE DOMAIN price AS ) NOT NULLCHECK (value > 0money",
        "CREATE TYPE money AS DECIMAL( NATURAL 10, 2)",
        "SELECT * REPLACE (k * 10 , k) FROM (SELECT 1 AS k)",
        "DROP DOMAIN",
        "COMMENT ON IS NULL",
        "ALTER TABLE UNSET TBLPROPERTIES",
        "UNDROP VIEW v",
    ],
)
def test_what_has_no_meaning_is_refused(store, text):
    with pytest.raises(InvalidInputError):
        store.sql(text)


@pytest.mark.parametrize("text", ["", ";", "(" * 500 + "1" + ")" * 500, "SELECT " + "x" * (1 << 20), "\x00"])
def test_what_is_no_statement_is_refused(store, text):
    with pytest.raises(InvalidInputError):
        store.sql(text)
