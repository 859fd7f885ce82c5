"""Schemas for `Transaction.create_table`, in every usual form."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError, NotFoundError, TableExistsError
from spark_pages.store import Store
from spark_pages.transaction.schema_sources import as_schema

FORMS = {
    "Schema": pa.schema([("id", pa.int64()), ("name", pa.string())]),
    "Table": pa.table({"id": [1], "name": ["x"]}),
    "RecordBatchReader": pa.table({"id": [1], "name": ["x"]}).to_reader(),
    "Polars Schema": pl.Schema({"id": pl.Int64, "name": pl.String}),
    "Polars DataFrame": pl.DataFrame({"id": [1], "name": ["x"]}),
    "Polars LazyFrame": pl.LazyFrame({"id": [1], "name": ["x"]}),
    "pandas DataFrame": pd.DataFrame({"id": [0, 1], "name": ["w", "x"]})[1:],
    "DuckDB relation": duckdb.sql("SELECT 1::BIGINT AS id, 'x' AS name"),
    "Python types": {"id": int, "name": str},
    "SQL names": {"id": "bigint", "name": "VARCHAR"},
    "Arrow types": {"id": pa.int64(), "name": pa.string()},
    "pairs": [("id", int), ("name", "text")],
    "fields": [pa.field("id", pa.int64()), pa.field("name", pa.string())],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_created_from(form: str, store: Store):
    with store.transaction() as txn:
        txn.create_table("flights", FORMS[form])

    schema = store.snapshot().table("flights").schema
    assert schema.names == ["id", "name"]
    # Polars text is a view in Arrow, which is stored as large text.
    assert schema.types in ([pa.int64(), pa.string()], [pa.int64(), pa.large_string()])


def test_a_reader_that_gives_a_schema_can_still_be_read():
    reader = pa.table({"id": [1]}).to_reader()

    assert as_schema(reader).names == ["id"]
    assert reader.read_all().num_rows == 1


def test_python_types_become_arrow_types_without_loss():
    found = as_schema({"a": bool, "b": float, "c": bytes, "d": dt.date, "e": dt.datetime, "f": dt.time})

    assert found.types == [
        pa.bool_(),
        pa.float64(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us"),
        pa.time64("us"),
    ]


def test_sql_text_may_be_nested_and_have_digits():
    found = as_schema(
        {"a": "DECIMAL(10, 2)", "b": "INTEGER[]", "c": "STRUCT(x INT, y TEXT)", "d": "MAP(TEXT, INT)"}
    )

    assert found.types[0] == pa.decimal128(10, 2)
    assert found.types[1] == pa.list_(pa.int32())
    assert found.types[2] == pa.struct([("x", pa.int32()), ("y", pa.string())])
    assert found.types[3] == pa.map_(pa.string(), pa.int32())


def test_sql_text_may_name_a_type_of_the_store(store: Store):
    with store.transaction() as txn:
        txn.create_type("money", pa.decimal128(18, 2))
        txn.create_table("prices", {"amount": "money"})

    assert store.snapshot().table("prices").schema.field("amount").type == pa.decimal128(18, 2)


def test_an_unknown_name_of_a_type_is_refused(store: Store):
    with store.transaction() as txn, pytest.raises(NotFoundError, match="no_such_type"):
        txn.create_table("prices", {"amount": "no_such_type"})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (5, "a schema of 5"),
        ("id", "a schema of 'id'"),
        (int, "a schema of"),
        ([("id", 1)], "1 is not the type of column 'id'"),
        ({"id": complex}, "not the type of column 'id'"),
        ([("id", int), ("id", str)], "named twice"),
        ([("id",)], "pairs of a name and a type"),
        ({"id": "ENUM('a')"}, "ENUM"),
    ],
)
def test_other_schemas_are_refused(schema: Any, message: str, store: Store):
    with store.transaction() as txn, pytest.raises(InvalidInputError, match=message):
        txn.create_table("flights", schema)


def test_if_not_exists_leaves_the_table_that_is_there(store: Store):
    with store.transaction() as txn:
        txn.create_table("flights", {"id": int})
        txn.create_table("flights", {"other": str}, if_not_exists=True)
        with pytest.raises(TableExistsError):
            txn.create_table("flights", {"other": str})

    assert store.snapshot().table("flights").schema.names == ["id"]
