"""Vacuum killed at each of its requests, two at once, and others at work at each of its requests."""

from __future__ import annotations

import pytest

from spark_pages.errors import CommitConflictError, SparkPagesError
from tests.effort import LONG, SLOW
from tests.invariants import check_nothing_needed_is_gone, check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import (
    KilledError,
    Past,
    WatchedStore,
    copied,
    eventful_past,
    numbers,
    opened,
)


@pytest.fixture(scope="module")
def past() -> Past:
    return eventful_past()


STEPS = pytest.mark.parametrize("step", [1 if LONG else 29 if SLOW else 101])
"""At each request in a long run, at every 29th in `make test-slow`, and at every 101st in `make test`."""

pytestmark = [pytest.mark.sampled, pytest.mark.timeout(3600 if LONG else 300)]


def requests_of(past, act) -> int:
    """How many requests an act on the store takes."""
    watched = WatchedStore(copied(past.object_store))
    act(opened(watched))
    return watched.requests


def requests_that(past, are) -> list[int]:
    """Numbers of the requests of a vacuum that are of some kind."""
    found = []

    def note(n, kind, key):
        if are(kind, key):
            found.append(n)

    vacuum(opened(WatchedStore(copied(past.object_store), note)))
    return found


def vacuum(store):
    store.vacuum(retention=2)


def kill_at(number, moment):
    return lambda n, *_: moment if n == number else None


def slots_and_page_files(objects, below):
    """What a finished vacuum leaves, whatever happened on the way to it."""
    slots = [
        each.size_bytes
        for each in objects.list("_log/0")
        if len(each.key) == 30 and int(each.key[5:25]) < below
    ]
    return slots, {info.key for info in objects.list("pages/")}


@STEPS
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_vacuum_killed_at_any_request_has_done_no_harm_and_the_next_one_finishes_its_work(
    step, past, moment
):
    reference = copied(past.object_store)
    vacuum(opened(reference))
    slots, files = slots_and_page_files(reference, max(past.history) - 1)
    named = {file for file in files if file in {info.key for info in past.object_store.list("pages/")}}

    for number in range(0, requests_of(past, vacuum), step):
        objects = copied(past.object_store)
        with pytest.raises(KilledError):
            vacuum(opened(WatchedStore(objects, kill_at(number, moment))))
        check_versions_stay(objects, past.history)

        vacuum(opened(objects))

        check_versions_stay(objects, past.history)
        check_nothing_needed_is_gone(objects)
        left = slots_and_page_files(objects, max(past.history) - 1)
        assert left[0] == slots, f"killed {moment} request {number}: slots stayed"
        old = {file for file in left[1] if file in {info.key for info in past.object_store.list("pages/")}}
        assert old == named, f"killed {moment} request {number}: page files stayed"


@STEPS
def test_two_vacuums_that_meet_at_any_request_do_no_harm(step, past):
    commits = requests_that(past, lambda kind, key: kind == "create" and key.startswith("_log/0"))
    assert len(commits) == 1, "a vacuum commits once, then buries and deletes"
    for number in {*range(0, requests_of(past, vacuum), step), *commits, commits[0] + 1}:
        objects = copied(past.object_store)

        def other(n, kind, key, number=number, objects=objects):
            if n == number:
                opened(objects).vacuum(retention=1)

        vacuum(opened(WatchedStore(objects, other)))

        check_versions_stay(objects, past.history)
        check_nothing_needed_is_gone(objects)
        kept = opened(objects).snapshot().log.state.retention
        assert kept.min_readable >= max(past.history), f"met at request {number}: the bound went back"


@STEPS
def test_a_vacuum_that_keeps_more_may_meet_one_that_keeps_less(step, past):
    for number in range(0, requests_of(past, vacuum), step):
        objects = copied(past.object_store)

        def other(n, kind, key, number=number, objects=objects):
            if n == number:
                opened(objects).vacuum(retention=5)

        vacuum(opened(WatchedStore(objects, other)))

        check_versions_stay(objects, past.history)


def _append(store):
    with store.transaction() as txn:
        txn.append("large", numbers(77))


def _rewrite(store):
    with store.transaction() as txn:
        txn.update_rows("large", list(range(0, 20_000, 4096)), {"x": [9] * 5})


def _restore(store):
    store.restore(version=5)


def _tag(store):
    store.tag("held", version=6)


def _checkpoint(store):
    _append(store)
    store.checkpoint()


@STEPS
@pytest.mark.parametrize("act", [_append, _rewrite, _restore, _tag, _checkpoint])
def test_others_may_work_at_any_request_of_a_vacuum(step, past, act):
    for number in range(0, requests_of(past, vacuum), step):
        objects = copied(past.object_store)
        history = dict(past.history)

        def other(n, kind, key, number=number, objects=objects, history=history):
            if n == number:
                try:
                    act(opened(objects))
                except (CommitConflictError, SparkPagesError):
                    return  # a version that is gone by now
                head = opened(objects).snapshot().version
                history[head] = rows_of(opened(objects), head)

        vacuum(opened(WatchedStore(objects, other)))

        check_versions_stay(objects, history)


@STEPS
@pytest.mark.parametrize("act", [_append, _rewrite, _restore, _tag, _checkpoint])
def test_a_vacuum_may_come_at_any_request_of_others(step, past, act):
    for number in range(0, requests_of(past, act), step):
        objects = copied(past.object_store)
        history = dict(past.history)

        def other(n, kind, key, number=number, objects=objects, history=history):
            if n == number:
                store = opened(objects)
                store.vacuum(retention=1)
                _append(store)
                store.checkpoint()
                store.vacuum(retention=1)
                for version in range(max(history) + 1, store.snapshot().version + 1):
                    if version >= store.snapshot().log.state.retention.min_readable:
                        history[version] = rows_of(opened(objects), version)

        store = opened(WatchedStore(objects, other))
        try:
            act(store)
        except SparkPagesError:
            pass  # it is refused, and has left nothing that is seen
        else:
            head = opened(objects).snapshot().version
            history[head] = rows_of(opened(objects), head)

        check_versions_stay(objects, history)
        vacuum(opened(objects))
        check_versions_stay(objects, history)
