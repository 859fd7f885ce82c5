from __future__ import annotations

import pyarrow as pa

from spark_pages.model.actions import CatalogIntent, IntentKind
from spark_pages.model.ids import LIVENESS
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.spark.positions import CommitCount, SegmentCount, SpliceCount, fold_counts

KEY = (3, 1)
TABLE = TableDefinition(
    table_id=3, name="t", schema=with_field_ids(pa.schema([("a", pa.int64())])), next_field_id=2
)

APPEND = SpliceCount(0, 0, KEY, 0, False, 0, 4)


def test_segments_of_a_chain_stand_one_behind_the_other() -> None:
    layout = fold_counts([SegmentCount(1, KEY, 5), SegmentCount(0, KEY, 10)], [], [TABLE])

    assert layout.segments == {(0, KEY): 0, (1, KEY): 10}
    assert layout.chains == {KEY, (3, LIVENESS)}


def test_an_append_goes_behind_what_is_there_whatever_its_writer_saw() -> None:
    appends = [CommitCount(v, (), (APPEND,)) for v in (7, 8)]

    layout = fold_counts([SegmentCount(0, KEY, 10)], appends, [TABLE])

    assert layout.splices == {(7, 0, 0): 10, (8, 0, 0): 14}


def test_a_replacement_stands_where_it_says() -> None:
    splice = SpliceCount(0, 0, KEY, 3, True, 4, 4)

    layout = fold_counts([SegmentCount(0, KEY, 10)], [CommitCount(7, (), (splice,))], [TABLE])

    assert layout.splices == {(7, 0, 0): 3}


def test_truncation_clears_the_base_and_earlier_splices_but_not_later_ones() -> None:
    truncate = CatalogIntent(IntentKind.TRUNCATE, 3, 0, "t")
    commits = [CommitCount(7, (), (APPEND,)), CommitCount(8, ((0, truncate),), (APPEND,))]

    layout = fold_counts([SegmentCount(0, KEY, 10)], commits, [TABLE])

    assert layout.segments == {}
    assert layout.splices == {(8, 0, 0): 0}


def test_nothing_is_left_of_a_dropped_table() -> None:
    drop = CatalogIntent(IntentKind.DROP, 3, 0, "t")

    layout = fold_counts([SegmentCount(0, KEY, 10)], [CommitCount(7, ((0, drop),), (APPEND,))], [TABLE])

    assert layout.chains == set()
    assert layout.segments == layout.splices == {}


def test_a_table_that_comes_back_has_what_it_had() -> None:
    drop = CatalogIntent(IntentKind.DROP, 3, 0, "t")
    undrop = CatalogIntent(IntentKind.UNDROP, 3, 0, "t", TABLE)
    commits = [CommitCount(7, ((0, drop),), ()), CommitCount(8, ((0, undrop),), (APPEND,))]

    layout = fold_counts([SegmentCount(0, KEY, 10)], commits, [TABLE])

    assert layout.segments == {(0, KEY): 0}
    assert layout.splices == {(8, 0, 0): 10}
