"""Choose the pages that a compaction rewrites.

Candidates come from metadata: small neighbours, large pages, and neighbours scattered over page files. `gain`
keeps those that a rewrite would change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of
from spark_pages.io import Codec, PageHandler
from spark_pages.maintenance.claims import RowRange
from spark_pages.maintenance.page_rewrite import PageTarget, count_full_pages, page_target
from spark_pages.model.actions import Claim
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun
from spark_pages.query.page_metadata import Page
from spark_pages.query.table import Table

_COMPRESSION_GUESS = 5
"""Uncompressed bytes for each byte of a page whose entries have no fixed width. Rather too many: a full page
that is taken for a small one is read by every compaction, to find out that it is full."""

_PAGES_OF_A_RUN = 128
"""A longer run is cut: 8 MiB of values where pages have the usual size."""

_SPAN_PAGES = 8
"""Neighbours that lie one after another in a page file are read by one request. So many are enough."""

_LEAST_SPANS = 8
"""Shorter spans are written anew where so many of them follow each other: then one request takes the place of
each eight, and no page is written anew for the same reason again."""


@dataclass(frozen=True, eq=False, slots=True)
class CompactionTask:
    """One run of pages of one chain.

    Attributes
    ----------
    table_id, field_id, column
        The chain.
    first_row
        Row at which the run begins.
    run
        The pages.
    plain_bytes
        About how many bytes they have before their codec.
    """

    table_id: TableId
    field_id: FieldId
    column: str
    first_row: int
    run: PageRun
    plain_bytes: int


def plan_compaction(
    table: Table, claims: Sequence[Claim] | None = None, num_rows: int | None = None
) -> list[CompactionTask]:
    """Plan the tasks of a compaction.

    Tasks are runs of two or more neighbours below half of the target size, pages above twice the target size,
    and neighbours that are not neighbours in their page file.

    Parameters
    ----------
    claims
        Only pages that begin inside of these, so that a run does not grow with what is appended; None for
        all.
    num_rows
        Only pages that begin in the first so many rows; None for all.

    Notes
    -----
    Reads descriptors, the statistics of text, and of the pages what `gaining_parts` says: no run is planned
    that a rewrite would leave as it is. Constants stay: they hold no bytes. Long runs are cut, so that a task
    takes little memory and many can work on one column; of each some hundred pages that are written, one is
    not full.
    """
    tasks: list[CompactionTask] = []
    options = table.page_options
    held = None if claims is None else {(claim.table_id, claim.field_id): claim for claim in claims}
    for column, field_id in table.definition.field_ids.items():
        claim = held and held.get((table.definition.table_id, field_id))
        if (held is not None and claim is None) or column in table.definition.unavailable:
            continue
        pages = table.directory.chain(column).all_pages()
        if not pages.num_pages:
            continue
        prefix = pages.prefix_entries.astype(np.int64)
        starts = prefix - pages.numbers("entry_count")
        inside = np.ones(pages.num_pages, bool) if num_rows is None else starts < num_rows
        if claim:
            inside = (starts >= claim.first_row) & (starts < claim.end_row)
        kind = table.definition.schema.field(column).type
        wanted = options.bytes_for(column)
        guess = 1 if options.codec_for(column) is Codec.NONE else _COMPRESSION_GUESS
        estimated = _estimated_bytes(pages, kind, guess)
        alterable = inside & (pages.numbers("kind") != PageKind.CONSTANT)
        small = alterable & (estimated * 2 < wanted)
        large = alterable & (_surely_bytes(pages, kind) > wanted * 2) & (pages.numbers("entry_count") > 1)
        runs = _gaining(
            table,
            column,
            pages,
            joined=list(_runs(small, estimated, wanted, least=2)),
            split=list(_runs(large, estimated, wanted, least=1)),
        )
        free = inside & (pages.numbers("kind") == PageKind.FILE)
        for start, stop in runs:
            free[start:stop] = False
        runs += _runs(_scattered(pages, free), estimated, wanted, least=_SPAN_PAGES)
        for start, stop in sorted(runs):
            first_row = int(prefix[start - 1]) if start else 0
            run = pages.slice(start, stop)
            plain_bytes = int(estimated[start:stop].sum())
            tasks.append(
                CompactionTask(table.definition.table_id, field_id, column, first_row, run, plain_bytes)
            )
    return tasks


def _gaining(
    table: Table,
    column: str,
    pages: PageRun,
    joined: Sequence[tuple[int, int]],
    split: Sequence[tuple[int, int]],
) -> list[tuple[int, int]]:
    """Return the parts [start, stop) of runs that a join or split would improve."""
    wanted = page_target(table, column)
    runs = [*joined, *split]
    candidates = [
        Candidate(pages.slice(start, stop), wanted, splits=index >= len(joined))
        for index, (start, stop) in enumerate(runs)
    ]
    parts = gaining_parts(candidates, table.page_handler)
    return [
        (start + part[0], start + part[1])
        for (start, _), part in zip(runs, parts, strict=True)
        if part is not None
    ]


def _scattered(pages: PageRun, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the pages of many short spans that follow each other and are not rewritten otherwise."""
    files = numbers_of(pages.pages.column("path").cast(pa.string()).dictionary_encode("encode").indices)
    offsets, sizes = pages.numbers("offset"), pages.numbers("alloc_len")
    breaks = (files[1:] != files[:-1]) | (offsets[1:] != offsets[:-1] + sizes[:-1])
    span = np.concatenate([[0], np.cumsum(breaks)])
    short: NDArray[np.bool_] = free & (np.bincount(span)[span] < _SPAN_PAGES)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], short.astype(np.int8), [0]])))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if span[stop - 1] - span[start] + 1 < _LEAST_SPANS:
            short[start:stop] = False
    return short


