"""Tables that change while others write to them: what may happen beside each other, and what may not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from spark_pages.errors import CommitConflictError
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.transaction.test_table_changes import SCHEMA, check_like_a_newcomer, rows


@pytest.fixture
def flights(store: Store) -> Store:
    """A store with a table of three rows."""
    with store.transaction() as txn:
        txn.create_table("flights", SCHEMA)
        txn.append("flights", rows(1, 2, 3))
    return store


BREAKING = {
    "drop": lambda txn: txn.drop_table("flights"),
    "truncate": lambda txn: txn.truncate_table("flights"),
    "not null": lambda txn: txn.set_nullable("flights", "s", False),
    "check": lambda txn: txn.add_constraint("flights", "small", check="n < 1000"),
    "primary key": lambda txn: txn.add_constraint("flights", "pk", primary_key=["n"]),
}
HARMLESS = {
    "rename": lambda txn: txn.rename_table("flights", "departures"),
    "rename column": lambda txn: txn.rename_column("flights", "s", "text"),
    "reorder": lambda txn: txn.reorder_columns("flights", ["s", "n"]),
    "comment": lambda txn: txn.set_comment("flights", "all of them"),
    "property": lambda txn: txn.set_table_properties("flights", {"owner": "me"}),
    "widen": lambda txn: txn.widen_column("flights", "s", pa.large_string()),
    "add column": lambda txn: txn.add_column("flights", pa.field("delay", pa.int64()), default=1),
    "add two columns": lambda txn: (
        txn.add_column("flights", pa.field("delay", pa.int64()), default=1),
        txn.add_column("flights", pa.field("gate", pa.string())),
    ),
}
DEFAULTS = {"delay": 1, "gate": None}


def both(flights, change, first, append):
    """A change of the table and an append to it that both have read version 1, in the order of commits."""
    changing, appending = flights.transaction(), Store(flights.object_store).transaction()
    change(changing)
    assert appending.snapshot.version == 1
    append(appending)
    return (changing, appending) if first == "the change" else (appending, changing)


@pytest.mark.parametrize("change", BREAKING.values(), ids=BREAKING)
@pytest.mark.parametrize("first", ["the change", "the append"])
def test_a_change_that_rows_may_break_and_an_append_conflict_whichever_lands_first(flights, change, first):
    one, two = both(flights, change, first, lambda txn: txn.append("flights", rows(4)))

    one.commit()

    with pytest.raises(CommitConflictError, match="flights"):
        two.commit()
    check_like_a_newcomer(flights)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("first", ["the change", "the append"])
@pytest.mark.parametrize("count", [1, 50_000], ids=["inline", "page file"])
def test_an_append_and_a_change_that_no_row_breaks_both_happen_whichever_lands_first(
    flights, change, first, count
):
    one, two = both(flights, change, first, lambda txn: txn.append("flights", rows(*range(count))))

    one.commit()
    two.commit()

    check_like_a_newcomer(flights)
    (name,) = flights.snapshot().tables()
    table = flights.snapshot().table(name)
    found = table.read().to_pydict()
    assert found["n"][3:] == list(range(count))
    for column in table.columns:
        assert len(found[column]) == 3 + count
        if column in DEFAULTS:
            later = None if first == "the change" else DEFAULTS[column]
            assert found[column] == [DEFAULTS[column]] * 3 + [later] * count
    assert flights.verify("all").ok


LOOKS = {
    "reads": lambda txn: txn.table("flights").read(),
    "reads a row": lambda txn: txn.directory("flights").latest("n"),
    "opens what it stands on": lambda txn: txn.snapshot,
    "writes early": lambda txn: txn.append("flights", rows(*range(30_000))),
}


def blind(
    flights: Store, change: Callable[[Transaction], object], more: Callable[[Transaction], object]
) -> Transaction:
    """An append to the table as it was in version 1, that then does more after the table was changed."""
    other = Store(flights.object_store)
    other.snapshot()
    txn = other.transaction("append", memory_bytes=1 << 16)
    txn.append("flights", rows(4))
    with flights.transaction() as changing:
        change(changing)
    more(txn)
    return txn


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("more", LOOKS.values(), ids=LOOKS)
def test_an_append_that_looks_only_after_a_change_that_no_row_breaks_happens_all_the_same(
    flights, change, more
):
    txn = blind(flights, change, more)
    seen = txn.table("flights").read()
    txn.append("flights", rows(5))

    version = txn.commit()

    check_like_a_newcomer(flights)
    (name,) = flights.snapshot().tables()
    found = flights.snapshot().table(name).read().to_pydict()
    assert version == 3
    assert seen.schema.equals(SCHEMA), "all that it reads is of the version that it stands on"
    assert seen["n"].to_pylist() == found["n"][:-1]
    assert (found["n"][:4], found["n"][-1]) == ([1, 2, 3, 4], 5)
    assert set(found.get("delay", [])) <= {1, None}
    assert flights.verify("all").ok


@pytest.mark.parametrize("change", [BREAKING[name] for name in BREAKING if name != "truncate"])
@pytest.mark.parametrize("more", LOOKS.values(), ids=LOOKS)
def test_an_append_that_looks_only_after_a_change_that_its_rows_may_break_is_refused_at_once(
    flights, change, more
):
    with pytest.raises(CommitConflictError, match="'flights'"):
        blind(flights, change, more)


@pytest.mark.parametrize("first", ["the change", "the append"])
def test_a_column_that_is_dropped_takes_an_append_with_it_only_where_that_came_first(flights, first):
    one, two = both(
        flights,
        lambda txn: txn.drop_column("flights", "s"),
        first,
        lambda txn: txn.append("flights", rows(4)),
    )

    one.commit()
    if first == "the change":
        with pytest.raises(CommitConflictError, match="'alter' to table 'flights'"):
            two.commit()
    else:
        two.commit()

    check_like_a_newcomer(flights)


def test_an_update_of_one_column_and_the_end_of_another_both_happen(flights):
    one, two = flights.transaction(), Store(flights.object_store).transaction()
    two.update_rows("flights", [0], {"n": [77]})
    one.drop_column("flights", "s")

    one.commit()
    two.commit()

    assert flights.snapshot().table("flights").read().to_pydict() == {"n": [77, 2, 3]}


def test_a_column_that_no_row_may_be_without_conflicts_with_rows_that_lack_it(flights):
    one, two = both(
        flights,
        lambda txn: txn.add_column("flights", pa.field("delay", pa.int64(), nullable=False), default=5),
        "the change",
        lambda txn: txn.append("flights", rows(4)),
    )
    one.commit()

    with pytest.raises(CommitConflictError, match="flights"):
        two.commit()


def test_an_append_from_a_process_that_has_not_looked_for_long_meets_a_renamed_table_with_more_columns(
    flights, small_trees
):
    late = Store(flights.object_store)
    late.snapshot()
    with flights.transaction() as txn:
        txn.rename_table("flights", "departures")
        txn.add_column("departures", pa.field("delay", pa.int64()), default=1)
    flights.checkpoint()
    for count in (1, 50_000):
        with Store(flights.object_store).transaction() as txn:  # so that the checkpoint is named
            txn.append("departures", pa.table({"n": [0], "s": ["0"], "delay": [0]}))

        with late.transaction() as txn:
            txn.append("flights" if count == 1 else "departures", rows(*range(count)))

    assert flights.snapshot().table("departures").read(["delay"])["delay"].null_count == 50_001
    check_like_a_newcomer(flights)


def test_rows_of_one_group_commit_and_a_new_column_fit_together(flights):
    with flights.transaction() as txn:
        txn.append("flights", rows(4))
    stores = [flights] * 8
    started = threading.Barrier(9)

    def append(number):
        txn = stores[number].transaction()
        txn.append("flights", rows(10 + number))
        started.wait()
        txn.commit()

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(append, number) for number in range(8)]
        txn = flights.transaction()
        txn.add_column("flights", pa.field("delay", pa.int64()), default=1)
        started.wait()
        txn.commit()
        for each in running:
            each.result()

    table = flights.snapshot().table("flights").read()
    assert sorted(table["n"].to_pylist()) == [1, 2, 3, 4, *range(10, 18)]
    assert set(table["delay"].to_pylist()) <= {1, None}
    check_like_a_newcomer(flights)


def test_serializable_isolation_conflicts_with_any_change_of_a_table_that_was_read(flights):
    with flights.transaction() as txn:
        txn.create_table("planes", SCHEMA)
    one = Store(flights.object_store).transaction(isolation="serializable")
    one.append("planes", one.table("flights").read())
    with flights.transaction() as txn:
        txn.truncate_table("flights")

    with pytest.raises(CommitConflictError, match="serializable"):
        one.commit()
