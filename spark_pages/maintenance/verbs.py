"""Verbs of a store that keep it in order: vacuum, page compaction, verification, repair, leases."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Literal, Protocol

import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.arguments import as_flag, as_str
from spark_pages.boundary import guarded
from spark_pages.errors import InvalidInputError
from spark_pages.io import PageHandler
from spark_pages.log.log import Log
from spark_pages.log.vacuum.plan import VacuumPlan, VacuumResult
from spark_pages.maintenance.compact import compact_table
from spark_pages.maintenance.erase.plan import ErasePlan, plan_erase, plan_resumed
from spark_pages.maintenance.erase.proof import with_erased
from spark_pages.maintenance.erase.report import ErasureReport
from spark_pages.maintenance.repair import RepairPlan, plan_repair
from spark_pages.maintenance.vacuum import plan_vacuum, vacuum
from spark_pages.maintenance.verify.faults import Verification
from spark_pages.maintenance.verify.verify import verify
from spark_pages.query.predicates.filters import Filter
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

    def transaction(
        self, operation: str | None = None, *, parameters: Any = None, read_version: int | None = None
    ) -> Transaction: ...


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

    def erase(
        self: _Store,
        table: str,
        rows: ArrayLike | None = None,
        *,
        where: Filter | bool | None = None,
        retention: timedelta | int | str | None = None,
    ) -> ErasePlan:
        """List rows to erase, and everything that holds their values. Delete nothing.

        Parameters
        ----------
        table
            Its name; the table must be aligned.
        rows
            Row numbers, also of rows that are deleted already.
        where
            A condition, as of `Transaction.delete`; no commit records it. Give `rows` or `where`.
        retention
            Versions to retain, as of `vacuum_plan`: others are given up when the plan is executed.

        Returns
        -------
        ErasePlan
            ``plan.execute()`` deletes the rows and their values as far as retention, tags and leases let them
            go, and returns an `ErasureReport`.

        Raises
        ------
        TableNotFoundError, RowOutOfRangeError
        InvalidInputError
            If neither or both of `rows` and `where` are given, or the table is not aligned.

        Notes
        -----
        Reads all commits that are kept, and every page of every version that holds one of the rows.
        """
        shown = self.snapshot().table(as_str(table, "the name of a table"))
        if (rows is None) == (where is None) or where is False:
            raise InvalidInputError(
                f"Cannot erase rows of table {table!r}: give rows or where, and one of them only.",
                hint="`where=True` erases all rows.",
            )
        if not shown.definition.may_have_dead_rows:
            raise InvalidInputError(
                f"Cannot erase rows of table {table!r}: it is not aligned, so its columns do not share rows.",
                hint="Create the table with `aligned=True`.",
            )
        if where is not None:
            rows = shown.row_numbers(None if where is True else where)
        assert rows is not None
        return plan_erase(self, shown, rows, retention)

    def resume_erase(
        self: _Store, report: ErasureReport, retention: timedelta | int | str | None = None
    ) -> ErasePlan:
        """List what still holds values of rows that were erased; ``execute`` deletes what may go by now.

        Parameters
        ----------
        report
            What ``execute`` returned, also read back by `ErasureReport.from_json`.
        retention
            As of `erase`.

        Raises
        ------
        InvalidInputError
            If the report is of another store.
        TableNotFoundError
            If the table was dropped.
        """
        return plan_resumed(self, report, retention)

    def verify(
        self: _Store,
        pages: Literal["all", "sample", "none"] = "sample",
        *,
        erased: ErasureReport | None = None,
    ) -> Verification:
        """Check everything that the log names, and report each fault.

        Parameters
        ----------
        pages
            Which pages are read and compared with their descriptors and statistics.
        erased
            The report of an erase: each object that still holds something of the rows is a fault, too, be it
            a value, a bound, a bloom filter, a value of a dictionary, or what a commit records.

        Returns
        -------
        Verification
            ``ok`` is false if there is damage. Damage is reported, not raised.

        Notes
        -----
        Writes nothing. Costs as of `spark_pages.maintenance.verify.verify.verify`.
        """
        found = verify(self._objects, self._runtime, pages)
        return found if erased is None else with_erased(self, found, erased)

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
