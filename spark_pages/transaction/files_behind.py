"""Page files become durable beside the caller, which fills the next one meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from spark_pages.io import PageFileWriter
from spark_pages.runtime import Spawn


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
