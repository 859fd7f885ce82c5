"""Medleys: processes do all that a store can, at once and at random; some are killed; then it is judged.

    python -m tests.crash.medley --seed 7 --seconds 60
    python -m tests.crash.medley --seed 7 --seconds 60 --store s3

Each process notes what it does. One follows the history, and holds back retention with a tag until it has
seen a version: so the order of all transactions is known afterwards, also of those that a vacuum has cleaned.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import spark_pages as sp
from spark_pages.errors import CommitConflictError
from spark_pages.store import Store
from tests.crash.medley_judge import Outcome, judge
from tests.crash.medley_writer import Notes, work
from tests.crash.storm import Place, fork, place_for, wait_for, warm_up

_FOLLOW_S = 0.2
_KILL_S = 3.0
_TOLD = ["version", "operation", "read_version", "app_id", "app_version", "parameters"]
_COUNTED = ["rows_added", "rows_updated", "rows_removed"]


def run_medley(place: Place, folder: Path, seed: int, seconds: float, writers: int = 3) -> Outcome:
    """Let processes act for so long, kill one now and then, and judge what they have left."""
    outcome = Outcome()
    chance = random.Random(seed)
    began = time.monotonic()
    notes = [folder / f"notes-{writer}" for writer in range(writers)]
    chronicle, enough, stop = folder / "chronicle", folder / "enough", folder / "stop"
    warm_up(folder)
    wait_for(fork(lambda: make(place, chance)), outcome.faults, killed=False)
    follower = fork(lambda: follow(place, Notes(chronicle), stop))
    lives = [0] * writers

    def start(writer: int) -> int:
        return fork(lambda: work(place, f"w{writer}", lives[writer], notes[writer], seed, enough))

    children = [start(writer) for writer in range(writers)]
    end = time.monotonic() + seconds
    while time.monotonic() < end - 1:
        pause = chance.random() * min(2 * _KILL_S, seconds / 2)
        time.sleep(min(pause, max(0.0, end - 1 - time.monotonic())))
        writer = chance.randrange(writers)
        if os.waitpid(children[writer], os.WNOHANG) != (0, 0):
            outcome.faults.append(f"process {writer} ended early; see its traceback")
            children[writer] = start(writer)
            break
        os.kill(children[writer], signal.SIGKILL)
        wait_for(children[writer], outcome.faults, killed=True)
        outcome.kills += 1
        lives[writer] += 1
        children[writer] = start(writer)
    time.sleep(max(0.0, end - time.monotonic()))
    enough.touch()
    for child in children:
        wait_for(child, outcome.faults, killed=False)
    stop.touch()
    wait_for(follower, outcome.faults, killed=False)
    told = [note for file in notes for note in Notes.read(file)]
    if not outcome.faults:
        judge(place, told, Notes.read(chronicle), outcome, seed)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def follow(place: Place, notes: Notes, stop: Path) -> None:
    """Note each transaction in the order of the log, until told to stop and nothing more is there."""
    store = sp.open(place[0], storage_options=place[1])
    seen = -1
    while True:
        last = stop.exists()
        seen = note_history(store, notes, seen)
        if last:
            break
        try:
            store.tag("chronicle", seen, replace=True)
        except CommitConflictError:
            continue  # once more
        time.sleep(_FOLLOW_S)
    store.close()


def note_history(store: Store, notes: Notes, seen: int) -> int:
    """Note what was done after version `seen`; gives the newest version noted."""
    for _ in range(3):
        rows = history_after(store, seen)
        if all(row["rows_added"] is not None for row in rows):
            break  # rows are not counted where a vacuum takes the oldest version meanwhile
    for row in rows:
        notes.write(**{**row, "parameters": dict(row["parameters"])})
        seen = row["version"]
    return seen


def history_after(store: Store, seen: int) -> list[dict[str, Any]]:
    """List transactions after version `seen`, oldest first, also within a version of several."""
    history = store.history(limit=store.snapshot().version - seen + 1_000)
    history = history.filter(pc.field("transaction").is_valid() & (pc.field("version") > seen))
    rows: list[dict[str, Any]] = history.select([*_TOLD, *_COUNTED]).to_pylist()
    return rows[::-1]


def make(place: Place, chance: random.Random) -> None:
    """A store that looks after itself often, or never."""
    properties: dict[str, Any] = {
        "checkpoint_commits": chance.choice([0, 3, 16]),
        "log_compaction_commits": chance.choice([0, 2, 16]),
        "tail_page_bytes": chance.choice([0, 300, 8192]),
    }
    store = sp.create(
        place[0],
        storage_options=place[1],
        properties={name: str(value) for name, value in properties.items()},
    )
    store.tag("chronicle", 0)
    store.close()


def main() -> int:
    """Run one medley and print its outcome as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to leave it; default: a temporary one"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with place_for(asked.store, folder) as place:
            outcome = run_medley(place, folder, asked.seed, asked.seconds, asked.writers)
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}))
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
