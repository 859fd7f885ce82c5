"""Pages of a large transaction leave its memory before it ends: into page files, while the next are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from spark_pages.io import PageFileWriter
from spark_pages.model.ids import TableId
from spark_pages.runtime import Spawn
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_writer import PlacedPages
from spark_pages.transaction.placement import StagedSplice


class EarlyPages:
    """Page files of one transaction that are written before its commit.

    Parameters
    ----------
    store, next_page_file
        Where they go, and the key of the next one for a table.
    spawn
        Begins work beside the caller.

    Notes
    -----
    One file is being written at a time; who brings the next one waits for it. No commit names them before
    `wait` has returned, so a crash leaves orphans that no snapshot sees.
    """

    def __init__(self, store: ObjectStore, next_page_file: Callable[[TableId], str], spawn: Spawn) -> None:
        self._behind = FilesBehind(spawn)
        self._placed = PlacedPages(store, finish=self._behind.begin)
        self._next_page_file = next_page_file

    def write(self, splices: Sequence[StagedSplice]) -> None:
        """The staged pages of these splices have their places, and the bytes are on their way to storage.

        Raises
        ------
        StorageError
            If a file before could not be written.

        Notes
        -----
        The pages of a table lie column by column; each table begins a file.
        """
        ordered = sorted(splices, key=lambda each: (each.table_id, each.field_id))
        for table_id, of_table in groupby(ordered, key=lambda each: each.table_id):
            self._placed.begin(partial(self._next_page_file, table_id))
            for splice in of_table:
                splice.pages = self._placed.place(splice.pages, inline=False)
            self._placed.finish_file()

    def wait(self) -> None:
        """All that was written is durable.

        Raises
        ------
        StorageError
            If something could not be written.
        """
        self._behind.wait()


class FilesBehind:
    """One page file at a time is being written; who brings the next one waits for it.

    Parameters
    ----------
    spawn
        Begins work beside the caller.
    """

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._running: Callable[[float | None], object] | None = None
        self._error: BaseException | None = None

    def begin(self, file: PageFileWriter) -> None:
        """The file is on its way to storage.

        Raises
        ------
        StorageError
            If a file before could not be written.
        """
        self.wait()

        def finish() -> None:
            try:
                file.finish()
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                self._error = error

        self._running = self._spawn(finish)

    def wait(self) -> None:
        """All files that were begun are durable.

        Raises
        ------
        StorageError
            If one could not be written.
        """
        running, self._running = self._running, None
        if running is not None:
            running(None)
        if self._error is not None:
            raise self._error
