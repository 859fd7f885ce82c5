"""What asks for old versions looks again where vacuum has taken an object away while it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_pages.errors import DamageError, ObjectNotFoundError, SnapshotExpiredError
from spark_pages.log.reopen import reopening, retrying
from spark_pages.store import Store
from tests.transaction.stores import metered, store_with
from tests.versions import hand
from tests.versions.hand import numbers

WORK: dict[str, Callable[[Store], Any]] = {
    "restore": lambda store: store.restore(version=2),
    "changes": lambda store: store.changes(3, 3, granularity="rows").column("first_row").to_pylist(),
    "blame": lambda store: store.blame("t", "n", 3).version,
}


@pytest.fixture
def updated() -> Store:
    """Table ``t`` has ten rows at version 2, of which one is updated at 3."""
    store = store_with(numbers(0, 10))
    store.checkpoint()
    with store.transaction() as txn:
        txn.update_rows("t", [3], {"n": [0]})
    return store


def losing(
    store: Store, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object], times: int = 1
) -> Store:
    """The same store, where the first segments or parts asked for, so many, have just been taken away."""
    late, meter = metered(store)
    get, lost = meter.get, []

    def get_or_lose(key: str, *most: int) -> bytes:
        if key.startswith(("_log/segments/", "_log/parts/")) and key not in lost and len(lost) < times:
            lost.append(key)
            then()
            raise ObjectNotFoundError(f"There is no object {key!r}.", key=key)
        return get(key, *most)

    monkeypatch.setattr(meter, "get", get_or_lose)
    return late


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("work", "answer"), [("restore", 4), ("changes", [3]), ("blame", 3)])
def test_the_next_look_gives_the_answer(updated, monkeypatch, work, answer, times):
    late = losing(updated, monkeypatch, lambda: None, times)

    assert WORK[work](late) == answer


def test_a_transaction_that_looks_again_still_sees_what_it_has_staged(updated):
    with updated.transaction() as txn:
        txn.append("t", numbers(10, 12))
        table = txn.table("t")
        table.directory.reopen(ObjectNotFoundError("An object of its checkpoint is gone."))

        assert table.num_rows == table.read().num_rows == 12


@pytest.mark.parametrize("work", ["restore", "changes"])
def test_where_retention_has_passed_the_version_that_is_said(updated, monkeypatch, work):
    late = losing(updated, monkeypatch, lambda: hand.retain(updated, 3))

    with pytest.raises(SnapshotExpiredError, match=r"version 2\b.*versions 3 to 4"):
        WORK[work](late)


class Shown:
    """Reads, and stages, where objects go one after another; remembers how often it looked again."""

    def __init__(self, *lost: str) -> None:
        self.lost, self.looks = list(lost), 0

    def reopen(self, _: ObjectNotFoundError) -> None:
        self.looks += 1

    def refresh(self) -> int:
        self.looks += 1
        return self.looks

    def _look(self) -> str:
        if self.lost:
            key = self.lost.pop(0)
            raise ObjectNotFoundError(f"There is no object {key!r}.", key=key)
        return "found"

    read = reopening(_look)
    stage = retrying(_look)


@pytest.mark.parametrize("look", [Shown.read, Shown.stage])
def test_whatever_goes_for_the_first_time_is_worth_another_look(look):
    several = Shown("a", "b", "c")

    assert (look(several), several.looks) == ("found", 3)


@pytest.mark.parametrize("look", [Shown.read, Shown.stage])
def test_what_is_missing_twice_is_damage(look):
    with pytest.raises(DamageError, match="'a'"):
        look(Shown("a", "a"))


@pytest.mark.parametrize("look", [Shown.read, Shown.stage])
def test_nobody_looks_for_ever(look):
    with pytest.raises(DamageError, match="'8'"):
        look(Shown(*map(str, range(1_000))))
