"""A type that a column is given can be written and read, or is refused before the column is made."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_pages.errors import InvalidInputError, SchemaMismatchError
from tests.transaction.stores import store_with

RUNS = pa.run_end_encoded(pa.int32(), pa.int64())
UNION = pa.dense_union([pa.field("a", pa.int8()), pa.field("b", pa.string())])
LISTS = pa.dictionary(pa.int8(), pa.list_(pa.int8()))


class Unhashable(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.unhashable")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, told: bytes) -> Unhashable:
        return cls()


class Unregistered(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.unregistered")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, told: bytes) -> Unregistered:
        return cls()

    def __hash__(self) -> int:
        return 7


def nested(levels: int) -> pa.DataType:
    kind = pa.int8()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


REFUSED = {
    "runs of dictionaries": (
        pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.string())), "Give it the type dictionary"
    ),
    "unhashable": (Unhashable(), "no __hash__ .* or the column the type int64"),
    "unregistered": (Unregistered(), "register_extension_type first, or give the column the type int64"),
    "int64 that says it is a uuid": (
        pa.struct([pa.field("id", pa.int64(), metadata={"ARROW:extension:name": "arrow.uuid"})]),
        "Leave out its metadata",
    ),
    "lists too deep for Arrow": (nested(66), "Flatten it"),
    "lists too deep for Python": (nested(2000), "Flatten it"),
    "entries of a gigabyte": (pa.list_(pa.int64(), 1 << 27), "variable length"),
    "unregistered in lists": (pa.list_(Unregistered()), "'tests.unregistered' is not registered"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "hint"), REFUSED.values(), ids=REFUSED)
def test_a_type_that_could_not_be_written_or_read_is_refused_before_a_table_has_it(kind, hint):
    store = store_with(pa.table({"n": [1]}))

    with store.transaction() as txn:
        with pytest.raises(InvalidInputError, match=rf"(?s)Cannot store column 'c' of table 'u' as .*{hint}"):
            txn.create_table("u", pa.schema([("c", kind)]))
        with pytest.raises(InvalidInputError, match=rf"(?s)Cannot store column 'c' of table 't' as .*{hint}"):
            txn.add_column("t", pa.field("c", kind))

    assert store.snapshot().tables() == ["t"]
    assert store.snapshot().table("t").schema.names == ["n"]


@pytest.mark.parametrize(
    "kind",
    [RUNS, UNION, LISTS, pa.struct([("r", RUNS)]), pa.list_(RUNS), pa.map_(pa.string(), pa.list_view(RUNS))],
    ids=str,
)
def test_a_column_of_any_type_may_be_left_out_and_is_null_then(kind):
    store = store_with(schema=pa.schema([("n", pa.int64()), ("c", kind)]))

    with store.transaction() as txn:
        txn.append("t", {"n": [1, 2]})
    with store.transaction() as txn:
        txn.append("t", {"n": [3]}, entry_meta={"n.prefix_meta": [b"x"]})
    with store.transaction() as txn:
        txn.add_column("t", pa.field("later", kind))
    with store.transaction() as txn:
        txn.append("t", {"n": [4]})
    list(store.compact_pages("t"))

    table = store.snapshot().table("t")
    found = table.read()
    found.validate(full=True)
    assert found.to_pydict() == {"n": [1, 2, 3, 4], "c": [None] * 4, "later": [None] * 4}
    assert table.take([3, 0])["c"].to_pylist() == [None, None]


FOUR = pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array([7, None]))
PAIRS = pa.array([0, 2, 4], pa.int32())
NESTED = {
    "struct of lists": pa.StructArray.from_arrays([pa.ListArray.from_arrays(PAIRS, FOUR)], ["l"]),
    "list of structs": pa.ListArray.from_arrays(PAIRS, pa.StructArray.from_arrays([FOUR], ["r"])),
    "map": pa.MapArray.from_arrays(PAIRS, pa.array(list("abcd")), FOUR),
    "view of fixed lists": pa.ListViewArray.from_arrays(
        [1, 0], [1, 2], pa.FixedSizeListArray.from_arrays(FOUR, 2)
    ),
}


@pytest.mark.parametrize("values", NESTED.values(), ids=NESTED)
def test_run_end_encoded_values_may_be_anywhere_inside_of_a_type(values):
    store = store_with(pa.table({"c": values}), pa.table({"c": values[1:]}))

    with store.transaction() as txn:
        txn.update_rows("t", [2], {"c": values[:1]})

    found = store.snapshot().table("t").read()["c"]
    found.validate(full=True)
    assert found.to_pylist() == [*values.to_pylist(), values[0].as_py()]


def test_a_struct_of_runs_and_dictionaries_may_be_null():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, None]))
    union = pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array([1, 2, 3])])
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    values = pa.StructArray.from_arrays(
        [runs, union, words], list("ruw"), mask=pa.array([False, True, False])
    )

    table = store_with(pa.table({"c": values}), pa.table({"c": values[1:]})).snapshot().table("t")

    assert table.read()["c"].to_pylist() == [*values.to_pylist(), *values.to_pylist()[1:]]
    assert table.take([2, 1, 3])["c"].to_pylist() == [values[2].as_py(), None, None]


def union_of(mode: str) -> pa.Array:
    """Entries ``[None, 2, None, "b", 3]``, of which a slice begins inside of its memory."""
    if mode == "dense":
        kinds, places = pa.array([0, 0, 0, 1, 1, 0], pa.int8()), pa.array([3, 0, 1, 0, 2, 2], pa.int32())
        parts = [pa.array([None, 2, 3, 9], pa.int8()), pa.array([None, "x", "b", "y"])]
        return pa.UnionArray.from_dense(kinds, places, parts, ["a", "b"]).slice(1)
    parts = [pa.array([9, None, 2, 0, 0, 3], pa.int8()), pa.array(["x", "x", "x", None, "b", "x"])]
    return pa.UnionArray.from_sparse(pa.array([0, 0, 0, 1, 1, 0], pa.int8()), parts, ["a", "b"]).slice(1)


@pytest.mark.parametrize("mode", ["dense", "sparse"])
def test_entries_of_unions_that_stand_for_a_null_count_as_nulls(mode):
    store = store_with(pa.table({"u": union_of(mode)}))
    table = store.snapshot().table("t")

    assert table.read(filter=pc.field("u").is_null())["u"].to_pylist() == [None, None]
    assert table.read(filter="u is not null")["u"].to_pylist() == [2, "b", 3]
    assert (table.aggregate("u").count, table.aggregate("u").null_count) == (3, 2)
    assert (table.aggregate("u", 0, 2).count, table.aggregate("u", 0, 2).null_count) == (1, 1)
    assert store.verify(pages="all").ok


@pytest.mark.parametrize("mode", ["dense", "sparse"])
def test_pages_of_unions_with_other_numbers_of_rows_are_what_their_statistics_say(mode):
    store = store_with(pa.table({"u": union_of(mode)}))
    for count in (3, 7):
        with store.transaction() as txn:
            txn.directory("t").update_latest_entry_count("u", count)

    table = store.snapshot().table("t")
    assert table.read()["u"].to_pylist() == [None, 2, None, "b", 3, None, None]
    assert (table.aggregate("u").count, table.aggregate("u").null_count) == (3, 4)
    assert store.verify(pages="all").ok


@pytest.mark.parametrize("mode", ["dense", "sparse"])
def test_a_union_that_stands_for_a_null_does_not_fit_a_column_without_nulls(mode):
    values = union_of(mode)
    schema = pa.schema([pa.field("u", values.type, nullable=False)])
    store = store_with(schema=schema)

    with store.transaction() as txn:
        txn.append("t", pa.table({"u": values[3:]}))
        with pytest.raises(SchemaMismatchError, match="2 of the values given are null"):
            txn.append("t", pa.table({"u": values}))

    assert store.snapshot().table("t").read()["u"].to_pylist() == ["b", 3]
