"""Transactions, readers and upkeep that a vacuum overtakes at any of their requests."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, SnapshotExpiredError
from spark_pages.log.auto_maintenance import Due
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.effort import SLOW
from tests.maintenance.vacuum.stores import WatchedStore, copied, opened

pytestmark = pytest.mark.sampled

QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
ROWS = {"x": list(range(300)), "y": list(range(300))}
XY = pa.schema([("x", pa.int64()), ("y", pa.int64())])


@pytest.fixture(scope="module")
def past() -> ObjectStore:
    """Tables a to d and one in a namespace, a checkpoint, and a commit that appends and updates."""
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_namespace("far")
        for name in ("a", "b", "c", "d", "far.e"):
            txn.create_table(name, XY)
            txn.append(name, ROWS)
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("d", {"x": [1], "y": [1]})
        txn.update_rows("c", [3], {"x": [8]})
    return store.object_store


def overtake(objects: ObjectStore, *, catalog_too: bool) -> None:
    """Vacuum takes every part and segment, and catalog files if told so, since there are others by now."""
    store = opened(objects)
    with store.transaction() as txn:
        for name in "abcd":
            txn.append(name, {"x": [5] * 3000, "y": [3] * 3000})
    if catalog_too:
        with store.transaction() as txn:
            txn.create_table("more", XY)
            txn.add_column("a", pa.field("n", pa.int64()))
    for _ in range(2):
        store.checkpoint()
        with store.transaction() as txn:
            txn.append("c", {"x": [9], "y": [1]})
    for _ in range(2):
        store.vacuum(retention=1)


def at_each_request(
    past: ObjectStore,
    act: Callable[[Store], object],
    *,
    catalog_too: bool,
    landed: Callable[[Store], object] = lambda _: None,
) -> list[Exception | None]:
    """How the act ends where a vacuum comes before its first request, before its second, and so on.

    `make test` tries every other request.

    Where it does not fail, `landed` is told of the store as another process finds it.
    """
    ends: list[Exception | None] = []
    at, requests = 0, 1
    while at < requests:
        objects = copied(past)
        watched = WatchedStore(objects)
        store = opened(watched)
        store.snapshot()

        def come(number: int, *_: str, objects: ObjectStore = objects, at: int = at) -> None:
            if number == at:
                overtake(objects, catalog_too=catalog_too)

        watched.requests, watched.watch = 0, come
        try:
            act(store)
        except Exception as error:  # noqa: BLE001 - the test says which are right
            ends.append(error)
        else:
            ends.append(None)
            landed(opened(objects))
        requests = watched.requests
        at += 1 if SLOW else 2
    return ends


def staging(stage: Callable[[Transaction], object]) -> Callable[[Store], None]:
    def act(store: Store) -> None:
        with store.transaction() as txn:
            stage(txn)

    return act


CATALOG_TOO = pytest.mark.parametrize("catalog_too", [True, False])


@CATALOG_TOO
@pytest.mark.parametrize("table", ["b", "far.e"])
def test_an_append_always_lands_and_once(past, table, catalog_too):
    added = {"x": [-7], "y": [-7]}

    def landed(store: Store) -> None:
        column = store.snapshot().table(table).read(["x"])["x"].to_pylist()
        assert column[-1] == -7
        assert column.count(-7) == 1

    ends = at_each_request(
        past, staging(lambda txn: txn.append(table, added)), catalog_too=catalog_too, landed=landed
    )

    assert len(ends) > 1
    assert ends == [None] * len(ends)


@pytest.mark.sampled(every=5)
@CATALOG_TOO
@pytest.mark.parametrize(
    "stage",
    [
        lambda txn: txn.update_rows("b", [3], {"x": [8]}),
        lambda txn: txn.create_table("new", XY),
        lambda txn: txn.create_namespace("new"),
        lambda txn: txn.add_column("b", pa.field("m", pa.int64())),
        lambda txn: txn.directory("b").latest("x"),
        lambda txn: (txn.append("b", {"x": [1], "y": [1]}), txn.table("b").num_rows),
    ],
    ids=["update", "create", "namespace", "column", "directory", "read own"],
)
def test_what_rests_on_a_version_lands_or_says_that_a_vacuum_has_passed_it(past, stage, catalog_too):
    ends = at_each_request(past, staging(stage), catalog_too=catalog_too)

    assert ends[0] is None, "nothing has been read before the first request"
    assert {type(end) for end in ends} <= {type(None), CommitConflictError, SnapshotExpiredError}


@CATALOG_TOO
def test_a_reader_is_never_told_that_a_table_is_not_there_which_is(past, catalog_too):
    snapshots = []

    def act(store: Store) -> None:
        snapshots.append(store.snapshot(version=2))
        assert snapshots[-1].table("b").num_rows == 300

    ends = at_each_request(past, act, catalog_too=catalog_too)

    assert {type(end) for end in ends} == {type(None), SnapshotExpiredError}


@pytest.mark.sampled(every=2)
@CATALOG_TOO
def test_a_checkpoint_beside_commits_is_made_of_the_newest_version_then_and_nothing_is_complained_of(
    past, catalog_too
):
    ends = at_each_request(
        past, lambda store: store._log._care._do(Due(checkpoint=True)), catalog_too=catalog_too
    )

    assert ends == [None] * len(ends)


def test_an_update_whose_version_a_vacuum_has_passed_is_told_of_the_vacuum(past):
    past = copied(past)
    store = opened(past)
    store.snapshot()
    txn = store.transaction()
    txn.update_rows("a", [0], {"x": [5]})

    overtake(past, catalog_too=False)
    with pytest.raises(CommitConflictError, match=r"\(vacuum\)") as met:
        txn.commit()

    vacuums = [row for row in opened(past).history().to_pylist() if row["operation"] == "vacuum"]
    assert met.value.context["conflicting_version"] in {row["version"] for row in vacuums}
    assert met.value.context["conflicting_writer"] in {row["writer"] for row in vacuums}


@pytest.mark.parametrize("has_key", [False, True])
def test_an_update_lands_though_the_tree_is_gone_from_which_its_version_was_read(has_key):
    """The version is kept: the same rows are read from a newer checkpoint."""
    other = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with other.transaction() as txn:
        txn.create_table("t", pa.schema([pa.field("x", pa.int64(), nullable=False)]))
        txn.append("t", {"x": list(range(50_000))})
        if has_key:
            txn.add_constraint("t", "key", primary_key=["x"])
    other.checkpoint()
    with other.transaction() as txn:
        txn.append("t", {"x": [60_000]})
    store = opened(other.object_store)
    store.snapshot()
    with other.transaction() as txn:
        txn.update_rows("t", [10, 20_000, 40_000], {"x": [70_000, 70_001, 70_002]})
    other.checkpoint()
    with other.transaction() as txn:
        txn.append("t", {"x": [60_001]})
    late = store.transaction()
    late.update_rows("t", [1], {"x": [80_000]})

    with other.transaction() as txn:
        txn.append("t", {"x": [60_002]})
    other.vacuum(retention=2)
    assert other.snapshot().log.state.retention.min_readable == late.snapshot.version, "it is kept"
    late.commit()

    store = opened(other.object_store)
    assert store.snapshot().table("t").take([1, 10, 50_002])["x"].to_pylist() == [80_000, 70_000, 60_002]
    assert store.verify("all").ok
