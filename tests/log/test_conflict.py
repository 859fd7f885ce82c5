from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.log.commit.conflict import find_overlap, without_pages
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice
from spark_pages.model.table import TableDefinition, with_field_id
from tests.log.records import append, create, record, swap


def drop(kind: IntentKind, table: int, name: str) -> CatalogIntent:
    return CatalogIntent(kind, table, 0, name)


APPEND = {"splices": (append(1, 1, 0, 5), append(1, 2, 1, 5))}
PAGE_7 = {"splices": (swap(1, 1, (7,), 5, 5),)}
PAGE_7_COMPACTED = {"splices": (swap(1, 1, (6, 7), 9, 9, data_change=False),)}
PAGE_8 = {"splices": (swap(1, 1, (8,), 5, 5),)}
PAGE_7_OTHER_COLUMN = {"splices": (swap(1, 2, (7,), 5, 5),)}
TAIL_GROWN = {"splices": (swap(1, 1, (9,), 5, 8),)}
CREATE_X = {"intents": (create(4, "x"),), "splices": (append(0, 1, 0, 3), append(4, 1, 1, 2))}
CREATE_X_TOO = {"intents": (create(4, "x"),)}
CREATE_Y = {"intents": (create(4, "y"),), "splices": (append(0, 1, 0, 3), append(4, 1, 1, 2))}
DROP_1 = {"intents": (drop(IntentKind.DROP, 1, "one"),)}
DROP_2 = {"intents": (drop(IntentKind.DROP, 2, "two"),)}
TRUNCATE_1 = {"intents": (drop(IntentKind.TRUNCATE, 1, "one"),)}
REQUIRE_1 = {"intents": (drop(IntentKind.REQUIRE, 1, "one"),)}


def alter(*fields: int, changed: tuple[int, ...] | None) -> dict:
    schema = pa.schema([with_field_id(pa.field(f"c{each}", pa.int64()), each) for each in fields])
    definition = TableDefinition(1, "one", schema, 9)
    return {"intents": (CatalogIntent(IntentKind.ALTER, 1, 0, "one", definition, None, changed),)}


STRICTER = alter(1, 2, changed=None)
COMMENT = alter(1, 2, changed=())
ADDS_3 = alter(1, 2, 3, changed=(3,))
DROPS_2 = alter(1, changed=(2,))
APPEND_3 = {"splices": (*APPEND["splices"], append(1, 3, 2, 5))}
APPEND_3_FEWER = {"splices": (*APPEND["splices"], append(1, 3, 2, 4))}
TAIL_SHRUNK = {"splices": (swap(1, 1, (9,), 8, 5),)}

FREE = [
    (APPEND, COMMENT),
    (COMMENT, APPEND),
    (PAGE_7, COMMENT),
    (COMMENT, PAGE_7),
    (APPEND_3, ADDS_3),
    (ADDS_3, APPEND),
    (PAGE_7, ADDS_3),
    (PAGE_7, DROPS_2),
    (DROPS_2, APPEND),
    (DROPS_2, PAGE_7_OTHER_COLUMN),
    (APPEND, APPEND),
    (APPEND, PAGE_7),
    (PAGE_7, APPEND),
    (PAGE_7, PAGE_8),
    (PAGE_7, PAGE_7_OTHER_COLUMN),
    (PAGE_7, PAGE_7_COMPACTED | {"splices": (swap(2, 1, (7,), 5, 5),)}),
    (APPEND, TAIL_GROWN),
    (TAIL_GROWN, PAGE_7),
    (CREATE_X, CREATE_Y),
    (APPEND, DROP_2),
    (CREATE_X, DROP_1),
    (REQUIRE_1, APPEND),
]
IN_THE_WAY = [
    (PAGE_7, PAGE_7, "both replace 1 page"),
    (PAGE_7, PAGE_7_COMPACTED, "both replace 1 page"),
    (PAGE_7_COMPACTED, PAGE_7, "both replace 1 page"),
    (TAIL_GROWN, APPEND, "number of rows"),
    (TAIL_GROWN, TAIL_GROWN, "both replace"),
    (CREATE_X, CREATE_X_TOO, "name 'x'"),
    (APPEND, DROP_1, "'drop' to table 'one'"),
    (APPEND, TRUNCATE_1, "'truncate' to table 'one'"),
    (REQUIRE_1, DROP_1, "'drop'"),
    (DROP_1, APPEND, "would drop"),
    (DROP_1, DROP_1, "'drop'"),
    (APPEND, STRICTER, "'alter' to table 'one'"),
    (STRICTER, APPEND, "would alter"),
    (APPEND, ADDS_3, "'alter'"),
    (APPEND_3_FEWER, ADDS_3, "'alter'"),
    (APPEND, DROPS_2, "'alter'"),
    (PAGE_7_OTHER_COLUMN, DROPS_2, "'alter'"),
    (ADDS_3, TAIL_SHRUNK, "would alter"),
    (COMMENT, COMMENT, "both give the name"),
    (REQUIRE_1, COMMENT, "'alter'"),
    (COMMENT, REQUIRE_1, "relies"),
]


@pytest.mark.parametrize(("mine", "landed"), FREE)
def test_transactions_that_do_not_meet_may_both_happen(mine, landed):
    assert find_overlap(record(1, **mine), 5, [record(2, **landed)]) is None


@pytest.mark.parametrize(("mine", "landed", "what"), IN_THE_WAY)
def test_transactions_that_meet_conflict_and_say_where(mine, landed, what):
    overlap = find_overlap(record(1, **mine), 5, [record(2, **landed)])

    assert overlap is not None
    assert what in overlap.what
    assert (overlap.version, overlap.writer) == (5, "someone")


def test_each_transaction_of_a_group_commit_is_looked_at():
    landed = [record(2, **APPEND), record(3, **PAGE_7)]

    assert find_overlap(record(1, **PAGE_7), 5, landed) is not None


@pytest.mark.parametrize(
    ("landed", "conflicts"),
    [(APPEND, True), (PAGE_8, True), (PAGE_7_COMPACTED, False), (CREATE_X, False), (COMMENT, True)],
)
def test_serializable_conflicts_with_every_change_of_rows_of_the_same_table(landed, conflicts):
    found = find_overlap(record(1, **APPEND), 5, [record(2, **landed)], frozenset({1}))

    assert (found is not None) == conflicts


def test_pages_of_the_catalog_table_never_conflict():
    splice = Splice(0, 1, 0, (3,), 5, 0, 0, 1, 5)

    assert find_overlap(record(1, splices=(splice,)), 5, [record(2, splices=(splice,))]) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "meets"),
    [
        (PAGE_7, PAGE_7, False),
        (PAGE_7, PAGE_7_COMPACTED, False),
        (PAGE_7, DROP_1, True),
        (PAGE_7, TRUNCATE_1, True),
        (TAIL_GROWN, TAIL_GROWN, True),
        (TAIL_GROWN, APPEND, True),
    ],
)
def test_without_its_pages_a_transaction_conflicts_with_all_but_changes_of_the_same_pages(
    mine, theirs, meets
):
    spared = without_pages(record(1, **mine))

    overlap = find_overlap(spared, 5, [record(2, **theirs)])

    assert (overlap is not None) == meets


def test_without_its_pages_a_transaction_relies_on_rows_as_before():
    spared = without_pages(record(1, **PAGE_7))

    assert find_overlap(spared, 5, [record(2, **PAGE_8)], frozenset({1})) is not None
    assert find_overlap(spared, 5, [record(2, **PAGE_7_COMPACTED)], frozenset({1})) is None
