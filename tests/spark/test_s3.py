"""Spark and a store on a real S3 server: executors reach it by a profile, and no JAR of S3 is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import compact_pages, publish_delta, reconstruct_snapshot, submit
from spark_pages.spark.session import find_java
from tests.s3.server import ACCESS_KEY_ID, MISSING, SECRET_ACCESS_KEY, S3Server, new_url, server_binary
from tests.spark.conftest import FLIGHTS, flights
from tests.spark.test_write import frame

pytestmark = pytest.mark.s3


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

    assert rows == 110
    assert compacted["ok"]
    assert published.checkpoint == rebuilt["version"]
    assert rebuilt["equal_to_local"], rebuilt["differences"]
    read = sp.open(url, storage_options=server.options()).snapshot().table("flights").read()
    assert read.equals(flights(0, 20_100))
    plan = found._jdf.queryExecution().toString()
    assert SECRET_ACCESS_KEY not in plan


@pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")
def test_a_job_by_spark_submit_reaches_the_store_by_the_name_of_a_profile(
    server: S3Server, profile: str
) -> None:
    url = new_url()
    store = sp.create(url, storage_options=server.options())
    with store.transaction() as txn:
        txn.create_table("flights", FLIGHTS, properties={"page_bytes": "1024"})
        txn.append("flights", flights(0, 5_000))
    with store.transaction() as txn:
        txn.set_table_properties("flights", {"page_bytes": "65536"})
    pages = store.snapshot().table("flights").pages("id").num_rows

    done = submit("compact_pages", [url, "--table", "flights", "--profile", profile])

    after = sp.open(url, storage_options=server.options()).snapshot().table("flights")
    assert done["tasks"] > 0
    assert after.pages("id").num_rows < pages
    assert after.read().equals(flights(0, 5_000))
    assert SECRET_ACCESS_KEY not in str(done)
