"""Types that are stored, and values of other types brought to them without a loss."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.arrow.compact import referenced_bytes
from spark_pages.arrow.nested import null_column
from spark_pages.arrow.stored_types import (
    UnsupportedTypeError,
    check_depth,
    same_type,
    schema_from_bytes,
    schema_to_bytes,
    stored_type,
    stored_values,
)
from tests.effort import examples
from tests.io.strategies import steady

TEXTS = st.one_of(st.none(), st.text(st.sampled_from("aé\0"), max_size=20))
LEAVES = st.sampled_from([pa.string(), pa.string_view(), pa.large_string()])


def lists_of(kind: pa.DataType) -> st.SearchStrategy[pa.DataType]:
    makers = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda inner: pa.list_(inner, 2))
    wrap = (lambda inner: pa.struct([("x", inner)]), lambda inner: pa.map_(pa.string_view(), inner))
    return st.sampled_from([make(kind) for make in (*makers, *wrap)])


TYPES = st.recursive(LEAVES, lambda inner: inner.flatmap(lists_of), max_leaves=3)


def values_of(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_map(kind):
        some = st.lists(st.tuples(st.sampled_from(["k", "l"]), values_of(kind.item_type)), max_size=2)
    elif pa.types.is_fixed_size_list(kind):
        some = st.lists(values_of(kind.value_type), min_size=2, max_size=2)
    elif pa.types.is_struct(kind):
        some = st.fixed_dictionaries({"x": values_of(kind.field(0).type)})
    elif kind.num_fields:
        some = st.lists(values_of(kind.value_type), max_size=3)
    else:
        return TEXTS
    return st.one_of(st.none(), some)


@settings(steady, max_examples=examples(60))
@given(st.data())
def test_values_of_any_type_are_the_same_under_the_type_that_is_stored(data):
    kind = data.draw(TYPES)
    whole = pa.array(data.draw(st.lists(values_of(kind), max_size=6)), kind)
    start = data.draw(st.integers(0, len(whole)))
    given = whole.slice(start, data.draw(st.integers(0, len(whole) - start)))

    found = stored_values(given, stored_type(kind))

    found.validate(full=True)
    assert found.to_pylist() == given.to_pylist()
    assert "view" not in str(found.type)
    assert stored_type(found.type) == found.type
    schema = pa.schema([("c", found.type)])
    assert schema_from_bytes(schema_to_bytes(schema)).equals(schema, check_metadata=True)


@settings(steady, max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=5), st.data())
def test_list_views_that_overlap_or_leave_gaps_become_lists(places, data):
    offsets, sizes = zip(*places, strict=True)
    mask = pa.array(data.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places))))
    views = pa.ListViewArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(sizes, pa.int32()), pa.array(list("abcdef")), mask=mask
    )

    found = stored_values(views, stored_type(views.type))

    found.validate(full=True)
    assert found.to_pylist() == views.to_pylist()


IDS = pa.array([b"0" * 16, b"1" * 16], pa.uuid())
WORDS = pa.array(["a", "b"], pa.string_view())
UNIONS = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([7, 8])])
RUNS = pa.run_end_encoded(pa.int32(), pa.int64())
ENCODED = {
    "views": (WORDS, pa.dictionary(pa.int8(), pa.large_string())),
    "extension types": (IDS, pa.uuid()),
    "structs of them": (pa.StructArray.from_arrays([IDS], ["x"]), pa.struct([("x", pa.uuid())])),
    "dictionaries": (pa.array(["a", "b"]).dictionary_encode(), pa.dictionary(pa.int32(), pa.string())),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([7, 8])), RUNS),
    "unions": (UNIONS, UNIONS.type),
    "numbers": (pa.array([1, 2]), pa.dictionary(pa.int8(), pa.int64())),
}


@pytest.mark.parametrize(("values", "kind"), ENCODED.values(), ids=ENCODED)
def test_a_dictionary_is_stored_as_its_values_where_arrow_cannot_write_it(values, kind):
    given = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int8()), values)[1:]

    found = stored_values(given, stored_type(given.type))

    assert same_type(found.type, kind)
    assert found.to_pylist() == [None, values[0].as_py(), values[1].as_py()]


def test_types_that_arrow_takes_for_equal_are_not_the_same():
    one, two = (pa.list_(pa.dictionary(index, pa.list_(pa.uuid()))) for index in (pa.int8(), pa.int64()))

    assert one == two, "where Arrow knows better, same_type can go"
    assert not same_type(one, two)
    assert same_type(one, pa.list_(pa.dictionary(pa.int8(), pa.list_(pa.uuid()))))


def test_metadata_inside_of_a_type_are_those_of_the_column_that_is_made():
    for number in (b"1", b"2"):
        inner = pa.field("x", pa.string_view(), False, metadata={b"number": number})

        stored = stored_type(pa.list_(pa.struct([inner])))

        assert stored.value_type.field(0).metadata == {b"number": number}


REFUSED = {
    "runs of dictionaries": pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.string())),
    "runs of runs": pa.run_end_encoded(pa.int32(), pa.list_(pa.run_end_encoded(pa.int32(), pa.int8()))),
    "entries of a gigabyte": pa.list_(pa.list_(pa.int64(), 1 << 14), 1 << 13),
}


@pytest.mark.parametrize("kind", REFUSED.values(), ids=REFUSED)
def test_a_type_that_is_not_stored_is_refused_with_a_remedy(kind):
    with pytest.raises(UnsupportedTypeError) as refused:
        stored_type(kind)

    assert refused.value.remedy.endswith(".")


def test_depth_is_checked_without_recursion():
    kind = pa.int8()
    for _ in range(5000):
        kind = pa.list_(kind)

    with pytest.raises(UnsupportedTypeError, match="48 levels"):
        check_depth(kind)


def test_bytes_of_unions_without_entries_are_counted():
    kind = pa.list_(pa.sparse_union([pa.field("n", pa.int32())]))
    batch = pa.record_batch({"c": null_column(kind, 3)})

    read = pa.ipc.read_record_batch(batch.serialize(), batch.schema)

    assert referenced_bytes(read) < 1000
    assert referenced_bytes(read.column(0)) == referenced_bytes(read)
