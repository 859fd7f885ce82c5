"""`store.diff`: the rows that differ between two versions."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from spark_pages.store import Store


@pytest.fixture
def changed() -> Store:
    store = sp.create(f"memory://diff-{datetime.datetime.now().timestamp()}")
    store.write("t", {"id": [0, 1, 2, 3], "x": ["a", "b", "c", "d"]})
    store.tag("before")
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"x": ["z"]})
        txn.delete("t", where="id = 2")
        txn.append("t", {"id": [4], "x": ["e"]})
    store.tag("after")
    return store


EXPECTED = [
    ("update_before", 1, "b"),
    ("update_after", 1, "z"),
    ("delete", 2, "c"),
    ("insert", 4, "e"),
]


@pytest.mark.parametrize("ends", [(1, 3), ("before", "after"), ("before", "now")])
def test_rows_that_differ_come_with_their_values_in_both_versions(
    changed: Store, ends: tuple[object, object]
) -> None:
    known = {"now": changed.snapshot().timestamp}

    found = changed.diff(*(known.get(each, each) for each in ends), "t")

    assert isinstance(found, pa.RecordBatchReader)
    assert [(row["_change"], row["id"], row["x"]) for row in found.read_all().to_pylist()] == EXPECTED


def test_a_version_does_not_differ_from_itself(changed: Store) -> None:
    assert changed.diff(3, 3, "t").read_all().num_rows == 0


def test_versions_in_the_wrong_order_and_unknown_ones_are_refused(changed: Store) -> None:
    with pytest.raises(InvalidInputError, match=r"the first is the later one.*diff\(1, 3"):
        changed.diff(3, 1, "t")
    with pytest.raises(VersionNotFoundError):
        changed.diff("nowhere", 3, "t")
    with pytest.raises(VersionNotFoundError):
        changed.diff(1, 99, "t")
    with pytest.raises(TableNotFoundError):
        changed.diff(1, 3, "u")
