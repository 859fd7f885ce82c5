"""Batches for training: which rows they hold, in which order, and how they are resumed."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.io import ReadTrace
from spark_pages.query import batches
from spark_pages.query.table import Table

ROWS = 20_000


@cache
def numbers() -> Table:
    store = sp.create("memory://batches")
    wide = pa.table(
        {
            "id": np.arange(ROWS),
            "text": [f"row {n} " * 20 for n in range(ROWS)],
            "flag": np.arange(ROWS) % 2 == 0,
        }
    )
    with store.transaction() as txn:
        txn.create_table("t", wide.schema, properties={"page_bytes": "8192"})
        txn.append("t", wide)
    with store.transaction() as txn:
        txn.delete("t", where="id % 10 = 3")
    return store["t"]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BLOCK_BYTES", 1 << 19)
    monkeypatch.setattr(batches, "WINDOW_BYTES", 1 << 21)


LIVE = [n for n in range(ROWS) if n % 10 != 3]


def test_in_order_the_batches_are_the_live_rows() -> None:
    found = list(numbers().batches(999, columns=["text", "id"]))

    assert [each.num_rows for each in found[:-1]] == [999] * (len(found) - 1)
    assert pa.Table.from_batches(found).equals(numbers().read(["text", "id"]))


def test_shuffled_every_row_comes_once_with_its_values_and_far_from_its_place() -> None:
    found = pa.Table.from_batches(numbers().batches(512, shuffle=True, seed=1))

    ids = found["id"].to_numpy()
    assert sorted(ids.tolist()) == LIVE
    assert [text.split()[1] for text in found["text"].to_pylist()] == [str(n) for n in ids.tolist()]
    assert np.mean(np.abs(np.diff(ids))) > ROWS / 50
    assert np.mean(np.diff(np.argsort(ids, kind="stable")) == 1) < 0.01


def test_a_seed_gives_the_same_order_and_another_one_another() -> None:
    first, again, other = (
        pa.Table.from_batches(numbers().batches(512, shuffle=True, seed=seed, columns=["id"])).column(0)
        for seed in (1, 1, 2)
    )

    assert first.equals(again)
    assert not first.equals(other)


@settings(max_examples=4, deadline=None)
@given(
    batch_rows=st.integers(1, 7_000),
    shards=st.integers(1, 5),
    seed=st.none() | st.integers(0, 1 << 40),
    stop=st.integers(0, 8),
)
def test_shards_are_a_partition_and_each_resumes_where_its_state_says(
    batch_rows: int, shards: int, seed: int | None, stop: int
) -> None:
    batch_rows = max(batch_rows, ROWS // 50)
    asked = {"batch_rows": batch_rows, "shuffle": seed is not None, "seed": seed, "columns": ["id"]}
    ids: list[int] = []
    for shard in range(shards):
        whole = [each["id"].to_pylist() for each in numbers().batches(**asked, shard=(shard, shards))]
        begun = numbers().batches(**asked, shard=(shard, shards))
        taken = [each["id"].to_pylist() for _, each in zip(range(stop), begun, strict=False)]
        saved = json.loads(json.dumps(begun.state()))
        left = numbers().batches(**asked, shard=(shard, shards), state=saved)
        assert taken + [each["id"].to_pylist() for each in left] == whole
        ids += [each for batch in whole for each in batch]

    assert sorted(ids) == LIVE


def test_pages_are_read_once_but_for_the_ends_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = ReadTrace()
    table = numbers()
    read = table._source.slices
    monkeypatch.setattr(
        table._source,
        "slices",
        lambda names, ranges, reading: read(names, ranges, type(reading)(admit=False, trace=trace)),
    )

    list(table.batches(512, shuffle=True, seed=5, columns=["id", "text"]))

    stored = sum(table.directory.chain(name).num_pages for name in ("id", "text"))
    assert len(table.batches(512, shuffle=True, seed=5, columns=["id", "text"])._windows()) > 4
    assert len(trace.page_ids) <= 1.25 * stored


def test_a_state_of_other_batches_is_refused() -> None:
    state = numbers().batches(100, shuffle=True, seed=1).state()

    for wrong in ({"batch_rows": 99, "shuffle": True, "seed": 1}, {"batch_rows": 100, "shuffle": False}):
        with pytest.raises(InvalidInputError, match="Cannot resume batches of table 't'"):
            numbers().batches(**wrong, state=state)
    for wrong in ({}, {"window": -1, "row": 0}, 7):
        with pytest.raises(InvalidInputError, match="not a state of batches"):
            numbers().batches(100, state=wrong)


@pytest.mark.parametrize(
    "wrong", [{"shard": (2, 2)}, {"shard": (0, 0)}, {"shard": 3}, {"batch_rows": 0}, {"columns": []}]
)
def test_wrong_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="Cannot"):
        numbers().batches(**wrong)


def test_a_table_without_rows_has_no_batches() -> None:
    store = sp.create("memory://no-batches")
    with store.transaction() as txn:
        txn.create_table("empty", {"n": int})

    assert list(store["empty"].batches(shuffle=True)) == []
