"""A vacuum of a store whose writers must know more than this release: it cannot tell what may go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_pages.errors import UnsupportedFormatError
from spark_pages.format.names import HINT_KEY, commit_key
from tests.log.newer import ask, content
from tests.maintenance.vacuum.stores import (
    KilledError,
    Past,
    WatchedStore,
    copied,
    eventful_past,
    new_past,
    opened,
)

FROZEN = "frozen-pages"
WEEK = timedelta(days=7)


@pytest.fixture(scope="module")
def past() -> Past:
    return eventful_past()


def killed_at_its_first_delete(objects):
    """A vacuum has committed that older versions are gone, and has deleted nothing yet."""
    watched = WatchedStore(objects, lambda _, kind, __: "before" if kind == "delete" else None)
    with pytest.raises(KilledError):
        opened(watched).vacuum(retention=2)


def test_a_vacuum_does_not_go_on_where_a_killed_one_stopped(past):
    objects = copied(past.object_store)
    killed_at_its_first_delete(objects)
    ask(opened(objects))
    before = content(objects)

    with pytest.raises(UnsupportedFormatError, match=FROZEN):
        opened(objects).vacuum(retention=WEEK)

    assert content(objects) == before


def test_nothing_is_planned(past):
    objects = copied(past.object_store)
    ask(opened(objects))
    before = content(objects)

    with pytest.raises(UnsupportedFormatError, match=FROZEN):
        opened(objects).vacuum_plan(retention=2)
    with pytest.raises(UnsupportedFormatError, match=FROZEN):
        opened(objects).vacuum_plan(retention=WEEK, orphans=True)

    assert content(objects) == before


@pytest.mark.parametrize(("before", "retention"), [(lambda _: None, 2), (killed_at_its_first_delete, WEEK)])
def test_a_plan_from_before_is_not_executed_whether_or_not_its_bounds_are_in_the_log(past, before, retention):
    objects = copied(past.object_store)
    before(objects)
    plan = opened(objects).vacuum_plan(retention)
    ask(opened(objects))
    there = content(objects)

    with pytest.raises(UnsupportedFormatError, match=FROZEN):
        plan.execute()

    assert plan.objects.num_rows
    assert content(objects) == there


def test_what_a_newer_release_commits_right_behind_a_vacuum_stops_it_before_it_deletes(past):
    objects = copied(past.object_store)
    watched = WatchedStore(objects)
    plan = opened(watched).vacuum_plan(retention=2)
    seen = []

    def a_newer_release_follows(_, kind, key):
        if seen[-1:] == ["create"]:
            ask(opened(objects))
        seen.append(kind)

    watched.watch = a_newer_release_follows

    with pytest.raises(UnsupportedFormatError, match=FROZEN):
        plan.execute()

    assert seen.count("create") == 1, "the vacuum has committed"
    assert not {"put", "delete"} & set(seen)


def test_an_orphan_stays():
    past = new_past()
    past.append("large", 1)
    past.append("large", 2)
    past.store.vacuum(retention=1)
    orphan = f"pages/{0:020d}-{'ab' * 16}-0.pages"
    past.object_store.put(orphan, bytes(4096))
    ask(past.store)

    with pytest.raises(UnsupportedFormatError, match=FROZEN):
        opened(past.object_store).vacuum(retention=WEEK, orphans=True)

    assert orphan in content(past.object_store)


def test_that_the_history_cannot_be_told_of_a_deletion_any_more_is_no_failure(past):
    objects = copied(past.object_store)
    watched = WatchedStore(objects)
    store = opened(watched)
    plan = store.vacuum_plan(retention=2)
    hints = []

    def a_newer_release_comes(_, kind, key):
        if (kind, key) == ("put", commit_key(plan.slots[1] - 1)):  # the last thing that the vacuum does
            ask(opened(objects))
            store.snapshot()
        hints.extend([objects.get(HINT_KEY)] if key == HINT_KEY else [])

    watched.watch = a_newer_release_comes

    done = plan.execute()

    assert done.objects == plan.objects.num_rows
    assert hints[-1] == objects.get(HINT_KEY)
