"""The plan of an erase, and its execution: delete, purge, move, vacuum, and look what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.arguments import check_kind
from spark_pages.boundary import guarded
from spark_pages.catalog.resolve import show_name
from spark_pages.display.markup import card, joined, tag
from spark_pages.display.markup import table as html_table
from spark_pages.display.text import count
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.format.names import PageFolders, commit_key
from spark_pages.io import PageHandler
from spark_pages.log.commit_times import as_datetime
from spark_pages.log.log import Log
from spark_pages.log.retention import RetentionPolicy, oldest_readable, retention_policy
from spark_pages.log.slots import SlotReader
from spark_pages.log.state import LogState
from spark_pages.log.vacuum.reachability import Reason
from spark_pages.maintenance.compact import purge_table
from spark_pages.maintenance.erase.page_moves import move_pages
from spark_pages.maintenance.erase.report import ErasedObject, ErasureReport, objects_table
from spark_pages.maintenance.erase.row_trace import Holder, RowTrace, find_holders, holding_pages, trace_rows
from spark_pages.maintenance.vacuum import vacuum
from spark_pages.model.actions import Tombstone, TransactionRecord
from spark_pages.model.ids import page_version
from spark_pages.model.row_ranges import RowRanges
from spark_pages.progress import phase
from spark_pages.query.directory import row_numbers
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.store import size_if_there
from spark_pages.transaction.transaction import Transaction


class ErasableStore(Protocol):
    """What an erase needs of a store."""

    _log: Log
    _runtime: Runtime
    _pages: PageHandler

    def snapshot(self) -> Snapshot:
        """Return the newest version."""

    def transaction(
        self, operation: str | None = None, *, parameters: Any = None, read_version: int | None = None
    ) -> Transaction:
        """Begin a transaction."""


Retention = timedelta | int | str | None


@guarded()
@dataclass(frozen=True, slots=True, repr=False)
class ErasePlan:
    """Rows to erase, and everything that holds their values.

    Attributes
    ----------
    table, version
        The table, and the version in which the rows were found.
    rows
        Row numbers, as ranges [start, end).
    objects
        Objects that hold values of the rows; what keeps each once the rows are deleted, and until when.
    versions
        First and last version that can be read and shows one of them; None without any.
    tags, leases
        Names of tags, and ids of unexpired leases, that keep such versions.
    """

    table: str
    version: int
    rows: tuple[tuple[int, int], ...]
    objects: tuple[ErasedObject, ...]
    versions: tuple[int, int] | None
    tags: tuple[str, ...]
    leases: tuple[str, ...]
    _run: Callable[[], ErasureReport] = field(compare=False)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(end - start for start, end in self.rows)

    @property
    def row_numbers(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The rows, uint64, shape (n_rows,)."""
        bounds = np.array(self.rows, np.int64).reshape(-1, 2)
        return RowRanges(bounds[:, 0], bounds[:, 1]).rows().astype(np.uint64)

    def objects_table(self) -> pa.Table:
        """Return a row for each of `objects`, with its fields as columns."""
        return objects_table(self.objects)

    def execute(self) -> ErasureReport:
        """Delete the rows, purge their values, and vacuum what retention, tags and leases let go.

        Raises
        ------
        CommitConflictError
            If one of the rows was changed since the plan was made, or others replace the pages again and
            again. What was committed stays; plan again.
        SnapshotExpiredError
            If retention has passed the version of the plan; plan again.
        TableNotFoundError
            If the table was dropped.

        Notes
        -----
        May be killed anywhere; plan again with the same rows. Three commits at most beside those of a vacuum.
        Reads and rewrites the pages that hold the rows, and copies all other live pages of their page files.
        """
        return self._run()

    def __repr__(self) -> str:
        shown = f", versions {self.versions[0]} to {self.versions[1]}" if self.versions else ""
        kept = [*(f"tag {each!r}" for each in self.tags), *(f"lease {each}" for each in self.leases)]
        by = f"; kept by {', '.join(kept)}" if kept else ""
        return (
            f"ErasePlan({count(self.num_rows, 'row')} of {self.table}; values in "
            f"{count(len(self.objects), 'object')}{shown}{by})"
        )

    def _repr_html_(self) -> str:
        rows = [[each.key, each.kind, each.kept_by, each.until or ""] for each in self.objects]
        heading = joined(tag("b", "plan of an erase"), " · nothing was deleted yet; execute() does it")
        return card(heading, tag("p", repr(self)), html_table(["object", "kind", "kept by", "until"], rows))


