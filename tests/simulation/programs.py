"""What the processes of a simulation do, in terms of the shipped log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark_pages.changes import idempotency as pairs
from spark_pages.errors import (
    CommitConflictError,
    CommitUnknownError,
    DamageError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    StorageError,
    VersionNotFoundError,
)
from spark_pages.format.names import page_file_key
from spark_pages.log.commit.protocol_types import Duplicate, EncodedRecord, GroupMember, Unknown
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.maintenance.vacuum import plan_vacuum, vacuum
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages, NewPage
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.table import TableDefinition, with_field_ids
from tests.simulation.invariants import pages_of, seen
from tests.simulation.process import Process, Program
from tests.simulation.values import Encoded, memory, standing

ROWS, COUNTER = 1, 2
"""Tables of every store here: rows that are appended (two columns), and one page that counts."""

_batches, _definitions, _counters = memory(), memory(), memory()
Build = Callable[[LogState], "TransactionRecord | Duplicate"]


def own_pages(pages: tuple[tuple[int, int, str | None], ...]) -> AddedPages:
    """Descriptors of pages of so many rows, with a checksum, in a page file or inline."""
    known = _batches.get(pages)
    if known is None:
        new = [
            NewPage(rows, rows, PageKind.FILE, path, 4096 * i, 4096, 80, checksum, None, PageStats(0))
            if path
            else NewPage(rows, rows, PageKind.INLINE, None, 0, 0, 80, checksum, b"x" * 80, PageStats(0))
            for i, (rows, checksum, path) in enumerate(pages)
        ]
        known = _batches.keep(pages, AddedPages.of(new))
    return known  # type: ignore[no-any-return]


def definition(table_id: int, name: str, columns: int) -> TableDefinition:
    """A table with columns ``a``, ``b``, …"""
    key = table_id, name, columns
    known = _definitions.get(key)
    if known is None:
        schema = with_field_ids(pa.schema([(letter, pa.int64()) for letter in "abcd"[:columns]]))
        known = _definitions.keep(key, TableDefinition(table_id, name, schema, columns + 1))  # type: ignore[arg-type]
    return known  # type: ignore[no-any-return]


def create_store(process: Process, **properties: str) -> None:
    """Version 0: both tables, and the page that counts, at 0."""
    record = TransactionRecord(
        token=process.token(),
        operation="create store",
        read_version=-1,
        writer="setup",
        own=own_pages(((1, 0, None),)),
        splices=(Splice(COUNTER, 1, 0, (), 0, 0, 0, 1, 1),),  # type: ignore[arg-type]
        intents=tuple(
            CatalogIntent(IntentKind.CREATE, table, 0, name, definition(table, name, columns))  # type: ignore[arg-type]
            for table, name, columns in ((ROWS, "rows", 2), (COUNTER, "counter", 1))
        ),
        properties=properties,
    )
    process.log.create(lambda _: record)


def record_of(
    process_token: str,
    operation: str,
    read: LogSnapshot,
    pages: tuple[tuple[int, int, str | None], ...],
    splices: tuple[Splice, ...],
    **given: Any,
) -> TransactionRecord:
    """The record of a transaction."""
    return TransactionRecord(
        token=process_token,
        operation=operation,
        read_version=read.state.version,
        writer=process_token[:2],
        own=own_pages(pages),
        splices=splices,
        **given,
    )


def commit(
    process: Process,
    read: LogSnapshot,
    token: str,
    build: Build,
    reads: frozenset[int] = frozenset(),
    ready: EncodedRecord | None = None,
) -> str:
    """Commit and note what was told: ``committed``, ``conflict``, ``unknown`` or ``failed``."""
    if reads:
        process.tell("relies", token, read.state.version, reads)
    try:
        outcome = process.log.commit_member(GroupMember(read.state.version, build, reads, ready))
    except CommitConflictError as error:
        process.tell("refuse", token, f"a conflict was reported: {error.message}")
        told = "conflict"
    except CommitUnknownError as error:
        process.unknown = error.context
        told = "unknown"
    except StorageError as error:
        process.tell("refuse", token, f"a failure was reported: {error.message}")
        told = "failed"
    else:
        told = f"committed as version {outcome.version}"
        process.tell("acknowledge", token, outcome.version, process.landed_before.get(token))
    process.tell("note", f"{process.name:<12} {told} ({token[:2]}…{token[-2:]})")
    return told


def refreshed(process: Process) -> LogSnapshot | None:
    """The newest snapshot, checked; None where storage failed."""
    process.tell("asks", process.name)
    try:
        snapshot = process.log.refresh()
    except StorageError:
        return None
    process.tell("saw", process.name, seen(snapshot))
    return snapshot


def appends(times: int = 1, inline: bool = False, exactly_once: bool = False, tries: int = 1) -> Program:
    """Appends a page to each column of the rows, so many times."""

    def program(process: Process) -> None:
        for number in range(times):
            for _ in range(tries):
                if _append(process, number, inline, exactly_once):
                    break

    return program


def _append(process: Process, number: int, inline: bool, exactly_once: bool) -> bool:
    read = process.log._head or refreshed(process)
    if read is None:
        return False
    token = process.token()
    path = None if inline else page_file_key(read.state.version, token, 0)
    app: tuple[str | None, int | None] = (process.name, number + 1) if exactly_once else (None, None)
    record = record_of(
        token,
        "append",
        read,
        ((2, 1, path), (2, 2, path)),
        tuple(Splice(ROWS, field, 0, (), 0, 0, field - 1, field, 2) for field in (1, 2)),  # type: ignore[arg-type]
        app_id=app[0],
        app_version=app[1],
    )
    if path is not None and not _put(process, path):
        return False

    def build(state: LogState) -> TransactionRecord | Duplicate:
        landed = pairs.latest_applied(state, *app)
        if landed is None:
            return record
        process.landed_before[token] = app
        return Duplicate(landed)

    ready = EncodedRecord(record, Encoded(record), read.state.version)  # type: ignore[arg-type]
    told = commit(process, read, token, build, ready=None if exactly_once else ready)
    return told.startswith("committed")


def _put(process: Process, path: str) -> bool:
    try:
        process.put(path, b"pages")
    except StorageError:
        return False
    return True


def counts(times: int = 1, tries: int = 3) -> Program:
    """Reads the counter and replaces its page by one that is one higher; again after a conflict."""

    def program(process: Process) -> None:
        for _ in range(times):
            for attempt in range(tries):
                read = refreshed(process) if attempt else process.log._head or refreshed(process)
                if read is None or _count(process, read) != "conflict":
                    break

    return program


def _count(process: Process, read: LogSnapshot) -> str:
    try:
        page_id, counted = _counter(read)
    except (StorageError, ObjectNotFoundError):
        return "failed"
    token = process.token()
    record = record_of(
        token,
        "count",
        read,
        ((1, counted + 1, None),),
        (Splice(COUNTER, 1, 0, (page_id,), 1, 0, 0, 1, 1, touched=((0, 1),)),),  # type: ignore[arg-type]
    )
    return commit(process, read, token, lambda _: record)


def _counter(read: LogSnapshot) -> tuple[int, int]:
    """The page that counts: its id, and how far it has come."""
    state = standing(read.state)
    known = _counters.get(state) if read.state.base is None else None  # else storage is asked each time
    if known is None:
        pages = read.chain((COUNTER, 1)).all_pages()
        known = _counters.keep(state, (int(pages.page_ids[0]), int(pages.numbers("checksum")[0])))
    return known  # type: ignore[no-any-return]


def creates_table(name: str) -> Program:
    """Creates a table; whoever loses the race for the name meets a conflict."""

    def program(process: Process) -> None:
        read = process.log._head or refreshed(process)
        if read is None:
            return
        token = process.token()

        def build(state: LogState) -> TransactionRecord:
            table = state.next_table_id
            intent = CatalogIntent(IntentKind.CREATE, table, 0, name, definition(table, name, 1))  # type: ignore[arg-type]
            return record_of(token, "create", read, (), (), intents=(intent,))

        commit(process, read, token, build)

    return program


def relies_on_counter() -> Program:
    """Serializable: appends rows only if the counter is as it has read it."""

    def program(process: Process) -> None:
        read = process.log._head or refreshed(process)
        if read is None:
            return
        token = process.token()
        record = record_of(
            token,
            "rely",
            read,
            ((1, 1, None), (1, 2, None)),
            tuple(Splice(ROWS, field, 0, (), 0, 0, field - 1, field, 1) for field in (1, 2)),  # type: ignore[arg-type]
        )
        commit(process, read, token, lambda _: record, frozenset({COUNTER}))

    return program


def resumes(program: Program) -> Program:
    """Does the same, and asks again for what was unknown."""

    def resuming(process: Process) -> None:
        program(process)
        context, process.unknown = process.unknown, None
        if context is None:
            return
        tokens = [record.token for record in context["data"].value.records]
        try:
            version = process.log.resume(Unknown(context["version"], context["token"], context["data"], ""))
        except CommitConflictError as error:
            for token in tokens:
                process.tell("refuse", token, f"resuming found a conflict: {error.message}")
        except (CommitUnknownError, StorageError):
            return
        else:
            for token in tokens:
                process.tell("acknowledge", token, version, None)

    return resuming


def reads(times: int = 2, chain: tuple[int, int] = (ROWS, 1)) -> Program:
    """Opens or refreshes, and reads a chain, so many times."""

    def program(process: Process) -> None:
        for _ in range(times):
            snapshot = refreshed(process)
            if snapshot is not None:
                _read_chain(process, snapshot, chain)

    return program


def _read_chain(process: Process, snapshot: LogSnapshot, chain: tuple[int, int]) -> None:
    version = snapshot.state.version
    try:
        try:
            pages = pages_of(snapshot, chain)
        except ObjectNotFoundError:  # vacuum passed: the same version stands on other objects now
            pages = pages_of(process.log.reopen(version), chain)
    except StorageError:
        return
    except SnapshotExpiredError:
        process.tell("expired", version)
    else:
        process.tell("check_pages", version, chain, pages)


def travels(versions: Sequence[int]) -> Program:
    """Reads old versions; what has been cleaned away may be refused, never answered wrongly."""

    def program(process: Process) -> None:
        for version in versions:
            try:
                snapshot = process.log.snapshot(version=version)
            except StorageError:
                continue
            except SnapshotExpiredError:
                process.tell("expired", version)
                continue
            except VersionNotFoundError:
                continue
            process.tell("check_seen", seen(snapshot))
            _read_chain(process, snapshot, (ROWS, 1))

    return program


def checkpoints(times: int = 1) -> Program:
    """Writes checkpoints of the newest version."""

    def program(process: Process) -> None:
        for _ in range(times):
            upkeep(process, process.log.checkpoint)

    return program


def compacts(times: int = 1) -> Program:
    """Bundles slots into compacted ranges."""

    def program(process: Process) -> None:
        for _ in range(times):
            upkeep(process, process.log.compact)

    return program


def vacuums(versions: int = 1, times: int = 1, orphans: bool = False) -> Program:
    """Keeps so many of the newest versions and deletes what only older ones need."""

    def program(process: Process) -> None:
        for _ in range(times):
            upkeep(process, lambda: vacuum(process.log, process.runtime(), versions, orphans))

    return program


def plans_and_executes(orphans: bool = False) -> Program:
    """Keeps the newest version: one plan, and its execution."""

    def program(process: Process) -> None:
        upkeep(process, lambda: plan_vacuum(process.log, process.runtime(), 1, orphans).execute())

    return program


def upkeep(process: Process, work: Callable[[], Any]) -> None:
    """Do the work; it may fail, where storage did, something was torn, or a vacuum came between."""
    try:
        work()
    except (StorageError, CommitConflictError, CommitUnknownError):
        return
    except DamageError as error:
        process.tell("damaged", f"{process.name} met {error}")
    except (ObjectNotFoundError, SnapshotExpiredError) as error:
        process.tell("missed", f"{process.name} met {type(error).__name__}: {error}")


def one_after_another(*programs: Program) -> Program:
    """All of them, by one process."""

    def program(process: Process) -> None:
        for each in programs:
            each(process)

    return program
