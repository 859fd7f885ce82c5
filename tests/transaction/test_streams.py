"""Streams of rows: each batch agrees with the schema of its stream and lies in its memory, or is refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError, SchemaMismatchError
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import store_with

ONE = pa.schema([("a", pa.int64())])
TWO = pa.schema([("a", pa.int64()), ("b", pa.int64())])
FAR = 1 << 20


def stream(schema: pa.Schema, *batches: pa.RecordBatch) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, iter(batches))


class Foreign:
    """A stream of another library, which says nothing of its batches but what their buffers are."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def __arrow_c_stream__(self, requested: object | None = None) -> object:
        return self._reader.__arrow_c_stream__(requested)


DISAGREEING = {
    "double after int64": (ONE, {"a": pa.array([7.5, 8.0])}, "expected int64 in column 'a', found double"),
    "int32 after int64": (ONE, {"a": pa.array([7, 8], pa.int32())}, "expected int64 .* found int32"),
    "another order": (TWO, {"b": pa.array([80]), "a": pa.array([2])}, r"expected columns \['a', 'b'\]"),
    "a column less": (TWO, {"a": pa.array([2])}, r"expected .* found \['a'\]"),
    "a column more": (ONE, {"a": pa.array([2]), "b": pa.array([2])}, r"expected .* found \['a', 'b'\]"),
    "two of one name": (TWO, {"a": pa.array([2]), "c": pa.array([2])}, r"expected .* found \['a', 'c'\]"),
}


@pytest.mark.parametrize(("schema", "columns", "reason"), DISAGREEING.values(), ids=DISAGREEING)
def test_a_batch_that_disagrees_with_its_stream_is_refused_by_number_and_nothing_is_staged(
    schema, columns, reason
):
    store = store_with(schema=schema)
    right = pa.record_batch([pa.array([1]) for _ in schema], schema=schema)

    with store.transaction() as txn:
        with pytest.raises(SchemaMismatchError, match=f"batch 1 of a stream: {reason}"):
            txn.append("t", stream(schema, right, pa.record_batch(columns)))
        txn.append("t", right)

    assert store.snapshot().table("t").read().to_pylist() == right.to_pylist()


def test_values_of_an_update_come_from_batches_that_agree_with_their_stream():
    store = store_with(pa.table({"a": [1, 2]}))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match="batch 0 of a stream"):
        txn.update_rows("t", [0, 1], stream(ONE, pa.record_batch({"a": [7.5, 8.0]})))

    assert store.snapshot().table("t").read().to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize("other", [pa.array(["x"]), pa.array([[1]]), pa.array(["x"]).dictionary_encode()])
def test_a_foreign_stream_whose_buffers_are_of_another_type_is_refused(other):
    store = store_with(schema=ONE)
    batches = pa.record_batch({"a": [1]}), pa.record_batch({"a": other})

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match="batch 1 of a stream"):
        txn.append("t", Foreign(stream(ONE, *batches)))

    assert store.snapshot().table("t").num_rows == 0


def test_batches_may_have_metadata_of_their_own():
    store = store_with(schema=ONE)
    batch = pa.record_batch({"a": [1]}).replace_schema_metadata({"number": "7"})

    with store.transaction() as txn:
        txn.append("t", stream(ONE, batch))

    assert store.snapshot().table("t").read().to_pydict() == {"a": [1]}


