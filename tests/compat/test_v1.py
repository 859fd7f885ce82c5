"""Stores of format 1 as its release wrote them: every later release reads them, and writes to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_pages as sp
from spark_pages.store import Store

HERE = Path(__file__).parent / "v1"
NAMES = [
    "bundle", "checkpoint-and-tail", "deleted-rows", "every-kind", "groups-tags-and-restore", "manifest", "nan",
    "only-log",
]  # fmt: skip


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def answers(name: str) -> dict[str, Any]:
    return json.loads((HERE / name / "answers.json").read_text())


@pytest.fixture
def store(name: str, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(HERE / name / "store", tmp_path / "store")
    found = sp.open(str(tmp_path / "store"))
    yield found
    found.close()


def check_rows(store: Store, name: str, answers: dict[str, Any]) -> None:
    for each in answers["versions"]:
        snapshot = store.snapshot(version=each["version"])
        assert sorted(snapshot.tables()) == sorted(each["tables"])
        for table, expected in each["tables"].items():
            found = snapshot.table(table)
            assert found.num_rows == expected["rows"]
            assert_same(found.read(), pq.read_table(HERE / name / expected["file"]))


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Equal, and NaN in the same places."""
    assert found.schema.names == expected.schema.names
    for column in expected.schema.names:
        one, other = found.column(column), expected.column(column).cast(found.schema.field(column).type)
        if pa.types.is_floating(one.type):
            one, other = (pa.chunked_array([repr(v) for v in each.to_pylist()]) for each in (one, other))
        assert one.to_pylist() == other.to_pylist(), column


def test_there_is_nothing_here_that_no_test_reads() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == NAMES


def test_every_version_holds_the_rows_that_were_written(
    store: Store, name: str, answers: dict[str, Any]
) -> None:
    assert store.snapshot().version == answers["versions"][-1]["version"]
    check_rows(store, name, answers)


def test_versions_are_found_by_time_and_tag(store: Store, answers: dict[str, Any]) -> None:
    for each in answers["versions"]:
        found = store.snapshot(timestamp=each["time_us"] + 1)
        assert found.version == each["version"]
    for tag, version in answers["tags"].items():
        assert store.snapshot(tag=tag).version == version


def test_the_history_is_what_it_was(store: Store, answers: dict[str, Any]) -> None:
    names = ["version", "operation", "rows_added", "pages_added"]

    assert store.history().select(names).to_pylist() == answers["history"]


def test_nothing_is_found_wrong_with_it(store: Store) -> None:
    found = store.verify(pages="all")

    assert found.damage == ()
    assert found.pages_read == found.pages > 0


def test_pages_with_a_nan_are_known_by_their_other_values() -> None:
    table = sp.open(str(HERE / "nan" / "store")).snapshot().table("t")
    trace = sp.ReadTrace()

    found = [table.aggregate(name) for name in table.columns]
    rows = table.read(["x"], filter=[("x", ">", 6.0)], trace=trace)

    assert [(each.min.as_py(), each.max.as_py(), each.pages_read) for each in found] == [(-inf, inf, 0)] * 3
    assert (rows.num_rows, len(trace.page_ids)) == (3, 1)


def test_it_can_be_written_to_and_older_versions_stay(
    store: Store, name: str, answers: dict[str, Any]
) -> None:
    newest = answers["versions"][-1]["tables"]
    table = sorted(newest)[0]
    last = store.snapshot().table(table)
    rows = last.read(start=max(0, last.num_rows - 1))

    with store.transaction("by a later release") as txn:
        txn.append(table, rows)
    store.checkpoint()
    with store.transaction("after a checkpoint of a later release") as txn:
        txn.append(table, rows)

    again = sp.open(store.url)
    assert again.snapshot().table(table).num_rows == newest[table]["rows"] + 2 * rows.num_rows
    check_rows(again, name, answers)
    assert again.verify(pages="all").damage == ()
