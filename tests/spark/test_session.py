"""Versions that go together, SQL functions of a session, and storage options by name."""

from __future__ import annotations

import os
import pickle
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_pages.errors import InvalidInputError, MissingDependencyError
from spark_pages.spark.failures import spark_failing
from spark_pages.spark.feed import Feed
from spark_pages.spark.options import SourceOptions
from spark_pages.spark.serialization import store_url
from spark_pages.spark.session import ARROW_IN_JVM, KEEPS_FREED_MEMORY, SHORT_RUN, java_options, session
from spark_pages.spark.source import SparkPagesDataSource
from spark_pages.spark.versions import Versions, installed, wrong_pair
from spark_pages.storage.profiles import split_profile, storage_options, with_profile
from tests.spark.conftest import History

GOOD = Versions("4.2.0", "4.4.0", "2.3.1", 17, "4.2.0")


def test_versions_that_are_installed_go_together() -> None:
    assert wrong_pair(installed(), delta=True) is None
    assert wrong_pair(GOOD, delta=True) is None


def test_a_session_makes_rows_from_python_cheap_in_the_jvm_and_in_workers(spark: SparkSession) -> None:
    name, value = ARROW_IN_JVM.removeprefix("-D").split("=")
    assert spark._jvm.System.getProperty(name) == value  # type: ignore[union-attr]

    told = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).first()

    assert {f"spark.executorEnv.{name}": value for name, value in told.items()}.items() >= (
        KEEPS_FREED_MEMORY.items()
    )


def test_a_session_for_large_reads_compiles_all_it_can() -> None:
    assert SHORT_RUN in java_options()
    assert not set(SHORT_RUN.split()) & set(java_options(large=True).split())
    assert ARROW_IN_JVM in java_options(large=True).split()


def test_the_pyspark_that_spark_brings_to_a_driver_is_seen_though_no_package_tells_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("spark_pages.spark.versions.version", nothing)

    assert installed() == Versions(pyspark=pyspark.__version__)


@pytest.mark.parametrize(
    ("found", "both"),
    [
        (replace(GOOD, pyspark="4.3.0"), ("4.2.x", "pyspark 4.3.0")),
        (replace(GOOD, delta="4.4.1"), ("pyspark 4.2.0", "delta-spark 4.4.1")),
        (replace(GOOD, delta=None), ("delta-spark 4.4.0", "pyspark 4.2.0")),
        (replace(GOOD, pandas="3.0.0"), ("pyspark 4.2.0", "pandas 3.0.0")),
        (replace(GOOD, java=11), ("Java 17", "Java 11")),
        (replace(GOOD, jvm="4.0.1"), ("pyspark 4.2.0", "Spark 4.0.1")),
    ],
    ids=["pyspark", "delta", "no delta", "pandas", "java", "cluster"],
)
def test_the_message_names_both_versions_of_a_wrong_pair(found: Versions, both: tuple[str, str]) -> None:
    wrong = wrong_pair(found, delta=True)

    assert wrong is not None
    assert all(version in wrong[0] for version in both)


def test_delta_is_not_looked_at_where_it_is_not_asked_for() -> None:
    assert wrong_pair(replace(GOOD, delta="1.0.0")) is None


def test_a_job_that_does_without_the_data_source_does_not_wait_for_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[SparkSession] = []
    monkeypatch.setattr(import_module("spark_pages.spark.session"), "_register", registered.append)

    assert session(source=False) is spark
    assert registered == []
    assert session() is spark
    assert registered == [spark]


def test_a_session_that_runs_without_delta_is_not_given_for_one_with_it(spark: SparkSession) -> None:
    with pytest.raises(MissingDependencyError, match=r"without Delta.*new process"):
        session(delta=True)

    assert session() is spark


def test_the_session_that_runs_is_taken_as_it_is_in_any_thread(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "7")

    with ThreadPoolExecutor(1) as another:
        found = another.submit(session, "another").result()
        with_delta = another.submit(session, "another", delta=True).exception()

    assert found is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    assert isinstance(with_delta, MissingDependencyError)
    spark.conf.set("spark.sql.shuffle.partitions", "4")


def test_a_session_in_which_nobody_has_registered_the_format_finds_it(
    spark: SparkSession, history: History
) -> None:
    other = spark.newSession()

    found = other.read.format("spark_pages").option("table", "flights").load(history.url)

    assert found.count() == history.store.snapshot().table("flights").num_rows


