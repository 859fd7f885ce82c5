"""Who is inside: how many calls run, that they are not too many, and that they end before all else."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_pages.errors import StorageError


class Admission:
    """One call that is inside. Ended once, by whoever comes first or when nobody holds it any more."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave: Callable[[], None] | None = leave
        self._lock = threading.Lock()

    def release(self) -> None:
        """The call is not inside any more."""
        with self._lock:
            leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def __del__(self) -> None:
        self.release()


class AdmissionControl:
    """Lets calls in until it is closed.

    Parameters
    ----------
    most
        So many calls may be inside at once.
    entered, left
        Told of each call.
    """

    def __init__(self, most: int, entered: Callable[[], None], left: Callable[[], None]) -> None:
        self._most = most
        self._entered = entered
        self._left = left
        self._inside = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether calls are let in."""
        return not self._closed

    def enter(self) -> Admission:
        """A call is inside.

        Raises
        ------
        StorageError
            If the gate is closed, or too many are inside: the same call may succeed later.
        """
        with self._changed:
            if self._closed:
                raise StorageError("The service is ending and takes no more calls.", hint="Call again.")
            if self._inside >= self._most:
                raise StorageError(
                    f"The service has {self._inside} calls to answer and takes no more.", hint="Call again."
                )
            self._inside += 1
        self._entered()
        return Admission(self._leave)

    def close(self, timeout_s: float) -> bool:
        """Nobody is let in any more; gives whether all who were inside have left within the time."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: self._inside == 0, timeout_s)

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()
        self._left()
