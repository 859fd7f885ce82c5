"""The state and the history of a store as Delta tables that any Delta client reads. No pyspark here.

Checkpoints are Parquet files already. `publish_delta` keeps Delta logs beside them, in which each checkpoint
is one commit: new segments, manifest parts and the root are added, those that it replaced are removed, and
nothing is copied. These tables are *guarded* (`delta_log.GUARD`): a client that writes, optimises or vacuums
them would harm the store, and is refused. Commit history and change feed are tables of their own, which only
grow, below ``_delta/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from spark_pages.arguments import as_flag, check_callable
from spark_pages.boundary import guard
from spark_pages.changes.history import HISTORY_SCHEMA, history_of
from spark_pages.errors import ObjectNotFoundError
from spark_pages.format.features import check_writable
from spark_pages.format.names import DELTA
from spark_pages.format.segment import NODE_SCHEMA, SEGMENT_SCHEMA
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from spark_pages.progress import advance, current, phase
from spark_pages.runtime import Runtime
from spark_pages.spark.delta_log import DeltaFile, DeltaLog, DeltaState, DeltaTable
from spark_pages.spark.feed import FEED_SCHEMAS, Feed, first_changes, split_versions
from spark_pages.spark.serialization import objects_of, store_url

SEGMENTS = DeltaTable(
    "_log/segments/", "segments", "page descriptors", SEGMENT_SCHEMA, "spark_pages-segments", guarded=True
)
PARTS = DeltaTable("_log/parts/", "parts", "manifest parts", NODE_SCHEMA, "spark_pages-parts", guarded=True)
ROOTS = DeltaTable(
    "_log/checkpoints/", "roots", "checkpoints", NODE_SCHEMA, "spark_pages-roots", guarded=True
)
HISTORY = DeltaTable(
    f"{DELTA}history/",
    "history",
    "transactions",
    HISTORY_SCHEMA,
    "spark_pages-history",
    guarded=False,
)
CHANGES = DeltaTable(
    f"{DELTA}changes/",
    "changes",
    "the change feed",
    FEED_SCHEMAS["rows"],
    "spark_pages-changes",
    guarded=False,
)
TABLES = (SEGMENTS, PARTS, ROOTS, HISTORY, CHANGES)
"""Everything that is published, with its folder in the store."""

VERSIONS_OF_A_FILE = 4096

WriteFile = Callable[[], DeltaFile]
RunAll = Callable[[Sequence[WriteFile]], list[DeltaFile]]
"""Carries out pieces of work, here or on executors."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication did.

    Attributes
    ----------
    checkpoint, version
        The newest checkpoint that is published (None where the store has none), and the newest version of
        history and change feed.
    checkpoints
        How many were published now, each by a commit of its own.
    files_added, files_removed
        Of the guarded tables together; by reference.
    bytes_written
        Of Delta logs, and of the files of history and change feed.
    """

    checkpoint: int | None
    version: int
    checkpoints: int
    files_added: int
    files_removed: int
    bytes_written: int


@guard
def publish_delta(
    url: str, *, history: bool = True, run: RunAll | None = None, profile: str | None = None
) -> Published:
    """Publish every new checkpoint as a version of the Delta tables, with history and change feed.

    Parameters
    ----------
    url, profile
        The store, and storage options by name.
    history
        Whether commit history and change feed are published too.
    run
        Writes the files of the latter; in this process by default.

    Raises
    ------
    CommitConflictError
        If other processes kept publishing meanwhile.
    UnsupportedFormatError
        If the store asks its writers to know what this release does not.

    Notes
    -----
    May be killed at any point, repeated, and run twice at once: what is published already is told by the
    ``txn`` of the Delta logs. The first time only the newest checkpoint is published. Costs one small commit
    for each checkpoint and table, and the roots and manifest parts that changed.
    """
    history = as_flag(history, "history")
    if run is not None:
        check_callable(run, "run")
    url = store_url(url, profile)
    log = Log(objects_of(url), Runtime())
    publisher = Publisher(log)
    phase("publishing checkpoints", unit="checkpoints")
    checkpoints = publisher.publish_checkpoints()
    if history:
        phase("publishing history and changes")
        publisher.publish_history(url, run or (lambda work: [each() for each in work]))
    return Published(
        publisher.newest,
        log.known().state.version,
        checkpoints,
        publisher.files_added,
        publisher.files_removed,
        publisher.bytes_written,
    )


class Publisher:
    """One publication, and what it has done so far."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._runtime = Runtime()
        self._logs = {table.name: DeltaLog(log.store, self._runtime, table) for table in TABLES}
        self.newest: int | None = None
        self.files_added = self.files_removed = self.bytes_written = 0

    def publish_checkpoints(self) -> int:
        """Every checkpoint since the last publication is published; gives how many."""
        due = [*self._unpublished()]
        check_writable(self._log.known().state.features)
        current().total = len(due)
        published = 0
        for checkpoint in reversed(due):
            published += self.publish(checkpoint)
            advance()
        return published

    def published(self) -> int:
        """Return the newest checkpoint that all guarded tables show; -1 if there is none."""
        return min(self._logs[table.name].state().published for table in (SEGMENTS, PARTS, ROOTS))

    def plan_checkpoints(self) -> int:
        """How many checkpoints `publish_checkpoints` would publish; counts files, and writes nothing."""
        states = {name: delta.state() for name, delta in self._logs.items()}
        planned = 0
        for checkpoint in reversed([*self._unpublished()]):
            version = checkpoint.ref.version
            due = {n: f for n, f in _files_of(checkpoint).items() if states[n].published < version}
            for name, wanted in due.items():
                self._difference(wanted, states[name])
                states[name] = DeltaState(states[name].version + 1, version, wanted)
            planned += bool(due)
        return planned

    def publish(self, checkpoint: Checkpoint) -> bool:
        """Publish a checkpoint, and return whether it was new."""
        before = self.bytes_written
        for name, wanted in _files_of(checkpoint).items():
            plan = partial(self._difference, wanted)
            self.bytes_written += self._logs[name].commit(checkpoint.ref.version, plan)
        return self.bytes_written > before

    def _unpublished(self) -> Iterator[Checkpoint]:
        """Iterate over unpublished checkpoints, newest first."""
        head = self._log.refresh_to_write()
        checkpoint = head.checkpoint
        if checkpoint is None:
            return
        self.newest = checkpoint.ref.version
        published = self.published()
        oldest = head.state.retention.min_readable if head.state.retention else 0
        yield checkpoint
        while published >= 0 and checkpoint.root.predecessors:
            _, ref = checkpoint.root.predecessors[0]
            if ref.version <= published or ref.version < oldest:
                return
            try:
                checkpoint = Checkpoint(ref, checkpoint.tree)
            except ObjectNotFoundError:
                return  # vacuum has taken it: nobody will read that version
            yield checkpoint

    def _difference(
        self, wanted: dict[str, DeltaFile], state: DeltaState
    ) -> tuple[Sequence[DeltaFile], Sequence[str]]:
        there = state.files or {}
        adds = [file for path, file in wanted.items() if path not in there]
        removes = [path for path in there if path not in wanted]
        self.files_added += len(adds)
        self.files_removed += len(removes)
        return adds, removes

    def unpublished_commits(self) -> int:
        """How many commits `publish_history` would add to the history."""
        head = self._log.refresh().state
        told = max(self._logs[HISTORY.name].state().published, oldest_readable(head) - 1)
        return max(0, head.version - told)

    def publish_history(self, url: str, run: RunAll) -> None:
        """History and change feed reach to the newest version."""
        head = self._log.refresh().state
        check_writable(head.features)
        for name, write in (("history", _write_history), ("changes", _write_changes)):
            delta = self._logs[name]

            def plan(
                state: DeltaState, write: Callable[[str, int, int], DeltaFile] = write
            ) -> tuple[Sequence[DeltaFile], Sequence[str]]:
                readable = oldest_readable(head) if write is _write_history else first_changes(head)
                start = max(state.published + 1, readable)
                stretches = split_versions(start, head.version, VERSIONS_OF_A_FILE)
                made = run([partial(write, url, first, last) for first, last in stretches])
                self.bytes_written += sum(file.size_bytes for file in made)
                return [file for file in made if file.num_rows], []

            self.bytes_written += delta.commit(head.version, plan)


