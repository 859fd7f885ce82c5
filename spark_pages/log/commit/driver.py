"""Perform the requests of the commit protocol: storage, waits and backoff, with a cache of new commits."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from spark_pages.display.text import moment
from spark_pages.errors import CommitError, DamageError, StorageError, UnsupportedFormatError
from spark_pages.log.commit.group import NOTHING, Hold
from spark_pages.log.commit.protocol_types import (
    CreateSlot,
    ReadFailed,
    ReadSlot,
    ReadSlots,
    Request,
    Response,
    Wait,
    Yield,
)
from spark_pages.log.commit_times import MAX_RECORDED_US, MAX_TIME_US, ahead_of
from spark_pages.log.fairness import CommitSchedule
from spark_pages.log.slots import SlotReader
from spark_pages.log.state import LogState
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.runtime import Runtime
from spark_pages.storage.store import Created

Result = TypeVar("Result")

_FAR_OFF_US = 60_000_000
"""Clocks of machines that are kept differ by less."""

_UNSEEN_US = 600_000_000
"""Storage is asked for its time only where the clock has moved on by more than this since the parent."""

_logger = logging.getLogger(__name__)

_LOOK = 8
"""Slots that are looked for at once: as many as are read at the same time."""

_MOST_AT_ONCE = 512
"""A writer that is further behind tries a slot in between; it has no more commits than this in memory."""


class CommitDriver:
    """Drives the commit rule against the storage of one log.

    Parameters
    ----------
    slots
        Reads slots.
    runtime
        Clock, chance and sleep.
    timeout_s
        After this long a commit that still has no clear outcome gives up.

    Attributes
    ----------
    pace
        How long to wait for what.
    """

    def __init__(self, slots: SlotReader, runtime: Runtime, timeout_s: float) -> None:
        self._slots = slots
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._recent = CommitCache(slots)
        self.pace = Backoff(runtime)
        self._has_told_clock = False
        self._storage_clock: tuple[float, int] | None = None

    def record_commit(self, commit: Commit, ahead_us: int = 0) -> None:
        """Record an own commit, so that reading its slot needs no request.

        Parameters
        ----------
        ahead_us
            By how much recorded times are ahead, see `spark_pages.log.commit_times`.
        """
        self._recent.keep(commit)
        self.pace.head_moved()
        self._warn_of_slow_clock(commit, ahead_us)

    def recent(self, start: int, stop: int) -> list[Commit] | None:
        """Return commits [start, stop), oldest first, if all are in memory."""
        return self._recent.commits(start, stop)

    def check_clock(self, state: LogState) -> Callable[[], int]:
        """Compare the clock of this machine with the parent's time and the storage's own.

        Parameters
        ----------
        state
            The newest one known.

        Returns
        -------
        callable
            The clock of the commit, in microseconds.

        Raises
        ------
        CommitError
            If the clock is far ahead of both, or is none of the years 1970 to 9999: all later commits would
            record that time. Nobody else can write to a store in memory: it dates its commits itself.

        Notes
        -----
        Storage is asked only where the parent is old, and once for a handle unless the clock jumps.
        """
        clock, ahead_of_real = self._runtime.now_us, ahead_of(state.properties)
        now_us = clock()
        if not 0 <= now_us <= MAX_TIME_US or state.timestamp_us >= MAX_RECORDED_US:
            raise CommitError(
                "Cannot commit: the clock of this machine or of the newest commit is at "
                f"{moment(max(now_us, state.timestamp_us))}, which is none of the years 1970 to 9999. "
                "Nothing was committed.",
                hint="Set the clock of this machine, or see `spark-pages reset-clock` where a commit has "
                "the wrong time.",
            )
        parent_us = state.timestamp_us - ahead_of_real if state.version >= 0 else 0
        ahead_us = self._ahead_us(now_us) if now_us - parent_us > _UNSEEN_US else 0
        if ahead_us <= _FAR_OFF_US:
            return lambda: clock() + ahead_of_real
        if self._slots.store.url.startswith("memory://"):
            return lambda: clock() - ahead_us + ahead_of_real
        raise CommitError(
            f"Cannot commit: the clock of this machine is {ahead_us / 1_000_000:.0f} s ahead of that of "
            f"the storage at {self._slots.store.url}, and was to be ahead by at most "
            f"{_FAR_OFF_US // 1_000_000} s. Nothing was committed.",
            hint="Set the clock of this machine (`timedatectl`), and commit again: times of commits never "
            "go back.",
        )

    def check_lasts(self, state: LogState, expires_at_us: int, what: str) -> None:
        """Check that a lease or claim is not over already by the time of the store.

        Parameters
        ----------
        state
            The newest one known.
        expires_at_us
            Its end, by the clock of this machine.
        what
            What it is called, in an error.

        Raises
        ------
        CommitError
            If the newest commit is later than its end, and the storage's own clock is, too, or is not known.

        Notes
        -----
        Storage is asked where the newest commit is old, or later than the end: once for a handle.
        """
        newest_us = state.timestamp_us - ahead_of(state.properties)
        now_us = self._runtime.now_us()
        if expires_at_us <= now_us or (newest_us < expires_at_us and now_us - newest_us <= _UNSEEN_US):
            return  # it is to be over, or it is not
        in_memory = self._slots.store.url.startswith("memory://")  # whose clock is that of this process
        theirs_us = None if in_memory else self._storage_now_us()
        own_us = newest_us if theirs_us is None else theirs_us
        if own_us >= expires_at_us:
            raise CommitError(
                f"Cannot take {what}: it would be over at {moment(expires_at_us)}, and it is "
                f"{moment(own_us)} by the clock of the store at {self._slots.store.url}. "
                "Nothing was committed.",
                hint="Set the clock of this machine (`timedatectl`), which is behind, and take it again.",
            )

    def _ahead_us(self, now_us: int) -> int:
        """Measure by how much the clock is ahead of the storage's; 0 where storage does not tell.

        What storage has told is kept, see `_storage_now_us`; it is asked again before a commit is refused.
        """
        theirs_us = self._storage_now_us()
        if theirs_us is not None and now_us - theirs_us > _FAR_OFF_US:
            theirs_us = self._storage_now_us(anew=True)
        return 0 if theirs_us is None else now_us - theirs_us

    def _storage_now_us(self, anew: bool = False) -> int | None:
        """Time of the storage; None where it does not tell.

        The answer of storage is kept. It goes on with the clock of this machine that never jumps, but may
        stand still while the machine sleeps.
        """
        now_s = self._runtime.monotonic_s()
        if self._storage_clock is not None and not anew:
            asked_at_s, theirs_us = self._storage_clock
            return theirs_us + int((now_s - asked_at_s) * 1e6)
        try:
            told = self._slots.store.now_us()
        except StorageError:
            return None
        if told is not None:
            self._storage_clock = self._runtime.monotonic_s(), told
        return told

    def _warn_of_slow_clock(self, commit: Commit, ahead_us: int) -> None:
        """Warn once where the clock is far behind the commit before, whose time the own one then follows."""
        if self._has_told_clock:
            return
        parent_us = commit.timestamp_us - 1 - ahead_us
        behind_us = parent_us - self._runtime.now_us()  # not above 0 where the clock is right
        if behind_us <= _FAR_OFF_US:
            return
        self._has_told_clock = True
        _logger.warning(
            "The clock of this machine is %.0f s behind the commit before version %d of %s, so its commits "
            "bear that time. Set the clock that is wrong: this one, or that of whoever made that commit, and "
            "in that case run `spark-pages reset-clock URL`.",
            behind_us / 1_000_000,
            commit.version,
            self._slots.store.url,
        )

    def after_losses(self) -> Callable[[int], bool]:
        """Return a function that backs off after the n-th lost slot, and says whether time is left.

        The time is that of a commit that begins now, for one that is given to the rule again and again.
        """
        deadline = self._runtime.monotonic_s() + self._timeout_s
        return lambda tries: self._pause(Wait(tries, lost=True), deadline)

    def drive(
        self,
        protocol: Generator[Request, Response, Result],
        computing: Hold = NOTHING,
    ) -> Result:
        """Run a protocol, perform its requests, and return its result.

        Parameters
        ----------
        computing
            Held while the rule computes, and let go while it waits for what it has asked for.
        """
        deadline = self._runtime.monotonic_s() + self._timeout_s
        first, second, third = computing
        try:
            with first, second, third:
                request = next(protocol)
            while True:
                answer = self._perform(request, deadline)
                with first, second, third:
                    request = protocol.send(answer)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _perform(self, request: Request, deadline: float) -> Response:
        match request:
            case CreateSlot(key, data):
                began = self._runtime.monotonic_s()
                answer = self._slots.store.create(key, data)
                self.pace.create_took(self._runtime.monotonic_s() - began)
                if isinstance(answer, Created):
                    self._slots.identity.note_created(key, answer.stamp)
                return answer
            case ReadSlot(version):
                return self._read_slot(version)
            case ReadSlots(start, stop):
                return self._recent.slots(start, stop)
            case Yield():
                return self._yield_to_others(request, deadline)
            case Wait():
                return self._pause(request, deadline)

    def _read_slot(self, version: int) -> Response:
        """Read a slot. Damaged bytes count as no answer: the commit may be there."""
        try:
            found = self._slots.read(version)
        except UnsupportedFormatError:
            raise
        except (StorageError, DamageError) as error:
            return ReadFailed(str(error))
        if found is not None:
            self.pace.head_moved()
        return found

    def _pause(self, pause: Wait, deadline: float) -> bool:
        wait = self.pace.after_loss if pause.lost else self.pace.after_doubt
        return self._sleep(wait(pause.attempt), deadline)

    def _yield_to_others(self, request: Yield, deadline: float) -> list[Commit | Tombstone]:
        """Return the commits of others, or nothing if they had time and did not commit.

        A writer that knows of nobody else leaves time, and looks for nobody: its own create tells as well.
        """
        first = request.before
        if first.unknown:
            self._sleep(self.pace.for_newcomers(first), deadline)
            if first.slow:
                self.pace.head_moved()  # those that take turns go on with them from here
            return []
        expected = min(_LOOK - 1, max(1, first.commits + first.writers - 1)) if first.writers else _LOOK - 1
        count = expected + 1  # one more tells whether the head is further on
        for wait_s in self.pace.for_turn(first) if first.writers else (0.0,):
            if not self._sleep(wait_s, deadline):
                return []
            found = self._next(request.start, count)
            if found:
                self.pace.head_moved()
                return found if len(found) <= expected else self._up_to_head(found, deadline)
            count = 1
        return []

    def _up_to_head(self, found: list[Commit | Tombstone], deadline: float) -> list[Commit | Tombstone]:
        """Return these slots and those after them: more than expected means far behind the head."""
        while isinstance(found[-1], Commit) and len(found) < _MOST_AT_ONCE and self._sleep(0.0, deadline):
            more = self._next(found[-1].version + 1, _LOOK)
            found = [*found, *more]
            if len(more) < _LOOK:
                break
        return found

    def _next(self, start: int, count: int) -> list[Commit | Tombstone]:
        """Return the slots from `start` on; none if storage does not answer."""
        try:
            return self._recent.next(start, count)
        except StorageError:
            return []

    def _sleep(self, wait_s: float, deadline: float) -> bool:
        """Whether there was time left to wait."""
        left = deadline - self._runtime.monotonic_s()
        if left <= 0:
            return False
        if wait_s > 0:
            self._runtime.sleep_s(min(wait_s, left))
        return True


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


class Backoff:
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
        """Record how long a conditional put took."""
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

    def for_newcomers(self, before: CommitSchedule) -> float:
        """Seconds that a slot is left free for writers that are new or slow: they find it, then fill it."""
        rested_s = self._runtime.monotonic_s() - self._moved_s
        if before.slow:
            return max(0.0, self._request_s * _SLOW_REQUESTS - rested_s)
        if rested_s >= self._patience_s(before):
            return 0.0
        return self._request_s * (_FREE_REQUESTS + self._runtime.jitter() / 2)

    def for_turn(self, before: CommitSchedule) -> Iterator[float]:
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

    def _patience_s(self, before: CommitSchedule) -> float:
        return (before.writers + _PATIENCE_REQUESTS) * self._request_s


_KEPT = 64


class CommitCache:
    """Slots by number, from memory where they were seen lately. For one thread at a time, but for `commits`.

    Parameters
    ----------
    reader
        Reads the others.
    """

    def __init__(self, reader: SlotReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[int, Commit | Tombstone] = OrderedDict()

    def keep(self, slot: Commit | Tombstone) -> None:
        """Cache a slot in place of the oldest one."""
        self._kept[slot.version] = slot
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def commits(self, start: int, stop: int) -> list[Commit] | None:
        """Return commits [start, stop) if all are in memory."""
        found = [self._kept.get(version) for version in range(start, stop)]
        commits = [slot for slot in found if isinstance(slot, Commit)]
        return commits if len(commits) == len(found) else None

    def slots(self, start: int, stop: int) -> list[Commit | Tombstone]:
        """Return slots [start, stop), which must exist."""
        missing = [version for version in range(start, stop) if version not in self._kept]
        read = dict(zip(missing, self._reader.present(missing), strict=True))
        found = [read.get(version) or self._kept[version] for version in range(start, stop)]
        for slot in read.values():
            self.keep(slot)
        return found

    def next(self, start: int, count: int) -> list[Commit | Tombstone]:
        """Return at most `count` slots from `start` on, up to the first empty one, in one round."""
        found: list[Commit | Tombstone] = []
        for slot in self._reader.read_many(range(start, start + min(count, _KEPT // 2))):
            if slot is None or self._reader.identity.is_foreign(slot):
                break
            self.keep(slot)
            found.append(slot)
            if isinstance(slot, Tombstone):
                break
        return found
