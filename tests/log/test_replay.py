from __future__ import annotations

from dataclasses import replace

import pytest

from spark_pages.errors import DamageError
from spark_pages.log.replay import ManifestPages, rebase_on_checkpoint, replay
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import (
    CatalogIntent,
    CheckpointRef,
    Claim,
    IntentKind,
    Lease,
    ManifestRef,
    Retention,
    Tag,
)
from spark_pages.model.ids import page_id
from spark_pages.model.location import Location
from tests.log.records import append, commit, create, record, swap
from tests.model.chains import run_of

FIRST = commit(
    0, record(1, (3, 4), splices=(append(1, 1, 0, 3), append(1, 2, 1, 4)), intents=(create(1, "x"),))
)


def no_manifest(manifest: object) -> None:
    raise AssertionError(f"asked for {manifest}")


def after(*commits: object) -> LogState:
    return replay(LogState(), commits, no_manifest)


def test_page_ids_are_formed_from_version_and_ordinal():
    second = commit(1, record(2, (5,), splices=(append(1, 1, 0, 5),)), parent=FIRST)

    chain = LogSnapshot(after(FIRST, second), None).chain((1, 1))

    assert chain.all_pages().page_ids.tolist() == [page_id(0, 0), page_id(1, 0)]


def test_records_of_one_commit_share_its_ordinals_by_their_base():
    one = record(2, (5,), splices=(append(1, 1, 0, 5),))
    two = record(3, (6,), splices=(append(1, 1, 0, 6),), base_ordinal=1)

    state = after(FIRST, commit(1, one, two, parent=FIRST))

    assert LogSnapshot(state, None).chain((1, 1)).all_pages().page_ids.tolist() == [
        page_id(0, 0),
        page_id(1, 0),
        page_id(1, 1),
    ]


def test_replay_in_one_go_and_commit_by_commit_give_the_same_and_leave_older_states_alone():
    second = commit(1, record(2, (5,), splices=(append(1, 1, 0, 5),)), parent=FIRST)
    early = after(FIRST)

    late = replay(early, [second], no_manifest)

    assert LogSnapshot(early, None).chain((1, 1)).num_rows == 3
    assert LogSnapshot(late, None).chain((1, 1)).num_rows == 8
    assert LogSnapshot(after(FIRST, second), None).chain((1, 1)).num_rows == 8
    assert replay(late, [], no_manifest) is late


@pytest.mark.parametrize(
    "wrong",
    [
        commit(2, record(2), parent=FIRST),
        commit(1, record(2)),
        commit(1, record(2), parent=replace(FIRST, digest="00" * 32)),
        commit(0, record(2)),
    ],
    ids=["a gap", "no parent", "another parent", "the same version"],
)
def test_a_commit_that_does_not_continue_the_log_is_damage(wrong):
    with pytest.raises(DamageError, match="does not continue the log"):
        after(FIRST, wrong)


def test_a_transaction_that_is_there_twice_is_damage():
    with pytest.raises(DamageError, match="repeats transaction token"):
        after(FIRST, commit(1, record(1), parent=FIRST))


def test_a_commit_token_that_is_there_twice_is_damage_in_one_refresh_over_several_and_behind_a_checkpoint():
    second = commit(1, record(2), parent=FIRST)
    third = commit(2, record(3), parent=second, token=FIRST.token)
    again = commit(2, record(3), parent=second, token=second.token)
    transactions = commit(2, replace(record(3), token=FIRST.token), parent=second)

    for wrong, earlier in ((third, 0), (again, 1), (transactions, 0)):
        with pytest.raises(DamageError, match=rf"repeats (commit|transaction) token .* of commit {earlier}"):
            after(FIRST, second, wrong)
        with pytest.raises(DamageError, match=rf"token .* of commit {earlier}"):
            replay(after(FIRST, second), [wrong], no_manifest)
    behind_checkpoint = replace(after(FIRST, second), tokens={})
    with pytest.raises(DamageError, match=r"repeats commit token .* of commit 1"):
        replay(behind_checkpoint, [again], no_manifest)


def test_a_splice_that_announces_other_rows_than_its_pages_have_is_damage():
    with pytest.raises(DamageError, match="announces 1 pages with 9 rows"):
        after(commit(0, record(1, (3,), splices=(append(1, 1, 0, 9),))))


def test_a_splice_whose_pages_are_not_in_the_record_is_damage():
    with pytest.raises(DamageError, match=r"takes pages \[4, 5\) of source 0, which does not have them"):
        after(commit(0, record(1, (3,), splices=(append(1, 1, 4, 3),))))


def test_the_bytes_of_page_manifests_count_once_each_also_after_a_newer_checkpoint():
    landed = [FIRST]
    for version in (1, 2, 3):
        manifest = ManifestRef(Location(f"m{version}", 1_000 * version, "d"), 2, 1)
        splices = tuple(replace(append(1, field, 0, 4), source=1) for field in (1, 2))
        landed.append(
            commit(version, record(10 + version, splices=splices, manifests=(manifest,)), parent=landed[-1])
        )

    state = after(*landed)
    moved = rebase_on_checkpoint(state, CheckpointRef(1, Location("root", 1, "d")))

    assert state.tail_bytes - after(FIRST).tail_bytes == pytest.approx(6_000, abs=500)
    assert moved.tail_bytes == 5_000


