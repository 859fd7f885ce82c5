"""Pieces of a table that a client loads from the service when somebody asks for them."""

from __future__ import annotations

from typing import Any

from spark_pages.errors import DamageError
from spark_pages.model.run import PageRun
from spark_pages.service.client import ServiceCalls
from spark_pages.service.page_index import LearnedPieces
from spark_pages.service.remote_objects import NamedTable
from spark_pages.service.requests import piece_to_plain
from spark_pages.service.responses import PieceName, Place, TableMetaSnapshot, piece_names
from spark_pages.service.wire import place_from_plain, rows_of


class ServedPieces:
    """Pieces of one table on one checkpoint, from the service.

    Attributes
    ----------
    names
        Namespace, table, and the newest version of it on that checkpoint that this client has seen: the one
        by which pieces are asked for, because it is kept longest.
    """

    def __init__(self, calls: ServiceCalls, learned: LearnedPieces[NamedTable], db: str, table: str) -> None:
        self._calls = calls
        self._learned = learned
        self._named = (db, table)
        self._version = -1

    @property
    def names(self) -> tuple[str, str, int]:
        """See the class."""
        return (*self._named, self._version)

    def seen(self, answer: TableMetaSnapshot) -> None:
        """The service has told of this version; pages of its redo are learned."""
        self._version = max(self._version, answer.version)
        for field_id, edits in answer.redo.items():
            for name, edit in zip(piece_names(field_id, edits), edits, strict=True):
                if isinstance(edit.added, PageRun) and edit.added.num_pages:
                    self._learned.learn(self, name, edit.added, blooms=True)

    def pages(self, name: PieceName, has_stats: bool) -> PageRun:
        """See `spark_pages.service.table_view.Pieces`."""
        _, batches = self._get("piece", name)
        run = PageRun(rows_of(batches)[0], (lambda: self.stats(name).stats) if has_stats else None)
        self._learned.learn(self, name, run, blooms=False)
        return run

    def stats(self, name: PieceName) -> PageRun:
        """The same pages with their statistics."""
        _, batches = self._get("stats", name)
        pages, stats = rows_of(batches)
        run = PageRun(pages, lambda: stats)
        self._learned.learn(self, name, run, blooms=True)
        return run

    def part(self, name: PieceName) -> tuple[Place, ...]:
        """See `spark_pages.service.table_view.Pieces`."""
        header, _ = self._get("part", name)
        try:
            return tuple(map(place_from_plain, header["places"]))
        except (LookupError, TypeError, ValueError) as error:
            raise DamageError("The service answered with places that are not understood.") from error

    def _get(self, what: str, name: PieceName) -> tuple[dict[str, Any], list[Any]]:
        db, table, version = self.names
        return self._calls.get(what, db=db, table=table, version=version, piece=piece_to_plain(name))
