"""Readers that work run by run meet few runs, and the same pages, however many splices made the chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainEdit, ChainLayout, JoinedRuns
from spark_pages.model.run import PageRun
from tests.effort import examples
from tests.io.strategies import steady
from tests.model.chains import pieces_and_counts, promise, run_of


def spliced(count: int) -> ColumnChain:
    """A chain of 100 pages of 10 rows, of which so many, two apart, were replaced one by one."""
    edits = [ChainEdit(20 * i, (2 * i,), 10, run_of([10], 1000 + i)) for i in range(count)]
    return ColumnChain([run_of([10] * 100)]).apply(edits)


@settings(steady, max_examples=examples(40))
@given(pieces_and_counts(), st.data())
def test_runs_give_the_pages_of_the_rows_and_their_statistics_whatever_was_asked_before(drawn, data):
    pieces, counts = drawn
    chain, total = ColumnChain(pieces), sum(counts)
    for _ in range(3):
        start = data.draw(st.integers(0, total))
        end = data.draw(st.integers(start, total))

        parts = list(chain.runs(start, end))

        found = [number for part in parts for number in part.run.page_ids.tolist()]
        nulls = [each for part in parts for each in part.run.stats.column("null_count").to_pylist()]
        touched = {row_page for row, row_page in enumerate(pages_of_rows(counts)) if start <= row < end}
        assert touched <= set(found)
        assert found == sorted(found)
        assert nulls == [chain.all_pages().stats.column("null_count")[page].as_py() for page in found]
        assert [part.first_row for part in parts] == [
            sum(counts[: int(part.run.page_ids[0])]) for part in parts
        ]


def pages_of_rows(counts: list[int]) -> list[int]:
    return [page for page, count in enumerate(counts) for _ in range(count)]


def test_a_chain_in_a_hundred_pieces_comes_as_one_run():
    chain = spliced(50)

    (part,) = chain.runs()

    assert len(chain.pieces) == 100
    assert part.run.page_ids.tolist() == chain.all_pages().page_ids.tolist()


def test_a_joined_run_is_made_once():
    chain = spliced(50)
    (first,) = chain.runs()

    (second,) = chain.runs()

    assert second.run is first.run


def test_what_is_loaded_later_leaves_joined_runs_as_they_are():
    loaded = [run_of([10], page) for page in range(5)]
    chain = ColumnChain([*loaded, promise([run_of([10], 5)])])

    before, later = chain.runs()
    (after,) = chain.runs()

    assert before.run.page_ids.tolist() == [0, 1, 2, 3, 4]
    assert later.run.page_ids.tolist() == [5]
    assert after.run.page_ids.tolist() == [0, 1, 2, 3, 4, 5]


def test_rows_of_one_piece_are_given_without_a_copy_of_its_neighbours(monkeypatch):
    chain = spliced(50)
    monkeypatch.setattr(JoinedRuns, "at", None)

    (part,) = chain.runs(995, 1000)

    assert part.run.page_ids.tolist() == [99]


def test_a_long_run_is_never_copied():
    long = run_of([1] * 4096)
    layout = ChainLayout.of([long, *(run_of([1], 5000 + page) for page in range(5))])
    joined = JoinedRuns(layout)

    assert joined.at(0) == (long, 0)
    assert joined.at(3)[0].page_ids.tolist() == [5000, 5001, 5002, 5003, 5004]


class CountedPieces(tuple[PageRun, ...]):
    """Pieces that count how many of them are handed out."""

    handed_out = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        CountedPieces.handed_out += len(found) if isinstance(key, slice) else 1
        return found


def test_a_joined_run_is_found_again_without_a_look_at_each_of_its_pieces():
    layout = ChainLayout.of([run_of([1], page) for page in range(1_000)])
    joined = JoinedRuns(replace(layout, pieces=CountedPieces(layout.pieces)))
    joined.at(0)
    CountedPieces.handed_out = 0

    joined.at(500)

    assert CountedPieces.handed_out <= 3
