from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import DamageError, RowOutOfRangeError
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainEdit, ChainLayout, Piece, UnloadedRun
from spark_pages.model.row_index import locate_rows
from spark_pages.model.run import PageRun
from tests.effort import examples
from tests.io.strategies import steady
from tests.model.chains import parts_of, pieces_and_counts, promise, run_of

quick = settings(steady, max_examples=examples(40))


def linear_search(counts: list[int], row: int) -> tuple[int, int]:
    for position, count in enumerate(counts):
        if row < count:
            return position, row
        row -= count
    raise IndexError(row)


def ids(chain: ColumnChain) -> list[int]:
    return chain.all_pages().page_ids.tolist()


def edit(chain_counts: list[int], start: int, stop: int, added: PageRun, first_id: int = 0) -> ChainEdit:
    return ChainEdit(
        sum(chain_counts[:start]),
        tuple(range(first_id + start, first_id + stop)),
        sum(chain_counts[start:stop]),
        added,
    )


@quick
@given(pieces_and_counts())
def test_locate_row_agrees_with_a_linear_search_for_every_row(drawn):
    pieces, counts = drawn
    chain = ColumnChain(pieces)

    found = [chain.locate_row(row) for row in range(sum(counts))]

    assert [(f.page_position, f.row_in_page) for f in found] == [
        linear_search(counts, row) for row in range(sum(counts))
    ]
    assert [f.page.page_id for f in found] == [f.page_position for f in found]


@quick
@given(pieces_and_counts(), st.data())
def test_locate_rows_agrees_with_locate_row_in_any_order(drawn, data):
    pieces, counts = drawn
    wanted = data.draw(st.lists(st.integers(0, sum(counts) - 1), max_size=20)) if sum(counts) else []

    found = ColumnChain(pieces).locate_rows(np.array(wanted, np.uint64))

    assert list(zip(found.positions.tolist(), found.rows_in_page.tolist(), strict=True)) == [
        linear_search(counts, row) for row in wanted
    ]


@quick
@given(pieces_and_counts(), st.data())
def test_locate_range_gives_each_row_of_the_range_once_and_no_empty_page(drawn, data):
    pieces, counts = drawn
    start = data.draw(st.integers(0, sum(counts)))
    end = data.draw(st.integers(start, sum(counts)))

    slices = ColumnChain(pieces).locate_range(start, end)

    assert all(0 <= s.start < s.stop <= s.page.entry_count for s in slices)
    assert [(s.page.page_id, row) for s in slices for row in range(s.start, s.stop)] == [
        linear_search(counts, row) for row in range(start, end)
    ]


@quick
@given(pieces_and_counts(), st.data())
def test_the_slices_of_a_small_read_are_those_of_any_read(drawn, data):
    pieces, counts = drawn
    chain = ColumnChain(pieces)
    start = data.draw(st.integers(0, sum(counts)))
    end = data.draw(st.integers(start, sum(counts)))
    most = data.draw(st.integers(1, 4))

    few = chain.small_range(start, end, most)

    expected = chain.locate_range(start, end)
    assert few is None or few == expected
    again = chain.small_range(start, end, most)  # now that all of it is loaded
    one_piece = len(chain.pieces) == 1
    assert again == expected or start == end or len(expected) > most - counts.count(0) or not one_piece


