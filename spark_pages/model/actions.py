"""What a commit says: header, transaction records, and the actions in them.

`docs/format.md` ("Commits") is the specification; this module is its shape in Python. Nothing
here touches storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from spark_pages.display.markup import card, joined, table, tag
from spark_pages.display.text import count, moment
from spark_pages.model.added_pages import NO_PAGES, AddedPages
from spark_pages.model.ids import FieldId, TableId, Version
from spark_pages.model.immutable import freeze
from spark_pages.model.location import Location
from spark_pages.model.table import TableDefinition


@dataclass(frozen=True, slots=True)
class Features:
    """What somebody must know who reads or writes a store, beyond its format version."""

    reader: tuple[str, ...] = ()
    writer: tuple[str, ...] = ()


NO_FEATURES = Features()


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Names a verified checkpoint."""

    version: Version
    location: Location


@dataclass(frozen=True, slots=True)
class Splice:
    """Removes a contiguous run of pages of one chain and puts pages in its place.

    Attributes
    ----------
    table_id, field_id
        The chain. A negative table id is provisional.
    first_row
        Row at which the removed run begins; for an append the rows that the writer saw, as a hint.
    removed, removed_entries
        Ids of the run, in order, and the rows that it holds; empty and 0 for an append.
    source, start, stop
        The pages put in: rows [start, stop) of source 0 (the record's own pages) or of manifest
        ``source - 1``.
    added_entries
        Rows that the pages put in hold.
    data_change
        False for page compaction: the rows stay what they were.
    touched
        Row ranges [start, end) really inserted or changed.
    """

    table_id: TableId
    field_id: FieldId
    first_row: int
    removed: tuple[int, ...]
    removed_entries: int
    source: int
    start: int
    stop: int
    added_entries: int
    data_change: bool = True
    touched: tuple[tuple[int, int], ...] = ()

    @property
    def row_preserving(self) -> bool:
        """Whether the column holds as many rows afterwards as before."""
        return self.removed_entries == self.added_entries

    @property
    def is_append(self) -> bool:
        """Whether it removes nothing."""
        return not (self.removed or self.removed_entries)

    def touched_rows(self, begin: int) -> list[tuple[int, int]]:
        """Ranges [start, end) of rows after it that it touches; `begin` is the row at which its pages are."""
        if not self.data_change:
            return []
        if not self.touched and self.added_entries >= self.removed_entries:
            return [(begin, begin + self.added_entries)]
        shift = begin - self.first_row
        return [(start + shift, end + shift) for start, end in self.touched]


class IntentKind(StrEnum):
    """What a transaction does to, or needs of, one name or table."""

    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    UNDROP = "undrop"
    TRUNCATE = "truncate"
    PURGE = "purge"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class CatalogIntent:
    """One catalog change, told so that conflicts can be decided without reading table 0.

    Attributes
    ----------
    kind
        What happens.
    table_id, namespace_id, name
        The table, and the name that it has afterwards, or had until now if it is dropped.
    definition
        The definition afterwards; None for drop and require.
    old_name
        Namespace id and name until now, where an alter changes them; else None.
    columns
        Of an alter, ids of the columns that it adds or takes away, if whatever was written for the earlier
        definition is right under this one too; None if it may not be, and for the other kinds.
    """

    kind: IntentKind
    table_id: TableId
    namespace_id: int
    name: str
    definition: TableDefinition | None = None
    old_name: tuple[int, str] | None = None
    columns: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """Names a Parquet page manifest and gives its pages their ordinals.

    Attributes
    ----------
    location
        The object.
    base_ordinal
        Ordinal of its first page.
    num_pages, page_bytes
        Pages that it lists, and the sum of their `actual_len`, for the history.
    have_nan
        Whether one of its pages says that some of its values are NaN. Only whoever wrote it knows; a commit
        tells by its features.
    """

    location: Location
    base_ordinal: int
    num_pages: int
    page_bytes: int = 0
    have_nan: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Tag:
    """Names a version, or (with ``version`` None) takes the name away."""

    name: str
    version: Version | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Keeps a version readable until it expires; ``expires_at_us`` 0 ends the lease."""

    lease_id: str
    version: Version
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Advice that an owner is working on some rows of a chain (seed 001, ``locked_by``)."""

    table_id: TableId
    field_id: FieldId
    first_row: int
    end_row: int
    owner: str
    fence: int
    expires_at_us: int

    def overlaps(self, key: tuple[int, int], first: int, end: int) -> bool:
        """Whether it is of one of the rows [first, end) of a chain."""
        return (self.table_id, self.field_id) == key and self.first_row < end and first < self.end_row


@dataclass(frozen=True, slots=True)
class Retention:
    """Transactions that read before `min_epoch` and reads before `min_readable` are refused from now on.

    Attributes
    ----------
    checkpoint
        The checkpoint from which the oldest readable versions are read, where slots below were cleaned.
    """

    min_epoch: Version
    min_readable: Version
    checkpoint: CheckpointRef | None = None


