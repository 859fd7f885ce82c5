"""Purges and collections of rows: killed at each request, two at once, and others at work at each request."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pyarrow as pa
import pytest

from spark_pages.errors import CommitConflictError, TableNotFoundError
from spark_pages.io import PageHandler
from spark_pages.maintenance.purge import collect_rows, purge_dropped
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.catalog.worn import SCHEMA, worn_store
from tests.effort import LONG, SLOW
from tests.invariants import Rows, check_snapshot, check_table_zero, rows_of
from tests.maintenance.vacuum.stores import KilledError, WatchedStore, copied, opened

STEP = 1 if LONG else 7 if SLOW else 23
"""At each request in a long run, at every 7th in `make test-slow`, and at every 23rd in `make test`."""

pytestmark = [pytest.mark.sampled, pytest.mark.timeout(3600 if LONG else 300)]


@pytest.fixture(scope="module")
def past() -> Store:
    """A store in which dropped tables and ended rows may go."""
    store = worn_store(f"memory://{uuid4().hex}")
    store.vacuum_plan(retention=1).execute()
    return store


def tidy(store: Store) -> None:
    """What a vacuum does to the catalog."""
    pages = PageHandler(store.object_store)
    purge_dropped(store._log, store._runtime, pages)
    collect_rows(store._log, store._runtime, pages)


def requests_of(act: Callable[[Store], None], objects: ObjectStore) -> int:
    watched = WatchedStore(copied(objects))
    act(opened(watched))
    return watched.requests


def told(objects: ObjectStore) -> pa.Table:
    """Table 0 but for the numbers of versions, which depend on who was first."""
    zero = opened(objects).snapshot().table("system.catalog")
    return zero.read(["row_id", "kind", "table_id", "field_id", "name", "metadata"])


def check(objects: ObjectStore, rows: Rows) -> None:
    store = opened(objects)
    assert rows_of(store) == rows
    check_snapshot(store.snapshot().log)
    check_table_zero(store)


def test_killed_at_any_request_it_has_done_no_harm_and_the_next_one_finishes_its_work(past):
    rows, reference = rows_of(past), copied(past.object_store)
    tidy(opened(reference))
    assert told(reference).num_rows < told(past.object_store).num_rows
    happened = []

    for moment in ("before", "after"):
        requests = requests_of(tidy, past.object_store)
        for number in {*range(0, requests, STEP), requests - 1}:
            objects = copied(past.object_store)
            killing = WatchedStore(
                objects, lambda n, *_, at=number, moment=moment: moment if n == at else None
            )
            with pytest.raises(KilledError):
                tidy(opened(killing))
            check(objects, rows)
            happened.append(opened(objects).snapshot().version - past.snapshot().version)

            tidy(opened(objects))

            check(objects, rows)
            assert told(objects) == told(reference)
    assert set(happened) == {0, 1, 2}, "the deaths are on all sides of the two commits"


def test_two_at_once_that_meet_at_any_request_do_the_work_once(past):
    rows, reference = rows_of(past), copied(past.object_store)
    tidy(opened(reference))

    for number in range(0, requests_of(tidy, past.object_store), STEP):
        objects = copied(past.object_store)

        def other(n: int, *_: object, at: int = number, objects: ObjectStore = objects) -> None:
            if n == at:
                tidy(opened(objects))

        tidy(opened(WatchedStore(objects, other)))

        check(objects, rows)
        assert told(objects) == told(reference)
        assert opened(objects).snapshot().version == past.snapshot().version + 2


def change(store: Store) -> None:
    with store.transaction() as txn:
        txn.create_table("more", SCHEMA)
        txn.set_comment("kept", "changed")
        txn.drop_table("newest")


def undrop(store: Store) -> None:
    try:
        with store.transaction() as txn:
            txn.undrop_table("gone")
    except (TableNotFoundError, CommitConflictError):
        return


def checkpoint(store: Store) -> None:
    store.checkpoint()


@pytest.mark.parametrize("act", [change, undrop, checkpoint])
def test_others_may_work_at_any_request_of_it_and_it_at_any_request_of_others(past, act):
    for outer, inner in ((tidy, act), (act, tidy)):
        for number in range(0, requests_of(outer, past.object_store), STEP):
            objects = copied(past.object_store)

            def then(n: int, *_: object, at: int = number, objects: ObjectStore = objects, do=inner) -> None:
                if n == at:
                    do(opened(objects))

            outer(opened(WatchedStore(objects, then)))

            store = opened(objects)
            check_snapshot(store.snapshot().log)
            check_table_zero(store)
            expected = {"kept", "new", "more"} if act is change else {"kept", "new", "newest"}
            assert set(store.snapshot().tables()) - {"gone"} == expected
            if "gone" in store.snapshot().tables():
                assert act is undrop
                assert store.snapshot().table("gone").schema.names == ["n", "m"]
