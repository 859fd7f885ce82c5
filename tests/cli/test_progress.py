"""Phases are told at a terminal, and nowhere else; by real processes, with a terminal of their own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.progress import phase, watched
from spark_pages.spark.session import PROJECT

VERB = [sys.executable, "-c", "from spark_pages.cli import main; main()"]
PHASES = {
    "checkpoint": "writing a checkpoint of version 1 …",
    "compact_log": "bundling commits up to version 1 …",
    "compact_pages": "compacting pages of t …",
    "publish_delta": "publishing checkpoints …",
    "reconstruct_snapshot": "comparing descriptors …",
    "vacuum": "looking for what may go …",
    "verify": "reading the log …",
}
SPARKLESS = {"checkpoint": "--local", "compact_log": "--json", "vacuum": "--json"}
"""Jobs that start no Spark, and a flag that changes nothing else."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("progress") / "store")
    with sp.create(url).transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", pa.table({"n": [1, 2, 3]}))
    return url


def at_terminal(command: list[str]) -> tuple[str, str]:
    """What a command says on stdout, and on a stderr that is a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as seen:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
        os.write(theirs, b"\n--end--\n")
        said = b""
        while b"--end--" not in said:
            said += seen.read(4096)
        os.close(theirs)
    return done.stdout, said.decode().removesuffix("\n--end--\n").partition("--end--")[0]


@pytest.mark.parametrize(("job", "expected"), PHASES.items())
def test_a_verb_tells_its_phases_at_a_terminal(job: str, expected: str, url: str) -> None:
    said, told = at_terminal([*VERB, job.replace("_", "-"), url])

    assert expected in told
    assert "…" not in said


@pytest.mark.parametrize(("job", "flag"), SPARKLESS.items())
def test_a_job_tells_its_phases_at_a_terminal_and_its_result_apart(job: str, flag: str, url: str) -> None:
    said, told = at_terminal([sys.executable, str(PROJECT / "jobs" / f"{job}.py"), url, flag])

    assert PHASES[job] in told
    assert json.loads(said)["job"] == job


def test_a_job_that_a_shell_calls_keeps_to_where_the_shell_sends_its_stderr() -> None:
    job = [sys.executable, str(PROJECT / "jobs" / "compact_log.py")]

    done = subprocess.run(job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    assert "usage: compact_log.py" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["error"]["type"] == "UsageError"


def test_a_verb_that_tells_json_is_silent_at_a_terminal(url: str) -> None:
    said, told = at_terminal([*VERB, "verify", url, "--json"])

    assert json.loads(said)["ok"]
    assert told.strip() == ""


def test_a_verb_into_a_pipe_tells_no_phases(url: str) -> None:
    done = subprocess.run([*VERB, "verify", url], capture_output=True, text=True, check=True)

    assert "…" not in done.stdout + done.stderr


def test_the_library_tells_nothing_by_itself(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with watched(True):
        phase("heard")
    sp.open(url).verify()

    assert capsys.readouterr().err == "heard …\n"
