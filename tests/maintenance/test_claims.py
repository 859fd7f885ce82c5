"""Claims as users take, list and release them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import ColumnNotFoundError, CommitConflictError, InvalidInputError
from spark_pages.log.claims import check_free
from spark_pages.log.commit.protocol_types import by_ids
from spark_pages.model.actions import Claim
from tests.maintenance.vacuum.stores import Clock, Past, new_past, opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def past(clock: Clock) -> Past:
    past = new_past(clock)
    past.append("small", 1, rows=10)
    return past


def held(past: Past) -> list[tuple[str, int, int]]:
    return [(row["owner"], row["first_row"], row["end_row"]) for row in past.store.claims().to_pylist()]


def test_rows_that_another_owner_holds_cannot_be_claimed_and_the_owner_is_named(past: Past):
    past.store.claim("small", ["x"], 0, 5, owner="first")

    held_by = r"rows 4 to 8 of column 'x' of table 'small': 'first' holds"
    with pytest.raises(CommitConflictError, match=held_by) as told:
        opened(past.object_store, Clock()).claim("small", ["x"], 4, 8, owner="second")

    assert told.value.context["owner"] == "first"
    assert held(past) == [("first", 0, 5)]


def test_a_transaction_by_hand_cannot_replace_the_claim_of_another_owner(past: Past, clock: Clock):
    (mine,) = past.store.claim("small", ["x"], 0, 5, owner="first").claims

    txn = past.store.transaction()
    txn.claim(replace(mine, owner="second", fence=mine.fence + 1))
    with pytest.raises(CommitConflictError, match="'first' holds rows 0 to 5"):
        txn.commit()

    assert held(past) == [("first", 0, 5)]


def test_of_two_owners_who_claim_at_the_same_moment_the_second_is_told_of_the_first(past: Past):
    second = opened(past.object_store, Clock())
    second.snapshot()
    past.store.claim("small", ["x"], 0, 5, owner="first")

    with pytest.raises(CommitConflictError, match="first"):
        second.claim("small", ["x"], 0, 5, owner="second")


def test_rows_beside_those_of_others_can_be_claimed(past: Past):
    past.store.claim("small", ["x"], 0, 5, owner="first")
    past.store.claim("small", ["x"], 5, owner="second")

    assert held(past) == [("first", 0, 5), ("second", 5, 10)]


def test_rows_are_free_once_they_are_released_or_the_claim_has_expired(past: Past, clock: Clock):
    with past.store.claim("small", owner="first"):
        assert held(past) == [("first", 0, 10)]
    assert held(past) == []

    past.store.claim("small", owner="second", duration=timedelta(seconds=1))
    clock.pass_s(2)
    past.store.claim("small", owner="third")

    assert [row["owner"] for row in past.store.claims().to_pylist() if row["live"]] == ["third"]


def test_an_owner_may_claim_its_rows_again_to_hold_them_longer(past: Past):
    first = past.store.claim("small", owner="me", duration=timedelta(seconds=5)).claims[0]
    second = past.store.claim("small", owner="me", duration=timedelta(hours=1)).claims[0]

    assert second.expires_at_us > first.expires_at_us
    assert second.fence > first.fence
    assert held(past) == [("me", 0, 10)]


def test_all_claims_of_an_owner_can_be_released_by_anybody(past: Past):
    past.store.claim("small", ["x"], 0, 2, owner="first")
    past.store.claim("small", ["x"], 4, 6, owner="first")
    past.store.claim("small", ["x"], 7, 8, owner="second")

    assert opened(past.object_store, Clock()).release_claims("first") == 2
    assert held(past) == [("second", 7, 8)]
    assert past.store.release_claims("nobody") == 0


def test_a_claim_that_is_released_late_takes_nothing_from_its_next_owner(past: Past, clock: Clock):
    late = past.store.claim("small", owner="first", duration=timedelta(seconds=1))
    clock.pass_s(2)
    past.store.claim("small", owner="second")

    late.release()
    late.release()

    assert ("second", 0, 10) in held(past)


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ({"start": 5, "stop": 5}, InvalidInputError),
        ({"start": -1}, InvalidInputError),
        ({"duration": timedelta(0)}, InvalidInputError),
        ({"duration": timedelta.max}, InvalidInputError),
        ({"duration": 5}, InvalidInputError),
        ({"owner": ""}, InvalidInputError),
        ({"columns": ["gone"]}, ColumnNotFoundError),
    ],
)
def test_what_cannot_be_claimed_is_refused(past: Past, given_: dict, error: type[Exception]):
    with pytest.raises(error):
        past.store.claim("small", **{"owner": "me", **given_})

    assert held(past) == []


def test_claims_are_listed_by_name_with_a_schema(past: Past):
    past.store.claim("small", owner="me")

    found = past.store.claims()

    assert found.schema.field("expires_at").type == pa.timestamp("us", "UTC")
    assert found.select(["table", "column", "owner", "live"]).to_pylist() == [
        {"table": "small", "column": "x", "owner": "me", "live": True}
    ]


ROWS = st.tuples(st.integers(0, 8), st.integers(1, 4), st.sampled_from("abc"), st.booleans())


@given(st.lists(ROWS, max_size=12))
def test_no_row_is_ever_held_by_two_owners(wanted):
    standing: list[Claim] = []
    for fence, (start, rows, owner, lives) in enumerate(wanted):
        claim = Claim(1, 1, start, start + rows, owner, fence, 100 if lives else 10)
        try:
            check_free([claim], standing, 50, by_ids)
        except CommitConflictError:
            continue
        else:
            standing.append(claim)

    owners = [
        {each.owner for each in standing if each.expires_at_us > 50 and each.first_row <= row < each.end_row}
        for row in range(12)
    ]
    assert all(len(each) <= 1 for each in owners)
