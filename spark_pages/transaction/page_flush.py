"""Write the pages of a large transaction to page files before it commits, while others are encoded."""

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


class FilesBehind:
    """Write one page file at a time beside the caller, who waits before the next one.

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
        """Begin to make a file durable.

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
        """Wait until all files that were begun are durable.

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


class PageFlusher:
    """Write the pages of one transaction to page files once they exceed their part of its memory.

    Parameters
    ----------
    store
        Where page files go.
    spawn
        Begins work beside the caller.

    Notes
    -----
    One file is being written at a time. No commit names the files before `wait` has returned, so a crash
    leaves orphans that no snapshot sees.
    """

    def __init__(self, store: ObjectStore, spawn: Spawn) -> None:
        self._behind = FilesBehind(spawn)
        self._placed = PlacedPages(store, finish=self._behind.begin)

    def write(self, splices: Sequence[StagedSplice], next_page_file: Callable[[TableId], str]) -> None:
        """Give the pages of these splices their places, and begin to write them.

        Parameters
        ----------
        splices
            Their pages are replaced by pages with places.
        next_page_file
            Gives the key of the next page file for a table.

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
            self._placed.begin(partial(next_page_file, table_id))
            for splice in of_table:
                splice.pages = self._placed.place(splice.pages, inline=False)
            self._placed.finish_file()

    def wait(self) -> None:
        """Wait until all that was written is durable.

        Raises
        ------
        StorageError
            If something could not be written.
        """
        self._behind.wait()
