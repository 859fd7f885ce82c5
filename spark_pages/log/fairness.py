"""Whose turn it is to commit, as the newest commits tell. Pure; advice only.

Whoever has just committed knows the head and would win the next slot too, and every one after it: the
others are always one request late. So writers that meet take turns. A turn is a few commits of one writer
in a row. Who has had none for the longest time is next. All of this is read off the log, so nobody has to
talk to anybody. A writer that does not come is waited for a little, and then passed over. Now and then a slot
is free for writers that are new, and so is the slot behind a new one that has met others. More rarely one is
free for longer, for writers whose requests take longer than those of others: all that they put comes too late
otherwise. Nothing goes wrong where two think that it is their turn: one of them loses a slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COMMIT_TURNS = "commit_turns"
"""Property of a store: `fair` for turns of one commit each."""

_TURN_COMMITS = 9
_ROUND_COMMITS = 72
_FREE_EVERY = 64
_SLOW_EVERY = 512
_KEPT = 64
_LATE_TRIES = 4
_AS_QUICK = 2
_LATE_LOOKS = 32


@dataclass(frozen=True, slots=True)
class CommitTurn:
    """Commits of one writer in a row.

    Attributes
    ----------
    writer
        Who.
    first_version, last_version
        The commits, both included.
    met_others
        Whether others had committed between what it read and the first of these.
    """

    writer: str
    first_version: int
    last_version: int
    met_others: bool


@dataclass(frozen=True, slots=True)
class CommitSchedule:
    """Who is to commit before a writer.

    Attributes
    ----------
    writers
        How many are.
    commits
        How many commits are left of the turn that has begun.
    unknown
        Whether these could only be writers that have not committed lately.
    slow
        Whether these could only be writers that have been late again and again.
    """

    writers: int
    commits: int
    unknown: bool = False
    slow: bool = False


NOBODY = CommitSchedule(0, 0)

SLOW = CommitSchedule(1, 0, unknown=True, slow=True)


def with_commit(
    turns: tuple[CommitTurn, ...], version: int, writer: str, read_version: int
) -> tuple[CommitTurn, ...]:
    """Return the turns after one more commit, without old ones."""
    if turns and turns[-1].writer == writer:
        return (*turns[:-1], CommitTurn(writer, turns[-1].first_version, version, turns[-1].met_others))
    return (*turns[-_KEPT + 1 :], CommitTurn(writer, version, version, read_version < version - 1))


def schedule(
    turns: tuple[CommitTurn, ...], properties: Mapping[str, str], writer: str, arrived: int
) -> CommitSchedule:
    """Who is to commit before a writer that wants to.

    Parameters
    ----------
    turns
        The newest ones, oldest first.
    properties
        Of the store.
    writer
        As its commits name it.
    arrived
        The newest version when it began to wait: who has committed since is behind it.
    """
    ring = _ring(turns)
    if not ring:
        return NOBODY
    newest = ring[0]
    made = newest.last_version - newest.first_version + 1
    fair = properties.get(COMMIT_TURNS) == "fair"
    length = 1 if fair else max(1, min(_TURN_COMMITS, _ROUND_COMMITS // len(ring)))
    others_are_new = newest.met_others and all(turn.writer != newest.writer for turn in turns[:-1])
    is_free = made == 1 and others_are_new
    left = length - made
    if left < 0:  # nobody else comes, as far as one can see
        ring, left = [newest], -(newest.last_version + 1) % _FREE_EVERY
        is_free = not left
    own = next((place for place, turn in enumerate(ring) if turn.writer == writer), None)
    if own is None:
        waiting = sum(turn.last_version <= arrived for turn in ring[1:])
        return NOBODY if is_free else CommitSchedule(waiting + bool(left), left)
    if own == 0:
        first = is_free if left else max(1, is_free + len(ring) - 1)
        return CommitSchedule(first, 0, unknown=len(ring) == 1) if first else NOBODY
    return CommitSchedule(is_free + len(ring) - own - 1 + bool(left), left)


def is_for_slow(turns: tuple[CommitTurn, ...], properties: Mapping[str, str]) -> bool:
    """Whether the next slot is one of those that are left to writers that have been late again and again."""
    if not turns:
        return False
    turn = turns[-1]
    often = properties.get(COMMIT_TURNS) == "fair" or turn.last_version - turn.first_version >= _TURN_COMMITS
    return (turn.last_version + 1) % (_SLOW_EVERY if often else 2 * _SLOW_EVERY) == 0


def is_lagging(tries: int) -> bool:
    """Whether a writer has lost so many slots that its requests must take longer than those of others."""
    return tries >= _LATE_TRIES


def should_recheck(came: int, looks: int) -> bool:
    """Whether a late writer looks once more before it tries a slot: what it puts now would be too late again.

    Parameters
    ----------
    came
        Commits of others that its last look has found.
    looks
        Looks since it tried a slot.
    """
    return came > _AS_QUICK and looks < _LATE_LOOKS


def _ring(turns: tuple[CommitTurn, ...]) -> list[CommitTurn]:
    """Return the last turn of each writer, newest first, up to the first writer that repeats.

    A writer that was passed over is not among them: whoever stood behind it has had two turns since.
    """
    ring: dict[str, CommitTurn] = {}
    for turn in reversed(turns):
        if turn.writer in ring:
            break
        ring[turn.writer] = turn
    return list(ring.values())
