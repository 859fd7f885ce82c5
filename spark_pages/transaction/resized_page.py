"""A page with another number of rows: the same payload, described anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from spark_pages.errors import DamageError, InvalidInputError, SchemaMismatchError
from spark_pages.format.pages.codecs import BytesLike
from spark_pages.format.pages.untrusted_page import UntrustedPage, check_untrusted_page
from spark_pages.io import EncodedPage, page_stats
from spark_pages.model.ids import PageId
from spark_pages.model.new_page import NewPage
from spark_pages.model.page import PAGE_ALIGNMENT, PageDescriptor, PageKind, PageStats
from spark_pages.storage.checked_read import read_checked
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_intake import check_rows
from spark_pages.transaction.page_writer import INLINE_PAGE_BYTES, StagedPage


def resized_page(
    store: ObjectStore,
    page: PageDescriptor,
    field: pa.Field,
    entry_count: int,
    stored_types: Sequence[pa.DataType] = (),
) -> NewPage | StagedPage:
    """The same payload with another number of rows.

    Parameters
    ----------
    field
        Of its column.
    stored_types
        Other types that the page may be of, because the column has got its type since.

    Raises
    ------
    InvalidInputError
        If it cannot show so many rows.
    SchemaMismatchError
        If rows would be null, and the column is not nullable.
    DamageError
        If the page is not what is described.

    Notes
    -----
    One request, or none for an inline page. A page that may have been inline is staged with its bytes: the
    place that a checkpoint gave it goes with that checkpoint.
    """
    return read_checked(lambda: _resized(store, page, field, entry_count, stored_types))


def _resized(
    store: ObjectStore,
    page: PageDescriptor,
    field: pa.Field,
    entry_count: int,
    stored_types: Sequence[pa.DataType],
) -> NewPage | StagedPage:
    where = f"page {page.id} of column {field.name!r} ({page.disk_path or 'inline'}@{page.offset})"
    data = page.data
    if data is None:
        data = store.get_range(page.disk_path, page.offset, page.actual_len)
    whole = _checked(data, (field.type, *stored_types), where)
    if page.kind is PageKind.CONSTANT:
        stats = _check_constant(whole, page, entry_count, field.nullable, where)
        return StagedPage(_encoded(page, data), stats, PageKind.CONSTANT, entry_count)
    if whole.header.checksum != page.checksum:
        raise DamageError(
            f"{where} should have checksum {page.checksum:016x}, found {whole.header.checksum:016x}: it is "
            f"another page."
        )
    stats = check_rows(whole, entry_count, field, where)
    if page.kind is PageKind.INLINE or page.actual_len <= INLINE_PAGE_BYTES:
        return StagedPage(_encoded(page, data), stats, entry_count=entry_count)
    return NewPage(
        entry_count, page.payload_entries, page.kind, page.disk_path, page.offset, page.alloc_len,
        page.actual_len, page.checksum, None, stats,
    )  # fmt: skip


def _checked(data: BytesLike, kinds: Sequence[pa.DataType], where: str) -> UntrustedPage:
    """The page, of one of some types."""
    for kind in kinds[1:]:
        try:
            return check_untrusted_page(data, kind, where=where)
        except SchemaMismatchError:
            continue
    return check_untrusted_page(data, kinds[0], where=where)


def described(page: NewPage | StagedPage, page_id: PageId) -> PageDescriptor:
    """A staged page as a descriptor with a provisional id; without a place yet, as an inline page."""
    if isinstance(page, NewPage):
        return PageDescriptor(
            page_id, page.entry_count, page.payload_entries, page.kind, page.path or "", page.offset,
            page.alloc_len, page.actual_len, page.checksum, page.data,
        )  # fmt: skip
    encoded = page.encoded
    constant = page.kind is PageKind.CONSTANT
    return PageDescriptor(
        page_id,
        page.entries,
        page.entries if constant else encoded.entry_count,
        PageKind.CONSTANT if constant else PageKind.INLINE,
        "", 0, 0, encoded.actual_len, encoded.checksum, bytes(encoded.data),
    )  # fmt: skip


def same_payload(one: PageDescriptor, two: PageDescriptor) -> bool:
    """Whether two pages differ in the number of rows that they show at most."""
    return (one.payload_entries, one.actual_len, one.checksum) == (
        two.payload_entries,
        two.actual_len,
        two.checksum,
    )


def _encoded(page: PageDescriptor, data: bytes) -> EncodedPage:
    alloc_len = -(-page.actual_len // PAGE_ALIGNMENT) * PAGE_ALIGNMENT
    entries = 1 if page.kind is PageKind.CONSTANT else page.payload_entries
    return EncodedPage(data, page.actual_len, alloc_len, entries, page.checksum)


def _check_constant(
    page: UntrustedPage, described: PageDescriptor, entry_count: int, nullable: bool, where: str
) -> PageStats:
    """Statistics of so many copies of a constant; only nulls, which are all alike, may become more."""
    stats = page_stats(page.batch.column("data"))
    if entry_count > described.entry_count and not (nullable and stats.null_count):
        raise InvalidInputError(
            f"Cannot give {where} {entry_count} rows: it repeats one value {described.entry_count} times: "
            f"the rows behind would have to be null.",
            hint="Append the rows instead.",
        )
    if not page.reaches(entry_count):
        raise InvalidInputError(f"Cannot give {where} {entry_count} rows: they would need more than 2 GiB.")
    return replace(stats, null_count=entry_count if stats.null_count else 0)
