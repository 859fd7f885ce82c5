"""One page: its descriptor, its statistics, and the parts of it that a read touches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from spark_pages.arguments import as_flag, as_int, as_str
from spark_pages.errors import InvalidInputError
from spark_pages.model.ids import PageId, format_page_id

PAGE_ALIGNMENT = 4096
"""Pages start at multiples of this many bytes and reserve a multiple of it."""

PAGE_HEADER_SIZE = 64
"""Bytes of the fixed header in front of a page's payload."""

MAX_ALLOC_LEN = (1 << 31) - PAGE_ALIGNMENT
"""Most bytes that a page reserves: the format counts them in 31 bits."""

STATISTIC_MAX_BYTES = 32
"""Text and binary statistics are cut to this many bytes, rounded outward."""


_NUMBERS = ("offset", "alloc_len", "actual_len", "entry_count")


class PageKind(IntEnum):
    """Where the bytes of a page are."""

    FILE = 0
    INLINE = 1
    CONSTANT = 2


@dataclass(frozen=True, slots=True)
class BloomLocation:
    """Where the bloom filter of a page lies in the page file (seed 004, ``BFLoc``).

    Attributes
    ----------
    offset, length
        First byte, and number of bytes: a multiple of 32.
    checksum
        xxh3_64 of these bytes, unsigned.
    """

    offset: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class PageStats:
    """What is known of the values of one page without reading it.

    Attributes
    ----------
    null_count
        Null entries of the page.
    min, max
        Bounds in the form that ``docs/format.md`` ("Statistics") gives; None where there is no bound. NaN
        apart, if `nan` is true.
    exact
        Whether both bounds are values of the page; False where they were rounded outward.
    distinct
        About how many different values there are; None where nobody counted.
    bloom
        Where its bloom filter is, if it has one.
    nan
        Whether some value is NaN. Bounds and `exact` speak of the other values then; of a page that has no
        others there are no bounds, and `exact` is true.
    """

    null_count: int
    min: bytes | None = None
    max: bytes | None = None
    exact: bool = True
    distinct: int | None = None
    bloom: BloomLocation | None = None
    nan: bool = False

    def __reduce__(self) -> tuple[type[PageStats], tuple[object, ...]]:
        return PageStats, (
            self.null_count, self.min, self.max, self.exact, self.distinct, self.bloom, self.nan,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PageDescriptor:
    """The place and the size of one page (seed 000).

    Attributes
    ----------
    page_id
        63-bit id; ``id`` shows it as 16 hexadecimal digits.
    entry_count
        Logical rows of the page.
    payload_entries
        Entries that the payload holds; fewer rows than that are a prefix, more read as null.
    kind
        In a page file, inline in the log, or a constant.
    disk_path, offset, alloc_len
        Key relative to the root; 4 KiB-aligned offset; bytes reserved, a multiple of 4 KiB. Empty and
        0 unless ``kind`` is FILE.
    actual_len
        Bytes of header and payload.
    checksum
        xxh3_64 of the payload, unsigned; of a constant, of its one-entry page.
    data
        The bytes of an inline page or a constant's one-entry page, else None.
    """

    page_id: PageId
    entry_count: int
    payload_entries: int
    kind: PageKind
    disk_path: str
    offset: int
    alloc_len: int
    actual_len: int
    checksum: int
    data: bytes | None = None

    def __repr__(self) -> str:
        return f"PageDescriptor({self.where}, {self.entry_count:,} rows, {self.actual_len:,} bytes)"

    @property
    def id(self) -> str:
        """The page id as 16 hexadecimal digits."""
        return format_page_id(self.page_id)

    @property
    def where(self) -> str:
        """The page and its place, for messages."""
        if self.kind is PageKind.FILE:
            return f"page {self.id} at {self.disk_path}@{self.offset}"
        return f"{self.kind.name.lower()} page {self.id}"


@dataclass(frozen=True, slots=True)
class PageSlice:
    """The rows of one page that a row range touches.

    Attributes
    ----------
    page
        The page to fetch.
    start, stop
        First row inside the page, and one past the last; ``0 <= start < stop <= page.entry_count``.
    """

    page: PageDescriptor
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PendingPage:
    """A page that a writer wants to publish (seed 000); checked here, given its id at commit.

    Attributes
    ----------
    column
        The column that it becomes a page of.
    disk_path, offset
        Key relative to the root, and the place in it, a multiple of 4 KiB.
    alloc_len, actual_len
        Bytes reserved there, a multiple of 4 KiB; bytes of header and payload.
    entry_count
        Rows that the page has: fewer than its payload are a prefix, more read as null. 0 is legal.
    checksum
        xxh3_64 of the payload, unsigned, which its header must hold; None takes what the header holds.
    replace_last
        Whether it takes the place of the column's last page.
    stats
        What is known of its rows; None has them found out. Refused where they are not true.
    """

    column: str
    disk_path: str
    offset: int
    alloc_len: int
    actual_len: int
    entry_count: int
    checksum: int | None = None
    replace_last: bool = False
    stats: PageStats | None = None

    def __post_init__(self) -> None:
        given: dict[str, object] = {
            "column": as_str(self.column, "the column of a page"),
            "disk_path": as_str(self.disk_path, "the path of a page"),
            "replace_last": as_flag(self.replace_last, "replace_last"),
            **{what: as_int(getattr(self, what), what) for what in _NUMBERS},
        }
        if self.checksum is not None:
            given["checksum"] = as_int(self.checksum, "checksum")
        for what, value in given.items():
            object.__setattr__(self, what, value)
        problems = [] if self.stats is None else _invalid_stats(self.stats)
        if self.offset < 0 or self.offset % PAGE_ALIGNMENT:
            problems.append(f"offset {self.offset} is not a multiple of {PAGE_ALIGNMENT}")
        if not 0 < self.alloc_len <= MAX_ALLOC_LEN or self.alloc_len % PAGE_ALIGNMENT:
            problems.append(
                f"alloc_len {self.alloc_len} is not a positive multiple of {PAGE_ALIGNMENT} up to "
                f"{MAX_ALLOC_LEN}"
            )
        if not PAGE_HEADER_SIZE <= self.actual_len <= self.alloc_len:
            problems.append(f"actual_len {self.actual_len} is not between {PAGE_HEADER_SIZE} and alloc_len")
        if not 0 <= self.entry_count < 1 << 63:
            problems.append(f"entry_count {self.entry_count} is negative, or no 64-bit number")
        if self.checksum is not None and not 0 <= self.checksum < 1 << 64:
            problems.append(f"checksum {self.checksum} is no unsigned 64-bit number")
        if problems:
            raise InvalidInputError(
                f"Cannot register a page of column {self.column!r} at {self.disk_path}: "
                f"{'; '.join(problems)}.",
                hint="Describe the page as it lies in its file: offset and `alloc_len` in units of 4096 "
                "bytes, `actual_len` within it.",
            )


def _invalid_stats(stats: object) -> list[str]:
    """List what is wrong with the statistics of any page."""
    if not isinstance(stats, PageStats):
        return [f"stats is a {type(stats).__name__}, and no PageStats"]
    as_int(stats.null_count, "null_count")
    if stats.distinct is not None and not 0 <= as_int(stats.distinct, "distinct") < 1 << 63:
        return [f"distinct {stats.distinct} is negative, or no 64-bit number"]
    return []
