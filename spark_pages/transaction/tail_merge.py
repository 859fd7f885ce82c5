"""Small appends rewrite the small pages at the end of a table, so that a stream of them leaves few pages.

Each append of one row would leave a page of one row in every column. Instead its commit may take the last
pages out again and put one page in their place, with their rows and the new ones (seed 000, `replace_last`).
Their bytes are known from earlier commits, so nothing is read. `pages_to_merge` is the rule.

If another append commits first, the merge becomes a plain append, and so does a claim of these pages, so that
a compaction does not lose its work to a stream of appends: see `TailMerge`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_pages.arrow.join import DoesNotFitError, as_type, join, page_of_another_column
from spark_pages.arrow.nested import null_scalar
from spark_pages.arrow.types import can_hold
from spark_pages.io import decode_page, page_stats
from spark_pages.log.properties import TAIL_BYTES_PROPERTY
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef, Claim
from spark_pages.model.chain_tree import ChainEdit, ChainKey
from spark_pages.model.ids import is_temporary
from spark_pages.model.tail import ChainTail, TailPage
from spark_pages.query.page_metadata import PageMeta
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.ingest import FRAME_BYTES, ColumnIngest, TableIngest
from spark_pages.transaction.page_writer import (
    INLINE_PAGE_BYTES,
    INLINE_TRANSACTION_BYTES,
    StagedPage,
    fits_inline,
    stage_constant,
    stage_page,
)
from spark_pages.transaction.placement import PlacedChanges, StagedSplice, place_in_memory
from spark_pages.transaction.state import TransactionState

TAIL_PAGE_BYTES = 8 << 10
"""A page of this size at the end of a chain stays as it is, where the store says nothing."""

RUN = 3
"""So many pages at the end of a chain that are about as small as what comes are joined with it."""


def tail_page_bytes(properties: Mapping[str, str]) -> int:
    """How large a page at the end of a chain may become, as a store's properties say; 0 for not at all."""
    value = properties.get(TAIL_BYTES_PROPERTY, "")
    return min(int(value), INLINE_PAGE_BYTES) if value.isascii() and value.isdigit() else TAIL_PAGE_BYTES


def pages_to_merge(pages: Sequence[TailPage], new_rows: int, new_bytes: int, most_bytes: int) -> int:
    """How many of the last pages an append takes along.

    Parameters
    ----------
    pages
        The last pages, in row order.
    new_rows, new_bytes
        Rows of the append, and bytes of their page, about.
    most_bytes
        Bytes that the page may have which takes their place.

    Notes
    -----
    Pages are of one size if their rows have the same power of 4 below them. As in a counter, `RUN` pages that
    are not larger than what comes are joined with it, and then perhaps those before them. So n appends of one
    size leave at most ``RUN * log4(n)`` pages, each row is written log4(n) times, and three of four appends
    write nothing but their own rows. A page with which the new one would be too large ends what can be
    joined, as a larger one does.
    """
    rows, size = new_rows, new_bytes
    taken = 0
    while True:
        more: list[TailPage] = []
        grown = size
        for page in reversed(pages[: len(pages) - taken]):
            added = max(0, len(page.data) - FRAME_BYTES)
            if _power(page.entries) > _power(rows) or grown + added > most_bytes:
                break
            more.append(page)
            grown += added
        if len(more) < RUN:
            return taken
        taken, rows, size = taken + len(more), rows + sum(page.entries for page in more), grown


def _power(rows: int) -> int:
    return (rows.bit_length() - 1) // 2


def merged_tails(
    ingests: Sequence[TableIngest], base: LogSnapshot, most_bytes: int
) -> list[StagedSplice] | None:
    """Return the appends of a small transaction with the pages that they merge; None if it does not pay.

    Parameters
    ----------
    ingests
        Rows that all still wait: no page of them has been encoded.
    base
        The read version.
    most_bytes
        See `pages_to_merge`.
    """
    columns = [(ingest, column) for ingest in ingests for column in ingest.columns]
    left = INLINE_TRANSACTION_BYTES - sum([column.waiting_bytes for _, column in columns])
    if left < 0:
        return None
    plan: list[tuple[ColumnIngest, ChainTail, _Carried]] = []
    for _, column in columns:
        key = (column.splice.table_id, column.splice.field_id)
        tail = base.tail(key) if column.splice.table_id >= 0 else ChainTail(0)
        carried = _carried_pages(column, tail, min(most_bytes, left))
        left -= sum(len(page.data) for page in carried.pages)
        plan.append((column, tail, carried))
    if not any(carried.pages for _, _, carried in plan):
        return None  # three times of four, and no page has been encoded for that
    splices = [_merged(column, tail, carried) for column, tail, carried in plan]
    if not any(splice.removed for splice in splices):
        return None
    staged = [page for splice in splices for page in splice.pages if isinstance(page, StagedPage)]
    return splices if fits_inline(staged) else None


@dataclass(frozen=True, slots=True)
class _Carried:
    """Pages that an append takes along, and what is in them, if they are no constants."""

    pages: Sequence[TailPage] = ()
    batches: Sequence[pa.RecordBatch] = ()


def _carried_pages(column: ColumnIngest, tail: ChainTail, most_bytes: int) -> _Carried:
    """Return the last pages to merge into the append of one column, if they fit."""
    if not column.nulls:
        pages = _last(_plain_tail(tail.pages), column, most_bytes)
        batches = [_decoded(page) for page in pages]
        others = [i for i, each in enumerate(batches) if (each.schema.metadata or None) != column.meta.page]
        if others:  # pages with other metadata are not joined: they end what can be
            pages = _last(pages[others[-1] + 1 :], column, most_bytes)
        return _Carried(pages, batches[len(batches) - len(pages) :])
    last = tail.pages[-1:]
    if len(column.waiting) or not last or not last[0].constant:
        return _Carried()
    return _Carried(last) if last[0].data == _nulls(column, 1).encoded.data else _Carried()


