"""What a reader does that finds an object gone: look again, from what is kept now, or say why it cannot.

Vacuum deletes what no kept version needs. A reader that opened a version before may still stand on an old
checkpoint; the same version is then read from a newer one, and has the same rows. If retention has passed
the version itself, the reader is told so. What is missing a second time, after another look, must be there;
what is missing then for the first time may have gone with another vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from spark_pages.errors import (
    CommitConflictError,
    DamageError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    SparkPagesError,
)

_LOOKS = 8
"""So many objects may go, one after another, under a reader: each takes a vacuum."""


class Refreshable(Protocol):
    """An open transaction."""

    def refresh(self) -> int:
        """Move to what is retained now; return the version, or raise where there is no way to."""
        ...


class Reopenable(Protocol):
    """Something that reads one version."""

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reopen the same version on the retained objects, or raise if that is impossible."""
        ...


Reader = TypeVar("Reader", bound=Reopenable)
Writer = TypeVar("Writer", bound=Refreshable)
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Misses:
    """What was missing since somebody began to look."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def is_new(self, missing: SparkPagesError) -> bool:
        """Whether a vacuum may have taken it since the last look: so it is worth another one."""
        what = str(missing.context.get("key", missing.message))
        fresh = what not in self._known and len(self._known) < _LOOKS
        self._known.add(what)
        return fresh


def retry_after_vacuum(work: Callable[[], Answer]) -> Answer:
    """Run the work, and start again if a vacuum removed an object that it reads.

    For work that opens the versions it reads by itself: the next time from what is kept then, or it is
    refused because retention has passed them.
    """
    misses = Misses()
    while True:
        try:
            return work()
        except ObjectNotFoundError as missing:
            if not misses.is_new(missing):
                raise


@contextmanager
def conflict_if_vacuumed(read_version: int) -> Iterator[None]:
    """Inside a transaction, that retention has passed what it read is a conflict with a vacuum."""
    try:
        yield
    except ObjectNotFoundError as missing:
        raise _is_needed(missing) from missing
    except SnapshotExpiredError as expired:
        raise CommitConflictError(
            f"Cannot commit the transaction that read version {read_version}: it was overtaken by a "
            f"vacuum, and what it must read to commit is gone. {expired.message} Nothing was "
            "committed.",
            hint="Repeat it from the start; `txn.snapshot.lease(duration)` holds its version while it runs.",
            read_version=read_version,
        ) from expired


def reopening(
    read: Callable[Concatenate[Reader, Given], Answer],
) -> Callable[Concatenate[Reader, Given], Answer]:
    """Retry the method on the same version while it finds further objects removed.

    Raises
    ------
    SnapshotExpiredError
        If retention has passed the version.
    DamageError
        If it has not, and an object is missing all the same.
    """

    @wraps(read)
    def again(reader: Reader, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        misses = Misses()
        while True:
            try:
                return read(reader, *args, **kwargs)
            except ObjectNotFoundError as missing:
                retry_after_vacuum(partial(reader.reopen, missing))
                if not misses.is_new(missing):
                    raise _is_needed(missing) from missing

    return again


def retrying(
    stage: Callable[Concatenate[Writer, Given], Answer],
) -> Callable[Concatenate[Writer, Given], Answer]:
    """Retry the method of a transaction while a vacuum removes what it reads.

    Raises
    ------
    CommitConflictError
        If the transaction rests on a version that retention has passed.
    DamageError
        If an object is missing all the same.
    """

    @wraps(stage)
    def again(writer: Writer, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        misses, stands_on = Misses(), -1
        while True:
            try:
                return stage(writer, *args, **kwargs)
            except (ObjectNotFoundError, SnapshotExpiredError) as lost:
                if not misses.is_new(lost):
                    with conflict_if_vacuumed(stands_on):
                        raise
                stands_on = retry_after_vacuum(writer.refresh)

    return again


def _is_needed(missing: ObjectNotFoundError) -> DamageError:
    return DamageError(
        "Cannot read a version that is still readable: an object that it needs is missing. "
        f"{missing.message}",
        hint="Run `spark-pages verify`.",
        **missing.context,
    )
