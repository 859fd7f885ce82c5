"""From staged changes to placed pages: what a transaction brings to storage before it commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from spark_pages.errors import InternalError
from spark_pages.format.digest import locate
from spark_pages.format.names import manifest_key
from spark_pages.format.segment import encode_manifest
from spark_pages.log.state import LogState
from spark_pages.model.actions import ManifestRef, Splice
from spark_pages.model.added_pages import NO_PAGES, AddedPages, NewPage, page_batches
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.page import PageKind
from spark_pages.model.page_schema import have_nan
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_writer import PlacedPages, StagedPage, fits_inline

MANIFEST_PAGES = 1000
"""A transaction with more pages than this lists them in a page manifest."""


Staged = StagedPage | NewPage
"""A page of a transaction, without or with its place."""


@dataclass(eq=False, slots=True)
class StagedSplice:
    """A splice whose pages may still be without a place; fields as in `model.actions.Splice`."""

    table_id: TableId
    field_id: FieldId
    first_row: int
    removed: tuple[int, ...]
    removed_entries: int
    pages: Sequence[StagedPage | NewPage]
    data_change: bool = True
    touched: tuple[tuple[int, int], ...] = ()

    @property
    def added_entries(self) -> int:
        """Rows that its pages hold."""
        return sum([p.entries if isinstance(p, StagedPage) else p.entry_count for p in self.pages])


@dataclass(frozen=True, eq=False, slots=True)
class PlacedChanges:
    """Splices whose pages have their places; they stay the same over all rebases of a transaction."""

    own: AddedPages
    splices: tuple[Splice, ...]
    manifests: tuple[ManifestRef, ...] = ()

    def on(self, _: LogState) -> PlacedChanges:
        """Return the changes on top of a state: the same on each."""
        return self


def stays_inline(splices: Sequence[StagedSplice]) -> bool:
    """Whether no page file and no page manifest will be written for them."""
    pages = [page for splice in splices for page in splice.pages]
    riding = [page for page in pages if isinstance(page, StagedPage) or page.kind is PageKind.INLINE]
    return fits_inline(riding) and len(pages) <= MANIFEST_PAGES


def place_splices(
    store: ObjectStore,
    splices_in: Sequence[StagedSplice],
    next_page_file: Callable[[TableId], str],
    manifest: str,
) -> PlacedChanges:
    """Every page has its place, and keeps it in these splices; nothing refers to them before the commit.

    Parameters
    ----------
    next_page_file
        Gives the key of the next page file for a table.
    manifest
        Id of a page manifest, where one is needed.

    Notes
    -----
    One request for each page file, which holds the pages of one table, and one for the manifest of a
    large transaction. A crash leaves orphans that no snapshot sees.
    """
    pages, splices = _place(store, splices_in, next_page_file, stays_inline(splices_in))
    for staged, placed in zip(_by_chain(splices_in), splices, strict=True):
        staged.pages = pages[placed.start : placed.stop]
    if len(pages) <= MANIFEST_PAGES:
        return PlacedChanges(AddedPages.of(pages), splices)
    listed = write_manifest(store, manifest, *page_batches(pages))
    return PlacedChanges(NO_PAGES, tuple(replace(splice, source=1) for splice in splices), (listed,))


def write_manifest(
    store: ObjectStore, manifest: str, pages: pa.RecordBatch, stats: pa.RecordBatch
) -> ManifestRef:
    """Write a page manifest, and return what a record says of it; one request.

    Parameters
    ----------
    manifest
        Its id.
    """
    data = encode_manifest(pages, stats)
    location = locate(manifest_key(manifest), data)
    store.put(location.key, data)
    sizes = pages.column("actual_len").to_numpy()
    return ManifestRef(location, 0, pages.num_rows, int(sizes.sum()), have_nan(stats))


def place_in_memory(store: ObjectStore, splices_in: Sequence[StagedSplice]) -> PlacedChanges:
    """Every page stays in memory: for a transaction that reads what it has staged."""

    def no_file(_: TableId) -> str:
        raise InternalError("Cannot place a page: it was to stay in memory and asked for a page file.")

    pages, splices = _place(store, splices_in, no_file, inline=True)
    return PlacedChanges(AddedPages.of(pages), splices)


def pages_in_order(splices: Sequence[StagedSplice]) -> list[StagedPage | NewPage]:
    """Return the pages of splices, by their ordinals once they are placed."""
    return [page for splice in _by_chain(splices) for page in splice.pages]


def _by_chain(splices: Sequence[StagedSplice]) -> list[StagedSplice]:
    return sorted(splices, key=lambda each: (each.table_id, each.field_id))


def _place(
    store: ObjectStore,
    splices_in: Sequence[StagedSplice],
    next_page_file: Callable[[TableId], str],
    inline: bool,
) -> tuple[list[NewPage], tuple[Splice, ...]]:
    pages: list[NewPage] = []
    splices: list[Splice] = []
    table: TableId | None = None
    placed = PlacedPages(store)
    for splice in _by_chain(splices_in):
        if splice.table_id != table:
            table = splice.table_id
            placed.begin(partial(next_page_file, table))
        start = len(pages)
        pages += placed.place(splice.pages, inline)
        splices.append(
            Splice(
                splice.table_id,
                splice.field_id,
                splice.first_row,
                splice.removed,
                splice.removed_entries,
                0,
                start,
                len(pages),
                splice.added_entries,
                splice.data_change,
                splice.touched,
            )
        )
    placed.finish_file()
    return pages, tuple(splices)
