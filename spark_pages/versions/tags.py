"""Tags: names of versions, set and taken away by commits of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_pages.arguments import as_int, as_str
from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    DamageError,
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    VersionNotFoundError,
)
from spark_pages.log.conflict_error import attach_conflicting_commit
from spark_pages.log.log import Log
from spark_pages.log.retention import check_version
from spark_pages.log.state import LogState
from spark_pages.model.actions import Tag, TransactionRecord
from spark_pages.model.ids import Version
from spark_pages.runtime import Runtime, writer_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")


def set_tag(log: Log, runtime: Runtime, name: str, version: int | None, replace: bool) -> int:
    """Set a tag on a version, by default the newest, and return the version.

    Raises
    ------
    AlreadyExistsError
        If it names another version and `replace` is false.
    VersionNotFoundError, SnapshotExpiredError
        If there is no such version, or it cannot be read any more; also where a commit that came in
        between made it so.
    DamageError
        If retention keeps the version, but storage has lost something that it is read from.

    Notes
    -----
    One commit, or none where the tag names this version already. An earlier version is opened first, which
    costs what `Log.snapshot` of it costs.
    """
    _check_name(name)
    head = log.refresh()
    tagged = head.state.version if version is None else as_int(version, "version")

    def check(state: LogState) -> None:
        check_version(state, tagged, f"to be tagged {name!r}")
        held = state.tags.get(name)
        if held is not None and held != tagged and not replace:
            raise AlreadyExistsError(
                f"Cannot tag version {tagged} as {name!r}: the tag names version {held}.",
                hint="Choose another name, or move the tag by replace=True, --replace on the command line.",
                tag=name,
                version=held,
            )

    check(head.state)
    if head.state.tags.get(name) == tagged:
        return tagged
    if tagged != head.state.version:
        _check_opens(log, name, tagged)
    token = runtime.token()

    def build(state: LogState) -> TransactionRecord:
        check(state)
        tag = Tag(name, Version(tagged))
        parameters = {"tag": name, "version": str(tagged)}
        return _record(token, "tag", parameters, tag, head.state.version)

    try:
        log.commit(head, build)
    except CommitConflictError:
        check(log.refresh().state)
        raise
    return tagged


def _check_opens(log: Log, name: str, version: int) -> None:
    """Raise DamageError if the version that a tag would keep cannot be read, though retention keeps it."""
    try:
        log.snapshot(version, asked=f"to be tagged {name!r}").tables()
    except (DamageError, ObjectNotFoundError, SnapshotExpiredError) as error:
        check_version(log.refresh().state, version, f"to be tagged {name!r}")
        raise DamageError(
            f"Cannot tag version {version} as {name!r}: the version cannot be read. {error.message}",
            hint="Run `spark-pages verify URL`, and tag a version that can be read.",
            version=version,
        ) from error


def delete_tag(log: Log, runtime: Runtime, name: str) -> int:
    """There is no such tag any more; gives the version that it named.

    Raises
    ------
    VersionNotFoundError
        If there is no such tag.
    """
    head = log.refresh()
    named = tagged_version(head.state, name)
    token = runtime.token()

    def build(state: LogState) -> TransactionRecord:
        version = tagged_version(state, name)
        if version != named:
            raise CommitConflictError(
                f"Cannot delete tag {name!r}: it was moved from version {named} to version {version} "
                "meanwhile. Nothing was committed.",
                hint="Call `delete_tag` again if you still want to.",
                tag=name,
            )
        parameters = {"tag": name, "version": str(version)}
        return _record(token, "delete tag", parameters, Tag(name, None), head.state.version)

    try:
        log.commit(head, build)
    except CommitConflictError as error:
        raise attach_conflicting_commit(
            error, log, head.state.version, lambda record: name in [tag.name for tag in record.tags]
        ) from error
    return named


def tagged_version(state: LogState, name: str) -> int:
    """Return the version that a tag names.

    Raises
    ------
    VersionNotFoundError
        If there is no such tag; names those that are there.
    """
    if as_str(name, "the name of a tag") not in state.tags:
        raise VersionNotFoundError(
            f"Cannot find tag {name!r}: there is none of that name.",
            hint="There are "
            f"{', '.join(map(repr, sorted(state.tags))) or 'no tags: `store.tag(name)` makes one'}.",
            tag=name,
        )
    return state.tags[name]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(as_str(name, "the name of a tag")):
        raise InvalidInputError(
            f"Cannot name a tag {name!r}: expected 1 to 200 characters of letters, digits, '.', '_', "
            "'/' and '-', the first of them a letter or digit.",
            hint="Choose a name such as 'release-2026-11' or 'v1.2'.",
        )


def _record(
    token: str, operation: str, parameters: Mapping[str, str], tag: Tag, read_version: int
) -> TransactionRecord:
    return TransactionRecord(
        token=token,
        operation=operation,
        parameters=parameters,
        read_version=read_version,
        writer=writer_name(),
        tags=(tag,),
    )
