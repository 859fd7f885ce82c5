from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, CommitUnknownError, TableExistsError
from spark_pages.runtime import Runtime
from spark_pages.storage.store import CreateOutcome, Doubtful, Exists
from spark_pages.store import Store
from tests.invariants import check_store
from tests.transaction.stores import store_with

SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
WRITER = """
import sys
import pyarrow as pa
import spark_pages as sp

store = sp.open(sys.argv[1])
writer = int(sys.argv[2])
for number in range(20):
    with store.transaction() as txn:
        txn.append("t", pa.table({"writer": [writer], "number": [number]}))
    print(txn.version)
"""


class FaultyStore:
    """A store whose `create` sometimes lies or fails, as networks do (seeded)."""

    def __init__(self, inner: Any, seed: int, faults: float = 0.5) -> None:
        self._inner = inner
        self._random = random.Random(seed)
        self._faults = faults
        self.late: list[tuple[str, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, key: str, data: bytes) -> CreateOutcome:
        for late in self.late:
            self._inner.create(*late)
        self.late.clear()
        if self._random.random() >= self._faults:
            return self._inner.create(key, data)
        match self._random.randrange(4):
            case 0:
                self._inner.create(key, data)
                return Doubtful("applied, and the answer was lost")
            case 1:
                return Doubtful("not applied")
            case 2:
                self.late.append((key, data))
                return Doubtful("will be applied later")
            case _:
                self._inner.create(key, data)
                return Exists()


def opened(objects: Any) -> Store:
    """The store opened with a clock that is real and waits that are none."""
    return Store(objects, replace(Runtime(), sleep_s=lambda _: None))


def rows(store: Store) -> list[tuple[int, int]]:
    read = store.snapshot().table("t").read().to_pydict()
    return list(zip(read["writer"], read["number"], strict=True))


def test_two_processes_that_race_lose_no_commit_and_double_none(tmp_path):
    url = str(tmp_path / "store")
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)

    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(i)], stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    told = [[int(line) for line in writer.communicate(timeout=120)[0].split()] for writer in writers]

    assert [writer.returncode for writer in writers] == [0, 0]
    assert all(versions == sorted(versions) for versions in told)
    assert sorted(told[0] + told[1]) == list(range(2, 42))
    found = rows(store)
    assert sorted(found) == [(writer, number) for writer in range(2) for number in range(20)]
    for writer, versions in enumerate(told):
        for number, version in enumerate(versions):
            assert found[version - 2] == (writer, number)
    check_store(store)


def test_of_eight_threads_that_create_the_same_table_exactly_one_wins(tmp_path):
    store = sp.create(str(tmp_path / "store"))

    def create(number: int) -> int | None:
        txn = store.transaction()
        try:
            txn.create_table("t", SCHEMA)
            txn.append("t", pa.table({"writer": [number], "number": [0]}))
            return txn.commit()
        except (CommitConflictError, TableExistsError):
            return None

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(create, range(8)))

    assert len([version for version in versions if version is not None]) == 1
    winner = next(number for number, version in enumerate(versions) if version is not None)
    assert rows(store) == [(winner, 0)]
    check_store(store)


def test_eight_threads_on_one_store_object_append_everything_once():
    store = opened(store_with(schema=SCHEMA).object_store)

    def append(writer: int) -> None:
        for number in range(5):
            with store.transaction() as txn:
                txn.append("t", pa.table({"writer": [writer], "number": [number]}))
            if number == writer:
                store.checkpoint()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(8)))

    assert Counter(rows(store)) == Counter((w, n) for w in range(8) for n in range(5))
    check_store(store)
    check_store(Store(store.object_store))


@pytest.mark.parametrize("seed", range(4))
def test_a_storage_that_lies_about_creates_loses_and_doubles_nothing(seed):
    objects = store_with(schema=SCHEMA).object_store
    writers = [opened(FaultyStore(objects, seed * 10 + writer)) for writer in range(2)]
    expected = []

    for number in range(40):
        order = [0, 1] if number % 3 else [1, 0]
        transactions = {writer: writers[writer].transaction() for writer in order}
        for writer in order:
            txn = transactions[writer]
            txn.append("t", pa.table({"writer": [writer], "number": [number]}))
            txn.commit()
            expected.append((writer, number))

    reader = opened(objects)
    assert rows(reader) == expected
    assert reader.snapshot().version == 1 + len(expected)
    check_store(reader)


