"""A conflict that no comparison of two transactions found names both of them all the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import CommitConflictError
from spark_pages.runtime import writer_name
from spark_pages.store import Store
from tests.transaction.stores import store_with

ROWS = pa.table({"n": [1, 2, 3]})
TOLD = ("read_version", "conflicting_version", "conflicting_writer", "chains", "tries")


def told(error: CommitConflictError) -> tuple[object, ...]:
    assert "Nothing was" in str(error)
    return tuple(error.context[name] for name in TOLD)


def test_a_table_that_was_changed_before_a_transaction_looked():
    store = store_with(ROWS)
    late = Store(store.object_store)
    read = late.snapshot().version
    txn = late.transaction()
    txn.append("t", ROWS)
    with store.transaction("tighten") as other:
        other.set_nullable("t", "n", False)
    with store.transaction("beside") as other:
        other.create_table("u", ROWS.schema)

    with pytest.raises(CommitConflictError, match=r"version 3 was committed by .* \(tighten\)") as failure:
        txn.table("t")

    assert told(failure.value) == (read, 3, writer_name(), [], 1)


def test_a_tag_that_moves_while_it_is_deleted(monkeypatch):
    store = store_with(ROWS)
    store.tag("kept", version=1)
    log, commit = store._log, store._log.commit
    read = store.snapshot().version

    def late(*args, **given):
        Store(store.object_store).tag("kept", version=2, replace=True)
        return commit(*args, **given)

    monkeypatch.setattr(log, "commit", late)
    with pytest.raises(CommitConflictError, match=r"moved from version 1 to version 2.*\(tag\)") as failure:
        store.delete_tag("kept")

    assert told(failure.value) == (read, read + 1, writer_name(), [], 1)


def test_how_often_was_tried_what_is_refused_on_the_newest_state(monkeypatch):
    store = store_with(ROWS)
    store.tag("kept", version=1)
    log, commit = store._log, store._log.commit
    read = store.snapshot().version

    def late(*args, **given):
        with Store(store.object_store).transaction() as txn:
            txn.append("t", ROWS)
        Store(store.object_store).tag("kept", version=2, replace=True)
        return commit(*args, **given)

    monkeypatch.setattr(log, "commit", late)
    with pytest.raises(CommitConflictError, match=r"moved from version 1 to version 2.*; 2 tries") as failure:
        store.delete_tag("kept")

    assert told(failure.value) == (read, read + 2, writer_name(), [], 2)


def test_a_vacuum_that_a_tag_has_overtaken():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.append("t", ROWS)
    plan = store.vacuum_plan(retention=1)
    head = store.snapshot().version
    Store(store.object_store).tag("held", version=1)
    with store.transaction() as txn:
        txn.append("t", ROWS)

    with pytest.raises(CommitConflictError, match="a tag") as failure:
        plan.execute()

    assert told(failure.value)[1:] == (head + 1, writer_name(), [], 1)


def test_a_transaction_that_others_overtake_until_its_time_is_up():
    store = store_with(ROWS)
    late = Store(store.object_store).transaction()
    read = late.snapshot.version
    late.append("t", ROWS)
    late._state.log._driver._timeout_s = 0.0
    with store.transaction() as txn:
        txn.append("t", ROWS)

    with pytest.raises(
        CommitConflictError, match=f"overtaken 1 times, last by version {read + 1}"
    ) as failure:
        late.commit()

    assert told(failure.value) == (read, read + 1, writer_name(), [], 1)


@pytest.mark.parametrize("compacted", [False, True], ids=["in commits", "in a checkpoint"])
def test_a_table_that_was_only_read_is_told_by_its_name(compacted):
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("other", ROWS.schema)
    if compacted:
        store.checkpoint()
    late = store.transaction(isolation="serializable")
    late.table("t").read()
    late.append("other", ROWS)
    with Store(store.object_store).transaction() as txn:
        txn.append("t", ROWS)

    with pytest.raises(CommitConflictError, match="it changed rows of table 't', on which"):
        late.commit()
