"""What executors do in a reconstruction: first they count rows, then they give each page its first row.

`CountSegments` and `CountCommits` make the counts that `positions` turns into a layout; `SegmentRows` and
`CommitRows` read the same objects again, with the layout. No pyspark here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, numbers_of
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.segment import decode_manifest
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.replay import form_ids
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import Commit, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, no_stats
from spark_pages.spark.arrow_types import spark_type
from spark_pages.spark.positions import CommitCount, SegmentCount, SpliceCount
from spark_pages.spark.serialization import objects_of

DESCRIPTOR = [pa.field(f.name, spark_type(f.type)) for f in (*PAGE_SCHEMA, *STATS_SCHEMA)]
"""The fields of a page descriptor and its statistics, in types that Spark has."""

ROWS_SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64()),
        pa.field("field_id", pa.int32()),
        pa.field("first_row", pa.int64()),
        *DESCRIPTOR,
    ]
)
"""A page that is there at the version."""

_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class CountSegments:
    """Counts the rows, and the pages without rows, of each chain in segments of a checkpoint.

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
            entries = numbers_of(segment.pages.column("entry_count"))
            rows = np.add.reduceat(entries, segment.bounds[:-1]).tolist()
            empty = np.add.reduceat((entries == 0).astype(np.int64), segment.bounds[:-1]).tolist()
            for (key, _, _), of_chain, without in zip(segment.chains(), rows, empty, strict=True):
                yield SegmentCount(number, key, of_chain, without)


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
            splices: list[SpliceCount] = []
            removed: list[int] = []
            for index, record in enumerate(commit.records):
                sources = _Sources(self.url, record, commit.version)
                for number, splice in enumerate(record.splices):
                    removed += splice.removed
                    splices.append(
                        SpliceCount(
                            index,
                            number,
                            (splice.table_id, splice.field_id),
                            splice.first_row,
                            bool(splice.removed),
                            splice.removed_entries,
                            splice.added_entries,
                            sources.empty_pages(splice),
                        )
                    )
            ids = np.array(removed, dtype=np.int64).tobytes()
            yield CommitCount(commit.version, tuple(intents), tuple(splices), ids)


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Gives the pages of segments that are still there, with their first rows.

    Attributes
    ----------
    url
        The store.
    segments
        Their nodes, and at which row each chain begins in each; chains left out are gone.
    """

    url: str
    segments: tuple[tuple[Node, Mapping[ChainKey, int]], ...]

    def rows(self, removed: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Batches of `ROWS_SCHEMA`, without the pages of these ids, which are sorted."""
        tree = TreeReader(objects_of(self.url))
        for node, first_rows in self.segments:
            segment = tree.segment(node)
            stats = tree.stats(node) if node.stats_length else no_stats(node.pages)
            keys = [key for key, _, _ in segment.chains()]
            begins = np.array([first_rows.get(key, -1) for key in keys], dtype=np.int64)
            counts = np.diff(segment.bounds)
            yield _rows(keys, begins, counts, segment.pages, stats, removed)


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Gives the pages that commits add and that are still there, with their first rows.

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

    def rows(self, removed: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Batches of `ROWS_SCHEMA`, without the pages of these ids, which are sorted."""
        some: list[_Runs] = []
        for runs in self._runs():
            some.append(runs)
            if sum(each.pages.num_rows for each in some) >= _BATCH_ROWS:
                yield _joined_rows(some, removed)
                some = []
        if some:
            yield _joined_rows(some, removed)

    def _runs(self) -> Iterator[_Runs]:
        """Iterate over the runs of each source of pages in a record."""
        first_rows = dict(self.commits)
        for commit in _read_commits(self.url, tuple(first_rows)):
            for index, record in enumerate(commit.records):
                sources = _Sources(self.url, record, commit.version)
                by_source: dict[int, list[tuple[Splice, int]]] = {}
                for number, splice in enumerate(record.splices):
                    first_row = first_rows[commit.version].get((index, number))
                    if first_row is not None and splice.stop > splice.start:
                        by_source.setdefault(splice.source, []).append((splice, first_row))
                for source, splices in by_source.items():
                    yield _Runs.of(*sources.load(source), splices)


@dataclass(frozen=True, eq=False, slots=True)
class _Runs:
    """Runs of pages that lie one after another, with the chain, first row and length of each."""

    keys: list[ChainKey]
    begins: list[int]
    counts: list[int]
    pages: pa.RecordBatch
    stats: pa.RecordBatch

    @classmethod
    def of(cls, pages: pa.RecordBatch, stats: pa.RecordBatch, splices: Sequence[tuple[Splice, int]]) -> _Runs:
        """Return the runs that splices add, each at its first row."""
        places = np.concatenate([np.arange(splice.start, splice.stop) for splice, _ in splices])
        if len(places) != pages.num_rows or not (places == np.arange(pages.num_rows)).all():
            chosen = number_column(places, pa.int64())
            pages, stats = pages.take(chosen), stats.take(chosen)
        return cls(
            [(splice.table_id, splice.field_id) for splice, _ in splices],
            [first_row for _, first_row in splices],
            [splice.stop - splice.start for splice, _ in splices],
            pages,
            stats,
        )


def _joined_rows(some: Sequence[_Runs], removed: NDArray[np.int64]) -> pa.RecordBatch:
    """One batch for all: commits bring a few pages each, and a batch has its price."""
    return _rows(
        [key for each in some for key in each.keys],
        np.array([begin for each in some for begin in each.begins], dtype=np.int64),
        np.array([count for each in some for count in each.counts], dtype=np.int64),
        concat_batches([each.pages for each in some], PAGE_SCHEMA),
        concat_batches([each.stats for each in some], STATS_SCHEMA),
        removed,
    )


class _Sources:
    """The pages and statistics that a record brings: its own, and those of its page manifests, read once."""

    def __init__(self, url: str, record: TransactionRecord, version: int) -> None:
        self._url = url
        self._record = record
        self._version = version
        self._read: dict[int, tuple[pa.RecordBatch, pa.RecordBatch]] = {}

    def empty_pages(self, splice: Splice) -> int:
        """How many of the pages that a splice puts in have no rows."""
        count = splice.stop - splice.start
        if not count or (splice.source and splice.added_entries and count == 1):
            return 0
        entries = numbers_of(self.load(splice.source)[0].column("entry_count"))
        return int((entries[splice.start : splice.stop] == 0).sum())

    def load(self, source: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """All pages of one source, with their ids, and their statistics."""
        if source not in self._read:
            self._read[source] = self._load(source)
        return self._read[source]

    def _load(self, source: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        if source == 0:
            return form_ids(self._record.pages, self._version, self._record.base_ordinal), self._record.stats
        manifest = self._record.manifests[source - 1]
        data = TreeReader(objects_of(self._url)).fetch(manifest.location)
        listed, stats = decode_manifest(data, manifest.location.key)
        return form_ids(listed, self._version, manifest.base_ordinal), stats


def _read_commits(url: str, versions: tuple[int, ...]) -> list[Commit]:
    return SlotReader(objects_of(url)).commits(versions[0], versions[-1] + 1)


def _rows(
    keys: Sequence[ChainKey],
    begins: NDArray[np.int64],
    counts: NDArray[np.int64],
    pages: pa.RecordBatch,
    stats: pa.RecordBatch,
    removed: NDArray[np.int64],
) -> pa.RecordBatch:
    """Return consecutive runs: `counts` pages of a chain from row `begins` on.

    A negative row means no pages of the chain.
    """
    entries = numbers_of(pages.column("entry_count"))
    before = np.cumsum(entries) - entries
    starts = np.cumsum(counts) - counts
    of_run = begins - np.where(counts > 0, before[np.minimum(starts, max(len(before) - 1, 0))], 0)
    columns: dict[str, pa.Array] = {
        **dict(zip(PAGE_SCHEMA.names, pages.columns, strict=True)),
        **dict(zip(STATS_SCHEMA.names, stats.columns, strict=True)),
        "table_id": number_column(np.repeat([key[0] for key in keys], counts), pa.int64()),
        "field_id": number_column(np.repeat([key[1] for key in keys], counts).astype(np.int32), pa.int32()),
        "first_row": number_column(before + np.repeat(of_run, counts), pa.int64()),
    }
    stays = np.repeat(begins >= 0, counts)
    if len(removed):
        ids = numbers_of(pages.column("page_id"))
        near = np.minimum(np.searchsorted(removed, ids), len(removed) - 1)
        stays &= removed[near] != ids
    batch = pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in ROWS_SCHEMA], schema=ROWS_SCHEMA
    )
    return batch if stays.all() else batch.filter(pa.array(stays))
