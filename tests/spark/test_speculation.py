"""Speculation: Spark runs a slow task a second time beside the first, and takes the one that is ready."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.spark.session import PROJECT, find_java
from tests.s3.server import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_java() is None, reason="a cluster needs Java, and there is none"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="two hosts of one machine are 127.0.0.1 and 127.0.0.2"
    ),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
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
            "2",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(tmp_path / host),
            master,
        ]
        for host in ("127.0.0.1", "127.0.0.2")
    ]
    with ExitStack() as running:
        said = running.enter_context((tmp_path / "daemons.log").open("wb"))
        for each in daemons:
            process = subprocess.Popen(
                [start, *each], stdout=said, stderr=said, env={**os.environ, "SPARK_DAEMON_MEMORY": "256m"}
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


def test_a_task_that_runs_twice_at_once_adds_its_rows_once(cluster: str, tmp_path: Path) -> None:
    import pyspark  # noqa: PLC0415 - only where Java is

    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    handed_over = tmp_path / "handed_over"
    handed_over.mkdir()
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.driver.host": "127.0.0.1",
    }

    ended = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", cluster),
            *("--properties-file", str(PROJECT / "conf" / "spark-defaults.conf")),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            str(PROJECT / "tests" / "spark" / "speculated_write.py"),
            *(store.url, str(handed_over)),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(PROJECT),
        },
    )

    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {"3-0", "3-1"} <= {each.name for each in handed_over.iterdir()}
    table = sp.open(store.url).snapshot().table("t")
    assert table.read()["n"].to_pylist() == list(range(400_000))
    named = set(table.pages()["path"].to_pylist())
    assert len(list((tmp_path / "store" / "pages").iterdir())) > len(named), "both attempts have written"
    assert sp.open(store.url).verify("all").ok
