"""Frames of every type that other libraries give to Arrow are stored, or refused by the name of a column."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark

from spark_pages.errors import InvalidInputError
from spark_pages.spark.arrow_types import schema_of_rows
from spark_pages.store import Store
from tests.transaction.stores import store_with

ENUM = pl.Enum(["b", "a", "unused"])
DAYS = [dt.date(2020, 1, 1), None, dt.date(1900, 1, 1)]
TIMES = [dt.datetime(2020, 1, 1), None, dt.datetime(1900, 1, 1)]
AMOUNTS = [Decimal("1.50"), None, Decimal("-2.25")]
POLARS = {
    **{str(kind): ([1, None, 0], kind) for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)},
    **{str(kind): ([1, None, 0], kind) for kind in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)},
    **{str(kind): ([1.5, None, -0.0], kind) for kind in (pl.Float16, pl.Float32, pl.Float64)},
    "Boolean": ([True, None, False], pl.Boolean),
    "String": (["a", None, "b" * 20], pl.String),
    "Binary": ([b"a", None, b"b" * 20], pl.Binary),
    "Null": ([None] * 3, pl.Null),
    "Decimal": (AMOUNTS, pl.Decimal(38, 2)),
    "Date": (DAYS, pl.Date),
    "Time": ([dt.time(1, 2), None, dt.time(3)], pl.Time),
    "Datetime": (TIMES, pl.Datetime("ms")),
    "Datetime with a zone": (TIMES, pl.Datetime("us", "UTC")),
    "Datetime of nanoseconds": (TIMES, pl.Datetime("ns")),
    "Duration": ([dt.timedelta(1), None, dt.timedelta(-2)], pl.Duration("us")),
    "Categorical": (["a", None, "b"], pl.Categorical),
    "Enum": (["a", None, "b"], ENUM),
    "List": ([["a"], None, ["b", None]], pl.List(pl.String)),
    "Array": ([[1, 2], None, [3, 4]], pl.Array(pl.Int64, 2)),
    "Struct": ([{"a": "x", "b": b"y"}, None, {"a": None, "b": None}], None),
    "List of Categorical": ([["a"], None, ["b"]], pl.List(pl.Categorical)),
    "List of Enum": ([["a"], None, ["b"]], pl.List(ENUM)),
    "Struct of Categorical": ([{"a": "x"}, None, {"a": "y"}], pl.Struct({"a": pl.Categorical})),
    "List of Struct": ([[{"a": b"x"}], None, []], pl.List(pl.Struct({"a": pl.Binary}))),
}
MONTHS = pd.period_range("2020", periods=3, freq="M")
PANDAS = {
    "category": pd.Categorical(["a", None, "b"], categories=["b", "a", "unused"]),
    "ordered category": pd.Categorical([3, None, 5], categories=[5, 3, 9], ordered=True),
    "category of times": pd.Categorical(pd.to_datetime(["2020", "2021", "2022"])),
    "category of intervals": pd.cut([1, np.nan, 5], [0, 3, 6]),
    "category of periods": pd.Categorical(MONTHS),
    "period": MONTHS,
    "interval": pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3]),
    "string": pd.array(["a", None, "b"], dtype="string"),
    "Int64": pd.array([1, None, 3], dtype="Int64"),
    "boolean": pd.array([True, None, False], dtype="boolean"),
    "times with a zone": pd.date_range("2020", periods=3, tz="Europe/Paris"),
    "timedelta": pd.to_timedelta([1, 2, 3], unit="s"),
    "lists": [[1], None, [2]],
    "dictionaries": [{"a": 1}, None, {"a": 2}],
    "decimals": AMOUNTS,
    "bytes": [b"x", None, b"y"],
    "dates": DAYS,
    "views": pd.array(["a", None, "b"], dtype=pd.ArrowDtype(pa.string_view())),
    "float32": np.array([1, 2, 3], "f4"),
}
UUID = "'11111111-1111-1111-1111-111111111111'::UUID"
DUCKDB = {
    **{
        kind: f"1::{kind}"
        for kind in ("TINYINT", "UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM", "FLOAT", "DOUBLE")
    },
    **{kind: f"'2020-01-01'::{kind}" for kind in ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP")},
    **{kind: f"'2020-01-01'::{kind}" for kind in ("TIMESTAMP_NS", "TIMESTAMPTZ")},
    **{kind: f"'10:00:00'::{kind}" for kind in ("TIME", "TIME_NS")},
    "TIMETZ": "'10:00:00+01'::TIMETZ",
    "BOOLEAN": "true",
    "VARCHAR": "'a'",
    "BLOB": "'a'::BLOB",
    "BIT": "'101'::BIT",
    "DECIMAL": "1.5::DECIMAL(30, 2)",
    "INTERVAL": "interval 1 day",
    "ENUM": "'a'::ENUM('b', 'a')",
    "UUID": UUID,
    "JSON": "'1'::JSON",
    "GEOMETRY": "'POINT(1 2)'::GEOMETRY",
    "VARIANT": "1::VARIANT",
    "NULL": "NULL",
    "UNION": "2::UNION(num INTEGER, text VARCHAR)",
    "LIST": "['a']",
    "ARRAY": "[1, 2]::INTEGER[2]",
    "STRUCT": "{'a': 1, 'b': 'x'}",
    "MAP": "map{'a': 1}",
    "list of ENUM": "['a'::ENUM('b', 'a')]",
    "map to UUID": f"map{{'a': {UUID}}}",
    "list of UNION": "[2::UNION(num INTEGER, text VARCHAR)]",
    "empty list of UNION": "[2::UNION(num INTEGER, text VARCHAR)][:0]",
}
CSV = {
    **{"int64": "1", "double": "1.5", "boolean": "true", "text": "abc", "time": "10:00:00"},
    **{"date": "2020-01-01", "timestamp": "2020-01-01 00:00:00", "UTC": "2020-01-01T00:00:00Z"},
    "nanoseconds": "2020-01-01 00:00:00.123456789",
}
PARQUET = {
    "half": pa.array(np.array([1, 2, 3], "f2")),
    "decimal32": pa.array(AMOUNTS, pa.decimal32(5, 2)),
    "uuid": pa.array([b"0" * 16, None, b"1" * 16], pa.uuid()),
    "json": pa.array(["1", None, "2"], pa.json_()),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "large text": pa.array(["a", None, "b"], pa.large_string()),
    "text view": pa.array(["a", None, "b"], pa.string_view()),
    "binary view": pa.array([b"a", None, b"b"], pa.binary_view()),
    "fixed list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "duration": pa.array([1, None, 2], pa.duration("ns")),
    "seconds of a day": pa.array([1, None, 2], pa.time32("s")),
    "milliseconds of days": pa.array([86_400_000, None, 0], pa.date64()),
    "fixed binary": pa.array([b"ab", None, b"cd"], pa.binary(2)),
}


def of_duckdb(value: str, lossless: bool, views: bool) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute(f"SET arrow_lossless_conversion = {lossless}")
        connection.execute(f"SET produce_arrow_string_view = {views}")
        connection.execute(f"SET arrow_output_list_view = {views}")
        every = f"SELECT {value} AS c UNION ALL SELECT NULL UNION ALL SELECT {value}"
        return connection.sql(every).to_arrow_table().combine_chunks()


def of_csv(value: str, dictionaries: bool) -> pa.Table:
    options = pa.csv.ConvertOptions(auto_dict_encode=dictionaries)
    text = f"c,n\n{value},1\n,2\n{value},3\n".encode()
    return pa.csv.read_csv(io.BytesIO(text), convert_options=options).select(["c"])


def of_parquet(values: pa.Array) -> pa.Table:
    file = io.BytesIO()
    pq.write_table(pa.table({"c": values}), file)
    return pq.read_table(io.BytesIO(file.getvalue()))


JSON = b"""{"c": {"a": [{"b": null, "d": "x"}], "t": "2020-01-01 00:00:00"}}
{"c": null}
{"c": {}}
"""


def side_by_side(tables: dict[str, pa.Table]) -> pa.Table:
    fields = [table.schema.field("c").with_name(name) for name, table in tables.items()]
    return pa.table([table["c"] for table in tables.values()], schema=pa.schema(fields))


SPARK = {
    **{
        kind.typeName(): (kind, 1)
        for kind in (spark.ByteType(), spark.ShortType(), spark.IntegerType(), spark.LongType())
    },
    **{kind.typeName(): (kind, 1.5) for kind in (spark.FloatType(), spark.DoubleType())},
    "boolean": (spark.BooleanType(), True),
    "string": (spark.StringType(), "a"),
    "binary": (spark.BinaryType(), b"a"),
    "decimal": (spark.DecimalType(20, 2), Decimal("1.50")),
    "date": (spark.DateType(), DAYS[0]),
    "timestamp": (spark.TimestampType(), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    "timestamp_ntz": (spark.TimestampNTZType(), dt.datetime(2020, 1, 1)),
    "interval": (spark.DayTimeIntervalType(), dt.timedelta(1)),
    "array": (spark.ArrayType(spark.StringType()), ["a", None]),
    "map": (spark.MapType(spark.StringType(), spark.IntegerType()), [("a", 1)]),
    "struct": (
        spark.StructType([spark.StructField("a", spark.ArrayType(spark.DateType()))]),
        {"a": [DAYS[0]]},
    ),
    "void": (spark.NullType(), None),
}


def of_spark() -> pa.Table:
    """Rows as Spark hands them to Python, of every type that it has an Arrow type for."""
    schema = schema_of_rows(
        spark.StructType([spark.StructField(name, kind) for name, (kind, _) in SPARK.items()])
    )
    columns = [pa.array([value, None, value], schema.field(name).type) for name, (_, value) in SPARK.items()]
    return pa.table(columns, schema=schema)


FRAMES = {
    "Polars": pl.DataFrame({name: pl.Series(each[0], dtype=each[1]) for name, each in POLARS.items()}),
    "pandas": pd.DataFrame(PANDAS),
    "DuckDB": side_by_side({name: of_duckdb(each, False, False) for name, each in DUCKDB.items()}),
    "DuckDB, lossless": side_by_side({name: of_duckdb(each, True, True) for name, each in DUCKDB.items()}),
    "pyarrow CSV": side_by_side({name: of_csv(each, False) for name, each in CSV.items()}),
    "pyarrow CSV, dictionaries": of_csv("abc", True),
    "pyarrow Parquet": side_by_side({name: of_parquet(each) for name, each in PARQUET.items()}),
    "pyarrow JSON": pa.json.read_json(io.BytesIO(JSON)),
    "Spark": of_spark(),
}


def nested(name: str, values: pa.Array) -> dict[str, pa.Array]:
    """The values as they are, and inside of others; three rows each, which hold all of them."""
    ends = pa.array([0, 2, 2, 3], pa.int32())
    struct = pa.StructArray.from_arrays([values], ["x"])
    return {
        name: values,
        f"struct of {name}": struct,
        f"list of {name}": pa.ListArray.from_arrays(ends, struct),
        f"map to {name}": pa.MapArray.from_arrays(ends, pa.array(["k", "l", "m"]), values),
    }


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_is_stored_and_read_back_equal(frame):
    whole = pa.table(frame)
    store = store_with(schema=whole.schema)

    with store.transaction() as txn:
        txn.append("t", frame)

    found = Store(store.object_store).snapshot().table("t").read()
    for name in whole.column_names:
        assert (name, repr(found[name].to_pylist())) == (name, repr(whole[name].to_pylist()))
    assert store.verify(pages="all").ok


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_values_of_a_frame_may_be_anywhere_inside_of_others_whatever_is_done_to_their_pages(frame):
    whole = pa.table(frame)
    parts = [nested(name, whole[name].combine_chunks()) for name in whole.column_names]
    rows = pa.table({name: values for part in parts for name, values in part.items()})
    store = store_with(rows)
    with store.transaction() as txn:
        txn.append("t", rows.slice(1, 2))
        txn.update_rows("t", [0], rows.slice(2, 1))
    store.compact_pages()

    table = Store(store.object_store).snapshot().table("t")

    found, taken = table.read(), table.take([4, 0])
    for name in rows.column_names:
        given = rows[name].to_pylist()
        expected = [given[2], *given[1:], *given[1:]]
        assert (name, repr(found[name].to_pylist())) == (name, repr(expected))
        assert (name, repr(taken[name].to_pylist())) == (name, repr([expected[4], expected[0]]))
    assert store.verify(pages="all").ok


def test_a_frame_of_polars_comes_back_as_polars_has_it():
    frame = FRAMES["Polars"]
    store = store_with(schema=pa.table(frame).schema)
    with store.transaction() as txn:
        txn.append("t", frame)

    found = pl.DataFrame(store.snapshot().table("t").read())

    assert found.equals(frame)
    assert found.schema == frame.schema


REFUSED = {
    "Polars Int128": (pl.DataFrame({"c": pl.Series([1], dtype=pl.Int128)}), "'c'.*_pli128"),
    "Polars UInt128": (pl.DataFrame({"c": pl.Series([1], dtype=pl.UInt128)}), "'c'.*_plu128"),
    "Polars Object": (
        pl.DataFrame({"c": pl.Series([object()], dtype=pl.Object)}),
        "'c' holds Python objects",
    ),
    "pandas Sparse": (pd.DataFrame({"c": pd.arrays.SparseArray([0, 1])}), "column c"),
    "pandas complex": (pd.DataFrame({"c": np.array([1j])}), "column c"),
    "pandas objects of several types": (pd.DataFrame({"c": [1, "a"]}), "column c"),
}


@pytest.mark.parametrize(("frame", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_frame_that_arrow_cannot_read_is_refused_by_the_name_of_its_column(frame, reason):
    store = store_with(pa.table({"c": [7]}))

    with store.transaction() as txn, pytest.raises(InvalidInputError, match=f"(?s)Cannot append.*{reason}"):
        txn.append("t", frame)

    assert store.snapshot().table("t").read().to_pydict() == {"c": [7]}
