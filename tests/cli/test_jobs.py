"""Verbs that are jobs too: the same flags, and the same work done by one process where it is small."""

from __future__ import annotations

import argparse
import errno
import json
import os
import runpy
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.errors import InvalidInputError, MissingDependencyError
from spark_pages.job_result import FAILED
from spark_pages.spark.external import External, LocalRows
from spark_pages.spark.output_folder import OutputFolder
from tests import PROJECT

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
    def stop(parser: argparse.ArgumentParser, _: object = None) -> NoReturn:
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

    assert flags_of_job(path, monkeypatch) == taken | {"--help", "--progress"}
    writes = path.stem != "verify"
    assert (("--apply" in taken) != ("--dry-run" in taken)) == writes


@pytest.fixture(scope="module")
def rows_and_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files, and a store with their rows, of which each test gets a copy."""
    made = tmp_path_factory.mktemp("jobs")
    folder, url = made / "rows", str(made / "store")
    folder.mkdir()
    for part in range(3):
        numbers = range(part * 10_000, (part + 1) * 10_000)
        held = pa.table({"n": numbers, "text": [f"text number {n}" for n in numbers]}, NUMBERS)
        pq.write_table(held, folder / f"{part}.parquet")
    sp.create(url)
    told("ingest", url, "--table", "t", "--format", "parquet", "--path", folder, "--create")
    return made


@pytest.fixture
def rows(tmp_path: Path, rows_and_store: Path) -> Path:
    return Path(shutil.copytree(rows_and_store / "rows", tmp_path / "rows"))


@pytest.fixture
def url(tmp_path: Path, rows: Path, rows_and_store: Path) -> str:
    return str(shutil.copytree(rows_and_store / "store", tmp_path / "store"))


def test_files_come_in_by_one_commit_and_once(url: str, rows: Path) -> None:
    once = ("--app-id", "nightly", "--app-version", 7)
    job = ("ingest", url, "--table", "t", "--format", "parquet", "--path", rows)

    planned = told(*job, "--dry-run")
    first, again = told(*job, *once), told(*job, *once)

    assert (planned["num_rows"], planned["version"]) == (30_000, 1)
    assert (first["num_rows"], first["version"]) == (30_000, 2)
    assert (again["num_rows"], again["version"], again["already_landed"]) == (0, 2, True)
    table = sp.open(url).snapshot().table("t")
    assert table.schema.types == NUMBERS.types
    assert table.read(["n"])["n"].to_pylist() == [*range(30_000), *range(30_000)]


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_files_and_stores_are_found_by_url_too(
    url: str, rows: Path, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.cli.jobs._session", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.chdir(tmp_path)

    done = told("ingest", scheme + url, "--table", "t", "--format", "parquet", "--path", f"{scheme}{rows}")

    assert (done["num_rows"], done["version"]) == (30_000, 2)
    assert sp.open(url).snapshot().table("t").num_rows == 60_000
    assert {each.name for each in tmp_path.iterdir()} == {"rows", "store"}


def test_files_that_spark_may_read_otherwise_are_left_to_spark(
    url: str, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rows / "more").mkdir()
    pq.write_table(pa.table({"n": [1], "text": ["x"]}, NUMBERS), rows / "more" / "a.parquet")
    started: list[str] = []

    def session(name: str, **_options: object) -> None:
        started.append(name)

    monkeypatch.setattr("spark_pages.cli.jobs._session", session)

    told("ingest", url, "--table", "t", "--format", "parquet", "--path", rows, code=2)

    assert started == ["ingest"]


def test_where_spark_is_missing_it_is_told_why_files_take_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet")

    def missing(*_given: object, **_options: object) -> NoReturn:
        raise MissingDependencyError("Spark is not there.", hint="Install it.")

    monkeypatch.setattr("spark_pages.cli.jobs._session", missing)

    refused = told(
        "ingest", url, "--table", "t", "--format", "parquet", "--path", tmp_path / "a.parquet", code=1
    )

    assert refused["error"]["type"] == "MissingDependencyError"
    assert (
        "a.parquet without Spark: at is a timestamp in nanoseconds of Parquet. Spark is"
        in refused["error"]["message"]
    )
    assert refused["error"]["hint"] == "Install it."


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
        (
            "ingest",
            ("--format", "xx", "--path", "rows"),
            "Cannot read 'xx': it is not a format that is known",
        ),
        (
            "export",
            ("--format", "xx", "--output", "out"),
            "Cannot write 'xx': expected one of parquet, delta, csv, json, orc, ipc, and a path",
        ),
        ("ingest", ("--format", "csv"), "Cannot read csv: there is no path"),
        ("ingest", ("--format", "jdbc", "--path", "x"), "Cannot read the path 'x' by jdbc: it reads none"),
        ("ingest", ("--format", "json", "--path", "nowhere"), "Cannot read nowhere: expected a file"),
        (
            "ingest",
            ("--format", "csv", "--path", "rows", "--app-id", "nightly"),
            "Cannot use application 'nightly' with number None: expected both or neither",
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


def test_moments_of_96_bits_are_instants_as_in_spark(url: str, tmp_path: Path) -> None:
    moments = [datetime(1, 1, 1), datetime(2020, 2, 3), datetime(2200, 1, 1)]
    kind = pa.timestamp("us")
    rows = pa.table(
        {
            "at": pa.array(moments, kind),
            "all": pa.array([moments] * 3, pa.list_(kind)),
            "in": pa.array([{"at": each} for each in moments], pa.struct([("at", kind)])),
        }
    )
    pq.write_table(rows, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True, store_schema=False)

    told(
        "ingest", url, "--table", "old", "--format", "parquet", "--path", tmp_path / "old.parquet", "--create"
    )

    found = sp.open(url).snapshot().table("old").read()
    assert found.schema.types[0] == pa.timestamp("us", "UTC")
    instants = [each.replace(tzinfo=UTC) for each in moments]
    assert [each.astimezone(UTC) for each in found.column("at").to_pylist()] == instants
    assert found.column("all").to_pylist()[0] == instants
    assert found.column("in").to_pylist()[0] == {"at": instants[0]}


def test_the_ending_of_a_path_tells_its_format(url: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "rows.PARQUET")

    done = told("ingest", url, "--table", "new", "--path", tmp_path / "rows.PARQUET", "--create")

    assert done["num_rows"] == 2
    for path, form in {
        "a.csv": "csv",
        "x/*.jsonl.gz": "json",
        "a.ndjson": "json",
        "s3://b/a.orc": "orc",
    }.items():
        assert External.source(None, path, {}).format == form
    assert External.source("csv", "a.parquet", {}).format == "csv"
    for path in ("rows", "a.gz", "/", None):
        with pytest.raises(InvalidInputError, match=r"Cannot tell the format of .*Name it by --format"):
            External.source(None, path, {})


def test_folders_above_a_file_are_no_columns_and_those_below_a_folder_are(url: str, tmp_path: Path) -> None:
    file = tmp_path / "in" / "year=2020" / "rows.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), file)

    for name, path in {"alone": file, "below": tmp_path / "in"}.items():
        told("ingest", url, "--table", name, "--format", "parquet", "--path", path, "--create", "--dry-run")
        columns = LocalRows.of(External("parquet", str(path), {})).schema.names

        assert columns == (["n"] if name == "alone" else ["n", "year"])


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("verb", ["export", "reconstruct-snapshot"])
@pytest.mark.parametrize("form", ["parquet", "delta"])
@pytest.mark.parametrize(
    "where", ["", "/", "/_log", "/pages/new", "/..", "/../link", "/../link/_log", "/x/.."]
)
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_nothing_is_written_into_the_store_or_over_it(
    url: str, verb: str, form: str, where: str, scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("spark_pages.cli.jobs._session", lambda *_, **__: pytest.fail("Spark was started"))
    (tmp_path / "link").symlink_to(url)
    monkeypatch.chdir(tmp_path)  # where a URL would be written that is taken for a relative path
    table = ["--table", "t"] if verb == "export" else []

    refused = told(
        verb, url, *table, "--output", scheme + url + where, "--format", form, "--overwrite", code=2
    )

    assert "Cannot write rows into" in refused["error"]["message"]
    assert {each.name for each in tmp_path.iterdir()} == {"link", "rows", "store"}
    assert sp.open(url).verify("all").ok


@pytest.mark.parametrize(
    ("output", "store", "how"),
    [
        ("s3a://lake/shop/out", "s3://lake/shop", "lies in"),
        ("s3://lake", "s3://lake/shop/", "contains"),
        ("S3N://lake//shop", "s3://lake/shop", "is"),
        ("abfss://lake@account.dfs.core.windows.net/shop/out", "az://lake/shop", "lies in"),
        ("gs://lake/shop/./out", "gs://lake/shop", "lies in"),
        ("file:/lake/a%20b/out", "/lake/a%20b", "lies in"),
        ("file:///lake/a b", "file:/lake/a%20b", "is"),
        ("/lake", "file://localhost/lake/shop", "contains"),
        ("file:/lake/a%20b", "file:///lake/a%20b", None),
        ("file:lake", "/lake", None),
        ("s3://lake/shop2", "s3://lake/shop", None),
        ("s3://other/shop", "s3://lake/shop", None),
        ("gs://lake/shop", "s3://lake/shop", None),
        ("/lake/shop", "s3://lake/shop", None),
    ],
)
def test_addresses_of_one_place_are_known_by_any_of_its_names(
    output: str, store: str, how: str | None
) -> None:
    folder = OutputFolder("parquet", output, overwrite=True)

    if how is None:
        folder.check(store)
    else:
        with pytest.raises(InvalidInputError, match=f"{output}: it {how} the store at {store}"):
            folder.check(store)


@pytest.mark.parametrize("what", ["a file", "a link"])
def test_what_is_no_folder_is_not_overwritten(url: str, tmp_path: Path, what: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept.txt").write_text("mine")
    if what == "a link":
        (tmp_path / "out").symlink_to(tmp_path / "mine")
    else:
        (tmp_path / "out").write_text("mine")

    job = ("export", url, "--table", "t", "--output", tmp_path / "out", "--overwrite")
    refused = [told(*job, code=2), told(*job, "--dry-run", code=2)]

    assert all(f"out: it is {what}, and not a folder" in each["error"]["message"] for each in refused)
    assert (tmp_path / "out").exists()
    assert (tmp_path / "mine" / "kept.txt").read_text() == "mine"


def test_a_table_goes_out_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    job = ("export", url, "--table", "t", "--output", tmp_path / "out")

    first = told(*job)
    refused = told(*job, code=2)
    (tmp_path / "out" / "mine.txt").write_text("mine")
    again = told(*job, "--overwrite")

    assert first["num_rows"] == again["num_rows"] == 30_000
    assert first["bytes_written"] == sum(each.stat().st_size for each in (tmp_path / "out").iterdir())
    assert "is there already" in refused["error"]["message"]
    assert pq.read_table(tmp_path / "out").equals(sp.open(url).snapshot().table("t").read())
    assert {each.name for each in tmp_path.iterdir()} == {"out", "rows", "store"}


def test_a_folder_that_is_overwritten_is_never_there_in_part(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ("export", url, "--table", "t", "--output", tmp_path / "out")
    told(*job)
    (tmp_path / "out" / "mine.txt").write_text("mine")
    real, seen = shutil.rmtree, []

    def looking(folder: str, **how: bool) -> None:
        seen.append(sorted(each.name for each in (tmp_path / "out").iterdir()))
        real(folder, **how)

    monkeypatch.setattr(shutil, "rmtree", looking)
    told(*job, "--overwrite")

    assert seen
    assert all(names == ["part-00000.parquet"] for names in seen), seen
    assert {each.name for each in tmp_path.iterdir()} == {"out", "rows", "store"}


def test_a_folder_stays_where_the_one_for_its_place_cannot_be_moved(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ("export", url, "--table", "t", "--output", tmp_path / "out")
    told(*job)
    (tmp_path / "out" / "mine.txt").write_text("mine")
    real, moved = os.rename, []

    def failing_once(source: str, target: str) -> None:
        moved.append(target)
        if len(moved) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    monkeypatch.setattr(os, "rename", failing_once)
    failed = told(*job, "--overwrite", code=FAILED)

    assert failed["error"]["type"] == "StorageError"
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == {"out", "rows", "store"}


def test_a_disk_that_is_full_is_an_error_of_storage_and_leaves_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", full)

    failed = told("export", url, "--table", "t", "--output", tmp_path / "out", code=FAILED)

    assert failed["error"]["type"] == "StorageError"
    assert f"Cannot write rows to {tmp_path}/out: [Errno 28] No space left" in failed["error"]["message"]
    assert not [each for each in tmp_path.iterdir() if "out" in each.name]


def test_a_snapshot_is_reconstructed_and_compared_in_this_process(url: str, tmp_path: Path) -> None:
    store = sp.open(url)
    with store.transaction() as txn:
        txn.update_rows("t", [5], {"n": [-5]})
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1], "text": ["x"]}, NUMBERS))

    planned = told("reconstruct-snapshot", url, "--dry-run")
    done = told("reconstruct-snapshot", url, "--output", tmp_path / "pages")

    assert planned["commits"] == done["commits"] == 1
    assert done["equal_to_local"]
    written = pq.read_table(tmp_path / "pages")
    assert written.num_rows == done["num_pages"]
    held = sum(store.snapshot().table(name).pages().num_rows for name in ("t", "system.catalog"))
    assert written.num_rows == held


def test_verify_says_how_many_pages_it_has_not_read(url: str) -> None:
    shown = CliRunner().invoke(app, ["verify", url])
    sample, every = told("verify", url), told("verify", url, "--pages", "all")

    assert every["pages_read"] == every["num_pages"] > sample["pages_read"] > 0
    told_of = f"{sample['pages_read']} of {sample['num_pages']} pages were read; --pages all reads every page"
    assert told_of in shown.output
    assert "--pages all" not in CliRunner().invoke(app, ["verify", url, "--pages", "all"]).output


def test_a_checkpoint_is_planned_written_and_published(url: str) -> None:
    planned = told("checkpoint", url, "--dry-run")
    done = told("checkpoint", url, "--publish")

    assert (planned["version"], planned["dry_run"]) == (1, True)
    assert (done["version"], done["tasks"], done["published"]["checkpoint"]) == (1, 0, 1)
