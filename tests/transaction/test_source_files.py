"""Files of rows: formats, folders, globs, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.store import Store
from spark_pages.transaction.source_files import open_files

ROWS = pa.table({"id": [1, 2, 3], "name": pa.array(["x", None, "z"])})
CSV = b"id,name\n1,x\n2,\n3,z\n"
TSV = CSV.replace(b",", b"\t")
JSON = b'{"id":1,"name":"x"}\n{"id":2,"name":null}\n{"id":3,"name":"z"}\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", CSV),
        ("rows.CSV", CSV),
        ("rows.csv.gz", gzip.compress(CSV, mtime=0)),
        ("rows.tsv", TSV),
        ("rows.jsonl", JSON),
        ("rows.ndjson.gz", gzip.compress(JSON, mtime=0)),
    ],
)
def test_text_is_read_by_its_ending(name: str, content: bytes, tmp_path: Path):
    (tmp_path / name).write_bytes(content)

    assert open_files(tmp_path / name).read_all().to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("ending", ["parquet", "feather", "arrow", "orc"])
def test_binary_files_are_read_by_their_ending(ending: str, tmp_path: Path):
    path = tmp_path / f"rows.{ending}"
    write = {"parquet": pq.write_table, "orc": pa.orc.write_table}.get(ending, pa.feather.write_feather)
    write(ROWS, path)

    assert open_files(path).read_all().to_pylist() == ROWS.to_pylist()


def test_a_folder_is_read_in_the_order_of_its_names_and_days_are_a_column(tmp_path: Path):
    for day in (2, 1):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        pq.write_table(ROWS.slice(0, 1), folder / "rows.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".rows.parquet.crc").touch()

    found = open_files(tmp_path).read_all()

    assert found.to_pylist() == [{"id": 1, "name": "x", "day": 1}, {"id": 1, "name": "x", "day": 2}]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("*.csv", 1), ("**/*.csv", 3), ("*/*.csv", 1), ("[ab].csv", 1), ("?.csv", 1), ("b/**/c.csv", 2)],
)
def test_a_star_stays_within_a_folder_and_two_do_not(pattern: str, count: int, tmp_path: Path):
    for path in ("a.csv", "b/c.csv", "b/d/c.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"id\n1\n")

    assert open_files(str(tmp_path / pattern)).read_all().num_rows == count


def test_empty_fields_are_null_and_quoted_ones_are_empty_text(tmp_path: Path):
    (tmp_path / "a.csv").write_text('id,code\n1,""\n2,\n3,NA\n4,"two\nlines"\n')

    found = open_files(tmp_path / "a.csv").read_all()

    assert found["code"].to_pylist() == ["", None, "NA", "two\nlines"]


def test_a_csv_column_without_values_is_text(tmp_path: Path):
    (tmp_path / "a.csv").write_text("id,note\n1,\n")

    assert open_files(tmp_path / "a.csv").schema.field("note").type == pa.string()


def test_a_column_that_one_file_lacks_is_null_there(tmp_path: Path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "name": ["x"]}), tmp_path / "b.parquet")

    found = open_files(tmp_path).read_all()

    assert found.to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "x"}]


def test_files_of_different_types_are_refused_by_name(tmp_path: Path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "b.parquet")

    with pytest.raises(SchemaMismatchError, match=r"'b\.parquet' differs.*id"):
        open_files(tmp_path)


def test_a_value_of_another_type_far_down_is_refused_and_nothing_is_committed(store: Store, tmp_path: Path):
    lines = "7\n" * (5 << 20)
    (tmp_path / "a.csv").write_text(f"id\n{lines}seven\n")

    with pytest.raises(SchemaMismatchError, match=r"'a\.csv'.*invalid value 'seven'.*open_csv"):
        store.write("numbers", tmp_path / "a.csv")
    assert store.snapshot().version == 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "Empty CSV file"),
        ("a.csv", b"x,y\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("a.csv", b"x,x\n1,2\n", "multiple columns named x"),
        ("a.parquet", b"PAR1", "Parquet"),
        ("a.json", b'[{"a": 1}]', "JSON parse error"),
        ("a.zip", b"", "'a.zip' names no format"),
        ("a.parquet.gz", b"", "names no format"),
    ],
)
def test_files_that_cannot_be_read_are_refused_with_the_reason(
    name: str, content: bytes, message: str, tmp_path: Path
):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidInputError, match=message):
        open_files(tmp_path / name)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.csv", "no such file or folder"),
        ("*.csv", "no file matches"),
        ("", "expected the path"),
        (b"x.csv", "expected the path"),
        ("gopher://x/y.csv", "gopher"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInputError, match=message):
        open_files(path)


def test_a_folder_of_several_formats_and_an_empty_one_are_refused(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="the folder has no files"):
        open_files(tmp_path)
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "b.json").write_bytes(JSON)
    with pytest.raises(InvalidInputError, match="several formats, csv, json"):
        open_files(tmp_path)


def test_a_field_of_json_that_appears_far_down_is_refused_and_not_left_out(store: Store, tmp_path: Path):
    lines = '{"n":7}\n' * (1 << 20) + '{"n":7}\n' * (1 << 17)
    (tmp_path / "a.jsonl").write_text(lines + '{"n":7,"late":"x"}\n')

    with pytest.raises(SchemaMismatchError, match=r"'a\.jsonl'.*unexpected field"):
        store.write("numbers", tmp_path / "a.jsonl")
    assert store.version == 0


def test_fields_of_json_that_a_row_lacks_are_null_and_folders_are_columns(tmp_path: Path):
    (tmp_path / "day=7").mkdir()
    (tmp_path / "day=7" / "a.jsonl.gz").write_bytes(gzip.compress(b'{"n":1}\n{"m":{"x":2}}\n', mtime=0))

    found = open_files(tmp_path).read_all().to_pylist()

    assert found == [{"n": 1, "m": None, "day": 7}, {"n": None, "m": {"x": 2}, "day": 7}]
