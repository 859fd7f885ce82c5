"""Snapshot reconstruction by Spark: the descriptors of every page of a version, from checkpoint and commits.

Two passes, both over names made by the driver, never over a listing. First executors count (`fold`), then
they read the same segments and commits again and give each page its first row; removed pages leave by an
anti-join on their ids. No window, no global prefix sum.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import VersionNotFoundError
from spark_pages.log.checkpoint import Checkpoint, TreeReader
from spark_pages.log.digest import check_object
from spark_pages.log.head import SlotReader, nearest_checkpoint
from spark_pages.log.log import Log
from spark_pages.log.names import segment_key
from spark_pages.log.replay import form_ids
from spark_pages.log.segment import Segment, decode_manifest, decode_segment
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import TransactionRecord
from spark_pages.model.location import Location
from spark_pages.model.run import LOCATION_COLUMNS, PAGE_SCHEMA
from spark_pages.runtime import Runtime
from spark_pages.spark.fold import CommitCount, Layout, SegmentCount, SpliceCount, fold_counts
from spark_pages.spark.shipping import objects_of, store_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DESCRIPTOR = [pa.field(f.name, pa.string() if f.name == "path" else f.type) for f in PAGE_SCHEMA]
_ROWS_SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64()),
        pa.field("field_id", pa.int32()),
        pa.field("first_row", pa.int64()),
        pa.field("added_by", pa.int64()),
        pa.field("ordinal", pa.int32()),
        pa.field("removed", pa.bool_()),
        *_DESCRIPTOR,
    ]
)
_ORDER = ["table_id", "field_id", "first_row", "has_rows", "added_by", "ordinal"]
"""Pages without rows stand before the page that begins at the same row; among themselves, by age."""

_COMPARED = ["page_id", *(f.name for f in _DESCRIPTOR if f.name not in ("page_id", *LOCATION_COLUMNS))]
_COMMITS_PER_TASK = 64
_SEGMENTS_PER_TASK = 16


def reconstruct_snapshot(
    spark: SparkSession,
    url: str,
    version: int | None = None,
    output: str | None = None,
    check: bool = True,
) -> dict[str, Any]:
    """The page descriptors of every live chain at a version, computed by Spark.

    Parameters
    ----------
    spark, url
        A session, and the store.
    version
        The newest by default.
    output
        A folder that does not exist yet; receives the descriptors as Parquet, in chain order.
    check
        Compare with the local snapshot, descriptor by descriptor, without where a page is.

    Returns
    -------
    dict
        ``ok``, ``version``, ``checkpoint`` (version it stands on, or None), ``segments``, ``commits``,
        ``chains``, ``pages``, ``equal_to_local`` (None without `check`),
        ``differences`` (the first few chains that differ), ``output``, ``seconds``.

    Raises
    ------
    VersionNotFoundError, SnapshotExpiredError

    Notes
    -----
    Below some ten million pages a single process is as fast; `check` loads all of them into it.
    """
    started = time.monotonic()
    url = store_url(url)
    source = _source(url, version)
    counts = _count(spark, url, source)
    layout = fold_counts(
        [each for each in counts if isinstance(each, SegmentCount)],
        [each for each in counts if isinstance(each, CommitCount)],
        source.checkpoint.tables() if source.checkpoint else (),
    )
    rows = _rows(spark, url, source, layout).persist()  # read by both sides of the anti-join
    try:
        pages = _fold(rows)
        if output is not None:
            pages.orderBy(*_ORDER).drop("has_rows", "added_by", "ordinal").write.parquet(output)
        found = pages.select("table_id", "field_id", *_COMPARED, *_ORDER[2:]).toArrow() if check else None
        num_pages = pages.count() if found is None else found.num_rows
    finally:
        rows.unpersist()
    differences: list[str] = []
    if found is not None:
        differences = _differences(found, source.log.snapshot(source.version), layout)
    return {
        "ok": not differences,
        "version": source.version,
        "checkpoint": source.checkpoint.ref.version if source.checkpoint else None,
        "segments": len(source.segments),
        "commits": len(source.commits),
        "chains": len(layout.chains()),
        "pages": num_pages,
        "equal_to_local": not differences if check else None,
        "differences": differences[:5],
        "output": output,
        "seconds": round(time.monotonic() - started, 3),
    }


@dataclass(frozen=True, eq=False, slots=True)
class _Source:
    """What a version is made of: a checkpoint's segments, and the commits after it."""

    log: Log
    version: int
    checkpoint: Checkpoint | None
    segments: list[Location]
    commits: range


