"""Verbs of a store that keep it in order: vacuum, page compaction, verification, repair, leases."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Literal, Protocol

import pyarrow as pa

from spark_pages.arguments import as_flag
from spark_pages.boundary import guarded
from spark_pages.io import PageHandler
from spark_pages.log.log import Log
from spark_pages.log.vacuum.plan import VacuumPlan, VacuumResult
from spark_pages.maintenance.compact import compact_table
from spark_pages.maintenance.repair import RepairPlan, plan_repair
from spark_pages.maintenance.vacuum import plan_vacuum, vacuum
from spark_pages.maintenance.verify.faults import Verification
from spark_pages.maintenance.verify.verify import verify
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.transaction import Transaction
from spark_pages.versions.leases import Leases


class _Store(Protocol):
    """What these verbs need of a store."""

    _log: Log
    _runtime: Runtime
    _pages: PageHandler
    _objects: ObjectStore

    def snapshot(self) -> Snapshot: ...

    def transaction(self, *, parameters: Any = None) -> Transaction: ...


@guarded()
class MaintenanceVerbs:
    """Verbs of a store that keep it in order."""

    def vacuum_plan(
        self: _Store, retention: timedelta | int | str | None = None, orphans: bool = False
    ) -> VacuumPlan:
        """List what `vacuum` would delete, with sizes and reasons. Delete nothing.

        Parameters
        ----------
        retention
            Versions to retain: a number of latest versions, or a period, as a timedelta or text such as
            ``"7d"``, in which they were the latest at some time. The default comes from the properties
            ``retention_versions`` and ``retention_seconds`` of the store, else it is seven days. Tags and
            unexpired leases also retain their versions and all later ones.
        orphans
            Whether to list the whole store for objects that no commit ever named.

        Notes
        -----
        May write a checkpoint, after which more can be deleted. Requests grow with the commits and the
        checkpoint objects that are retained or deleted; see `docs/retention.md`.
        """
        orphans = as_flag(orphans, "orphans")
        return plan_vacuum(self._log, self._runtime, retention, orphans, pages=self._pages)

    def vacuum(
        self: _Store, retention: timedelta | int | str | None = None, orphans: bool = False
    ) -> VacuumResult:
        """Delete what no retained version needs; parameters as of `vacuum_plan`.

        Raises
        ------
        CommitConflictError
            If tags or leases were added again and again to versions that were to be deleted.

        Notes
        -----
        Safe to kill, to repeat, and to run twice at the same time. One commit, rarely two, and none where
        nothing can be deleted.
        """
        return vacuum(self._log, self._runtime, retention, as_flag(orphans, "orphans"), self._pages)

    def compact_pages(self: _Store, table: str | None = None, *, purge: bool = False) -> list[dict[str, Any]]:
        """Merge runs of small pages into full ones. Rows do not change.

        Pages of which all rows are deleted get page descriptors without bytes, and the marks of deleted rows
        are joined.

        Parameters
        ----------
        table
            Its name; all tables by default.
        purge
            Whether to blank the values of all deleted rows: null takes their place in the newest version.
            Earlier versions hold them until `vacuum` may delete these; see `erase`.

        Returns
        -------
        list of dict
            For each table: its name, its pages before and after, the version (None where there was nothing
            to do), how many columns another job was compacting, and how many pages were replaced because of
            deleted rows.
        """
        purge = as_flag(purge, "purge")
        snapshot = self.snapshot()
        names = snapshot.tables() if table is None else [snapshot.table(table).name]
        return [
            compact_table(
                partial(self.transaction, parameters={"table": name}), name, self._runtime, purge=purge
            ).as_dict(name)
            for name in names
        ]

    def verify(self: _Store, pages: Literal["all", "sample", "none"] = "sample") -> Verification:
        """Check everything that the log names, and report each fault.

        Parameters
        ----------
        pages
            Which pages are read and compared with their descriptors and statistics.

        Returns
        -------
        Verification
            ``ok`` is false if there is damage. Damage is reported, not raised.

        Notes
        -----
        Writes nothing. Costs as of `spark_pages.maintenance.verify.verify.verify`.
        """
        return verify(self._objects, self._runtime, pages)

    def repair_plan(self: _Store, pages: Literal["all", "sample", "none"] = "all") -> RepairPlan:
        """List damage that can be repaired byte for byte, and what is lost. Repair nothing.

        Notes
        -----
        ``plan.execute()`` repairs.
        """
        return plan_repair(self._objects, self._runtime, pages)

    def leases(self: _Store) -> pa.Table:
        """List unexpired leases, oldest version first: ``lease_id``, ``version``, ``expires_at``."""
        return Leases(self._log, self._runtime).table()
