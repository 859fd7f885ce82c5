"""After a power cut every acknowledged commit is on the disk, and no torn file has a final name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.images import why_not
from tests.effort import LONG

pytestmark = [pytest.mark.root, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def means() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


def cut_power(*arguments: str) -> dict[str, Any]:
    """In a process of its own: the writer is forked, and this one has threads."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash.images", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.stdout, ended.stderr
    outcome: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return outcome


@pytest.mark.parametrize("options", ["", "noauto_da_alloc,data=writeback"])
def test_no_acknowledged_commit_is_lost_and_every_store_opens(options: str) -> None:
    images = 200 if LONG else 10

    outcome = cut_power("--images", str(images), "--options", options)

    assert outcome["faults"] == []
    assert outcome["images"] == images
    assert outcome["commits"] > 0


def test_the_judge_of_power_cuts_sees_a_writer_that_does_not_sync() -> None:
    outcome = cut_power("--images", "2", "--no-sync")

    assert len(outcome["faults"]) == 2
