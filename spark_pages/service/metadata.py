"""MetadataService: one process keeps the metadata of a store current for many readers (seed 004, "DN")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spark_pages.arguments import MOST_NUMBER, Moment, as_int, as_microseconds, as_seconds, as_str, check_kind
from spark_pages.boundary import guarded
from spark_pages.catalog.identifiers import suggest
from spark_pages.catalog.resolve import TABLES_LISTED, find_namespace, look_up_in
from spark_pages.changes.feed import check_version_range
from spark_pages.display.text import moment
from spark_pages.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    TableNotFoundError,
)
from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.compaction.compacted_range import plan_reads
from spark_pages.log.discovery import version_at
from spark_pages.log.log import Log
from spark_pages.log.retention import check_version
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain_tree import ChainEdit, Piece
from spark_pages.model.names import fold_name
from spark_pages.model.run import PageRun
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TYPE_NAMES, TableDefinition
from spark_pages.runtime import Runtime
from spark_pages.service.extents import Extents, NamedBytes
from spark_pages.service.freshness import Freshness, SharedLoads
from spark_pages.service.log_queries import LogQueries
from spark_pages.service.responses import (
    PieceName,
    RedoLocation,
    SegmentLocation,
    TableMetaChanges,
    TableMetaSnapshot,
    piece_names,
)
from spark_pages.service.segment_locator import SegmentLocator, UnnamedSegmentError, node_of
from spark_pages.storage.store import ObjectStore
from spark_pages.versions.tags import tagged_version

_KEPT_VERSIONS = 64
_KEPT_ANSWERS = 256
_KEPT_TIMES = 1 << 14
_KEPT_LISTS = 8
_KEPT_EXTENTS = 4096
_SHORTEST_S = 1e-6

TableNames = tuple[str, str, int]
"""Namespace, name and id of a table."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version and the time at which it was committed, in microseconds since the epoch."""

    version: int
    timestamp_us: int


@dataclass(frozen=True, eq=False, slots=True)
class _CachedAnswer:
    """An answer, and what the service alone needs to go on from it."""

    answer: TableMetaSnapshot
    nodes: Mapping[int, Sequence[tuple[SegmentLocation, Node]]]