def _files_of(checkpoint: Checkpoint) -> dict[str, dict[str, DeltaFile]]:
    """Return the files of a checkpoint by Delta table and path."""
    root = checkpoint.root
    parts = [(part, checkpoint.tree.part(part)) for part in root.parts]
    location = checkpoint.ref.location
    name = location.key.rpartition("/")[2]
    return {
        "segments": {
            f"{node.digest}.parquet": DeltaFile(f"{node.digest}.parquet", node.length, node.pages)
            for _, nodes in parts
            for node in nodes
        },
        "parts": {
            f"{part.digest}.parquet": DeltaFile(f"{part.digest}.parquet", part.length, len(nodes))
            for part, nodes in parts
        },
        "roots": {name: DeltaFile(name, location.length, len(root.parts))},
    }


def _write_history(url: str, start: int, end: int) -> DeltaFile:
    """Write a file with the transactions of versions `start` to `end`, both included."""
    log = Log(objects_of(url), Runtime())
    return _write(url, HISTORY, start, end, history_of(log, start, end))


def _write_changes(url: str, start: int, end: int) -> DeltaFile:
    """Write a file with what versions `start` to `end`, both included, did to rows."""
    return _write(url, CHANGES, start, end, Feed(url, "rows", None).read(start, end))


def _write(url: str, table: DeltaTable, start: int, end: int, rows: pa.Table) -> DeltaFile:
    path = f"{start:020d}-{end:020d}-{Runtime().token()}.parquet"  # of this attempt alone
    if not rows.num_rows:
        return DeltaFile(path, 0, 0)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    objects_of(url).put(f"{table.root}{path}", data)
    return DeltaFile(path, len(data), rows.num_rows)
