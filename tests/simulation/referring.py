"""Programs that restore a table with a foreign key, drop what it refers to, and look whether all is there."""

from __future__ import annotations

from spark_pages.catalog.constraints import foreign_key, with_constraint
from spark_pages.catalog.references import dangling_references
from spark_pages.changes.row_changes import Changes, rows_of
from spark_pages.errors import ObjectNotFoundError, SnapshotExpiredError, StorageError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, IntentKind
from spark_pages.model.table import TableDefinition
from spark_pages.versions.restore import _build
from spark_pages.versions.restore_plan import plan_restore
from tests.simulation.process import Process, Program
from tests.simulation.programs import COUNTER, ROWS, commit, definition, record_of, refreshed
from tests.simulation.values import memory

_NAMES = {ROWS: "rows", COUNTER: "counter"}
_GONE = (StorageError, ObjectNotFoundError, SnapshotExpiredError)
_referring = memory()


def with_reference() -> TableDefinition:
    """The table of rows with a foreign key to the counter."""
    known = _referring.get(ROWS)
    if known is None:
        plain = definition(ROWS, "rows", 2)
        key = foreign_key(plain, "other", ["a"], definition(COUNTER, "counter", 1), ["a"])
        known = _referring.keep(ROWS, with_constraint(plain, key))
    return known  # type: ignore[no-any-return]


def refers() -> Program:
    """The table of rows gets the foreign key."""
    return lambda process: _change(process, refreshed(process), IntentKind.ALTER, ROWS, with_reference())


def drops_referring() -> Program:
    """The table with the foreign key is dropped."""
    return lambda process: _change(process, refreshed(process), IntentKind.DROP, ROWS)


def drops_referenced() -> Program:
    """What the foreign key refers to is dropped, where no table has the key as far as is known."""

    def program(process: Process) -> None:
        read = refreshed(process)
        try:
            if (
                read is not None
                and read.table((0, "rows")) is None
                and read.table((0, "counter")) is not None
            ):
                _change(process, read, IntentKind.DROP, COUNTER)
        except _GONE:
            return

    return program


def restores(version: int, tries: int = 2) -> Program:
    """Definitions are what they were at a version, by the plan of a restore; rows are left alone."""

    def program(process: Process) -> None:
        for _ in range(tries):
            read = refreshed(process)
            if read is None:
                continue
            try:
                then = process.log.snapshot(version)
                changes = Changes(lambda key, then=then: rows_of(then, key))  # type: ignore[misc]
                for each in process.log.commits(version + 1, read.state.version + 1):
                    changes.feed(each)
                intents = plan_restore(then, read, changes).intents
            except _GONE:
                continue
            token = process.token()
            record = record_of(token, "restore", read, (), (), intents=intents)
            if intents:
                commit(process, read, token, _build(record, read.state, version))

    return program


def looks_for_references(times: int = 3) -> Program:
    """Every definition of the newest version refers to what is there."""

    def program(process: Process) -> None:
        for _ in range(times):
            read = refreshed(process)
            try:
                wrong = [] if read is None else [*dangling_references(read.tables())]
            except _GONE:
                continue
            if wrong:
                process.tell("broken", f"{process.name} found that {wrong[0]}")

    return program


def _change(
    process: Process,
    read: LogSnapshot | None,
    kind: IntentKind,
    table: int,
    after: TableDefinition | None = None,
) -> None:
    if read is None:
        return
    intent = CatalogIntent(kind, table, 0, _NAMES[table], after)  # type: ignore[arg-type]
    token = process.token()
    record = record_of(token, f"{kind.value} {_NAMES[table]}", read, (), (), intents=(intent,))
    commit(process, read, token, lambda _: record)
