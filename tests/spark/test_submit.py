from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, InternalError, InvalidInputError
from spark_pages.job_result import CONFLICT, NOT_FOUND, USAGE, failure_document
from spark_pages.spark import submit
from spark_pages.spark.session import find_java
from spark_pages.spark.submit import _absolute, _result
from tests import PROJECT
from tests.spark.conftest import History

needs_java = pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")


@needs_java
@pytest.mark.slow
def test_the_compaction_job_runs_by_spark_submit(own_history: History) -> None:
    rows = own_history.store.snapshot().table("flights").read()

    result = submit("compact_pages", [own_history.url, "--table", "flights"])

    after = sp.open(own_history.url).snapshot()
    claim_and_commit = 2
    assert result["version"] == after.version == own_history.latest + claim_and_commit
    assert result["pages_after"] < result["pages_before"]
    assert after.table("flights").read().equals(rows)


@needs_java
def test_the_reconstruction_job_runs_by_spark_submit(history: History) -> None:
    result = submit("reconstruct_snapshot", [history.url])

    assert result["equal_to_local"]
    assert result["version"] == history.latest


def as_documented(job: str, *arguments: str, stderr: int = subprocess.PIPE) -> Any:
    """A job has ended that was called as docs/spark-jobs.md says."""
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    others = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return subprocess.run(
        [spark_submit, f"jobs/{job}.py", *arguments],
        cwd=PROJECT,
        env={**others, **python, "SPARK_CONF_DIR": "conf"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=False,
    )


@needs_java
def test_a_job_as_the_documents_have_it_says_nothing_but_its_result(history: History) -> None:
    ended = as_documented("verify", history.url)

    told = json.loads(ended.stdout)
    assert (told["ok"], told["version"], told["num_faults"]) == (True, history.latest, 0)
    assert told["pages_read"] > 0
    assert not re.findall(r"INFO|WARN |ERROR|log4j", ended.stderr)


@needs_java
@pytest.mark.slow
def test_the_one_line_entry_logs_its_beginning_and_end_alone(history: History, tmp_path: Path) -> None:
    programs = f"{Path(pyspark.__file__).parent / 'bin'}:{Path(sys.executable).parent}"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    line = f"spark-submit $(python -m spark_pages.spark.where) verify {history.url}"

    ended = subprocess.run(
        ["sh", "-c", line],  # the shell splits what `where` prints
        cwd=tmp_path,
        env={**bare, "PATH": f"{programs}:{bare['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    said = [re.sub(r"^20\S+ ", "", each) for each in ended.stderr.splitlines()]
    of_the_jvm, began, *between, done = said
    assert of_the_jvm.startswith("WARNING: Using incubator modules")  # no setting prevents it
    assert (began, done[:16]) == ("verify: started", "verify: done in ")
    assert all(each.startswith("verify: ") for each in between)  # a busy machine takes more than ten seconds
    assert json.loads(ended.stdout)["ok"]
    assert list(tmp_path.iterdir()) == []


@needs_java
@pytest.mark.slow
def test_a_job_tells_its_phases_at_the_terminal_that_spark_submit_has_and_its_result_apart(
    own_history: History,
) -> None:
    ours, theirs = pty.openpty()

    ended = as_documented("compact_log", own_history.url, stderr=theirs)

    seen = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert f"bundling commits up to version {own_history.latest} …" in seen
    assert json.loads(ended.stdout)["job"] == "compact_log"


@needs_java
@pytest.mark.slow
def test_delta_tables_go_out_and_come_in_by_spark_submit_with_the_jars_of_delta(
    own_history: History, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    job = [own_history.url, "--table", "flights", "--output", out, "--format", "delta"]

    refused = as_documented("export", *job)
    try:
        exported = submit("export", job)
    except InternalError as error:
        if "unresolved dependency" in str(error):
            pytest.skip("the JARs of delta-spark cannot be fetched here")
        raise
    into = ["--table", "back", "--create", "--format", "delta", "--path", out]
    taken = submit("ingest", [own_history.url, *into])

    error = json.loads(refused.stdout)["error"]
    tables = sp.open(own_history.url).snapshot()
    assert error["type"] == "MissingDependencyError"
    assert "--packages io.delta:delta-spark_4.2_2.13:4.4.0" in error["hint"]
    assert taken["num_rows"] == exported["num_rows"] == tables.table("flights").num_rows
    before, after = (tables.table(name).read(["id", "carrier"]) for name in ("flights", "back"))
    assert after.sort_by("id").to_pydict() == before.to_pydict()


@needs_java
@pytest.mark.slow
def test_what_is_said_of_a_wrong_call_is_on_the_stderr_of_spark_submit() -> None:
    ended = as_documented("compact_log", "--wrong")

    assert json.loads(ended.stdout)["error"]["type"] == "UsageError"
    assert "usage: compact_log " in ended.stderr
    assert ended.returncode == USAGE


@needs_java
@pytest.mark.slow
def test_a_job_that_fails_in_spark_says_why_in_one_line_and_the_rest_on_stderr(
    own_history: History, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,x\nseven,y\n")
    source = ["--format", "csv", "--path", str(tmp_path / "rows.csv"), "--schema", "a long, b string"]

    ended = as_documented(
        "ingest", own_history.url, "--table", "t", "--create", "--option", "header=true", *source
    )

    told = json.loads(ended.stdout)
    assert ended.returncode == USAGE
    assert (told["ok"], told["error"]["type"]) == (False, "InvalidInputError")
    assert "rows.csv: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION]" in told["error"]["message"]
    assert "[null,y]" in told["error"]["message"]
    assert "NumberFormatException" in ended.stderr
    assert own_history.store.snapshot().version == own_history.latest


def test_the_error_of_a_job_arrives_as_the_class_that_it_was() -> None:
    said = json.dumps(failure_document("CommitConflictError", "overtaken", "Retry."))
    ended = subprocess.CompletedProcess(["job"], CONFLICT, said, "")

    with pytest.raises(CommitConflictError, match=r"overtaken\. Retry\."):
        _result("compact_pages", ended)


def test_a_job_that_ends_without_a_result_shows_the_end_of_what_it_said() -> None:
    ended = subprocess.CompletedProcess(["job"], 1, "", "many lines\nOutOfMemoryError")

    with pytest.raises(InternalError, match="OutOfMemoryError"):
        _result("compact_pages", ended)


def test_a_job_tells_an_error_as_json_and_by_its_exit_code(history: History) -> None:
    job = str(PROJECT / "jobs" / "compact_pages.py")

    ended = subprocess.run(
        [sys.executable, job, history.url, "--table", "absent", "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == NOT_FOUND
    assert json.loads(ended.stdout)["error"]["type"] == "TableNotFoundError"


@needs_java
def test_paths_of_a_job_are_made_absolute_and_urls_stay() -> None:
    given = ["store", "--path", "rows", "--output", "file:/out", "--table", "t"]

    made = _absolute(given)

    assert made == [os.path.abspath("store"), "--path", os.path.abspath("rows"), *given[3:]]
    assert _absolute(["file:/store"]) == ["file:/store"]


def test_a_job_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"job 'no_such_job'.*compact_pages"):
        submit("no_such_job", [])
