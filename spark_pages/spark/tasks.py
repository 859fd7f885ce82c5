"""What executors do in a reconstruction: first they count rows, then they give each page its first row.

`CountSegments` and `CountCommits` make the counts that `fold` turns into a layout; `SegmentRows` and
`CommitRows` read the same objects again, with the layout. No pyspark here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.log.checkpoint import TreeReader
from spark_pages.log.head import SlotReader
from spark_pages.log.replay import form_ids
from spark_pages.log.segment import decode_manifest
from spark_pages.log.tree import Node
from spark_pages.model.actions import Commit, Splice, TransactionRecord
from spark_pages.model.chain import ChainKey
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, no_stats
from spark_pages.spark.arrow_types import spark_type
from spark_pages.spark.fold import CommitCount, SegmentCount, SpliceCount
from spark_pages.spark.shipping import objects_of

DESCRIPTOR = [pa.field(f.name, spark_type(f.type)) for f in (*PAGE_SCHEMA, *STATS_SCHEMA)]
"""The fields of a page descriptor and its statistics, in types that Spark has."""

ROWS_SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64()),
        pa.field("field_id", pa.int32()),
        pa.field("first_row", pa.int64()),
        pa.field("removed", pa.bool_()),
        *DESCRIPTOR,
    ]
)
"""A page that a segment or a commit brings; or, if `removed`, the id of one that a commit takes away."""


@dataclass(frozen=True, slots=True)
class CountSegments:
    """Counts the rows of each chain in segments of a checkpoint.

    Attributes
    ----------
    url
        The store.
    segments
        Their numbers, and their nodes in the tree of the checkpoint.
    """

    url: str
    segments: tuple[tuple[int, Node], ...]

    def counts(self) -> Iterator[SegmentCount]:
        """One count for each chain and segment."""
        tree = TreeReader(objects_of(self.url))
        for number, node in self.segments:
            segment = tree.segment(node)
            entries = segment.pages.column("entry_count").to_numpy()
            for key, start, stop in segment.chains():
                yield SegmentCount(number, key, int(entries[start:stop].sum()))


@dataclass(frozen=True, slots=True)
class CountCommits:
    """Counts what the splices of commits add and remove.

    Attributes
    ----------
    url
        The store.
    versions
        Consecutive versions.
    """

    url: str
    versions: tuple[int, ...]

    def counts(self) -> Iterator[CommitCount]:
        """One count for each commit."""
        for commit in _read_commits(self.url, self.versions):
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
            yield CommitCount(commit.version, tuple(intents), tuple(splices))


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Gives the pages of segments with their first rows.

    Attributes
    ----------
    url
        The store.
    segments
        Their nodes, and at which row each chain begins in each; chains left out are gone.
    """

    url: str
    segments: tuple[tuple[Node, Mapping[ChainKey, int]], ...]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Batches of `ROWS_SCHEMA`."""
        tree = TreeReader(objects_of(self.url))
        for node, first_rows in self.segments:
            segment = tree.segment(node)
            stats = tree.stats(node) if node.stats_length else no_stats(node.pages)
            for key, start, stop in segment.chains():
                if key in first_rows:
                    count = stop - start
                    yield _added(
                        key, segment.pages.slice(start, count), stats.slice(start, count), first_rows[key]
                    )


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Gives the pages that commits add, with their first rows, and the ids of those that they remove.

    Attributes
    ----------
    url
        The store.
    commits
        Consecutive versions, and at which row each splice ``(record, splice)`` begins; splices left out
        are of chains that are gone.
    """

    url: str
    commits: tuple[tuple[int, Mapping[tuple[int, int], int]], ...]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Batches of `ROWS_SCHEMA`."""
        first_rows = dict(self.commits)
        for commit in _read_commits(self.url, tuple(first_rows)):
            for index, record in enumerate(commit.records):
                sources = _Sources(self.url, record, commit.version)
                for number, splice in enumerate(record.splices):
                    first_row = first_rows[commit.version].get((index, number))
                    if first_row is None:
                        continue
                    if splice.removed:
                        yield _removed(splice.removed)
                    if splice.stop > splice.start:
                        pages, stats = sources.pages(splice)
                        yield _added((splice.table_id, splice.field_id), pages, stats, first_row)


class _Sources:
    """The pages and statistics that a record brings: its own, and those of its page manifests, read once."""

    def __init__(self, url: str, record: TransactionRecord, version: int) -> None:
        self._url = url
        self._record = record
        self._version = version
        self._read: dict[int, tuple[pa.RecordBatch, pa.RecordBatch]] = {}

    def pages(self, splice: Splice) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Those that a splice puts in."""
        if splice.source not in self._read:
            self._read[splice.source] = self._load(splice.source)
        pages, stats = self._read[splice.source]
        count = splice.stop - splice.start
        return pages.slice(splice.start, count), stats.slice(splice.start, count)

    def _load(self, source: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        if source == 0:
            return form_ids(self._record.pages, self._version, self._record.base_ordinal), self._record.stats
        manifest = self._record.manifests[source - 1]
        data = TreeReader(objects_of(self._url)).fetch(manifest.location)
        listed, stats = decode_manifest(data, manifest.location.key)
        return form_ids(listed, self._version, manifest.base_ordinal), stats


def _read_commits(url: str, versions: tuple[int, ...]) -> list[Commit]:
    return SlotReader(objects_of(url)).commits(versions[0], versions[-1] + 1)


def _added(key: ChainKey, pages: pa.RecordBatch, stats: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    n = pages.num_rows
    entries: NDArray[np.int64] = pages.column("entry_count").to_numpy()
    described = dict(
        zip((*PAGE_SCHEMA.names, *STATS_SCHEMA.names), (*pages.columns, *stats.columns), strict=True)
    )
    columns = {field.name: described[field.name].cast(field.type) for field in DESCRIPTOR}
    columns |= {
        "table_id": pa.repeat(pa.scalar(key[0], pa.int64()), n),
        "field_id": pa.repeat(pa.scalar(key[1], pa.int32()), n),
        "first_row": pa.array(first_row + np.cumsum(entries) - entries),
        "removed": pa.repeat(pa.scalar(False), n),
    }
    return pa.record_batch([columns[name] for name in ROWS_SCHEMA.names], schema=ROWS_SCHEMA)


def _removed(page_ids: tuple[int, ...]) -> pa.RecordBatch:
    n = len(page_ids)
    columns = {field.name: pa.nulls(n, field.type) for field in ROWS_SCHEMA}
    columns["page_id"] = pa.array(page_ids, pa.int64())
    columns["removed"] = pa.repeat(pa.scalar(True), n)
    return pa.record_batch([columns[name] for name in ROWS_SCHEMA.names], schema=ROWS_SCHEMA)
