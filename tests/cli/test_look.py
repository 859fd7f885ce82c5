"""How lists look on a terminal: one line for each row, numbers whole and aligned, colours of outcomes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli import output
from spark_pages.cli.app import app
from spark_pages.doctor.checks import Check, Status
from spark_pages.doctor.examination import Examination

NAMES = ["name", "num_rows", "size_bytes", "path"]
ROWS = [[f"table {n}", 10**n, 2**n, f"pages/{n:040}.pages"] for n in range(8)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    made = Console(record=True, force_terminal=True, width=72, file=io.StringIO())
    monkeypatch.setattr(output, "Console", lambda **_: made)
    return made


@pytest.fixture
def url(tmp_path: Path) -> str:
    store = sp.create(str(tmp_path / "store"))
    for number in range(4):
        store.write(f"t{number}", {"n": [1, 2, 3], "s": ["a", "b", "c"]})
        store.tag(f"v{number}")
    return store.url


def test_a_row_is_one_line_and_numbers_are_whole(terminal: Console) -> None:
    output.print_rows("Tables", NAMES, ROWS)

    lines = [line for line in terminal.export_text().splitlines() if "table " in line]
    assert len(lines) == len(ROWS)
    assert [line.split()[2] for line in lines] == [f"{10**n:,}" for n in range(8)]
    assert len({line.index(f"{10**n:,}") + len(f"{10**n:,}") for n, line in enumerate(lines)}) == 1
    assert "128 B" in lines[7]
    assert "…" in lines[0]


def test_columns_that_do_not_fit_are_named_and_none_is_cut(terminal: Console) -> None:
    output.print_rows("Pages", ["first_row", *(f"number_of_{n}" for n in range(9))], [[10**9] * 10] * 5)

    text = terminal.export_text()
    assert "1,000,000,000" in text
    assert "…" not in text.split("not shown")[0]
    assert "number_of_8" in text.split("not shown for want of room")[1]


def test_outcomes_have_colours(terminal: Console) -> None:
    output.print_rows("Doctor", ["check", "status"], [["java", "ok"], ["clock", "failed"]])

    text = terminal.export_text(styles=True)
    assert "\x1b[32mok" in text
    assert "\x1b[1;31mfailed" in text


@pytest.mark.parametrize(
    ("verb", "key", "count"),
    [
        (("tables",), "tables", 4),
        (("history",), "history", 9),
        (("tags",), "tags", 4),
        (("pages", "t0"), "pages", 2),
        (("schema", "t0"), "columns", 2),
        (("changes", "--start", "1"), "changes", 8),
    ],
)
def test_every_list_has_a_limit(url: str, verb: tuple[str, ...], key: str, count: int) -> None:
    arguments = [verb[0], url, *verb[1:]]

    whole = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)[key]
    first = json.loads(CliRunner().invoke(app, [*arguments, "--limit", "1", "--json"]).stdout)[key]
    shown = CliRunner().invoke(app, [*arguments, "--limit", "1"])

    assert (len(whole), len(first)) == (count, 1)
    assert len(shown.stdout.splitlines()) == 2


def test_the_first_rows_and_the_columns_of_a_table_are_shown(url: str) -> None:
    rows = json.loads(CliRunner().invoke(app, ["head", url, "t0", "-n", "2", "--json"]).stdout)
    columns = json.loads(CliRunner().invoke(app, ["schema", url, "t0", "--json"]).stdout)

    assert rows["rows"] == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
    assert columns["columns"][1] == {"name": "s", "type": "string", "nullable": True}


@pytest.mark.parametrize(("remedy", "columns"), [("", 3), ("Set the clock.", 4)])
def test_doctor_has_no_empty_column(remedy: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = (Check("clock", Status.WARNING, "9 s late", remedy), Check("java", Status.OK, "17", ""))
    found = Examination("memory://", checks)
    monkeypatch.setattr("spark_pages.doctor.examination.examine", lambda *_: found)

    lines = CliRunner().invoke(app, ["doctor", "memory://"]).stdout.splitlines()

    assert [len(line.split("\t")) for line in lines] == [columns] * 3


def test_a_shell_completes_verbs() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
