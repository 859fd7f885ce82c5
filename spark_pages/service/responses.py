"""What the service answers: where a table's checkpoint is, and what happened since. Values, shared freely.

An answer holds the very edits and places that the service holds. Nobody ever changes them, so the
transactions of all clients share them without a copy (seed 004, "how to use a snapshot without in-place
updates and copy").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain_tree import ChainEdit
from spark_pages.model.immutable import freeze
from spark_pages.model.location import Location
from spark_pages.model.table import TableDefinition

Redo = Mapping[int, tuple[ChainEdit, ...]]
"""Field id to the splices of that column, in order."""


@dataclass(frozen=True, slots=True)
class SegmentLocation:
    """A part of a checkpoint that holds consecutive pages of one column.

    Attributes
    ----------
    location
        The object: a segment, or a manifest part that lists segments.
    stats
        Statistics of a segment's pages; None where there are none, and for parts.
    is_part
        Whether it lists segments, for a chain with very many.
    level
        0 for the base, 1 and more for tail runs, oldest first.
    pages, rows
        What it holds of the column.
    """

    location: Location
    stats: Location | None
    is_part: bool
    level: int
    pages: int
    rows: int


@dataclass(frozen=True, slots=True)
class PieceName:
    """How client and service speak of one piece of a column: a place of the checkpoint, or a splice since.

    Attributes
    ----------
    field_id
        The column.
    digest
        Of the segment or part; empty for a splice.
    part
        Digest of the part that lists the segment, where the part was given as one place; else empty.
    commit, nth
        The commit that made the splice, and which of its splices of this column it is; -1 and 0 for a place.
    """

    field_id: int
    digest: str = ""
    part: str = ""
    commit: int = -1
    nth: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class TableMetaSnapshot:
    """All that is needed to build a table as of one version (seed 004, ``TableMetaSS``).

    Attributes
    ----------
    table_id, definition
        The table.
    version, timestamp_us
        The snapshot, and when it was committed.
    checkpoint
        What `places` are of; None where everything is in `redo`.
    places
        Field id to the places that hold the column in the checkpoint, in row order.
    redo
        Splices of the commits after the checkpoint, up to `version`.
    """

    table_id: int
    definition: TableDefinition
    version: int
    timestamp_us: int
    checkpoint: CheckpointRef | None
    places: Mapping[int, tuple[SegmentLocation, ...]]
    redo: Redo

    def __post_init__(self) -> None:
        freeze(self, "places", "redo")


@dataclass(frozen=True, slots=True)
class RedoLocation:
    """The commits from `first_version` to `last_version`, both included, in one object."""

    key: str
    first_version: int
    last_version: int


@dataclass(frozen=True, eq=False, slots=True)
class TableMetaChanges:
    """What the commits from version `from_` to `to`, both included, did to a table (seed 004).

    Attributes
    ----------
    table_id, definition
        The table as of `to`.
    from_, to, timestamp_us
        First and last version of the range, and the time of `to`.
    checkpoint
        What the service's snapshot of `to` stands on.
    redo_locations
        Objects with the commits that are persisted only, oldest first. They are checked by the digests that
        chain commits.
    hot_redo
        Splices of the commits after those, which the service has in memory.
    """

    table_id: int
    definition: TableDefinition
    from_: int
    to: int
    timestamp_us: int
    checkpoint: CheckpointRef | None
    redo_locations: tuple[RedoLocation, ...]
    hot_redo: Redo

    def __post_init__(self) -> None:
        freeze(self, "hot_redo")


def piece_names(field_id: int, edits: tuple[ChainEdit, ...]) -> list[PieceName]:
    """Return the names of a column's splices, in order."""
    names: list[PieceName] = []
    for edit in edits:
        again = bool(names) and names[-1].commit == edit.version
        names.append(PieceName(field_id, commit=edit.version, nth=names[-1].nth + 1 if again else 0))
    return names
