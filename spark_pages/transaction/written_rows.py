"""Rows that other processes have written for a transaction: their pages lie in page files, and are listed.

A task of a large write (`write_rows`) encodes its rows, makes page files durable and tells `WrittenRows`: how
many rows, which pages of which column, and where these are listed. The one process that commits puts the
lists into a transaction (`Transaction.append_written`), without looking at pages: many of them stay in the
page manifests that the tasks wrote. Until that commit nothing names what was written, so a task that fails,
or is repeated, leaves only orphans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from spark_pages.catalog.namespaces import LOCATION
from spark_pages.catalog.page_options import PageOptions
from spark_pages.format.names import PAGES, page_file_key
from spark_pages.format.segment import decode_manifest, encode_manifest
from spark_pages.format.values import as_stream
from spark_pages.model.actions import ManifestRef, Splice
from spark_pages.model.added_pages import AddedPages, NewPage, page_batches
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.location import Location
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, have_nan
from spark_pages.model.table import TableDefinition
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.ingest import TableIngest, spelled_columns
from spark_pages.transaction.page_flush import PageFlusher
from spark_pages.transaction.placement import MANIFEST_PAGES, PlacedChanges, StagedSplice, write_manifest

LISTED_PAGES = 256
"""A task with no more pages than this tells them itself; one with more writes a page manifest."""

_PIECE_BYTES = 16 << 20
_MEMORY_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows in pages that no commit names yet.

    Attributes
    ----------
    num_rows, num_pages
        How many; every column has so many rows.
    page_bytes
        Sum of the pages' `actual_len`.
    columns
        By column: pages [start, stop) of the list.
    listing
        A page manifest: where it is, or its bytes.
    read_version
        The version for which they were written: vacuum judges the pages by it.
    have_nan
        Whether one of the pages says that some of its values are NaN.
    """

    num_rows: int
    num_pages: int
    page_bytes: int
    columns: Mapping[str, tuple[int, int]]
    listing: Location | bytes
    read_version: int
    have_nan: bool


def write_rows(
    objects: ObjectStore,
    runtime: Runtime,
    definition: TableDefinition,
    read_version: int,
    data: object,
    inherited: Mapping[str, str] | None = None,
) -> WrittenRows:
    """Write the rows durably to page files.

    Parameters
    ----------
    definition
        The table; says names, types, and how pages are written.
    read_version
        The version that the transaction which will name the pages stands on: vacuum judges them by it.
    data
        What `Transaction.append` takes. A stream is read piece by piece.
    inherited
        Properties of the table's namespace.

    Raises
    ------
    SchemaMismatchError
        If a column is unknown, missing though not nullable, or of a type that does not fit.

    Notes
    -----
    Names are of this call alone. One request for each page file, and one for a manifest.
    """
    rows = as_stream(data)
    rows = rows.renamed(spelled_columns(definition, rows.columns))
    splices = [
        StagedSplice(definition.table_id, field_id, 0, (), 0, [])
        for field_id in definition.field_ids.values()
    ]
    ingest = TableIngest(definition, PageOptions.of(definition, inherited=inherited), splices)
    ingest.check(rows)
    token, numbers = runtime.token(), count()
    folder = (inherited or {}).get(LOCATION, PAGES)

    def next_page_file(_: TableId) -> str:
        return page_file_key(read_version, token, next(numbers), folder)

    flusher = PageFlusher(objects, runtime.spawn)
    num_rows, held_bytes = 0, 0
    for piece in rows.pieces(max(1, min(_PIECE_BYTES, _MEMORY_BYTES // 8))):
        num_rows += piece.num_rows
        held_bytes += ingest.add(piece)
        if held_bytes * 4 > _MEMORY_BYTES:  # what is written takes two quarters more
            flusher.write(splices, next_page_file)
            held_bytes = 0
    ingest.finish()
    flusher.write(splices, next_page_file)
    flusher.wait()
    pages: list[NewPage] = []
    columns: dict[str, tuple[int, int]] = {}
    for name, splice in zip(definition.field_ids, splices, strict=True):
        start = len(pages)
        pages += [page for page in splice.pages if isinstance(page, NewPage)]
        columns[name] = (start, len(pages))
    batch, stats = page_batches(pages)
    if len(pages) > LISTED_PAGES:
        manifest = write_manifest(objects, f"{max(read_version, 0):020d}-{token}-0", batch, stats)
        listing, page_bytes = manifest.location, manifest.page_bytes
        return WrittenRows(
            num_rows, len(pages), page_bytes, columns, listing, read_version, manifest.have_nan
        )
    page_bytes = sum(page.actual_len for page in pages)
    list_bytes, nan = encode_manifest(batch, stats), have_nan(stats)
    return WrittenRows(num_rows, len(pages), page_bytes, columns, list_bytes, read_version, nan)


@dataclass(frozen=True, slots=True)
class StagedWrites:
    """What a transaction puts behind the rows of a table.

    Attributes
    ----------
    table_id, field_ids
        The table.
    first_row
        Rows that it has before, of each column.
    written
        In order.
    """

    table_id: TableId
    field_ids: Mapping[str, FieldId]
    first_row: int
    written: tuple[WrittenRows, ...]


def with_written(
    store: ObjectStore, prepared: PlacedChanges, staged: Sequence[StagedWrites], manifest: str
) -> PlacedChanges:
    """Append rows that others wrote to the changes of a transaction.

    Parameters
    ----------
    manifest
        Id of one more page manifest, where one is needed.

    Notes
    -----
    Lists that came as bytes go into the commit itself where that leaves it small, else into one manifest
    more. Python work for each column of each list; none for pages.
    """
    few = [each for of in staged for each in of.written if isinstance(each.listing, bytes)]
    batches = [
        decode_manifest(each.listing, "a list of pages") for each in few if isinstance(each.listing, bytes)
    ]
    own_pages, own_stats = prepared.own.batches
    pages = concat_batches([own_pages, *(pages for pages, _ in batches)], PAGE_SCHEMA)
    stats = concat_batches([own_stats, *(stats for _, stats in batches)], STATS_SCHEMA)
    manifests = list(prepared.manifests)
    own_source, base = 0, own_pages.num_rows
    if pages.num_rows > MANIFEST_PAGES:
        listed = pages.slice(base)
        own_source, base = len(manifests) + 1, 0
        manifests.append(write_manifest(store, manifest, listed, stats.slice(own_pages.num_rows)))
        pages, stats = own_pages, own_stats
    splices = list(prepared.splices)
    for of in staged:
        first_row = of.first_row
        for each in of.written:
            if isinstance(each.listing, bytes):
                source, shift = own_source, base
                base += each.num_pages
            else:
                manifests.append(ManifestRef(each.listing, 0, each.num_pages, each.page_bytes, each.have_nan))
                source, shift = len(manifests), 0
            splices += _appends(of, each, first_row, source, shift)
            first_row += each.num_rows
    return replace(prepared, own=AddedPages(pages, stats), splices=tuple(splices), manifests=tuple(manifests))


def _appends(of: StagedWrites, each: WrittenRows, first_row: int, source: int, shift: int) -> list[Splice]:
    return [
        Splice(
            of.table_id,
            of.field_ids[name],
            first_row,
            (),
            0,
            source,
            start + shift,
            stop + shift,
            each.num_rows,
            touched=((first_row, first_row + each.num_rows),),
        )
        for name, (start, stop) in each.columns.items()
        if stop > start
    ]
