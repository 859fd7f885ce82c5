"""Rules of the liveness chain in conflicts and replay: docs/format.md, "Deleted rows"."""

from __future__ import annotations

import pytest

from spark_pages.errors import DamageError
from spark_pages.format.features import DELETED_ROWS, with_needs
from spark_pages.log.commit.conflict import find_overlap, only_appends, without_pages
from spark_pages.log.replay import replay
from spark_pages.log.state import LogState
from spark_pages.model.actions import NO_FEATURES, CatalogIntent, IntentKind, Splice
from spark_pages.model.chain import ColumnChain
from spark_pages.model.ids import LIVENESS
from tests.log.records import commit, create, definition, record
from tests.log.test_conflict import ADDS_3, APPEND, COMMENT


def marks(first: int, rows: int, *touched: tuple[int, int], removed: tuple[int, ...] = (), old: int = 0):
    return {"splices": (Splice(1, LIVENESS, first, removed, old, 0, 0, 1, rows, touched=touched),)}


def change(first: int, rows: int, *touched: tuple[int, int], **given):
    return {"splices": (Splice(1, 1, first, (first + 1,), rows, 0, 0, 1, rows, touched=touched, **given),)}


def shortened(first: int, old: int, new: int):
    return {"splices": (Splice(1, 1, first, (90,), old, 0, 0, 1, new),)}


LENGTHENS = marks(0, 10, (3, 4))
LENGTHENS_FURTHER = marks(0, 20, (15, 16))
MARKS_3 = marks(0, 10, (3, 4), removed=(70,), old=10)
MARKS_5 = marks(0, 10, (5, 6), removed=(71,), old=10)
MARKS_3_TOO = marks(0, 10, (3, 4), removed=(72,), old=10)
MARKS_ALL = marks(0, 10, removed=(73,), old=10)
CHANGES_3 = change(0, 10, (3, 4))
CHANGES_ALL = change(0, 10)
CHANGES_4 = change(0, 10, (4, 5))
COMPACTS = change(0, 10, data_change=False)
ENDS_AT_9 = shortened(0, 20, 9)
TAIL_GROWN = {"splices": (Splice(1, 1, 2, (9,), 18, 0, 0, 1, 24, touched=((20, 26),)),)}
ENDS_AT_12 = shortened(0, 20, 12)

FREE = [
    (MARKS_3, CHANGES_4),
    (MARKS_3, COMPACTS),
    (MARKS_3, MARKS_5),
    (MARKS_3, MARKS_3_TOO),
    (LENGTHENS, MARKS_5),
    (LENGTHENS, APPEND),
    (LENGTHENS, TAIL_GROWN),
    (LENGTHENS, ADDS_3),
    (LENGTHENS, COMMENT),
    (LENGTHENS, CHANGES_4),
    (LENGTHENS, ENDS_AT_12),
]
CONFLICTS = [
    (LENGTHENS, LENGTHENS_FURTHER, "both delete rows"),
    (MARKS_3, CHANGES_3, "changed rows"),
    (MARKS_3, CHANGES_ALL, "changed rows"),
    (MARKS_ALL, CHANGES_4, "changed rows"),
    (LENGTHENS, CHANGES_3, "changed rows"),
    (LENGTHENS, ENDS_AT_9, "changed rows"),
    (LENGTHENS_FURTHER, ENDS_AT_12, "changed rows"),
]


@pytest.mark.parametrize(("mine", "theirs"), [*FREE, *(pair[::-1] for pair in FREE)])
def test_deletes_and_what_touches_other_rows_do_not_conflict(mine, theirs):
    assert find_overlap(record(1, **mine), 7, [record(2, **theirs)]) is None


@pytest.mark.parametrize(("mine", "theirs", "what"), CONFLICTS)
def test_a_delete_conflicts_with_a_change_of_its_rows_and_with_another_lengthening(mine, theirs, what):
    found = find_overlap(record(1, **mine), 7, [record(2, **theirs)])

    assert what in found.what


@pytest.mark.parametrize(("theirs", "mine", "_"), CONFLICTS)
def test_a_change_conflicts_with_a_delete_of_its_rows(theirs, mine, _):
    assert "delete" in find_overlap(record(1, **mine), 7, [record(2, **theirs)]).what


def test_a_lengthening_is_no_append_that_goes_behind_anything():
    assert only_appends(record(1, **APPEND))
    assert not only_appends(record(1, **LENGTHENS))


def test_a_delete_that_is_built_anew_conflicts_with_changes_of_its_rows_alone():
    mine = without_pages(record(1, **LENGTHENS))

    assert find_overlap(mine, 7, [record(2, **LENGTHENS_FURTHER)]) is None
    assert "changed rows" in find_overlap(mine, 7, [record(2, **CHANGES_3)]).what


def test_a_splice_of_a_liveness_chain_needs_readers_that_know_of_dead_rows():
    assert DELETED_ROWS in with_needs(NO_FEATURES, [record(1, **LENGTHENS)]).reader
    assert with_needs(NO_FEATURES, [record(1, **APPEND)]).reader == ()


def lengthening(first: int, count: int, page: int = 0) -> Splice:
    return Splice(1, LIVENESS, first, (), 0, 0, page, page + 1, count, touched=((first, first + 1),))


def chain_after(*records):
    first = commit(0, record(1, intents=(create(1, "t"),)))
    second = commit(1, *records, parent=first)
    state = replay(LogState(), [first, second], lambda _: None)
    return ColumnChain().apply(state.edits.get((1, LIVENESS), ()))


def test_a_lengthening_at_the_end_of_the_chain_is_read():
    found = chain_after(
        record(2, (5,), splices=(lengthening(0, 5),)), record(3, (3,), splices=(lengthening(5, 3),))
    )

    assert found.num_rows == 8


@pytest.mark.parametrize("first", [0, 4, 6])
def test_a_lengthening_at_another_place_is_damage(first):
    with pytest.raises(DamageError, match="lengthen a liveness chain"):
        chain_after(
            record(2, (5,), splices=(lengthening(0, 5),)), record(3, (3,), splices=(lengthening(first, 3),))
        )


def test_a_truncate_empties_the_liveness_chain():
    emptied = CatalogIntent(IntentKind.TRUNCATE, 1, 0, "t", definition(1, "t"))

    found = chain_after(record(2, (5,), splices=(lengthening(0, 5),)), record(3, intents=(emptied,)))

    assert found.num_rows == 0
