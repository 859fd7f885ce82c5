"""Filters that Spark hands over where a load has the option ``pushdown``: the rows that come back, and the
pages that are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import nan
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema

import spark_pages as sp
from spark_pages.spark.rows import OneFilterReader, RowsPartition

ROWS = 4_000
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string()), ("x", pa.float64())])
MEASURES = pa.table(
    {
        "n": range(ROWS),
        # Sorted, with a page or two of nothing but nulls in the middle.
        "word": [None if 2_000 <= n < 2_500 else f"word {n:04d}" for n in range(ROWS)],
        # Sorted, with pages of NaN, of nulls and of both zeros.
        "x": [
            nan if n < 400 else None if n < 800 else (0.0 if n % 2 else -0.0) if n < 1200 else n / 8
            for n in range(ROWS)
        ],
    },
    SCHEMA,
)


@pytest.fixture(scope="module")
def measures(tmp_path_factory: pytest.TempPathFactory) -> sp.Store:
    store = sp.create(str(tmp_path_factory.mktemp("pushdown") / "store"))
    properties = {"page_bytes": "1024", "bloom.word": "true", "bloom.x": "true"}
    with store.transaction() as txn:
        txn.create_table("measures", SCHEMA, properties=properties)
        txn.append("measures", MEASURES)
    return store


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that hands filters to Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.fixture(scope="module")
def local(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(MEASURES)  # not cached: Spark skips NaN in what it has cached


@pytest.mark.parametrize(
    "condition",
    [
        "word <=> 'word 0100'",
        "word <=> null",
        "not (word <=> 'word 0100')",
        "word <> 'word 0100'",
        "word in ('word 0100', null)",
        "word not in ('word 0100', 'word 3100')",
        "word is null",
        "word is not null",
        "word like 'word 01%'",
        "word not like 'word 01%'",
        "word like '%99'",
        "word like '%d 00%'",
        "word like 'word 0_00'",
        "startswith(word, 'word 39') or n < 5",
        "n < 5 or n >= 3990",
        "not (n >= 5 and n < 3990)",
        "n > 100 and word < 'word 0110'",
        "n between 10 and 20 and x is null",
        "x = double('NaN')",
        "x < double('NaN')",
        "x > 499.5",
        "x in (double('NaN'), 200.0)",
        "x = double('-0.0')",
        "x <= double('-0.0')",
    ],
)
def test_a_filter_that_is_pushed_down_gives_the_rows_that_spark_finds_itself(
    pushing: SparkSession, measures: sp.Store, local: DataFrame, condition: str
) -> None:
    read = pushing.read.format("spark_pages").options(table="measures", pushdown="true").load(measures.url)

    found = read.filter(condition)

    expected = local.filter(condition)
    assert_df_equality(found, expected, ignore_nullable=True, ignore_row_order=True, allow_nan_equality=True)


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        (EqualTo(("word",), "word 0100"), lambda n: n == 100),
        (EqualNullSafe(("word",), "word 0100"), lambda n: n == 100),
        (EqualNullSafe(("word",), None), lambda n: 2_000 <= n < 2_500),
        (In(("word",), ("word 0100", "word 3900")), lambda n: n in (100, 3900)),
        (IsNull(("word",)), lambda n: 2_000 <= n < 2_500),
        (IsNotNull(("word",)), lambda n: not 2_000 <= n < 2_500),
        (Not(IsNull(("word",))), lambda n: not 2_000 <= n < 2_500),
        (StringStartsWith(("word",), "word 01"), lambda n: 100 <= n < 200),
        (GreaterThan(("n",), 3_900), lambda n: n > 3_900),
        (GreaterThanOrEqual(("n",), 3_900), lambda n: n >= 3_900),
        (LessThan(("n",), 100), lambda n: n < 100),
        (LessThanOrEqual(("n",), 100), lambda n: n <= 100),
        # To Spark NaN is equal to itself, and larger than all else.
        (EqualTo(("x",), nan), lambda n: n < 400),
        (LessThan(("x",), nan), lambda n: n >= 800),
        (GreaterThan(("x",), 499.0), lambda n: n < 400 or n > 3_992),
        (EqualTo(("x",), -0.0), lambda n: 800 <= n < 1_200),
    ],
    ids=lambda each: repr(each) if isinstance(each, Filter) else "",
)
def test_a_filter_rules_pages_out_and_none_that_holds_a_row_of_it(
    measures: sp.Store, given: Filter, passes: Callable[[int], bool]
) -> None:
    reader = _reader(measures)

    remaining = list(reader.pushFilters([given]))

    planned = _rows(reader)
    assert remaining == [given]
    assert len(planned) < ROWS
    assert planned >= {n for n in range(ROWS) if passes(n)}


@pytest.mark.parametrize(
    "given",
    [
        Not(EqualTo(("word",), "word 0100")),
        Not(StringStartsWith(("word",), "word 01")),
        StringEndsWith(("word",), "99"),
        StringContains(("word",), "d 00"),
    ],
    ids=repr,
)
def test_a_filter_that_statistics_cannot_use_reads_every_page(measures: sp.Store, given: Filter) -> None:
    reader = _reader(measures)

    remaining = list(reader.pushFilters([given]))

    assert remaining == [given]
    assert _rows(reader) == set(range(ROWS))


def test_spark_makes_fewer_tasks_of_a_load_that_asks_for_its_filter(
    pushing: SparkSession, measures: sp.Store
) -> None:
    read = pushing.read.format("spark_pages").option("table", "measures")

    asked = read.option("pushdown", "true").load(measures.url).where("n >= 3990")
    not_asked = read.option("pushdown", "false").load(measures.url).where("n >= 3990")

    assert asked.rdd.getNumPartitions() < not_asked.rdd.getNumPartitions()
    assert asked.count() == not_asked.count() == 10


def test_a_load_that_asks_for_filters_is_refused_by_a_session_that_hands_none_over(
    spark: SparkSession, measures: sp.Store
) -> None:
    read = spark.read.format("spark_pages").options(table="measures", pushdown="true").load(measures.url)

    with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        read.count()


def _reader(store: sp.Store) -> OneFilterReader:
    return OneFilterReader(store.url, store.snapshot().table("measures"), from_arrow_schema(SCHEMA))


def _rows(reader: OneFilterReader) -> set[int]:
    parts: list[Any] = list(reader.partitions())
    assert all(isinstance(part, RowsPartition) for part in parts)
    return {n for part in parts for start, stop in part.ranges for n in range(start, stop)}
