from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

import spark_pages as sp
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.model.page_schema import STATS_SCHEMA
from spark_pages.model.run import PageRun
from spark_pages.query.table import Table
from spark_pages.spark.arrow_types import spark_schema, spark_type, to_spark
from spark_pages.spark.options import SourceOptions
from spark_pages.spark.rows import RowsPartition, RowsReader, may_be_null
from spark_pages.spark.serialization import unpack_run
from tests.spark.conftest import ROWS, History


def read(spark: SparkSession, history: History, **options: Any) -> DataFrame:
    return spark.read.format("spark_pages").options(**options).load(history.url)


def as_spark(spark: SparkSession, table: pa.Table) -> DataFrame:
    shown = table.cast(spark_schema(table.schema))
    return spark.createDataFrame(shown, from_arrow_schema(shown.schema))


@pytest.fixture(scope="module")
def local_flights(spark: SparkSession, history: History) -> DataFrame:
    return as_spark(spark, history.store.snapshot().table("flights").read()).cache()


def test_rows_are_those_of_the_local_reader(
    spark: SparkSession, history: History, local_flights: DataFrame
) -> None:
    found = read(spark, history, table="flights")

    assert found.rdd.getNumPartitions() > 1
    assert_df_equality(found.orderBy("id"), local_flights.orderBy("id"), ignore_nullable=True)


def test_a_small_table_keeps_its_nulls(spark: SparkSession, history: History) -> None:
    local = history.store.snapshot().table("planes").read()

    found = read(spark, history, table="planes")

    assert_df_equality(found, as_spark(spark, local), ignore_nullable=True, ignore_row_order=True)


def test_a_table_without_rows_is_empty(spark: SparkSession, history: History) -> None:
    found = read(spark, history, table="empty")

    assert found.columns == ["nothing"]
    assert found.count() == 0


def test_only_the_columns_asked_for_are_read(spark: SparkSession, history: History) -> None:
    local = history.store.snapshot().table("flights").read(columns=["delay", "id"])

    found = read(spark, history, table="flights", columns="delay, id")

    assert_df_equality(found.orderBy("id"), as_spark(spark, local).orderBy("id"), ignore_nullable=True)


def test_a_column_whose_name_holds_commas_blanks_or_backquotes_is_named_in_backquotes(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table({"last, first": ["Doe, J"], " n ": [1], "a`b": [2], "plain": [3]})
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    table = spark.read.format("spark_pages").option("table", "t")

    found = table.option("columns", "`last, first`,` n ` , `a``b`, plain").load(store.url)

    assert found.columns == ["last, first", " n ", "a`b", "plain"]
    assert found.collect() == [Row("Doe, J", 1, 2, 3)]


@pytest.mark.parametrize("text", ["a`b", "`a", "a, `b` c", "``", "`a```b`"])
def test_a_backquote_that_quotes_nothing_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^Cannot use .* as option columns: expected names parted by commas"
    ):
        SourceOptions({"path": "/data/shop", "columns": text}).columns()


def test_an_old_version_gives_the_old_rows(spark: SparkSession, history: History) -> None:
    local = history.store.snapshot(version=2).table("flights").read(columns=["id", "delay"])

    found = read(spark, history, table="flights", versionAsOf=2, columns="id,delay")

    assert found.count() == ROWS
    assert_df_equality(found.orderBy("id"), as_spark(spark, local).orderBy("id"), ignore_nullable=True)


def test_a_time_names_the_version_that_was_current_then(spark: SparkSession, history: History) -> None:
    moment = history.store.snapshot(version=3).timestamp.isoformat()

    found = read(spark, history, table="flights", timestampAsOf=moment, columns="id")

    assert found.count() == 2 * ROWS


