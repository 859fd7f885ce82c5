"""A conflict that was found in a state, rather than in a commit, told with the commit that brought it about.

The rule of conflicts knows whom it compares. Whoever looks at a newer state and finds that a tag has moved
does not: then the commits since are looked through, newest first, and both writers are named all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from spark_pages.errors import CommitConflictError, SparkPagesError
from spark_pages.log.commit.errors import counted_tries
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit, TransactionRecord
from spark_pages.runtime import writer_name

_MOST_COMMITS = 1024
"""So far back is looked; a conflict with something older names no writer."""

ConflictTest = Callable[[TransactionRecord], bool]


class CommitSource(Protocol):
    """What is asked of a log."""

    def refresh(self) -> LogSnapshot:
        """Return the newest version."""
        ...

    def commits_left(self, start: int, stop: int) -> Sequence[Commit]:
        """Return the commits of slots [start, stop) that vacuum has not removed."""
        ...


def is_vacuum(record: TransactionRecord) -> bool:
    """Whether retention has moved on with it."""
    return record.retention is not None


def attach_conflicting_commit(
    error: CommitConflictError, log: CommitSource, read_version: int, meets: ConflictTest
) -> CommitConflictError:
    """Add both versions, both writers, the overlapping chains and the number of tries to the error.

    Parameters
    ----------
    read_version
        What the transaction has read.
    meets
        Whether a transaction since then is one that it met.

    Notes
    -----
    Reads the commits since then, 1,024 at most. What nothing tells is None in ``context``.
    """
    if "conflicting_writer" in error.context:
        return error
    version, writer, operation = _newest(log, read_version, meets)
    who = f" This is {writer_name()}, which read version {read_version}"
    if version is not None:
        who += f"; version {version} was committed by {writer} ({operation}) in the meantime"
    told = {"chains": [], "tries": 1, **error.context}
    told |= {"read_version": read_version, "conflicting_version": version, "conflicting_writer": writer}
    return CommitConflictError(
        f"{error.message}{who}; {counted_tries(told['tries'])}.", hint=error.hint, **told
    )


def _newest(
    log: CommitSource, read_version: int, meets: ConflictTest
) -> tuple[int | None, str | None, str | None]:
    try:
        stop = log.refresh().state.version + 1
        commits = log.commits_left(max(read_version + 1, stop - _MOST_COMMITS), stop)
    except SparkPagesError:  # the conflict is what the caller has to know
        return None, None, None
    for commit in reversed(commits):
        for record in filter(meets, reversed(commit.records)):
            return commit.version, record.writer, record.operation
    return None, None, None
