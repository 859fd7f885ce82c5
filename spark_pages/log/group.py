"""Group commit: transactions of one process that want to commit at once share one log object.

Whoever comes first leads: it takes all that wait, commits them together, and hands the lead to the
first one that came meanwhile. So the number of commits follows the latency of storage, and the number
of transactions in each follows the load.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from spark_pages.errors import CommitUnknownError, SparkPagesError
from spark_pages.log.commit_messages import Member, Outcome, PutOff

CommitTogether = Callable[[Sequence[Member]], Sequence[Outcome]]


class _Ticket:
    """One waiting transaction."""

    __slots__ = ("member", "result", "wake")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.result: Outcome | BaseException | None = None
        self.wake = threading.Event()


class CommitGroup:
    """Brings concurrent callers of `commit` together.

    Parameters
    ----------
    commit_together
        Commits several members and gives an outcome for each; runs in one thread at a time.
    """

    def __init__(self, commit_together: CommitTogether) -> None:
        self._commit_together = commit_together
        self._lock = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._led = False

    def commit(self, member: Member) -> Outcome:
        """The outcome of one transaction; never `PutOff`."""
        ticket = _Ticket(member)
        with self._lock:
            self._waiting.append(ticket)
            leads = not self._led
            self._led = True
        if not leads:
            ticket.wake.wait()
        while ticket.result is None:
            self._lead()
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    def _lead(self) -> None:
        with self._lock:
            tickets, self._waiting = self._waiting, []
        try:
            outcomes = self._commit_together([ticket.member for ticket in tickets])
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                ticket.result = None if isinstance(outcome, PutOff) else outcome
        except SparkPagesError as error:
            for ticket in tickets:
                ticket.result = error
        except BaseException as error:
            for ticket in tickets[1:]:
                ticket.result = CommitUnknownError(
                    f"The thread that committed this transaction together with its own was stopped by "
                    f"{type(error).__name__}: it is not known whether they are in the log.",
                    hint="Look for the transaction in the history before you repeat it.",
                )
            tickets[0].result = error
            raise
        finally:
            self._hand_over([ticket for ticket in tickets if ticket.result is None])
            for ticket in tickets:
                if ticket.result is not None:
                    ticket.wake.set()

    def _hand_over(self, put_off: list[_Ticket]) -> None:
        """Those that were put off are first in line; the first in line leads next."""
        with self._lock:
            self._waiting[:0] = put_off
            self._led = bool(self._waiting)
            if self._led:
                self._waiting[0].wake.set()
