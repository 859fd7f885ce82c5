"""Speculation: Spark runs a slow task a second time beside the first, and takes the one that is ready."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_pages as sp
from spark_pages.spark.session import SHORT_RUN, find_java
from tests import PROJECT
from tests.once import made_once
from tests.s3.server import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_java() is None, reason="a cluster needs Java, and there is none"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="two hosts of one machine are 127.0.0.1 and 127.0.0.2"
    ),
]

ROWS = 40_000
OPERATIONS = {
    "append": "spark write",
    "overwrite": "spark write",
    "stream": "spark stream",
    "compaction": "compact pages",
}


@dataclass(frozen=True, slots=True)
class Speculated:
    """A store to which each of `OPERATIONS` was done, with two attempts of its first task, and where these
    left word.
    """

    store: sp.Store
    folder: Path

    def commits(self) -> list[dict[str, object]]:
        """Those of the operations, oldest first."""
        history = self.store.history().to_pylist()
        return [row for row in history[::-1] if row["operation"] in OPERATIONS.values()]

    def named_files(self) -> set[str]:
        """Page files that some version names."""
        versions = range(2, self.store.snapshot().version + 1)
        tables = [self.store.snapshot(version).table("t") for version in versions]
        return {path for table in tables for path in table.pages()["path"].to_pylist()}


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master, and two workers that Spark takes for two hosts: it starts no second attempt where the first
    is, so a local cluster, which has one host, starts none.
    """
    import pyspark  # noqa: PLC0415 - only where Java is

    start = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    daemons = [
        [
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            str(page),
        ]
    ]
    daemons += [
        [
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(folder / host),
            master,
        ]
        for host in ("127.0.0.1", "127.0.0.2")
    ]
    with ExitStack() as running:
        said = running.enter_context((folder / "daemons.log").open("wb"))
        for each in daemons:
            process = subprocess.Popen(
                [start, *each],
                stdout=said,
                stderr=said,
                env={**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT_RUN},
            )
            running.callback(process.wait)
            running.callback(process.terminate)
        _wait_for_workers(f"http://127.0.0.1:{page}/json/", 2)
        yield master


def _wait_for_workers(page: str, wanted: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            with urlopen(page) as answer:  # noqa: S310 - of our own master
                if f'"aliveworkers" : {wanted}' in answer.read().decode():
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{wanted} workers did not come up")


@pytest.fixture(scope="session")
def speculated(tmp_path_factory: pytest.TempPathFactory) -> Speculated:
    folder = made_once(tmp_path_factory, "speculated", speculate)
    return Speculated(sp.open(str(folder / "store")), folder)


def speculate(folder: Path) -> None:
    """Every operation, on a cluster of its own."""
    (folder / "cluster").mkdir()
    with cluster(folder / "cluster") as master:
        submit(master, folder)


def submit(master: str, folder: Path) -> None:
    import pyspark  # noqa: PLC0415 - only where Java is

    store = sp.create(str(folder / "store"), properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]), properties={"page_bytes": "8192"})
    (folder / "rows").mkdir()
    for part in range(2):
        some = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        pq.write_table(pa.table({"n": some}), folder / "rows" / f"{part}.parquet")
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.task.duration.threshold": "1s",  # of a stage of one task, as a compaction has
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.cores.max": "2",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SHORT_RUN,
        "spark.driver.extraJavaOptions": SHORT_RUN,
        "spark.driver.host": "127.0.0.1",
    }

    ended = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", master),
            *("--properties-file", str(PROJECT / "conf" / "spark-defaults.conf")),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            str(PROJECT / "tests" / "spark" / "speculated_write.py"),
            *(store.url, str(folder)),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(PROJECT),
        },
    )

    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize("name", OPERATIONS)
def test_two_attempts_of_a_task_have_written_before_either_ends(speculated: Speculated, name: str) -> None:
    attempts = {each.name for each in (speculated.folder / name).iterdir()}

    assert attempts >= {"0", "1"}


def test_what_two_attempts_of_a_task_have_written_is_committed_once(speculated: Speculated) -> None:
    first, second = list(range(ROWS)), list(range(ROWS, 2 * ROWS))

    done = speculated.commits()

    assert [row["operation"] for row in done] == [*OPERATIONS.values()]
    tables = [speculated.store.snapshot(row["version"]).table("t") for row in done]
    found = [sorted(table.read()["n"].to_pylist()) for table in tables]
    assert found == [first, second, first + second, first + second]
    assert speculated.store.verify("all").ok


def test_files_of_the_attempt_that_lost_are_orphans_and_vacuum_finds_them(
    speculated: Speculated, tmp_path: Path
) -> None:
    store = sp.open(str(shutil.copytree(speculated.folder / "store", tmp_path / "store")))
    named = speculated.named_files()
    left = page_files(store) - named
    with store.transaction() as txn:
        txn.append("t", {"n": [-1]})
    rows = store.snapshot().table("t").read()

    plan = store.vacuum_plan(retention=1, orphans=True).objects.to_pylist()
    store.vacuum(retention=1, orphans=True)

    assert {read_version(key) for key in left} == {row["read_version"] for row in speculated.commits()}
    assert not {attempt(key) for key in left} & {attempt(key) for key in named}, "all of it or nothing"
    assert left <= {each["key"] for each in plan if each["reason"] == "orphan"}
    assert not left & page_files(store)
    assert store.snapshot().table("t").read().equals(rows)
    assert store.verify("all").ok


def page_files(store: sp.Store) -> set[str]:
    return {info.key for info in store.object_store.list("pages/")}


def attempt(key: str) -> str:
    """Which attempt of a task has written a page file, by its name."""
    return key.rpartition("-")[0]


def read_version(key: str) -> int:
    """The version that the writer of a page file had read."""
    return int(key.removeprefix("pages/").partition("-")[0])
