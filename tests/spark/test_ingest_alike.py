"""What one process ingests by itself is what Spark would have ingested; the rest is left to Spark."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.spark.external import External, LocalRows, SparkRows
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.transfer import ingest

MOMENT = datetime(1500, 1, 2, 3, 4, 5, 678_000)
NUMBERS = (*(pa.int8(), pa.int16(), pa.int32(), pa.int64()), *(pa.float32(), pa.float64()))
UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
BYTES = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))
MOMENTS = (
    *(pa.timestamp(unit) for unit in ("s", "ms", "us")),
    *(pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin")),
)
INT = pa.field("item", pa.int32(), nullable=False)
LISTS = (pa.list_(INT), pa.large_list(pa.int32()), pa.list_(pa.int32(), 2))
PARTS = pa.struct([pa.field("id", pa.binary(2), nullable=False), ("all", pa.large_list(pa.uint8()))])


def columns(kinds: tuple[pa.DataType, ...], values: list[Any]) -> pa.Table:
    """A column of every type, with these values."""
    return pa.table({f"c{index}": pa.array(values, kind) for index, kind in enumerate(kinds)})


def few(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


TYPES = {
    "numbers": columns(NUMBERS, [-1, None, 100]),
    "unsigned": columns(UNSIGNED, [1, None, 200]),
    "largest": pa.table({"n": pa.array([2**64 - 1, 0], pa.uint64())}),
    "booleans": columns((pa.bool_(),), [True, None, False]),
    "texts": columns(TEXTS, ["a", None, "ä"]),
    "bytes": columns(BYTES, [b"ab", None, b"\x00\xff"]),
    "decimals": columns((pa.decimal128(5, 1), pa.decimal128(38, 10)), [Decimal("-1.5"), None]),
    "days": columns((pa.date32(), pa.date64()), [date(1500, 1, 2), None, date(9999, 12, 31)]),
    "moments": columns(MOMENTS, [MOMENT.replace(microsecond=0), None]),
    "lists": columns(LISTS, [[1, 2], None]),
    "a list in lists": columns((pa.list_(pa.list_(pa.binary(2), 1)),), [[[b"ab"], [b"cd"]], None, []]),
    "maps": columns((pa.map_(pa.string(), pa.large_list(pa.int8())),), [[("a", [1]), ("b", None)], None, []]),
    "structs": columns((PARTS,), [{"id": b"ab", "all": [1, None]}, None]),
    "never null": pa.table({"n": [1]}, pa.schema([pa.field("n", pa.int64(), nullable=False)])),
    "no rows": few(),
}

FOLDERS = {
    "int": {"p=1/a": few(1), "p=02/a": few(2), "p=__HIVE_DEFAULT_PARTITION__/a": few(3)},
    "text": {"p=x/a": few(1), "p=a%2Fb c/a": few(2), "p=__HIVE_DEFAULT_PARTITION__/a": few(3)},
    "both": {"p=1/q=x/a": few(1), "p=1/q=y/a": few(2, 3), "p=2/q=x/b": few(4)},
    "columns that some lack": {
        "a": pa.table({"n": [1], "text": ["x"]}),
        "b": few(2),
        "c": pa.table({"more": [1.5], "n": [3]}),
    },
    "hidden files": {"a": few(1), "_b": few(2), ".c": few(3), "_d/e": few(4), ".f/g": few(5)},
}

LEFT_TO_SPARK: dict[str, dict[str, pa.Table]] = {
    "a plain folder": {"a": few(1), "sub/b": few(2)},
    "plain folders alone": {"sub/a": few(1)},
    "several levels": {"p=1/a": few(1), "b": few(2)},
    "other columns": {"p=1/a": few(1), "q=1/b": few(2)},
    "days": {"p=2024-01-01/a": few(1), "p=2024-01-02/a": few(2)},
    "longs": {"p=3000000000/a": few(1), "p=1/a": few(2)},
    "doubles": {"p=1.5/a": few(1), "p=2/a": few(2)},
    "text and numbers": {"p=x/a": few(1), "p=2/a": few(2)},
    "no number": {"p=NaN/a": few(1)},
    "a time of day": {"p=T12/a": few(1)},
    "nulls alone": {"p=__HIVE_DEFAULT_PARTITION__/a": few(1)},
    "no value": {"p=/a": few(1)},
    "letters that are escaped": {"p=%C3%A4/a": few(1)},
    "a folder like a column": {"n=1/a": few(1)},
    "a folder like a column but for its case": {"N=1/a": few(1)},
    "a hidden folder with a value": {"_p=1/a": few(1)},
    "a file of all columns": {"_metadata": few(1), "a": few(2)},
    "names that differ in case": {"a": pa.table({"n": [1]}), "b": pa.table({"N": [2]})},
    "several types": {"a": columns((pa.int32(),), [1]), "b": columns((pa.int64(),), [2])},
    "fields that some lack": {
        "a": pa.table({"s": [{"a": 1}]}),
        "b": pa.table({"s": [{"a": 1, "b": 2}]}),
    },
}
LEFT_TO_SPARK |= {
    f"{kind}": {"a": columns((kind,), [None])}
    for kind in (
        *(pa.duration("us"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.float16(), pa.null(), pa.uuid()),
        *(pa.decimal256(50, 2), pa.decimal256(20, 2), pa.list_(pa.duration("s")), pa.list_(INT, 2)),
        *(pa.struct([("at", pa.time64("us"))]), pa.map_(pa.string(), pa.timestamp("ns"))),
    )
}


def written(folder: Path, files: dict[str, pa.Table]) -> External:
    for name, rows in files.items():
        file = folder / f"{name}.parquet" if name != "_metadata" else folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, file)
    return External("parquet", str(folder), {})


def bring(spark: SparkSession | None, store: sp.Store, source: External, name: str) -> pa.Table:
    """The rows of a source as a table of the store has them."""
    ingest(spark, store.url, source, WriteOptions(name, create=True))
    return store.snapshot().table(name).read()


def check_alike(spark: SparkSession, store: sp.Store, source: External) -> None:
    assert source.why_spark() is None
    assert LocalRows.of(source).schema == SparkRows(spark, source).schema
    here, by_spark = bring(None, store, source, "here"), bring(spark, store, source, "by_spark")
    assert here.schema == by_spark.schema
    assert sorted(map(str, here.to_pylist())) == sorted(map(str, by_spark.to_pylist()))
    reading = spark.read.format("spark_pages")
    frames = (reading.option("table", name).load(store.url) for name in ("here", "by_spark"))
    assert_df_equality(*(each.orderBy(*(f.col(n).cast("string") for n in each.columns)) for each in frames))


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    return sp.create(str(tmp_path / "store"))


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("rows", TYPES.values(), ids=TYPES)
def test_columns_of_a_file_have_the_types_and_values_that_spark_gives_them(
    spark: SparkSession, store: sp.Store, tmp_path: Path, rows: pa.Table
) -> None:
    source = written(tmp_path / "in", {"a": rows})

    check_alike(spark, store, source)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("files", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_has_the_files_and_columns_that_spark_finds_in_it(
    spark: SparkSession, store: sp.Store, tmp_path: Path, files: dict[str, pa.Table]
) -> None:
    source = written(tmp_path / "in", files)

    check_alike(spark, store, source)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("below", ["year=2020/a.parquet", "year=2020"])
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_folders_above_what_is_named_are_no_columns(
    spark: SparkSession, store: sp.Store, tmp_path: Path, below: str, form: str
) -> None:
    written(tmp_path / "in %41", {"year=2020/a": few(1)})  # signs that a URL would have otherwise
    source = External("parquet", form.format(tmp_path / "in %41" / below), {})

    check_alike(spark, store, source)
    assert LocalRows.of(source).schema.names == ["n"]


def test_what_spark_has_written_is_read_alike(spark: SparkSession, store: sp.Store, tmp_path: Path) -> None:
    made = spark.sql(
        "SELECT id, cast(id AS decimal(20, 3)) AS d, array(struct(id, cast(id AS string) AS t)) AS all, "
        "map('a', cast(id AS byte)) AS m, timestamp '2020-01-01 00:00:00Z' AS at, date '1500-01-01' AS day, "
        "timestamp_ntz '2020-01-01' AS local FROM range(10)"
    )
    made.write.partitionBy("id").parquet(str(tmp_path / "in"))
    source = External("parquet", str(tmp_path / "in"), {})

    check_alike(spark, store, source)


@pytest.mark.parametrize(
    "column", ["interval '1' day", "cast(null AS void)", "cast('a' AS varchar(3))", "interval '1' year"]
)
def test_types_that_spark_alone_knows_are_left_to_it(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    spark.sql(f"SELECT 1 AS n, array({column}) AS c").write.parquet(str(tmp_path / "in"))

    why = External("parquet", str(tmp_path / "in"), {}).why_spark()

    assert (why is None) == (column == "cast('a' AS varchar(3))")  # which is text in what is written


@pytest.mark.parametrize("files", LEFT_TO_SPARK.values(), ids=LEFT_TO_SPARK)
def test_what_may_be_something_else_in_spark_is_left_to_it(
    store: sp.Store, tmp_path: Path, files: dict[str, pa.Table]
) -> None:
    source = written(tmp_path / "in", files)

    with pytest.raises(InvalidInputError, match="without Spark"):
        bring(None, store, source, "here")

    assert source.why_spark() is not None
    assert store.snapshot().tables() == []


@pytest.mark.parametrize(
    "told",
    [
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.version": "3.0.3", "org.apache.spark.legacyINT96": ""},
    ],
    ids=["an older Spark", "days", "moments"],
)
def test_days_of_another_calendar_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, told: dict[str, str]
) -> None:
    day = columns((pa.date32(),), [date(1500, 1, 1)])
    source = written(tmp_path / "in", {"a": day.replace_schema_metadata(told)})

    found = SparkRows(spark, source)._rows.toArrow()

    assert source.why_spark() is not None
    assert found.equals(day) == ("org.apache.spark.legacyINT96" in told)  # whose days are like ours


def test_wildcards_and_hidden_folders_are_left_to_spark(tmp_path: Path) -> None:
    for name in ("in[1]", "_in", ".in"):
        source = written(tmp_path / name, {"a": few(1)})
        assert source.why_spark() is not None
    assert External("parquet", str(tmp_path / "in[1]"), {}).local_path is not None