def plan_erase(store: ErasableStore, table: Table, rows: ArrayLike, retention: Retention) -> ErasePlan:
    """Find everything that holds values of some rows; see `Store.erase`."""
    numbers = np.unique(row_numbers(rows, table.end_row, table.name))
    ranges = RowRanges.joined(np.stack([numbers, numbers + 1], axis=1))
    version = table.version
    assert version is not None
    return _Erasure(store, int(table.definition.table_id), ranges, retention).plan(version)


def plan_resumed(store: ErasableStore, report: ErasureReport, retention: Retention) -> ErasePlan:
    """Find what still holds values of rows that were erased; see `Store.resume_erase`."""
    check_kind(report, ErasureReport, "report", "an ErasureReport")
    check_same_store(store, report)
    return _Erasure(store, report.table_id, report.ranges, retention, report).plan(None)


def check_same_store(store: ErasableStore, report: ErasureReport) -> None:
    """Raise InvalidInputError if a report is of another store."""
    if store._log.refresh().state.store_id != report.store_id:
        raise InvalidInputError(
            "Cannot use the report of an erase: it is of another store.",
            hint="Open the store that `plan.execute()` ran on.",
        )


class _Erasure:
    """An erase of some rows of one table."""

    def __init__(
        self,
        store: ErasableStore,
        table_id: int,
        rows: RowRanges,
        retention: Retention,
        earlier: ErasureReport | None = None,
    ) -> None:
        self._store = store
        self._log = store._log
        self._table_id = table_id
        self._rows = rows
        self._retention = retention
        self._earlier = earlier

    def plan(self, version: int | None) -> ErasePlan:
        """Find what holds values of the rows; live ones of `version` are to be deleted, none without one."""
        phase("looking for what holds the rows")
        keep = self._policy()
        trace, holding, holders = self._look()
        bound = trace.head.version + 1
        objects = [
            *(each for each in (self._earlier.objects if self._earlier else ()) if each.key not in holders),
            *self._told(trace, holders, keep, bound),
        ]
        name = show_name(self._table().definition)
        return ErasePlan(
            name,
            trace.head.version if version is None else version,
            tuple(zip(self._rows.starts.tolist(), self._rows.ends.tolist(), strict=True)),
            tuple(objects),
            self._versions(trace, holding),
            tuple(sorted(name for name, of in trace.head.tags.items() if of < bound)),
            tuple(sorted(each.lease_id for each in self._leases(trace, bound))),
            partial(self._execute, version, tuple(objects)),
        )

    def _policy(self) -> RetentionPolicy:
        return retention_policy(self._retention, self._log.refresh().state.properties)

    def _table(self) -> Table:
        snapshot = self._store.snapshot()
        for definition in snapshot.log.tables():
            if definition.table_id == self._table_id:
                return snapshot.table_of(definition)
        name = f"table {self._earlier.table!r}" if self._earlier else "the table"
        raise TableNotFoundError(
            f"Cannot erase rows of {name}: it was dropped.",
            hint="Bring it back with `transaction.undrop_table`, or wait until vacuum has purged it.",
        )

    def _look(self) -> tuple[RowTrace, set[int], dict[str, Holder]]:
        runtime = self._store._runtime
        trace = trace_rows(self._log, runtime, self._table_id, self._rows)
        holding = holding_pages(trace, self._store._pages)
        return trace, holding, dict(find_holders(trace, holding, self._log, runtime))

    # execute

    def _execute(self, version: int | None, objects: tuple[ErasedObject, ...]) -> ErasureReport:
        deleted = self._delete(version)
        name = show_name(self._table().definition)
        begin = partial(self._store.transaction, parameters={"table": name})
        phase(f"purging rows of {name}")
        end_row = self._table().end_row
        purged, _ = purge_table(begin, name, self._rows.between(0, end_row))
        trace, _, holders = self._look()
        phase("moving pages out of page files")
        files = {key for key, each in holders.items() if each.kind == Reason.PAGE_FILE}
        moved = move_pages(begin, files)
        if self._earlier is None or purged or moved is not None:
            clean = self._name_checkpoint(name) if holders else self._log.refresh().state.version
        else:
            clean = self._earlier.clean_version
        vacuum(self._log, self._store._runtime, self._retention, True, self._store._pages)
        self._delete_ranges(trace, holders)
        self._store._pages.clear(disk=True)
        known = {each.key: each for each in objects}
        known |= {key: ErasedObject(key, each.kind, each.size_bytes) for key, each in holders.items()}
        return self._report(known.values(), deleted, clean)

    def _delete(self, version: int | None) -> int:
        """Delete those of the rows that are live; return the version that did, or found them deleted."""
        if version is None:
            assert self._earlier is not None
            return self._earlier.deleted_version
        name = show_name(self._table().definition)
        parameters = {"table": name, "rows": str(self._rows.num_rows)}
        with self._store.transaction("erase", parameters=parameters, read_version=version) as txn:
            txn.delete(name, self._rows.rows())
        return txn.version if txn.version is not None else version

    def _name_checkpoint(self, name: str) -> int:
        """Commit once more, on a new checkpoint; return the version.

        Notes
        -----
        Vacuum keeps the newest checkpoint that commits up to the oldest readable version name. So once this
        version is the oldest one, no checkpoint with values is kept.
        """
        log, token = self._log, self._store._runtime.token()
        head = log.refresh_to_write()
        log.checkpoint()

        def build(_: LogState) -> TransactionRecord:
            return TransactionRecord(
                token=token,
                operation="erase",
                parameters={"table": name},
                read_version=head.state.version,
                writer=writer_name(),
            )

        return log.commit(head, build).version

    def _delete_ranges(self, trace: RowTrace, holders: dict[str, Holder]) -> None:
        """Delete compacted ranges with commits that are tombstones by now; their other slots are kept."""
        slots = SlotReader(self._log.store, self._store._runtime.map)
        listed = [v for v in sorted({*trace.commits, *trace.telling}) if commit_key(v) in holders]
        cleaned = {version for version in listed if isinstance(slots.read(version), Tombstone)}
        for key, each in holders.items():
            if each.kind == Reason.COMPACTED and any(version in _slots_of(key) for version in cleaned):
                self._log.store.delete(key)

    def _report(self, known: Iterable[ErasedObject], deleted: int, clean: int) -> ErasureReport:
        """Report what is left, and what keeps it."""
        trace, holding, holders = self._look()
        revived = bool({*trace.live} & holding)
        left = {each.key: each for each in self._told(trace, holders, self._policy(), clean)}
        gone = {}
        for each in known:
            if each.key not in left:
                gone[each.key] = ErasedObject(each.key, each.kind, each.size_bytes, gone=True)
        still = self._still_there(gone, clean, trace)
        report_objects = {**gone, **still, **left}
        return ErasureReport(
            trace.head.store_id,
            show_name(self._table().definition),
            self._table_id,
            tuple(zip(self._rows.starts.tolist(), self._rows.ends.tolist(), strict=True)),
            deleted,
            trace.head.version + 1 if revived else clean,
            tuple(report_objects[key] for key in sorted(report_objects)),
            self._versions(trace, holding),
        )

    def _still_there(
        self, objects: dict[str, ErasedObject], clean: int, trace: RowTrace
    ) -> dict[str, ErasedObject]:
        """Return those that nothing names with values any more, and that are there all the same."""
        keys = sorted(objects)
        sizes = self._store._runtime.map(partial(size_if_there, self._log.store), keys)
        slots = SlotReader(self._log.store, self._store._runtime.map)
        found = {}
        for key, size in zip(keys, sizes, strict=True):
            each = objects[key]
            if size is None:
                continue
            if each.kind == Reason.SLOT and isinstance(slots.read(_version_of(key)), Tombstone):
                continue
            holder = Holder(each.kind, size)
            found[key] = self._told(trace, {key: holder}, self._policy(), clean)[0]
        return found

    # what keeps what

    def _told(
        self, trace: RowTrace, holders: dict[str, Holder], keep: RetentionPolicy, bound: int
    ) -> list[ErasedObject]:
        """Return the objects with what keeps them; they go once no version before `bound` can be read."""
        folders = PageFolders.of(trace.head.properties)
        told = []
        for key, each in sorted(holders.items()):
            if each.kind == Reason.PAGE_FILE and folders.epoch_of(key) is None:
                by, until = "its writer registered it, and vacuum deletes no such file", None
            else:
                needed = min(bound, _version_of(key) + 1) if each.kind == Reason.SLOT else bound
                by, until = self._blocker(trace, keep, needed)
            told.append(ErasedObject(key, each.kind, each.size_bytes, False, by, until))
        return told

    def _blocker(self, trace: RowTrace, keep: RetentionPolicy, bound: int) -> tuple[str, datetime | None]:
        """Return what keeps versions before a bound readable, and until when."""
        head, now = trace.head, self._store._runtime.now_us()
        tags = [f"tag {name!r} (version {of})" for name, of in sorted(head.tags.items()) if of < bound]
        if tags:
            return f"{', '.join(tags)}: delete it with `delete_tag`", None
        if keep.versions is not None and head.version + 1 - max(1, keep.versions) < bound - 1:
            return f"retention of {count(keep.versions, 'version')}", None
        reasons: list[tuple[int, str]] = []
        leases = self._leases(trace, bound)
        if leases:
            reasons.append((max(each.expires_at_us for each in leases), "a lease"))
        if keep.age_us is not None:
            since = self._log.time_of(bound) if bound <= head.version else now
            if since + keep.age_us > now:
                age = str(timedelta(microseconds=keep.age_us)).removesuffix(", 0:00:00")
                reasons.append((since + keep.age_us, f"retention of {age}"))
        if not reasons:
            return "nothing any more: the next vacuum deletes it", as_datetime(now)
        until_us, by = max(reasons)
        return by, as_datetime(until_us)

    def _leases(self, trace: RowTrace, bound: int) -> Sequence[Any]:
        now = self._store._runtime.now_us()
        return [
            each for each in trace.head.leases.values() if each.version < bound and each.expires_at_us > now
        ]

    def _versions(self, trace: RowTrace, holding: set[int]) -> tuple[int, int] | None:
        """Return the first and last version that can be read and shows a value, as far as pages tell."""
        if not holding:
            return None
        first = max(oldest_readable(trace.head), min(map(page_version, holding)))
        last = trace.head.version
        if not trace.live & holding:
            newer = [page_version(page) for page in trace.live]
            last = max(newer, default=last + 1) - 1
        return (first, last) if first <= last else None


def _version_of(key: str) -> int:
    return int(key.rpartition("/")[2].partition(".")[0])


def _slots_of(key: str) -> range:
    """Return versions of the slots in a compacted range or bundle."""
    start, end = key.rpartition("/")[2].partition(".")[0].split("-")
    return range(int(start), int(end) + 1)
