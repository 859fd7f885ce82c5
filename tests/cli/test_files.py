"""`spark-pages ingest` and `export` of files, where neither Spark nor Java is installed."""

from __future__ import annotations

import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages import progress
from spark_pages.cli.app import app
from spark_pages.query.output_files import replacing
from spark_pages.transaction import source_files
from spark_pages.transaction.source_files import open_files

ROWS = pa.table({"id": [1, 2, 3], "name": ["x", None, ""], "part": [0.5, 1.5, None]})
WRITERS = {
    "csv": pyarrow.csv.write_csv,
    "parquet": pq.write_table,
    "arrow": pyarrow.feather.write_feather,
    "orc": pyarrow.orc.write_table,
    "jsonl": lambda rows, path: Path(path).write_text(
        "".join(f"{json.dumps(row)}\n" for row in rows.to_pylist())
    ),
}


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "py4j", None)
    monkeypatch.setattr("spark_pages.cli.jobs._has_spark", lambda: False)
    monkeypatch.setattr("spark_pages.spark.versions._pyspark", lambda: None)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "store")
    sp.create(url)
    return url


def told(*arguments: object, code: int = 0) -> dict[str, Any]:
    ended = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert ended.exit_code == code, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("ending", WRITERS)
def test_files_come_in_without_spark(url: str, ending: str, tmp_path: Path) -> None:
    WRITERS[ending](ROWS, str(tmp_path / f"rows.{ending}"))
    job = ("ingest", url, "--table", "t", "--path", tmp_path / f"rows.{ending}")

    refused = told(*job, code=4)
    planned = told(*job, "--create", "--dry-run")
    first = told(*job, "--create", "--app-id", "nightly", "--app-version", 1)
    again = told(*job, "--create", "--app-id", "nightly", "--app-version", 1)
    replaced = told(*job, "--overwrite")

    assert refused["error"]["type"] == "TableNotFoundError"
    assert [each["num_rows"] for each in (planned, first, again, replaced)] == [3, 3, 0, 3]
    assert (first["created"], again["already_landed"]) == (True, True)
    store = sp.open(url)
    assert store["t"].read().to_pylist() == ROWS.to_pylist()
    assert dict(store.history(1)["parameters"].to_pylist()[0])["engine"] == "python"


def test_a_format_can_be_named_and_text_may_be_compressed(url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(b"id,name\n1,x\n")
    (tmp_path / "rows.tsv.gz").write_bytes(gzip.compress(b"id\tname\n2,5\ty\n", mtime=0))

    told("ingest", url, "--table", "t", "--path", tmp_path / "rows.txt", "--format", "csv", "--create")
    told("ingest", url, "--table", "u", "--path", tmp_path / "rows.tsv.gz", "--create")

    assert sp.open(url)["t"].read().to_pylist() == [{"id": 1, "name": "x"}]
    assert sp.open(url)["u"].read().to_pylist() == [{"id": "2,5", "name": "y"}]


def test_parquet_that_spark_refuses_comes_in_with_a_remark(url: str, tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([1], pa.timestamp("ns")), "of_day": pa.array([2], pa.time64("us"))})
    pq.write_table(rows, tmp_path / "rows.parquet")

    ended = CliRunner().invoke(
        app, ["ingest", url, "--table", "t", "--path", str(tmp_path / "rows.parquet"), "--create"]
    )

    assert ended.exit_code == 0
    assert "Spark is not installed" in ended.stderr
    assert sp.open(url)["t"].read().equals(rows)


