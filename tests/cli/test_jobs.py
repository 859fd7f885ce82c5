"""Verbs that are jobs too: the same flags, and the same work done by one process where it is small."""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.spark.session import PROJECT

JOBS = sorted((PROJECT / "jobs").glob("*.py"))
NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def told(*arguments: object, code: int = 0) -> dict[str, Any]:
    ended = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert ended.exit_code == code, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


class ParsedError(Exception):
    """Holds the parser of a job."""


def flags_of_job(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    def stop(parser: argparse.ArgumentParser) -> NoReturn:
        raise ParsedError(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(ParsedError) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    return {
        flag
        for action in stopped.value.args[0]._actions
        for flag in action.option_strings
        if flag[:2] == "--"
    }


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_has_the_flags_of_the_verb_of_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verb = typer.main.get_command(app).commands[path.stem.replace("_", "-")]  # type: ignore[attr-defined]

    taken = {flag for each in verb.params for flag in [*each.opts, *each.secondary_opts] if flag[:2] == "--"}

    assert flags_of_job(path, monkeypatch) == taken | {"--help"}
    assert ("--apply" in taken) != ("--dry-run" in taken)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    for part in range(3):
        numbers = range(part * 10_000, (part + 1) * 10_000)
        held = pa.table({"n": numbers, "text": [f"text number {n}" for n in numbers]}, NUMBERS)
        pq.write_table(held, folder / f"{part}.parquet")
    return folder


@pytest.fixture
def url(tmp_path: Path, rows: Path) -> str:
    url = str(tmp_path / "store")
    sp.create(url)
    told("ingest", url, "--table", "t", "--format", "parquet", "--path", rows, "--create")
    return url


def test_files_come_in_by_one_commit_and_once(url: str, rows: Path) -> None:
    once = ("--app-id", "nightly", "--app-version", 7)
    job = ("ingest", url, "--table", "t", "--format", "parquet", "--path", rows)

    planned = told(*job, "--dry-run")
    first, again = told(*job, *once), told(*job, *once)

    assert (planned["rows"], planned["version"]) == (30_000, 1)
    assert (first["rows"], first["version"]) == (30_000, 2)
    assert (again["rows"], again["version"], again["already_landed"]) == (0, 2, True)
    table = sp.open(url).snapshot().table("t")
    assert table.schema.types == NUMBERS.types
    assert table.read(["n"])["n"].to_pylist() == [*range(30_000), *range(30_000)]


def test_a_file_of_another_format_is_named_with_what_is_wrong(url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("n,text")

    refused = told(
        "ingest", url, "--table", "t", "--format", "parquet", "--path", tmp_path / "rows.csv", code=2
    )

    assert refused["error"]["type"] == "InvalidInputError"
    assert f"Cannot read {tmp_path / 'rows.csv'} as parquet: " in refused["error"]["message"]


@pytest.mark.parametrize(
    ("verb", "given", "message"),
    [
        ("ingest", ("--format", "xx", "--path", "rows"), "'xx' cannot be read: expected parquet, csv"),
        (
            "export",
            ("--format", "xx", "--output", "out"),
            "'xx' cannot be written: expected parquet or delta",
        ),
        ("ingest", ("--format", "csv"), "csv comes with path None: expected a path"),
        ("ingest", ("--format", "jdbc", "--path", "x"), "jdbc comes with path 'x': expected no path"),
        ("ingest", ("--format", "json", "--path", "nowhere"), "There is nothing at nowhere: expected a file"),
        (
            "ingest",
            ("--format", "csv", "--path", "rows", "--app-id", "nightly"),
            "Application 'nightly' comes with the number None: expected both or neither",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_spark_is_started(
    url: str, verb: str, given: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.cli.jobs._session", lambda *_, **__: pytest.fail("Spark was started"))

    refused = told(verb, url, "--table", "t", *given, code=2)

    assert refused["error"]["type"] == "InvalidInputError"
    assert message in refused["error"]["message"]


def test_a_table_goes_out_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    job = ("export", url, "--table", "t", "--output", tmp_path / "out")

    first = told(*job)
    refused = told(*job, code=2)
    (tmp_path / "out" / "mine.txt").write_text("mine")
    again = told(*job, "--overwrite")

    assert first["rows"] == again["rows"] == 30_000
    assert first["bytes"] == sum(each.stat().st_size for each in (tmp_path / "out").iterdir())
    assert "is there already" in refused["error"]["message"]
    assert pq.read_table(tmp_path / "out").equals(sp.open(url).snapshot().table("t").read())
    assert {each.name for each in tmp_path.iterdir()} == {"out", "rows", "store"}


def test_a_snapshot_is_reconstructed_and_compared_in_this_process(url: str, tmp_path: Path) -> None:
    store = sp.open(url)
    with store.transaction() as txn:
        txn.update("t", "n", rows=[5], values=[-5])
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1], "text": ["x"]}, NUMBERS))

    planned = told("reconstruct-snapshot", url, "--dry-run")
    done = told("reconstruct-snapshot", url, "--output", tmp_path / "pages")

    assert planned["commits"] == done["commits"] == 1
    assert done["equal_to_local"]
    written = pq.read_table(tmp_path / "pages")
    assert written.num_rows == done["pages"]
    held = sum(store.snapshot().table(name).pages().num_rows for name in ("t", "system.catalog"))
    assert written.num_rows == held


def test_a_dry_run_of_verify_tells_what_would_be_read(url: str) -> None:
    planned = told("verify", url, "--pages", "all", "--dry-run")
    sample = told("verify", url, "--dry-run")
    done = told("verify", url, "--pages", "all")

    assert (planned["ok"], planned["dry_run"], done["ok"]) == (True, True, True)
    assert 0 < sample["pages_to_read"] < planned["pages_to_read"] == done["pages_read"] == done["pages"]
    assert 0 < planned["bytes_to_read"] < done["bytes_read"]


def test_a_checkpoint_is_planned_written_and_published(url: str) -> None:
    planned = told("checkpoint", url, "--dry-run")
    done = told("checkpoint", url, "--publish")

    assert (planned["version"], planned["dry_run"]) == (1, True)
    assert (done["version"], done["tasks"], done["published"]["checkpoint"]) == (1, 0, 1)
