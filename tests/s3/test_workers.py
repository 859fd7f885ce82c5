"""Tables of an S3 store in spawned workers, as data loaders have them: what travels is address and name."""

from __future__ import annotations

import multiprocessing
import pickle

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.query.table import Table
from tests.s3.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

pytestmark = pytest.mark.s3


def work(table: Table, shares, answers) -> None:
    for share in iter(shares.get, None):
        answers.put((table.version, table.take(share)["a"].to_pylist()))


def test_spawned_workers_read_a_table_of_s3_as_of_its_version_and_no_credential_travels(
    url: str, profile: str
) -> None:
    store = sp.create(url, storage_options={"profile": profile})
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", pa.table({"a": range(100)}))
    table = store.snapshot().table("t")
    table.take([1])
    with store.transaction() as txn:
        txn.update_rows("t", [7], {"a": [-1]})
    context = multiprocessing.get_context("spawn")
    shares, answers = context.SimpleQueue(), context.SimpleQueue()

    workers = [context.Process(target=work, args=(table, shares, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for share in ([7, 3], [99], None, None):
        shares.put(share)
    found = [answers.get() for _ in range(2)]
    for worker in workers:
        worker.join(60)

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert sorted(found) == [(table.version, [7, 3]), (table.version, [99])]
    travelled = pickle.dumps([store, store.snapshot(), table])
    assert not any(each.encode() in travelled for each in (ACCESS_KEY_ID, SECRET_ACCESS_KEY))


def test_where_there_is_no_such_profile_the_store_is_not_opened(
    url: str, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    travelled = pickle.dumps(sp.create(url, storage_options={"profile": profile}))
    monkeypatch.delenv("KEY_OF_THE_TEST")

    with pytest.raises(InvalidInputError, match="KEY_OF_THE_TEST, which is not set"):
        pickle.loads(travelled)  # noqa: S301 - our own bytes
