"""What a transaction sees, and what becomes of it when others commit beside it or storage is in doubt."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    NamespaceNotFoundError,
    NotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.format.commit import decode_slot, encode_commit
from spark_pages.format.names import commit_key
from spark_pages.maintenance.claims import claim_rows, release_claims
from spark_pages.maintenance.compact import compact_table
from spark_pages.model.actions import Claim, IntentKind, Tombstone
from spark_pages.runtime import Runtime, writer_name
from spark_pages.store import Store
from tests.log.records import commit, create, record
from tests.transaction.stores import Doubting, metered, store_with

ROWS = pa.table({"n": [1, 2, 3]})


# its own writes


def test_a_transaction_reads_its_own_appends_and_updates_and_nobody_else_does():
    store = store_with(ROWS)

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4]}))
        txn.update_rows("t", [0], {"n": [10]})
        txn.append("t", pa.table({"n": [5]}))
        own = txn.table("t")
        others = store.snapshot().table("t")

        assert own.read().to_pydict() == {"n": [10, 2, 3, 4, 5]}
        assert own.take([4, 0]).to_pydict() == {"n": [5, 10]}
        assert own.num_rows == 5
        assert others.read().to_pydict() == {"n": [1, 2, 3]}

    assert store.snapshot().table("t").read().to_pydict() == {"n": [10, 2, 3, 4, 5]}


def test_a_transaction_reads_a_table_that_it_has_created_itself():
    store = store_with(ROWS)

    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
        txn.append("u", ROWS)

        assert txn.table("u").read() == ROWS
        assert store.snapshot().tables() == ["t"]


def test_pages_that_go_to_a_page_file_are_read_before_they_are_written():
    store = store_with(pa.table({"n": pa.array([], pa.int64())}))
    many = pa.table(
        {"n": np.random.default_rng(1).integers(-(2**60), 2**60, 100_000)}
    )  # no codec makes it small

    with store.transaction() as txn:
        txn.append("t", many)

        assert txn.table("t").read() == many
        assert not store.object_store.list("pages/")


def test_pages_that_are_on_their_way_to_a_page_file_are_read_when_they_are_there():
    made = store_with(ROWS)
    store = Store(
        made.object_store, Runtime(spawn=lambda work: lambda _timeout_s: work())
    )  # only when waited for

    with store.transaction(memory_bytes=1) as txn:
        txn.append("t", pa.table({"n": [4]}))

        assert txn.table("t").read().to_pydict() == {"n": [1, 2, 3, 4]}


def test_what_a_serializable_transaction_has_read_must_not_change_before_it_commits():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)

    reader = store.transaction(isolation="serializable")
    total = sum(reader.table("t").read()["n"].to_pylist())
    with store.transaction() as txn:
        txn.append("t", ROWS)
    reader.append("u", pa.table({"n": [total]}))

    with pytest.raises(CommitConflictError, match="serializable"):
        reader.commit()


@pytest.mark.parametrize(
    "look",
    [
        lambda txn: txn.snapshot.table("t").read(),
        lambda txn: txn.directory("t").latest("n"),
        lambda txn: txn.table("t").read(filter="n > 5"),
        lambda txn: txn.table("t").scan().read_all(),
        lambda txn: txn.table("t").take([0]),
        lambda txn: txn.table("t").aggregate("n"),
        lambda txn: txn.table("t").pages(),
        lambda txn: txn.table("t").num_rows,
        lambda txn: txn.table("t").schema,
    ],
)
def test_however_a_serializable_transaction_has_read_a_table_nobody_may_change_it(look):
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
    reader = store.transaction(isolation="serializable")
    look(reader)
    reader.append("u", ROWS)

    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [5]})

    with pytest.raises(CommitConflictError, match="it changed rows of table"):
        reader.commit()


def looked_in_vain(look, refusal=TableNotFoundError):
    """What a transaction does that is refused: something is not there, or a name is taken."""

    def act(txn):
        with pytest.raises(refusal):
            look(txn)

    return act


@pytest.mark.parametrize(
    "look",
    [
        lambda txn: txn.snapshot.tables(),
        lambda txn: txn.snapshot.namespaces(),
        lambda txn: txn.snapshot.table("system.columns").read(),
        lambda txn: txn.table("system.tables").read(),
        looked_in_vain(lambda txn: txn.table("new")),
        looked_in_vain(lambda txn: txn.snapshot.table("new")),
        looked_in_vain(lambda txn: txn.directory("new")),
        looked_in_vain(lambda txn: txn.append("new", ROWS)),
        looked_in_vain(lambda txn: txn.update_rows("new", [0], {"n": [1]})),
        looked_in_vain(lambda txn: txn.drop_table("new")),
        looked_in_vain(lambda txn: txn.undrop_table("new")),
        looked_in_vain(lambda txn: txn.create_table("t", ROWS.schema), TableExistsError),
        looked_in_vain(lambda txn: txn.create_table("new.t", ROWS.schema), NamespaceNotFoundError),
        looked_in_vain(lambda txn: txn.drop_type("new"), NotFoundError),
    ],
)
def test_a_serializable_transaction_that_has_looked_at_the_catalog_meets_whoever_changes_it(look):
    store = store_with(ROWS)
    lookers = [store.transaction(isolation=isolation) for isolation in ("serializable", "snapshot")]
    for each in lookers:
        look(each)
        each.append("t", ROWS)

    with store.transaction() as txn:
        txn.create_table("new", ROWS.schema)

    with pytest.raises(CommitConflictError, match="it changed the catalog"):
        lookers[0].commit()
    lookers[1].commit()


def test_what_a_serializable_transaction_was_refused_it_stands_by_though_a_vacuum_sends_it_on():
    store = store_with(ROWS)
    looker = store.transaction(isolation="serializable")
    with pytest.raises(TableNotFoundError):
        looker.table("new")
    with store.transaction() as txn:
        txn.create_table("new", ROWS.schema)

    looker.refresh()
    looker.append("t", ROWS)

    with pytest.raises(CommitConflictError, match="it changed the catalog"):
        looker.commit()


@pytest.mark.parametrize(
    "refused",
    [
        lambda txn: txn.update_rows("t", [3], {"n": [1]}),
        lambda txn: txn.append("t", pa.table({"m": [1]})),
    ],
)
def test_of_a_table_that_refused_a_serializable_transaction_nobody_may_change_what_told_it_so(refused):
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
    looker = store.transaction(isolation="serializable")
    with pytest.raises(InvalidInputError):
        refused(looker)
    looker.append("u", ROWS)

    with store.transaction() as txn:
        txn.append("t", ROWS)

    with pytest.raises(CommitConflictError, match="it changed rows of table"):
        looker.commit()


def test_a_serializable_transaction_that_has_looked_at_the_catalog_lets_others_write_rows():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
    looker = store.transaction(isolation="serializable")
    assert looker.snapshot.tables() == ["t", "u"]
    looker.append("u", ROWS)

    with store.transaction() as txn:
        txn.append("t", ROWS)

    assert looker.commit() == txn.version + 1


def test_under_snapshot_isolation_the_same_reader_commits():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)

    reader = store.transaction()
    total = sum(reader.table("t").read()["n"].to_pylist())
    with store.transaction() as txn:
        txn.append("t", ROWS)
    reader.append("u", pa.table({"n": [total]}))
    reader.commit()

    assert store.snapshot().table("u").read().to_pydict() == {"n": [6]}


# on which version it stands


def test_an_append_asks_storage_for_nothing_but_its_commit():
    store, meter = metered(store_with(ROWS))
    assert store.snapshot().table("t").num_rows == 3
    before = meter.counts

    with store.transaction() as txn:
        txn.append("t", ROWS)

    counts = meter.counts - before
    assert (counts.creates, counts.requests) == (1, 1)


def test_a_reader_of_the_transaction_sees_what_another_process_has_committed_before():
    store = store_with(ROWS)
    other = Store(store.object_store)
    store.snapshot()
    with other.transaction() as txn:
        txn.append("t", ROWS)

    assert store.transaction().snapshot.table("t").num_rows == 6
    assert store.transaction().table("t").num_rows == 6


def test_an_append_to_a_table_that_another_process_has_just_created_finds_it():
    store = store_with(ROWS)
    other = Store(store.object_store)
    store.snapshot()
    with other.transaction() as txn:
        txn.create_table("new", ROWS.schema)

    with store.transaction() as txn:
        txn.append("new", ROWS)

    assert store.snapshot().table("new").num_rows == 3


def test_a_large_append_that_is_put_behind_others_again_and_again_writes_its_pages_once():
    store, meter = metered(store_with(ROWS))
    many = pa.table({"n": np.random.default_rng(1).integers(-(2**60), 2**60, 60_000)})
    txn = store.transaction()
    txn.append("t", many)
    assert txn.table("t").num_rows == 60_003
    others = Store(meter._inner)
    for number in range(3):
        with others.transaction() as other:
            other.append("t", ROWS)
        with others.transaction() as other:
            other.create_table(f"u{number}", ROWS.schema)
    before = meter.counts

    txn.commit()

    counts = meter.counts - before
    (file,) = others.object_store.list("pages/")
    assert counts.creates > 1, "it has lost a slot"
    assert counts.puts == 1
    assert counts.bytes_written < file.size_bytes * 1.1
    assert others.snapshot().table("t").read()["n"][12:] == many["n"]


def truncated(store: Store) -> None:
    """Another process truncates table ``t``."""
    head = store.snapshot().log
    definition = head.table((0, "t"))
    intent = replace(create(1, "t"), kind=IntentKind.TRUNCATE, definition=definition)
    (parent,) = store._log.commits(head.state.version, head.state.version + 1)
    made = commit(head.state.version + 1, record(70, intents=(intent,)), parent=parent)
    made = replace(made, timestamp_us=parent.timestamp_us + 1)
    store.object_store.create(commit_key(made.version), encode_commit(made)[0])


def test_an_append_that_begins_after_a_truncation_by_another_process_does_not_conflict_with_it():
    store = store_with(ROWS)
    store.snapshot()
    truncated(Store(store.object_store))

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [9]}))

    assert store.snapshot().table("t").read().to_pydict() == {"n": [9]}


def test_an_append_of_a_transaction_that_had_read_before_the_truncation_does_conflict():
    store = store_with(ROWS)
    txn = store.transaction()
    txn.table("t")
    truncated(Store(store.object_store))
    txn.append("t", pa.table({"n": [9]}))

    with pytest.raises(CommitConflictError, match="truncate"):
        txn.commit()


# conflicts


def test_a_conflict_names_versions_writers_chains_and_tries():
    store = store_with(ROWS)
    one, two = store.transaction("fix one"), store.transaction("fix two")
    for txn in (one, two):
        txn.update_rows("t", [0], {"n": [7]})
    one.commit()

    told = "both replace 1 page of column 'n' of table 't'.*after 1 try"
    with pytest.raises(CommitConflictError, match=told) as failure:
        two.commit()

    context = failure.value.context
    assert (context["read_version"], context["conflicting_version"]) == (2, 3)
    assert context["chains"] == [[1, 1]]
    assert context["tries"] == 1
    assert "fix one" in str(failure.value)
    assert str(failure.value).count("@") == 2, "both writers are named"


# doubt


def in_doubt(lands: bool) -> tuple[Store, Doubting, CommitUnknownError]:
    """A store with an append of which nobody knows what became."""
    objects = Doubting(store_with(ROWS), lands)
    seconds = count()
    store = Store(objects, replace(Runtime(), monotonic_s=lambda: next(seconds), sleep_s=lambda _: None))
    txn = store.transaction()
    txn.append("t", ROWS)
    objects.broken = True
    with pytest.raises(CommitUnknownError, match="Cannot find out whether") as failure:
        txn.commit()
    objects.broken = False
    return store, objects, failure.value


@pytest.mark.parametrize("landed", [False, True])
def test_a_commit_in_doubt_is_resumed_and_is_there_exactly_once(landed):
    store, objects, error = in_doubt(landed)
    error = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here

    version = Store(objects).resume(error)
    again = store.resume(error)

    assert version == again == 3
    assert store.snapshot().version == 3
    assert store.snapshot().table("t").num_rows == 6


def test_a_commit_in_doubt_that_landed_is_resumed_though_its_slot_has_been_cleaned():
    store, objects, error = in_doubt(lands=True)
    other = Store(objects)
    with other.transaction() as txn:
        txn.append("t", pa.table({"n": [9]}))
    other.checkpoint()
    other.vacuum(retention=1)

    version = store.resume(error)

    assert version == 3
    assert isinstance(decode_slot(objects.get(commit_key(version)), "slot"), Tombstone)
    assert store.snapshot().table("t").read().to_pydict() == {"n": [1, 2, 3, 1, 2, 3, 9]}


def test_a_commit_in_doubt_whose_slot_another_has_taken_is_told_as_a_conflict():
    store, objects, error = in_doubt(lands=False)
    other = Store(objects)
    with other.transaction() as txn:
        txn.append("t", pa.table({"n": [9]}))

    with pytest.raises(CommitConflictError, match="another commit") as failure:
        store.resume(error)

    chain = [1, 1]
    assert failure.value.context == {
        "read_version": 2,
        "conflicting_version": 3,
        "conflicting_writer": writer_name(),
        "chains": [chain],
        "tries": 2,
    }
    assert "2 tries" in failure.value.message
    assert store.snapshot().table("t").read().to_pydict() == {"n": [1, 2, 3, 9]}


def test_a_commit_in_doubt_whose_slot_was_taken_and_cleaned_is_a_conflict_with_somebody():
    store, objects, error = in_doubt(lands=False)
    other = Store(objects)
    for n in (9, 10):
        with other.transaction() as txn:
            txn.append("t", pa.table({"n": [n]}))
    other.vacuum(retention=1)

    with pytest.raises(CommitConflictError, match="of somebody") as failure:
        store.resume(error)

    told = failure.value.context
    assert (told["read_version"], told["conflicting_version"]) == (2, 3)
    assert (told["chains"], told["tries"]) == ([], 2)


class Stopping:
    """Storage whose creates wait until they may go on; from the second on, who asks is stopped by ^C."""

    def __init__(self, store: Store, lands: bool) -> None:
        self._inner = store.object_store
        self._lands = lands
        self.creates = 0
        self.may_go_on = threading.Event()

    def create(self, key, data):
        self.creates += 1
        stops = self.creates > 1
        assert self.may_go_on.wait(60)
        outcome = self._inner.create(key, data) if self._lands or not stops else None
        if stops:
            raise KeyboardInterrupt
        return outcome

    def __getattr__(self, name):
        return getattr(self._inner, name)


@pytest.mark.parametrize("landed", [False, True])
def test_a_member_whose_leader_was_stopped_can_resume_the_commit_of_both(landed):
    made = store_with(ROWS)
    objects = Stopping(made, landed)
    store = Store(objects)
    store.snapshot()

    def commit_row(n: int) -> None:
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [n]}))

    with ThreadPoolExecutor(3) as threads:
        ends = []
        for n in (4, 5, 6):  # the first one keeps the other two waiting
            ends.append(threads.submit(commit_row, n))
            deadline = time.monotonic() + 60
            while objects.creates + len(store._log._group._waiting) < len(ends):
                assert time.monotonic() < deadline
                time.sleep(0.001)
        objects.may_go_on.set()
        first, leader, member = [end.exception(60) for end in ends]

    assert (first, type(leader)) == (None, KeyboardInterrupt)
    assert isinstance(member, CommitUnknownError)
    assert made.resume(member) == made.resume(member) == 4
    assert made.snapshot().table("t").read().to_pydict() == {"n": [1, 2, 3, 4, 5, 6]}


def test_only_an_error_that_carries_the_commit_can_be_resumed():
    with pytest.raises(InvalidInputError, match="does not carry"):
        store_with(ROWS).resume(CommitUnknownError("lost"))


# claims


def small_pages() -> Store:
    return store_with(*(pa.table({"n": [i]}) for i in range(4)))


def test_a_claim_keeps_other_owners_away_until_it_expires_or_is_released():
    store = small_pages()
    now = [1_000_000]
    runtime = replace(Runtime(), now_us=lambda: now[0])

    mine = claim_rows(store.transaction, {(1, 1): (0, 4)}, "me", runtime, seconds=1)
    theirs = claim_rows(store.transaction, {(1, 1): (2, 6)}, "them", runtime)
    beside = claim_rows(store.transaction, {(1, 1): (4, 6)}, "them", runtime, seconds=1)
    now[0] += 2_000_000
    later = claim_rows(store.transaction, {(1, 1): (2, 6)}, "them", runtime)

    assert [claim.owner for claim in mine] == ["me"]
    assert theirs == []
    assert len(beside) == 1
    assert mine[0].fence < beside[0].fence < later[0].fence
    assert store.snapshot().log.state.claims == tuple(later), "expired claims in the way are gone"


def test_a_fencing_number_never_comes_again_after_a_release():
    store = small_pages()

    fences = []
    for owner in ("me", "them", "a third"):
        claims = claim_rows(store.transaction, {(1, 1): (0, 4)}, owner, Runtime())
        fences += [claim.fence for claim in claims]
        with store.transaction() as txn:
            release_claims(txn, claims)

    assert fences == sorted(set(fences))
    assert len(fences) == 3


def test_claims_of_different_rows_at_the_same_moment_may_share_a_number_that_is_less_than_any_later_one():
    store = small_pages()
    opened = [store.transaction() for _ in range(2)]
    assert len({txn.snapshot.version for txn in opened}) == 1

    at_once = [
        claim_rows(lambda txn=txn: txn, {(1, 1): rows}, owner, Runtime(), seconds=-1)
        for txn, rows, owner in zip(opened, [(0, 2), (2, 4)], ("me", "them"), strict=True)
    ]
    across = claim_rows(store.transaction, {(1, 1): (1, 3)}, "a third", Runtime())

    (one,), (two,), (third,) = *at_once, across
    assert one.fence == two.fence < third.fence


def test_of_two_owners_that_claim_at_the_same_moment_one_gets_the_rows():
    store = small_pages()
    one, two = store.transaction(), store.transaction()
    assert one.snapshot.version == two.snapshot.version
    for txn, owner in ((one, "me"), (two, "them")):
        txn.claim(Claim(1, 1, 0, 4, owner, 1, 10**18))
    one.commit()

    with pytest.raises(CommitConflictError, match=r"'me' holds rows 0 to 4"):
        two.commit()


def test_page_compaction_leaves_rows_that_another_job_has_claimed():
    store = small_pages()
    claim_rows(store.transaction, {(1, 1): (0, 4)}, "them", Runtime())

    (result,) = store.compact_pages("t")

    assert (result["version"], result["claimed_by_others"]) == (None, 1)
    assert store.snapshot().table("t").pages().num_rows == 4


def test_page_compaction_releases_its_claims_with_its_commit():
    store = small_pages()

    (result,) = store.compact_pages("t")

    assert (result["pages_before"], result["pages_after"]) == (4, 1)
    assert store.snapshot().log.state.claims == ()
    assert store.snapshot().table("t").read().to_pydict() == {"n": [0, 1, 2, 3]}


def test_page_compaction_that_fails_releases_its_claims():
    store = small_pages()

    def begin(operation):
        txn = store.transaction(operation)
        if operation == "compact pages" and store.snapshot().log.state.claims:
            assert txn.snapshot.version == store.snapshot().version, "it stands on what it has seen"
            with store.transaction() as other:
                other.update_rows("t", [0], {"n": [8]})
        return txn

    with pytest.raises(CommitConflictError):
        compact_table(begin, "t", Runtime())

    assert store.snapshot().log.state.claims == ()
