"""Spark and a store on a real S3 server: executors reach it by a profile, and no JAR of S3 is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import compact_pages, publish_delta, reconstruct_snapshot, submit
from spark_pages.spark.publish import SEGMENTS
from spark_pages.spark.session import find_java
from tests.s3.server import ACCESS_KEY_ID, MISSING, SECRET_ACCESS_KEY, S3Server, new_url, server_binary
from tests.spark.conftest import FLIGHTS, flights
from tests.spark.test_publish import local_ids
from tests.spark.test_write import frame

pytestmark = pytest.mark.s3

COMPACTED = 64
"""Commits enough for the log to be compacted."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if server_binary() is None:
        pytest.skip(MISSING)
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def profile(server: S3Server, profiles: Path) -> str:
    """A profile that leads to the server, for every process that reads the file."""
    profiles.write_text(
        f'[local]\nregion = "us-east-1"\nendpoint = "http://127.0.0.1:{server.port}"\n'
        f'access_key_id = "{ACCESS_KEY_ID}"\nsecret_access_key = "{SECRET_ACCESS_KEY}"\n'
        "client_options = { allow_http = true }\n"
    )
    return "local"


def test_rows_are_written_read_compacted_and_published_on_s3(
    spark: SparkSession, server: S3Server, profile: str
) -> None:
    url = new_url()
    store = sp.create(url, storage_options=server.options())
    with store.transaction() as txn:
        txn.create_table("flights", FLIGHTS, properties={"page_bytes": "8192"})
    options = {"table": "flights", "profile": profile}

    frame(spark, 0, 20_000).write.format("spark_pages").mode("append").options(**options).save(url)
    frame(spark, 20_000, 100).write.format("spark_pages").mode("append").options(**options).save(url)
    found = spark.read.format("spark_pages").options(**options).load(url)
    rows = found.filter("id >= 19990").count()
    compacted = compact_pages(spark, url, "flights", profile)
    store.checkpoint()
    published = publish_delta(url, profile=profile)
    rebuilt = reconstruct_snapshot(spark, url, profile=profile)

    called = {"url": url, "profile": profile}
    history = spark.sql("select version from spark_pages_history(:url, profile => :profile)", called)
    changes = spark.sql("select * from spark_pages_changes(:url, profile => :profile)", called)

    assert history.count() == store.history().num_rows
    assert changes.count() > 0
    assert rows == 110
    assert compacted["ok"]
    assert published.checkpoint == rebuilt["version"]
    assert rebuilt["equal_to_local"], rebuilt["differences"]
    read = sp.open(url, storage_options=server.options()).snapshot().table("flights").read()
    assert read.equals(flights(0, 20_100))
    plan = found._jdf.queryExecution().toString()
    assert SECRET_ACCESS_KEY not in plan


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")
def test_every_job_by_spark_submit_reaches_the_store_by_the_name_of_a_profile(
    server: S3Server, profile: str, tmp_path: Path
) -> None:
    url = new_url()
    store = sp.create(url, storage_options=server.options(), properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("flights", FLIGHTS, properties={"page_bytes": "1024"})
    plain = flights(0, 5_000).set_column(5, "seats", flights(0, 5_000)["seats"].cast(pa.int32()))
    pq.write_table(plain, tmp_path / "flights.parquet")
    told = {}

    def job(name: str, *arguments: str) -> dict[str, Any]:
        told[name] = submit(name, [url, "--profile", profile, *arguments])
        return told[name]

    given = ("--table", "flights", "--format", "parquet", "--path", str(tmp_path / "flights.parquet"))
    ingested = job("ingest", *given)
    for number in range(COMPACTED):
        with store.transaction() as txn:
            txn.update_rows("flights", [number], {"delay": [-1.0]})
    with store.transaction() as txn:
        txn.set_table_properties("flights", {"page_bytes": "65536"})
    pages = store.snapshot().table("flights").pages("id").num_rows
    rows = store.snapshot().table("flights").read()
    compacted = job("compact_pages", "--table", "flights")
    shorter = job("compact_log")
    checkpoint = job("checkpoint")
    published = job("publish_delta")
    ids = _published_ids(url, server)
    expected_ids = local_ids(store, checkpoint["version"])
    rebuilt = job("reconstruct_snapshot")
    stray = f"pages/{1:020d}-{'cd' * 16}-0.pages"
    store.object_store.put(stray, b"nothing names this")
    vacuumed = job("vacuum", "--retention", "1", "--orphans", "--apply")
    verified = job("verify")
    exported = job("export", "--table", "flights", "--output", str(tmp_path / "exported"))

    after = sp.open(url, storage_options=server.options())
    table = after.snapshot().table("flights")
    assert ingested["num_rows"] == exported["num_rows"] == 5_000
    assert compacted["tasks"] > 0
    assert table.pages("id").num_rows < pages
    assert table.read().equals(rows)
    assert shorter["compacted"] > 0
    assert checkpoint["version"] == published["checkpoint"] == rebuilt["version"]
    assert rebuilt["equal_to_local"]
    assert vacuumed["orphans"] >= 1
    assert stray not in {info.key for info in after.object_store.list("pages/")}
    assert (verified["ok"], verified["faults"]) == (True, [])
    assert pq.read_table(tmp_path / "exported").sort_by("id")["delay"].equals(rows["delay"])
    assert ids == expected_ids
    assert SECRET_ACCESS_KEY not in str(told)


def _published_ids(url: str, server: S3Server) -> list[int]:
    """What a Delta client that is not ours reads of the segments, from the server itself."""
    there = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ALLOW_HTTP": "true",
    }
    found = DeltaTable(f"{url}/{SEGMENTS.root}", storage_options=there).to_pyarrow_table(columns=["page_id"])
    return sorted(found.column("page_id").to_pylist())
