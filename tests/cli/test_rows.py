"""``spark-pages delete``, ``erase`` and ``changes --values``: plans first, acts when told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "store")
    sp.create(url).append("t", pa.table({"n": range(10), "s": [f"r{n}" for n in range(10)]}), create=True)
    return url


def run(*arguments: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_delete_shows_rows_and_pages_and_writes_nothing(url: str) -> None:
    told = run("delete", url, "t", "--where", "n >= 7")

    assert (told["num_rows"], told["num_pages"], told["applied"]) == (3, 2, False)
    assert told["size_bytes"] == sum(sp.open(url)["t"].pages()["actual_len"].to_pylist())
    assert (told["version"], sp.open(url).version) == (1, 1)


def test_delete_deletes_when_told_to(url: str) -> None:
    told = run("delete", url, "t", "--where", "n >= 7", "--apply")

    store = sp.open(url)
    assert (told["num_rows"], told["version"], told["applied"]) == (3, 2, True)
    assert store["t"].num_rows == 7
    assert store.history(1)["operation"].to_pylist() == ["delete"]


def test_a_delete_of_no_row_commits_nothing(url: str) -> None:
    told = run("delete", url, "t", "--where", "n > 99", "--apply")

    assert (told["num_rows"], told["num_pages"], told["version"]) == (0, 0, 1)


@pytest.mark.parametrize("verb", ["delete", "erase"])
def test_a_condition_is_needed_and_must_fit(url: str, verb: str) -> None:
    assert run(verb, url, "t", exit_code=2)["error"]["type"] == "UsageError"
    assert run(verb, url, "t", "--where", "m = 1", exit_code=4)["error"]["type"] == "ColumnNotFoundError"


def test_erase_lists_objects_and_deletes_nothing(url: str) -> None:
    told = run("erase", url, "t", "--where", "n = 3")

    assert (told["num_rows"], told["applied"], told["done"]) == (1, False, False)
    assert {each["gone"] for each in told["plan"]} == {False}
    assert sp.open(url)["t"].num_rows == 10


def test_erase_leaves_a_report_with_which_it_goes_on(url: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    told = run("erase", url, "t", "--where", "n = 3", "--apply", "--report", str(report), exit_code=1)

    store = sp.open(url)
    read = sp.ErasureReport.from_json(report.read_text("utf-8"))
    assert (told["applied"], told["done"], read.num_rows) == (True, False, 1)
    assert [each["key"] for each in told["plan"]] == [each.key for each in read.objects]
    assert 3 not in store["t"].read()["n"].to_pylist()
    assert store.resume_erase(read).rows == read.rows


def test_erase_ends_well_where_nothing_is_kept(url: str) -> None:
    told = run("erase", url, "t", "--where", "n = 3", "--retention", "1", "--apply")

    assert told["done"], told
    assert {each["gone"] for each in told["plan"]} == {True}


def test_changed_rows_are_listed_with_their_values(url: str) -> None:
    run("delete", url, "t", "--where", "n = 7", "--apply")

    told = run("changes", url, "--start", "2", "--table", "t", "--values")
    shown = CliRunner().invoke(app, ["changes", url, "--start", "2", "--table", "t", "--values"]).stdout

    (row,) = told["rows"]
    assert (row["_change"], row["_row"], row["_version"], row["n"], row["s"]) == ("delete", 7, 2, 7, "r7")
    assert shown.splitlines()[0] == "_change\t_row\t_version\t_timestamp\tn\ts"


def test_people_are_told_in_a_sentence(url: str) -> None:
    plan = CliRunner().invoke(app, ["delete", url, "t", "--where", "n = 1"]).stderr
    done = CliRunner().invoke(app, ["delete", url, "t", "--where", "n = 1", "--apply"]).stderr

    assert "1 row of t, in 2 pages of" in plan
    assert "--apply deletes them" in plan
    assert done.strip() == "deleted 1 row of t in version 2"
