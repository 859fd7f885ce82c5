"""Whether the numbers of page descriptors can be true: check 6 of `docs/format.md`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.model.actions import Commit, TransactionRecord, UpkeepNote
from spark_pages.model.ids import MAX_ORDINAL, MAX_VERSION
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE, PageKind

_FILE, _CONSTANT = int(PageKind.FILE), int(PageKind.CONSTANT)  # numpy takes long over an IntEnum
_NOT_ALIGNED = -(1 << 63) | (PAGE_ALIGNMENT - 1)
"""The bits that no offset and no reserve has: those of less than a block, and the sign."""

_MOST_ROWS = float(1 << 62)
"""Of one batch; the running sums of several must not overflow 64 bits."""

_FAULTS = (
    "a kind that is not known",
    "a negative count",
    f"an offset or reserve that is negative or no multiple of {PAGE_ALIGNMENT}",
    f"fewer than {PAGE_HEADER_SIZE} bytes",
    "a reserve that is too small, or a place although it is in no file",
    "a path although it is in no file, or none although it is in one",
    "bytes of its own although it is in a file, or none although it is not",
    "as a constant a payload that is not as long as it is itself",
)


NUMBERS = ("entry_count", "payload_entries", "kind", "offset", "alloc_len", "actual_len")
"""The columns that `wrong_numbers` looks at, in this order."""


def find_invalid_page(pages: pa.RecordBatch) -> str | None:
    """`wrong_numbers` of a batch of PAGE_SCHEMA."""
    has_path = valid_of(pages.column("path").indices)
    columns = [numbers_of(pages.column(name)) for name in NUMBERS]
    return find_invalid_number(columns, has_path, valid_of(pages.column("data")))


def why_page_is_invalid(numbers: tuple[int, ...], has_path: bool, has_data: bool) -> str | None:
    """Describe the first impossible number of one page, ordered as `NUMBERS`; None if all are possible."""
    entries, payload, kind, offset, alloc, actual = numbers
    in_file = kind == _FILE
    if not 0 <= kind <= _CONSTANT:
        fault = _FAULTS[0]
    elif entries < 0 or payload < 0:
        fault = _FAULTS[1]
    elif (offset | alloc) & _NOT_ALIGNED:
        fault = _FAULTS[2]
    elif actual < PAGE_HEADER_SIZE:
        fault = _FAULTS[3]
    elif alloc < actual if in_file else offset | alloc:
        fault = _FAULTS[4]
    elif has_path != in_file:
        fault = _FAULTS[5]
    elif has_data == in_file:
        fault = _FAULTS[6]
    elif kind == _CONSTANT and entries != payload:
        fault = _FAULTS[7]
    else:
        return None
    return (
        f"has {fault}: kind {kind}, entry_count {entries}, payload_entries {payload}, offset {offset}, "
        f"alloc_len {alloc}, actual_len {actual}"
    )


def find_invalid_number(
    columns: Sequence[NDArray[Any]], has_path: NDArray[np.bool_], has_data: NDArray[np.bool_]
) -> str | None:
    """Describe the first page with an impossible number; None if all are possible.

    Parameters
    ----------
    columns : integers, shape (n_pages,) each
        Those of `NUMBERS`.
    has_path, has_data
        Which pages have a path, and bytes of their own.

    Notes
    -----
    Some 20 µs and 15 ns a page.
    """
    entries, payload, kind, offset, alloc, actual = columns
    if not len(entries):
        return None
    in_file, place = kind == _FILE, offset | alloc
    found = (
        kind.view(np.uint8) > _CONSTANT,
        (entries | payload) < 0,
        (place & _NOT_ALIGNED) != 0,
        actual < PAGE_HEADER_SIZE,
        np.where(in_file, alloc < actual, place != 0),
        has_path != in_file,
        has_data == in_file,
        (kind == _CONSTANT) & (entries != payload),
    )
    if np.logical_or.reduce(found).any():
        fault, where = next(each for each in zip(_FAULTS, found, strict=True) if each[1].any())
        index = int(np.argmax(where))
        return (
            f"page {index} has {fault}: kind {kind[index]}, entry_count {entries[index]}, payload_entries "
            f"{payload[index]}, offset {offset[index]}, alloc_len {alloc[index]}, actual_len {actual[index]}"
        )
    if entries.sum(dtype=np.float64) >= _MOST_ROWS:
        return "its pages have more rows together than 64 bits can count"
    return None


_MOST = 1 << 62


def why_commit_is_invalid(commit: Commit) -> str | None:
    """Describe the first impossible number of a commit; None if all are possible."""
    if not 0 <= commit.version <= MAX_VERSION:
        return f"version {commit.version} is not between 0 and {MAX_VERSION}"
    for note in commit.upkeep:
        if not 0 <= note.reached < commit.version or not is_possible(note):
            return f"it tells of upkeep that cannot have been: {note}"
    for record in commit.records:
        wrong = _invalid_pages(record) or _invalid_splices(record)
        if wrong is not None:
            return wrong
    return None


def is_possible(note: UpkeepNote) -> bool:
    """Whether the numbers of the note can be true, but for the version, which the commit bounds."""
    return all(0 <= each <= _MOST for each in (note.timestamp_us, note.objects, note.size_bytes))


def _invalid_pages(record: TransactionRecord) -> str | None:
    sources = [(record.base_ordinal, record.own.num_pages)]
    sources += [(manifest.base_ordinal, manifest.num_pages) for manifest in record.manifests]
    for base, count in sources:
        if base < 0 or count < 0 or base + count > MAX_ORDINAL + 1:
            return f"{count} pages from ordinal {base} on are not between 0 and {MAX_ORDINAL}"
    return None


def _invalid_splices(record: TransactionRecord) -> str | None:
    for splice in record.splices:
        least = min(
            splice.table_id, splice.field_id, splice.first_row, splice.removed_entries, splice.start,
            splice.stop, splice.added_entries,
        )  # fmt: skip
        if least < 0 or splice.first_row + splice.removed_entries + splice.added_entries > _MOST:
            return (
                f"a splice of table {splice.table_id}, column {splice.field_id} has numbers that are "
                f"negative or too large: {splice.removed_entries} and {splice.added_entries} rows at row "
                f"{splice.first_row}, pages [{splice.start}, {splice.stop})"
            )
    return None
