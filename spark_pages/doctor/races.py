"""Races of many creators for one key, to test that storage lets exactly one of them win.

The promise is that of all who create a key exactly one is told that it did, and that its bytes are there.
Storage that ignores the condition of a conditional put answers "created" to everybody, and commits are lost.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from spark_pages.doctor.checks import Check, failed, ok, warning
from spark_pages.errors import ObjectNotFoundError, SparkPagesError
from spark_pages.storage.store import Created, Doubtful, NotCreated, ObjectStore

CREATORS = 32
PROCESSES = 3
"""Processes beside this one, where the store can be reached from others; each has a share of the creators."""

ROUNDS = 3
_WAIT_S = 60.0
_NAME = "conditional puts"
_REFUSED = (
    "Do not keep a store here: commits would be lost. Use storage that honours If-None-Match on put (S3, "
    "MinIO of late, versitygw, GCS, Azure), or a local disk."
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one creator was told.

    Attributes
    ----------
    content
        What it tried to put.
    outcome
        ``created``, ``exists``, or the reason of a doubt.
    """

    content: str
    outcome: str


def body(creator: int) -> bytes:
    """Return the bytes that a creator writes: unique, and of some length."""
    return hashlib.sha256(str(creator).encode()).hexdigest().encode() * 16


def attempt(store: ObjectStore, key: str, creator: int) -> Attempt:
    """Create the key once."""
    outcome = store.create(key, body(creator))
    told = "created" if isinstance(outcome, Created) else "exists"
    return Attempt(str(creator), outcome.reason if isinstance(outcome, Doubtful | NotCreated) else told)


def race_threads(store: ObjectStore, key: str, creators: Sequence[int]) -> list[Attempt]:
    """All creators at once, in threads of this process."""
    barrier = threading.Barrier(len(creators))

    def run(creator: int) -> Attempt:
        barrier.wait(_WAIT_S)
        return attempt(store, key, creator)

    with ThreadPoolExecutor(len(creators)) as pool:
        return list(pool.map(run, creators))


def race(
    store: ObjectStore, prefix: str, address: str | None = None, options: Mapping[str, Any] | None = None
) -> list[Check]:
    """Whether exactly one of 32 creators wins, three times over, and keeps what it won.

    Parameters
    ----------
    prefix
        Begins the keys that are used.
    address, options
        How other processes reach the store; without an address only threads take part.
    """
    try:
        attempts = 0
        doubts: list[str] = []
        for number in range(ROUNDS):
            key = f"{prefix}race-{number}"
            told = _round(store, key, address, options)
            problem = judge(told, _content(store, key))
            if problem:
                return [failed(_NAME, problem, _REFUSED)]
            attempts += len(told)
            doubts += [each.outcome for each in told if each.outcome not in ("created", "exists")]
        late = attempt(store, f"{prefix}race-0", CREATORS)
        before = _content(store, f"{prefix}race-1")
        if late.outcome == "created":
            return [failed(_NAME, "a key that was there could be created again", _REFUSED)]
        if before is None:
            return [failed(_NAME, "an object was gone a moment after it had been created", _REFUSED)]
    except SparkPagesError as error:
        return [failed(_NAME, error.message, error.hint or "Mend this first, then try again.")]
    processes = f"{PROCESSES + 1} processes" if address else "one process"
    found = f"{ROUNDS} races of {CREATORS} creators in {processes}, one winner each"
    if doubts:
        remedy = "Doubt is settled by reading back, but this much of it makes commits slow."
        return [warning(_NAME, f"{found}; {len(doubts)} of {attempts} answers in doubt: {doubts[0]}", remedy)]
    return [ok(_NAME, found)]


def judge(told: Sequence[Attempt], content: bytes | None) -> str | None:
    """Describe the fault of a race, or return None.

    Parameters
    ----------
    told
        What every creator was told.
    content
        What is there now; None if nothing is.
    """
    winners = [each for each in told if each.outcome == "created"]
    doubts = [each for each in told if each.outcome not in ("created", "exists")]
    if len(winners) > 1:
        return f"{len(winners)} of {len(told)} creators of one key were told that they created it"
    if content is None:
        return None if not winners and doubts else "the object that was created is not there"
    possible = winners or doubts
    if not possible:
        return f"none of {len(told)} creators was told that it created the key, but it is there"
    if content not in [body(int(each.content)) for each in possible]:
        return "the object holds other bytes than those of the creator that was told it had won"
    return None


def _content(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None


def _round(
    store: ObjectStore, key: str, address: str | None, options: Mapping[str, Any] | None
) -> list[Attempt]:
    if address is None:
        return race_threads(store, key, range(CREATORS))
    share = CREATORS // (PROCESSES + 1)
    groups = [range(first, first + share) for first in range(0, CREATORS, share)]
    others = [
        start_probe({"role": "create", "url": address, "options": dict(options or {}), "key": key,
                     "creators": list(group)})
        for group in groups[1:]
    ]  # fmt: skip
    try:
        for process in others:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        for process in others:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told = race_threads(store, key, groups[0])
        for process in others:
            answer, _ = process.communicate(timeout=_WAIT_S)
            told += [Attempt(**each) for each in json.loads(answer)]
    finally:
        for process in others:
            process.kill()
            process.communicate()
    return told


def start_probe(request: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Another process that does what the request says; options go through its input, never its arguments."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spark_pages.doctor.probe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request, default=str) + "\n")
    process.stdin.flush()
    return process