@dataclass(frozen=True, eq=False, slots=True)
class TransactionRecord:
    """All that one transaction did.

    Attributes
    ----------
    token
        Random, 32 hexadecimal digits; tells this transaction from every other.
    operation, parameters, writer
        For people: what was done, with what, by whom.
    app_id, app_version
        The exactly-once pair of the application, or None.
    read_version
        Version that the transaction read; -1 for the one that makes the store.
    base_ordinal
        Ordinal of the first of its own pages.
    own
        The pages that it lists itself, with their statistics; none by default.
    manifests
        Page manifests of a large transaction.
    splices, intents, tags, leases, claims
        Actions, in order.
    retention
        New retention bounds, or None.
    properties
        Store properties set by this transaction; None takes one away.
    """

    token: str
    operation: str
    read_version: int
    writer: str
    own: AddedPages = NO_PAGES
    parameters: Mapping[str, str] = field(default_factory=dict)
    app_id: str | None = None
    app_version: int | None = None
    base_ordinal: int = 0
    manifests: tuple[ManifestRef, ...] = ()
    splices: tuple[Splice, ...] = ()
    intents: tuple[CatalogIntent, ...] = ()
    tags: tuple[Tag, ...] = ()
    leases: tuple[Lease, ...] = ()
    claims: tuple[Claim, ...] = ()
    retention: Retention | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self, "parameters", "properties")

    @property
    def pages(self) -> pa.RecordBatch:
        """Its own pages as a batch of PAGE_SCHEMA whose ids are ordinals."""
        return self.own.batches[0]

    @property
    def stats(self) -> pa.RecordBatch:
        """Their statistics."""
        return self.own.batches[1]


CHECKPOINT = "checkpoint"
COMPACTION = "compact log"
DELETION = "delete objects"


@dataclass(frozen=True, slots=True)
class UpkeepNote:
    """Work on the log itself, which is no transaction: the next commit tells of it.

    Attributes
    ----------
    operation
        `CHECKPOINT`, `COMPACTION`, or `DELETION`: what a vacuum does after its commit.
    writer, timestamp_us
        Who did it, and when it was done.
    reached
        The version that the checkpoint shows, the newest slot that is in a compacted range, or the oldest
        version that the vacuum left readable.
    objects, size_bytes
        What was written, or deleted.
    """

    operation: str
    writer: str
    timestamp_us: int
    reached: Version
    objects: int
    size_bytes: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Commit:
    """One slot of the log.

    Attributes
    ----------
    version, timestamp_us, token
        Its number; microseconds since the epoch, later than its parent's; its token.
    parent_digest
        Digest of the commit before it; empty for version 0.
    checkpoint
        Newest checkpoint that its writer had verified, or None.
    records
        One record for each transaction.
    features
        What readers and writers of the store must know from this version on.
    compacted
        Slots below this version were in compacted ranges, as far as its writer knew. Advice.
    upkeep
        What was done to the log since the commits before it, as far as its writer knew.
    store_id
        Id of the store: the token of commit 0. Empty in commits of releases that gave stores no id.
    digest
        BLAKE2b-256 of the commit, filled in when it is encoded or decoded.
    size_bytes
        What it takes in storage, filled in when it is decoded.
    """

    version: Version
    timestamp_us: int
    token: str
    parent_digest: str
    records: tuple[TransactionRecord, ...]
    checkpoint: CheckpointRef | None = None
    features: Features = NO_FEATURES
    compacted: int = 0
    upkeep: tuple[UpkeepNote, ...] = ()
    store_id: str = ""
    digest: str = ""
    size_bytes: int = 0

    @property
    def id_of_store(self) -> str:
        """Id of the store as far as this commit tells; its token is one where it is the first."""
        return self.store_id or (self.token if self.version == 0 else "")

    def __repr__(self) -> str:
        done = "; ".join(map(_summary, self.records[:_SHOWN_RECORDS]))
        more = len(self.records) - _SHOWN_RECORDS
        done += f"; and {more:,} transactions more" if more > 0 else ""
        return f"Commit(version {self.version}, {moment(self.timestamp_us)}, {done})"

    def _repr_html_(self) -> str:
        rows = [
            [
                each.operation,
                ", ".join(f"{key} {value}" for key, value in sorted(each.parameters.items())),
                each.writer,
                each.read_version,
                len(each.splices),
                sum(splice.stop - splice.start for splice in each.splices),
                sum(len(splice.removed) for splice in each.splices),
                len(each.intents),
            ]
            for each in self.records
        ]
        heads = ["operation", "with", "writer", "read", "splices", "pages in", "pages out", "tables changed"]
        ref = self.checkpoint
        heading = joined(
            tag("b", f"version {self.version:,}"),
            f" · {moment(self.timestamp_us, precise=True)} UTC",
            f" · checkpoint of version {ref.version:,} was there" if ref else "",
        )
        return card(heading, table(heads, rows))


_SHOWN_RECORDS = 5


def _summary(record: TransactionRecord) -> str:
    """One transaction in a few words."""
    pages = sum(splice.stop - splice.start for splice in record.splices)
    gone = sum(len(splice.removed) for splice in record.splices)
    return f"{record.operation!r}: {count(pages, 'page')} in, {gone:,} out"


COMMITTED = "committed"
"""Outcome of a transaction whose slot has become a tombstone."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a cleaned slot: enough to settle doubt, time and the digest chain.

    Attributes
    ----------
    version, timestamp_us, token, digest
        As the commit had them.
    transactions
        Token and outcome of each of its transactions.
    checkpoint
        The checkpoint to read instead.
    store_id
        Id of the store, as in the commit.
    """

    version: Version
    timestamp_us: int
    token: str
    digest: str
    transactions: tuple[tuple[str, str], ...]
    checkpoint: CheckpointRef
    store_id: str = ""

    @property
    def id_of_store(self) -> str:
        """See `Commit.id_of_store`."""
        return self.store_id or (self.token if self.version == 0 else "")
