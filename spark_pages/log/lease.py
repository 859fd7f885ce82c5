"""A lease that a reader holds on one version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from spark_pages.arguments import as_duration
from spark_pages.boundary import guarded
from spark_pages.errors import CommitConflictError, CommitUnknownError, InvalidInputError, StorageError
from spark_pages.model.actions import Lease
from spark_pages.model.ids import Version


class Versioned(Protocol):
    """Anything that shows one version of a store."""

    @property
    def version(self) -> int:
        """Version number."""
        ...


LeasedT = TypeVar("LeasedT", bound=Versioned)


@guarded()
class ReaderLease(Generic[LeasedT]):
    """Keeps the version of a snapshot readable; a context manager that ends the lease with its block.

    Attributes
    ----------
    snapshot
        What is leased.
    lease_id
        Its id in the log.
    expires_at
        Until when, UTC; None where there is no lease, or it has ended.
    """

    def __init__(
        self,
        snapshot: LeasedT,
        lease_id: str,
        write: Callable[[Lease], None],
        now_us: Callable[[], int],
    ) -> None:
        self.snapshot = snapshot
        self.lease_id = lease_id
        self.expires_at: datetime | None = None
        self._write = write
        self._now_us = now_us

    def __repr__(self) -> str:
        until = f"until {self.expires_at:%Y-%m-%d %H:%M:%S}" if self.expires_at else "not held"
        return f"ReaderLease(version {self.snapshot.version}, {until})"

    def renew(self, duration: timedelta) -> None:
        """Extend the lease to this duration from now on.

        Raises
        ------
        SnapshotExpiredError
            If it was over, and retention has passed the version since.
        """
        duration = as_duration(duration, "duration")
        if duration <= timedelta(0):
            raise InvalidInputError(
                f"Cannot lease a version for {duration}: the lease would be over at once.",
                hint="Pass a positive `duration`, such as `timedelta(hours=1)`.",
            )
        expires_at_us = self._now_us() + duration // timedelta(microseconds=1)
        try:
            expires_at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=expires_at_us)
        except OverflowError as error:
            raise InvalidInputError(
                f"Cannot lease a version for {duration}: the lease would end after the year 9999.",
                hint="Pass a shorter `duration`; `store.tag` keeps a version for as long as the tag is "
                "there.",
            ) from error
        self._write(Lease(self.lease_id, Version(self.snapshot.version), expires_at_us))
        self.expires_at = expires_at

    def release(self) -> None:
        """Release the lease. Releasing it again has no effect."""
        if self.expires_at is not None:
            self._write(Lease(self.lease_id, Version(self.snapshot.version), 0))
            self.expires_at = None

    def __enter__(self) -> Self:
        """Return the lease."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the lease; a failure to do so never hides an error of the block."""
        try:
            self.release()
        except (CommitConflictError, CommitUnknownError, StorageError):
            if error is None:
                raise