@quick
@given(pieces_and_counts(), st.data())
def test_a_cut_of_several_ranges_gives_each_row_of_them_once_and_no_empty_page(drawn, data):
    pieces, counts = drawn
    bounds = sorted(data.draw(st.sets(st.integers(0, sum(counts)), max_size=8)))
    starts, ends = np.array(bounds[: len(bounds) // 2 * 2], np.uint64).reshape(-1, 2).T

    cut = ColumnChain(pieces).select(starts, ends)

    assert [(s.page.page_id, row) for s in cut.slices() for row in range(s.start, s.stop)] == [
        linear_search(counts, row)
        for low, high in zip(starts.tolist(), ends.tolist(), strict=True)
        for row in range(low, high)
    ]
    assert cut.run.stats.column("null_count").to_pylist() == [s.page.entry_count % 3 for s in cut.slices()]


def test_a_cut_loads_the_pieces_that_it_touches_and_no_others():
    loaded = []

    def lazy(number):
        run = run_of([10], number)
        return UnloadedRun(1, 10, lambda: loaded.append(number) or [run])

    chain = ColumnChain([lazy(number) for number in range(6)])

    cut = chain.select(np.array([5, 41], np.uint64), np.array([20, 45], np.uint64))

    assert loaded == [0, 1, 4]
    assert cut.run.page_ids.tolist() == [0, 1, 4]


@quick
@given(pieces_and_counts(), st.data())
def test_a_stretch_of_pages_is_those_at_its_positions_empty_ones_too(drawn, data):
    pieces, counts = drawn
    start = data.draw(st.integers(0, len(counts)))
    stop = data.draw(st.integers(start, len(counts)))

    found = ColumnChain(pieces).pages_from(start, stop)

    assert found.run.page_ids.tolist() == list(range(start, stop))
    assert start == stop or found.first_row == sum(counts[:start])


def test_a_stretch_loads_the_pieces_that_hold_its_pages_and_no_others():
    loaded = []

    def lazy(number):
        return UnloadedRun(2, 10, lambda: loaded.append(number) or [run_of([4, 6], 2 * number)])

    ColumnChain([lazy(number) for number in range(5)]).pages_from(3, 6)

    assert loaded == [1, 2]


@quick
@given(pieces_and_counts())
def test_totals_the_last_page_and_all_pages_do_not_depend_on_what_is_loaded(drawn):
    pieces, counts = drawn
    chain = ColumnChain(pieces)

    last = chain.latest()

    assert (chain.num_pages, chain.num_rows) == (len(counts), sum(counts))
    assert (None if last is None else last.page_id) == (len(counts) - 1 if counts else None)
    assert ids(chain) == list(range(len(counts)))
    assert chain.all_pages().numbers("entry_count").tolist() == counts
    assert chain.all_pages().stats.column("null_count").to_pylist() == [n % 3 for n in counts]


@quick
@given(pieces_and_counts(), st.data())
def test_pages_at_gives_the_pages_at_the_positions_that_were_located(drawn, data):
    pieces, counts = drawn
    chain = ColumnChain(pieces)
    wanted = data.draw(st.lists(st.integers(0, sum(counts) - 1), max_size=20)) if sum(counts) else []

    positions = np.unique(chain.locate_rows(np.array(wanted, np.uint64)).positions)

    assert [page.page_id for page in chain.pages_at(positions)] == positions.tolist()


@quick
@given(pieces_and_counts(), st.data())
def test_a_splice_replaces_exactly_its_run_wherever_empty_pages_lie(drawn, data):
    pieces, counts = drawn
    counts = counts or [0]
    chain = ColumnChain(pieces if pieces and ColumnChain(pieces).num_pages else [run_of(counts)])
    start = data.draw(st.integers(0, len(counts) - 1))
    stop = data.draw(st.integers(start + 1, len(counts)))
    removed = sum(counts[start:stop])
    is_tail = not sum(counts[stop:])
    new = data.draw(st.lists(st.integers(0, 5), max_size=3) if is_tail else parts_of(removed))

    after = chain.apply([edit(counts, start, stop, run_of(new, 1000))])

    assert ids(after) == [*range(start), *range(1000, 1000 + len(new)), *range(stop, len(counts))]
    assert after.num_rows == sum(counts) - sum(counts[start:stop]) + sum(new)
    assert ids(chain) == list(range(len(counts))), "the chain before is not touched"


@quick
@given(pieces_and_counts(), st.data())
def test_many_edits_at_once_give_what_they_give_one_by_one_and_what_a_list_says(drawn, data):
    pieces, counts = drawn
    pages = list(enumerate(counts))
    edits: list[ChainEdit] = []
    for number in range(data.draw(st.integers(0, 8))):
        fresh = 1000 * (number + 1)
        kind = data.draw(st.sampled_from(["append", "clear", "replace", "replace", "replace"]))
        if kind != "replace" or not pages:
            new = data.draw(st.lists(st.integers(0, 3), max_size=3))
            rows = sum(count for _, count in pages)
            edits.append(ChainEdit(rows, (), 0, run_of(new, fresh), clears=kind == "clear"))
            pages = [] if kind == "clear" else pages
            start = stop = len(pages)
        else:
            start = data.draw(st.integers(0, len(pages) - 1))
            stop = data.draw(st.integers(start + 1, len(pages)))
            first, removed = (sum(n for _, n in some) for some in (pages[:start], pages[start:stop]))
            is_tail = not sum(count for _, count in pages[stop:])
            new = data.draw(st.lists(st.integers(0, 5), max_size=3) if is_tail else parts_of(removed))
            gone = tuple(page for page, _ in pages[start:stop])
            edits.append(ChainEdit(first, gone, removed, run_of(new, fresh)))
        pages[start:stop] = enumerate(new, fresh)

    together = ColumnChain(pieces).apply(edits)
    one_by_one = ColumnChain(pieces)
    for each in edits:
        one_by_one = one_by_one.apply([each])

    for chain in (together, one_by_one):
        assert ids(chain) == [page for page, _ in pages]
        assert chain.all_pages().numbers("entry_count").tolist() == [count for _, count in pages]
        assert chain.num_rows == sum(count for _, count in pages)


def test_splices_of_one_commit_do_not_each_count_the_whole_chain(monkeypatch):
    counted = []
    of = ChainLayout.of
    monkeypatch.setattr(ChainLayout, "of", lambda pieces: counted.append(len(pieces)) or of(pieces))
    chain = ColumnChain([run_of([3] * 500)])
    edits = [edit([3] * 500, page, page + 1, run_of([3], 1000 + page)) for page in range(0, 500, 2)]

    after = chain.apply(edits)

    assert ids(after) == [page if page % 2 else 1000 + page for page in range(500)]
    assert counted == [1, 500], "once before, and once behind"


def test_a_splice_in_the_middle_that_changes_the_number_of_rows_is_damage():
    chain = ColumnChain([run_of([2, 2, 2])])

    with pytest.raises(DamageError, match=r"which are not the last of the chain"):
        chain.apply([ChainEdit(2, (1,), 2, run_of([3], 50))])


@quick
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=12), st.booleans())
def test_appends_one_by_one_or_together_give_the_same_chain(runs, one_by_one):
    firsts = list(accumulate((len(run) for run in runs), initial=0))
    edits = [ChainEdit(0, (), 0, run_of(run, first)) for run, first in zip(runs, firsts, strict=False)]

    chain = ColumnChain()
    for each in [[e] for e in edits] if one_by_one else [edits]:
        chain = chain.apply(each)

    assert ids(chain) == list(range(firsts[-1]))
    assert chain.all_pages().numbers("entry_count").tolist() == [n for run in runs for n in run]
    assert chain.all_pages().stats.column("null_count").to_pylist() == [n % 3 for run in runs for n in run]


