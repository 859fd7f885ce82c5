"""New primary keys land behind whoever brought others, and never behind the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import CommitConflictError, ConstraintError
from spark_pages.maintenance.compact import compact_table
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.effort import examples
from tests.invariants import check_store
from tests.transaction.stores import QUIET

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("part", pa.int64(), nullable=False),
        ("s", pa.string()),
    ]
)


def rows(numbers: Iterable[int], part: int = 0) -> pa.Table:
    held = list(numbers)
    return pa.table({"n": held, "part": [part] * len(held), "s": [f"row {n}" for n in held]}, SCHEMA)


def keyed(*key: str, count: int = 4) -> Store:
    quiet = {name: value for name, value in QUIET.items() if name != "tail_page_bytes"}
    store = sp.create(f"memory://{uuid4().hex}", properties=quiet)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.add_constraint("t", "t_key", primary_key=list(key or ["n"]))
        txn.append("t", rows(range(count)))
    return store


def append(store: Store, *numbers: int, part: int = 0) -> None:
    """The rows come from another process."""
    with Store(store.object_store).transaction("append") as txn:
        txn.append("t", rows(numbers, part))


def update(store: Store, row: int, value: object, column: str = "n") -> None:
    with Store(store.object_store).transaction("correct") as txn:
        txn.update_rows("t", [row], {column: [value]})


def appending(store: Store, *numbers: int, **given: str) -> Transaction:
    txn = store.transaction("ingest", **given)
    txn.append("t", rows(numbers))
    return txn


def column(store: Store, name: str = "n") -> list[object]:
    return Store(store.object_store).snapshot().table("t").read()[name].to_pylist()


# what leaves the keys alone


def test_an_append_lands_behind_appends_with_other_keys() -> None:
    store = keyed()
    txn = appending(store, 10, 11)

    append(store, 20)
    append(store, 21, 22)
    txn.commit()

    assert column(store) == [0, 1, 2, 3, 20, 21, 22, 10, 11]
    check_store(store)


@pytest.mark.parametrize(
    "other",
    [
        lambda store: update(store, 1, "another", "s"),
        lambda store: update(store, 1, 77),
        lambda store: compact_table(Store(store.object_store).transaction, "t", Runtime()),
    ],
    ids=["an update of what is no key", "an update to another key", "page compaction"],
)
def test_an_append_lands_behind(other: Callable[[Store], object]) -> None:
    store = keyed()
    append(store, 4)
    txn = appending(store, 10)

    other(store)
    txn.commit()

    assert column(store)[-1] == 10
    assert Store(store.object_store).snapshot().table("t").num_rows == 6
    check_store(store)


def test_appends_of_many_threads_all_land() -> None:
    store = keyed()
    start = threading.Barrier(8)

    def write(thread: int) -> None:
        start.wait()
        for number in range(5):
            with store.transaction() as txn:
                txn.append("t", rows([100 * (1 + thread) + number]))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))

    expected = {*range(4), *(100 * (1 + thread) + number for thread in range(8) for number in range(5))}
    assert len(column(store)) == 44
    assert set(column(store)) == expected
    check_store(store)


def test_what_is_compared_once_more_is_what_landed_and_not_what_the_transaction_brings() -> None:
    store = keyed(count=50_000)
    with store.transaction() as txn:
        txn.append("t", rows(range(-50_000, 0)))
    other = Store(store.object_store)
    txn = other.transaction()
    txn.append("t", rows([*range(100_000, 150_000)]))

    append(store, 99_999)
    other.snapshot()
    before = other.cache_stats.requests
    txn.commit()

    assert other.cache_stats.requests == before  # of pages; the key that landed rides in its commit
    check_store(store)


# what does not


def test_the_same_key_does_not_land_twice() -> None:
    store = keyed()
    txn = appending(store, 10, 20)

    append(store, 20)
    with pytest.raises(ConstraintError, match=r"\{'n': 20\}.*Nothing was committed"):
        txn.commit()

    assert column(store) == [0, 1, 2, 3, 20]
    check_store(store)


def test_a_key_that_an_update_has_taken_does_not_land() -> None:
    store = keyed()
    txn = appending(store, 10)

    update(store, 2, 10)
    with pytest.raises(ConstraintError, match="10"):
        txn.commit()

    assert column(store) == [0, 1, 10, 3]


def test_an_update_to_a_key_lands_behind_others_and_not_behind_the_same() -> None:
    store = keyed()
    fine, late = store.transaction(), store.transaction()
    fine.update_rows("t", [1], {"n": [10]})
    late.update_rows("t", [2], {"n": [11]})

    append(store, 11)
    fine.commit()
    with pytest.raises(ConstraintError, match="11"):
        late.commit()

    assert column(store) == [0, 10, 2, 3, 11]
    check_store(store)


def test_a_key_of_two_columns_is_compared_as_both_have_left_it() -> None:
    """Either update alone is right; both together make the key of row 1 that of row 0."""
    store = keyed("n", "part", count=1)
    append(store, 1, part=1)
    txn = store.transaction()
    txn.update_rows("t", [1], {"n": [0]})

    update(store, 1, 0, "part")
    with pytest.raises(ConstraintError, match="'n': 0, 'part': 0"):
        txn.commit()

    assert (column(store), column(store, "part")) == ([0, 1], [0, 0])


@pytest.mark.parametrize(
    "ddl",
    [
        lambda txn: txn.truncate_table("t"),
        lambda txn: txn.rename_table("t", "u"),
        lambda txn: txn.drop_constraint("t", "t_key"),
    ],
    ids=["truncate", "rename", "no key any more"],
)
def test_a_table_that_became_another_is_a_conflict(ddl: Callable[[Transaction], object]) -> None:
    store = keyed()
    txn = appending(store, 10)

    with Store(store.object_store).transaction() as other:
        ddl(other)
    with pytest.raises(CommitConflictError):
        txn.commit()


def test_serializable_isolation_keeps_its_word() -> None:
    store = keyed()
    txn = appending(store, 10, isolation="serializable")

    append(store, 20)
    with pytest.raises(CommitConflictError, match="serializable"):
        txn.commit()


_STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 12), min_size=1, max_size=3)),
    st.tuples(st.just("update"), st.tuples(st.integers(0, 3), st.integers(0, 12))),
)


@settings(max_examples=examples(80), deadline=None)
@given(_STEP, st.lists(_STEP, max_size=4))
def test_whatever_lands_keys_are_unique_and_only_what_clashes_is_refused(
    mine: tuple[str, object], others: list[tuple[str, object]]
) -> None:
    store = keyed()
    held = [0, 1, 2, 3]
    txn = store.transaction()
    staged = _take(txn, mine, held)
    if len(set(staged)) < len(staged):
        with pytest.raises(ConstraintError):
            txn.commit()
        return
    touched: set[int] = set()
    for step in others:
        other = Store(store.object_store).transaction()
        after = _take(other, step, held)
        if len(set(after)) == len(after):
            other.commit()
            held = after
            touched |= {step[1][0]} if step[0] == "update" else set()
        else:
            other.rollback()

    expected = _after(mine, held)
    if mine[0] == "update" and mine[1][0] in touched:
        with pytest.raises(CommitConflictError):
            txn.commit()
    elif len(set(expected)) < len(expected):
        with pytest.raises(ConstraintError):
            txn.commit()
    else:
        txn.commit()
        held = expected

    assert column(store) == held


def _take(txn: Transaction, step: tuple[str, object], held: list[int]) -> list[int]:
    if step[0] == "append":
        txn.append("t", rows(step[1]))
    else:
        txn.update_rows("t", [step[1][0]], {"n": [step[1][1]]})
    return _after(step, held)


def _after(step: tuple[str, object], held: list[int]) -> list[int]:
    if step[0] == "append":
        return [*held, *step[1]]
    row, value = step[1]
    return [value if each == row else old for each, old in enumerate(held)]


# small appends


def test_a_stream_of_single_keys_leaves_few_pages_and_each_is_compared() -> None:
    store = keyed(count=1)

    for number in range(1, 64):
        with store.transaction() as txn:
            txn.append("t", rows([number]))
        with pytest.raises(ConstraintError, match=f"'n': {number // 2}"), store.transaction() as txn:
            txn.append("t", rows([number // 2]))

    assert store.snapshot().table("t").pages("n")["entry_count"].to_pylist() == [64]
    assert column(store) == list(range(64))
    check_store(store)


def test_an_append_that_would_take_pages_along_lands_as_a_plain_one_behind_other_keys() -> None:
    store = keyed(count=1)
    append(store, 1, 2)
    append(store, 3)
    fine, late = appending(store, 4), appending(store, 5)

    append(store, 5)
    fine.commit()
    with pytest.raises(ConstraintError, match="'n': 5"):
        late.commit()

    assert column(store) == [0, 1, 2, 3, 5, 4]
    check_store(store)