def _last(pages: Sequence[TailPage], column: ColumnIngest, most_bytes: int) -> Sequence[TailPage]:
    count = pages_to_merge(pages, column.waiting_rows, column.waiting_bytes, most_bytes)
    return pages[len(pages) - count :]


def _decoded(page: TailPage) -> pa.RecordBatch:
    return decode_page(
        page.data,
        where=f"inline page {page.page_id:016x}",
        expected_checksum=None,
        expected_entries=page.entries,
    )


def _nulls(column: ColumnIngest, count: int) -> StagedPage:
    return stage_constant(null_scalar(column.wanted.type), count)


def _merged(column: ColumnIngest, tail: ChainTail, carried: _Carried) -> StagedSplice:
    """Return the append of one column merged with its last pages."""
    if column.nulls and not len(column.waiting):
        pages = [_nulls(column, column.nulls + sum(page.entries for page in carried.pages))]
    else:
        joined = _joined(carried, column)
        if joined is None:
            carried, joined = _Carried(), (column.waiting, column.meta)
        values, meta = joined
        pages = []
        if len(values):  # inline: no bloom filter
            pages.append(stage_page(values, page_stats(values), column.codec, meta=meta))
        if column.nulls:
            pages.append(_nulls(column, column.nulls))
    rows = sum(page.entries for page in carried.pages)
    return replace(
        column.splice,
        first_row=tail.rows - rows,
        removed=tuple(page.page_id for page in carried.pages),
        removed_entries=rows,
        pages=pages,
        touched=((tail.rows, tail.rows + column.waiting_rows),),
    )


def _plain_tail(pages: Sequence[TailPage]) -> Sequence[TailPage]:
    """Return the last pages that are not constants."""
    count = next((i for i, page in enumerate(reversed(pages)) if page.constant), len(pages))
    return pages[len(pages) - count :]


def _joined(carried: _Carried, column: ColumnIngest) -> tuple[pa.Array, PageMeta] | None:
    """Join the entries of these pages and the waiting ones; None if they exceed one page."""
    kind = column.wanted.type
    arrays, metas = [], []
    for page, batch in zip(carried.pages, carried.batches, strict=True):
        values = batch.column("data")
        what = f"column {column.wanted.name!r}"
        if not can_hold(kind, values.type):
            shown = f"inline page {page.page_id:016x}"
            raise page_of_another_column(what, shown, kind, values.type)
        arrays += as_type([values], kind, what)
        metas.append((PageMeta.of([batch]), page.entries))
    try:
        meta = PageMeta.joined([*metas, (column.meta, len(column.waiting))])
        return join([*arrays, column.waiting], kind), meta
    except DoesNotFitError:
        return None


@dataclass(eq=False, slots=True)
class TailMerge:
    """A small append in two forms: with the merged tail where the chains are unchanged, else without.

    Attributes
    ----------
    merged
        The append with the merged pages, for chains that are as they were, and whose pages nobody claims.
    checkpoint, edits
        The checkpoint of the read version, and the edits of these chains since.
    taken
        The rows [first, end) of each chain that the merged pages replace.
    now_us
        Claims that have expired by then are ignored.
    store, ingests
        The appended rows, for the plain append.
    """

    merged: PlacedChanges
    checkpoint: CheckpointRef | None
    edits: Mapping[ChainKey, tuple[ChainEdit, ...]]
    taken: Mapping[ChainKey, tuple[int, int]]
    now_us: int
    store: ObjectStore
    ingests: Sequence[TableIngest]
    _plain: PlacedChanges | None = None

    def on(self, state: LogState) -> PlacedChanges:
        """Return the form that applies on top of a state."""
        same = (state.edits.get(key, ()) is edits for key, edits in self.edits.items())
        if state.base == self.checkpoint and all(same) and not self._claimed(state.claims):
            return self.merged
        if self._plain is None:
            for ingest in self.ingests:
                ingest.finish()
            splices = [splice for ingest in self.ingests for splice in ingest.splices()]
            self._plain = place_in_memory(self.store, splices)
        return self._plain

    def _claimed(self, claims: Sequence[Claim]) -> bool:
        return any(
            claim.expires_at_us > self.now_us and claim.overlaps(key, *rows)
            for claim in claims
            for key, rows in self.taken.items()
        )


def plan_tail_merge(state: TransactionState) -> TailMerge | None:
    """Return what to commit instead of a plain append; None unless all that is staged are few rows."""
    base, staged = state.base, state.staged
    most_bytes = tail_page_bytes(base.state.properties)
    ingests = [each for table_id, each in staged.appends.items() if not is_temporary(table_id)]
    more = (staged.splices, staged.written, staged.deleted, state.updates, staged.ddl)
    if not most_bytes or not ingests or any(more):
        return None
    if any(column.splice.pages for ingest in ingests for column in ingest.columns):
        return None
    splices = merged_tails(ingests, base, most_bytes)
    if splices is None:
        return None
    tables = {splice.table_id for splice in splices if splice.removed}
    keys = [(s.table_id, s.field_id) for s in splices if s.table_id in tables]
    edits: dict[ChainKey, tuple[ChainEdit, ...]] = {key: base.state.edits.get(key, ()) for key in keys}
    taken: dict[ChainKey, tuple[int, int]] = {
        (s.table_id, s.field_id): (s.first_row, s.first_row + s.removed_entries) for s in splices if s.removed
    }
    merged = place_in_memory(state.store, splices)
    now_us = state.runtime.now_us()
    return TailMerge(merged, base.state.base, edits, taken, now_us, state.store, ingests)
