"""The notebooks run from top to bottom, and every picture in them is one that a code host shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.display.reading import assert_plain_svg, pictures_in

FOLDER = Path(__file__).parents[2] / "notebooks"
LOCAL = ("tour", "time_travel", "etl")
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


def run(name: str, folder: Path) -> NotebookNode:
    """The notebook with its outputs; a cell that fails raises."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    where = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where).execute()


def outputs(notebook: NotebookNode) -> Iterator[dict[str, str]]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type in ("execute_result", "display_data"):
                yield output.data


def pictures(notebook: NotebookNode) -> list[str]:
    return [data["image/svg+xml"] for data in outputs(notebook) if "image/svg+xml" in data]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_a_notebook_runs_and_its_pictures_are_plain(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)

    svgs = pictures(done)
    assert len(svgs) >= {"tour": 4, "time_travel": 2, "etl": 1}[name]
    for data in outputs(done):
        for svg in [
            *pictures_in(data.get("text/html", "")),
            *([data["image/svg+xml"]] if "image/svg+xml" in data else []),
        ]:
            assert_plain_svg(svg)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1_800)  # 40 s where nobody else is at work
def test_the_notebook_on_operating_a_store_runs_with_spark(tmp_path: Path) -> None:
    done = run("operating", tmp_path)

    assert len(pictures(done)) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_text_without_outputs_and_names_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    notebook = jupytext.read(path)
    assert text.startswith("# ---\n# jupyter:")
    assert {cell.cell_type for cell in notebook.cells} == {"markdown", "code"}
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", text)
    assert not re.search(r"https?://", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_and_defines_no_function(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == []


def test_every_notebook_is_run_by_a_test() -> None:
    assert {path.stem for path in NOTEBOOKS} == {*LOCAL, "operating"}
