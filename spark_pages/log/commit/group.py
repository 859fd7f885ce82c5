"""Group commit: transactions of one process that want to commit at once share one log object.

Whoever comes first leads: it takes all that wait, commits them together, and hands the lead to the
first one that came meanwhile. So the number of commits follows the latency of storage, and the number
of transactions in each follows the load.

Threads whose transactions have just landed come back one by one. If the first of them led at once, it would
hold the log for a whole request with one transaction while all others wait. So a leader waits for half of
those that were there a moment ago: one half is on its way while the other half prepares. For the same
reason a leader tells one of those that have landed, and that one tells the next: all at once they would
keep the next leader from its work.

A thread that is stopped while it waits, by Ctrl-C say, leaves: its transaction is not in the log, unless a
commit under way had taken it along.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import TypeAlias

from spark_pages.errors import SparkPagesError
from spark_pages.log.commit.protocol import IfStopped
from spark_pages.log.commit.protocol_types import Deferred, GroupMember, Outcome

CommitTogether = Callable[[Sequence[GroupMember], IfStopped], Sequence[Outcome]]


_all: weakref.WeakSet[CommitGroup] = weakref.WeakSet()


class _Ticket:
    """One waiting transaction."""

    __slots__ = ("gone", "member", "result", "wake")

    def __init__(self, member: GroupMember) -> None:
        self.member = member
        self.result: Outcome | BaseException | None = None
        self.wake: SimpleQueue[None] = SimpleQueue()  # an event is slower: it is made of Python and two locks
        self.gone = False


_Held: TypeAlias = AbstractContextManager[object]
Hold: TypeAlias = tuple[_Held, _Held, _Held]
"""What is held by ``with first, second, third``.

Locks of Python's own, one by one: no signal comes between such a lock and its block. Where a class with an
`__enter__` and an `__exit__` takes a lock and lets go of it, Ctrl-C may leave it locked for ever.
"""

NOTHING: Hold = (nullcontext(), nullcontext(), nullcontext())


class _GroupLock:
    """Whoever comes here goes on once nobody holds the lock, and does not hold it."""

    __slots__ = ("_lock",)

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        with self._lock:
            pass

    def __exit__(self, *_: object) -> None:
        pass


class OneAtATime:
    """Lets threads prepare small transactions one at a time, and whoever leads a commit before all that wait.

    Python runs one of them at a time anyway. If all want it they hand it to each other at every call into
    Arrow, which takes longer than the work, and a leader among them is late with what all wait for.

    Attributes
    ----------
    preparing
        What a thread holds that prepares.
    leading
        What a leader holds while it computes: it waits for no more than the thread that is inside. The way is
        held too, as a lock may be taken by who comes just when it is let go, before who has waited wakes up.
    """

    __slots__ = ("leading", "preparing")

    def __init__(self) -> None:
        door, way, inside = threading.Lock(), threading.Lock(), threading.Lock()
        self.preparing: Hold = (door, _GroupLock(way), inside)
        self.leading: Hold = (nullcontext(), way, inside)


class CommitGroup:
    """Brings concurrent callers of `commit` together.

    Parameters
    ----------
    commit_together
        Commits several members and gives an outcome for each; runs in one thread at a time. Tells
        meanwhile what the outcomes are if its thread is stopped; before it does, nothing has been put.
    patience_s
        Gives how long a leader waits for others at most: about as long as a request takes.

    Attributes
    ----------
    turn
        Held by a thread that prepares a small transaction while others do so too.
    key_turn
        Held by a thread that has compared new primary keys, until they have landed.
    """

    def __init__(self, commit_together: CommitTogether, patience_s: Callable[[], float]) -> None:
        self._commit_together = commit_together
        self._patience_s = patience_s
        self.restart()
        _all.add(self)

    def restart(self) -> None:
        """Nobody waits and nobody leads: a forked child has none of the threads that did."""
        self.turn = OneAtATime()
        self.key_turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._leader: _Ticket | None = None
        self._untold: deque[_Ticket] = deque()
        self._lately = 0
        self._enough = 0
        self._are_enough = threading.Event()

    @property
    def shared(self) -> bool:
        """Whether more than one transaction was here lately."""
        return self._lately > 1

    def commit(self, member: GroupMember) -> Outcome:
        """Commit one transaction, and return its outcome; never `Deferred`."""
        ticket = _Ticket(member)
        try:
            with self._lock:
                self._waiting.append(ticket)
                if self._leader is None:
                    self._choose_leader()
                if len(self._waiting) == self._enough:
                    self._are_enough.set()
            ticket.wake.get()
            if ticket.result is not None:
                with self._lock:
                    self._notify_next()
            while ticket.result is None:
                self._lead()
        except BaseException:
            self._withdraw(ticket)
            raise
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    def _wait_for_others(self) -> None:
        """Half of those that were here lately are here again, or there is no more patience."""
        patience_s = self._patience_s()
        with self._lock:
            self._enough = self._lately // 2
            if not patience_s or len(self._waiting) >= self._enough:
                return
            self._are_enough.clear()
        self._are_enough.wait(patience_s)

    def _lead(self) -> None:
        self._wait_for_others()
        with self._lock:
            tickets, self._waiting = self._waiting, []
        told: list[Sequence[Outcome]] = [[Deferred()] * len(tickets)]
        try:
            told.append(self._commit_together([ticket.member for ticket in tickets], told.append))
        except SparkPagesError as error:
            for ticket in tickets:
                ticket.result = error
        except BaseException as error:
            _assign_outcomes(tickets, told[-1])
            tickets[0].result = error
            raise
        else:
            _assign_outcomes(tickets, told[-1])
        finally:
            self._finish_round(tickets)

    def _finish_round(self, led: Sequence[_Ticket]) -> None:
        """Those that were put off are first in line, the next one leads, and the others are told."""
        with self._lock:
            self._lately = len(led) + len(self._waiting)
            self._waiting[:0] = [ticket for ticket in led if ticket.result is None and not ticket.gone]
            self._choose_leader()
            self._untold += [ticket for ticket in led[1:] if ticket.result is not None]
            self._notify_next()

    def _notify_next(self) -> None:
        """Wake the next thread with its outcome, which wakes the one after it; needs the lock."""
        while self._untold:
            ticket = self._untold.popleft()
            if not ticket.gone:
                ticket.wake.put(None)
                return

    def _withdraw(self, ticket: _Ticket) -> None:
        """Nobody waits for a thread that was stopped; if it was to lead, the next one does."""
        with self._lock:
            ticket.gone = True
            self._waiting = [other for other in self._waiting if other is not ticket]
            if self._leader is ticket:
                self._choose_leader()
            self._notify_next()

    def _choose_leader(self) -> None:
        """Let the first thread in line lead next; needs the lock."""
        self._leader = self._waiting[0] if self._waiting else None
        if self._leader is not None:
            self._leader.wake.put(None)


def _assign_outcomes(tickets: Sequence[_Ticket], outcomes: Sequence[Outcome]) -> None:
    for ticket, outcome in zip(tickets, outcomes, strict=True):
        ticket.result = None if isinstance(outcome, Deferred) else outcome


def _restart_all() -> None:
    for each in list(_all):
        each.restart()


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_restart_all)
