"""Temporary tables: of one transaction, in memory, and of no commit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.store import Store

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def flights(store: Store) -> Store:
    with store.transaction() as txn:
        txn.create_table("flights", SCHEMA)
        txn.append("flights", {"n": [1, 2]})
    return store


def test_a_temporary_table_is_read_and_written_by_its_transaction_and_gone_after_it(flights):
    with flights.transaction() as txn:
        txn.create_table("temp.stage", SCHEMA)
        txn.append("temp.stage", {"n": [5, 6]})
        txn.add_column("temp.stage", pa.field("m", pa.int64()), default=1)
        staged = txn.table("temp.stage").read(filter="n > 5").to_pylist()
        txn.append("flights", txn.table("stage").read(["n"]))

    assert staged == [{"n": 6, "m": 1}]
    assert flights.snapshot().tables() == ["flights"]
    assert flights.snapshot().table("flights").read()["n"].to_pylist() == [1, 2, 5, 6]
    assert flights.snapshot().table("system.tables").num_rows == 2
    with pytest.raises(TableNotFoundError):
        flights.transaction().table("temp.stage")
    assert flights.verify(pages="all").ok


def test_a_temporary_table_is_in_no_commit_and_leaves_nothing_in_storage(flights):
    before = [info.key for info in flights.object_store.list("")]
    noise = np.random.default_rng(0).integers(0, 1 << 62, 200_000)

    with flights.transaction(memory_bytes=1 << 20) as txn:
        txn.create_table("temp.stage", SCHEMA)
        txn.append("temp.stage", {"n": noise})
        assert txn.table("stage").num_rows == len(noise)

    assert txn.version == 1
    assert [info.key for info in flights.object_store.list("")] == before


def test_beside_others_it_leaves_no_trace_in_the_commit(flights):
    with flights.transaction() as txn:
        txn.create_table("temp.stage", SCHEMA)
        txn.append("temp.stage", {"n": [5]})
        txn.create_table("planes", SCHEMA)
        txn.append("planes", {"n": [7]})

    (commit,) = flights._log.commits(2, 3)
    (record,) = commit.records
    assert [intent.name for intent in record.intents] == ["planes"]
    assert {splice.table_id for splice in record.splices} == {0, 2}
    assert flights.snapshot().log.state.next_table_id == 3


def test_its_id_has_the_top_bit_set(flights):
    txn = flights.transaction()
    txn.create_table("temp.a", SCHEMA)
    txn.create_table("temp.b", SCHEMA)

    ids = [txn.table(name).definition.table_id for name in ("temp.a", "temp.b")]

    assert [np.int64(each).view(np.uint64) for each in ids] == [2**63 + 1, 2**63 + 2]


def test_it_comes_before_its_namesake_where_no_namespace_is_said(flights):
    with flights.transaction() as txn:
        txn.create_table("temp.flights", SCHEMA)
        txn.append("flights", {"n": [9]})
        assert txn.table("flights").read()["n"].to_pylist() == [9]
        assert txn.table("default.flights").num_rows == 2
        txn.drop_table("flights")
        assert txn.table("flights").num_rows == 2
        txn.append("flights", {"n": [3]})

    assert flights.snapshot().table("flights").read()["n"].to_pylist() == [1, 2, 3]


def test_others_do_not_see_it(flights):
    txn, other = flights.transaction(), flights.transaction()
    txn.create_table("temp.stage", SCHEMA)

    with pytest.raises(TableNotFoundError):
        other.append("temp.stage", {"n": [1]})
    other.create_table("temp.stage", pa.schema([("s", pa.string())]))
    assert other.table("stage").columns == ["s"]
    txn.rollback()


def test_a_table_is_temporary_or_not_from_beginning_to_end(flights):
    txn = flights.transaction()
    txn.create_table("temp.stage", SCHEMA)
    for old, new in (("temp.stage", "stage"), ("flights", "temp.flights")):
        with pytest.raises(InvalidInputError, match="a temporary table stays one"):
            txn.rename_table(old, new)
    txn.rename_table("temp.stage", "temp.other")
    with pytest.raises(InvalidInputError, match="foreign key"):
        txn.add_constraint("temp.other", "fk", foreign_key=(["n"], "flights", ["n"]))
    with pytest.raises(InvalidInputError, match="every store has it"):
        txn.drop_namespace("temp")
