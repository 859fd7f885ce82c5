"""A remote store from its first commit to compaction, and processes that race for its slots.

A service is tried by deriving from `StoreLife`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StoreExistsError, StoreNotFoundError
from tests.invariants import check_store

Options = dict[str, Any]
SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
WRITER = """
import json, sys
import pyarrow as pa
import spark_pages as sp

url, options, writer = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
store = sp.open(url, storage_options=options)
for number in range(20):
    with store.transaction() as txn:
        txn.append("t", pa.table({"writer": [writer], "number": [number]}))
    print(txn.version)
    if number == 10:
        store.checkpoint()
"""


class StoreLife:
    """Derive, and override the fixture `options`, which leads to the service; `url` is a place in it."""

    @pytest.fixture
    def options(self) -> Options:
        raise NotImplementedError

    def test_a_store_is_written_checkpointed_reopened_updated_compacted_and_read_back_in_time(
        self, url: str, options: Options
    ) -> None:
        rows = 60_000
        flights = pa.table({"day": pa.array(range(rows), pa.int32()), "carrier": ["UA", "AA"] * (rows // 2)})
        store = sp.create(url, storage_options=options, properties={"made for": "a test"})
        with store.transaction(operation="ingest") as txn:
            txn.create_table("flights", flights.schema)
            txn.append("flights", flights)
        for number in range(5):
            with store.transaction() as txn:
                txn.append("flights", pa.table({"day": pa.array([-number], pa.int32()), "carrier": ["DL"]}))
        store.checkpoint()

        again = sp.open(url, storage_options=options)
        with again.transaction(operation="correct") as txn:
            txn.update_rows("flights", [5, 50_000], {"day": [700, 701]})
        (compacted,) = again.compact_pages("flights")
        again.checkpoint()

        reader = sp.open(url, storage_options=options)
        table = reader.snapshot().table("flights")
        assert compacted["pages_after"] < compacted["pages_before"]
        assert table.num_rows == rows + 5
        assert table.take([5, 50_000, rows + 4], ["day"])["day"].to_pylist() == [700, 701, -4]
        assert table.read(["carrier"], start=rows - 1, stop=rows + 1)["carrier"].to_pylist() == ["AA", "DL"]
        found = pa.Table.from_batches(table.scan(["day"], filter=[("day", ">=", 59_998)]))
        assert found["day"].to_pylist() == [59_998, 59_999]
        before = reader.snapshot(version=txn.version - 1).table("flights")
        assert before.take([5, 50_000], ["day"])["day"].to_pylist() == [5, 50_000]
        assert reader.snapshot(version=1).table("flights").read().equals(flights)
        assert [info.key for info in reader.object_store.list("_log/000") if "-" not in info.key] == [
            f"_log/{version:020}.avro" for version in range(reader.snapshot().version + 1)
        ]
        check_store(reader)

    def test_a_second_create_and_an_open_of_nothing_are_told_apart(self, url: str, options: Options) -> None:
        with pytest.raises(StoreNotFoundError):
            sp.open(url, storage_options=options)

        sp.create(url, storage_options=options)

        with pytest.raises(StoreExistsError):
            sp.create(url, storage_options=options)

    def test_two_processes_that_race_lose_no_commit_and_double_none(self, url: str, options: Options) -> None:
        store = sp.create(url, storage_options=options)
        with store.transaction() as txn:
            txn.create_table("t", SCHEMA)

        command = [sys.executable, "-c", WRITER, url, json.dumps(options)]
        writers = [
            subprocess.Popen([*command, str(writer)], stdout=subprocess.PIPE, text=True)
            for writer in range(2)
        ]
        told = [[int(line) for line in writer.communicate(timeout=120)[0].split()] for writer in writers]

        assert [writer.returncode for writer in writers] == [0, 0]
        assert sorted(told[0] + told[1]) == list(range(2, 42))
        read = store.snapshot().table("t").read().to_pydict()
        found = list(zip(read["writer"], read["number"], strict=True))
        for writer, versions in enumerate(told):
            assert [found[version - 2] for version in versions] == [(writer, number) for number in range(20)]
        check_store(sp.open(url, storage_options=options))
