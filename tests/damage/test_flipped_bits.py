"""A flipped bit of any object of a whole store is an error that names the object, or changes no answer.

A sample of the bits of each object is tried, and all questions asked of the store; `test_every_bit.py`
asks the reader of each kind of object alone, and tries every bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.store import Store
from tests.damage.flipping import KINDS, Flipped, Question, kind_of, questions, small_store
from tests.effort import SLOW

BITS_OF_AN_OBJECT = 7 if SLOW else 2
NEVER_AN_ERROR = {"hint", "compacted range", "checkpoints"}
"""What can be lost without anybody noticing but by the number of requests."""


def bits_of(key: str, length: int) -> Iterator[int]:
    """The bits of an object to flip."""
    ends = (0, 8 * length - 1) if SLOW else (0,)
    chosen = random.Random(kind_of(key) + str(length))
    yield from ends
    yield from (chosen.randrange(8 * length) for _ in range(BITS_OF_AN_OBJECT - len(ends)))


def check(store: Store, key: str, bit: int, oldest: int, newest: int, expected: dict[str, object]) -> bool:
    """Ask everything of a fresh reader; gives whether the object was read at all."""
    objects = Flipped(store.object_store, key, bit)
    for name, question in questions(oldest, newest).items():
        found, error = answer(question, Store(objects))
        if error is None:
            assert found == expected[name], (key, bit, name)
        else:
            assert isinstance(error, DamageError), (key, bit, name, error)
            assert key in str(error), (key, bit, name, error)
            assert kind_of(key) not in NEVER_AN_ERROR, (key, bit, name, error)
    return objects.asked


def answer(question: Question, store: Store) -> tuple[object, SparkPagesError | None]:
    """The answer, or the error that came in its place; whatever else is raised is a crash."""
    try:
        return question(store), None
    except SparkPagesError as error:
        return None, error


@pytest.mark.sampled
def test_a_flipped_bit_is_an_error_that_names_the_object_or_changes_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = small_store(monkeypatch)
    store.compact_log()
    newest = store.snapshot().version
    expected = {name: question(store) for name, question in questions(0, newest).items()}
    read: dict[str, bool] = {}

    for info in store.object_store.list(""):
        for bit in bits_of(info.key, info.size_bytes):
            asked = check(store, info.key, bit, 0, newest, expected)
            read[kind_of(info.key)] = read.get(kind_of(info.key), False) or asked

    assert read == dict.fromkeys(KINDS, True)


@pytest.mark.sampled
def test_a_flipped_bit_of_a_vacuumed_store_is_an_error_or_changes_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = small_store(monkeypatch)
    store.vacuum(retention=2)
    store.checkpoint()
    snapshot = store.snapshot()
    oldest, newest = snapshot.log.state.retention.min_readable, snapshot.version
    expected = {name: question(store) for name, question in questions(oldest, newest).items()}
    times = [store._log.time_of(version) for version in range(newest + 1)]
    tombstones = 0

    for info in store.object_store.list("_log/0"):
        for bit in bits_of(info.key, info.size_bytes):
            check(store, info.key, bit, oldest, newest, expected)
            objects = Flipped(store.object_store, info.key, bit)
            for version, time_us in enumerate(times):
                found, error = answer(
                    lambda each, version=version: each._log.time_of(version), Store(objects)
                )
                assert found == time_us if error is None else info.key in str(error)
                tombstones += error is not None and version < oldest

    assert tombstones > 0
