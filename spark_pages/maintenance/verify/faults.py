"""What a look at a store found: faults, and how much was looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.display.text import count
from spark_pages.errors import (
    DamageError,
    InvalidKeyError,
    ObjectNotFoundError,
    SparkPagesError,
    StorageError,
    UnsupportedFormatError,
)
from spark_pages.model.chain_tree import ChainKey
from spark_pages.printable import escape_controls


class FaultKind(StrEnum):
    """What is wrong with an object."""

    MISSING = "missing"
    DAMAGED = "damaged"
    CONTRADICTION = "contradiction"
    FOREIGN = "foreign commit"
    NEWER = "newer"
    UNAVAILABLE = "unavailable"
    UNREADABLE = "unreadable"
    HINT = "hint"
    RANGE = "compacted range"
    BLOOM = "bloom filter"
    ERASED = "erased values"
    ORPHAN = "orphan"
    TEMPORARY = "temporary"


HARMLESS = frozenset(
    {FaultKind.HINT, FaultKind.RANGE, FaultKind.BLOOM, FaultKind.ORPHAN, FaultKind.TEMPORARY}
)
"""Kinds that change no answer."""

_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("what", pa.string(), nullable=False),
        pa.field("remedy", pa.string(), nullable=False),
        pa.field("harmless", pa.bool_(), nullable=False),
    ]
)
_SHOWN = 10
MOST_TOLD = 1_000
"""Faults that one line of JSON tells."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes
    ----------
    kind
        What sort of fault.
    key
        The object.
    what
        What was expected and what was found.
    remedy
        What to do about it.
    """

    kind: FaultKind
    key: str
    what: str
    remedy: str

    @property
    def harmless(self) -> bool:
        """Whether no answer can be wrong or missing because of it."""
        return self.kind in HARMLESS

    def __str__(self) -> str:
        return escape_controls(f"{self.kind.value}: {self.what} {self.remedy}")


REPAIR = "Run `spark-pages repair URL`, which tells whether it can be made again."
"""The remedy for what is derived from the log."""

MEND = "Run `spark-pages repair URL --apply`."
"""The remedy for what can surely be made again."""

INLINE = "Run `spark-pages repair URL`: the log may still hold these pages inline."
"""The remedy for a page file that a checkpoint made."""

NEWER = "Verify with the release that wrote it, or a later one."
"""The remedy for what this release cannot read."""

UPDATE = "Verify with the release of the library that wrote the column."
"""The remedy for a column whose type cannot be constructed."""

UPGRADE = "Leave it to the release that wrote the store, or a later one."
"""The remedy for what this release does not know enough to mend."""

_BY_REPAIR = frozenset({REPAIR, MEND, INLINE})

RESTORE = "Nothing else holds it: put the object back from a copy of the store."
"""The remedy for what exists once."""

FROM_A_COPY = _BY_REPAIR | {RESTORE}
"""Remedies that end with a copy of the store, where a repair cannot make the object again."""

REFERENCES = "Drop the table or constraint that refers to it, or restore an earlier version."
"""The remedy for a definition that refers to what is not there."""


@dataclass(slots=True)
class Findings:
    """Faults and counts, as they come in. Each object has at most one fault of a kind and text."""

    faults: dict[Fault, None] = field(default_factory=dict)
    objects: int = 0
    bytes_read: int = 0
    pages: int = 0

    def add(self, kind: FaultKind, key: str, what: str, remedy: str) -> None:
        """One more fault."""
        self.faults[Fault(kind, key, what, remedy)] = None

    def add_error(self, error: SparkPagesError, key: str, remedy: str, context: str = "") -> None:
        """Record the fault that an error of reading `key` shows."""
        what = f"{error.message} {context}".strip()
        match error:
            case ObjectNotFoundError():
                self.add(FaultKind.MISSING, key, f"{key} is missing. {context}".strip(), remedy)
            case UnsupportedFormatError():
                self.add(FaultKind.NEWER, key, what, NEWER)
            case DamageError() | InvalidKeyError():
                self.add(FaultKind.DAMAGED, key, what, remedy)
            case StorageError():
                self.add(FaultKind.UNREADABLE, key, what, "Verify again once storage answers.")
            case _:
                raise error

    @property
    def newer(self) -> tuple[Fault, ...]:
        """What only a newer release can read."""
        return tuple(fault for fault in self.faults if fault.kind is FaultKind.NEWER)

    def advise_no_repair(self) -> None:
        """No fault says to repair: that would write what this release knows over what it does not know."""
        told = (
            replace(fault, remedy=UPGRADE) if fault.remedy in _BY_REPAIR else fault for fault in self.faults
        )
        self.faults = dict.fromkeys(told)

    def get(self, read: Callable[[str], bytes], key: str) -> bytes:
        """Read an object, and count its bytes."""
        data = read(key)
        self.objects += 1
        self.bytes_read += len(data)
        return data


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    url
        Which store.
    version
        The newest version; -1 where no slot could be read.
    faults
        Everything that is wrong; those that are `harmless` change no answer.
    objects, bytes_read
        Objects read and checked, page files apart, and their bytes with those of the pages read.
    pages, pages_read
        Page descriptors checked, and how many of the pages were read and compared with them.
    checkpoints
        Checkpoints that were checked.
    replayed
        How many of them were compared with the commits before them.
    """

    url: str
    version: int
    faults: tuple[Fault, ...]
    objects: int
    bytes_read: int
    pages: int
    pages_read: int
    checkpoints: int
    replayed: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found that could make an answer wrong or missing."""
        return not self.damage

    @property
    def damage(self) -> tuple[Fault, ...]:
        """The faults that matter."""
        return tuple(fault for fault in self.faults if not fault.harmless)

    @property
    def notices(self) -> tuple[Fault, ...]:
        """The faults that change no answer."""
        return tuple(fault for fault in self.faults if fault.harmless)

    def table(self) -> pa.Table:
        """Return a row for each fault."""
        return pa.Table.from_pylist([_row(fault) for fault in self.faults], schema=_SCHEMA)

    def __repr__(self) -> str:
        state = "ok" if self.ok else count(len(self.damage), "fault")
        lines = [
            f"Verification({self.url!r}, version {self.version}: {state}; "
            f"{count(len(self.notices), 'notice')}, {count(self.objects, 'object')}, "
            f"{count(self.checkpoints, 'checkpoint')}, {count(self.pages, 'page')} of which "
            f"{self.pages_read:,} read, {self.bytes_read:,} bytes)"
        ]
        shown = (*self.damage, *self.notices)[:_SHOWN]
        lines += [f"  {fault.kind.value}: {fault.what}" for fault in shown]
        lines += [f"  what to do: {remedy}" for remedy in dict.fromkeys(fault.remedy for fault in shown)]
        if len(self.faults) > len(shown):
            lines.append(f"  … and {len(self.faults) - len(shown):,} more; see faults or table()")
        return "\n".join(lines)


def faults_as_dicts(faults: Iterable[Fault]) -> dict[str, Any]:
    """Faults as the job and the verb `verify` tell them in JSON.

    Returns
    -------
    dict
        ``ok``, ``num_faults`` (how many matter), ``notices`` (how many change no answer), and ``faults``:
        each as a dict, those that matter first, `MOST_TOLD` at most.
    """
    rows = sorted(map(_row, faults), key=itemgetter("harmless"))
    damage = sum(not row["harmless"] for row in rows)
    return {
        "ok": not damage,
        "num_faults": damage,
        "notices": len(rows) - damage,
        "faults": rows[:MOST_TOLD],
    }


def _row(fault: Fault) -> dict[str, Any]:
    return {**asdict(fault), "kind": fault.kind.value, "harmless": fault.harmless}


@dataclass(eq=False, slots=True)
class FaultGroup:
    """Pages of one chain in one object that are wrong in one way.

    Attributes
    ----------
    detail, detail_of
        What one of the pages failed with, and its id.
    """

    kind: FaultKind
    key: str
    chain: ChainKey
    what: str
    page_ids: list[int] = field(default_factory=list)
    detail: str = ""
    detail_of: int = -1

    def extend(self, page_ids: Sequence[int] | NDArray[np.int64], detail: str) -> None:
        """Add pages; the detail that is kept is that of the oldest page, whoever reads it first."""
        self.page_ids.extend(map(int, page_ids))
        first = int(min(page_ids))
        if detail and (not self.detail or first < self.detail_of):
            self.detail, self.detail_of = detail, first


class FaultGroups:
    """All troubles, in the order in which they were found."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ChainKey, FaultKind, str], FaultGroup] = {}

    def __iter__(self) -> Iterator[FaultGroup]:
        return iter(self._found.values())

    def add(
        self,
        kind: FaultKind,
        key: str,
        chain: ChainKey,
        what: str,
        page_ids: Sequence[int] | NDArray[np.int64],
        detail: str = "",
    ) -> None:
        """Add pages, which may be none, to a kind of fault."""
        if not len(page_ids):
            return
        trouble = self._found.setdefault((key, chain, kind, what), FaultGroup(kind, key, chain, what))
        trouble.extend(page_ids, detail)

    def merge(self, others: Iterable[FaultGroup]) -> None:
        """Add the findings of another process."""
        for each in others:
            kept = self._found.setdefault((each.key, each.chain, each.kind, each.what), each)
            if kept is not each:
                kept.page_ids.extend(each.page_ids)
                if each.detail and (not kept.detail or each.detail_of < kept.detail_of):
                    kept.detail, kept.detail_of = each.detail, each.detail_of
