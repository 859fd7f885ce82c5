"""Where the commit of an application landed, told by its number: so that a repetition does nothing.

The log keeps the newest number of each application, and the version that brought it. An earlier one is looked
for in the commits before that, newest first: numbers grow with versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_pages.errors import InvalidInputError
from spark_pages.log.log import Log
from spark_pages.log.state import LogState

_COMMITS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class AppliedVersion:
    """Where the pair of an application and a number is.

    Attributes
    ----------
    version
        The version that brought it, or, where `exact` is false, the oldest one known to be later than that.
    exact
        Whether the log still holds the commit that brought it, or says where that was.
    """

    version: int
    exact: bool = True


def latest_applied(state: LogState, app_id: str | None, app_version: int | None) -> int | None:
    """Where the newest number of the application landed, if it is not smaller than this one: asks nobody."""
    if app_id is None or app_version is None or app_id not in state.apps:
        return None
    newest, version = state.apps[app_id]
    return version if newest >= app_version else None


def find_applied(
    log: Log, state: LogState, app_id: str | None, app_version: int | None
) -> AppliedVersion | None:
    """Where this pair landed; None where it may be committed.

    Raises
    ------
    InvalidInputError
        If it has been passed over: a newer number of the application is there, and this one never landed.

    Notes
    -----
    Reads nothing for a number that is not older than the newest; else the commits in between, up to 1,024 at
    a time, out of compacted ranges where there are any. Where only commits that have been cleaned away could
    tell, the number is taken for one that landed: numbers grow, so what comes again is a repetition.
    """
    if app_id is None or app_version is None or app_id not in state.apps:
        return None
    newest, version = state.apps[app_id]
    if newest <= app_version:
        return AppliedVersion(version) if newest == app_version else None
    stop, count, passed, after = version, 1, False, version
    while stop > 0 and not passed:
        start = max(0, stop - count)
        commits = log.commits_left(start, stop)
        for commit in reversed(commits):
            numbers = {each.app_version for each in commit.records if each.app_id == app_id} - {None}
            if app_version in numbers:
                return AppliedVersion(commit.version)
            passed |= any(number < app_version for number in numbers if number is not None)
            if passed:
                break
            after = commit.version if numbers else after
        if len(commits) < stop - start and not passed:
            return AppliedVersion(after, exact=False)
        stop, count = start, min(2 * count, _COMMITS_AT_ONCE)
    raise InvalidInputError(
        f"Cannot commit number {app_version} of application {app_id!r}: number {newest} is committed, "
        f"in version {version}, and numbers grow. Nothing was committed.",
        hint=f"Use an `app_version` above {newest}, or another `app_id`.",
        app_id=app_id,
        newest=newest,
        version=version,
    )
