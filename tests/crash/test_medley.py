"""Processes that do everything at once leave what their notes, replayed in the order of the log, say."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spark_pages as sp
from tests.crash.alone import outcome_of
from tests.crash.medley import make, note_history
from tests.crash.medley_judge import Note, Outcome, judge
from tests.crash.medley_writer import Notes, Writer
from tests.effort import LONG
from tests.s3.server import MISSING, server_binary

SECONDS = 120 if LONG else 5
LIMIT_S = 120 + 5 * SECONDS
pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def medley(store: str, folder: Path) -> dict[str, Any]:
    flags = ["--store", store, "--seconds", str(SECONDS)]
    return outcome_of("tests.crash.medley", flags, folder, LIMIT_S)


@pytest.mark.slow
def test_a_medley_on_a_local_disk_leaves_what_its_notes_say(tmp_path: Path) -> None:
    outcome = medley("local", tmp_path)

    assert outcome["transactions"] > 0
    assert outcome["kills"] > 0


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.skipif(server_binary() is None, reason=MISSING)
def test_a_medley_on_s3_leaves_what_its_notes_say(tmp_path: Path) -> None:
    outcome = medley("s3", tmp_path)

    assert outcome["transactions"] > 0
    assert outcome["kills"] > 0


# the judge


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Note], list[Note]]:
    """A store, its notes and its chronicle, by one writer who is alone."""
    folder = tmp_path_factory.mktemp("medley")
    url = str(folder / "store")
    make((url, None), random.Random(1))
    store = sp.open(url)
    writer = Writer(store, "w.0.0", "w.0", 0, Notes(folder / "notes"), random.Random(1))
    for _ in range(80):
        writer.transact()
        store.snapshot()
    note_history(store, Notes(folder / "chronicle"), -1)
    return url, Notes.read(folder / "notes"), Notes.read(folder / "chronicle")


def faults(played: tuple[str, list[Note], list[Note]], alter: Callable[[Note], Note | None]) -> list[str]:
    """What the judge finds where notes are others than they were."""
    url, notes, chronicle = played
    outcome = Outcome()
    altered = [each for each in map(alter, notes) if each is not None]
    judge((url, None), altered, chronicle, outcome, seed=1)
    return outcome.faults


def test_the_judge_of_medleys_has_nothing_to_say_of_true_notes(played) -> None:
    assert faults(played, lambda note: note) == []


def told(change: Callable[[Note], Note | None], key: str) -> Callable[[Note], Note | None]:
    """Change the notes that have a key."""
    return lambda note: change(note) if key in note else note


def without(kind: str) -> Callable[[Note], Note]:
    """Nothing of a kind was planned."""
    return lambda note: {**note, "ops": [op for op in note["ops"] if op[0] != kind]}


def with_other_texts(note: Note) -> Note:
    ops = [
        [*op[:2], {**op[2], "s": ["another"] * len(op[2]["n"])}] if op[0] == "append" else op
        for op in note["ops"]
    ]
    return {**note, "ops": ops}


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (told(with_other_texts, "planned"), r"version \d+ differs in|instead of"),
        (told(without("append"), "planned"), "rows"),
        (told(without("update"), "planned"), "rows"),
        (told(without("add column"), "planned"), "cannot have landed|version|instead of"),
        (told(without("drop"), "planned"), "cannot have landed|version|instead of"),
        (told(lambda note: {**note, "version": note["version"] + 1}, "acked"), "was told version"),
        (told(lambda note: {"refused": "?", "name": note["acked"]}, "acked"), "was refused .* and landed"),
    ],
)
def test_the_judge_of_medleys_sees_what_is_lost_or_wrong(played, alter, why) -> None:
    found = faults(played, alter)

    assert any(re.search(why, each) for each in found), found
