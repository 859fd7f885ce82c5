"""What retention keeps: which version is the oldest, and which checkpoints may still be used. Pure.

Vacuum may delete what no version from the oldest on needs. Three rules make that safe without any clock.
They are told in full, with the proof, in `docs/retention.md`:

1. Transactions that read before `min_epoch` conflict once a `Retention` is in the log.
2. A checkpoint is built on the newest one that the log names.
3. A checkpoint older than `min_epoch` that no commit named before the `Retention` is never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from spark_pages.arguments import MOST_NUMBER, as_duration, as_int
from spark_pages.errors import DamageError, InvalidInputError, SnapshotExpiredError, VersionNotFoundError
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef, Commit, Lease, Retention
from spark_pages.model.ids import Version

DEFAULT_RETENTION = timedelta(days=7)
"""How long a version stays readable after it was replaced by the next, where nobody says otherwise."""

VERSIONS_PROPERTY = "retention_versions"
SECONDS_PROPERTY = "retention_seconds"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much is to be kept; of two bounds the one that keeps more holds.

    Attributes
    ----------
    versions
        So many of the newest versions, at least 1; None where their number does not matter.
    age_us
        Every version that was the newest at some time in so many microseconds; None likewise.
    """

    versions: int | None = None
    age_us: int | None = None


_RETENTION = "a timedelta, text such as '7d', or a whole number of versions"


