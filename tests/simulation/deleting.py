"""Programs that delete rows of the table of rows, blank them, empty the table, and restore it.

Each lengthening of the marks ends at its dead row, so an end of a page of marks names one. The page of a
column whose last row is blank has a checksum of `BLANK` at least.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from spark_pages.changes.row_changes import Changes, rows_of
from spark_pages.errors import ObjectNotFoundError, SnapshotExpiredError, StorageError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.ids import LIVENESS
from spark_pages.transaction import blanked_rows
from spark_pages.versions.restore import _build
from spark_pages.versions.restore_plan import plan_restore
from tests.simulation.model import BLANK
from tests.simulation.process import Process, Program
from tests.simulation.programs import ROWS, commit, definition, record_of, refreshed

_GONE = (StorageError, ObjectNotFoundError, SnapshotExpiredError)
Change = Callable[[Process, LogSnapshot, str], "TransactionRecord | None"]


def _tried(change: Change, tries: int) -> Program:
    """Commit a change of the newest version; again after a conflict."""

    def program(process: Process) -> None:
        for _ in range(tries):
            read = refreshed(process)
            if read is None:
                continue
            token = process.token()
            try:
                record = change(process, read, token)
            except _GONE:
                continue
            if record is None or commit(process, read, token, lambda _, made=record: made) != "conflict":  # type: ignore[misc]
                return

    return program


def deletes(tries: int = 3) -> Program:
    """The last row is deleted, where it is live."""
    return _tried(_delete, tries)


def _delete(_: Process, read: LogSnapshot, token: str) -> TransactionRecord | None:
    rows, marks = read.num_rows((ROWS, 1)), read.num_rows((ROWS, LIVENESS))
    if marks >= rows:
        return None
    touched = ((rows - 1, rows),)
    splice = Splice(ROWS, LIVENESS, marks, (), 0, 0, 0, 1, rows - marks, touched=touched)  # type: ignore[arg-type]
    return record_of(token, "delete", read, ((rows - marks, 7, None),), (splice,))


def blanks(tries: int = 2) -> Program:
    """The last row that is dead loses its value in the first column."""
    return _tried(_blank, tries)


def _blank(_: Process, read: LogSnapshot, token: str) -> TransactionRecord | None:
    end = read.num_rows((ROWS, LIVENESS))
    if not end:
        return None
    run = read.chain((ROWS, 1)).pages_between(end - 1, end)
    if not run.num_pages:
        found = read.chain((ROWS, 1)).locate_row(end - 1)
        page, first = found.page, end - 1 - found.row_in_page
    else:
        page, first = run.descriptor(0), end - 1
    if first + page.entry_count != end or page.checksum >= BLANK:
        return None
    table = SimpleNamespace(definition=definition(ROWS, "rows", 2))
    removed, entries = (int(page.page_id),), page.entry_count
    made = blanked_rows._splice(table, "a", first, removed, entries, [], ((end - 1, end),))  # type: ignore[arg-type]
    splice = Splice(
        ROWS,
        1,
        first,
        removed,
        entries,
        0,
        0,
        1,
        entries,
        made.data_change,
        made.touched,  # type: ignore[arg-type]
    )
    return record_of(token, "blank", read, ((entries, BLANK + page.checksum, None),), (splice,))


def truncates() -> Program:
    """The table loses all rows."""
    return _tried(_truncate, 1)


def _truncate(_: Process, read: LogSnapshot, token: str) -> TransactionRecord:
    intent = CatalogIntent(IntentKind.TRUNCATE, ROWS, 0, "rows", definition(ROWS, "rows", 2))  # type: ignore[arg-type]
    return record_of(token, "truncate", read, (), (), intents=(intent,))


def restores_rows(version: int, tries: int = 2) -> Program:
    """The rows are what they were at a version, by the plan of a restore."""

    def program(process: Process) -> None:
        for _ in range(tries):
            read = refreshed(process)
            if read is None:
                continue
            try:
                then = process.log.snapshot(version)
                changes = Changes(lambda key, then=then: rows_of(then, key), ROWS)  # type: ignore[misc]
                for each in process.log.commits(version + 1, read.state.version + 1):
                    changes.feed(each)
                plan = plan_restore(then, read, changes)
                names = ("entry_count", "checksum", "path")
                columns = [plan.pages.column(name).to_pylist() for name in names]
            except _GONE:
                continue
            if not plan.splices:
                return
            token, pages = process.token(), tuple(zip(*columns, strict=True))
            given = {"parameters": {"version": str(version)}}
            record = record_of(token, "restore rows", read, pages, plan.splices, **given)
            try:
                if commit(process, read, token, _build(record, read.state, version)) != "conflict":
                    return
            except SnapshotExpiredError:  # retention has passed the version meanwhile
                process.tell("expired", version)
                return

    return program
