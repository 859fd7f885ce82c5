"""kill -9 storms: writers append in loops, are killed at random and started again; then the log is judged.

    python -m tests.crash.storm --kills 10000 --store local
    python -m tests.crash.storm --kills 10000 --store s3

Half of the writers append plainly; the other half number their commits by ``app_id`` and ``app_version`` and,
started again, repeat what they are not sure of. Each notes every acknowledged commit in a synced file of its
own. Writers are forked from a process that has used a local store and no remote one: they start in a moment.
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
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import spark_pages as sp
from spark_pages.errors import CommitConflictError, CommitUnknownError
from spark_pages.store import Store
from tests.invariants import check_store
from tests.s3.server import S3Server, new_url

SCHEMA = pa.schema([("writer", pa.int64()), ("life", pa.int64()), ("number", pa.int64())])
_COMMITS_OF_A_LIFE = 100
"""So what has to be judged does not grow while the machine holds the one who kills."""

_FIRST_APPEND = 2
"""Version of the first append: the store is made by 0, its table by 1."""

Place = tuple[str, dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Ack:
    """A commit that a writer was told has happened."""

    writer: int
    life: int
    number: int
    version: int


@dataclass(slots=True)
class Outcome:
    """What a storm has done, and what was wrong afterwards."""

    kills: int = 0
    commits: int = 0
    acknowledged: int = 0
    landed_unacknowledged: int = 0
    leftovers: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def numbers_its_commits(writer: int) -> bool:
    """Whether this writer commits under its own `app_id`."""
    return writer % 2 == 1


def write(place: Place, writer: int, life: int, notes: Path) -> None:
    """Append one row after the other until killed; after many of them, wait for that."""
    url, options = place
    store = sp.open(url, storage_options=options)
    number = 0
    if numbers_its_commits(writer):
        number = 1 + max((ack.number for ack in read_acks(notes, writer)), default=-1)
        life = 0
    with notes.open("ab", buffering=0) as file:
        for _ in range(_COMMITS_OF_A_LIFE):
            app = (f"writer {writer}", number) if numbers_its_commits(writer) else (None, None)
            version = append(store, {"writer": [writer], "life": [life], "number": [number]}, app)
            if version is None:
                continue
            file.write(f"{life} {number} {version}\n".encode())
            os.fsync(file.fileno())
            number += 1
            if random.random() < 0.05:
                store.checkpoint()
    signal.pause()


def append(store: Store, row: dict[str, list[int]], app: tuple[str | None, int | None]) -> int | None:
    """The version that brought the row; None where nothing is committed, as after a minute of standstill."""
    try:
        with store.transaction(app_id=app[0], app_version=app[1]) as txn:
            txn.append("t", pa.table(row))
    except CommitConflictError:
        return None
    except CommitUnknownError as error:
        try:
            return store.resume(error)
        except CommitConflictError:
            return None
    return txn.version


def read_acks(notes: Path, writer: int) -> list[Ack]:
    """What a writer has noted; a line that a kill cut short is none."""
    lines = notes.read_text().splitlines(keepends=True) if notes.exists() else []
    return [Ack(writer, *map(int, line.split())) for line in lines if line.endswith("\n")]


def run_storm(
    place: Place, folder: Path, kills: int, writers: int = 4, seed: int = 0, limit_s: float = float("inf")
) -> Outcome:
    """Kill writers at random moments and start them again; then judge what they have left."""
    outcome = Outcome()
    chance = random.Random(seed)
    began = time.monotonic()
    notes = [folder / f"acks-{writer}" for writer in range(writers)]
    lives = [0] * writers
    warm_up(folder)
    wait_for(fork(lambda: _make(place)), outcome.faults, killed=False)
    children = [fork(_writer(place, writer, 0, notes[writer])) for writer in range(writers)]
    while outcome.kills < kills and not outcome.faults and time.monotonic() < began + limit_s:
        _wait_for_progress(notes)
        time.sleep(chance.random() * 0.05)
        writer = chance.randrange(writers)
        os.kill(children[writer], signal.SIGKILL)
        wait_for(children[writer], outcome.faults, killed=True)
        outcome.kills += 1
        lives[writer] += 1
        children[writer] = fork(_writer(place, writer, lives[writer], notes[writer]))
    for child in children:
        os.kill(child, signal.SIGKILL)
        wait_for(child, outcome.faults, killed=True)
    outcome.seconds = round(time.monotonic() - began, 1)
    judge(place, [ack for writer, file in enumerate(notes) for ack in read_acks(file, writer)], outcome)
    return outcome


def judge(place: Place, acks: list[Ack], outcome: Outcome) -> None:
    """A fresh open needs no repair, the log has no gap, and every commit is there exactly once."""
    store = sp.open(place[0], storage_options=place[1])
    check_store(store)
    head = store.snapshot().version
    read = store.snapshot().table("t").read().to_pydict()
    found = list(zip(read["writer"], read["life"], read["number"], strict=True))
    outcome.commits, outcome.acknowledged = len(found), len(acks)

    def expect(holds: bool, what: str) -> None:
        if not holds:
            outcome.faults.append(what)

    slots = [f"_log/{version:020}.avro" for version in range(head + 1)]
    listed = [info.key for info in store.object_store.list("_log/000") if len(info.key) == len(slots[0])]
    expect(listed == slots, f"slots {set(listed) ^ set(slots)} are missing or too many")
    expect(head + 1 - _FIRST_APPEND == len(found), f"{len(found)} rows at version {head}")
    expect(len(set(found)) == len(found), "a commit is there twice")
    for ack in acks:
        place_of = ack.version - _FIRST_APPEND
        there = place_of < len(found) and found[place_of] == (ack.writer, ack.life, ack.number)
        expect(there, f"{ack} was acknowledged and is not there")
    acked = {(ack.writer, ack.life, ack.number) for ack in acks}
    outcome.landed_unacknowledged = len(set(found) - acked)
    by_life: dict[tuple[int, int], list[int]] = {}
    for writer, life, number in found:
        by_life.setdefault((writer, life), []).append(number)
    for whose, numbers in by_life.items():
        expect(numbers == list(range(len(numbers))), f"the commits of {whose} are not in order")
    if not place[0].startswith("s3://"):
        outcome.leftovers = len(list(Path(place[0]).glob("_tmp/*")))


@contextmanager
def place_for(kind: str, folder: Path) -> Iterator[Place]:
    """Where a store can be made: ``local`` in the folder, ``s3`` on a server of its own."""
    if kind == "local":
        yield str(folder / "store"), None
    else:
        with S3Server(folder) as server:
            yield new_url(), server.options()


def _make(place: Place) -> None:
    store = sp.create(place[0], storage_options=place[1])
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)


def warm_up(folder: Path) -> None:
    """Everything is imported that a writer needs."""
    warm = (str(folder / "warm"), None)
    _make(warm)
    store = sp.open(warm[0])
    store.checkpoint()
    check_store(store)
    store.close()


def _wait_for_progress(notes: list[Path], limit_s: float = 1.0) -> None:
    """Somebody has committed since the call, or the time is up: a busy machine kills no newborns only."""
    end = time.monotonic() + limit_s
    before = _noted(notes)
    while _noted(notes) == before and time.monotonic() < end:
        time.sleep(0.005)


def _noted(notes: list[Path]) -> int:
    return sum(file.stat().st_size for file in notes if file.exists())


def _writer(place: Place, writer: int, life: int, notes: Path) -> Callable[[], None]:
    return lambda: write(place, writer, life, notes)


def fork(work: Callable[[], None]) -> int:
    """The id of a child that does the work; it ends with 0, or with 1 and a traceback."""
    child = os.fork()
    if child:
        return child
    try:
        random.seed()
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001  the parent judges
        traceback.print_exc()
    finally:
        os._exit(1)


def wait_for(child: int, faults: list[str], killed: bool) -> None:
    """The child has ended; it is a fault if it did so in another way than expected."""
    _, status = os.waitpid(child, 0)
    expected = -signal.SIGKILL if killed else 0
    code = os.waitstatus_to_exitcode(status)
    if code != expected:
        faults.append(f"a process ended with {code} instead of {expected}; see its traceback")


def main() -> int:
    """Run one storm and print its outcome as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after this long at the latest"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where to put it; default: a temporary one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        with place_for(asked.store, folder) as place:
            outcome = run_storm(place, folder, asked.kills, asked.writers, asked.seed, asked.seconds)
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}))
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
