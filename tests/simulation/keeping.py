"""Programs that hold a version by a tag or a lease, and read it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

from spark_pages.errors import CommitConflictError, CommitUnknownError, SnapshotExpiredError, StorageError
from spark_pages.versions.leases import Leases
from spark_pages.versions.tags import set_tag
from tests.simulation.process import Process, Program
from tests.simulation.programs import refreshed, travels

Hold = Callable[[Process, int], object]


def tags(back: int = 0) -> Program:
    """Tags a version, so many before the newest one known, and reads it."""

    def hold(process: Process, version: int) -> object:
        return set_tag(process.log, process.runtime(), process.name, version, replace=True)

    return _holds(hold, back)


def leases(back: int = 0) -> Program:
    """Takes a lease on a version, so many before the newest one known, and reads it."""

    def hold(process: Process, version: int) -> object:
        snapshot = SimpleNamespace(version=version)  # all that a lease takes of it
        return Leases(process.log, process.runtime()).take(snapshot, timedelta(hours=1), required=True)  # type: ignore[arg-type]

    return _holds(hold, back)


def _holds(hold: Hold, back: int) -> Program:
    def program(process: Process) -> None:
        read = process.log._head or refreshed(process)
        if read is None:
            return
        version = max(0, read.state.version - back)
        try:
            hold(process, version)
        except (StorageError, CommitConflictError, CommitUnknownError):
            return
        except SnapshotExpiredError:
            process.tell("expired", version)
            return
        travels((version,))(process)

    return program