def writable(array: pa.Array) -> pa.Array:
    """The same entries in memory that somebody may write over."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(writable(array.indices), array.dictionary)
    if pa.types.is_struct(array.type):
        return pa.StructArray.from_arrays([writable(array.field(0))], ["inside"])
    own = [each and pa.py_buffer(np.frombuffer(each, np.uint8).copy()) for each in array.buffers()]
    inside = [array.values] if pa.types.is_list(array.type) else []
    return pa.Array.from_buffers(
        array.type, len(array), own[: array.type.num_buffers], array.null_count, children=inside
    )


TEXT = pa.array(["ab", "cd"])
ENDS = st.lists(st.integers(-FAR, FAR), min_size=3, max_size=3).filter(
    lambda ends: not 0 <= ends[0] <= ends[1] <= ends[2] <= 4
)
INDICES = st.lists(st.integers(-128, 127), min_size=2, max_size=2).filter(
    lambda found: not all(0 <= each < 2 for each in found)
)
NOT_TEXT = st.tuples(st.sampled_from(b"\x80\xc3\xff"), st.integers(0, 3)).map(
    lambda found: list((b"a" * found[1] + bytes([found[0]])).ljust(4, b"b"))
)
WORDS = pa.array(["x", "y"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
FORGED = st.one_of(
    st.tuples(st.just(TEXT), st.just(1), st.just("i4"), ENDS),
    st.tuples(st.just(TEXT.cast(pa.large_binary())), st.just(1), st.just("i8"), ENDS),
    st.tuples(st.just(pa.array([[1, 2], [3, 4]])), st.just(1), st.just("i4"), ENDS),
    st.tuples(st.just(pa.StructArray.from_arrays([TEXT], ["inside"])), st.just(2), st.just("i4"), ENDS),
    st.tuples(st.just(WORDS), st.just(1), st.just("i1"), INDICES),
    st.tuples(st.just(pa.StructArray.from_arrays([WORDS], ["inside"])), st.just(2), st.just("i1"), INDICES),
    st.tuples(st.just(TEXT), st.just(2), st.just("u1"), NOT_TEXT),
    st.tuples(st.just(pa.array([7, None])), st.just(0), st.just("u1"), st.sampled_from([[0], [3]])),
)
"""An array of two entries, one of its buffers, and numbers written over it that contradict its type."""


def forged_batch(array: pa.Array, place: int, kind: str, values: list[int]) -> pa.RecordBatch:
    batch = pa.record_batch({"a": writable(array)})
    memory = np.frombuffer(batch.column(0).buffers()[place], np.uint8)
    new = np.array(values, kind).view(np.uint8)
    memory[: len(new)] = new
    return batch


@settings(steady, max_examples=examples(60))
@given(FORGED, st.booleans())
def test_forged_buffers_are_refused_before_anything_is_staged(forgery, in_a_stream):
    batch = forged_batch(*forgery)
    store = store_with(schema=batch.schema)

    with store.transaction() as txn:
        with pytest.raises(SchemaMismatchError):
            txn.append("t", stream(batch.schema, batch) if in_a_stream else batch)
        assert txn.table("t").num_rows == 0


@settings(steady, max_examples=examples(40))
@given(FORGED)
def test_forged_buffers_of_an_update_are_refused(forgery):
    batch = forged_batch(*forgery)
    store = store_with(pa.table({"a": writable(forgery[0])}))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError):
        txn.update_rows("t", [0, 1], {"a": batch.column(0)})


class ForgedArray:
    """Rows behind Arrow's C interface, one number of whose only column is another one."""

    def __init__(self, array: pa.Array, field: str, change: int) -> None:
        self._batch, self._place, self._change = pa.record_batch({"a": array}), C_FIELDS.index(field), change

    def __arrow_c_array__(self, requested: object | None = None) -> tuple[object, object]:
        schema, capsule = self._batch.__arrow_c_array__()
        struct = ctypes.cast(address_of(capsule, b"arrow_array"), ctypes.POINTER(ctypes.c_int64))
        children = ctypes.cast(struct[6], ctypes.POINTER(ctypes.c_int64))
        ctypes.cast(children[0], ctypes.POINTER(ctypes.c_int64))[self._place] += self._change
        return schema, capsule


C_FIELDS = ("length", "null_count", "offset", "n_buffers", "n_children")
address_of = ctypes.pythonapi.PyCapsule_GetPointer
address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@pytest.mark.parametrize(
    ("field", "change"),
    [("length", -1), ("null_count", 9), ("n_buffers", 1), ("n_buffers", -1)],
)  # fmt: skip
@pytest.mark.parametrize("array", [pa.array([7, 8]), TEXT], ids=["numbers", "text"])
def test_numbers_of_the_c_interface_that_contradict_each_other_are_refused(array, field, change):
    store = store_with(schema=pa.schema([("a", array.type)]))

    with store.transaction() as txn, pytest.raises(InvalidInputError):
        txn.append("t", ForgedArray(array, field, change))

    assert store.snapshot().table("t").num_rows == 0