def _source(url: str, version: int | None) -> _Source:
    objects = objects_of(url)
    log = Log(objects, Runtime())
    head = log.snapshot().state
    version = head.version if version is None else version
    oldest = head.retention.min_readable if head.retention else 0
    if not oldest <= version <= head.version:
        raise VersionNotFoundError(
            f"Version {version} cannot be read: the store has versions {oldest} to {head.version}.",
            version=version,
            oldest=oldest,
            newest=head.version,
        )
    tree = TreeReader(objects)
    ref = nearest_checkpoint(tree, head.newest_checkpoint, version)
    checkpoint = Checkpoint(ref, tree) if ref else None
    nodes = [
        node
        for parts in (checkpoint.levels().values() if checkpoint else ())
        for part in parts
        for node in tree.part(part)
    ]
    segments = [Location(segment_key(node.digest), node.length, node.digest) for node in nodes]
    first = ref.version + 1 if ref else 0
    return _Source(log, version, checkpoint, segments, range(first, version + 1))


# first pass: counts


def _count(spark: SparkSession, url: str, source: _Source) -> list[SegmentCount | CommitCount]:
    tasks: list[_CountSegments | _CountCommits] = [
        *(
            _CountSegments(url, tuple(group))
            for group in _groups(list(enumerate(source.segments)), _SEGMENTS_PER_TASK)
        ),
        *(_CountCommits(url, tuple(group)) for group in _groups(source.commits, _COMMITS_PER_TASK)),
    ]
    context = spark.sparkContext
    counts: list[SegmentCount | CommitCount] = (
        context.parallelize(tasks, max(len(tasks), 1)).flatMap(_run_count).collect()
    )
    return counts


