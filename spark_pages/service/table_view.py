"""From an answer of the service to the snapshot of a table that storage would give.

`TableView` is an ordinary `LogSnapshot`: only what the checkpoint promises of a column comes from somewhere
else. Edits are applied, rows located and chains shared by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from spark_pages.errors import DamageError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.chain_tree import ChainKey, PartialRun, Piece, UnloadedRun
from spark_pages.model.ids import LIVENESS
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.service.metadata import MetadataService
from spark_pages.service.responses import PieceName, SegmentLocation, TableMetaChanges, TableMetaSnapshot


class Pieces(Protocol):
    """Where the pieces of one table at one version come from."""

    def pages(self, name: PieceName, has_stats: bool) -> PageRun:
        """Return the pages of a piece; statistics load on first use."""
        ...

    def part(self, name: PieceName) -> tuple[SegmentLocation, ...]:
        """Return the segments that a part lists."""
        ...


class LocalPieces:
    """Pieces from a service in this process.

    Parameters
    ----------
    service
        The service.
    db, table, version
        What they are pieces of.
    """

    def __init__(self, service: MetadataService, db: str, table: str, version: int) -> None:
        self._service = service
        self._asked = (db, table, version)

    def pages(self, name: PieceName, has_stats: bool) -> PageRun:
        """See `Pieces.pages`."""
        run = self._service.piece(*self._asked, name)
        return run if has_stats else PageRun(run.pages)

    def part(self, name: PieceName) -> tuple[SegmentLocation, ...]:
        """See `Pieces.part`."""
        return self._service.part(*self._asked, name)


class TableView(LogSnapshot):
    """One table as of one version, from the service's answer.

    Parameters
    ----------
    answer
        What the service said.
    pieces
        Where the rest comes from when it is asked for.
    older
        The same table as of an earlier version; what it has loaded is taken over where both stand on one
        checkpoint.
    """

    def __init__(self, answer: TableMetaSnapshot, pieces: Pieces, older: TableView | None = None) -> None:
        definition = answer.definition
        state = LogState(
            version=answer.version,
            timestamp_us=answer.timestamp_us,
            base=answer.checkpoint,
            edits={(answer.table_id, field_id): edits for field_id, edits in answer.redo.items() if edits},
            tables={answer.table_id: definition},
            names={(definition.namespace_id, definition.name): definition.table_id},
        )
        super().__init__(state, None, older)
        self.answer = answer
        self.pieces = pieces

    @property
    def definition(self) -> TableDefinition:
        """The table."""
        return self.answer.definition

    @property
    def has_dead_rows(self) -> bool:
        """See `LogSnapshot.has_dead_rows`."""
        return LIVENESS in self.answer.redo

    def base_chain(self, key: ChainKey) -> Sequence[Piece | PartialRun]:
        """See `LogSnapshot.base_chain`."""
        promised: list[Piece] = []
        base = 0
        for place in self.answer.places.get(key[1], ()) if key[0] == self.answer.table_id else ():
            promised.append(self._promise(place, key[1], "", base if place.level == 0 else -1))
            base += place.pages
        return promised

    def _promise(self, place: SegmentLocation, field_id: int, part: str, base: int) -> UnloadedRun:
        name = PieceName(field_id, place.location.digest, part)
        expand = self._list_part(name, base) if place.is_part else self._load(name, place, base)
        return UnloadedRun(place.pages, place.rows, expand, base)

    def _load(self, name: PieceName, place: SegmentLocation, base: int) -> Callable[[], list[PageRun]]:
        def load() -> list[PageRun]:
            return [self.pieces.pages(name, place.stats is not None).with_base_position(base)]

        return load

    def _list_part(self, name: PieceName, base: int) -> Callable[[], list[UnloadedRun]]:
        def expand() -> list[UnloadedRun]:
            found, position = [], base
            for place in self.pieces.part(name):
                if place.is_part:
                    raise DamageError(
                        f"Cannot read part {name.digest} of a checkpoint: expected segments, found a part."
                    )
                found.append(self._promise(place, name.field_id, name.digest, position))
                position = position + place.pages if position >= 0 else -1
            return found

        return expand


def apply_changes(answer: TableMetaSnapshot, changes: TableMetaChanges) -> TableMetaSnapshot | None:
    """Apply changes to an answer, to form that of a later version; None if they do not suffice.

    They do as long as both stand on one checkpoint, and no column came that the answer has no places of.
    """
    definition = changes.definition
    if (
        (changes.table_id, changes.from_) != (answer.table_id, answer.version + 1)
        or changes.checkpoint != answer.checkpoint
        or changes.redo_locations
        or not {*definition.field_ids.values(), *changes.hot_redo} <= answer.redo.keys()
    ):
        return None
    fields = [key[1] for key in definition.chains if key[1] in answer.redo]
    return replace(
        answer,
        definition=definition,
        version=changes.to,
        timestamp_us=changes.timestamp_us,
        places={field_id: answer.places.get(field_id, ()) for field_id in fields},
        redo={field_id: answer.redo[field_id] + changes.hot_redo.get(field_id, ()) for field_id in fields},
    )
