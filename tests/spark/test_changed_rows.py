"""Changed rows with their values in Spark, in frames and streams, and streams of the rows of a table."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.spark.arrow_types import spark_schema
from spark_pages.spark.source import SparkPagesDataSource
from tests.spark.test_stream import run

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


@pytest.fixture
def changed(tmp_path: Path) -> sp.Store:
    """Version 2 appends three rows, 3 deletes one, 4 updates one, 5 adds a column, 6 appends one."""
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    store.append("t", pa.table({"n": [0, 1, 2], "s": ["a", "b", "c"]}))
    with store.transaction() as txn:
        txn.delete("t", [1])
    with store.transaction() as txn:
        txn.update_rows("t", [2], {"n": [20]})
    with store.transaction() as txn:
        txn.add_column("t", pa.field("x", pa.int64()))
    store.append("t", pa.table({"n": [3], "s": ["d"], "x": [30]}))
    return store


EXPECTED = [
    ("insert", 0, 2, 0, "a", None),
    ("insert", 1, 2, 1, "b", None),
    ("insert", 2, 2, 2, "c", None),
    ("delete", 1, 3, 1, "b", None),
    ("update_before", 2, 4, 2, "c", None),
    ("update_after", 2, 4, 20, "c", None),
    ("insert", 3, 6, 3, "d", 30),
]


def source(store: sp.Store, **options: Any) -> SparkPagesDataSource:
    return SparkPagesDataSource({"path": store.url, "table": "t", **options})


def read(reader: Any, parts: Any) -> list[tuple[Any, ...]]:
    """Rows as workers read them: reader and tasks have travelled."""
    found = [pickle.loads(pickle.dumps((reader, each))) for each in parts]  # noqa: S301
    batches = [batch for each, part in found for batch in each.read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def without_time(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:3], *row[4:]) for row in rows]


def test_a_frame_has_the_changed_rows_of_each_version(changed: sp.Store) -> None:
    given = source(changed, view="changes", values="true", startingVersion="2")
    reader = given.reader(given.schema())

    assert without_time(read(reader, reader.partitions())) == EXPECTED
    assert given.schema()["_row"].dataType.simpleString() == "bigint"


def test_a_stream_has_the_changed_rows_of_each_version_however_they_are_split(changed: sp.Store) -> None:
    given = source(changed, view="changes", values="true", startingVersion="2", maxVersionsPerTrigger="2")
    stream = given.streamReader(given.schema())
    found = []

    offset = stream.initialOffset()
    while (end := stream.latestOffset(offset, stream.getDefaultReadLimit())) != offset:
        assert end["version"] - offset["version"] <= 2
        found += read(stream, stream.partitions(offset, end))
        offset = end

    assert without_time(found) == EXPECTED


def test_a_stream_of_rows_begins_with_all_rows_and_goes_on_with_inserted_ones(changed: sp.Store) -> None:
    given = source(changed, maxVersionsPerTrigger="1")
    stream = given.streamReader(given.schema())

    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    whole = read(stream, stream.partitions(start, end))
    again = read(stream, stream.partitions(start, end))
    with changed.transaction() as txn:
        txn.delete("t", [0])
        txn.append("t", pa.table({"n": [4], "s": ["e"], "x": [40]}))
    after = stream.latestOffset(end, stream.getDefaultReadLimit())

    assert whole == again == [(0, "a", None), (20, "c", None), (3, "d", 30)]
    assert after == {**end, "version": end["version"] + 1, "token": after["token"]}
    assert read(stream, stream.partitions(end, after)) == [(4, "e", 40)]


def test_a_stream_of_rows_may_begin_with_the_rows_of_a_version(changed: sp.Store) -> None:
    given = source(changed, startingVersion="3", columns="s")
    stream = given.streamReader(given.schema())
    start = stream.initialOffset()

    end = stream.latestOffset(start, stream.getDefaultReadLimit())

    assert read(stream, stream.partitions(start, end)) == [("d",)]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"view": "changes", "values": "true", "granularity": "rows"}, "granularity together with values"),
        ({"view": "changes", "values": "true", "table": ""}, "no table was named"),
        ({"view": "changes", "values": "perhaps"}, "'perhaps' as option values"),
        ({"view": "rows", "values": "true"}, "option 'values' of the view 'rows'"),
        ({"view": "rows", "startingVersion": "2"}, "startingVersion here: it is an option of streams"),
    ],
)
def test_options_that_make_no_sense_are_refused(changed: sp.Store, options: dict, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        read_of(changed, options)


def read_of(store: sp.Store, options: dict) -> object:
    given = source(store, **options)
    return given.reader(given.schema())


def test_a_stream_of_rows_refuses_a_filter(changed: sp.Store) -> None:
    given = source(changed, filter="n > 1")
    stream = given.streamReader(given.schema())

    with pytest.raises(InvalidInputError, match="option 'filter' of a stream of rows"):
        stream.initialOffset()


def test_tables_of_types_that_spark_lacks_come_as_those_of_frames(tmp_path: Path) -> None:
    store = sp.create(str(tmp_path / "store"))
    small = pa.table({"u": pa.array([1], pa.uint8()), "d": pa.array(["a"]).dictionary_encode()})
    store.append("t", small, create=True)
    given = source(store, view="changes", values="true", startingVersion="1")
    reader = given.reader(given.schema())

    assert [row[4:] for row in read(reader, reader.partitions())] == [(1, "a")]
    assert given.schema()["u"] == from_arrow_schema(spark_schema(small.schema))["u"]


@pytest.mark.slow
def test_spark_reads_changed_rows_and_streams_of_rows(
    spark: SparkSession, changed: sp.Store, tmp_path: Path
) -> None:
    reading = spark.read.format("spark_pages").option("table", "t").option("view", "changes")
    frame = reading.option("values", "true").option("startingVersion", 2).load(changed.url)
    rows = spark.readStream.format("spark_pages").option("table", "t").load(changed.url)
    run(rows, tmp_path / "checkpoint", "rows_of_t")
    changed.append("t", pa.table({"n": [4], "s": ["e"], "x": [40]}))
    run(
        rows, tmp_path / "again", "rows_again", path=str(tmp_path / "store"), table="copy", createTable="true"
    )

    assert without_time([tuple(row) for row in frame.collect()]) == EXPECTED
    assert spark.table("rows_of_t").count() == 3
    assert changed.snapshot().table("copy").num_rows == 4
