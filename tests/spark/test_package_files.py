"""Jobs and profiles come with the package; `jobs/` and `conf/` of the project hold the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_pages.job_result import USAGE
from spark_pages.spark import where
from spark_pages.spark.job import JOBS
from spark_pages.spark.jobs.__main__ import main
from spark_pages.spark.package_files import CONF, ENTRY, LOGGING
from spark_pages.spark.where import job_words
from tests import PROJECT

PROFILES = ("spark-defaults.conf", "spark-kubernetes.conf", "spark-s3.conf", "spark-yarn.conf")


def test_every_job_has_a_module_and_a_script_of_the_project() -> None:
    modules = {path.stem for path in ENTRY.parent.glob("[a-z]*.py")}
    scripts = {path.stem for path in (PROJECT / "jobs").iterdir()}

    assert modules == scripts == set(JOBS)


@pytest.mark.parametrize("job", JOBS)
def test_a_script_of_the_project_is_a_thin_one(job: str) -> None:
    script = (PROJECT / "jobs" / f"{job}.py").read_text()

    assert f"from spark_pages.spark.jobs.{job} import main" in script
    assert script.rpartition('"""')[2].count("\n") <= 9


def test_the_profiles_of_the_project_are_those_of_the_package() -> None:
    shipped = {path.name: path.read_text() for path in CONF.iterdir()}
    here = {path.name: path.read_text() for path in (PROJECT / "conf").iterdir()}

    assert here == shipped
    assert shipped.keys() == {"log4j2.properties", *PROFILES}


QUIET = f"spark.driver.defaultJavaOptions=-Dlog4j2.configurationFile={LOGGING.as_uri()}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], ["--conf", QUIET, str(ENTRY)]), (["entry"], [str(ENTRY)]), (["conf"], [str(CONF)])],
)
def test_where_prints_words_of_a_command_line_and_nothing_else(
    arguments: list[str], expected: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-W", "error", "-m", "spark_pages.spark.where", *arguments]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=bare)

    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


@pytest.mark.parametrize("name", ["log4j2.properties", "log4j2.xml", "log4j2-test.yaml"])
def test_a_logging_configuration_of_the_caller_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / name).touch()

    assert job_words({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == [str(ENTRY)]
    assert job_words({"SPARK_HOME": str(tmp_path)}) == [str(ENTRY)]
    assert job_words({"SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": "/nowhere"}) != [str(ENTRY)]


def test_a_path_with_a_blank_is_printed_alone_so_that_it_can_be_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, "ENTRY", Path("/opt/my programs/__main__.py"))

    assert job_words({}) == ["/opt/my programs/__main__.py"]


@pytest.mark.parametrize("job", JOBS)
def test_the_entry_passes_arguments_on_to_each_job(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([job, "--help"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {job} ")


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["verify"]])
def test_a_wrong_call_of_the_entry_is_told_as_json(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == USAGE
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "UsageError"


def test_the_wheel_holds_the_package_with_its_profiles_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}

    modules = {str(path.relative_to(PROJECT)) for path in (PROJECT / "spark_pages").rglob("*.py")}
    profiles = {f"spark_pages/spark/conf/{name}" for name in ("log4j2.properties", *PROFILES)}
    assert names == {*modules, *profiles, "spark_pages/py.typed", "pyspark_spark_pages.py"}


def test_the_command_line_is_part_of_the_core(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        needs = [
            line.removeprefix("Requires-Dist: ")
            for line in archive.read(name).decode().splitlines()
            if line.startswith("Requires-Dist: ")
        ]

    core = {need for need in needs if "extra ==" not in need}
    assert {need.partition(">")[0] for need in core} >= {"typer", "rich"}