def test_a_run_of_a_page_manifest_holds_the_ids_of_its_own_pages_alone():
    listed = run_of([2] * 1_000)
    manifest = ManifestRef(Location("m", 1_000, "d"), num_pages=1_000, base_ordinal=7)
    promise = ManifestPages(lambda _: (listed.pages, listed.stats), manifest, 3, 500, 503)

    (run,) = promise()

    assert run.page_ids.tolist() == [page_id(3, 507 + index) for index in range(3)]
    assert run.pages.column("page_id").buffers()[1].size == 3 * 8
    assert run.stats.num_rows == 3


def test_small_things_are_set_replaced_and_taken_away():
    second = commit(
        1,
        record(
            2,
            app_id="etl",
            app_version=7,
            properties={"k": "1"},
            tags=(Tag("a", 2), Tag("b", 2)),
            leases=(Lease("l", 0, 99), Lease("m", 0, 99)),
            claims=(Claim(1, 1, 0, 3, "me", 1, 99),),
            retention=Retention(1, 2),
        ),
        parent=FIRST,
    )
    third = commit(
        2,
        record(
            3,
            properties={"k": "2"},
            tags=(Tag("a", None),),
            leases=(Lease("l", 0, 0),),
            claims=(Claim(1, 1, 0, 3, "you", 2, 99), Claim(1, 2, 0, 3, "you", 2, 0)),
        ),
        parent=second,
    )

    state = after(FIRST, second, third)

    assert state.apps == {"etl": (7, 1)}
    assert state.properties == {"k": "2"}
    assert state.tags == {"b": 2}
    assert list(state.leases) == ["m"]
    assert [claim.owner for claim in state.claims] == ["you"]
    assert state.retention == Retention(1, 2)
    assert state.next_table_id == 2


def test_who_releases_a_claim_too_late_leaves_that_of_the_next_owner():
    late, live = Claim(1, 1, 0, 3, "me", 1, 99), Claim(1, 1, 0, 3, "you", 2, 999)
    second = commit(1, record(2, claims=(late,)), parent=FIRST)
    third = commit(2, record(3, claims=(live,)), parent=second)
    fourth = commit(3, record(4, claims=(replace(late, expires_at_us=0),)), parent=third)
    fifth = commit(4, record(5, claims=(replace(live, expires_at_us=0),)), parent=fourth)

    assert after(FIRST, second, third, fourth).claims == (live,)
    assert after(FIRST, second, third, fourth, fifth).claims == ()


def test_a_dropped_name_is_free_and_its_number_is_never_given_again():
    drop = CatalogIntent(IntentKind.DROP, 1, 0, "x")
    second = commit(1, record(2, intents=(drop,)), parent=FIRST)
    third = commit(2, record(3, intents=(create(2, "x"),)), parent=second)

    state = after(FIRST, second, third)

    assert [d.table_id for d in LogSnapshot(after(FIRST, second), None).tables()] == []
    assert LogSnapshot(state, None).table((0, "x")).table_id == 2
    assert state.next_table_id == 3


def test_a_truncated_table_has_no_rows_and_takes_new_ones():
    truncate = replace(create(1, "x"), kind=IntentKind.TRUNCATE)
    second = commit(1, record(2, intents=(truncate,)), parent=FIRST)
    third = commit(2, record(3, (2,), splices=(append(1, 1, 0, 2),)), parent=second)

    assert LogSnapshot(after(FIRST, second), None).chain((1, 1)).num_rows == 0
    assert LogSnapshot(after(FIRST, second, third), None).chain((1, 1)).num_rows == 2


def test_an_intent_to_truncate_that_does_not_say_which_columns_is_damage():
    truncate = CatalogIntent(IntentKind.TRUNCATE, 1, 0, "x")

    with pytest.raises(DamageError, match="lacks the definition"):
        after(FIRST, commit(1, record(2, intents=(truncate,)), parent=FIRST))


def test_a_rename_frees_the_name_that_it_leaves():
    rename = replace(create(1, "y"), kind=IntentKind.ALTER, old_name=(0, "x"))
    state = after(FIRST, commit(1, record(2, intents=(rename,)), parent=FIRST))

    assert LogSnapshot(state, None).table((0, "x")) is None
    assert LogSnapshot(state, None).table((0, "y")).table_id == 1


def test_a_commit_that_is_not_later_than_its_parent_is_damage():
    second = replace(commit(1, record(2), parent=FIRST), timestamp_us=FIRST.timestamp_us)

    with pytest.raises(DamageError, match="not later than its parent's"):
        after(FIRST, second)


def test_a_splice_of_a_page_that_is_gone_is_damage_when_the_chain_is_asked_for():
    second = commit(1, record(2, splices=(swap(1, 1, (page_id(0, 0),), 3, 0),)), parent=FIRST)
    third = commit(2, record(3, splices=(swap(1, 1, (page_id(0, 0),), 3, 0),)), parent=second)

    with pytest.raises(DamageError, match="contradicts itself"):
        LogSnapshot(after(FIRST, second, third), None).chain((1, 1))
