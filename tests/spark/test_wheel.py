"""An environment with nothing but the wheel and what pip installs for it, in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_pages.spark.session import find_java

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none"),
]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that pip has filled, and that is active nowhere."""
    folder = tmp_path_factory.mktemp("wheel-environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[spark,demo]"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode and "No matching distribution" in installed.stderr:
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


def bare_environment() -> dict[str, str]:
    """Return the variables of this process but those that would lead to another package or Spark."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}


def ran(environment: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment as somebody does who has activated it."""
    shown = bare_environment()
    path = f"{environment}:{shown.get('PATH', '')}"
    done = subprocess.run(
        [str(environment / command[0]), *command[1:]],
        cwd=folder,
        env={**shown, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


def words_of_a_job(environment: Path) -> list[str]:
    command = [str(environment / "python"), "-m", "spark_pages.spark.where"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd="/", env=bare_environment()
    )
    return done.stdout.split()


def job(environment: Path, folder: Path, name: str, *arguments: str) -> tuple[dict[str, Any], list[str]]:
    """Submit a job as the documents say; gives its result, and what it wrote to stderr."""
    done = ran(environment, folder, "spark-submit", *words_of_a_job(environment), name, "store", *arguments)
    result: dict[str, Any] = json.loads(done.stdout)
    return result, [line for line in done.stderr.splitlines() if "incubator modules" not in line]


def test_three_jobs_and_the_demo_run_in_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    # given
    demo = ran(environment, tmp_path, "spark-pages", "demo", "--json", "--folder", "demo")
    shutil.move(tmp_path / "demo" / "store", tmp_path / "store")
    # when
    verified, log = job(environment, tmp_path, "verify", "--pages", "sample")
    compacted, _ = job(environment, tmp_path, "compact_pages", "--dry-run")
    exported, _ = job(environment, tmp_path, "export", "--table", "planes", "--output", "out")
    # then
    shown = json.loads(demo.stdout)
    assert shown["ok"]
    assert shown["spark"]["reconstruction"]["equal_to_local"]
    assert (verified["ok"], verified["num_faults"]) == (True, 0)
    assert compacted["ok"]
    assert exported["num_rows"] == 3_322
    began, *_, ended = log
    assert "verify: started" in began
    assert "verify: done in" in ended
    assert {each.name for each in tmp_path.iterdir()} == {"demo", "store", "out"}