@pytest.mark.parametrize(
    "condition",
    [
        "id = 33333",
        "id >= 39995 and id < 40020",
        "carrier = 'carrier-05' and id < 2000",
        "delay is null and id > 39000",
        "delay < 0",
        "id in (1, 20001, 40001)",
        "not (id > 100)",
        "departed >= timestamp_ntz'2026-01-01 11:00:00' and id < 39700",
        "landed < timestamp'2026-01-01 00:00:10Z'",
        "seats = 39999",
        "id = -1",
    ],
)
def test_a_filter_gives_the_rows_that_an_exact_filter_gives(
    spark: SparkSession, history: History, local_flights: DataFrame, condition: str
) -> None:
    found = read(spark, history, table="flights").filter(condition)

    expected = local_flights.filter(condition)
    assert_df_equality(found.orderBy("id"), expected.orderBy("id"), ignore_nullable=True)


def test_a_filter_that_statistics_understand_reads_fewer_rows(history: History) -> None:
    table = history.store.snapshot().table("flights")
    schema = from_arrow_schema(spark_schema(table.schema))

    whole = RowsReader(history.url, table, schema)
    narrow = RowsReader(history.url, table, schema, rows=f"id > {2 * ROWS}")

    assert sum(_rows(part) for part in whole.partitions()) == table.num_rows
    assert sum(_rows(part) for part in narrow.partitions()) < ROWS


@pytest.mark.parametrize(
    "text",
    [
        "id % 2 = 1 and id > 20",
        "flights.id between 40 and 50 or default.flights.id < 3",
        "ID in (1, 5, 2000000)",
        "id < 0",
    ],
)
def test_rows_chosen_by_sql_text_are_those_that_the_local_reader_chooses(
    spark: SparkSession, history: History, text: str
) -> None:
    local = history.store.snapshot().table("flights")
    other = next(name for name in local.schema.names if name != "id")

    found = read(spark, history, table="flights", columns=other, filter=text)

    assert found.columns == [other]
    expected = as_spark(spark, local.read([other], filter=text))
    assert_df_equality(found, expected, ignore_nullable=True, ignore_row_order=True)


def test_sql_text_rules_pages_out_where_rows_are_planned(history: History) -> None:
    table = history.store.snapshot().table("flights")
    schema = from_arrow_schema(spark_schema(table.schema.empty_table().select(["id"]).schema))

    narrow = RowsReader(history.url, table, schema, rows=f"flights.id > {2 * ROWS}")

    assert 0 < sum(_rows(part) for part in narrow.partitions()) < ROWS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "idd = 1"}, "find column 'idd': flights has none"),
        ({"filter": "id ="}, "filter"),
        ({"filter": "id = 1", "view": "chains"}, "rows of a table"),
    ],
)
def test_sql_text_that_does_not_fit_is_refused_when_the_frame_is_made(
    spark: SparkSession, history: History, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, history, table="flights", **options)


def _rows(part: Any) -> int:
    assert isinstance(part, RowsPartition)
    return sum(stop - start for start, stop in part.ranges)


def test_a_task_carries_only_the_descriptors_of_its_own_pages(history: History) -> None:
    table = history.store.snapshot().table("flights")
    reader = RowsReader(history.url, table, from_arrow_schema(spark_schema(table.schema)), 4)

    parts = reader.partitions()

    batches = [pa.Table.from_batches(reader.read(part)) for part in parts]
    shipped = [
        sum(unpack_run(packed).num_pages for part in parts for _, packed in part.columns[position])
        for position in range(len(table.columns))
    ]
    pages = [table.directory.chain(column).num_pages for column in table.columns]
    shared = len(parts) - 1  # of a column, the page that a cut goes through, if it does not end there
    assert len(parts) == 4
    assert all(own <= sent <= own + shared for own, sent in zip(pages, shipped, strict=True))
    assert pa.concat_tables(batches).column("id").to_pylist() == list(range(table.num_rows))


