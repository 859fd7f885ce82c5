"""What a reader does that finds an object gone: look again, from what is kept now, or say why it cannot.

Vacuum deletes what no kept version needs. A reader that opened a version before may still stand on an old
checkpoint; the same version is then read from a newer one, and has the same rows. If retention has passed
the version itself, the reader is told so. Else something is missing that must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from spark_pages.errors import CommitConflictError, DamageError, ObjectNotFoundError, SnapshotExpiredError


class Moving(Protocol):
    """A transaction that is open."""

    def move_on(self) -> int:
        """It stands on what is kept now; gives the version, and raises where there is no way to."""
        ...


class Reopenable(Protocol):
    """Something that reads one version."""

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """It reads the same version from what is kept now; raises where there is no way to."""
        ...


Reader = TypeVar("Reader", bound=Reopenable)
Writer = TypeVar("Writer", bound=Moving)
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def looking_again(work: Callable[[], Answer]) -> Answer:
    """What the work gives; once more from the start where an object has gone while it ran.

    For work that opens the versions it reads by itself: the second time from what is kept now, or it is
    refused because retention has passed them.
    """
    try:
        return work()
    except ObjectNotFoundError:
        return work()


@contextmanager
def overtaking(read_version: int) -> Iterator[None]:
    """Inside a transaction, that retention has passed what it read is a conflict with a vacuum."""
    try:
        yield
    except ObjectNotFoundError as missing:
        raise _is_needed(missing) from missing
    except SnapshotExpiredError as expired:
        raise CommitConflictError(
            f"The transaction that read version {read_version} was overtaken by a vacuum, and what it must "
            f"read to commit is gone: {expired.message} Nothing was committed.",
            hint="Read again and repeat the transaction; a lease on `txn.snapshot` holds its version while "
            "it runs.",
            read_version=read_version,
        ) from expired


def reopening(
    read: Callable[Concatenate[Reader, Given], Answer],
) -> Callable[Concatenate[Reader, Given], Answer]:
    """The method, tried again on the same version where an object has gone.

    Raises
    ------
    SnapshotExpiredError
        If retention has passed the version.
    DamageError
        If it has not, and an object is missing all the same.
    """

    @wraps(read)
    def again(reader: Reader, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return read(reader, *args, **kwargs)
        except ObjectNotFoundError as missing:
            reader.reopen(missing)
        try:
            return read(reader, *args, **kwargs)
        except ObjectNotFoundError as missing:
            reader.reopen(missing)
            raise _is_needed(missing) from missing

    return again


def moving_on(
    stage: Callable[Concatenate[Writer, Given], Answer],
) -> Callable[Concatenate[Writer, Given], Answer]:
    """The method of a transaction, tried again where a vacuum has taken away what it reads.

    Raises
    ------
    CommitConflictError
        If the transaction rests on a version that retention has passed.
    DamageError
        If an object is missing all the same.
    """

    @wraps(stage)
    def again(writer: Writer, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return stage(writer, *args, **kwargs)
        except (ObjectNotFoundError, SnapshotExpiredError):
            stands_on = writer.move_on()
        with overtaking(stands_on):
            return stage(writer, *args, **kwargs)

    return again


def _is_needed(missing: ObjectNotFoundError) -> DamageError:
    return DamageError(
        f"An object is missing that a version which can still be read needs: {missing.message}",
        hint="Run `spark-pages verify`.",
        **missing.context,
    )
