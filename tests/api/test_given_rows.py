"""Rows that Arrow cannot take are refused with the reason; what fails inside of a caller's stream is told."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


@pytest.fixture(scope="module")
def store():
    store = sp.create("memory://given-rows")
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", {"n": [1], "s": ["a"]})
    return store


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def stream(error):
    def batches():
        yield pa.record_batch({"n": [1], "s": ["a"]}, SCHEMA)
        raise error

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


FRAMES = {
    "mixed values": (pd.DataFrame({"n": [1, "a", None], "s": ["a", "b", "c"]}), "column 'n'.*(bytes|int)"),
    "names that are there twice": (pd.DataFrame([[1, 2]], columns=["n", "n"]), "Duplicate column names"),
    "columns of lists and numbers": (pd.DataFrame({"n": [[1], 2], "s": ["a", "b"]}), "column 'n'"),
    "an unknown column": (pl.DataFrame({"n": [1], "x": [1]}), "'x'"),
    "values of another type": (pl.DataFrame({"n": ["a"], "s": ["a"]}), "'n'"),
    "a mapping of mixed values": ({"n": [1, "a"], "s": ["a", "b"]}, "[Cc]ould not convert|int"),
    "a mapping nested too deep": ({"n": nested(100_000), "s": ["a"]}, "nested deeper than 64 levels"),
    "a stream whose source fails": (stream(ValueError("disk gone")), "batch 1 of a stream: disk gone"),
    "a stream that runs out of its own list": (stream(KeyError("x")), "batch 1 of a stream"),
    "a stream of a broken library": (stream(RuntimeError("oops")), "batch 1 of a stream: oops"),
    "one column": (pa.array([1]), "expected columns with names"),
    "a class": (pd.DataFrame, "Cannot read rows from"),
}


@pytest.mark.parametrize("what", FRAMES)
def test_rows_that_cannot_be_appended_are_refused_with_the_reason(store, what):
    data, reason = FRAMES[what]
    txn = store.transaction()

    with pytest.raises(InvalidInputError, match=reason):
        txn.append("t", data)

    assert txn.commit() == 1


class OwnError(Exception):
    """Of a program that uses the library."""


def test_errors_of_the_callers_own_classes_pass(store):
    with pytest.raises(OwnError):
        store.transaction().append("t", stream(OwnError()))


@pytest.mark.parametrize("values", [nested(100_000), pd.DataFrame({"n": [1]}), [1 << 70], [object()]])
def test_values_that_no_column_holds_are_refused(store, values):
    with pytest.raises(InvalidInputError):
        store.transaction().update_rows("t", [0], {"n": values})


def test_a_certificate_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"Cannot read the certificate .*missing.pem.: No such file"):
        sp.connect("grpc+tls://127.0.0.1:1", certificate=str(tmp_path / "missing.pem"))


def test_pages_are_descriptors(store):
    with pytest.raises(InvalidInputError, match=r"Cannot use 'x' \(str\) as a value in pages"):
        store.snapshot().table("t").page_handler.get_pages(["x"])
