"""Inputs that once failed, each a script of its own: it exits with 0 when the store answers rightly.

A script runs in a process of its own, because the fault that it guards against may end, hang or exhaust one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
LONGEST_S = 240


def marked(path: Path) -> object:
    marks = [pytest.mark.spark] if path.stem.startswith("spark_") else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("script", [marked(path) for path in SCRIPTS])
def test_the_input_is_answered_rightly_or_refused(script: Path, tmp_path: Path) -> None:
    # when
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    # then
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
