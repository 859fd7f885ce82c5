from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import DamageError
from spark_pages.log.segment import (
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
from spark_pages.log.tree import Node
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import NewPage, page_batches
from tests.io.strategies import steady
from tests.log.records import new_pages

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


@settings(steady, max_examples=80)
@given(lists | neighbours(), st.data())
def test_a_segment_is_read_as_it_was_written_whatever_of_it_is_derived(pages, data):
    batch, _ = page_batches(pages, ordinal=data.draw(st.integers(0, 2**62)))
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


@settings(steady, max_examples=40)
@given(st.lists(new_pages, max_size=8))
def test_statistics_and_manifests_are_read_as_they_were_written(pages):
    batch, stats = page_batches(pages)

    assert decode_stats(encode_stats(stats), "stats").to_pylist() == stats.to_pylist()
    read_pages, read_stats = decode_manifest(encode_manifest(batch, stats), "manifest")
    assert read_pages.to_pylist() == batch.to_pylist()
    assert read_stats.to_pylist() == stats.to_pylist()


def test_nodes_are_read_as_they_were_written():
    nodes = [
        Node(0, (0, 1), (1 << 40, 2), 10, 3, 1 << 62, 4, 5, "ab", 6, "cd", 7),
        Node(3, (5, 1), (5, 1), 1, 1, 0, 1, 0, "ef", 1),
    ]

    read = decode_nodes(encode_nodes(nodes, {b"k": b"v"}), "part")

    assert read == nodes
    assert decode_nodes(encode_nodes([]), "part") == []


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet at all" * 9])
@pytest.mark.parametrize("decode", [decode_segment, decode_stats, decode_nodes, decode_manifest])
def test_bytes_that_are_not_parquet_are_damage_that_names_the_object(decode, data):
    with pytest.raises(DamageError, match="the-key"):
        decode(data, "the-key")
