"""The jobs' functions on the session of the tests; `test_submit` runs some of them by ``spark-submit``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import spark_pages as sp
from spark_pages.errors import InvalidInputError, ObjectNotFoundError, SchemaMismatchError
from spark_pages.spark import vacuum as orphans
from spark_pages.spark.checkpoints import checkpoint
from spark_pages.spark.compact import compact_pages
from spark_pages.spark.external import External
from spark_pages.spark.job import named_options
from spark_pages.spark.log_jobs import compact_log, publish
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.transfer import export, ingest
from spark_pages.spark.vacuum import find_orphans, vacuum
from spark_pages.spark.verify import verify
from tests.spark.conftest import History
from tests.spark.test_compact import damage_pages

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    return sp.create(str(tmp_path / "store"), properties={"checkpoint_commits": "0"})


def numbers(count: int) -> pa.Table:
    return pa.table({"n": range(count), "text": [f"text number {n}" for n in range(count)]}, NUMBERS)


def test_parquet_and_csv_come_in_and_go_out_again(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    pq.write_table(numbers(20_000), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("n,text\n-1,x\n-2,y\n")
    parquet = External("parquet", str(tmp_path / "a.parquet"), {})
    csv = External("csv", str(tmp_path / "b.csv"), {"header": "true"}, "n long, text string")
    into = WriteOptions("t", create=True, operation="ingest", app_id="nightly", app_version=1)

    planned = ingest(spark, store.url, parquet, into, dry_run=True)
    first = ingest(spark, store.url, parquet, into)
    again = ingest(spark, store.url, parquet, into)
    more = ingest(spark, store.url, csv, WriteOptions("t"))
    out = export(spark, store.url, "t", External("parquet", str(tmp_path / "out"), {}), version=1)

    assert planned["num_rows"] == first["num_rows"] == out["num_rows"] == 20_000
    assert (first["version"], again["version"], again["already_landed"]) == (1, 1, True)
    assert (more["num_rows"], more["version"]) == (2, 2)
    read = sp.open(store.url).snapshot().table("t").read()
    assert read.column("n").to_pylist() == [*range(20_000), -1, -2]
    exported = pq.read_table(tmp_path / "out").sort_by("n")
    assert exported.equals(numbers(20_000))


def test_moments_that_spark_wrote_come_in_alike_with_spark_and_without(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    moments = [datetime(1500, 1, 1, tzinfo=UTC), None, datetime(9999, 12, 31, tzinfo=UTC)]
    rows = pa.table(
        {
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "local": pa.array([each and each.replace(tzinfo=None) for each in moments], pa.timestamp("us")),
            "all": pa.array([moments, None, []], pa.list_(pa.timestamp("us", "UTC"))),
        }
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        made = spark.createDataFrame(rows).withColumn("local", f.col("local").cast("timestamp_ntz"))
        made.coalesce(1).write.parquet(str(tmp_path / "in"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    source = External("parquet", str(tmp_path / "in"), {})

    for name, session in {"by_spark": spark, "here": None}.items():
        ingest(session, store.url, source, WriteOptions(name, create=True))

    snapshot = sp.open(store.url).snapshot()
    by_spark, here = (snapshot.table(name).read() for name in ("by_spark", "here"))
    assert by_spark.equals(here)
    assert here.column("at").to_pylist() == moments
    assert here.schema.types[:2] == [pa.timestamp("us", "UTC"), pa.timestamp("us")]


@pytest.mark.parametrize(
    ("form", "text", "options"),
    [
        ("csv", "n,text\n1,x\nseven,y\n", {"header": "true"}),
        ("csv", "text,n\n1,2\n", {"header": "true"}),
        ("json", '{"n": 1, "text": "x"}\n{"n": "seven", "text": "y"}\n', {}),
        ("json", '{"n": 1, "text": "x"}\n{"n": 7, "te\n', {}),
    ],
    ids=["not a number", "columns in another order", "another type", "cut off"],
)
def test_rows_that_cannot_be_read_fail_the_job_unless_it_is_asked_to_be_lenient(
    spark: SparkSession, store: sp.Store, tmp_path: Path, form: str, text: str, options: dict[str, str]
) -> None:
    (tmp_path / "in").write_text(text)
    into = WriteOptions("t", create=True)
    strict = External(form, str(tmp_path / "in"), options, "n long, text string")
    lenient = External(
        form, strict.path, {**options, "mode": "PERMISSIVE", "enforceSchema": "true"}, strict.schema
    )

    with pytest.raises(InvalidInputError, match=r"FAILFAST|CANNOT_PARSE_JSON_FIELD|CSV header") as refused:
        ingest(spark, store.url, strict, into)
    assert f"file://{tmp_path}/in" in refused.value.message
    assert sp.open(store.url).snapshot().tables() == []

    assert ingest(spark, store.url, lenient, into)["num_rows"] == text.count("\n") - (form == "csv")


def test_json_comes_in_with_the_schema_that_is_named(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"n": 1, "text": "x"}\n{"text": "y", "n": 2}\n{"n": 3}\n')
    json = External("json", str(tmp_path / "a.json"), {}, "n int, text string")

    told = ingest(spark, store.url, json, WriteOptions("t", create=True))

    assert told["num_rows"] == 3
    expected = pa.table({"n": pa.array([1, 2, 3], pa.int32()), "text": ["x", "y", None]})
    assert sp.open(store.url).snapshot().table("t").read().equals(expected)


def test_of_two_exports_into_one_folder_one_is_there_whole(
    spark: SparkSession, store: sp.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.transaction() as txn:
        txn.create_table("t", NUMBERS)
        txn.append("t", numbers(1_000))
    target = External("parquet", str(tmp_path / "out"), {})
    move, done = OutputFolder._move, []

    def late(self: OutputFolder, *arguments: Any) -> None:
        monkeypatch.setattr(OutputFolder, "_move", move)
        done.append(export(spark, store.url, "t", target))
        move(self, *arguments)

    monkeypatch.setattr(OutputFolder, "_move", late)
    with pytest.raises(InvalidInputError, match="is there already"):
        export(spark, store.url, "t", target)

    assert done[0]["bytes_written"] == sum(
        each.stat().st_size for each in (tmp_path / "out").glob("*.parquet")
    )
    assert pq.read_table(tmp_path / "out").sort_by("n").equals(numbers(1_000))
    assert {each.name for each in tmp_path.iterdir()} == {"out", "store"}


def test_rows_that_are_not_there_are_told_in_a_line(spark: SparkSession, own_history: History) -> None:
    with pytest.raises(InvalidInputError, match=r"Cannot read /nowhere as parquet: .*\[PATH_NOT_FOUND\]"):
        ingest(spark, own_history.url, External("parquet", "/nowhere", {}), WriteOptions("t"))


def test_rows_of_another_shape_are_refused_before_anything_is_written(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    with store.transaction() as txn:
        txn.create_table("t", NUMBERS)
    pq.write_table(pa.table({"m": [1]}), tmp_path / "a.parquet")

    with pytest.raises(SchemaMismatchError, match="no column 'm'"):
        ingest(spark, store.url, External("parquet", str(tmp_path / "a.parquet"), {}), WriteOptions("t"))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("cleaned", [True, False], ids=["commits are cleaned away", "the log is whole"])
def test_executors_find_what_one_process_finds_in_every_kept_version(
    spark: SparkSession, own_history: History, monkeypatch: pytest.MonkeyPatch, cleaned: bool
) -> None:
    store, url = own_history.store, own_history.url
    if cleaned:
        store.vacuum(retention=4)
    monkeypatch.setattr("spark_pages.spark.verify.ROUND_BYTES", 100_000)

    sound = verify(spark, url, "all")
    damage_pages(url)
    damaged = verify(spark, url, "all")
    local = store.verify("all")

    newest = store.snapshot()
    of_newest = sum(newest.table(name).pages().num_rows for name in [*newest.tables(), "system.catalog"])
    assert (sound["ok"], sound["num_faults"]) == (True, 0)
    assert sound["pages_read"] == local.pages_read > of_newest
    assert damaged["num_faults"] == len(local.damage) > 0
    told = {tuple(fault[name] for name in ("kind", "key", "what", "remedy")) for fault in damaged["faults"]}
    assert told == {(each.kind.value, each.key, each.what, each.remedy) for each in local.faults}
    # a fault names eight columns of its file
    names = "more columns" if cleaned else "replaced before version"
    assert any(names in fault["what"] for fault in damaged["faults"])


def test_orphans_by_anti_join_are_those_that_the_local_search_finds(
    spark: SparkSession, own_history: History
) -> None:
    store = own_history.store
    with store.transaction() as txn:
        txn.create_namespace("eu", {"location": "eu/sales"})
    places = enumerate((("pages", 0), ("pages", 1), ("eu/sales", 3)))
    strays = [f"{place}/{read:020d}-{'ab' * 16}-{n}.pages" for n, (place, read) in places]
    strays += [
        f"_log/manifests/{2:020d}-{'ab' * 16}-0.parquet",
        f"_log/checkpoints/{1:020d}-{'ab' * 32}.parquet",
    ]
    for key in strays:
        store.object_store.put(key, b"x" * 100)
    young = f"pages/{own_history.latest + 50:020d}-{'ab' * 16}-0.pages"
    store.object_store.put(young, b"x")
    store.object_store.put("_log/segments/part-00000-ab-c000.snappy.parquet", b"of a Delta client")

    assert find_orphans(spark, own_history.url).num_rows == 0  # no writer is refused yet
    store.vacuum(retention=2)
    planned = store.vacuum_plan(retention=2, orphans=True).objects
    found = find_orphans(spark, own_history.url)

    local = planned.filter(pc.equal(planned.column("reason"), "orphan")).column("key").to_pylist()
    assert found.column("key").to_pylist() == sorted(local)
    assert set(local) == set(strays)


@pytest.mark.parametrize("lost", ["_log/parts/", "_log/segments/"])
def test_what_a_damaged_checkpoint_names_is_no_orphan(
    spark: SparkSession, own_history: History, lost: str
) -> None:
    store = own_history.store
    store.vacuum(retention=2)
    with store.transaction() as txn:
        txn.update_rows("flights", [0], {"delay": [-1.0]})
    store.vacuum(retention=1)
    for info in store.object_store.list(lost):
        store.object_store.delete(info.key)

    with pytest.raises((PySparkException, ObjectNotFoundError), match=lost):
        find_orphans(spark, own_history.url)


def test_orphans_are_looked_for_again_where_another_vacuum_came_between(
    spark: SparkSession, own_history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, trees = own_history.store, orphans._trees
    store.vacuum(retention=4)
    orphan = f"pages/{1:020d}-{'cd' * 16}-0.pages"
    store.object_store.put(orphan, b"x")

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(orphans, "_trees", trees)
        store.vacuum(retention=1)
        return trees(*arguments)

    monkeypatch.setattr(orphans, "_trees", overtaken)

    assert find_orphans(spark, own_history.url).column("key").to_pylist() == [orphan]


def test_vacuum_plans_by_default_and_deletes_when_told_to(spark: SparkSession, own_history: History) -> None:
    store = own_history.store
    orphan = f"pages/{1:020d}-{'cd' * 16}-0.pages"
    store.object_store.put(orphan, b"x" * 100)
    rows = store.snapshot().table("flights").read()
    before = {info.key for info in store.object_store.list("pages/")}

    planned = vacuum(spark, own_history.url, 1)
    assert before <= {info.key for info in store.object_store.list("pages/")}
    done = vacuum(spark, own_history.url, 1, apply=True)
    again = vacuum(spark, own_history.url, 1, apply=True)

    assert not planned["applied"]
    assert planned["objects"] > 0
    assert done["orphans"] == 1
    assert done["orphan_bytes"] == 100
    assert (again["objects"], again["orphans"]) == (0, 0)
    told = sp.open(own_history.url).history().to_pylist()
    deletions = [row["parameters"] for row in told if row["operation"] == "delete objects"]
    assert deletions.count([("bytes", "100"), ("objects", "1")]) == 1
    assert orphan not in {info.key for info in store.object_store.list("pages/")}
    assert sp.open(own_history.url).snapshot().table("flights").read().equals(rows)
    assert store.verify("all").ok


def test_jobs_of_one_process_tell_what_they_did(own_history: History) -> None:
    url = own_history.url

    results: list[dict[str, Any]] = [
        checkpoint(url, dry_run=True),
        checkpoint(url, publish=True),
        compact_log(url, dry_run=True),
        compact_log(url),
        publish(url, dry_run=True),
        publish(url),
    ]

    assert all(result["ok"] for result in results)
    assert results[0]["commits"] == own_history.latest - own_history.checkpoint
    assert results[1]["published"]["checkpoint"] == own_history.latest
    assert results[3]["written"] > 0
    assert results[4]["published_checkpoint"] == results[4]["checkpoint"] == own_history.latest
    assert results[5]["checkpoints"] == 0


@pytest.mark.parametrize(
    ("job", "asked"),
    [
        (lambda start, url: compact_pages(start, url, "flights"), [1, 0]),
        (lambda start, url: publish(url, start), [0, 0]),
    ],
    ids=["compact_pages", "publish_delta"],
)
def test_a_job_asks_for_a_session_where_there_is_something_for_executors(
    spark: SparkSession, own_history: History, job: Any, asked: list[int]
) -> None:
    started: list[int] = []

    def start() -> SparkSession:
        started[-1] += 1
        return spark

    for _ in asked:
        started.append(0)
        assert job(start, own_history.url)["ok"]

    assert started == asked


def test_an_option_that_is_no_pair_is_refused_without_showing_it() -> None:
    assert named_options(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(InvalidInputError) as refused:
        named_options(["hunter2"])

    assert "hunter2" not in str(refused.value)


def test_a_value_from_the_environment_is_resolved_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    source = External("jdbc", None, {"user": "me", "password": "env:THE_PASSWORD"})

    with pytest.raises(InvalidInputError, match="THE_PASSWORD"):
        source.resolved()
    monkeypatch.setenv("THE_PASSWORD", "hunter2")

    assert source.resolved() == {"user": "me", "password": "hunter2"}
    assert "hunter2" not in repr(source)
