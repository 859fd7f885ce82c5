"""Leases: a reader or long writer says in the log which version it needs, and until when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

import pyarrow as pa

from spark_pages.errors import CommitConflictError, CommitUnknownError, InvalidInputError, StorageError
from spark_pages.given import check_kind
from spark_pages.log.log import Log
from spark_pages.log.readable import check_version
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import Lease, TransactionRecord
from spark_pages.model.ids import Version
from spark_pages.runtime import Runtime, writer_name
from spark_pages.tables.snapshot import Snapshot

LEASES_SCHEMA = pa.schema(
    [("lease_id", pa.string()), ("version", pa.int64()), ("expires_at", pa.timestamp("us", "UTC"))]
)


class Leases:
    """The leases of one store.

    Parameters
    ----------
    log, runtime
        The log, and the clock by which leases are over.
    """

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self._log = log
        self._runtime = runtime

    def table(self) -> pa.Table:
        """Leases that are not over, the oldest version first."""
        now = self._runtime.now_us()
        held = [lease for lease in self._log.refresh().state.leases.values() if lease.expires_at_us > now]
        held.sort(key=lambda lease: (lease.version, lease.lease_id))
        rows = [
            {"lease_id": each.lease_id, "version": each.version, "expires_at": each.expires_at_us}
            for each in held
        ]
        return pa.Table.from_pylist(rows, LEASES_SCHEMA)

    def open_again(self, version: int) -> LogSnapshot:
        """A version from what is kept now; see `Log.reopen`."""
        return self._log.reopen(version)

    def take(self, snapshot: Snapshot, duration: timedelta, required: bool) -> ReaderLease:
        """A lease on the version of the snapshot; see `Snapshot.lease`."""
        lease = ReaderLease(snapshot, self._runtime.token(), self._write, self._runtime.now_us)
        try:
            lease.renew(duration)
        except (CommitUnknownError, StorageError):
            if required:
                raise
        return lease

    def _write(self, lease: Lease) -> None:
        head = self._log.refresh()
        token = self._runtime.token()
        operation = "lease" if lease.expires_at_us else "release"

        def build(state: LogState) -> TransactionRecord:
            if lease.expires_at_us:
                check_version(state, lease.version, "to be leased")
            return TransactionRecord(
                token=token,
                operation=operation,
                parameters={"lease": lease.lease_id, "version": str(lease.version)},
                read_version=head.state.version,
                writer=writer_name(),
                leases=(lease,),
            )

        try:
            self._log.commit(head, build)
        except CommitConflictError:
            if lease.expires_at_us:
                check_version(self._log.refresh().state, lease.version, "to be leased")
            raise


class ReaderLease:
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
        snapshot: Snapshot,
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
        """The lease holds for so long from now on.

        Raises
        ------
        SnapshotExpiredError
            If it was over, and retention has passed the version since.
        """
        check_kind(duration, timedelta, "duration", "a timedelta")
        if duration <= timedelta(0):
            raise InvalidInputError(f"A lease of {duration} would be over at once: give a positive duration.")
        expires_at_us = self._now_us() + duration // timedelta(microseconds=1)
        try:
            expires_at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=expires_at_us)
        except OverflowError as error:
            raise InvalidInputError(
                f"A lease of {duration} would end after the year 9999: give a shorter duration; "
                f"a tag keeps a version for as long as it is there."
            ) from error
        self._write(Lease(self.lease_id, Version(self.snapshot.version), expires_at_us))
        self.expires_at = expires_at

    def release(self) -> None:
        """The lease has ended; ending it twice is fine."""
        if self.expires_at is not None:
            self._write(Lease(self.lease_id, Version(self.snapshot.version), 0))
            self.expires_at = None

    def __enter__(self) -> Self:
        """The lease."""
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
