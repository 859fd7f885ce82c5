"""`Store.append` and `Store.write`: one call, one commit, from everything that people have rows in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pytest

from spark_pages.errors import InvalidInputError, SchemaMismatchError, TableExistsError, TableNotFoundError
from spark_pages.store import Store

ROWS = pa.table({"id": [1, 2, 3], "name": pa.array(["x", None, "z"])})


@dataclass
class Row:
    id: int
    name: str | None


def rows_of_duckdb() -> Any:
    connection = duckdb.connect()
    return connection.sql("SELECT * FROM (VALUES (1::BIGINT, 'x'), (2, NULL), (3, 'z')) AS t(id, name)")


def parquet(folder: Path) -> Path:
    pa.parquet.write_table(ROWS, folder / "rows.parquet")
    return folder / "rows.parquet"


def csv_stream(folder: Path) -> Any:
    (folder / "rows.csv").write_text("id,name\n1,x\n2,\n3,z\n")
    options = pa.csv.ConvertOptions(strings_can_be_null=True)
    return pa.csv.open_csv(folder / "rows.csv", convert_options=options)


FORMS: dict[str, Callable[[Path], Any]] = {
    "Table": lambda _: ROWS,
    "RecordBatch": lambda _: ROWS.to_batches()[0],
    "RecordBatchReader": lambda _: ROWS.to_reader(),
    "generator of batches": lambda _: (batch for batch in ROWS.to_batches(max_chunksize=2)),
    "list of tables": lambda _: [ROWS.slice(0, 1), ROWS.slice(1)],
    "ChunkedArray in a dict": lambda _: {name: ROWS[name] for name in ROWS.column_names},
    "Dataset": lambda folder: pa.dataset.dataset(parquet(folder)),
    "Scanner": lambda folder: pa.dataset.dataset(parquet(folder)).scanner(),
    "pyarrow.csv stream": csv_stream,
    "Polars DataFrame": lambda _: pl.from_arrow(ROWS),
    "Polars LazyFrame": lambda _: pl.DataFrame(ROWS).lazy().filter(pl.col("id") > 0),
    "Polars scan": lambda folder: pl.scan_parquet(parquet(folder)),
    "pandas": lambda _: ROWS.to_pandas(),
    "pandas with nullable types": lambda _: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with a named index": lambda _: ROWS.to_pandas().set_index("id"),
    "pandas after a filter": lambda _: pd.concat([ROWS.to_pandas()] * 2)[3:],
    "DuckDB relation": lambda _: rows_of_duckdb(),
    "dict of lists": lambda _: ROWS.to_pydict(),
    "dict of arrays": lambda _: {"id": np.array([1, 2, 3]), "name": ["x", None, "z"]},
    "list of dicts": lambda _: [{"id": 1, "name": "x"}, {"id": 2}, {"id": 3, "name": "z"}],
    "list of dataclasses": lambda _: [Row(1, "x"), Row(2, None), Row(3, "z")],
    "path": parquet,
    "path as text": lambda folder: str(parquet(folder)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_created_from_and_loaded_with(form: str, store: Store, tmp_path: Path):
    version = store.write("flights", FORMS[form](tmp_path))

    assert version == 1
    assert store.snapshot().table("flights").read().to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_appended_in_a_transaction_from(form: str, store: Store, tmp_path: Path):
    store.write("flights", ROWS)

    with store.transaction() as txn:
        txn.append("flights", FORMS[form](tmp_path))

    assert store.snapshot().table("flights").read(start=3).to_pylist() == ROWS.to_pylist()


def test_a_structured_array_has_a_column_for_each_field(store: Store):
    store.write("points", np.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")]))

    assert store.snapshot().table("points").schema == pa.schema([("x", pa.int32()), ("y", pa.float64())])


def test_the_result_of_a_duckdb_connection_is_loaded(store: Store):
    connection = duckdb.connect()
    connection.execute("SELECT 7 AS n")

    with pytest.warns(UserWarning, match="to_arrow_reader"):  # DuckDB's advice for large results
        store.write("numbers", connection)

    assert store.snapshot().table("numbers").read().to_pylist() == [{"n": 7}]


def test_append_creates_no_table_unless_asked(store: Store):
    with pytest.raises(TableNotFoundError):
        store.append("flights", ROWS)
    assert store.append("flights", ROWS, create=True) == 1
    assert store.append("flights", ROWS) == 2


def test_write_does_not_create_a_table_with_create_false(store: Store):
    with pytest.raises(TableNotFoundError):
        store.write("flights", ROWS, create=False)


def test_mode_error_refuses_an_existing_table(store: Store):
    store.write("flights", ROWS, mode="error")

    with pytest.raises(TableExistsError, match="Cannot write to table 'flights'"):
        store.write("flights", ROWS, mode="error")
    assert store.snapshot().version == 1


def test_mode_ignore_leaves_an_existing_table_and_reads_no_data(store: Store):
    store.write("flights", ROWS, mode="ignore")
    unread = iter([ROWS])

    assert store.write("flights", unread, mode="ignore") == 1
    assert next(unread) is ROWS


def test_mode_overwrite_replaces_all_rows_and_keeps_the_table(store: Store):
    store.write("flights", ROWS)
    with store.transaction() as txn:
        txn.set_nullable("flights", "id", False)
        txn.add_constraint("flights", "flights_key", primary_key=["id"])
    before = store.snapshot().table("flights")

    version = store.write("flights", {"id": [3, 4], "name": ["new", None]}, mode="overwrite")

    after = store.snapshot(version=version).table("flights")
    assert after.read().to_pydict() == {"id": [3, 4], "name": ["new", None]}
    assert (after.num_rows, after.row_numbers().tolist()) == (2, [3, 4])
    assert after.definition.table_id == before.definition.table_id
    assert before.read().to_pydict() == ROWS.to_pydict()
    assert store.history(limit=1)["operation"].to_pylist() == ["overwrite"]


def test_mode_overwrite_creates_a_table_that_is_not_there(store: Store):
    assert store.write("flights", ROWS, mode="overwrite") == 1

    assert store.snapshot().table("flights").read().equals(ROWS)


def test_an_overwrite_of_another_schema_changes_nothing(store: Store):
    store.write("flights", ROWS)

    with pytest.raises(SchemaMismatchError):
        store.write("flights", {"id": [1], "other": [2]}, mode="overwrite")

    assert store.snapshot().table("flights").read().equals(ROWS)


def test_an_unknown_mode_is_refused(store: Store):
    with pytest.raises(InvalidInputError, match="mode 'replace' is not known"):
        store.write("flights", ROWS, mode="replace")  # type: ignore[arg-type]


def test_a_failed_write_creates_no_table(store: Store):
    def batches() -> Any:
        yield pa.record_batch({"id": [1]})
        yield pa.record_batch({"id": ["one"]})

    with pytest.raises(SchemaMismatchError, match="batch 1: expected id int64, found id string"):
        store.write("flights", batches())
    assert store.snapshot().version == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "Cannot read rows from 5"),
        (None, "Cannot read rows from None"),
        (b"x", "Cannot read rows from b'x'"),
        ([], "empty list"),
        ([1], "a list of int"),
        ([{"id": 1}, 5], "row 1: expected a dict"),
        ([Row(1, "x"), {"id": 1}], "row 1: expected a Row"),
        (np.array([1, 2]), "ndarray"),
        (pa.array([1]), "Array"),
        (object, "type"),
    ],
)
def test_what_is_no_rows_is_refused_by_its_type(data: Any, message: str, store: Store):
    with pytest.raises(InvalidInputError, match=message):
        store.write("flights", data)


def test_a_lazy_frame_is_not_collected_as_a_whole(store: Store, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("collected")

    monkeypatch.setattr(pl.LazyFrame, "collect", refuse)

    store.write("flights", pl.DataFrame(ROWS).lazy())

    assert store.snapshot().table("flights").num_rows == 3
