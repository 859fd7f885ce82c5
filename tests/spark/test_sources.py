"""Ingest from a database: by JDBC, from the Derby that comes with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark.external import External
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.transfer import ingest

ADDRESS = "jdbc:derby:memory:flights"


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """A table ``planes`` of 1,000 rows, in a database that asks for a password."""
    managers = spark._jvm.java.sql.DriverManager
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
    spark._jvm.org.apache.derby.jdbc.EmbeddedDriver()
    connection = managers.getConnection(f"{ADDRESS};create=true;user=me;password=hunter2")
    statement = connection.createStatement()
    statement.execute("CREATE TABLE planes (n BIGINT NOT NULL, tail VARCHAR(20), seats INT)")
    values = ", ".join(f"({n}, 'N{n}', {n % 400 or 'CAST(NULL AS INT)'})" for n in range(1_000))
    statement.execute(f"INSERT INTO planes VALUES {values}")  # noqa: S608 - our own numbers
    yield f"{ADDRESS};user=me"
    statement.execute("DROP TABLE planes")
    connection.close()


def test_a_table_of_a_database_comes_in_by_jdbc_in_one_commit(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_PASSWORD", "hunter2")
    store = sp.create(str(tmp_path / "store"))
    options = {"url": database, "dbtable": "planes", "password": "env:THE_PASSWORD"}
    options |= {"partitionColumn": "N", "lowerBound": "0", "upperBound": "1000", "numPartitions": "3"}
    into = WriteOptions("planes", create=True, operation="ingest", app_id="nightly", app_version=1)

    done = ingest(spark, store.url, External("jdbc", None, options), into)
    again = ingest(spark, store.url, External("jdbc", None, options), into)

    rows = store.snapshot().table("planes").read()
    assert (done["num_rows"], done["tasks"], again["already_landed"]) == (1_000, 3, True)
    assert rows.column("N").to_pylist() == list(range(1_000))
    assert rows.column("TAIL").to_pylist() == [f"N{n}" for n in range(1_000)]
    assert rows.column("SEATS").to_pylist() == [n % 400 or None for n in range(1_000)]
    assert store.snapshot().version == done["version"]


def test_a_database_that_has_no_such_table_is_an_error_and_nothing_is_made(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    store = sp.create(str(tmp_path / "store"))
    source = External("jdbc", None, {"url": database, "dbtable": "absent", "password": "hunter2"})

    with pytest.raises(Exception, match="'ABSENT' does not exist") as refused:
        ingest(spark, store.url, source, WriteOptions("planes", create=True))

    assert "hunter2" not in str(refused.value)
    assert store.snapshot().tables() == []
