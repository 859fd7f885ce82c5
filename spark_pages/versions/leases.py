"""Leases: a reader or long writer says in the log which version it needs, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from spark_pages.errors import CommitConflictError, CommitUnknownError, StorageError
from spark_pages.log.lease import ReaderLease
from spark_pages.log.log import Log
from spark_pages.log.retention import check_version
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import Lease, TransactionRecord
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import Runtime, writer_name

LEASES_SCHEMA = pa.schema(
    [("lease_id", pa.string()), ("version", pa.int64()), ("expires_at", pa.timestamp("us", "UTC"))]
)


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of one store.

    Attributes
    ----------
    log, runtime
        The log, and the clock by which leases are over.
    """

    log: Log
    runtime: Runtime

    def table(self) -> pa.Table:
        """Leases that are not over, the oldest version first."""
        now = self.runtime.now_us()
        held = [lease for lease in self.log.refresh().state.leases.values() if lease.expires_at_us > now]
        held.sort(key=lambda lease: (lease.version, lease.lease_id))
        rows = [
            {"lease_id": each.lease_id, "version": each.version, "expires_at": each.expires_at_us}
            for each in held
        ]
        return pa.Table.from_pylist(rows, LEASES_SCHEMA)

    def open_again(self, version: int) -> LogSnapshot:
        """Reopen a version on the retained objects; see `Log.reopen`."""
        return self.log.reopen(version)

    def take(self, snapshot: Snapshot, duration: timedelta, required: bool) -> ReaderLease[Snapshot]:
        """Take a lease on the version of the snapshot; see `Snapshot.lease`."""
        lease = ReaderLease(snapshot, self.runtime.token(), self._write, self.runtime.now_us)
        try:
            lease.renew(duration)
        except (CommitUnknownError, StorageError):
            if required:
                raise
        return lease

    def _write(self, lease: Lease) -> None:
        head = self.log.refresh()
        if lease.expires_at_us:
            self.log.check_lasts(lease.expires_at_us, f"a lease on version {lease.version}")
        token = self.runtime.token()
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
            self.log.commit(head, build)
        except CommitConflictError:
            if lease.expires_at_us:
                check_version(self.log.refresh().state, lease.version, "to be leased")
            raise
