"""Writers that are killed at random lose no acknowledged commit and double none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_pages as sp
from tests.crash.alone import outcome_of
from tests.crash.storm import SCHEMA, Ack, Outcome, judge
from tests.effort import LONG
from tests.s3.server import MISSING, server_binary

LIMIT_S = 1_800 if LONG else 240
"""Far more than a storm takes; what is judged afterwards grows with the commits of the writers."""

pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def storm(store: str, kills: int, folder: Path) -> dict[str, Any]:
    return outcome_of("tests.crash.storm", ["--store", store, "--kills", str(kills)], folder, LIMIT_S)


@pytest.mark.slow
def test_a_storm_on_a_local_disk_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kills = 1_000 if LONG else 60

    outcome = storm("local", kills, tmp_path)

    assert outcome["kills"] == kills
    assert outcome["acknowledged"] > 0
    assert outcome["commits"] == outcome["acknowledged"] + outcome["landed_unacknowledged"]


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.skipif(server_binary() is None, reason=MISSING)
def test_a_storm_on_s3_loses_and_doubles_nothing(tmp_path: Path) -> None:
    kills = 1_000 if LONG else 30

    outcome = storm("s3", kills, tmp_path)

    assert outcome["kills"] == kills
    assert outcome["acknowledged"] > 0
    assert outcome["commits"] == outcome["acknowledged"] + outcome["landed_unacknowledged"]


def test_the_judge_of_storms_sees_lost_doubled_and_missing_commits(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    for number in (0, 1, 1):
        with store.transaction() as txn:
            txn.append("t", pa.table({"writer": [0], "life": [0], "number": [number]}))
    outcome = Outcome()

    judge((url, None), [Ack(0, 0, 0, 2), Ack(0, 0, 1, 4), Ack(0, 0, 9, 5), Ack(1, 0, 0, 3)], outcome)

    told = " / ".join(outcome.faults)
    assert "a commit is there twice" in told
    assert "number=9" in told
    assert "writer=1" in told
    assert "not in order" in told
    assert "number=0, version=2" not in told
