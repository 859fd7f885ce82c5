"""Pages of other writers below the root, and pages that get another number of rows.

The log names a page by key, place and checksum. Whoever registers pages vouches for the bytes, so each page
is read here once, whole, and its statistics are computed from its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from spark_pages.arguments import as_int, as_str
from spark_pages.errors import DamageError, InvalidInputError, InvalidKeyError, SchemaMismatchError
from spark_pages.format.pages.codecs import BytesLike
from spark_pages.format.pages.untrusted_page import UntrustedPage, check_untrusted_page
from spark_pages.format.statistics import bounds_are_valid
from spark_pages.io import EncodedPage, page_stats, parse_header
from spark_pages.io.file_writer import check_padding, padding_of
from spark_pages.model.added_pages import NewPage
from spark_pages.model.ids import PageId
from spark_pages.model.page import (
    PAGE_ALIGNMENT,
    PAGE_HEADER_SIZE,
    PageDescriptor,
    PageKind,
    PageStats,
    PendingPage,
)
from spark_pages.storage.checks import check_key, read_checked
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_writer import INLINE_PAGE_BYTES, StagedPage

_RUN_BYTES = 32 << 20
"""Neighbouring pages are read together up to so many bytes."""

_FOREIGN_FOLDERS = ("_log", "_doctor")


@dataclass(frozen=True, slots=True)
class PageIntake:
    """Takes pages of files that are there.

    Attributes
    ----------
    store
        Where they are.
    is_of_another
        Whether a key is that of a page file which this transaction has not asked for.
    """

    store: ObjectStore
    is_of_another: Callable[[str], bool]

    def header_of(self, column: str, path: str, offset: int) -> PendingPage:
        """Read the header of the page at a location; two requests."""
        self._check_place(as_str(path, "the path of a page"))
        if as_int(offset, "offset") < 0 or offset % PAGE_ALIGNMENT:
            raise InvalidInputError(
                f"Cannot register a page of column {column!r} at {path}: offset {offset} is not a multiple "
                f"of {PAGE_ALIGNMENT}.",
                hint=f"Write pages at multiples of {PAGE_ALIGNMENT} bytes, and pass `offset` as such.",
            )
        size = self.store.size(path)
        if size - offset < PAGE_ALIGNMENT:
            raise _cut(path, offset, PAGE_ALIGNMENT, size)
        header = read_checked(
            lambda: parse_header(
                self.store.get_range(path, offset, PAGE_HEADER_SIZE), where=f"{path}@{offset}"
            )
        )
        if header.actual_len > size - offset:  # a header that lies; no multiple of it is believed either
            raise _cut(path, offset, header.actual_len, size)
        alloc_len = -(-header.actual_len // PAGE_ALIGNMENT) * PAGE_ALIGNMENT
        return PendingPage(
            column, path, offset, alloc_len, header.actual_len, header.entry_count, header.checksum
        )

    def take(self, pages: Sequence[PendingPage], fields: Sequence[pa.Field]) -> list[NewPage]:
        """Read and validate pages, and return them as the log describes them.

        Parameters
        ----------
        pages
            In any order.
        fields
            Of their columns, page by page.

        Raises
        ------
        InvalidKeyError, ObjectNotFoundError, InvalidInputError, SchemaMismatchError, DamageError
            See `tables.registration.StagedDirectory.register_batch`.

        Notes
        -----
        One request for each file, and one for each run of neighbouring pages, of up to 32 MiB. Memory of one
        such run.
        """
        by_path: dict[str, list[int]] = {}
        for index, page in enumerate(pages):
            by_path.setdefault(page.disk_path, []).append(index)
        taken: dict[int, NewPage] = {}
        for path, indices in by_path.items():
            self._check_place(path)
            size = self.store.size(path)
            for index in indices:
                if pages[index].offset + pages[index].alloc_len > size:
                    raise _cut(path, pages[index].offset, pages[index].alloc_len, size)
            for start, end, run in _runs(indices, pages):
                asked = path, start, end - start
                taken |= read_checked(partial(self._take_run, asked, run, pages, fields))
        return [taken[index] for index in range(len(pages))]

    def _take_run(
        self,
        asked: tuple[str, int, int],
        run: Sequence[int],
        pages: Sequence[PendingPage],
        fields: Sequence[pa.Field],
    ) -> dict[int, NewPage]:
        """Read and check a run of neighbouring pages of one file."""
        path, start, _ = asked
        data = memoryview(self.store.get_range(*asked))
        taken = {}
        for index in run:
            first = pages[index].offset - start
            behind = first + pages[index].actual_len
            taken[index] = _described(pages[index], fields[index], data[first:behind])
            padding = data[behind : behind + padding_of(pages[index].actual_len)]
            check_padding(padding, where=f"{path}@{pages[index].offset}")
            self._check_reserved(pages[index])
        return taken

    def _check_reserved(self, page: PendingPage) -> None:
        """Check that a page reserves nothing of another one: what lies behind its padding is zeros.

        Raises
        ------
        InvalidInputError
            If it is not.

        Notes
        -----
        Reads nothing unless the page reserves more than it needs, and then one run at a time.
        """
        start = page.offset + page.actual_len + padding_of(page.actual_len)
        end = page.offset + page.alloc_len
        while start < end:
            data = self.store.get_range(page.disk_path, start, min(end - start, _RUN_BYTES))
            others = len(data) - len(bytes(data).lstrip(b"\0"))
            if others < len(data):
                raise InvalidInputError(
                    f"Cannot register a page of column {page.column!r} at {page.disk_path}@{page.offset}: "
                    f"its alloc_len of {page.alloc_len} bytes covers other data, which begins at "
                    f"{start + others}.",
                    hint=f"Reserve the page alone: its actual_len up to a multiple of {PAGE_ALIGNMENT}.",
                    key=page.disk_path,
                )
            start += len(data)

    def _check_place(self, path: str) -> None:
        """Check that a path is a key below the root, behind no link, and of a file that is not removed.

        Raises
        ------
        InvalidKeyError
        """
        check_key(path)
        if path.partition("/")[0] in _FOREIGN_FOLDERS:
            raise InvalidKeyError(
                f"Cannot register pages of {path!r}: what is in that folder is not data.",
                hint="Put the file into a folder of your own, such as 'mine/a.pages'.",
                key=path,
            )
        if self.is_of_another(path):
            raise InvalidKeyError(
                f"Cannot register pages of {path!r}: that is the name of another transaction's page file, "
                f"which vacuum deletes by the rules of that one.",
                hint="Copy it to a name of your own, or to `transaction.next_page_file()`.",
                key=path,
            )
        self.store.local_path(path)  # refuses symbolic links


def shown_rows(values: pa.Array, entry_count: int) -> PageStats:
    """Statistics of the first `entry_count` rows of a page; those behind its entries are null."""
    lacking = max(0, entry_count - len(values))
    stats = page_stats(values.slice(0, entry_count))
    return replace(stats, null_count=stats.null_count + lacking)


def check_rows(page: UntrustedPage, entry_count: int, field: pa.Field, where: str) -> PageStats:
    """Statistics of the rows that a page is to show, known to be rows that its column may have.

    Raises
    ------
    SchemaMismatchError
        If some are null, and the column is not nullable.
    InvalidInputError
        If they are more than a page can show.
    """
    if not page.reaches(entry_count):
        raise InvalidInputError(
            f"Cannot give {where} {entry_count} rows: read back, they would need more than 2 GiB.",
            hint="Use more pages: split the rows over several `register_page` calls.",
        )
    stats = shown_rows(page.batch.column("data"), entry_count)
    if not field.nullable and stats.null_count:
        raise SchemaMismatchError(
            f"Cannot give {where} {entry_count} rows: {stats.null_count} of them are null, and column "
            f"{field.name!r} is not nullable. Its payload holds {page.header.entry_count} entries.",
            hint=f"Pass an `entry_count` of at most {page.header.entry_count}, or allow nulls: "
            "`transaction.set_nullable`.",
        )
    return stats


def _described(pending: PendingPage, field: pa.Field, data: memoryview) -> NewPage:
    where = f"{pending.disk_path}@{pending.offset}"
    page = check_untrusted_page(data, field.type, where=where)
    if pending.checksum is not None and pending.checksum != page.header.checksum:
        raise DamageError(
            f"Cannot register {where}: its checksum should be {pending.checksum:016x}, found "
            f"{page.header.checksum:016x}: it is another page."
        )
    stats = check_rows(page, pending.entry_count, field, where)
    if pending.stats is not None:
        values = page.batch.column("data").slice(0, pending.entry_count)
        if pending.stats.null_count != stats.null_count or not bounds_are_valid(values, pending.stats):
            raise InvalidInputError(
                f"Cannot register {where}: the statistics given are not true of its rows: {pending.stats}.",
                hint="Leave `stats` out: they are made from the page.",
            )
        stats = replace(pending.stats, bloom=None)  # a filter that nobody has looked at is not named
    return NewPage(
        pending.entry_count, page.header.entry_count, PageKind.FILE, pending.disk_path, pending.offset,
        pending.alloc_len, pending.actual_len, page.header.checksum, None, stats,
    )  # fmt: skip


def _runs(indices: Sequence[int], pages: Sequence[PendingPage]) -> Iterator[tuple[int, int, list[int]]]:
    """Start, end, and the pages of each stretch of a file in which one page follows another."""
    start = end = used = 0
    run: list[int] = []
    for index in sorted(indices, key=lambda index: pages[index].offset):
        page = pages[index]
        if run and (page.offset > end or page.offset + page.actual_len - start > _RUN_BYTES):
            yield start, used, run
            run = []
        if not run:
            start = end = used = page.offset
        run.append(index)
        end = max(end, page.offset + page.alloc_len)
        used = max(used, page.offset + page.actual_len + padding_of(page.actual_len))
    if run:
        yield start, used, run


def _cut(path: str, offset: int, length: int, size: int) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot register {length} bytes at {offset} of {path}: the file ends at {size}.",
        hint=f"Pages reserve multiples of {PAGE_ALIGNMENT} bytes: pad the file with zeros.",
        key=path,
    )


def resized_page(
    store: ObjectStore,
    page: PageDescriptor,
    field: pa.Field,
    entry_count: int,
    stored_types: Sequence[pa.DataType] = (),
) -> NewPage | StagedPage:
    """Return the same payload with another number of rows.

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
            f"Cannot resize {where}: expected checksum {page.checksum:016x}, found "
            f"{whole.header.checksum:016x}, so it is another page."
        )
    stats = check_rows(whole, entry_count, field, where)
    if page.kind is PageKind.INLINE or page.actual_len <= INLINE_PAGE_BYTES:
        return StagedPage(_encoded(page, data), stats, entry_count=entry_count)
    return NewPage(
        entry_count, page.payload_entries, page.kind, page.disk_path, page.offset, page.alloc_len,
        page.actual_len, page.checksum, None, stats,
    )  # fmt: skip


def _checked(data: BytesLike, kinds: Sequence[pa.DataType], where: str) -> UntrustedPage:
    """Validate a page of one of several types."""
    for kind in kinds[1:]:
        try:
            return check_untrusted_page(data, kind, where=where)
        except SchemaMismatchError:
            continue
    return check_untrusted_page(data, kinds[0], where=where)


def described(page: NewPage | StagedPage, page_id: PageId) -> PageDescriptor:
    """Return the descriptor of a staged page with a provisional id, inline until it is placed."""
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
            hint="Append the rows instead: `transaction.append`.",
        )
    if not page.reaches(entry_count):
        raise InvalidInputError(
            f"Cannot give {where} {entry_count} rows: they would need more than 2 GiB.",
            hint="Pass a smaller `entry_count`, and append the other rows.",
        )
    return replace(stats, null_count=entry_count if stats.null_count else 0)