def once(store: Store, thread: int, step: int) -> int:
    """Two threads bring the same pair of application and number."""
    txn = store.transaction(app_id=f"app {thread // 2}", app_version=step + 1)
    txn.append("once", pa.table({"writer": [thread // 2], "number": [step]}))
    return txn.commit()


def count_up(store: Store, thread: int, step: int) -> int:
    """One of three counters is read, and is one more."""
    txn = store.transaction()
    value = txn.table("counters").take([thread % 3], ["number"])["number"][0].as_py()
    txn.update_rows("counters", [thread % 3], {"number": [value + 1]})
    return txn.commit()


def number_rows(store: Store, thread: int, step: int) -> int:
    """The row tells how many there were before it."""
    txn = store.transaction(isolation="serializable")
    txn.append("numbered", pa.table({"writer": [thread], "number": [txn.table("numbered").num_rows]}))
    return txn.commit()


def append(store: Store, thread: int, step: int) -> int:
    txn = store.transaction()
    txn.append("t", pa.table({"writer": [thread], "number": [step]}))
    return txn.commit()


@pytest.mark.parametrize("seed", range(2))
def test_of_64_threads_that_share_commits_each_has_its_own_outcome_though_storage_lies(seed):
    objects = store_with(schema=SCHEMA).object_store
    with opened(objects).transaction() as txn:
        for name in ("once", "numbered", "counters"):
            txn.create_table(name, SCHEMA)
        txn.append("counters", pa.table({"writer": [0, 1, 2], "number": [0, 0, 0]}))
    shared, beside = (opened(FaultyStore(objects, seed * 2 + i, faults=0.3)) for i in range(2))
    acts = [append, once, count_up, number_rows]
    acknowledged: list[tuple[Any, int, int, int]] = []
    refused: list[tuple[Any, dict[str, Any]]] = []

    def work(thread: int) -> None:
        for step in range(5):
            act = acts[(thread // 2 + step) % len(acts)]
            try:
                version = act(beside if thread % 16 == 0 else shared, thread, step)
                acknowledged.append((act, thread, step, version))
            except CommitConflictError as error:
                refused.append((act, error.context))

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))

    def done(by: Any) -> list[tuple[int, int, int]]:
        return [(thread, step, version) for act, thread, step, version in acknowledged if act is by]

    reader = opened(objects)
    tables = {name: reader.snapshot().table(name).read().to_pydict() for name in reader.snapshot().tables()}
    assert {act for act, _ in refused} | {count_up} == {count_up, number_rows}
    assert all(told["conflicting_version"] > told["read_version"] for _, told in refused)
    assert all(told["conflicting_writer"] and told["tries"] for _, told in refused)
    assert Counter(rows(reader)) == Counter((thread, step) for thread, step, _ in done(append))
    assert sorted(zip(tables["once"]["writer"], tables["once"]["number"], strict=True)) == sorted(
        {(thread // 2, step) for thread, step, _ in done(once)}
    )
    assert len({(thread // 2, step, version) for thread, step, version in done(once)}) == len(
        tables["once"]["writer"]
    ), "both threads are told the version where their pair has landed"
    assert tables["numbered"]["number"] == list(range(len(done(number_rows))))
    counted = Counter(thread % 3 for thread, _, _ in done(count_up))
    assert tables["counters"]["number"] == [counted[row] for row in range(3)]
    landed = len(acknowledged) - len(done(once)) + len(tables["once"]["writer"])
    assert reader.snapshot().version < 2 + landed, "some have shared a commit"
    check_store(reader)


def test_a_commit_whose_answer_never_came_says_unknown_and_is_not_doubled_by_its_application():
    objects = store_with(schema=SCHEMA).object_store
    clock = iter(range(0, 10_000, 30))
    broken = FaultyStore(objects, 0)
    broken.create = lambda key, data: (objects.create(key, data), Doubtful("no answer"))[1]
    writer = Store(broken, replace(Runtime(), sleep_s=lambda _: None, monotonic_s=lambda: float(next(clock))))
    txn = writer.transaction(app_id="etl", app_version=1)
    txn.append("t", pa.table({"writer": [0], "number": [0]}))

    with pytest.raises(CommitUnknownError, match="find out whether commit 2"):
        txn.commit()
    again = opened(objects).transaction(app_id="etl", app_version=1)
    again.append("t", pa.table({"writer": [0], "number": [0]}))

    assert again.commit() == 2
    assert rows(opened(objects)) == [(0, 0)]
