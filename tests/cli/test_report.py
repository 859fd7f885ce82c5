import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import spark_pages
from spark_pages.cli.app import app
from spark_pages.pictures import report
from spark_pages.store import Store
from tests.display.reading import HOSTILE, elements


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def address(tmp_path: Path) -> str:
    made = str(tmp_path / "store")
    store = spark_pages.create(made)
    noise = np.random.default_rng(1).integers(0, 1 << 60, 20_000)  # too much for the log itself
    rows = pa.table({"id": noise, "<script>x</script>": ["ä", "b"] * 10_000})
    with store.transaction("fill <b>") as txn:
        txn.create_table("things", rows.schema)
        txn.create_table("empty", rows.schema)
    for _ in range(12):
        with store.transaction("append") as txn:
            txn.append("things", rows.slice(0, 3_000))
    store.compact_pages("things")
    with store.transaction("correct") as txn:
        txn.update_rows("things", [5], {"id": [-5]})
    store.close()  # or what it does beside commits would write while a test looks
    return made


def test_the_report_is_one_page_that_needs_nothing_else(address: str, tmp_path: Path) -> None:
    target = tmp_path / "out.html"

    result = run("report", address, target)

    assert result.exit_code == 0, result.output
    page = target.read_text(encoding="utf-8")
    seen = elements(page)
    assert not {"script", "link", "iframe", "object", "img"} & {name for name, _ in seen.found}
    assert not [
        a for _, attributes in seen.found for a in attributes if a in ("src", "href") or a[:2] == "on"
    ]
    assert "@import" not in page
    assert "url(" not in page
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_the_report_shows_log_tables_chains_compaction_requests_and_caches(
    address: str, tmp_path: Path
) -> None:
    run("report", address, tmp_path / "out.html")

    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == [
        "Is the store in order?",
        "The log",
        "Tables",
        "Table empty",
        "Table things",
        "The last page compaction",
        "One read",
    ]
    words = set(elements(page).words)
    assert {"fill <b>", "<script>x</script>", "things.id", "1 of the pages new"} - words == {
        "1 of the pages new"
    }
    assert any(word.endswith("1 of the pages new") for word in words)
    assert "where pages come from" in words


def test_the_report_of_an_empty_store_is_a_page_too(tmp_path: Path) -> None:
    spark_pages.create(str(tmp_path / "empty"))

    result = run("report", tmp_path / "empty", "-")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("<!doctype html>")


def test_what_cannot_be_read_is_told_on_the_page(address: str, tmp_path: Path) -> None:
    for file in (tmp_path / "store" / "pages").iterdir():
        file.write_bytes(b"damaged")

    result = run("report", address, tmp_path / "out.html")

    assert result.exit_code == 0, result.output
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "This could not be read: " in page
    assert "<h2>Table things</h2>" in page


def test_a_report_can_be_asked_for_as_json(address: str, tmp_path: Path) -> None:
    target = tmp_path / "out.html"

    result = run("report", address, target, "--json")

    assert json.loads(result.stdout) == {"output": str(target), "size_bytes": target.stat().st_size}
    assert run("report", address, "-", "--json").exit_code == 2


def test_a_report_without_a_name_lies_where_one_stands(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    named = run("report", address)

    assert named.output.startswith("spark-pages-report.html: ")
    assert Path("spark-pages-report.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_report_is_not_written_over_a_folder(address: str, tmp_path: Path) -> None:
    result = run("report", address, tmp_path)

    assert result.exit_code == 2
    assert "it is a folder" in result.stderr
    assert "there is no folder" in run("report", address, tmp_path / "no" / "out.html").stderr


def test_the_report_writes_nothing_to_the_store(address: str, tmp_path: Path) -> None:
    before = sorted(str(path) for path in (tmp_path / "store").rglob("*"))

    run("report", address, tmp_path / "out.html")

    assert sorted(str(path) for path in (tmp_path / "store").rglob("*")) == before


def test_chains_with_too_many_pages_are_shown_without_loading_them(
    store: Store, small_trees: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"a": pa.array(range(100), pa.int64())})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "4096"})
    for _ in range(12):
        with store.transaction() as txn:
            txn.append("t", rows)
    store.checkpoint()
    fresh = Store(store.object_store)

    whole, part = report.report_page(fresh), None
    monkeypatch.setattr(report, "MOST_PAGES", 1)
    part = report.report_page(Store(store.object_store))

    assert "not loaded" not in elements(whole).words
    assert "not loaded" in elements(part).words


def test_a_store_with_hostile_names_gives_a_page_that_runs_nothing(store: Store) -> None:
    name = HOSTILE.replace("\ud800", "").replace("\x00", "")
    with store.transaction(name) as txn:
        txn.create_table("t", pa.schema([(name, pa.int64())]))
        txn.append("t", pa.table({name: [1, 2]}))

    page = report.report_page(store)

    seen = elements(page)
    assert "script" not in {tag for tag, _ in seen.found}
    assert not [a for _, attributes in seen.found for a in attributes if a.startswith("on")]
