"""Stores of any number of page descriptors, written by the encoders of the log in a minute or two for 10 M.

The pages themselves are not there, nor statistics: nothing here reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages.arrow.columns import no_bytes, number_column, optional_text
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.digest import digest_of
from spark_pages.format.names import root_key
from spark_pages.format.segment import Segment
from spark_pages.log.auto_maintenance import CHECKPOINT_BYTES, CHECKPOINT_COMMITS, LOG_COMPACTION_COMMITS
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.root import Root, encode_root
from spark_pages.log.checkpoint.segment_writer import SegmentPacker, SegmentWriter, write_parts
from spark_pages.log.checkpoint.writer import PAGES_PER_SEGMENT, SEGMENTS_PER_PART, write_catalog
from spark_pages.log.last_checkpoint import write_hint
from spark_pages.log.log import Log
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.ids import TableId, Version, page_id
from spark_pages.model.page_schema import PAGE_SCHEMA
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.storage import DurableLocalStore
from spark_pages.storage.store import ObjectStore

_BLOCK = 1 << 17
_PAGES_PER_FILE = 2048
_FIRST_TABLE = 2
_TABLES_PER_FILE = 512
_UNATTENDED = {CHECKPOINT_COMMITS: "0", CHECKPOINT_BYTES: "0", LOG_COMPACTION_COMMITS: "0"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a synthetic store holds.

    Attributes
    ----------
    pages
        Page descriptors of all tables together, about.
    tables, columns
        Tables ``t000000`` … with columns ``c000`` …; every chain has equally many pages.
    thin
        Whether only those segments are there that hold the beginning of the first, middle and last table.
        Parts and root are whole: for stores too large to be written in a few minutes.
    names_statistics
        Whether segments name statistics, which are not there: for parts of the size that they have then.
    """

    pages: int
    tables: int = 100
    columns: int = 10
    names_statistics: bool = False
    thin: bool = False

    @property
    def chains(self) -> int:
        """How many chains there are."""
        return self.tables * self.columns

    @property
    def pages_of_chain(self) -> int:
        """Pages of each chain."""
        return max(1, self.pages // self.chains)

    @property
    def pages_asked_for(self) -> list[int]:
        """The first pages of chains that benchmarks ask for."""
        tables = (0, self.tables // 2, self.tables - 1)
        return [
            (table * self.columns + min(column, self.columns - 1)) * self.pages_of_chain
            for table in tables
            for column in (0, 4)
        ]

    def table_name(self, index: int) -> str:
        """Name of a table."""
        return f"t{index:06d}"

    def key(self, table: int, column: int) -> tuple[int, int]:
        """Table id and field id of a chain."""
        return _FIRST_TABLE + table, column + 1


def make_store(url: str, shape: Shape) -> None:
    """A store with an empty table ``small`` and, in a checkpoint, all descriptors of the shape.

    It is not looked after beside commits, so that what is counted is what was asked for.
    """
    store = sp.create(url, properties=_UNATTENDED)
    with store.transaction("create") as txn:
        txn.create_table("small", pa.schema([("a", pa.int64())]))
    if shape.pages:
        _write_checkpoint(DurableLocalStore(url), shape)


def _write_checkpoint(store: ObjectStore, shape: Shape) -> None:
    log = Log(store, Runtime())
    log.checkpoint()
    head = log.snapshot()
    assert head.checkpoint is not None
    version = head.state.version
    objects = ObjectWriter(store, map_in_threads)
    maker = SegmentWriter(objects, None, version, "0" * 32)
    packer = SegmentPacker(PAGES_PER_SEGMENT, 0, version, maker)
    nodes = [node for part in head.checkpoint.root.parts for node in head.checkpoint.tree.part(part)]
    for first in range(0, shape.pages_of_chain * shape.chains, _BLOCK):
        stop = min(first + _BLOCK, shape.pages_of_chain * shape.chains)
        if shape.thin and not any(first <= page < stop for page in shape.pages_asked_for):
            nodes += packer.take_all()
            nodes += _promised_nodes(shape, first, stop)
            continue
        segment = _segment(shape, first, stop)
        for key, start, end in segment.chains():
            packer.add(key, [PageRun(segment.pages.slice(start, end - start))])
        nodes += packer.take_full()
    nodes += packer.take_all()
    if shape.names_statistics:
        nodes = [_with_statistics(node) for node in nodes]
    definitions = {TableId(_FIRST_TABLE + i): _definition(shape, i) for i in range(shape.tables)}
    state = replace(
        head.state,
        tables=definitions,
        names={(0, d.name): table_id for table_id, d in definitions.items()},
        next_table_id=_FIRST_TABLE + shape.tables,
    )
    root = Root(
        state=replace(state, tables={}, names={}, edits={}, tokens={}),
        sequence=0,
        predecessors=(),
        parts=tuple(write_parts(objects, nodes, SEGMENTS_PER_PART, 0, version)),
        catalog=write_catalog(objects, state, head.checkpoint, _TABLES_PER_FILE),
        table_zero=head.checkpoint.root.table_zero,
    )
    location = objects.put(encode_root(root), lambda digest: root_key(version, digest))
    objects.wait_all()
    write_hint(store, CheckpointRef(Version(version), location))


def _with_statistics(node: Node) -> Node:
    return replace(node, stats_digest=digest_of(node.digest.encode()), stats_length=123_456)


def _definition(shape: Shape, index: int) -> TableDefinition:
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.timestamp("us"), pa.int32())
    schema = pa.schema([(f"c{i:03d}", kinds[i % len(kinds)]) for i in range(shape.columns)])
    return TableDefinition(
        TableId(_FIRST_TABLE + index),
        shape.table_name(index),
        with_field_ids(schema),
        shape.columns + 1,
        aligned=False,
        created_at_us=1_700_000_000_000_000 + index,
    )


def _segment(shape: Shape, first: int, stop: int) -> Segment:
    """Descriptors [first, stop). Half of the columns have pages of equal, half of varying length."""
    random = np.random.default_rng(first)
    number = np.arange(first, stop)
    chain = number // shape.pages_of_chain
    field = chain % shape.columns + 1
    varying = random.integers(3_000, 13_000, len(number))
    return Segment.of(_FIRST_TABLE + chain // shape.columns, field, _pages(number, field, varying, random))


def _promised_nodes(shape: Shape, first: int, stop: int) -> list[Node]:
    """Nodes of segments that are not there, as if all their pages were equally long."""
    nodes = []
    each = shape.pages_of_chain
    for start, end in pairwise([*range(first, stop, PAGES_PER_SEGMENT), stop]):
        one, two = start // each, (end - 1) // each
        front = min(end, (one + 1) * each) - start
        back = end - max(start, two * each)
        keys = (shape.key(*divmod(chain, shape.columns)) for chain in (one, two))
        digest = digest_of(f"{start}".encode())
        nodes.append(Node(0, *keys, end - start, front, front * 8192, back, back * 8192, digest, 123_456))
    return nodes


def _pages(
    number: np.ndarray, field: np.ndarray, varying: np.ndarray, random: np.random.Generator
) -> pa.RecordBatch:
    count = len(number)
    actual = random.integers(20_000, 60_000, count).astype(np.int32)
    alloc = (-(-actual // 4096) * 4096).astype(np.int32)
    file = (number // _PAGES_PER_FILE - number[0] // _PAGES_PER_FILE).astype(np.int32)
    starts = np.cumsum(alloc, dtype=np.int64) - alloc
    first_of_file = np.searchsorted(file, file)
    tokens = (random.bytes(16).hex() for _ in range(int(file[-1]) + 1))
    names = optional_text([f"pages/{0:020d}-{token}-0.pages" for token in tokens])
    entries = number_column(np.where(field % 2, 8192, varying), pa.int64())
    columns = {
        "page_id": number_column(page_id(Version(1), 0) + number, pa.int64()),
        "entry_count": entries,
        "payload_entries": entries,
        "kind": number_column(np.zeros(count, np.int8), pa.int8()),
        "path": pa.DictionaryArray.from_arrays(number_column(file, pa.int32()), names),
        "offset": number_column(starts - starts[first_of_file], pa.int64()),
        "alloc_len": number_column(alloc, pa.int32()),
        "actual_len": number_column(actual, pa.int32()),
        "checksum": number_column(random.integers(-(2**63), 2**63 - 1, count), pa.int64()),
        "data": no_bytes(count),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA)
