"""Tables in other processes, as a data loader uses them: inherited by a fork, or pickled."""

from __future__ import annotations

import multiprocessing
import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.query.table import Table
from tests.transaction.stores import store_with

ROWS = 20_000


@dataclass
class Rows:
    """A map-style dataset: what a loader for PyTorch asks of one, without PyTorch."""

    table: Table

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitems__(self, indices: list[int]) -> list[dict[str, object]]:
        return self.table.take(indices).to_pylist()


def work(rows: Rows, shares, answers) -> None:
    for share in iter(shares.get, None):
        answers.put((share, rows.__getitems__(share), sum(b.num_rows for b in rows.table.scan(["n"]))))


def row(number: int) -> dict[str, object]:
    return {"n": number, "s": f"row {number}" * 5}


@pytest.fixture
def store(tmp_path):
    store = sp.create(str(tmp_path / "s"))
    with store.transaction() as txn:
        data = pa.Table.from_pylist([row(number) for number in range(ROWS)])
        txn.create_table("t", data.schema)
        txn.append("t", data)
    return store


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_the_rows_of_a_table_that_their_parent_has_opened_and_read(store, method):
    rows = Rows(store.snapshot().table("t"))
    rows.__getitems__([1, ROWS - 1])
    list(rows.table.scan())
    context = multiprocessing.get_context(method)
    shares, answers = context.SimpleQueue(), context.SimpleQueue()

    workers = [context.Process(target=work, args=(rows, shares, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    asked = [[5, 3, ROWS - 1], [0], [7_000, 7_000], list(range(100))]
    for share in [*asked, None, None]:
        shares.put(share)
    found = [answers.get() for _ in asked]
    for worker in workers:
        worker.join(60)

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert sorted(share for share, _, _ in found) == sorted(asked)
    assert all(given == [row(number) for number in share] for share, given, _ in found)
    assert all(scanned == ROWS for _, _, scanned in found)


def test_a_pickled_table_is_of_the_version_that_it_was(store):
    table = store.snapshot().table("t")
    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [-1]})

    again, elsewhere, earlier = pickle.loads(  # noqa: S301 - our own
        pickle.dumps((table, store, store.snapshot(version=1)))
    )

    assert again.take([0], ["n"])["n"].to_pylist() == [0]
    assert elsewhere.snapshot().table("t").take([0], ["n"])["n"].to_pylist() == [-1]
    assert earlier.version == 1


def test_what_other_processes_cannot_see_is_not_pickled(store):
    in_memory = store_with(pa.table({"n": [1]})).snapshot().table("t")
    with store.transaction() as txn:
        staged = txn.table("t")

        with pytest.raises(InvalidInputError, match="not committed"):
            pickle.dumps(staged)
    with pytest.raises(InvalidInputError, match="Cannot pickle"):
        pickle.dumps(in_memory)
