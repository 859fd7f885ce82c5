"""Chains written page by page through the log, for histories that transactions do not make yet."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import pyarrow as pa
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.model.actions import Splice
from spark_pages.model.run import PageRun
from tests.log.records import record


@dataclass(frozen=True)
class Change:
    """Pages [start, stop) of a column, as the commit finds it, give way to pages of these many rows.

    Without `start` the pages are appended.
    """

    column: str
    rows: tuple[int, ...]
    start: int | None = None
    stop: int | None = None


class Chains:
    """A store with one table, ``t``, whose columns are written independently; its pages have no bytes."""

    def __init__(self, url: str, columns: list[str]) -> None:
        self.url = url
        self.store = sp.create(url)
        self._numbers = count(1)
        with self.store.transaction() as txn:
            txn.create_table("t", pa.schema([(name, pa.int64()) for name in columns]), aligned=False)

    def pages(self, column: str) -> PageRun:
        return self.store.snapshot().table("t").directory.chain(column).all_pages()

    def commit(self, *changes: Change) -> None:
        """All changes are one commit; those of one column must not touch the same pages."""
        splices: list[Splice] = []
        rows: list[int] = []
        for change in changes:
            splices.append(self._splice(change, len(rows)))
            rows += change.rows
        written = record(next(self._numbers), tuple(rows), splices=tuple(splices))
        self.store._log.commit(self.store.snapshot().log, lambda _: written)

    def _splice(self, change: Change, first_page: int) -> Splice:
        definition = self.store.snapshot().table("t").definition
        run = self.pages(change.column)
        start = run.num_pages if change.start is None else change.start
        removed = run.slice(start, start if change.stop is None else change.stop)
        return Splice(
            definition.table_id,
            definition.field_ids[change.column],
            run.slice(0, start).num_rows,
            tuple(removed.page_ids.tolist()),
            removed.num_rows,
            0,
            first_page,
            first_page + len(change.rows),
            sum(change.rows),
        )


def chain_orders(store: sp.Store) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Page ids with their first rows, in chain order, of every chain that has pages."""
    snapshot = store.snapshot().log
    orders = {}
    for key in snapshot.chain_keys():
        run = snapshot.chain(key).all_pages()
        first_rows = run.prefix_entries.astype("int64") - run.numbers("entry_count")
        if run.num_pages:
            orders[key] = list(zip(run.page_ids.tolist(), first_rows.tolist(), strict=True))
    return orders


def written_orders(output: pa.Table) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The same of reconstructed descriptors, in the order in which they are given."""
    orders: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in output.to_pylist():
        key = (row["table_id"], row["field_id"])
        orders.setdefault(key, []).append((row["page_id"], row["first_row"]))
    return orders


def random_change(draw: random.Random, column: str, pages: Sequence[int]) -> Change:
    """An append, or pages in the place of others: as many rows, or at the end any number. Half are empty.

    `pages` are the rows of those that the column has.
    """
    if not pages or draw.random() < 0.3:
        return Change(column, tuple(draw.choice((0, 0, 1, 7)) for _ in range(draw.randint(1, 3))))
    start = draw.randrange(len(pages))
    stop = min(len(pages), start + draw.randint(1, 3))
    rows = sum(pages[start:stop])
    if stop == len(pages) and draw.random() < 0.5:
        rows = draw.randint(0, 9)
    cuts = sorted(draw.choice((0, rows, draw.randint(0, rows))) for _ in range(draw.randint(0, 3)))
    return Change(column, tuple(b - a for a, b in pairwise([0, *cuts, rows])), start, stop)


def random_changes(draw: random.Random, columns: Sequence[str], commits: int) -> list[list[Change]]:
    """What each commit does to each column."""
    pages: dict[str, list[int]] = {column: [] for column in columns}
    made = []
    for _ in range(commits):
        made.append([random_change(draw, column, pages[column]) for column in columns])
        for change in made[-1]:
            held = pages[change.column]
            start = len(held) if change.start is None else change.start
            held[start : change.stop] = change.rows
    return made


def changes(columns: Sequence[str], commits: int) -> st.SearchStrategy[list[list[Change]]]:
    """The same, made by hypothesis."""
    return st.randoms().map(lambda draw: random_changes(draw, columns, commits))


def write_history(url: str, commits: Sequence[Sequence[Change]], checkpoints: Collection[int]) -> Chains:
    """A store with these commits, and a checkpoint after each of those named."""
    chains = Chains(url, [change.column for change in commits[0]])
    for number, made in enumerate(commits):
        chains.commit(*made)
        if number in checkpoints:
            chains.store.checkpoint()
    return chains


def random_history(url: str, seed: int, commits: int, checkpoints: Collection[int]) -> Chains:
    """Chains full of empty pages, with a checkpoint after each of the commits named."""
    columns = [f"c{i}" for i in range(6)]
    return write_history(url, random_changes(random.Random(seed), columns, commits), checkpoints)
