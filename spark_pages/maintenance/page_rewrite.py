"""The rows of runs of pages, in full pages: what page compaction does for each, here or in an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_pages.arrow.join import as_type, page_of_another_column
from spark_pages.arrow.types import can_hold
from spark_pages.format.pages.lazy_page import as_batch
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES, plan_pages
from spark_pages.io import Codec, PageFileWriter, PageHandler
from spark_pages.io.file_writer import BufferPool
from spark_pages.model.added_pages import NewPage
from spark_pages.model.run import PageRun
from spark_pages.progress import advance
from spark_pages.query.concat import as_array, assembled, entries_of, type_of
from spark_pages.query.page_metadata import Page, PageMeta, group_by_metadata
from spark_pages.query.table import Table
from spark_pages.runtime import Spawn, spawn_thread
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_flush import FilesBehind
from spark_pages.transaction.page_writer import PlacedPages, StagedPage, stage_column

_FILE_BYTES = 32 << 20
"""Of a page file: it is written while the pages of the next are made, so twice as much is in memory."""

_ROOM_BYTES = 1 << 20
"""The last page of a file reaches beyond its size: by less than this, or it is written the slower way."""


@dataclass(frozen=True, slots=True)
class PageTarget:
    """How the rows of a column are to be written.

    Attributes
    ----------
    kind
        Type of the column.
    page_bytes, bloom, codec
        What its new pages are like; see `stage_column`.
    column
        The column and its table in words, for messages.
    """

    kind: pa.DataType
    page_bytes: int = TARGET_PAGE_BYTES
    bloom: float | None = None
    codec: Codec = Codec.LZ4
    column: str = "a column"


def stored_bytes(run: PageRun) -> int:
    """Return the bytes that the pages of a run take in storage."""
    return int(run.numbers("actual_len").astype(np.int64).sum())


def page_target(table: Table, column: str) -> PageTarget:
    """Return the target size and encoding for new pages of a column."""
    options = table.page_options
    return PageTarget(
        table.schema.field(column).type,
        options.bytes_for(column),
        options.bloom_for(column),
        options.codec_for(column),
        f"column {column!r} of {table.name}",
    )


def rewrite_runs(
    runs: Iterable[tuple[PageRun, PageTarget]],
    pages: PageHandler,
    store: ObjectStore,
    next_key: Callable[[], str],
    spawn: Spawn = spawn_thread,
) -> list[list[NewPage]]:
    """Full pages with the rows of each run, in page files that are durable; nothing refers to them yet.

    Parameters
    ----------
    pages
        Reads them.
    store, next_key
        Where page files go, and the key of the next one.
    spawn
        Begins work beside the caller: a page file is written while the pages of the next are made.

    Notes
    -----
    Entries keep what they have beside their values. Pages with other metadata than their neighbours are not
    joined with them. Memory: one run, what is read of the next, and two page files.
    """
    behind = FilesBehind(spawn)
    placed = PlacedPages(store, next_key, behind.begin, _FILE_BYTES, BufferPool(_FILE_BYTES + _ROOM_BYTES))
    given = list(runs)
    numbers = pages.read_numbers([(run, wanted.kind) for run, wanted in given])
    new = []
    for (run, wanted), values in zip(given, numbers, strict=True):
        new.append(placed.place(_full_pages(run, wanted, pages, values), inline=False))
        advance(run.num_pages, stored_bytes(run))
    placed.finish_file(PageFileWriter.finish)  # nothing is left to do beside it
    behind.wait()
    return new


def _full_pages(
    run: PageRun, wanted: PageTarget, pages: PageHandler, values: pa.Array | None
) -> list[StagedPage]:
    """Full pages with the rows of a run, whose values may be there already."""
    if values is not None:
        return stage_column(values, wanted.page_bytes, wanted.codec, wanted.bloom)
    (found,) = pages.get_values([run], admit=False, whole=True)
    return [
        staged
        for each, beside in _joined_values(run, found, wanted)
        for staged in stage_column(each, wanted.page_bytes, wanted.codec, wanted.bloom, beside)
    ]


def count_full_pages(run: PageRun, found: Sequence[Page], wanted: PageTarget) -> int:
    """How many pages `rewrite_runs` would write for a run.

    Parameters
    ----------
    found
        Its pages, as `PageHandler.get_values` gives them with `whole`.
    """
    parts = _joined_values(run, found, wanted)
    return sum(len(plan_pages(beside.join_with(each), wanted.page_bytes)) - 1 for each, beside in parts)


def _joined_values(
    run: PageRun, found: Sequence[Page], wanted: PageTarget
) -> Iterator[tuple[pa.Array, PageMeta]]:
    """Iterate over the values of a run, in as few arrays as possible, with their page metadata."""
    for index, kind in enumerate(map(_stored_type, found)):
        if not can_hold(wanted.kind, kind):
            raise page_of_another_column(wanted.column, run.descriptor(index).where, wanted.kind, kind)
    for alike in group_by_metadata(found):
        batches = [page for page in alike if isinstance(page, pa.RecordBatch)]
        if len(batches) == len(alike):
            meta = PageMeta.of(batches)
        elif any(batch.num_columns > 1 for batch in batches):
            meta = PageMeta.of([as_batch(page) for page in alike])
        else:
            meta = PageMeta(page=alike[0].schema.metadata)
        first = 0
        for each in _joined(alike, wanted.kind, wanted.column):
            yield each, meta.slice(first, first + len(each))
            first += len(each)


def _stored_type(page: Page) -> pa.DataType:
    return type_of(page.column("data") if isinstance(page, pa.RecordBatch) else page)


def _joined(pages: Sequence[Page], kind: pa.DataType, column: str) -> list[pa.Array]:
    """Join the values of pages under one type, in as few arrays as possible."""
    values = [page.column("data") if isinstance(page, pa.RecordBatch) else page for page in pages]
    if any(type_of(each) != kind for each in values):  # the column has got another type
        values = as_type(map(as_array, values), kind, column)
    return assembled([(each, 0, entries_of(each)) for each in values], kind)
