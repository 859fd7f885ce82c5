"""How long writers wait: for a clear answer of storage, for other threads, and for other processes.

All waits follow how long a request takes. Whose turn it is, `turns` says; how long to wait for those who are
first, and when to give them up, is said here. The numbers were chosen by trying out sets of them on a model
(`benchmarks/log/turns.py`) and on processes (`benchmarks/log/writers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_pages.log.fairness import Before
from spark_pages.runtime import Runtime

_DOUBT_START_S = 0.005
_DOUBT_LIMIT_S = 1.0
_SMOOTHING = 0.2
_OTHERS_LIMIT_S = 0.05
_LOSS_REQUESTS = 0.5
_COMMIT_REQUESTS = 1.1
"""A commit of another process takes so many requests at least."""

_PATIENCE_REQUESTS = 3
"""Somebody whose turn it is may take so many requests to come."""

_FREE_REQUESTS = 3
"""A slot is left free for so many requests: a look that has just missed the one before, the next look, and a
create. Whoever has filled it waits longer than this for the one that has left it: so that keeps its place."""

_SLOW_REQUESTS = 16
"""A slot is left free for so many requests for writers whose own take up to six times as long."""

_EARLY_REQUESTS = 3
"""The first look is so long before the end of a turn: who is late may be passed over."""

_FORESEEN = 9
"""More commits of one writer are not slept through without a look."""

_LOOK_REQUESTS = 0.125
"""Between two looks for the next slot."""


class Pace:
    """The waits of one process; thread-safe as far as a lost update of a hint is harmless.

    Parameters
    ----------
    runtime
        Clock and chance.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._request_s = 0.0
        self._moved_s = -1e9

    def create_took(self, seconds: float) -> None:
        """A create-only put has taken so long."""
        self._request_s += (seconds - self._request_s) * (_SMOOTHING if self._request_s else 1.0)

    def head_moved(self) -> None:
        """Somebody has committed, as was just seen."""
        self._moved_s = self._runtime.monotonic_s()

    def for_others(self) -> float:
        """Seconds that a leader waits for other threads at most."""
        return min(_OTHERS_LIMIT_S, self._request_s)

    def after_doubt(self, attempt: int) -> float:
        """Seconds to wait after storage gave no clear answer for the n-th time."""
        longest: float = min(_DOUBT_LIMIT_S, _DOUBT_START_S * 2 ** min(attempt - 1, 12))
        return longest * self._runtime.jitter()

    def after_loss(self, tries: int) -> float:
        """Seconds to wait after another commit took the slot for the n-th time."""
        return 0.0 if tries == 1 else self._request_s * _LOSS_REQUESTS * self._runtime.jitter()

    def for_newcomers(self, before: Before) -> float:
        """Seconds that a slot is left free for writers that are new or slow: they find it, then fill it."""
        rested_s = self._runtime.monotonic_s() - self._moved_s
        if before.slow:
            return max(0.0, self._request_s * _SLOW_REQUESTS - rested_s)
        if rested_s >= self._patience_s(before):
            return 0.0
        return self._request_s * (_FREE_REQUESTS + self._runtime.jitter() / 2)

    def for_turn(self, before: Before) -> Iterator[float]:
        """Seconds to wait before each look whether others have committed, until they are given up.

        Notes
        -----
        Nothing where they have had the time since the head was last seen to move, as after a long rest.
        """
        request_s, now_s = self._request_s, self._runtime.monotonic_s
        commits = min(before.commits, _FORESEEN)
        likely_s = commits * _COMMIT_REQUESTS * request_s
        patience_s = self._patience_s(before)
        rested_s = now_s() - self._moved_s
        if rested_s >= likely_s + patience_s:
            return
        wait_s = (
            max(0.0, likely_s - _EARLY_REQUESTS * request_s) + (before.writers - 1) * request_s - rested_s
        )
        look_s = request_s * max(_LOOK_REQUESTS, before.writers - 1)
        end_s = now_s() + max(0.0, likely_s - rested_s) + patience_s + request_s / 2 * self._runtime.jitter()
        while (began_s := now_s()) < end_s:
            yield max(0.0, wait_s)
            wait_s = began_s + max(0.0, wait_s) + look_s - now_s()

    def _patience_s(self, before: Before) -> float:
        return (before.writers + _PATIENCE_REQUESTS) * self._request_s
