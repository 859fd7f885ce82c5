"""Lists of bytes that we write ourselves: the same bytes as fastavro gives."""

from __future__ import annotations

import io
from dataclasses import replace

import fastavro
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_pages.format.commit import decode_slot, encode_commit
from spark_pages.format.commit_schema import write_list
from spark_pages.model.actions import Splice
from spark_pages.model.added_pages import FEW_PAGES, AddedPages, NewPage
from spark_pages.model.page import PageKind, PageStats
from tests.effort import examples
from tests.io.strategies import steady
from tests.log.records import commit, commits, record, same

LIST = fastavro.parse_schema({"type": "array", "items": "bytes"})


@settings(steady, max_examples=examples(200))
@given(st.lists(st.binary(max_size=70)), st.integers(0, 3), st.integers(0, 3))
@example([bytes(63), bytes(64)], 1, 0)
def test_a_list_is_written_as_fastavro_writes_it(items, before, behind):
    column = pa.array([b"else"] * before + items + [b"more"] * behind, pa.binary())
    ours, theirs = io.BytesIO(), io.BytesIO()

    write_list(ours, column.slice(before, len(items)))
    fastavro.schemaless_writer(theirs, LIST, items)

    assert ours.getvalue() == theirs.getvalue()


@settings(steady, max_examples=examples(100))
@given(commits)
def test_a_commit_is_the_same_bytes_whether_its_pages_are_columns_or_values(written):
    columns = [replace(each, own=AddedPages(*each.own.batches)) for each in written.records]

    assert encode_commit(replace(written, records=tuple(columns))) == encode_commit(written)


def test_a_commit_of_many_pages_is_read_as_it_was_written():
    listed = [
        NewPage(3, 3, PageKind.FILE, "pages/x", 4096 * n, 4096, 80, n, None, stats)
        for n in range(FEW_PAGES + 9)
        for stats in (PageStats(0, bytes([n]) * (n % 33), bytes([n]) * 32, n % 2 == 0, n),)
    ]
    splices = (Splice(1, 1, 0, (), 0, 0, 0, len(listed), 3 * len(listed)),)
    written = commit(4, replace(record(1, splices=splices), own=AddedPages.of(listed)))

    assert same(decode_slot(encode_commit(written)[0], "slot"), written)
