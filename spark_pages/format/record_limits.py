"""Whether the numbers of a commit can be true: check 6 of `docs/format.md`, for all but pages. Pure."""

from __future__ import annotations

from spark_pages.model.actions import Commit, TransactionRecord, UpkeepNote
from spark_pages.model.ids import MAX_ORDINAL, MAX_VERSION

_MOST = 1 << 62


def wrong_commit(commit: Commit) -> str | None:
    """What is wrong with the first number that cannot be true; None where all can."""
    if not 0 <= commit.version <= MAX_VERSION:
        return f"version {commit.version} is not between 0 and {MAX_VERSION}"
    for note in commit.upkeep:
        if not 0 <= note.reached < commit.version or not is_possible(note):
            return f"it tells of upkeep that cannot have been: {note}"
    for record in commit.records:
        wrong = _wrong_pages(record) or _wrong_splices(record)
        if wrong is not None:
            return wrong
    return None


def is_possible(note: UpkeepNote) -> bool:
    """Whether the numbers of the note can be true, but for the version, which the commit bounds."""
    return all(0 <= each <= _MOST for each in (note.timestamp_us, note.objects, note.size_bytes))


def _wrong_pages(record: TransactionRecord) -> str | None:
    sources = [(record.base_ordinal, record.own.num_pages)]
    sources += [(manifest.base_ordinal, manifest.num_pages) for manifest in record.manifests]
    for base, count in sources:
        if base < 0 or count < 0 or base + count > MAX_ORDINAL + 1:
            return f"{count} pages from ordinal {base} on are not between 0 and {MAX_ORDINAL}"
    return None


def _wrong_splices(record: TransactionRecord) -> str | None:
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
