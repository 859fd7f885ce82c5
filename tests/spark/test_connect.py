"""Spark Connect, as docs/spark.md says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from spark_pages.spark.feed import Feed
from spark_pages.spark.session import find_java
from tests import PROJECT
from tests.s3.server import free_port, wait_until_it_answers
from tests.spark.conftest import History

ENVIRONMENT = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_TESTING": "1",
}


@contextmanager
def connect_server(log: Path) -> Iterator[str]:
    """A server in a process of its own, as on another machine, by its address."""
    port = free_port()
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    conf = ["--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"]
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with log.open("wb") as told:
        process = subprocess.Popen(
            [str(submit), "--master", "local[2]", *conf, *server],
            cwd=log.parent,
            env=ENVIRONMENT,
            stdout=told,
            stderr=told,
        )
    try:
        wait_until_it_answers(process, port, 240, str(log))
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(params=["a server that Spark starts", "a server elsewhere"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where Spark is."""
    for package in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(package, reason=f"Spark Connect asks for {package}")
    if request.param == "a server elsewhere":
        with connect_server(tmp_path / "server.log") as address:
            yield address
    else:
        yield "local[2]"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_java() is None, reason="Spark Connect's server needs Java, and there is none")
def test_a_connect_session_reads_writes_and_streams_and_leaves_jobs_to_others(
    remote: str, own_history: History, tmp_path: Path
) -> None:
    flights = own_history.store.snapshot().table("flights")
    pages = sum(flights.pages(name).num_rows for name in flights.columns)
    own = Feed(own_history.url, "rows", flights.definition.table_id).read(0, own_history.latest)
    begin = [sys.executable, "-m", "tests.spark.connect_session", own_history.url, str(tmp_path), remote]

    ended = subprocess.run(
        begin,
        cwd=PROJECT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    until, streamed = told.pop("streamed")
    assert told == {
        "kind": "pyspark.sql.connect.session",
        "known_by_itself": 3,
        "rows_by_itself": flights.num_rows,
        "session_takes_it": True,
        "rows": flights.num_rows,
        "of_a_version": 0,
        "filtered": [7, 8, 9],
        "of_one_load": [10, flights.num_rows, flights.num_rows + 10, flights.num_rows],
        "pages": pages,
        "by_function": ["correct"],
        "changes_by_function": own.num_rows,
        "rows_written": flights.num_rows + 5,
        "rows_ingested": 5,
        "refused": ["JVM_ATTRIBUTE_NOT_SUPPORTED"] * 4,
    }
    assert streamed == Feed(own_history.url, "rows", None).read(0, until).num_rows