def _runs(
    chosen: NDArray[np.bool_], estimated: NDArray[np.float64], page_bytes: int, least: int
) -> Iterator[tuple[int, int]]:
    """[start, stop) of neighbours that are chosen, at least so many, cut where they are worth many pages."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]])))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        of_page = (np.cumsum(estimated[start:stop]) - estimated[start:stop]) // (page_bytes * _PAGES_OF_A_RUN)
        cuts = (np.flatnonzero(np.diff(of_page)) + 1 + start).tolist()
        for low, high in pairwise([start, *cuts, stop]):
            if high - low >= least:
                yield low, high


def _surely_bytes(pages: PageRun, kind: pa.DataType) -> NDArray[np.float64]:
    """Bytes that each page has at least, before its codec."""
    least = np.asarray(pages.numbers("entry_count") * _least_bytes(kind), dtype=np.float64)
    return least if _is_fixed(kind) else np.maximum(least, pages.numbers("actual_len"))


def _estimated_bytes(pages: PageRun, kind: pa.DataType, guess: int) -> NDArray[np.float64]:
    """Bytes of each page before its codec: exact for a fixed width, else a guess, rather too high.

    How far text was compressed nobody knows, but its least and greatest value are about as long as others.
    """
    entries = pages.numbers("entry_count")
    least = np.asarray(entries * _least_bytes(kind), dtype=np.float64)
    if _is_fixed(kind):
        return least
    guessed = np.maximum(least, pages.numbers("actual_len") * float(guess))
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return guessed
    bounds = [pc.binary_length(pages.stats.column(name)).fill_null(0) for name in ("min", "max")]
    lengths = sum(numbers_of(each).astype(np.float64) for each in bounds) / 2
    return np.maximum(guessed, least + entries * lengths)


def _is_fixed(kind: pa.DataType) -> bool:
    try:
        return int(kind.bit_width) > 0
    except ValueError:
        return False


def _least_bytes(kind: pa.DataType) -> float:
    """Bytes that an entry takes in any case."""
    types = pa.types
    if _is_fixed(kind):
        return float(kind.bit_width) / 8
    if types.is_struct(kind):
        return sum(_least_bytes(kind.field(index).type) for index in range(kind.num_fields))
    if types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind):
        return 8.0
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind):
        return 4.0
    return 0.0


def claimed_ranges(tasks: Sequence[CompactionTask]) -> dict[ChainKey, RowRange]:
    """Return the rows that the tasks of each chain cover, for a claim."""
    ranges: dict[ChainKey, RowRange] = {}
    for task in tasks:
        key = (task.table_id, task.field_id)
        first, end = ranges.get(key, (task.first_row, task.first_row))
        ranges[key] = (min(first, task.first_row), max(end, task.first_row + task.run.num_rows))
    return ranges


# Which runs of pages gain by a rewrite: pages of each are read, and cut as the rewrite would cut them.
#
# Descriptors tell how many bytes a page has as stored. How many values these are, and how a rewrite would cut
# them, only the pages tell: of text that repeats, of dictionaries, of lists. Without a look at them, a run
# that gains nothing would be rewritten by every compaction.

_FIRST_PAGES = 2
_MOST_PAGES = 64
"""Pages of a run that are read at a time: few at first, because most runs gain where they begin."""

_PAGES_AT_ONCE = 512
"""Pages of all runs that are in memory together, at most."""


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A run that may gain.

    Attributes
    ----------
    run
        The pages.
    wanted
        What new pages are to be like.
    splits
        Whether its pages are to be split; else they are to be joined.
    """

    run: PageRun
    wanted: PageTarget
    splits: bool

    @property
    def width(self) -> int:
        """Neighbouring pages that are looked at together."""
        return 1 if self.splits else 2

    def gains(self, start: int, found: Sequence[Page]) -> bool:
        """Whether a page becomes several, or two neighbours one; `found` are the pages from `start` on."""
        count = count_full_pages(self.run.slice(start, start + self.width), found, self.wanted)
        return count > 1 if self.splits else count <= 1


