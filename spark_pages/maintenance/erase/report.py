"""What an erase did: which objects are gone, and what keeps the others until when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from spark_pages.arguments import as_str
from spark_pages.boundary import guarded
from spark_pages.display.markup import card, joined, table, tag
from spark_pages.display.text import count
from spark_pages.errors import InvalidInputError
from spark_pages.model.row_ranges import RowRanges

OBJECTS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("gone", pa.bool_(), nullable=False),
        pa.field("kept_by", pa.string(), nullable=False),
        pa.field("until", pa.timestamp("us", "UTC")),
    ]
)

OUT_OF_REACH = (
    "Caches of other machines and processes: close those stores, or clear their cache folders.",
    "Copies of the store, its backups, and earlier versions of objects that the storage itself keeps.",
    "Exports, replicas, published tables with values, and results that readers hold.",
    "Metadata of pages as a whole, names, comments and properties, whatever a user has written there.",
)
"""What no erase of the store can delete."""


@dataclass(frozen=True, slots=True)
class ErasedObject:
    """An object that held values of the rows.

    Attributes
    ----------
    key, kind, size_bytes
        The object; kinds as of `VacuumPlan.objects`.
    gone
        Whether it is deleted; a slot is when it has become a tombstone.
    kept_by
        What keeps it; empty for one that is gone.
    until
        When it can go, UTC; None where that is not a matter of time.
    """

    key: str
    kind: str
    size_bytes: int
    gone: bool = False
    kept_by: str = ""
    until: datetime | None = None


def objects_table(objects: tuple[ErasedObject, ...]) -> pa.Table:
    """Return a row for each object."""
    return pa.Table.from_pylist([asdict(each) for each in objects], schema=OBJECTS_SCHEMA)


@guarded()
@dataclass(frozen=True, slots=True, repr=False)
class ErasureReport:
    """What an erase did, and what is left to do.

    Attributes
    ----------
    store_id, table, table_id
        The store and the table.
    rows
        Row numbers, as ranges [start, end).
    deleted_version, clean_version
        Version that deleted the rows, or found them deleted; the oldest version that holds none of their
        values.
    objects
        Every object that held values of the rows.
    versions
        First and last version that can be read and shows a value of the rows; None without any.
    out_of_reach
        What an erase of the store cannot delete.
    """

    store_id: str
    table: str
    table_id: int
    rows: tuple[tuple[int, int], ...]
    deleted_version: int
    clean_version: int
    objects: tuple[ErasedObject, ...]
    versions: tuple[int, int] | None = None
    out_of_reach: tuple[str, ...] = OUT_OF_REACH

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(end - start for start, end in self.rows)

    @property
    def ranges(self) -> RowRanges:
        """The rows."""
        bounds = np.array(self.rows, np.int64).reshape(-1, 2)
        return RowRanges(bounds[:, 0], bounds[:, 1])

    @property
    def kept(self) -> tuple[ErasedObject, ...]:
        """Objects that still hold values."""
        return tuple(each for each in self.objects if not each.gone)

    @property
    def done(self) -> bool:
        """Whether no object of the store holds a value of the rows any more."""
        return not self.kept

    @property
    def next_at(self) -> datetime | None:
        """When all that only time keeps can go; None where nothing is kept, or something else keeps it."""
        times = [each.until for each in self.kept]
        known = [each for each in times if each is not None]
        return max(known) if known and len(known) == len(times) else None

    def objects_table(self) -> pa.Table:
        """Return a row for each of `objects`, with its fields as columns."""
        return objects_table(self.objects)

    def to_json(self) -> str:
        """Return the report as JSON, from which `from_json` makes it again."""
        return json.dumps(asdict(self), default=datetime.isoformat, ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> ErasureReport:
        """Make a report from what `to_json` gave.

        Raises
        ------
        InvalidInputError
            If the text is something else.
        """
        try:
            return cls(**_fields(json.loads(as_str(text, "text"))))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(
                "Cannot read the report of an erase: the text is not one.",
                hint="Pass what `ErasureReport.to_json` returned.",
            ) from error

    def __repr__(self) -> str:
        gone = len(self.objects) - len(self.kept)
        lines = [
            f"ErasureReport({count(self.num_rows, 'row')} of {self.table}: {count(gone, 'object')} gone, "
            f"{len(self.kept)} kept)"
        ]
        for by in dict.fromkeys(each.kept_by for each in self.kept):
            some = [each for each in self.kept if each.kept_by == by]
            times = [each.until for each in some if each.until is not None]
            when = f", until {max(times):%Y-%m-%d %H:%M:%S} UTC" if times else ""
            lines.append(f"  {count(len(some), 'object')}: {by}{when}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [[each.key, each.kind, each.kept_by or "gone", each.until or ""] for each in self.objects]
        heading = joined(tag("b", "erase"), f" · {count(self.num_rows, 'row')} of {self.table}")
        return card(heading, table(["object", "kind", "kept by", "until"], rows))


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    objects = tuple(
        ErasedObject(**{**each, "until": each["until"] and datetime.fromisoformat(each["until"])})
        for each in given["objects"]
    )
    return {
        **given,
        "rows": tuple((int(start), int(end)) for start, end in given["rows"]),
        "objects": objects,
        "versions": given["versions"] and tuple(given["versions"]),
        "out_of_reach": tuple(given["out_of_reach"]),
    }
