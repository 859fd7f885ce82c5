"""What the history tells of a vacuum is what was deleted, whatever was planned and whoever else was there."""

from __future__ import annotations

from contextlib import suppress

import pytest

from spark_pages.errors import CommitConflictError, ObjectNotFoundError, SnapshotExpiredError, StorageError
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import HINT_KEY
from spark_pages.log.last_checkpoint import read_hints, write_hint
from spark_pages.log.vacuum.plan import VacuumResult
from spark_pages.model.actions import DELETION, Tombstone, UpkeepNote
from spark_pages.model.ids import Version
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.maintenance.vacuum.stores import KilledError, Watch, WatchedStore, copied, eventful_past, opened

STEP = 7
"""Each so many requests of a vacuum something happens: nothing of its requests has a period of seven."""


def held(objects: ObjectStore) -> dict[str, int]:
    """What a vacuum may delete or bury, with its bytes: all but the hint and tombstones."""
    found = {info.key: info.size_bytes for info in objects.list("")}
    buried = [
        key
        for key in found
        if key.startswith("_log/0")
        and key.count("-") == 0
        and isinstance(decode_slot(objects.get(key), key), Tombstone)
    ]
    return {key: size for key, size in found.items() if key not in (*buried, HINT_KEY)}


def gone(before: dict[str, int], after: dict[str, int]) -> tuple[int, int]:
    """How many objects went, and their bytes."""
    lost = before.keys() - after.keys()
    return len(lost), sum(before[key] for key in lost)


def told(store: Store) -> tuple[int, int]:
    """The same as the history tells it, of all vacuums."""
    rows = [row for row in store.history().to_pylist() if row["operation"] == "delete objects"]
    parameters = [dict(row["parameters"]) for row in rows]
    assert all(row["transaction"] is None for row in rows)
    return sum(int(each["objects"]) for each in parameters), sum(int(each["bytes"]) for each in parameters)


def clean(store: Store) -> VacuumResult:
    """A plan was made and executed, anew where another vacuum was quicker."""
    while True:
        try:
            return store.vacuum_plan(retention=1).execute()
        except (CommitConflictError, ObjectNotFoundError, SnapshotExpiredError):
            continue


@pytest.fixture(scope="module")
def past() -> ObjectStore:
    return eventful_past().object_store


def test_what_was_deleted_is_told_at_once_and_then_by_the_next_commit(past):
    objects = copied(past)
    before = held(objects)

    result = clean(opened(objects))

    truth = gone(before, held(objects))
    assert (result.objects, result.size_bytes) == truth == told(opened(objects))
    opened(objects).tag("next")
    version = opened(objects).snapshot().version
    rows = opened(objects).history().to_pylist()
    assert [row["version"] for row in rows if row["operation"] == "delete objects"] == [version]
    opened(objects).tag("another")
    assert told(opened(objects)) == truth


def test_a_plan_that_another_vacuum_has_done_deletes_nothing_and_tells_of_nothing(past):
    objects = copied(past)
    plan = opened(objects).vacuum_plan(retention=1)
    clean(opened(objects))
    before, known = held(objects), told(opened(objects))

    result = plan.execute()

    assert (result.objects, result.size_bytes) == gone(before, held(objects)) == (0, 0)
    assert told(opened(objects)) == known


def test_a_vacuum_that_was_killed_and_the_next_one_tell_of_what_that_one_deleted(past):
    calls = WatchedStore(copied(past))
    clean(opened(calls))

    for number in range(0, calls.requests - 1, STEP):
        objects = copied(past)
        with pytest.raises(KilledError):
            clean(opened(WatchedStore(objects, lambda n, *_, at=number: "before" if n == at else None)))
        middle = held(objects)

        clean(opened(objects))

        assert told(opened(objects)) == gone(middle, held(objects)), f"killed at request {number}"


def test_a_vacuum_that_storage_stopped_tells_of_what_it_had_deleted(past):
    calls = WatchedStore(copied(past))
    clean(opened(calls))

    for number in range(0, calls.requests, STEP):
        objects = copied(past)
        store = opened(WatchedStore(objects, failing_at(number)))
        with suppress(StorageError):  # some failures are got over
            clean(store)
        truth = gone(held(past), held(objects))

        assert told(store) == truth, f"stopped at request {number}"


def failing_at(number: int) -> Watch:
    """One request gets no answer."""

    def watch(n: int, kind: str, key: str) -> None:
        if n == number:
            raise StorageError(f"The {kind} of {key} failed.")

    return watch


def test_two_vacuums_that_meet_tell_together_of_what_was_deleted(past):
    calls = WatchedStore(copied(past))
    clean(opened(calls))

    for number in range(0, calls.requests, STEP):
        objects = copied(past)

        def meet(n: int, kind: str, key: str, number: int = number, objects: ObjectStore = objects) -> None:
            # What is noted in the hint between the read and the write of another may go: docs/versions.md.
            if n == number and (kind, key) != ("put", HINT_KEY):
                clean(opened(objects))

        before = held(objects)
        clean(opened(WatchedStore(objects, meet)))

        objects_told, objects_gone = told(opened(objects))[0], gone(before, held(objects))[0]
        # One that both are about to delete at this very request is told by both.
        assert objects_gone <= objects_told <= objects_gone + 1, f"met at request {number}"


def versions_that_tell(objects: ObjectStore) -> list[int | None]:
    rows = opened(objects).history().to_pylist()
    return [row["version"] for row in rows if row["operation"] == "delete objects"]


def test_a_process_that_leaves_the_next_hint_tells_of_what_another_has_deleted(past):
    objects = copied(past)
    busy = opened(objects)
    busy.snapshot()
    clean(opened(objects))

    busy.tag("x")
    busy.checkpoint()
    assert versions_that_tell(objects) == [None]
    busy.tag("y")
    busy.tag("z")
    busy.checkpoint()

    assert versions_that_tell(objects) == [busy.snapshot().version - 1]


def test_a_deletion_of_which_another_process_has_told_is_not_told_again(past):
    objects = copied(past)
    store = opened(objects)
    late = store.transaction()
    late.set_properties({"late": "yes"})
    store.vacuum_plan(retention=3).execute()
    opened(objects).tag("x")
    told_at = opened(objects).snapshot().version
    late.commit()
    store.tag("y")

    assert versions_that_tell(objects) == [told_at]


def test_a_hint_that_a_vacuum_mends_keeps_what_others_noted_there(past):
    objects = copied(past)
    store = opened(WatchedStore(objects, lambda _, kind, __: "before" if kind == "delete" else None))
    plan = store.vacuum_plan(retention=1)
    note = UpkeepNote(DELETION, "another", 5, Version(1), 3, 4096)
    write_hint(objects, None, 0, [note])

    with pytest.raises(KilledError):
        plan.execute()

    hint = read_hints(objects)
    assert hint.checkpoint is not None
    assert hint.upkeep == (note,)