def test_pages_are_those_of_the_local_reader(spark: SparkSession, history: History) -> None:
    local = history.store.snapshot().table("flights").pages()

    found = read(spark, history, view="pages", table="flights")

    assert found.count() == local.num_rows
    assert found.agg(f.sum("entry_count")).first()[0] == pc.sum(local.column("entry_count")).as_py()
    assert {row["page_id"] for row in found.select("page_id").collect()} == set(
        local.column("page_id").to_pylist()
    )


def test_the_views_of_metadata_show_every_table_and_commit(spark: SparkSession, history: History) -> None:
    snapshot = history.store.snapshot()

    tables = {row["table"]: row["num_rows"] for row in read(spark, history, view="tables").collect()}
    versions = [row["version"] for row in read(spark, history, view="history", versionAsOf=4).collect()]

    assert tables == {name: snapshot.table(name).num_rows for name in snapshot.tables()}
    assert sorted(versions) == [0, 1, 2, 3, 4]


def test_a_frame_stays_on_its_version_while_others_commit(spark: SparkSession, own_history: History) -> None:
    found = read(spark, own_history, table="planes")
    first = found.filter("year = 1999")
    with own_history.store.transaction() as txn:
        txn.append("planes", pa.table({"tail": ["N9"], "year": pa.array([1999], pa.int32())}))

    counts = [found.count(), first.count(), found.filter("year = 1999").count()]

    local = own_history.store.snapshot(own_history.latest).table("planes")
    matching = local.read(filter=[("year", "==", 1999)]).num_rows
    assert counts == [local.num_rows, matching, matching]


def test_the_system_catalog_can_be_read(spark: SparkSession, history: History) -> None:
    local = history.store.snapshot().table("system.catalog").read()

    found = read(spark, history, table="system.catalog")

    assert found.count() == local.num_rows


def test_a_table_that_is_not_there_is_named_in_the_error(spark: SparkSession, history: History) -> None:
    with pytest.raises(Exception, match="flihgts"):
        read(spark, history, table="flihgts").count()


def test_a_table_of_sparks_own_catalog_is_refused_because_it_could_not_be_read() -> None:
    made = SourceOptions({"path": "store", "table": "planes", "provider": "spark_pages"})

    with pytest.raises(InvalidInputError, match=r"CREATE TABLE .*CREATE TEMPORARY VIEW"):
        made.check_read()


