"""How writers of several processes share the log: when to wait, and when to let others go first.

Whoever has just committed knows the head and would win the next slot too, and every one after it: the
others are always one request late. So a writer that has had the log for a while stops for a moment. Those
that wait try the more often the longer they have waited, so that the oldest is likely to be next. The
numbers were chosen by trying out some hundred sets of them on a model (`benchmarks/log/turns.py`).
"""

from __future__ import annotations

from spark_pages.runtime import Runtime

_DOUBT_START_S = 0.005
_DOUBT_LIMIT_S = 1.0
_TURN_REQUESTS = 4
_TURN_LIMIT_S = 1.0
_STOP_REQUESTS = 4
_STOP_LIMIT_S = 0.25
_WAIT_REQUESTS = 20
_SMOOTHING = 0.2
_OTHERS_LIMIT_S = 0.05


class Pace:
    """The waits of one process; thread-safe as far as a lost update of a hint is harmless.

    Parameters
    ----------
    runtime
        Clock, chance and sleep.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._request_s = 0.0
        self._turn_began_s: float | None = None
        self._turn_length_s = _TURN_LIMIT_S

    def create_took(self, seconds: float) -> None:
        """A create-only put has taken so long."""
        self._request_s += (seconds - self._request_s) * (_SMOOTHING if self._request_s else 1.0)

    def for_others(self) -> float:
        """Seconds that a leader waits for other threads at most."""
        return min(_OTHERS_LIMIT_S, self._request_s)

    def after_doubt(self, attempt: int) -> float:
        """Seconds to wait after storage gave no clear answer for the n-th time."""
        longest: float = min(_DOUBT_LIMIT_S, _DOUBT_START_S * 2 ** min(attempt - 1, 12))
        return longest * self._runtime.jitter()

    def after_loss(self, tries: int) -> float:
        """Seconds to wait after another commit took the slot for the n-th time."""
        self._turn_began_s = None
        self._turn_length_s = min(_TURN_LIMIT_S, _TURN_REQUESTS * self._request_s)
        if tries == 1:
            return 0.0
        return self._request_s * _WAIT_REQUESTS / (tries - 1) ** 3 * self._runtime.jitter()

    def before_first_try(self) -> float:
        """Seconds to stop, so that others get a turn; 0 nearly always.

        Notes
        -----
        A turn is a second long, but only four requests after somebody else took a slot; it doubles, up to
        a second, each time that nobody does.
        """
        now = self._runtime.monotonic_s()
        if self._turn_began_s is None:
            self._turn_began_s = now
        if now - self._turn_began_s < self._turn_length_s:
            return 0.0
        stop = min(_STOP_LIMIT_S, _STOP_REQUESTS * self._request_s)
        self._turn_began_s = now + stop
        self._turn_length_s = min(_TURN_LIMIT_S, 2 * self._turn_length_s)
        return stop
