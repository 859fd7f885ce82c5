"""Columns cut into stretches of pages, so that no task needs a whole one. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from spark_pages.query.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Stretch:
    """The pages of one column at positions [start, stop)."""

    table: str
    column: str
    start: int
    stop: int


def stretches_of(snapshot: Snapshot, tables: Iterable[str], most: int) -> Iterator[Stretch]:
    """All pages of these tables, in stretches of about even length and of so many pages at most.

    Notes
    -----
    Reads no descriptors: how many pages a chain has is known without them.
    """
    for table in map(snapshot.table, tables):
        for column in table.columns:
            pages = table.directory.chain(column).num_pages
            parts = -(-pages // most)
            bounds = (pages * part // parts for part in range(parts + 1)) if parts else ()
            for start, stop in pairwise(bounds):
                yield Stretch(table.name, column, start, stop)