def test_timestamps_come_back_as_the_moments_that_they_were(spark: SparkSession, history: History) -> None:
    row = read(spark, history, table="flights").filter("id = 60").first()

    assert row["departed"] == datetime(2026, 1, 1, 0, 1)
    assert row["landed"].astimezone(UTC) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("option", "value"),
    [("partitions", "some"), ("partitions", "-3"), ("versionAsOf", "newest"), ("view", "colums")],
)
def test_an_option_that_makes_no_sense_is_named_in_the_error(
    spark: SparkSession, history: History, option: str, value: str
) -> None:
    with pytest.raises(Exception, match=rf"InvalidInputError: .*{value}"):
        read(spark, history, **{"table": "planes", option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "history", "table": "planes"}, "'history' of one table: it is about the whole store"),
        ({"view": "segments", "table": "planes"}, "'segments' of one table: it is about the whole store"),
        ({"view": "changes", "maxVersionsPerTrigger": "0"}, "Cannot use 0 as maxVersionsPerTrigger"),
        (
            {"view": "changes", "startingVersion": "9", "endingVersion": "3"},
            "startingVersion is after endingVersion",
        ),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SourceOptions({"path": "/data/shop", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"table": "planes", "versionAs": "3"},
            r"option 'versionas' of .*view 'rows'.*Did you mean versionAsOf",
        ),
        (
            {"table": "planes", "granularity": "pages"},
            r"option 'granularity' of the view 'rows': there is none of that name",
        ),
        ({"table": "planes", "view": "pages", "columns": "a"}, "option 'columns' of .*view 'pages'"),
        ({"table": "planes", "view": "pages", "partitions": "2"}, "option 'partitions' of .*view 'pages'"),
    ],
)
def test_an_option_that_a_view_does_not_have_is_refused_with_those_that_it_has(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SourceOptions({"path": "/data/shop", **options}).check_read()


@pytest.mark.parametrize(
    ("use", "option", "message"),
    [
        ("a write", "partitions", "Cannot use option 'partitions' of a write"),
        ("a write", "creatTable", "Did you mean createTable"),
        ("a stream that is read", "versionAsOf", "Cannot use option 'versionasof' of a stream that is read"),
        (
            "a stream that is written",
            "appId",
            "option 'appid' of .* A stream is known by the id of its query",
        ),
    ],
)
def test_an_option_that_a_use_does_not_have_is_refused(use: str, option: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SourceOptions({"path": "/data/shop", option: "1"}).check_use(use)


def test_options_are_known_in_any_case() -> None:
    SourceOptions({"PATH": "/data/shop", "TABLE": "t", "VersionAsOf": "1", "FILTER": "a > 1"}).check_read()
    SourceOptions({"path": "/data/shop", "TABLE": "t", "CHECKPOINTLOCATION": "/c"}).check_use(
        "a stream that is written"
    )


def test_a_schema_cannot_be_given_because_values_would_have_to_be_cut(
    spark: SparkSession, history: History
) -> None:
    frame = spark.read.format("spark_pages").schema("year short").option("table", "planes").load(history.url)

    with pytest.raises(
        Exception, match=r"InvalidInputError: Cannot read a table with a schema of the caller"
    ):
        frame.collect()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.uint8()), [[1, None], None]),
        (
            pa.struct([("a", pa.uint16()), ("b", pa.dictionary(pa.int32(), pa.string()))]),
            [{"a": 1, "b": "x"}],
        ),
        (pa.map_(pa.string(), pa.uint32()), [[("x", 2**32 - 1)]]),
        (pa.list_(pa.large_list(pa.timestamp("ns")), 1), [[[datetime(2026, 1, 1)]]]),
        (pa.string_view(), ["x", None]),
        (pa.binary_view(), [b"x", None]),
        (pa.run_end_encoded(pa.int32(), pa.uint8()), [1, 1, None]),
        (pa.json_(), ["{}", None]),
    ],
    ids=str,
)
def test_types_that_spark_lacks_are_widened_inside_nested_types_too(
    spark: SparkSession, kind: pa.DataType, values: list[Any]
) -> None:
    batch = pa.record_batch({"c": pa.array(values, kind)})
    schema = spark_schema(batch.schema)

    made = to_spark(batch, to_arrow_schema(from_arrow_schema(schema), timezone="UTC"))

    assert made.column("c").to_pylist() == batch.column("c").to_pylist()
    assert spark_type(schema.field("c").type) == schema.field("c").type