def _groups(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _run_count(task: _CountSegments | _CountCommits) -> list[SegmentCount | CommitCount]:
    return [*task.counts()]


@dataclass(frozen=True, slots=True)
class _CountSegments:
    url: str
    segments: tuple[tuple[int, Location], ...]

    def counts(self) -> list[SegmentCount]:
        found = []
        for index, location in self.segments:
            segment = _read_segment(self.url, location)
            for start, stop in _chain_bounds(segment):
                key = (int(segment.table_ids[start]), int(segment.field_ids[start]))
                entries = segment.pages.column("entry_count").to_numpy()[start:stop]
                found.append(SegmentCount(index, key, int(entries.sum())))
        return found


@dataclass(frozen=True, slots=True)
class _CountCommits:
    url: str
    versions: tuple[int, ...]

    def counts(self) -> list[CommitCount]:
        found = []
        for commit in SlotReader(objects_of(self.url)).commits(self.versions[0], self.versions[-1] + 1):
            intents = [(index, i) for index, record in enumerate(commit.records) for i in record.intents]
            splices = [
                SpliceCount(
                    index,
                    number,
                    (splice.table_id, splice.field_id),
                    splice.first_row,
                    bool(splice.removed),
                    splice.removed_entries,
                    splice.added_entries,
                )
                for index, record in enumerate(commit.records)
                for number, splice in enumerate(record.splices)
            ]
            found.append(CommitCount(commit.version, tuple(intents), tuple(splices)))
        return found


def _read_segment(url: str, location: Location) -> Segment:
    return decode_segment(check_object(objects_of(url).get(location.key), location), location.key)


def _chain_bounds(segment: Segment) -> list[tuple[int, int]]:
    """[start, stop) of each chain in a segment."""
    keys = segment.keys
    if not len(keys):
        return []
    edges = (np.flatnonzero(np.diff(keys)) + 1).tolist()
    return list(zip([0, *edges], [*edges, len(keys)], strict=True))


# second pass: pages with their first rows


def _rows(spark: SparkSession, url: str, source: _Source, layout: Layout) -> DataFrame:
    """A row for each page that a segment or commit holds, and one for each page that a commit removes."""
    from pyspark.sql.pandas.types import from_arrow_schema

    starts: dict[int, dict[tuple[int, int], int]] = {}
    for (segment, key), row in layout.segments.items():
        starts.setdefault(segment, {})[key] = row
    splices: dict[int, dict[tuple[int, int], int | None]] = {}
    for (version, record, number), row in layout.splices.items():
        alive = (version, record, number) not in layout.dead
        splices.setdefault(version, {})[record, number] = row if alive else None
    live = frozenset(layout.chains())
    cleared = frozenset(layout.cleared)
    tasks: list[_SegmentRows | _CommitRows] = []
    for group in _groups(list(enumerate(source.segments)), _SEGMENTS_PER_TASK):
        given = tuple((index, location, starts.get(index, {})) for index, location in group)
        keys = {key for _, _, firsts in given for key in firsts}
        dead = frozenset(key for key in keys if key not in live or key[0] in cleared)
        tasks.append(_SegmentRows(url, given, dead))
    tasks.extend(
        _CommitRows(url, tuple((version, splices.get(version, {})) for version in group), live)
        for group in _groups(source.commits, _COMMITS_PER_TASK)
    )
    packed = [(pickle.dumps(task),) for task in tasks]
    names = spark.createDataFrame(spark.sparkContext.parallelize(packed, max(len(packed), 1)), "task binary")
    return names.mapInArrow(_run_rows, from_arrow_schema(_ROWS_SCHEMA))


def _run_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column(0).to_pylist():
            yield from pickle.loads(packed).rows()  # noqa: S301 - made by our own driver


@dataclass(frozen=True, slots=True)
class _SegmentRows:
    url: str
    segments: tuple[tuple[int, Location, dict[tuple[int, int], int]], ...]
    dead: frozenset[tuple[int, int]]

    def rows(self) -> Iterator[pa.RecordBatch]:
        for index, location, firsts in self.segments:
            segment = _read_segment(self.url, location)
            for start, stop in _chain_bounds(segment):
                key = (int(segment.table_ids[start]), int(segment.field_ids[start]))
                if key not in self.dead:
                    pages = segment.pages.slice(start, stop - start)
                    # Segments are in chain order, so their number stands for age: all before any commit.
                    yield _added(key, pages, firsts[key], index - (1 << 40))


@dataclass(frozen=True, slots=True)
class _CommitRows:
    url: str
    versions: tuple[tuple[int, dict[tuple[int, int], int | None]], ...]
    live: frozenset[tuple[int, int]]

    def rows(self) -> Iterator[pa.RecordBatch]:
        firsts = dict(self.versions)
        objects = objects_of(self.url)
        for commit in SlotReader(objects).commits(self.versions[0][0], self.versions[-1][0] + 1):
            for index, record in enumerate(commit.records):
                sources = _Sources(record, commit.version, objects.get)
                for number, splice in enumerate(record.splices):
                    key = (splice.table_id, splice.field_id)
                    if key not in self.live:
                        continue
                    if splice.removed:
                        yield _removed(splice.removed)
                    first_row = firsts[commit.version][index, number]
                    if first_row is not None and splice.stop > splice.start:
                        pages = sources.pages(splice.source).slice(splice.start, splice.stop - splice.start)
                        yield _added(key, pages, first_row, commit.version)


class _Sources:
    """The pages that a record brings: its own, and those of its page manifests, each read once."""

    def __init__(self, record: TransactionRecord, version: int, get: Callable[[str], bytes]) -> None:
        self._record = record
        self._version = version
        self._get = get
        self._read: dict[int, pa.RecordBatch] = {}

    def pages(self, source: int) -> pa.RecordBatch:
        if source not in self._read:
            record = self._record
            if source == 0:
                self._read[0] = form_ids(record.pages, self._version, record.base_ordinal)
            else:
                manifest = record.manifests[source - 1]
                data = check_object(self._get(manifest.location.key), manifest.location)
                listed = decode_manifest(data, manifest.location.key)[0]
                self._read[source] = form_ids(listed, self._version, manifest.base_ordinal)
        return self._read[source]


def _added(key: tuple[int, int], pages: pa.RecordBatch, first_row: int, added_by: int) -> pa.RecordBatch:
    n = pages.num_rows
    entries: NDArray[np.int64] = pages.column("entry_count").to_numpy()
    columns = {field.name: pages.column(field.name).cast(field.type) for field in _DESCRIPTOR}
    columns |= {
        "table_id": pa.repeat(pa.scalar(key[0], pa.int64()), n),
        "field_id": pa.repeat(pa.scalar(key[1], pa.int32()), n),
        "first_row": pa.array(first_row + np.cumsum(entries) - entries),
        "added_by": pa.repeat(pa.scalar(added_by, pa.int64()), n),
        "ordinal": pa.array(np.arange(n, dtype=np.int32)),
        "removed": pa.repeat(pa.scalar(False), n),
    }
    return pa.record_batch([columns[name] for name in _ROWS_SCHEMA.names], schema=_ROWS_SCHEMA)


def _removed(page_ids: tuple[int, ...]) -> pa.RecordBatch:
    n = len(page_ids)
    columns = {field.name: pa.nulls(n, field.type) for field in _ROWS_SCHEMA}
    columns["page_id"] = pa.array(page_ids, pa.int64())
    columns["removed"] = pa.repeat(pa.scalar(True), n)
    schema = pa.schema([field.with_nullable(True) for field in _ROWS_SCHEMA])
    return pa.record_batch([columns[name] for name in _ROWS_SCHEMA.names], schema=schema)


def _fold(rows: DataFrame) -> DataFrame:
    """The pages that were added and not removed."""
    from pyspark.sql import functions as f

    removed = rows.filter("removed").select("page_id")
    added = rows.filter("not removed").drop("removed")
    return added.join(removed, "page_id", "left_anti").withColumn("has_rows", f.expr("entry_count > 0"))


# the comparison


def _differences(found: pa.Table, local: LogSnapshot, layout: Layout) -> list[str]:
    """Chains whose descriptors, or whose order, are not those of the local snapshot."""
    found = found.combine_chunks().sort_by([(name, "ascending") for name in _ORDER])
    keys = (found.column("table_id").to_numpy() << 32) | found.column("field_id").to_numpy()
    differing = []
    expected_keys = sorted(set(local.chain_keys()) | layout.chains())
    for table_id, field_id in expected_keys:
        key = (table_id << 32) | field_id
        start, stop = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        mine = found.slice(start, stop - start).select(_COMPARED)
        theirs = pa.Table.from_batches([local.chain((table_id, field_id)).all_pages().pages]).select(
            _COMPARED
        )
        if not all(
            mine.column(name).combine_chunks().equals(theirs.column(name).combine_chunks())
            for name in _COMPARED
        ):
            differing.append(
                f"table {table_id} field {field_id}: {mine.num_rows} and {theirs.num_rows} pages"
            )
    if found.num_rows != sum(local.chain(key).num_pages for key in expected_keys):
        differing.append("pages of chains that are not live")
    return differing
