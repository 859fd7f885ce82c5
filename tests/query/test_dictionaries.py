"""Pages of a column have dictionaries of their own; whatever brings rows of several together keeps values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.arrow.stored_types import stored_type
from spark_pages.query.table import Table
from spark_pages.store import Store
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import store_with

EVERY_SECOND = pa.array([0, 2, 4], pa.int32())
KEY = "imports/words.pages"
WORDS = pa.dictionary(pa.int8(), pa.string())


def encoded(indices: list[int | None], values: pa.Array, width: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, width or pa.int8()), values)


def halves(indices: list[int | None], *values: float) -> pa.Array:
    return encoded(indices, pa.array([np.float16(each) for each in values], pa.float16()))


def in_struct(values: pa.Array) -> pa.Array:
    mask = pa.array([False, False, True, False])
    return pa.StructArray.from_arrays([values, pa.nulls(4), pa.array(range(4))], ["h", "n", "i"], mask=mask)


def beside_runs(values: pa.Array) -> pa.Array:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array(["run"]))
    return pa.StructArray.from_arrays([values, runs], ["h", "r"], mask=pa.array([False, True, False, False]))


def in_map(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(EVERY_SECOND, pa.array(list("abcd")), values)


def in_union(values: pa.Array) -> pa.Array:
    kinds, places = pa.array([0, 1, 0, 1], pa.int8()), pa.array([0, 1, 2, 3], pa.int32())
    return pa.UnionArray.from_dense(kinds, places, [values, pa.array(range(4))])


SHAPES: dict[str, Callable[[pa.Array], pa.Array]] = {
    "itself": lambda values: values,
    "in structs": in_struct,
    "in structs beside runs": beside_runs,
    "in lists": lambda values: pa.ListArray.from_arrays(EVERY_SECOND, values),
    "in views of lists": lambda values: pa.ListViewArray.from_arrays([2, 0], [2, 2], values),
    "in fixed lists": lambda values: pa.FixedSizeListArray.from_arrays(values, 2),
    "in maps": in_map,
    "in unions": in_union,
}

PARTS = [
    halves([0, 1, None, 2], 0.0, 1.5, -2.25),
    halves([1, 0, 2, None], 1.5, float("inf"), 7.0),
    halves([0, 0, 1, 2], 9.0, 1.5, 0.0),
]


def numbered(parts: list[pa.Array]) -> list[pa.Table]:
    return [
        pa.table({"v": part, "n": range(100 * at, 100 * at + len(part))}) for at, part in enumerate(parts)
    ]


def now(store: Store) -> Table:
    return store.snapshot().table("t")


def values_of(store: Store) -> list[object]:
    return now(store).read(["v"])["v"].to_pylist()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_half_floats_of_several_dictionaries_are_read_as_they_were_appended(shape):
    parts = [shape(part) for part in PARTS]
    whole = [value for part in parts for value in part.to_pylist()]
    table = now(store_with(*numbered(parts)))
    last = len(whole) - 1

    assert table.read()["v"].to_pylist() == whole
    assert table.scan().read_all()["v"].to_pylist() == whole
    assert table.take([last, 0, 2])["v"].to_pylist() == [whole[last], whole[0], whole[2]]
    assert table.read(filter="n <> 0 and n <> 200")["v"].to_pylist() == (
        whole[1 : len(parts[0]) * 2] + whole[len(parts[0]) * 2 + 1 :]
    )


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_half_floats_of_several_dictionaries_are_written_as_they_were_given(shape):
    parts = [shape(part) for part in PARTS]
    whole = [value for part in parts for value in part.to_pylist()]
    store = store_with(pa.table({"v": pa.chunked_array(parts[:2])}), pa.table({"v": parts[2]}))

    with store.transaction() as txn:
        txn.update_rows("t", [0], {"v": parts[2].slice(1, 1)})
    updated = values_of(store)
    list(store.compact_pages("t"))
    compacted = values_of(store)
    with store.transaction() as txn:
        txn.directory("t").update_latest_entry_count("v", now(store).directory.latest("v").entry_count + 2)

    assert updated == compacted == [parts[2].to_pylist()[1], *whole[1:]]
    assert values_of(store) == [*updated, None, None]


def test_dictionaries_too_many_for_one_array_are_compacted():
    parts = [encoded(list(range(60)), pa.array([f"{part}-{at}" for at in range(60)])) for part in range(5)]
    store = store_with(*(pa.table({"v": part}) for part in parts))
    before = now(store).pages("v").num_rows

    list(store.compact_pages("t"))

    assert values_of(store) == [f"{part}-{at}" for part in range(5) for at in range(60)]
    assert now(store).pages("v").num_rows < before


def test_what_entries_have_beside_them_stays_theirs_where_dictionaries_are_too_many_for_one_array():
    store = store_with(schema=pa.schema([("v", WORDS)]))
    for part in range(4):
        rows = pa.table({"v": encoded(list(range(60)), pa.array([f"{part}-{at}" for at in range(60)]))})
        beside = [f"{part}+{at}".encode() for at in range(60)]
        with store.transaction() as txn:
            txn.append("t", rows, entry_meta={"v.prefix_meta": beside})

    list(store.compact_pages("t"))

    found = now(store).read(entry_meta=True)
    assert [each.decode().replace("+", "-") for each in found["v.prefix_meta"].to_pylist()] == values_of(
        store
    )


WITH_NULL = [encoded([0, 1, 2, None], pa.array(["a", None, letter])) for letter in "bc"]


def in_lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(EVERY_SECOND, values)


@pytest.mark.parametrize("shape", [SHAPES["itself"], in_lists, in_struct, beside_runs])
def test_a_null_among_the_values_of_a_dictionary_is_stored_as_a_null_entry(shape):
    parts = [shape(part) for part in WITH_NULL]
    whole = [value for part in parts for value in part.to_pylist()]

    store = store_with(pa.table({"v": pa.chunked_array(parts)}))

    assert values_of(store) == whole
    stored = now(store).read()["v"].chunk(0)
    words = stored.values if pa.types.is_list(stored.type) else stored
    words = words.field("h") if pa.types.is_struct(words.type) else words
    assert not words.dictionary.null_count


def with_stored_nulls() -> Store:
    """Pages of another writer whose dictionaries have a null, which an append would not make."""
    store = store_with(schema=pa.schema([("v", WORDS)]))
    pages = write_file(store.object_store, KEY, *WITH_NULL)
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("v", KEY, pages), pending("v", KEY, pages, 1, rows=6)])
    return store


STORED = ["a", None, "b", None, "a", None, "c", None, None, None]


def test_pages_whose_dictionaries_have_a_null_are_read():
    table = now(with_stored_nulls())

    assert table.read()["v"].to_pylist() == STORED
    assert table.scan().read_all()["v"].to_pylist() == STORED
    assert table.take([6, 9, 0, 5])["v"].to_pylist() == ["c", None, "a", None]


def test_pages_whose_dictionaries_have_a_null_are_updated_and_compacted():
    store = with_stored_nulls()

    with store.transaction() as txn:
        txn.update_rows("t", [0, 6, 7], {"v": ["z", None, "y"]})
    list(store.compact_pages("t"))

    assert values_of(store) == ["z", *STORED[1:6], None, "y", None, None]


def test_dictionaries_of_lists_which_arrow_does_not_compare_are_put_end_to_end():
    parts = [encoded([1, None, 0], pa.array(values)) for values in ([[1], [2, 3]], [[2, 3], []])]
    whole = [value for part in parts for value in part.to_pylist()]
    store = store_with(*numbered(parts))

    table = now(store)
    scanned, taken = table.scan().read_all()["v"], table.take([5, 0, 3])["v"]
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"v": parts[1].slice(0, 1)})
        txn.append("t", pa.table({"v": pa.chunked_array(parts), "n": range(6)}))
    list(store.compact_pages("t"))

    assert scanned.to_pylist() == whole
    assert taken.to_pylist() == [whole[5], whole[0], whole[3]]
    assert values_of(store) == [whole[0], whole[3], *whole[2:], *whole]


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "in structs beside runs"])
def test_updates_whose_dictionaries_together_are_too_many_for_their_indices(shape):
    def block(first: int) -> pa.Array:
        words = [
            pa.array([str(first + i + k) for k in range(4)]).dictionary_encode() for i in range(0, 100, 4)
        ]
        kind = pa.dictionary(pa.int8(), pa.string())
        return pa.concat_arrays([SHAPES[shape](each.cast(kind)) for each in words])

    store = store_with(*(pa.table({"v": block(first)}) for first in (0, 100, 200)))
    size = len(block(0))
    with store.transaction() as txn:
        txn.update_rows("t", range(size), {"v": block(300)})
        txn.update_rows("t", range(size, 2 * size), {"v": block(400)})
        txn.update_rows("t", [2 * size], {"v": block(500)[:1]})

    expected = [*block(300).to_pylist(), *block(400).to_pylist(), *block(200).to_pylist()]
    expected[2 * size] = block(500)[0].as_py()
    assert now(store).read()["v"].to_pylist() == expected
    assert now(store).read()["v"].type == stored_type(block(0).type)
    assert store.verify(pages="all").ok