@guarded()
class MetadataService:
    """Answers what readers need of a store, out of memory where nothing is new.

    Parameters
    ----------
    object_store
        The store.
    runtime
        Clock and sleep.
    staleness_s
        Answers about the newest version show every commit that was acknowledged so long before; see
        `spark_pages.service.freshness.Freshness`.

    Notes
    -----
    Holds the newest version, the 64 other versions that were asked for last, and of each the redo since its
    checkpoint; objects of checkpoints are shared by all versions. So requests to storage grow with the
    commits, and with the different old versions asked for, never with the clients. Safe to share between
    threads. Knows nothing of tokens: who may ask what is decided in front of it.
    """

    def __init__(
        self, object_store: ObjectStore, runtime: Runtime | None = None, staleness_s: float = 1.0
    ) -> None:
        staleness_s = as_seconds(staleness_s, "staleness_s", _SHORTEST_S)
        check_kind(object_store, ObjectStore, "object_store", "an ObjectStore")
        self.objects = object_store
        check_kind(runtime, Runtime | None, "runtime", "a Runtime")
        self._runtime = runtime or Runtime()
        self._log = Log(object_store, self._runtime)
        self._versions: SharedLoads[int, LogSnapshot] = SharedLoads(_KEPT_VERSIONS)
        self._answers: SharedLoads[tuple[LogSnapshot, str, str], _CachedAnswer] = SharedLoads(_KEPT_ANSWERS)
        self._lists: SharedLoads[LogSnapshot, list[TableNames]] = SharedLoads(_KEPT_LISTS)
        self._times: SharedLoads[int, int] = SharedLoads(_KEPT_TIMES)
        self._extents: SharedLoads[tuple[int, PieceName, bool], Extents] = SharedLoads(_KEPT_EXTENTS)
        self._finder = SegmentLocator(TreeReader(object_store, self._runtime.map))
        self.freshness = Freshness(self._log.refresh_same, self._runtime, staleness_s, self._keep)
        self.log_queries = LogQueries(self._log, self.freshness, self._runtime)

    # versions

    @property
    def store_id(self) -> str:
        """Id of the store that is served."""
        return self._log.store_id

    def version_info(
        self, version: int | None = None, timestamp_us: int | None = None, tag: str | None = None
    ) -> VersionInfo:
        """Resolve a version: by number, time or tag, or the newest.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, InvalidInputError
        """
        if sum(each is not None for each in (version, timestamp_us, tag)) > 1:
            raise InvalidInputError(
                "Cannot choose a version: more than one of version, timestamp and tag were given.",
                hint="Pass one of `version`, `timestamp` and `tag`.",
            )
        if timestamp_us is not None:
            timestamp_us = as_microseconds(timestamp_us, "timestamp_us")
        head = self.freshness.newest()
        asked = ""
        if tag is not None:
            version, asked = tagged_version(head.state, tag), f"tag {tag!r}"
        elif timestamp_us is not None:
            version = version_at(self._time_of, head.state.version, timestamp_us)
            asked = f"as of {moment(timestamp_us, precise=True)} UTC"
        if version is None:
            return VersionInfo(
                head.state.version, self._log.date(head.state.version, head.state.timestamp_us)
            )
        version = as_int(version, "version")
        snapshot = self._at(version, asked)
        return VersionInfo(version, self._log.date(version, snapshot.state.timestamp_us))

    def tables(self, version: int | None = None) -> list[TableNames]:
        """Namespace, name and id of every table of a version, sorted by name; the system's own are left out.

        Notes
        -----
        Reads the whole catalog of the checkpoint where it is not in memory.
        """
        return [*self._on(version, self._list)]  # of its own: the service keeps the list

    def namespaces_and_types(self, version: int | None = None) -> list[TableDefinition]:
        """Read the definitions of the namespaces and types of a version."""
        kinds = (NAMESPACE_NAMES, TYPE_NAMES)
        return self._on(version, lambda snapshot: [each for kind in kinds for each in snapshot.tables(kind)])

    def namespace_called(self, db: str, version: int | None = None) -> str:
        """Return a namespace's name as it is spelled; as it was given where it or the version is missing.

        Raises
        ------
        InvalidInputError
            If several differ from it by case only.
        """
        db = as_str(db, "the name of a namespace")
        if fold_name(db) in BUILT_IN:  # no other namespace is called so, and no call of storage is needed
            return fold_name(db)
        try:
            return self._on(version, lambda snapshot: find_namespace(db, snapshot)[1])
        except NotFoundError:  # a version that is missing is named by what reads it
            return db

    # seed 004

    def get_table_meta_snapshot(
        self, db: str, table: str, ss: int | Moment | None = None
    ) -> TableMetaSnapshot:
        """Locate the checkpoint segments of a table, and return the splices committed since (seed 004).

        Parameters
        ----------
        db, table
            Namespace and name of the table in that version.
        ss
            The version, a whole number; or a time, for the last version not later than it, where it is any
            other `Moment`. The newest version by default.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, SnapshotExpiredError, InvalidInputError

        Notes
        -----
        Out of memory where somebody asked before. Else reads the parts of the checkpoint that list the table,
        and segments that hold a column between others, to count its pages.
        """
        db, table = _names(db, table)
        version_asked, timestamp_us = version_or_time(ss)
        if timestamp_us is not None:
            version_asked = self.version_info(timestamp_us=timestamp_us).version
        return self._on(version_asked, lambda snapshot: self._answer_for(snapshot, db, table).answer)

    def collect_table_meta_changes_in_range(
        self, db: str, table: str, from_: int, to: int | None = None
    ) -> TableMetaChanges:
        """Collect what the commits from version `from_` to `to`, both included, did to a table (seed 004).

        Parameters
        ----------
        db, table
            Namespace and name of the table at `to`.
        from_, to
            Versions, the ``[From, to]`` of seed 004; `to` is the newest one by default. The range is empty
            where `from_` is one above `to`.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, SnapshotExpiredError, InvalidInputError

        Notes
        -----
        Out of memory. What is older than the checkpoint under `to` is told by location.
        """
        from_ = as_int(from_, "from_")
        db, table = _names(db, table)

        def collect(snapshot: LogSnapshot) -> TableMetaChanges:
            state = snapshot.state
            check_version_range(from_, state.version, ("from_", "to"))
            answer = self._answer_for(snapshot, db, table).answer
            persisted_end = max(from_, state.base.version + 1 if state.base else 0)
            persisted = plan_reads(from_, persisted_end, state.compacted)
            return TableMetaChanges(
                answer.table_id,
                answer.definition,
                from_,
                state.version,
                state.timestamp_us,
                answer.checkpoint,
                tuple(RedoLocation(each.key, each.start, each.stop - 1) for each in persisted),
                {
                    field_id: tuple(edit for edit in edits if edit.version >= persisted_end)
                    for field_id, edits in answer.redo.items()
                },
            )

        return self._on(to, collect)

    # pieces of an answer

    def part(self, db: str, table: str, ss: int, name: PieceName) -> tuple[SegmentLocation, ...]:
        """Return the segments that a part lists for its column.

        Raises
        ------
        ObjectNotFoundError
            If the service's snapshot of the version does not name the part, or not any more: open it again.
        """
        db, table = _names(db, table)
        check_kind(name, PieceName, "name", "a PieceName")

        def of(snapshot: LogSnapshot) -> tuple[SegmentLocation, ...]:
            known = self._answer_for(snapshot, db, table)
            return tuple(place for place, _ in self._inside(known, name.field_id, name.digest))

        return self._on(ss, of)

    def piece(self, db: str, table: str, ss: int, name: PieceName) -> PageRun:
        """Return the pages of a piece, with their statistics; raises as `part`."""
        db, table = _names(db, table)
        check_kind(name, PieceName, "name", "a PieceName")
        return self._on(ss, lambda snapshot: self._piece(self._answer_for(snapshot, db, table), name))

    def stats(self, db: str, table: str, ss: int, name: PieceName) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the pages of a piece and their statistics; raises as `part`."""
        db, table = _names(db, table)
        check_kind(name, PieceName, "name", "a PieceName")

        def of(snapshot: LogSnapshot) -> tuple[pa.RecordBatch, pa.RecordBatch]:
            run = self._piece(self._answer_for(snapshot, db, table), name)
            return run.pages, run.stats

        return self._on(ss, of)

    def read(self, db: str, table: str, ss: int, wanted: NamedBytes) -> list[bytes]:
        """Bytes of a page file; those that are no page or bloom filter of the pieces named are zero.

        Raises
        ------
        ObjectNotFoundError
            If the snapshot does not name the pieces, the pieces hold no byte of what is asked, or the file is
            gone.

        Notes
        -----
        One request for each range, where ranges do not touch.
        """
        db, table = _names(db, table)
        check_kind(wanted, NamedBytes, "wanted", "a NamedBytes")

        def of(snapshot: LogSnapshot) -> list[bytes]:
            known = self._answer_for(snapshot, db, table)
            extents = [self._extents_of(known, name, wanted.blooms) for name in wanted.pieces]
            wanted.check(extents)
            found = self.objects.get_ranges(wanted.path, list(wanted.ranges))
            return [
                wanted.masked(extents, offset, data)
                for (offset, _), data in zip(wanted.ranges, found, strict=True)
            ]

        return self._on(ss, of)

    # inside

    def _answer_for(self, snapshot: LogSnapshot, db: str, table: str) -> _CachedAnswer:
        return self._answers.get(
            (snapshot, db, table), lambda: self._describe(snapshot, self._find(snapshot, db, table))
        )

    def _find(self, snapshot: LogSnapshot, db: str, table: str) -> TableDefinition:
        """Find the definition of a live table, without suggesting names that the caller may not see."""
        version = snapshot.state.version
        shown = f"{db}.{table}"
        try:
            namespace, db = find_namespace(db, snapshot)
        except NamespaceNotFoundError as missing:
            raise TableNotFoundError(
                f"Cannot find table {shown!r} at version {version}: there is no namespace "
                f"{shown.rpartition('.')[0]!r}.",
                hint="`snapshot.namespaces()` lists the namespaces.",
                table=shown,
                version=version,
            ) from missing
        definition = look_up_in(namespace, table, snapshot, f"{db}.")
        if definition is None or not definition.is_table:
            names = [name for of, name, _ in self._list(snapshot) if of == db]
            raise TableNotFoundError(
                f"Cannot find table {shown!r} at version {version}: there is none of that name.",
                hint=suggest(table, names) or TABLES_LISTED,
                table=shown,
                version=version,
            )
        return definition

    def _list(self, snapshot: LogSnapshot) -> list[TableNames]:
        def read() -> list[TableNames]:
            return [
                (d.namespace, d.name, d.table_id)
                for d in snapshot.tables()
                if d.is_table and d.namespace_id >= 0
            ]

        return self._lists.get(snapshot, read)

    def _describe(self, snapshot: LogSnapshot, definition: TableDefinition) -> _CachedAnswer:
        table_id, state = definition.table_id, snapshot.state
        nodes: dict[int, Sequence[tuple[SegmentLocation, Node]]] = {}
        redo: dict[int, tuple[ChainEdit, ...]] = {}
        for key in snapshot.chains_of(definition):
            field_id = key[1]
            if snapshot.checkpoint is not None:
                nodes[field_id] = self._finder.locate(snapshot.checkpoint, key)
            redo[field_id] = state.edits.get(key, ())
        places = {field_id: tuple(place for place, _ in found) for field_id, found in nodes.items()}
        answer = TableMetaSnapshot(
            table_id, definition, state.version, state.timestamp_us, state.base, places, redo
        )
        return _CachedAnswer(answer, nodes)

    def _inside(self, known: _CachedAnswer, field_id: int, digest: str) -> list[tuple[SegmentLocation, Node]]:
        found = known.nodes.get(field_id, ())
        part = node_of(found, digest, _named(known.answer))
        if not any(place.is_part and node is part for place, node in found):
            raise UnnamedSegmentError(
                f"{_named(known.answer)} names no part {digest[:80]!r}.", hint="Open it again."
            )
        return self._finder.locate_in_part(part, (known.answer.table_id, field_id))

    def _piece(self, known: _CachedAnswer, name: PieceName) -> PageRun:
        if name.commit >= 0:
            return _loaded(self._edit(known.answer, name).added)
        found: Sequence[tuple[SegmentLocation, Node]] = known.nodes.get(name.field_id, ())
        if name.part:
            found = self._inside(known, name.field_id, name.part)
        found = [(place, node) for place, node in found if not place.is_part]
        node = node_of(found, name.digest, _named(known.answer))
        return self._finder.pages(node, (known.answer.table_id, name.field_id))

    def _edit(self, answer: TableMetaSnapshot, name: PieceName) -> ChainEdit:
        edits = answer.redo.get(name.field_id, ())
        for other, edit in zip(piece_names(name.field_id, edits), edits, strict=True):
            if (other.commit, other.nth) == (name.commit, name.nth):
                return edit
        raise UnnamedSegmentError(
            f"{_named(answer)} has no splice {name.nth} of commit {name.commit} in its redo.",
            hint="Open it again.",
        )

    def _extents_of(self, known: _CachedAnswer, name: PieceName, blooms: bool) -> Extents:
        run = self._piece(known, name)  # that the snapshot names it is looked at each time
        return self._extents.get((known.answer.table_id, name, blooms), lambda: Extents.of(run, blooms))

    def _on(self, version: int | None, work: Callable[[LogSnapshot], Answer]) -> Answer:
        """Run the work on a version, and again on the retained objects if one was removed."""
        snapshot = self.freshness.newest() if version is None else self._at(as_int(version, "version"))
        try:
            return work(snapshot)
        except UnnamedSegmentError:
            raise  # not a matter of storage, and so not worth a request
        except ObjectNotFoundError:
            number = snapshot.state.version
            self._versions.drop(number)
            again = self._versions.get(number, lambda: self._log.reopen(number))
            if again is snapshot:
                raise
        return work(again)

    def _at(self, version: int, asked: str = "") -> LogSnapshot:
        head = self.freshness.at_least(version)
        check_version(head.state, version, asked)
        if version == head.state.version:
            return head
        return self._versions.get(version, lambda: self._log.snapshot(version, asked=asked))

    def _keep(self, snapshot: LogSnapshot) -> None:
        self._versions.put(snapshot.state.version, snapshot)

    def _time_of(self, version: int) -> int:
        recorded = self._times.get(version, lambda: self._log.recorded_time_of(version))
        return self._log.date(version, recorded)


def version_or_time(ss: int | Moment | None) -> tuple[int | None, int | None]:
    """Return the version that is meant, or the time in microseconds, whichever it is; None for the other."""
    if ss is None:
        return None, None
    if isinstance(ss, datetime | str | np.datetime64 | pa.TimestampScalar):
        return None, as_microseconds(ss, "ss")
    return as_int(ss, "ss", "a version or a time", 0, MOST_NUMBER), None


def _names(db: str, table: str) -> tuple[str, str]:
    return as_str(db, "the name of a namespace"), as_str(table, "the name of a table")


def _loaded(piece: Piece) -> PageRun:
    """Return the pages of a splice, from its page manifest if it has one."""
    if isinstance(piece, PageRun):
        return piece
    (run,) = piece.expand()
    assert isinstance(run, PageRun)
    return run


def _named(answer: TableMetaSnapshot) -> str:
    return f"Table {answer.definition.name!r} at version {answer.version}"