def test_sql_asks_history_and_changes_by_functions(spark: SparkSession, history: History) -> None:
    at = {"url": history.url}
    newest = spark.sql("select version, operation from spark_pages_history(:url, limit => 2)", at)
    changed = spark.sql(
        "select * from spark_pages_changes(url => :url, starting_version => 5, ending_version => 9, "
        "table => 'flights')",
        at,
    )

    table_id = history.store.snapshot().table("flights").definition.table_id
    expected = Feed(history.url, "rows", table_id).read(5, 9)
    assert [tuple(row) for row in newest.collect()] == [
        (row["version"], row["operation"]) for row in history.store.history(2).to_pylist()
    ]
    assert sorted(map(tuple, changed.collect())) == sorted(tuple(r.values()) for r in expected.to_pylist())


def test_the_function_of_changes_finds_a_table_whatever_the_case_of_its_name(
    spark: SparkSession, history: History
) -> None:
    counted = "select count(*) from spark_pages_changes(:url, table => '{}')"

    found = [spark.sql(counted.format(name), {"url": history.url}).first() for name in ("flights", "FLIGHTS")]

    assert found[0] == found[1] != (0,)


def test_a_first_version_below_none_is_refused_by_the_function_of_changes(
    spark: SparkSession, history: History
) -> None:
    changed = spark.sql(
        "select * from spark_pages_changes(:url, starting_version => -5)", {"url": history.url}
    )

    with pytest.raises(InvalidInputError, match=r"Cannot use -5 .* as startingVersion"), spark_failing():
        changed.collect()


@pytest.mark.parametrize(
    "query", ["select * from spark_pages_history(NULL)", "select * from spark_pages_changes(NULL)"]
)
def test_an_address_that_is_null_is_refused_by_name(spark: SparkSession, query: str) -> None:
    asked = spark.sql(query)

    with pytest.raises(InvalidInputError, match="its address is NULL"), spark_failing():
        asked.collect()


def test_a_profile_travels_by_name_and_is_read_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('[prod]\nregion = "here"\nsecret_access_key = { env = "THE_SECRET" }\n')
    monkeypatch.setenv("SPARK_PAGES_PROFILES", str(profiles))
    monkeypatch.setenv("THE_SECRET", "hunter2")

    address = SourceOptions({"path": "s3://bucket/shop", "profile": "prod"}).url()

    assert split_profile(address) == ("s3://bucket/shop", "prod")
    assert storage_options("prod") == {"region": "here", "secret_access_key": "hunter2"}
    assert b"hunter2" not in pickle.dumps(address)


def test_a_data_source_is_pickled_without_credentials_or_what_was_loaded(history: History) -> None:
    source = SparkPagesDataSource({"path": history.url, "table": "flights"})
    source.schema()

    again = pickle.loads(pickle.dumps(source))  # noqa: S301 - made here

    assert again._pinned is None
    assert again._version == history.latest
    assert len(pickle.dumps(source)) < 2_000


def test_a_profile_that_is_missing_is_named_and_a_folder_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_PAGES_PROFILES", str(tmp_path / "none.toml"))
    with pytest.raises(InvalidInputError, match=r"'prod'.*none\.toml"):
        storage_options("prod")
    (tmp_path / "none.toml").write_text('[other]\nx = "1"\n')
    with pytest.raises(InvalidInputError, match=r"Cannot use profile 'prod': .* has other"):
        storage_options("prod")
    with pytest.raises(InvalidInputError, match="Cannot use profile"):
        with_profile("/data/shop", "prod")

    assert split_profile("/data/a#profile=b") == ("/data/a#profile=b", None)
    assert store_url("/data/a#profile=b") == "/data/a#profile=b"
    assert store_url("file:/data/a%20b") == "/data/a b"


def test_a_job_knows_the_terminal_of_the_process_that_took_its_output() -> None:
    ask = "from spark_pages.progress import on_terminal; print(on_terminal())"
    inner = [sys.executable, "-c", ask]
    outer = f"import subprocess as s; print(s.run({inner!r}, stdout=-1, stderr=-2, text=True).stdout)"
    ours, theirs = pty.openpty()

    seen, unseen = (
        subprocess.run(
            [sys.executable, "-c", outer], stdout=subprocess.PIPE, stderr=where, text=True, check=True
        )
        for where in (theirs, subprocess.DEVNULL)
    )

    os.close(ours)
    os.close(theirs)
    assert (seen.stdout.strip(), unseen.stdout.strip()) == ("True", "False")
