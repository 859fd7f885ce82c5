"""A process that dies at any of its storage requests leaves all of its work or nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.every_request import WORK
from tests.once import made_once

LIMIT_S = 540
pytestmark = pytest.mark.timeout(LIMIT_S + 60)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    folder = made_once(tmp_path_factory, "swept", sweep)
    outcome: dict[str, list[int]] = json.loads((folder / "outcome.json").read_text())
    return outcome


def sweep(folder: Path) -> None:
    """In a process of its own: children are forked, and this one has threads."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash.every_request"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (folder / "outcome.json").write_text(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("what", WORK)
def test_after_a_death_at_any_request_the_store_is_sound_and_the_work_can_be_done(
    swept: dict[str, list[int]], what: str
) -> None:
    deaths, happened = swept[what]

    assert deaths >= 2, "at least one request, and a death before and after it"
    if WORK[what].commits:
        assert 0 < happened <= deaths - (not WORK[what].again), "the deaths are on both sides of the commit"
