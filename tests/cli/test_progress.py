"""Progress: bars at a terminal, log lines elsewhere; each kind of command once by a process of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from importlib import import_module
from threading import Event

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.progress import Phase, advance, current, phase, reporting
from tests import PROJECT

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


Capture = pytest.CaptureFixture[str]


def seen_at_terminal(work: Callable[[int], object]) -> str:
    """What comes to a terminal that is given to the work, by its file descriptor."""
    ours, theirs = pty.openpty()

    def read() -> str:
        said = b""
        while not said.endswith(b"--end--"):
            said += os.read(ours, 4096)
        return said.decode().removesuffix("--end--")

    with ThreadPoolExecutor(1) as beside:
        said = beside.submit(read)
        try:
            work(theirs)
        finally:
            os.write(theirs, b"--end--")
    os.close(ours)
    os.close(theirs)
    return said.result()


def at_terminal(command: list[str]) -> tuple[str, str]:
    """What a process says on stdout, and on a stderr that is a terminal."""
    said: list[str] = []

    def run(stderr: int) -> None:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True)
        said.append(done.stdout)

    told = seen_at_terminal(run)
    return said[0], told


def here_at_terminal(work: Callable[[], object]) -> str:
    """What work in this process says on stderr, while that is a terminal."""

    def run(stderr: int) -> None:
        with open(os.dup(stderr), "w") as terminal, redirect_stderr(terminal):
            work()

    return seen_at_terminal(run)


def run_verb(*arguments: str) -> None:
    """Run a verb in this process; it must succeed."""
    with pytest.raises(SystemExit) as end:
        app(list(arguments))
    assert not end.value.code


def run_job(name: str, *arguments: str) -> None:
    """Run a job in this process; it must succeed."""
    assert import_module(f"spark_pages.spark.jobs.{name}").main(arguments) == 0


@pytest.mark.parametrize(("verb", "expected"), PHASES.items())
def test_a_verb_tells_its_phases_at_a_terminal(verb: str, expected: str, url: str, capsys: Capture) -> None:
    told = here_at_terminal(lambda: run_verb(verb.replace("_", "-"), url))

    assert expected in told
    assert "…" not in capsys.readouterr().out


def test_a_verb_that_is_a_process_tells_its_phases_at_a_terminal(url: str) -> None:
    said, told = at_terminal([sys.executable, "-m", "spark_pages", "verify", url])

    assert PHASES["verify"] in told
    assert "…" not in said


@pytest.mark.parametrize(("job", "flag"), SPARKLESS.items())
def test_a_job_tells_its_phases_at_a_terminal_and_its_result_apart(
    job: str, flag: str, url: str, capsys: Capture
) -> None:
    told = here_at_terminal(lambda: run_job(job, url, flag))

    assert PHASES[job] in told
    assert json.loads(capsys.readouterr().out)["job"] == job


def test_a_job_that_is_a_process_tells_its_phases_at_a_terminal_and_its_result_apart(url: str) -> None:
    said, told = at_terminal([sys.executable, str(PROJECT / "jobs" / "compact_log.py"), url])

    assert PHASES["compact_log"] in told
    assert json.loads(said)["job"] == "compact_log"


def test_a_job_that_a_shell_calls_keeps_to_where_the_shell_sends_its_stderr() -> None:
    job = [sys.executable, str(PROJECT / "jobs" / "compact_log.py")]

    done = subprocess.run(job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    assert "usage: compact_log " in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["error"]["type"] == "UsageError"


def test_a_verb_that_tells_json_is_silent_at_a_terminal(url: str, capsys: Capture) -> None:
    told = here_at_terminal(lambda: run_verb("verify", url, "--json"))

    assert json.loads(capsys.readouterr().out)["ok"]
    assert told.strip() == ""


def test_a_verb_without_a_terminal_tells_no_phases(url: str, capsys: Capture) -> None:
    run_verb("verify", url)

    said = capsys.readouterr()
    assert "…" not in said.out + said.err


def test_a_job_without_a_terminal_logs_its_beginning_and_its_end(url: str) -> None:
    # given
    job = [sys.executable, "-m", "spark_pages.spark.jobs", "compact_log", url]
    # when
    done = subprocess.run(job, capture_output=True, text=True, check=True)
    # then
    began, ended = done.stderr.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:+-]+ compact_log: started", began)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:+-]+ compact_log: done in [\d.]+ \w+", ended)
    assert json.loads(done.stdout)["ok"]


@pytest.mark.parametrize("arguments", [["--progress", "none"], ["--progress=none", "--dry-run"]])
def test_a_job_that_is_to_show_no_progress_writes_nothing_to_stderr(
    url: str, arguments: list[str], capsys: Capture
) -> None:
    run_job("compact_log", url, *arguments)

    assert capsys.readouterr().err == ""


def test_a_job_at_a_terminal_logs_lines_where_it_is_told_to(url: str) -> None:
    told = here_at_terminal(lambda: run_job("compact_log", url, "--progress=log"))

    assert "compact_log: started" in told
    assert "…" not in told


def test_a_verb_without_a_terminal_logs_where_it_is_told_to(url: str, capsys: Capture) -> None:
    run_verb("--progress", "log", "verify", url)

    said = capsys.readouterr()
    assert "spark-pages: started" in said.err
    assert "started" not in said.out


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


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        (Phase("writing", 0, "rows", 64 << 20), "0 rows, 0 B of 64.0 MiB"),
        (Phase("writing", 400, "rows"), "0 of 400 rows"),
        (Phase("writing", 0, "rows"), ""),
        (Phase("writing", 0, "", 1 << 20), "0 B of 1.0 MiB"),
    ],
)
def test_what_is_to_do_is_shown_before_any_of_it_is_done(begun: Phase, expected: str) -> None:
    assert begun.figures() == expected


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
