"""Views, unions, and dictionaries inside of others: rows take the memory of what they show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.arrow.compact import owned_copy
from tests.transaction.stores import store_with

COUNT = 3_000
WORDS = [f"the word of row {number:05d}" for number in range(COUNT)]
TEXTS = pa.array(WORDS, pa.string_view())
EACH = pa.array(range(COUNT + 1), pa.int32())

UNIONS = pa.UnionArray.from_dense(
    pa.array([0, 1] * (COUNT // 2), pa.int8()),
    pa.array(np.repeat(np.arange(COUNT // 2), 2), pa.int32()),
    [pa.array(WORDS[::2]), pa.array(WORDS[1::2], pa.string_view())],
)

VIEWS = {
    "text": TEXTS,
    "text in lists": pa.ListArray.from_arrays(EACH, TEXTS),
    "text in structs": pa.StructArray.from_arrays([TEXTS], ["x"]),
    "binary in maps": pa.MapArray.from_arrays(
        EACH, WORDS, TEXTS.cast(pa.large_string()).cast(pa.binary_view())
    ),
    "lists": pa.ListViewArray.from_arrays(EACH[:-1], pa.array([1] * COUNT, pa.int32()), pa.array(WORDS)),
    "lists of text": pa.LargeListViewArray.from_arrays(
        EACH[:-1].cast(pa.int64()), pa.array([1] * COUNT), TEXTS
    ),
    "unions": UNIONS,
    "unions in lists": pa.ListArray.from_arrays(EACH, UNIONS),
    "dictionaries in lists": pa.ListArray.from_arrays(EACH, pa.array(WORDS).dictionary_encode()),
}


def memory(values: pa.ChunkedArray) -> int:
    return sum(buffer.size for chunk in values.chunks for buffer in chunk.buffers() if buffer is not None)


@pytest.mark.parametrize("values", VIEWS.values(), ids=VIEWS)
def test_pages_hold_what_their_rows_show_however_often_they_are_rewritten(values):
    store = store_with(schema=pa.schema([("v", values.type)]))
    with store.transaction() as txn:
        txn.create_table(
            "u", pa.schema([("v", values.type)]), properties={"page_bytes": "4096", "codec": "none"}
        )
        txn.append("u", pa.table({"v": values}))
    wanted = values.to_pylist()

    for start in range(3):
        rows = np.arange(start, COUNT, 7)
        with store.transaction() as txn:
            txn.update_rows("u", rows, {"v": values[: len(rows)]})
        wanted[start::7] = values[: len(rows)].to_pylist()

    table = store.snapshot().table("u")
    assert sum(table.pages("v")["actual_len"].to_pylist()) < 2 * values.nbytes
    assert table.pages("v").num_rows > 10
    assert table.read()["v"].to_pylist() == wanted
    some = table.take(np.arange(0, COUNT, 100))["v"]
    assert some.to_pylist() == wanted[::100]
    assert memory(some) < values.nbytes / 10
    store.compact_pages("u")
    assert store.snapshot().table("u").read()["v"].to_pylist() == wanted
    assert store.verify(pages="all").ok


@pytest.mark.parametrize("values", VIEWS.values(), ids=VIEWS)
def test_batches_that_are_slices_of_one_array_make_the_pages_that_the_array_makes(values):
    batches = [pa.record_batch({"v": values.slice(first, 100)}) for first in range(0, COUNT, 100)]
    pages = []

    for data in (pa.table({"v": values}), pa.RecordBatchReader.from_batches(batches[0].schema, batches)):
        store = store_with(schema=batches[0].schema)
        with store.transaction() as txn:
            txn.create_table("u", batches[0].schema, properties={"page_bytes": "8192"})
            txn.append("u", data)
        table = store.snapshot().table("u")
        pages.append(table.pages("v").num_rows)
        assert table.read()["v"].to_pylist() == values.to_pylist()

    assert pages[1] <= pages[0] + 1


def test_views_that_wait_for_their_page_are_copies():
    memory = bytearray(b"text of a caller who writes over it")
    data = pa.py_buffer(memory)
    view = np.zeros(4, np.int32)
    view[0] = len(memory)
    view[1:2] = np.frombuffer(memory[:4], np.int32)
    text = pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(view), data])
    store = store_with(schema=pa.schema([("v", pa.string_view())]))

    with store.transaction() as txn:
        txn.append("t", pa.table({"v": text}))
        memory[:] = b"x" * len(memory)

    assert store.snapshot().table("t").read()["v"].to_pylist() == ["text of a caller who writes over it"]


@pytest.mark.parametrize(
    ("offsets", "sizes", "values"),
    [
        ([4, 0, 2], [1, 1, 1], 3),
        ([4, 0, 0], [2, 3, 3], 6),
        ([5, 99, 5], [0, 2, 0], 0),
        ([2, 3, 3], [2, 2, 2], 3),
    ],
    ids=["gaps", "overlaps", "nothing", "one range"],
)
def test_a_list_view_keeps_the_values_that_it_shows(offsets, sizes, values):
    child = pa.array(list("abcdef"), pa.string_view())
    mask = pa.array([False, offsets[1] == 99, False])
    array = pa.ListViewArray.from_arrays(offsets, sizes, child, mask=mask)[0:3]

    own = owned_copy(array)

    own.validate(full=True)
    assert own.to_pylist() == array.to_pylist()
    assert owned_copy(array[1:]).to_pylist() == array.to_pylist()[1:]
    assert len(own.values) == values
