"""What every job, and the verb of its name, tells: one JSON document with keys that all have."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.job_result import USAGE
from tests import PROJECT

NUMBERS = pa.schema([("n", pa.int64())])
NEWEST = 2

PLANS = {
    "checkpoint": ("--dry-run",),
    "compact_log": ("--dry-run",),
    "compact_pages": ("--dry-run",),
    "export": ("--table", "t", "--output", "{folder}/out", "--dry-run"),
    "publish_delta": ("--dry-run",),
    "reconstruct_snapshot": ("--dry-run",),
    "vacuum": (),
    "verify": ("--pages", "none"),
}
"""What a job does without Spark, changing nothing."""

DEEDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PLANS, ()),
    "vacuum": ("--apply",),
    "ingest": ("--table", "t", "--format", "parquet", "--path", "{folder}/few.parquet"),
    "export": ("--table", "t", "--output", "{folder}/out"),
}
DRY = {"ingest": (*DEEDS["ingest"], "--dry-run")}


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "store")
    pq.write_table(pa.table({"n": [7, 8]}, NUMBERS), tmp_path / "few.parquet")
    with sp.create(url).transaction() as txn:
        txn.create_table("t", NUMBERS)
    with sp.open(url).transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2, 3]}, NUMBERS))
    return url


def filled(flags: tuple[str, ...], url: str) -> list[str]:
    return [flag.format(folder=Path(url).parent) for flag in flags]


def told_by_verb(job: str, url: str, *flags: str) -> dict[str, Any]:
    ended = CliRunner().invoke(app, [job.replace("_", "-"), url, *filled(flags, url), "--json"])
    assert ended.exit_code == 0, ended.output
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def run(job: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", [f"{job}.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROJECT / "jobs" / f"{job}.py"), run_name="__main__")
    return ended.value.code


def check_common(told: dict[str, Any], job: str, version: int) -> None:
    assert (told["ok"], told["job"], told["version"]) == (True, job, version)
    assert isinstance(told["seconds"], float)


@pytest.mark.parametrize(("job", "flags"), [*PLANS.items(), *DRY.items()])
def test_a_verb_that_only_plans_tells_the_version_it_looked_at_and_how_long(
    job: str, flags: tuple[str, ...], url: str
) -> None:
    told = told_by_verb(job, url, *flags)

    check_common(told, job, NEWEST)
    assert sp.open(url).snapshot().version == NEWEST


@pytest.mark.parametrize(("job", "flags"), DEEDS.items())
def test_a_verb_tells_the_version_and_how_long_and_how_many_bytes(
    job: str, flags: tuple[str, ...], url: str
) -> None:
    told = told_by_verb(job, url, *flags)

    check_common(told, job, told["version"])
    assert told["version"] in (NEWEST, sp.open(url).snapshot().version)
    assert any("bytes" in name for name in told)


@pytest.mark.parametrize(("job", "flags"), PLANS.items())
def test_a_job_tells_what_the_verb_of_its_name_tells(
    job: str,
    flags: tuple[str, ...],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(Path(url).parent / "no java"))
    by_verb = told_by_verb(job, url, *flags)

    code = run(job, monkeypatch, url, *filled(flags, url))

    by_job = json.loads(capsys.readouterr().out)
    check_common(by_job, job, NEWEST)
    assert code == 0
    assert by_verb.keys() - {"plan"} == by_job.keys()


@pytest.mark.parametrize("job", DEEDS)
def test_wrong_arguments_of_a_job_are_told_as_json_too(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(job, monkeypatch)

    said = capsys.readouterr()
    told = json.loads(said.out)
    assert code == USAGE == 2
    assert (told["ok"], told["error"]["type"]) == (False, "UsageError")
    assert "url" in told["error"]["message"]
    assert told["error"]["hint"]
    assert said.err.startswith("usage:")


def test_jobs_and_verbs_tell_an_error_in_one_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = str(tmp_path / "nothing")
    by_verb = CliRunner().invoke(app, ["compact-log", nothing, "--json"])

    code = run("compact_log", monkeypatch, nothing)

    told = json.loads(capsys.readouterr().out)
    assert code == by_verb.exit_code == 4
    assert told == json.loads(by_verb.stdout)
    assert (told["ok"], told["error"]["type"]) == (False, "StoreNotFoundError")


def test_few_rows_that_ride_in_the_commit_are_told_with_their_pages_and_bytes(url: str) -> None:
    once = (*DEEDS["ingest"], "--app-id", "nightly", "--app-version", "1")

    first, again = told_by_verb("ingest", url, *once), told_by_verb("ingest", url, *once)

    made = sp.open(url).history(limit=1).to_pylist()[0]
    assert (first["num_rows"], first["version"]) == (2, NEWEST + 1)
    assert (first["num_pages"], first["bytes_written"]) == (made["pages_added"], made["bytes_added"])
    assert first["num_pages"] > 0
    assert first["bytes_written"] > 0
    assert (again["num_rows"], again["num_pages"], again["version"]) == (0, 0, NEWEST + 1)


def test_rows_that_are_none_are_told_with_no_pages(url: str) -> None:
    pq.write_table(NUMBERS.empty_table(), Path(url).parent / "few.parquet")

    told = told_by_verb("ingest", url, *DEEDS["ingest"])

    assert (told["num_rows"], told["num_pages"], told["bytes_written"], told["version"]) == (0, 0, 0, NEWEST)


def test_faults_are_told_those_that_matter_first(url: str) -> None:
    with sp.open(url).transaction() as txn:
        txn.append("t", pa.table({"n": [pow(n, 9, 2**61 - 1) for n in range(20_000)]}, NUMBERS))
    (pages,) = Path(url, "pages").iterdir()
    pages.chmod(0o644)
    pages.write_bytes(b"".join([pages.read_bytes()[:100], b"damage", pages.read_bytes()[106:]]))
    stray = f"pages/{1:020d}-{'cd' * 16}-0.pages"
    Path(url, stray).write_bytes(b"nothing names this")

    told = json.loads(CliRunner().invoke(app, ["verify", url, "--pages", "all", "--json"]).stdout)

    assert (told["ok"], told["num_faults"], told["notices"]) == (False, 1, 1)
    assert [(each["kind"], each["key"], each["harmless"]) for each in told["faults"]] == [
        ("damaged", f"pages/{pages.name}", False),
        ("orphan", stray, True),
    ]
    assert all(each["what"] and each["remedy"] for each in told["faults"])
