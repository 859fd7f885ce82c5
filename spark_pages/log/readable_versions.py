"""Which versions can be read: those from the oldest that retention keeps up to the head. Pure."""

from __future__ import annotations

from spark_pages.errors import SnapshotExpiredError, VersionNotFoundError
from spark_pages.log.state import LogState


def oldest_readable(state: LogState) -> int:
    """The oldest version that can be opened."""
    return state.retention.min_readable if state.retention else 0


def check_version(state: LogState, version: int, asked: str = "") -> None:
    """The version can be read, as far as the log says.

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
    named = f"Version {version} ({asked})" if asked else f"Version {version}"
    if 0 <= version < oldest:
        raise SnapshotExpiredError(
            f"{named} cannot be read any more: retention keeps versions {oldest} to {newest}.",
            hint="Choose one of these; a tag keeps a version readable from the time it is set.",
            version=version,
            oldest=oldest,
            newest=newest,
        )
    raise VersionNotFoundError(
        f"{named} cannot be read: the store has versions {oldest} to {newest}.",
        version=version,
        oldest=oldest,
        newest=newest,
    )
