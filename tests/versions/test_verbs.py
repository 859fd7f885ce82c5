"""The verbs about versions, and what they print."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages import job_result
from tests.cli.test_verbs import run, run_json


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Table ``things`` has ten rows at version 1; row 5 is corrected at 2."""
    address = str(tmp_path / "store")
    store = sp.create(address)
    data = pa.table({"id": pa.array(range(10), pa.int64())})
    with store.transaction("fill") as txn:
        txn.create_table("things", data.schema)
        txn.append("things", data)
    with store.transaction("correct") as txn:
        txn.update_rows("things", [5], {"id": [-5]})
    return address


@pytest.mark.parametrize("verb", ["tag", "tags", "untag", "restore", "changes", "blame"])
def test_every_verb_is_named_has_help_and_takes_json(verb):
    assert verb in run("--help").stdout
    assert "--json" in run(verb, "--help").stdout


def test_a_tag_is_set_listed_moved_and_taken_away(url):
    assert run_json("tag", url, "good", "--version", 1) == {"tag": "good", "version": 1}
    assert run_json("tags", url) == {"tags": {"good": 1}}
    assert run("tag", url, "good").exit_code == job_result.FAILED
    assert run_json("tag", url, "good", "--version", 2, "--replace")["version"] == 2
    assert run("tags", url).stdout == "tag\tversion\ngood\t2\n"
    assert run_json("untag", url, "good") == {"tag": "good", "version": 2, "deleted": True}
    assert run("untag", url, "good").exit_code == job_result.NOT_FOUND


def test_a_version_is_restored_by_number_or_tag_once(url):
    run("tag", url, "good", "--version", 1)

    assert run_json("restore", url, "--tag", "good") == {"restored": 1, "version": 4, "changed": True}
    assert run_json("restore", url, "--version", 1) == {"restored": 1, "version": 4, "changed": False}
    assert run_json("read", url, "things", "--rows", "5")["rows"] == [{"id": 5}]
    assert run("restore", url).exit_code == job_result.USAGE
    assert run("restore", url, "--version", 99).exit_code == job_result.NOT_FOUND


def test_changes_are_told_by_rows_and_by_pages(url):
    rows = run_json("changes", url, "--start", 2)
    pages = run_json("changes", url, "--start", 0, "--end", 1, "--table", "things", "--granularity", "pages")

    assert (rows["start_version"], rows["end_version"]) == (2, 2)
    (change,) = rows["changes"]
    assert [change[name] for name in ("table", "column", "change", "first_row", "end_row")] == [
        "things",
        "id",
        "updated",
        5,
        6,
    ]
    (page,) = pages["changes"]
    assert (page["change"], page["page_id"], page["entry_count"]) == ("added", "0000000010000000", 10)


def test_blame_names_the_commit(url):
    found = run_json("blame", url, "things", "id", 5)

    assert (found["version"], found["operation"], found["exact"]) == (2, "correct", True)
    assert "correct" in run("blame", url, "things", "id", 5).stdout
    assert run("blame", url, "things", "id", 10).exit_code == job_result.USAGE