@pytest.mark.parametrize(
    ("kind", "span"),
    [
        ("month", pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
        ("list", pa.array([[Decimal(1)]], pa.list_(pa.decimal256(50, 2)))),
    ],
    ids=["no such type", "too many digits"],
)
def test_a_column_for_which_spark_has_no_type_is_named_and_the_others_can_be_read(
    spark: SparkSession, tmp_path: Path, kind: str, span: pa.Array
) -> None:
    kinds = pa.schema([("n", pa.int64()), ("span", span.type)])
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", kinds)
        txn.append("t", pa.table([[1], span], schema=kinds))
    table = spark.read.format("spark_pages").option("table", "t")

    with pytest.raises(
        AnalysisException, match=f"Cannot read column 'span' of table 't' in Spark: it has no type for {kind}"
    ):
        table.load(store.url)

    assert table.option("columns", "n").load(store.url).collect() == [Row(n=1)]


def test_a_column_that_is_named_twice_is_refused_by_load(spark: SparkSession, history: History) -> None:
    with pytest.raises(AnalysisException, match="'id' of table 'flights' more than once"):
        read(spark, history, table="flights", columns="id,carrier,ID")


def changed(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)


@pytest.fixture(scope="module")
def half_empty(tmp_path_factory: pytest.TempPathFactory) -> sp.Store:
    """Version 1 has no null but in `never`, 2 has some in `later`, and 3 has none there any more."""
    rows = pa.table(
        {
            "id": pa.array(range(1_000), pa.int64()),
            "later": pa.array(range(1_000), pa.int32()),
            "text": [f"row {i}" for i in range(1_000)],
            "one": pa.array([7] * 1_000, pa.int64()),
            "never": pa.nulls(1_000, pa.float64()),
            "list": [[None, i] for i in range(1_000)],
        }
    )
    store = sp.create(str(tmp_path_factory.mktemp("half") / "store"))
    with store.transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    with store.transaction() as txn:
        txn.append("t", changed(rows, "later", pa.nulls(1_000, pa.int32())))
    with store.transaction() as txn:
        txn.update_rows("t", range(1_000, 2_000), {"later": pa.array(range(1_000), pa.int32())})
    return store


NEVER_NULL = {"id", "later", "text", "one", "list"}


@pytest.mark.parametrize(
    ("version", "found", "expected"),
    [
        (1, "inferred", NEVER_NULL),
        (2, "inferred", NEVER_NULL - {"later"}),
        (3, "inferred", NEVER_NULL),
        (1, "declared", set()),
        (1, None, set()),
    ],
)
def test_columns_without_a_null_are_found_where_that_is_asked_for(
    spark: SparkSession, half_empty: sp.Store, version: int, found: str | None, expected: set[str]
) -> None:
    reading = spark.read.format("spark_pages").options(table="t", versionAsOf=version)

    frame = (reading.option("nullability", found) if found else reading).load(half_empty.url)

    assert {field.name for field in frame.schema if not field.nullable} == expected
    local = half_empty.snapshot(version).table("t").read()
    assert_df_equality(frame.orderBy("id", "later"), as_spark(spark, local).orderBy("id", "later"),
                       ignore_nullable=True)  # fmt: skip


def test_statistics_that_nobody_gave_prove_nothing(half_empty: sp.Store, monkeypatch: Any) -> None:
    table = half_empty.snapshot(1).table("t")
    assert not may_be_null(table, "id")

    runs = table.directory.chain("id").runs(0, 1_000)
    unknown = next(runs).run.stats.set_column(
        0, STATS_SCHEMA.field("null_count"), pa.nulls(1, STATS_SCHEMA.field("null_count").type)
    )
    monkeypatch.setattr(PageRun, "stats", unknown)

    assert may_be_null(table, "id")


def test_a_nullability_that_is_no_word_of_ours_is_refused() -> None:
    with pytest.raises(
        InvalidInputError, match="Cannot use 'maybe' as option nullability: expected declared or inferred"
    ):
        SourceOptions({"path": "/data/shop", "nullability": "maybe"})


def test_a_null_where_there_must_be_none_is_damage_and_no_value() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    batch = pa.record_batch({"n": pa.array([1, None, 3])})

    with pytest.raises(DamageError, match="Cannot read column 'n' in Spark: it has a null"):
        to_spark(batch, schema)
    assert to_spark(batch.slice(2), schema).column(0).to_pylist() == [3]


def test_a_task_of_a_store_on_this_machine_starts_no_thread(history: History, monkeypatch: Any) -> None:
    table = history.store.snapshot().table("flights")
    reader = RowsReader(history.url, table, from_arrow_schema(spark_schema(table.schema)))
    asked = []
    scan = Table.scan
    monkeypatch.setattr(Table, "scan", lambda *args, **how: asked.append(how) or scan(*args, **how))

    for part in reader.partitions():
        assert sum(batch.num_rows for batch in reader.read(part)) > 0

    assert {how["prefetch"] for how in asked} == {False}