def test_a_stream_of_single_pages_leaves_few_pieces():
    chain = ColumnChain()

    for number in range(500):
        chain = chain.apply([ChainEdit(number, (), 0, run_of([1], number))])

    assert len(chain.pieces) <= 10
    assert ids(chain) == list(range(500))


def test_an_edit_that_clears_leaves_only_what_it_and_later_edits_add():
    chain = ColumnChain([run_of([3, 4])])

    after = chain.apply(
        [
            ChainEdit(7, (), 0, run_of([1], 10)),
            ChainEdit(0, (), 0, run_of([2], 20), clears=True),
            ChainEdit(2, (), 0, run_of([5], 30)),
        ]
    )

    assert ids(after) == [20, 30]
    assert after.num_rows == 7


def test_later_edits_may_replace_what_earlier_ones_of_the_same_batch_added():
    chain = ColumnChain([promise([run_of([3, 4])])])

    after = chain.apply(
        [
            ChainEdit(7, (), 0, run_of([1, 2], 10)),
            ChainEdit(3, (1, 10), 5, run_of([5], 20)),
            ChainEdit(0, (0, 20), 8, run_of([8], 30)),
        ]
    )

    assert ids(after) == [30, 11]


@pytest.mark.parametrize(
    ("removed", "first_row", "entries"),
    [
        ((1, 3), 2, 4),
        ((3, 2), 4, 4),
        ((9,), 0, 2),
        ((3, 4), 6, 4),
        ((1, 2, 3, 4), 2, 8),
    ],
    ids=["a page between", "another order", "no such page", "behind the end", "longer than the chain"],
)
def test_a_splice_whose_run_is_not_in_the_chain_as_named_is_damage(removed, first_row, entries):
    chain = ColumnChain([run_of([2, 2]), promise([run_of([2, 2], 2)])])

    with pytest.raises(DamageError, match="contradicts"):
        chain.apply([ChainEdit(first_row, removed, entries, run_of([entries], 50))])


