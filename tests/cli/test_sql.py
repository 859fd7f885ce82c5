"""``spark-pages sql``."""

from __future__ import annotations

import pytest

import spark_pages
from tests.cli.test_verbs import run, run_json


@pytest.fixture
def url(tmp_path):
    address = str(tmp_path / "store")
    spark_pages.create(address)
    run("sql", address, "CREATE TABLE t (n INT, s TEXT)")
    run("sql", address, "INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    return address


def test_a_query_is_a_table_on_stdout(url):
    result = run("sql", url, "SELECT * FROM t ORDER BY n")

    assert (result.exit_code, result.stdout) == (0, "n\ts\n1\ta\n2\t\n")


def test_json_keeps_columns_of_the_same_name_apart(url):
    document = run_json("sql", url, "SELECT n, s, n FROM t ORDER BY n", "--limit", 1)

    assert document == {
        "columns": [
            {"name": "n", "type": "int32"},
            {"name": "s", "type": "string"},
            {"name": "n", "type": "int32"},
        ],
        "rows": [[1, "a", 1]],
        "num_rows": None,
        "truncated": True,
    }


def test_a_change_tells_its_version(url):
    document = run_json("sql", url, "INSERT INTO t SELECT 3, 'c'")

    assert document["rows"] == [["INSERT", 3, 1]]


def test_an_older_version_can_be_asked(url):
    document = run_json("sql", url, "SELECT count(*) FROM t", "--version", 1)

    assert document["rows"] == [[0]]


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("SELECT * FROM nowhere", 4, "Cannot find table 'nowhere'"),
        ("SELECT nothing FROM t", 4, "Cannot find column 'nothing'"),
        ("VACUUM", 2, "Cannot run VACUUM: it is not a statement"),
        ("SELECT (1", 2, "line 1"),
    ],
)
def test_an_error_is_told_without_a_traceback(url, text, code, told):
    result = run("sql", url, text)

    assert result.exit_code == code
    assert told in result.stderr
    assert "Traceback" not in result.output
