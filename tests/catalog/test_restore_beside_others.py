"""A restore and a transaction that has not seen it: what it refers to stays, what it narrows is respected."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.catalog import evolution
from spark_pages.errors import CommitConflictError, DamageError
from spark_pages.model.actions import IntentKind
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from spark_pages.versions import restore_plan
from tests.catalog.test_restore_machine import DEFINITIONS, start

Staging = Callable[[Transaction], object]


@pytest.fixture
def referring(store: Store) -> Store:
    """A table in a namespace, with a column of a type and a foreign key."""
    start(store)
    return store


@pytest.mark.parametrize(
    ("taken_back", "meanwhile"),
    [
        ("drop referring", "drop namespace"),
        ("drop referring", "drop type"),
        ("drop referring", "drop referenced"),
        ("drop referring", "drop referenced column"),
        ("drop typed column", "drop type"),
        ("unrefer", "drop referenced"),
        ("unrefer", "drop referenced column"),
    ],
)
def test_what_a_restore_brings_back_keeps_what_it_refers_to(referring, taken_back, meanwhile):
    before = referring.snapshot().version
    with referring.transaction() as txn:
        DEFINITIONS[taken_back](txn)
    late = Store(referring.object_store).transaction()
    DEFINITIONS[meanwhile](late)
    restored = referring.restore(version=before)

    with pytest.raises(CommitConflictError, match="relies on"):
        late.commit()

    assert referring.snapshot().version == restored
    assert referring.snapshot().tables() == ["others", "t", "sales.s"]
    assert referring.verify(pages="all").ok


def test_a_restore_says_what_it_requires_and_that_it_narrows(referring):
    before = referring.snapshot().version
    with referring.transaction() as txn:
        DEFINITIONS["drop referring"](txn)
        DEFINITIONS["widen n"](txn)

    version = referring.restore(version=before)

    (commit,) = referring._log.commits(version, version + 1)
    intents = commit.records[0].intents
    assert {each.name for each in intents if each.kind is IntentKind.REQUIRE} == {"sales", "money", "others"}
    assert [each.columns for each in intents if each.kind is IntentKind.ALTER] == [None]


def append(store: Store, rows: Any) -> None:
    with store.transaction() as txn:
        txn.append("t", rows)


WIDER = [
    (pa.int32(), pa.int64(), 2**40),
    (pa.float32(), pa.float64(), 1e300),
    (pa.float32(), pa.float64(), 0.1),
    (pa.decimal128(5, 2), pa.decimal128(20, 2), Decimal("99999999.99")),
]


@pytest.fixture(params=WIDER, ids=["integer", "beyond the range", "inexact", "decimal"])
def widened(request, url: str) -> tuple[Store, Store, pa.Table]:
    """A column that was narrow at version 1, another handle that knows it wide, and rows of that type."""
    narrow, wide, value = request.param
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("k", narrow)]))
        txn.append("t", pa.table({"k": pa.array([None], narrow)}))
    with store.transaction() as txn:
        txn.widen_column("t", "k", wide)
    other = Store(store.object_store)
    other.snapshot()
    return store, other, pa.table({"k": pa.array([value], wide)})


def test_rows_of_the_wider_type_do_not_land_behind_a_restore_that_their_handle_has_not_seen(widened):
    store, other, rows = widened
    store.restore(version=1)

    with pytest.raises(CommitConflictError, match="'t'"):
        append(other, rows)

    assert store.snapshot().table("t").read()["k"].to_pylist() == [None]
    assert store.verify(pages="all").ok


def test_rows_staged_before_the_restore_do_not_land_either(widened):
    store, other, rows = widened
    txn = other.transaction()
    txn.append("t", rows)
    store.restore(version=1)

    with pytest.raises(CommitConflictError, match="'t'"):
        txn.commit()


def test_rows_of_the_narrow_type_land_though_their_handle_has_seen_neither_change(url):
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("k", pa.int32())]))
    other = Store(store.object_store)
    other.snapshot()
    with store.transaction() as txn:
        txn.widen_column("t", "k", pa.int64())
    store.restore(version=1)

    append(other, {"k": pa.array([7], pa.int32())})

    assert other.snapshot().table("t").read()["k"].to_pylist() == [7]


def test_pages_that_an_earlier_release_has_let_in_are_damage_and_stay_what_they_are(widened):
    store, other, rows = widened
    store.restore(version=1)
    with mock.patch.object(evolution, "holds_all", return_value=True):
        append(other, rows)

    verified = store.verify(pages="all")

    assert [fault.kind.value for fault in verified.faults] == ["contradiction"]
    assert "do not fit" in verified.faults[0].what
    with pytest.raises(DamageError, match="column 'k'"):
        store.snapshot().table("t").read()
    with pytest.raises(DamageError, match="column 'k'"):
        store.compact_pages("t")


def test_to_widen_the_column_makes_pages_readable_that_an_earlier_release_has_let_in(widened):
    store, other, rows = widened
    store.restore(version=1)
    with mock.patch.object(evolution, "holds_all", return_value=True):
        append(other, rows)

    with store.transaction() as txn:
        txn.widen_column("t", "k", rows.schema.field("k").type)

    assert store.snapshot().table("t").read()["k"].to_pylist() == [None, *rows["k"].to_pylist()]


@pytest.mark.parametrize(
    ("taken_back", "meanwhile"), [("drop referring", "drop namespace"), ("unrefer", "drop referenced")]
)
def test_verify_reports_a_reference_to_what_is_gone(referring, taken_back, meanwhile):
    before = referring.snapshot().version
    with referring.transaction() as txn:
        DEFINITIONS[taken_back](txn)
    late = Store(referring.object_store).transaction()
    DEFINITIONS[meanwhile](late)
    with mock.patch.object(restore_plan, "new_references", return_value=[]):  # as an earlier release did
        referring.restore(version=before)
    late.commit()

    verified = Store(referring.object_store).verify(pages="none")

    assert [fault.kind.value for fault in verified.faults] == ["contradiction"]
    assert "which is not there" in verified.faults[0].what
    assert "t" in referring.snapshot().tables()
    assert referring.snapshot().table("t").read().num_rows == 1
