"""How a commit ended, as the error that a caller gets. Pure."""

from __future__ import annotations

from typing import Any

from spark_pages.errors import CommitConflictError, CommitUnknownError
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import commit_key
from spark_pages.log.commit.conflict import shared_chains
from spark_pages.log.commit.protocol_types import Conflict, Refused, Slot, Unknown
from spark_pages.model.actions import Commit
from spark_pages.runtime import writer_name


def conflict_error(outcome: Conflict, read_version: int, tried: int = 0) -> CommitConflictError:
    """Create the error for a conflicting transaction; `tried` are earlier attempts.

    Without ``conflicting_writer`` where what it met has been cleaned away; `attach_conflicting_commit` tells
    whose.
    """
    overlap = outcome.overlap
    tries = tried + max(outcome.tries, 1)
    who = f"the transaction of {writer_name()} that read version {read_version}"
    if overlap is None:
        return CommitConflictError(
            f"Cannot commit {who}: it was overtaken {tries} times, last by version {outcome.head} of "
            f"{outcome.by}, until its time was up. Nothing was committed.",
            hint="Commit again with fewer writers at once, or write in fewer, larger transactions by one "
            "`store.transaction()`.",
            read_version=read_version,
            conflicting_version=outcome.head,
            conflicting_writer=outcome.by,
            chains=[],
            tries=tries,
        )
    other, end = f"version {overlap.version}", "."
    met: dict[str, Any] = {}
    if overlap.writer:
        other += f", committed by {overlap.writer} ({overlap.operation}) in the meantime"
        end = f", after {counted_tries(tries)}."
        met = {"conflicting_version": overlap.version, "conflicting_writer": overlap.writer}
    return CommitConflictError(
        f"Cannot commit {who}: it conflicts with {other}: {overlap.what}. Nothing was committed{end}",
        hint="Repeat it from the start: `store.transaction()` reads the newest version.",
        read_version=read_version,
        chains=[list(chain) for chain in overlap.chains],
        tries=tries,
        **met,
    )


def refused_error(outcome: Refused, tried: int = 0) -> Exception:
    """Create the error for a transaction that could not be built; a conflict counts the slots tried."""
    if isinstance(outcome.error, CommitConflictError):
        outcome.error.context.setdefault("tries", tried + max(outcome.tries, 1))
    return outcome.error


def counted_tries(tries: int) -> str:
    """``1 try``, ``3 tries``."""
    return "1 try" if tries == 1 else f"{tries} tries"


def unknown_error(outcome: Unknown) -> CommitUnknownError:
    """Create the error for an unknown outcome, with the value that `Log.resume` takes."""
    return CommitUnknownError(
        f"Cannot find out whether commit {outcome.version} (token {outcome.token}) is in the log: "
        f"{outcome.reason}. Nothing was deleted.",
        hint="Once storage answers again, `store.resume(error)` finds out, or commits it.",
        version=outcome.version,
        token=outcome.token,
        data=outcome.data,
        tries=outcome.tries,
    )


def slot_taken_error(mine: Unknown, theirs: Slot) -> CommitConflictError:
    """Create the error for a slot in doubt that holds another commit.

    Parameters
    ----------
    mine
        The commit, as it was told when it was in doubt.
    theirs
        What is in its slot; a tombstone does not tell who wrote that and what.

    Notes
    -----
    The chains are those that transactions of both change, perhaps none: a commit in doubt cannot go on to the
    next slot, whoever takes its own.
    """
    own = decode_slot(mine.data, commit_key(mine.version))
    records = own.records if isinstance(own, Commit) else ()
    others = theirs.records if isinstance(theirs, Commit) else ()
    read_version = min((record.read_version for record in records), default=None)
    writer, operation = (others[0].writer, others[0].operation) if others else ("somebody", "cleaned since")
    chains = {chain for one in records for other in others for chain in shared_chains(one, other)}
    tries = mine.tries + 1
    who = records[0].writer if records else "somebody"
    return CommitConflictError(
        f"Cannot find the commit of {who} with token {mine.token} that read version {read_version}: "
        f"slot {mine.version} holds another commit, of {writer} ({operation}). Nothing was committed, "
        f"after {counted_tries(tries)}.",
        hint="Repeat it from the start: `store.transaction()` reads the newest version.",
        read_version=read_version,
        conflicting_version=mine.version,
        conflicting_writer=writer,
        chains=[list(chain) for chain in sorted(chains)],
        tries=tries,
    )
