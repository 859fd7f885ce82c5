"""``readStream`` tells the change feed version by version; ``writeStream`` commits every micro-batch once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

import spark_pages as sp
from spark_pages.errors import InvalidInputError, StoreReplacedError
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import Tombstone
from spark_pages.spark.feed import Feed
from spark_pages.spark.options import ViewQuery
from spark_pages.spark.streams import ChangeStream
from spark_pages.storage import open_object_store
from tests.spark.conftest import History

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def run(rows: DataFrame, checkpoint: Path, sink: str, **options: Any) -> None:
    """A query until all that is there has been read."""
    writing = rows.writeStream.option("checkpointLocation", str(checkpoint)).options(**options)
    query = (
        writing.format("memory").queryName(sink).outputMode("append")
        if "path" not in options
        else writing.format("spark_pages").outputMode("append")
    )
    started(lambda: query.trigger(availableNow=True).start())


def started(start: Callable[[], StreamingQuery]) -> None:
    """The query has ended; begun again where its Python process did not start in the 10 s that Spark has."""
    for attempt in range(8):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or attempt == 7:
                raise
        else:
            return


def changes(spark: SparkSession, store: sp.Store, **options: Any) -> DataFrame:
    reading = spark.readStream.format("spark_pages").option("view", "changes")
    return reading.options(**options).load(store.url)


def told(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_the_stream_tells_each_version_once_over_micro_batches_and_restarts(
    spark: SparkSession, own_history: History, tmp_path: Path
) -> None:
    store, name = own_history.store, "told_once"
    rows = changes(spark, store, startingVersion=2, maxVersionsPerTrigger=4)
    found: dict[int, pa.Table] = {}

    def keep(batch: DataFrame, number: int) -> None:
        found[number] = batch.toArrow()

    def drain() -> None:
        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / name))
        started(lambda: query.trigger(availableNow=True).start())

    drain()
    first = len(found)
    with store.transaction() as txn:
        txn.update_rows("flights", [7], {"delay": [1.5]})
    drain()

    newest = store.snapshot().version
    expected = Feed(store.url, "rows", None).read(2, newest)
    assert first == -(-(own_history.latest - 1) // 4)
    assert sorted(found) == list(range(first + 1))
    assert told(pa.concat_tables(found.values())) == told(expected)
    assert set(expected.column("version").to_pylist()) == set(range(2, newest + 1))


def test_a_stream_ends_with_its_ending_version(history: History) -> None:
    query = ViewQuery("changes", history.latest, starting=1, ending=3)
    stream = ChangeStream(history.url, query, StructType(), None)

    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())

    assert history.latest > 3
    assert (start["version"], end["version"]) == (0, 3)
    assert start["store"] == end["store"]
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


@pytest.mark.parametrize("table", [None, "numbers"])
def test_a_stream_waits_for_the_version_that_it_begins_with(store: sp.Store, table: str | None) -> None:
    newest = store.snapshot().version
    query = ViewQuery("changes", newest, table, starting=newest + 2)
    stream = ChangeStream(store.url, query, StructType(), None)
    start = stream.initialOffset()
    waiting = stream.latestOffset(start, stream.getDefaultReadLimit())
    for n in range(2):
        with store.transaction() as txn:
            txn.append("numbers", {"n": [n], "text": ["in time"]})

    end = stream.latestOffset(start, stream.getDefaultReadLimit())

    assert waiting == start
    assert (start["version"], end["version"]) == (newest + 1, newest + 2)
    assert [each.versions for each in stream.partitions(start, end)] == [(newest + 2, newest + 2)]


def test_a_stream_of_a_table_ends_where_another_one_gets_its_name(store: sp.Store) -> None:
    query = ViewQuery("changes", store.snapshot().version, "numbers", starting=1)
    stream = ChangeStream(store.url, query, StructType(), None)
    start = stream.initialOffset()
    before = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert [each.versions for each in stream.partitions(start, before)] == [(1, before["version"])]
    with store.transaction() as txn:
        txn.rename_table("numbers", "figures")
    with store.transaction() as txn:
        txn.append("figures", {"n": [1], "text": ["lost?"]})
        txn.create_table("numbers", NUMBERS)
    late = ChangeStream(store.url, query, StructType(), None)
    end = late.latestOffset(before, late.getDefaultReadLimit())

    assert end["version"] > before["version"]
    with pytest.raises(InvalidInputError, match="'numbers': a table was made since under the name"):
        late.partitions(before, end)


@pytest.mark.parametrize("gone", ["renamed", "dropped"])
def test_a_stream_follows_its_table_though_that_has_lost_its_name(store: sp.Store, gone: str) -> None:
    query = ViewQuery("changes", store.snapshot().version, "numbers", starting=1)
    stream = ChangeStream(store.url, query, StructType(), None)
    start = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    with store.transaction() as txn:
        txn.append("numbers", {"n": [1], "text": ["told"]})
    with store.transaction() as txn:
        if gone == "renamed":
            txn.rename_table("numbers", "figures")
        else:
            txn.drop_table("numbers")
    late = ChangeStream(store.url, query, StructType(), None).latestOffset(
        start, stream.getDefaultReadLimit()
    )
    with store.transaction() as txn:
        txn.create_table("others", NUMBERS)
    end = ChangeStream(store.url, query, StructType(), None).latestOffset(late, stream.getDefaultReadLimit())

    parts = ChangeStream(store.url, query, StructType(), None).partitions(late, end)

    assert [(part.versions, part.feed.table_id) for part in parts] == [
        ((late["version"] + 1, end["version"]), 1)
    ]


def remade(folder: Path, versions: int) -> None:
    """Another store, of so many versions, where there was one."""
    shutil.rmtree(folder)
    store = sp.create(str(folder))
    with store.transaction() as txn:
        txn.create_table("numbers", NUMBERS)
    while store.snapshot().version < versions:
        with store.transaction() as txn:
            txn.append("numbers", {"n": [1], "text": ["of another store"]})


def test_a_query_that_is_started_again_ends_where_its_store_was_made_anew(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    with store.transaction() as txn:
        txn.append("numbers", {"n": [1], "text": ["told"]})

    def start() -> StreamingQuery:
        writing = changes(spark, store).writeStream.format("noop").trigger(availableNow=True)
        return writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    started(start)
    remade(tmp_path / "store", 1)

    with pytest.raises(StreamingQueryException, match="StoreReplacedError: Cannot go on"):
        started(start)


@pytest.mark.parametrize("versions", [1, 2, 4], ids=["fewer", "as many", "more"])
def test_a_stream_knows_a_store_that_was_made_anew(store: sp.Store, tmp_path: Path, versions: int) -> None:
    stream = ChangeStream(store.url, ViewQuery("changes", 1, starting=1), StructType(), None)
    limit = stream.getDefaultReadLimit()
    with store.transaction() as txn:
        txn.append("numbers", {"n": [1], "text": ["told"]})
    told = stream.latestOffset(stream.initialOffset(), limit)
    remade(tmp_path / "store", versions)

    with pytest.raises(StoreReplacedError, match="was replaced by another one"):
        stream.partitions(told, stream.latestOffset(told, limit))


def test_a_stream_goes_on_where_what_it_has_told_was_cleaned_away(store: sp.Store) -> None:
    stream = ChangeStream(store.url, ViewQuery("changes", 1), StructType(), None)
    limit = stream.getDefaultReadLimit()
    told = stream.latestOffset(stream.initialOffset(), limit)
    for n in range(3):
        with store.transaction() as txn:
            txn.append("numbers", {"n": [n], "text": ["later"]})
    newest = stream.latestOffset(told, limit)
    store.tag("later")
    store.checkpoint()
    store.delete_tag("later")
    store.vacuum(retention=1)
    slots = SlotReader(open_object_store(store.url))
    end = stream.latestOffset(newest, limit)

    assert isinstance(slots.read(newest["version"]), Tombstone)
    assert end["version"] > newest["version"]
    assert [each.versions for each in stream.partitions(newest, end)] == [
        (newest["version"] + 1, end["version"])
    ]


def test_a_sink_cannot_be_given_an_application_under_which_new_checkpoints_lose_rows(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    json_files(tmp_path / "in", range(0, 10))
    rows = spark.readStream.schema("n long, text string").json(str(tmp_path / "in"))

    with pytest.raises(Exception, match=r"Cannot use option 'appid' of a stream that is written"):
        run(rows, tmp_path / "checkpoint", "sink", path=store.url, table="numbers", appId="mine")

    assert store.snapshot().table("numbers").num_rows == 0


def json_files(folder: Path, *numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for each in numbers:
        lines = [f'{{"n": {n}, "text": "{"x" * 50}{n}"}}' for n in each]
        (folder / f"{each.start}.json").write_text("\n".join(lines))


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("numbers", NUMBERS)
    return store


def test_a_batch_that_spark_repeats_is_in_the_table_once(
    spark: SparkSession, store: sp.Store, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    json_files(folder, range(0, 10), range(10, 6_000))
    rows = spark.readStream.schema("n long, text string").option("maxFilesPerTrigger", 1).json(str(folder))

    run(rows, checkpoint, "sink", path=store.url, table="numbers")
    before = store.history().to_pylist()
    for file in [*(checkpoint / "commits").glob("*1"), *(checkpoint / "commits").glob(".*1.crc")]:
        file.unlink()  # as if the driver had died between our commit and Spark's
    json_files(folder, range(6_000, 6_010))
    run(rows, checkpoint, "sink", path=store.url, table="numbers")

    assert sorted(sp.open(store.url).snapshot().table("numbers").read().column("n").to_pylist()) == [
        *range(6_010)
    ]
    apps = {row["app_id"] for row in store.history().to_pylist() if row["app_id"]}
    numbers = [row["app_version"] for row in store.history().to_pylist() if row["app_id"]]
    assert len(before) == 4
    assert len(apps) == 1
    assert numbers == [2, 1, 0]


def test_the_feed_is_the_same_however_the_versions_are_cut(history: History) -> None:
    feed = Feed(history.url, "rows", None)

    whole = feed.read(0, history.latest)
    cut = pa.concat_tables(feed.read(v, v) for v in range(history.latest + 1))

    assert whole.equals(cut)


def test_the_feed_of_one_version_is_what_the_store_says_of_it(history: History) -> None:
    for granularity in ("rows", "pages"):
        for version in range(history.latest + 1):
            found = Feed(history.url, granularity, None).read(version, version)
            expected = history.store.changes(version, version, granularity=granularity)
            assert found.select(expected.column_names).equals(expected), (granularity, version)


def test_only_the_change_feed_can_be_read_as_a_stream(spark: SparkSession, history: History) -> None:
    with pytest.raises(Exception, match=r"InvalidInputError: .*Cannot read the view 'tables' as a stream"):
        run(
            spark.readStream.format("spark_pages").option("view", "tables").load(history.url),
            Path(history.url).parent / "no",
            "none",
        )