@pytest.mark.parametrize("given", [("--option", "header=true"), ("--schema", "id long")])
def test_what_only_spark_understands_is_refused_by_its_reason(
    url: str, given: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_bytes(b"id\n1\n")

    refused = told("ingest", url, "--table", "t", "--path", tmp_path / "rows.csv", "--create", *given, code=1)

    assert refused["error"]["type"] == "MissingDependencyError"
    assert "without Spark: only Spark knows jdbc" in refused["error"]["message"]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("folder", [True, False])
def test_what_goes_out_comes_in_again(url: str, ending: str, folder: bool, tmp_path: Path) -> None:
    sp.open(url).append("t", ROWS, create=True)
    output = tmp_path / ("out" if folder else f"out.{ending}")
    form = {"arrow": "ipc", "jsonl": "json"}.get(ending, ending)
    job = ("export", url, "--table", "t", "--output", output, *(("--format", form) if folder else ()))

    first = told(*job)
    refused = told(*job, code=2)
    told(*job, "--overwrite")

    assert open_files(output).read_all().to_pylist() == ROWS.to_pylist()
    assert (first["num_rows"], first["format"]) == (3, form)
    assert first["bytes_written"] > 0
    assert "is there already" in refused["error"]["message"]
    assert {each.name for each in tmp_path.iterdir()} == {"store", output.name}


def test_types_that_a_format_does_not_have_are_refused_and_leave_nothing(url: str, tmp_path: Path) -> None:
    sp.open(url).append("t", pa.table({"all": [[1, 2]]}), create=True)

    refused = told("export", url, "--table", "t", "--output", tmp_path / "out.csv", code=2)

    assert "Cannot write rows as csv" in refused["error"]["message"]
    assert {each.name for each in tmp_path.iterdir()} == {"store"}


def test_json_lines_hold_what_json_has_no_types_for(url: str, tmp_path: Path) -> None:
    kinds = pa.table(
        {
            "n": pa.array([float("nan")]),
            "d": pa.array([Decimal("1.50")]),
            "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "b": pa.array([b"\x01"]),
            "t": pa.array([0], pa.timestamp("us", "UTC")),
            "s": pa.array(["x"]).dictionary_encode(),
        }
    )
    sp.open(url).append("t", kinds, create=True)

    told("export", url, "--table", "t", "--output", tmp_path / "out.jsonl")

    assert json.loads((tmp_path / "out.jsonl").read_text()) == {
        "n": None,
        "d": "1.50",
        "m": {"a": 1},
        "b": "01",
        "t": "1970-01-01T00:00:00+00:00",
        "s": "x",
    }


def test_delta_tables_come_in_and_go_out_without_their_deleted_rows(url: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "lake", pa.table({"n": [1, 2, 3]}))
    DeltaTable(tmp_path / "lake").delete("n = 2")

    told("ingest", url, "--table", "t", "--format", "delta", "--path", tmp_path / "lake", "--create")
    sp.open(url).append("t", tmp_path / "lake")  # by its folder alone
    for _ in range(2):
        told("export", url, "--table", "t", "--format", "delta", "--output", tmp_path / "out", "--overwrite")

    assert sp.open(url)["t"].read()["n"].to_pylist() == [1, 3, 1, 3]
    assert sorted(DeltaTable(tmp_path / "out").to_pyarrow_table()["n"].to_pylist()) == [1, 1, 3, 3]
    assert DeltaTable(tmp_path / "out").version() == 1


def test_large_files_are_said_to_be_faster_with_spark(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.cli.jobs.SMALL_BYTES", 4)
    (tmp_path / "rows.csv").write_bytes(b"id\n1\n")

    ended = CliRunner().invoke(
        app, ["ingest", url, "--table", "t", "--path", str(tmp_path / "rows.csv"), "--create"]
    )

    assert ended.exit_code == 0
    assert "submit the job `ingest` to Spark" in ended.stderr.replace("\n", " ")


@pytest.mark.parametrize("ending", [*WRITERS, "csv.gz"])
def test_progress_of_a_file_ends_at_all_of_it(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / f"rows.{ending}")
    begun: list[progress.Phase] = []
    monkeypatch.setattr(
        source_files,
        "phase",
        lambda *given, **more: begun.append(progress.phase(*given, **more)) or begun[-1],
    )
    if ending == "csv.gz":
        Path(path).write_bytes(gzip.compress(b"id\n1\n"))
    else:
        WRITERS[ending](ROWS, path)

    list(open_files(path))

    assert [each.fraction for each in begun] == [1.0]


def write_after_another(path: Path) -> None:
    with replacing(str(path), overwrite=False) as unfinished:
        Path(unfinished).write_text("mine")
        path.write_text("theirs")


def test_a_file_that_another_process_has_made_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(sp.InvalidInputError, match="is there already"):
        write_after_another(tmp_path / "a.csv")

    assert (tmp_path / "a.csv").read_text() == "theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]