def gaining_parts(candidates: Sequence[Candidate], pages: PageHandler) -> list[tuple[int, int] | None]:
    """For each run the pages [start, stop) from the first gain to the last; None where nothing gains.

    Notes
    -----
    Reads the two pages at both ends of a run that gains there, and all pages of a run that does not gain.
    """
    starts = _first_gains(candidates, pages, backward=False)
    some = [each for each, start in zip(candidates, starts, strict=True) if start is not None]
    stops = iter(_first_gains(some, pages, backward=True))
    found: list[tuple[int, int] | None] = []
    for each, start in zip(candidates, starts, strict=True):
        last = None if start is None else next(stops)
        found.append(None if start is None or last is None else (start, last + each.width))
    return found


def _first_gains(candidates: Sequence[Candidate], pages: PageHandler, *, backward: bool) -> list[int | None]:
    """Where the first gain of each run begins, or the last one; None where nothing gains."""
    gains: list[int | None] = [None] * len(candidates)
    waiting, done, size = list(range(len(candidates))), 0, _FIRST_PAGES
    while waiting:
        for group in _groups(waiting, max(1, _PAGES_AT_ONCE // size)):
            spans = [_span(candidates[index], done, size, backward) for index in group]
            runs = [candidates[index].run.slice(*span) for index, span in zip(group, spans, strict=True)]
            read = pages.get_values(runs, admit=False, whole=True)
            for index, (first, stop), found in zip(group, spans, read, strict=True):
                each = candidates[index]
                places = range(first, stop - each.width + 1)
                gains[index] = next(
                    (
                        at
                        for at in (reversed(places) if backward else places)
                        if each.gains(at, found[at - first : at - first + each.width])
                    ),
                    None,
                )
        done += size
        size = min(2 * size, _MOST_PAGES)
        waiting = [i for i in waiting if gains[i] is None and done < candidates[i].run.num_pages]
    return gains


def _span(candidate: Candidate, done: int, size: int, backward: bool) -> tuple[int, int]:
    """Return the next pages of a run, and the page before them if it adjoins the first."""
    total, overlap = candidate.run.num_pages, candidate.width - 1 if done else 0
    first, stop = done - overlap, min(done + size, total)
    return (total - stop, total - first) if backward else (first, stop)


def _groups(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (indices[first : first + size] for first in range(0, len(indices), size))
