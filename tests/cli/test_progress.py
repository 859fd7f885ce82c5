"""Progress: bars at a terminal, log lines elsewhere; by real processes, with a terminal of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.progress import Phase, advance, current, phase, reporting
from tests import PROJECT

VERB = [sys.executable, "-m", "spark_pages"]
JOB = [sys.executable, "-m", "spark_pages.spark.jobs"]
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

    assert "usage: compact_log " in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["error"]["type"] == "UsageError"


def test_a_verb_that_tells_json_is_silent_at_a_terminal(url: str) -> None:
    said, told = at_terminal([*VERB, "verify", url, "--json"])

    assert json.loads(said)["ok"]
    assert told.strip() == ""


def test_a_verb_into_a_pipe_tells_no_phases(url: str) -> None:
    done = subprocess.run([*VERB, "verify", url], capture_output=True, text=True, check=True)

    assert "…" not in done.stdout + done.stderr


def test_a_job_without_a_terminal_logs_its_beginning_and_its_end(url: str) -> None:
    # when
    done = subprocess.run([*JOB, "compact_log", url], capture_output=True, text=True, check=True)
    # then
    began, ended = done.stderr.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:+-]+ compact_log: started", began)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:+-]+ compact_log: done in [\d.]+ \w+", ended)
    assert json.loads(done.stdout)["ok"]


@pytest.mark.parametrize("arguments", [["--progress", "none"], ["--progress=none", "--dry-run"]])
def test_a_job_that_is_to_show_no_progress_writes_nothing_to_stderr(url: str, arguments: list[str]) -> None:
    done = subprocess.run([*JOB, "compact_log", url, *arguments], capture_output=True, text=True, check=True)

    assert done.stderr == ""


def test_a_job_at_a_terminal_logs_lines_where_it_is_told_to(url: str) -> None:
    _, seen = at_terminal([*JOB, "compact_log", url, "--progress=log"])

    assert "compact_log: started" in seen
    assert "…" not in seen


def test_a_verb_into_a_pipe_logs_where_it_is_told_to(url: str) -> None:
    verb = [*VERB, "--progress", "log", "verify", url]

    done = subprocess.run(verb, capture_output=True, text=True, check=True)

    assert "spark-pages: started" in done.stderr
    assert "started" not in done.stdout


def test_the_library_shows_nothing_by_itself(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    phase("unheard", 10, "pages")
    sp.open(url).verify()

    assert capsys.readouterr().err == ""


def test_a_log_line_has_what_is_done_of_how_much_how_fast_and_how_long_the_rest_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # given
    said = Said()
    # when
    with reporting("log", "verify", said, every_s=0.01):
        phase("reading pages", 400, "pages", 8 << 20)
        advance(100, 2 << 20)
        said.wait()
    # then
    lines = capsys.readouterr().err.splitlines()
    assert any(
        re.search(
            r"verify: reading pages: 100 of 400 pages, 2\.0 MiB of 8\.0 MiB, \S+ [KMG]iB/s, 25%, "
            r"\S+ \w+ left, 3 of 7 Spark tasks",
            line,
        )
        for line in lines
    ), lines


def test_a_log_tells_by_what_its_work_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), reporting("log", "ingest"):
        raise KeyError("x")

    assert re.search(r"ingest: ended after .* by KeyError$", capsys.readouterr().err.strip())


def test_counts_of_threads_and_of_executors_add_up() -> None:
    # given
    begun = Phase("writing", 1_000, "rows")
    begun.follow(lambda: (100, 7))
    # when
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: begun.advance(1, 2), range(400)))
    # then
    assert begun.done == (500, 807)
    assert begun.fraction == 0.5


def test_more_than_was_expected_is_never_more_than_all() -> None:
    begun = Phase("reading", 10, "pages")

    begun.advance(12)

    assert begun.fraction == 1.0
    assert begun.figures().startswith("12 of 12 pages")


def test_counts_outside_of_what_is_reported_go_nowhere() -> None:
    advance(5)

    assert current().done == (0, 0)


class Said:
    """Gives the details of a line, and lets a test wait for the first."""

    def __init__(self) -> None:
        self._asked = Event()

    def __call__(self) -> str:
        self._asked.set()
        return "3 of 7 Spark tasks"

    def wait(self) -> None:
        assert self._asked.wait(60)