def retention_policy(
    retention: timedelta | int | str | None, properties: Mapping[str, str]
) -> RetentionPolicy:
    """Return the requested retention, or that of the store's properties, or seven days.

    Raises
    ------
    InvalidInputError
        If it is negative, or neither a time nor a whole number, or a property is not a number.
    """
    if isinstance(retention, str):
        retention = parse_retention(retention)
    if isinstance(retention, timedelta | np.timedelta64):
        age = as_duration(retention, "retention")
        return _checked(RetentionPolicy(age_us=age // timedelta(microseconds=1)))
    if retention is not None:
        return _checked(
            RetentionPolicy(versions=as_int(retention, "retention", _RETENTION, most=MOST_NUMBER))
        )
    versions = _number(properties, VERSIONS_PROPERTY)
    seconds = _number(properties, SECONDS_PROPERTY)
    if versions is None and seconds is None:
        return RetentionPolicy(age_us=DEFAULT_RETENTION // timedelta(microseconds=1))
    return _checked(RetentionPolicy(versions, None if seconds is None else seconds * 1_000_000))


def _number(properties: Mapping[str, str], name: str) -> int | None:
    if name not in properties:
        return None
    try:
        return int(properties[name])
    except ValueError:
        raise InvalidInputError(
            f"Cannot use property {name} of the store with value {properties[name]!r}: expected a "
            "whole number.",
            hint=f"Set it to a whole number: `transaction.set_properties({{{name!r}: '30'}})`.",
        ) from None


def _checked(keep: RetentionPolicy) -> RetentionPolicy:
    if min(keep.versions or 0, keep.age_us or 0) < 0:
        raise InvalidInputError(
            "Cannot retain versions for a negative time or number: expected 0 at least.",
            hint="Pass `retention` as a timedelta, such as `timedelta(days=7)`, or as a number of versions.",
        )
    return keep


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_retention(text: str) -> timedelta | int:
    """Read a retention from text: a number of versions, or a number with a unit.

    Raises
    ------
    InvalidInputError
        If it is neither.
    """
    match = re.fullmatch(r"(\d{1,9})([smhdw]?)", text.strip())
    if match is None:
        raise InvalidInputError(
            f"Cannot use {text!r} as a retention: it is neither a number of versions nor a time.",
            hint="Give a number of versions, such as 30, or a time, such as 7d, 12h, 30m or 2w.",
        )
    count, unit = int(match[1]), match[2]
    return timedelta(**{_UNITS[unit]: count}) if unit else count


def pinned(tags: Mapping[str, int], leases: Iterable[Lease], now_us: int) -> list[int]:
    """Return the versions that tags and unexpired leases hold."""
    return [*tags.values(), *(lease.version for lease in leases if lease.expires_at_us > now_us)]


def oldest_to_keep(state: LogState, wanted: int, now_us: int) -> int:
    """Return the oldest version to retain: never past a tag or unexpired lease, and never backwards.

    Parameters
    ----------
    wanted
        The oldest version that is to be kept for its age or number.
    """
    now = state.retention.min_readable if state.retention else 0
    held = pinned(state.tags, state.leases.values(), now_us)
    return max(now, min([wanted, state.version, *held]))


def further(one: Retention | None, two: Retention | None) -> Retention | None:
    """Combine two records: no bound and no checkpoint ever moves back.

    The newer checkpoint is never newer than the larger `min_readable`, because no record's checkpoint is
    newer than its own. Slots before it may be tombstones, so the older one is of no use any more.
    """
    if one is None or two is None:
        return one or two
    leading, other = (two, one) if two.min_readable >= one.min_readable else (one, two)
    return replace(
        leading,
        min_epoch=Version(max(one.min_epoch, two.min_epoch)),
        checkpoint=newer(leading.checkpoint, other.checkpoint),
    )


def covers(recorded: Retention | None, planned: Retention) -> bool:
    """Check whether a vacuum may carry out its plan under a record that another vacuum has committed.

    It may where the record gives up the same versions and reads `min_readable` from a checkpoint that is
    not older: every slot that the plan overwrites is then before the recorded checkpoint.
    """
    if recorded is None:
        return False
    return (
        recorded.min_readable >= planned.min_readable
        and recorded.min_epoch >= planned.min_epoch
        and _version_of(recorded.checkpoint) >= _version_of(planned.checkpoint)
    )


def _version_of(checkpoint: CheckpointRef | None) -> int:
    return -1 if checkpoint is None else checkpoint.version


def check_kept(
    retention: Retention, commit: Commit, tags: Mapping[str, int], leases: Mapping[str, Lease]
) -> None:
    """Refuse to move retention past a tag, or past a lease that is unexpired at the commit's time.

    Raises
    ------
    DamageError
        If it does: a faulty writer made it.
    """
    oldest = max(retention.min_epoch, retention.min_readable)
    for name, version in tags.items():
        if version < oldest:
            raise DamageError(
                f"Cannot apply commit {commit.version}: it ends versions before {oldest}, but the tag "
                f"{name!r} holds version {version}: the log contradicts itself."
            )
    for lease in leases.values():
        if lease.version < oldest and lease.expires_at_us > commit.timestamp_us:
            raise DamageError(
                f"Cannot apply commit {commit.version}: it ends versions before {oldest}, but lease "
                f"{lease.lease_id} holds version {lease.version} for a while longer: the log "
                "contradicts itself."
            )


def newer(one: CheckpointRef | None, two: CheckpointRef | None) -> CheckpointRef | None:
    """Return the checkpoint of the newer version, or the first of equal ones."""
    if one is None or two is None:
        return one or two
    return two if two.version > one.version else one


def usable(
    checkpoint: CheckpointRef | None, named: CheckpointRef | None, retention: Retention | None
) -> bool:
    """Whether vacuum cannot have deleted any object of the checkpoint.

    Parameters
    ----------
    checkpoint
        A checkpoint, or None for a state that was replayed from the first commit.
    named
        The newest one that the log names.
    retention
        As of the newest version.
    """
    if retention is None or checkpoint == named:
        return True
    return checkpoint is not None and checkpoint.version >= retention.min_epoch


def is_reachable(state: LogState) -> bool:
    """Whether all that a state of the newest version stands on is surely there."""
    return state.named_checkpoint is None or usable(state.base, state.named_checkpoint, state.retention)


def oldest_readable(state: LogState) -> int:
    """Return the oldest version that can be opened."""
    return state.retention.min_readable if state.retention else 0


def check_version(state: LogState, version: int, asked: str = "") -> None:
    """Raise if the log says that the version cannot be read.

    Parameters
    ----------
    state
        The newest one known.
    asked
        What the caller named instead of a number, such as ``tag 'x'``.

    Raises
    ------
    SnapshotExpiredError
        If it was readable once.
    VersionNotFoundError
        If there never was such a version.
    """
    oldest, newest = oldest_readable(state), state.version
    if oldest <= version <= newest:
        return
    named = f"version {version} ({asked})" if asked else f"version {version}"
    if 0 <= version < oldest:
        raise SnapshotExpiredError(
            f"Cannot read {named}: it was cleaned away, and retention keeps versions {oldest} to {newest}.",
            hint=f"Choose a version from {oldest} to {newest}; `store.tag` keeps one readable from the "
            "time it is set.",
            version=version,
            oldest=oldest,
            newest=newest,
        )
    raise VersionNotFoundError(
        f"Cannot read {named}: the store has versions {oldest} to {newest}.",
        hint=f"Choose a version from {oldest} to {newest}; `store.history()` lists them.",
        version=version,
        oldest=oldest,
        newest=newest,
    )
