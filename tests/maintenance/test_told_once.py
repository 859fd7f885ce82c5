"""What many faults have in common is told once, and what was not looked at is not called sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.maintenance.verify.faults import FaultKind
from tests.transaction.stores import QUIET

COLUMNS = ("a", "b")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A store with one page file, of which every page is damaged."""
    store = sp.create(str(tmp_path / "store"), properties=QUIET)
    numbers = np.random.default_rng(0).integers(0, 1 << 62, 80_000)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([(name, pa.int64()) for name in COLUMNS]))
        txn.append("t", pa.table(dict.fromkeys(COLUMNS, numbers)))
    for page in store.snapshot().table("t").pages().to_pylist():
        with open(tmp_path / "store" / page["path"], "r+b") as file:
            file.seek(page["offset"] + 100)
            file.write(b"damage")
    return store.url


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments).output


def test_damaged_pages_of_one_file_are_one_fault(url: str) -> None:
    store = sp.open(url)
    pages = store.snapshot().table("t").pages().num_rows

    (fault,) = store.verify(pages="all").damage

    assert pages >= 20
    assert (fault.kind, fault.key[:6]) == (FaultKind.DAMAGED, "pages/")
    assert f"{pages // 2} pages of t.a, added by version 1, rows [0, 80000) at version 1; " in fault.what
    assert f"{pages // 2} pages of t.b, added by version 1, rows [0, 80000) at version 1." in fault.what
    assert fault.what.count("checksum") == 1


def test_what_to_do_is_said_once(tmp_path: Path) -> None:
    store = sp.create(str(tmp_path / "store"), properties=QUIET)
    for number in range(4):
        with store.transaction() as txn:
            txn.create_table(f"t{number}", pa.schema([("n", pa.int64())]))
            txn.append(f"t{number}", {"n": [number]})
        store.checkpoint()
    for folder in ("segments", "stats", "parts"):
        for path in (tmp_path / "store" / "_log" / folder).glob("*"):
            path.unlink()

    found = store.verify()

    assert len(found.damage) >= 4
    assert repr(found).count("spark-pages repair") == 1
    assert run("verify", store.url).count("spark-pages repair") == 1


@pytest.mark.parametrize("pages", [(), ("--pages", "all")], ids=["by default", "all"])
def test_repair_finds_the_damaged_pages_that_verify_finds(url: str, pages: tuple[str, ...]) -> None:
    shown = run("repair", url, *pages)

    assert "nothing to mend" not in shown
    assert "pages/" in shown
    assert {fault.key for fault in sp.open(url).repair_plan().beyond} == {
        fault.key for fault in sp.open(url).verify(pages="all").damage
    }


def test_repair_says_that_it_has_read_no_page_where_it_was_told_to_read_none(url: str) -> None:
    assert "nothing to mend; no page was read, --pages all reads every page" in run(
        "repair", url, "--pages", "none"
    )


def test_verify_claims_to_read_no_more_than_it_does(url: str) -> None:
    assert "sample" in run("verify", "--help")
    assert "Read everything" not in run("verify", "--help")
    assert "--dry-run" not in run("verify", "--help")
    assert "--html" not in run("report", "--help")
