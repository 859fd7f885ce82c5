"""Programs that drop the table of rows, bring it back, and give it up as `tables.definitions.purge` does."""

from __future__ import annotations

from spark_pages.errors import ObjectNotFoundError, SnapshotExpiredError, StorageError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.maintenance.vacuum import vacuum
from spark_pages.model.actions import CatalogIntent, IntentKind
from tests.simulation.process import Process, Program
from tests.simulation.programs import ROWS, appends, commit, definition, record_of, refreshed, upkeep

_NAME = "rows"


def drops() -> Program:
    """The table of rows is dropped."""

    def program(process: Process) -> None:
        read = refreshed(process)
        if read is not None:
            _change(process, read, IntentKind.DROP)

    return program


def undrops() -> Program:
    """The table comes back, if it can, and gets rows."""

    def program(process: Process) -> None:
        read = refreshed(process)
        if read is None or not _can_come_back(read):
            return
        if _change(process, read, IntentKind.UNDROP).startswith("committed"):
            appends(inline=True)(process)

    return program


def purges(dropped: int) -> Program:
    """Keeps one version, gives the table up once none has it that can be read, and deletes its pages.

    Parameters
    ----------
    dropped
        The version that dropped the table.
    """

    def program(process: Process) -> None:
        upkeep(process, lambda: vacuum(process.log, process.runtime(), 1, False))
        read = refreshed(process)
        retention = read.state.retention if read is not None else None
        if read is None or retention is None or retention.min_readable < dropped:
            return
        if _can_come_back(read):
            _change(process, read, IntentKind.PURGE)
            upkeep(process, lambda: vacuum(process.log, process.runtime(), 1, False))

    return program


def _can_come_back(read: LogSnapshot) -> bool:
    """Whether the table is dropped and has rows, as far as storage tells."""
    try:
        return read.table((0, _NAME)) is None and read.num_rows((ROWS, 1)) > 0  # type: ignore[arg-type]
    except (StorageError, ObjectNotFoundError, SnapshotExpiredError):
        return False


def _change(process: Process, read: LogSnapshot, kind: IntentKind) -> str:
    after = None if kind is IntentKind.DROP else definition(ROWS, _NAME, 2)
    intent = CatalogIntent(kind, ROWS, 0, _NAME, after)  # type: ignore[arg-type]
    token = process.token()
    record = record_of(token, kind.value, read, (), (), intents=(intent,))
    return commit(process, read, token, lambda _: record)
