from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.arrow.columns import number_column, numbers_of
from spark_pages.errors import DamageError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.page_columns import pages_from_avro
from spark_pages.format.segment import (
    Segment,
    decode_manifest,
    decode_nodes,
    decode_segment,
    decode_stats,
    encode_manifest,
    encode_nodes,
    encode_segment,
    encode_stats,
)
from spark_pages.model.added_pages import AddedPages, NewPage, page_batches
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.page_schema import OPTIONAL_STATS
from tests.effort import examples
from tests.io.strategies import steady
from tests.log.records import as_read, new_pages

lists = st.lists(new_pages, min_size=1, max_size=8)


@st.composite
def neighbours(draw: st.DrawFn) -> list[NewPage]:
    """Pages that mostly lie one after another in their file, with allocations derivable or not."""
    pages = []
    offset = 0
    for _ in range(draw(st.integers(1, 10))):
        actual = draw(st.integers(64, 9000))
        alloc = -(-actual // 4096) * 4096 + draw(st.sampled_from([0, 0, 0, 4096]))
        offset = draw(st.sampled_from([offset, offset, offset, 0, 1 << 40]))
        path = draw(st.sampled_from(["pages/a", "pages/a", "pages/a", "pages/b"]))
        pages.append(NewPage(3, 3, PageKind.FILE, path, offset, alloc, actual, 7, None, PageStats(0)))
        offset += alloc
    return pages


@settings(steady, max_examples=examples(80))
@given(lists | neighbours(), st.data())
def test_a_segment_is_read_as_it_was_written_whatever_of_it_is_derived(pages, data):
    first = data.draw(st.integers(0, 2**62))
    batch, _ = page_batches(pages, range(first, first + len(pages)))
    start = data.draw(st.integers(0, len(pages) - 1))
    batch = batch.slice(start)
    keys = sorted(
        data.draw(st.tuples(st.integers(0, 2**30), st.integers(1, 9))) for _ in range(batch.num_rows)
    )
    table_ids, field_ids = (np.array(column, np.int64) for column in zip(*keys, strict=True))

    read = decode_segment(encode_segment(Segment.of(table_ids, field_ids, batch)), "segment")

    assert read.pages.to_pylist() == batch.to_pylist()
    assert read.table_ids.tolist() == table_ids.tolist()
    assert read.field_ids.tolist() == field_ids.tolist()
    for key in keys:
        first, stop = read.find(key)
        assert (first, stop - first) == (keys.index(key), keys.count(key))


@settings(steady, max_examples=examples(40))
@given(st.lists(new_pages, max_size=8))
def test_statistics_and_manifests_are_read_as_they_were_written(pages):
    batch, stats = page_batches(pages)

    assert decode_stats(encode_stats(stats), "stats").to_pylist() == stats.to_pylist()
    read_pages, read_stats = decode_manifest(encode_manifest(batch, stats), "manifest")
    assert read_pages.to_pylist() == batch.to_pylist()
    assert read_stats.to_pylist() == stats.to_pylist()


def altered(**numbers: int) -> pa.RecordBatch:
    """Three good pages, of which the second has another number in some columns."""
    in_file = NewPage(3, 3, PageKind.FILE, "pages/a", 4096, 4096, 80, 7, None, PageStats(0))
    inline = NewPage(3, 5, PageKind.INLINE, None, 0, 0, 80, 7, b"page", PageStats(0))
    batch, _ = page_batches([inline, inline if "inline" in numbers else in_file, in_file])
    for name, number in numbers.items():
        if name != "inline":
            column = numbers_of(batch.column(name)).copy()
            column[1] = number
            index, field = batch.schema.get_field_index(name), batch.schema.field(name)
            batch = batch.set_column(index, field, number_column(column, field.type))
    return batch


CANNOT_BE_TRUE = [
    {"entry_count": -1},
    {"payload_entries": -1},
    {"kind": 3},
    {"kind": -1},
    {"kind": PageKind.INLINE},
    {"kind": PageKind.CONSTANT},
    {"inline": 1, "kind": PageKind.FILE},
    {"inline": 1, "kind": PageKind.CONSTANT},
    {"inline": 1, "offset": 4096},
    {"inline": 1, "alloc_len": 4096},
    {"offset": -4096},
    {"offset": 64},
    {"alloc_len": 0},
    {"alloc_len": -4096},
    {"alloc_len": 5000},
    {"actual_len": 63},
    {"actual_len": 4097},
    {"actual_len": -1},
    {"entry_count": 1 << 62},
]


@pytest.mark.parametrize("numbers", CANNOT_BE_TRUE, ids=str)
def test_numbers_that_cannot_be_true_are_damage_wherever_pages_are_listed(numbers):
    batch = altered(**numbers)
    _, stats = page_batches([NewPage(0, 0, PageKind.FILE, "a", 0, 4096, 64, 0, None, PageStats(0))] * 3)
    chain = np.array([1, 1, 1])

    with pytest.raises(DamageError, match=r"Cannot read the-key: .*cannot be true"):
        decode_segment(encode_segment(Segment.of(chain, chain, batch)), "the-key")
    with pytest.raises(DamageError, match=r"Cannot read the-key: .*cannot be true"):
        decode_manifest(encode_manifest(batch, stats), "the-key")
    with pytest.raises(ValueError, match=r"page 1 has|more rows"):
        pages_from_avro(as_read(AddedPages(batch, stats)))


@pytest.mark.parametrize(
    ("tables", "fields"), [([1, 2, 1], [1, 1, 1]), ([1, 1, 1], [2, 2, 1]), ([-1, 1, 1], [1, 1, 1])]
)
def test_chains_out_of_order_or_with_negative_ids_are_damage(tables, fields):
    segment = Segment.of(np.array(tables), np.array(fields), altered())

    with pytest.raises(DamageError, match="the-key"):
        decode_segment(encode_segment(segment), "the-key")


@pytest.mark.parametrize("kind", ["stats", "manifest"])
def test_objects_of_a_release_without_estimates_and_filters_are_read(kind):
    pages = [NewPage(3, 3, PageKind.FILE, "pages/a", 0, 4096, 80, 7, None, PageStats(0, b"a", b"b"))] * 3
    batch, stats = page_batches(pages)
    now = encode_stats(stats) if kind == "stats" else encode_manifest(batch, stats)
    table = pq.read_table(pa.BufferReader(now))
    then = table.drop_columns([name for name in table.column_names if name in OPTIONAL_STATS])
    sink = pa.BufferOutputStream()
    pq.write_table(then, sink, store_schema=False, compression="zstd")
    data = sink.getvalue().to_pybytes()

    read = decode_stats(data, "key") if kind == "stats" else decode_manifest(data, "key")[1]

    assert read.to_pylist() == stats.to_pylist()


@pytest.mark.parametrize("kind", ["stats", "manifest"])
@pytest.mark.parametrize("nan", [[False, True, False], [False] * 3])
def test_pages_with_a_nan_are_told_in_a_column_that_is_left_out_where_there_are_none(kind, nan):
    batch, stats = page_batches(
        [
            NewPage(3, 3, PageKind.FILE, "pages/a", 0, 4096, 80, 7, None, PageStats(0, b"a", b"b", nan=each))
            for each in nan
        ]
    )

    data = encode_stats(stats) if kind == "stats" else encode_manifest(batch, stats)

    read = decode_stats(data, "key") if kind == "stats" else decode_manifest(data, "key")[1]
    assert read.equals(stats)
    assert read.column("nan").to_pylist() == [True if each else None for each in nan]
    assert ("nan" in pq.ParquetFile(pa.BufferReader(data)).schema_arrow.names) == any(nan)


def test_nodes_are_read_as_they_were_written():
    nodes = [
        Node(0, (0, 1), (1 << 40, 2), 10, 3, 1 << 62, 4, 5, "ab", 6, "cd", 7),
        Node(3, (5, 1), (5, 1), 1, 1, 0, 1, 0, "ef", 1),
    ]

    read = decode_nodes(encode_nodes(nodes, {b"spark_pages.x": b"v"}), "part")

    assert read == nodes
    assert decode_nodes(encode_nodes([]), "part") == []


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet at all" * 9])
@pytest.mark.parametrize("decode", [decode_segment, decode_stats, decode_nodes, decode_manifest])
def test_bytes_that_are_not_parquet_are_damage_that_names_the_object(decode, data):
    with pytest.raises(DamageError, match="the-key"):
        decode(data, "the-key")