def test_a_promise_that_gives_something_else_is_damage():
    chain = ColumnChain([UnloadedRun(2, 10, lambda: [run_of([5, 4])])])

    with pytest.raises(DamageError, match="should hold 2 pages with 10 rows"):
        chain.locate_row(3)


@pytest.mark.parametrize("row", [-1, 7, 1 << 62])
def test_a_row_outside_is_refused_with_the_number_of_rows(row):
    chain = ColumnChain([promise([run_of([3, 0, 4])])])

    with pytest.raises(RowOutOfRangeError, match="7 rows"):
        chain.locate_row(row)


@pytest.mark.parametrize("bounds", [(-1, 2), (3, 2), (0, 8)])
def test_a_range_outside_is_refused(bounds):
    with pytest.raises(RowOutOfRangeError, match="7 rows"):
        ColumnChain([run_of([3, 4])]).locate_range(*bounds)


def test_locate_rows_names_the_first_row_that_is_outside():
    with pytest.raises(RowOutOfRangeError, match="row 12 "):
        locate_rows(np.array([3, 7], np.uint64), np.array([1, 12, 2, 9], np.uint64))


def test_sums_near_two_to_the_62_do_not_overflow():
    half = 1 << 61
    chain = ColumnChain([run_of([half, 0, half]), promise([run_of([half, half], 3)])])

    last = chain.locate_row(4 * half - 1)
    found = chain.locate_rows(np.array([4 * half - 1, half, 0], np.uint64))

    assert (last.page_position, last.row_in_page) == (4, half - 1)
    assert found.positions.tolist() == [4, 2, 0]
    assert found.rows_in_page.tolist() == [half - 1, 0, 0]
    assert [s.page.page_id for s in chain.locate_range(half - 1, half + 1)] == [0, 2]


def halves(first: int, count: int) -> list[Piece]:
    """Pages of one row each behind promises over several floors; other threads get their turn."""
    time.sleep(0)
    if count <= 2:
        return [run_of([1] * count, first)]
    half = count // 2
    return [
        UnloadedRun(half, half, lambda: halves(first, half)),
        UnloadedRun(count - half, count - half, lambda: halves(first + half, count - half)),
    ]


QUESTIONS = [
    lambda chain: chain.locate_row(17).page.page_id == 17,
    lambda chain: chain.locate_rows(np.array([30, 2, 9], np.uint64)).positions.tolist() == [30, 2, 9],
    lambda chain: [page.page_id for page in chain.pages_at(np.array([3, 20]))] == [3, 20],
    lambda chain: [piece.page.page_id for piece in chain.locate_range(5, 9)] == [5, 6, 7, 8],
    lambda chain: chain.all_pages().num_pages == 32,
    lambda chain: ids(chain.apply([ChainEdit(8, (8,), 1, run_of([1], 99))])).index(99) == 8,
]


@pytest.fixture
def eager_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_load_a_chain_at_once_all_get_the_right_answers(eager_switches):
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        for _ in range(20):
            chain = ColumnChain([UnloadedRun(32, 32, lambda: halves(0, 32))])

            answers = list(pool.map(lambda ask, chain=chain: ask(chain), QUESTIONS))

            assert all(answers)
