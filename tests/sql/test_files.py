"""Files and temporary tables in statements."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import InvalidInputError, TableExistsError, TableNotFoundError
from spark_pages.store import Store

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, ""]})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text('id,name\n1,a\n2,\n3,""\n')
    Path("x.txt").write_text("id\n7\n")
    made = sp.create(str(tmp_path / "../store-of-sql" / tmp_path.name))
    made.append("t", ROWS, create=True)
    return made


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM 'x.csv'",
        'SELECT * FROM "x.csv"',
        "SELECT * FROM read_csv('x.csv')",
        "CREATE TABLE u AS SELECT * FROM 'x.csv'",
        "INSERT INTO t SELECT * FROM 'x.csv'",
        "COPY t TO 'out.csv'",
        "copy (SELECT 1 AS a) TO 'out.csv'",
    ],
)
def test_statements_read_and_write_no_files_unless_allowed(store: Store, statement: str) -> None:
    with pytest.raises(InvalidInputError, match=r"files by default.*files=True"):
        store.sql(statement)

    assert store.tables() == ["t"]
    assert not Path("out.csv").exists()
    store.sql(statement, files=True)


def test_files_are_tables_of_a_query(store: Store) -> None:
    found = store.sql(
        "SELECT t.name, x.id FROM 'x.csv' JOIN t ON t.id = x.id AND x.id > 1 ORDER BY x.id", files=True
    )

    assert found.to_pylist() == [{"name": None, "id": 2}, {"name": "", "id": 3}]
    assert store.sql("SELECT count(*) AS n FROM 'x.csv'", files=True)["n"].to_pylist() == [3]
    assert store.sql("SELECT id FROM read_csv('x.txt')", files=True)["id"].to_pylist() == [7]
    assert store.sql("SELECT sum(a.id) AS s FROM '*.csv' a, 'x.csv' b", files=True)["s"].to_pylist() == [18]


def test_a_table_is_created_from_a_file_without_holding_its_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.sql.execution.run_query", lambda *_: pytest.fail("all rows are read"))

    made = store.sql("CREATE TABLE u AS SELECT * FROM 'x.csv' WHERE id < 3", files=True)
    store.sql("COPY u TO 'u.parquet'", files=True)

    assert made.to_pylist() == [{"statement": "CREATE TABLE", "version": 2, "rows": 2}]
    assert store["u"].read().to_pylist() == ROWS.slice(0, 2).to_pylist()
    assert pq.read_table("u.parquet").to_pylist() == ROWS.slice(0, 2).to_pylist()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM 'nowhere.csv'", "there is no such file"),
        ("SELECT * FROM nowhere", "none of that name"),
        ("SELECT * FROM read_csv('x.txt', delim=';')", "expected one path in quotes"),
        ("COPY t", "expected COPY"),
        ("COPY t TO 'out.xyz'", "names no format"),
        ("COPY t TO 'out' (FORMAT xlsx)", "is not known"),
        ("COPY (DROP TABLE t) TO 'out.csv'", "it is no query"),
        ("COPY nowhere TO 'out.csv'", "none of that name"),
        ("COPY t TO 'no/folder/out.csv'", "there is no folder"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused_with_the_reason(
    store: Store, statement: str, message: str
) -> None:
    with pytest.raises((InvalidInputError, TableNotFoundError), match=message):
        store.sql(statement, files=True)

    assert sorted(each.name for each in Path().iterdir()) == ["x.csv", "x.txt"]


def test_a_copy_does_not_write_into_a_store(tmp_path: Path) -> None:
    store = sp.create(str(tmp_path / "store"))
    store.append("t", ROWS, create=True)

    with pytest.raises(InvalidInputError, match="it lies in the store"):
        store.sql(f"COPY t TO '{tmp_path}/store/_log/{0:020}.avro' (FORMAT csv)", files=True)

    assert store.verify("all").ok


NAMES = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAMES, min_size=1, max_size=4),
    numbers=st.booleans(),
    ending=st.sampled_from(["csv", "tsv", "jsonl", "parquet", "arrow", "orc"]),
)
def test_what_is_copied_to_a_file_is_read_from_it(
    store: Store, names: list[str | None], numbers: bool, ending: str
) -> None:
    rows = pa.table({"s": pa.array(names, pa.string())})
    rows = rows.append_column("n", [list(range(len(names)))]) if numbers else rows
    store.sql("CREATE OR REPLACE TEMP TABLE rows AS SELECT * FROM t WHERE false")
    store._temporary.create("rows", rows, replace=True)

    store.sql(f"COPY rows TO 'rows.{ending}'", files=True)

    assert store.sql(f"FROM 'rows.{ending}'", files=True).to_pylist() == rows.to_pylist()


def test_temporary_tables_are_of_one_handle_and_make_no_commit(store: Store) -> None:
    made = store.sql("CREATE TEMP TABLE far AS SELECT id FROM t WHERE id > ?", [1])
    store.sql("INSERT INTO far VALUES (9)")

    assert made.to_pylist() == [{"statement": "CREATE TABLE", "version": None, "rows": 2}]
    assert store.sql("SELECT far.id FROM FAR JOIN t USING (id)")["id"].to_pylist() == [2, 3]
    assert store.sql("SELECT id FROM temp.far")["id"].to_pylist() == [2, 3, 9]
    assert store.version == 1
    assert store.tables() == ["t"]
    with pytest.raises(TableNotFoundError):
        pickle.loads(pickle.dumps(store)).sql("FROM far")  # noqa: S301 - our own


def test_a_temporary_table_hides_one_of_the_store_until_it_is_dropped(store: Store) -> None:
    store.sql("CREATE TEMPORARY TABLE t (n BIGINT)")
    hidden = store.sql("FROM t").schema.names
    with pytest.raises(TableExistsError, match="OR REPLACE"):
        store.sql("CREATE TEMP TABLE T AS SELECT 1 AS n")
    kept = store.sql("CREATE TEMP TABLE IF NOT EXISTS t AS SELECT 1 AS m")
    store.sql("CREATE OR REPLACE TEMP TABLE t AS SELECT 1 AS k")
    replaced = store.sql("FROM t").to_pylist()
    store.sql("DROP TABLE t")

    assert hidden == ["n"]
    assert kept["rows"].to_pylist() == [None]
    assert replaced == [{"k": 1}]
    assert store.sql("FROM t").schema.names == ["id", "name"]
    assert store.tables() == ["t"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TEMP VIEW v AS SELECT 1", "not supported here"),
        ("CREATE TEMP TABLE v (n INT PRIMARY KEY)", "constraints"),
        ("CREATE TEMP TABLE v", "without columns"),
        ("CREATE TABLE temp.v (n INT)", "temporary tables are of one transaction"),
    ],
)
def test_what_a_temporary_table_cannot_be_is_refused(store: Store, statement: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        store.sql(statement)
