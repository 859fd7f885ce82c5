"""Extension types: rows are the same whether a process has registered them, and whenever it did so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from spark_pages.arrow.types import retyped, storage_of
from spark_pages.query.table import Table
from spark_pages.store import Store
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import store_with

NAME = "tests.degrees"
COUNT = 20_000


class Degrees(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int64(), NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, told: bytes) -> Degrees:
        return cls()

    def __hash__(self) -> int:
        return hash(NAME)


@contextmanager
def registered() -> Iterator[None]:
    pa.register_extension_type(Degrees())
    try:
        yield
    finally:
        pa.unregister_extension_type(NAME)


def rows(first: int, count: int) -> pa.Table:
    """Columns ``d`` and ``l``, in which the type stands inside of a list."""
    numbers = pa.array(range(first, first + count))
    values = pa.ExtensionArray.from_storage(Degrees(), numbers)
    return pa.table({"d": values, "l": pa.ListArray.from_arrays(range(count + 1), values)})


def stored_rows(first: int, count: int) -> pa.Table:
    """The same, as a process gives them that does not know the type."""
    numbers = pa.array(range(first, first + count))
    return pa.table({"d": numbers, "l": pa.ListArray.from_arrays(range(count + 1), numbers)})


def check_rows(store: Store, count: int) -> None:
    table = store.snapshot().table("t")
    wanted = stored_rows(0, count)
    for found in (table.read(), table.scan().read_all(), table.take(range(count))):
        assert as_stored(found).equals(wanted)
        assert found.schema.types == table.schema.types
    assert store.verify(pages="all").ok


def as_stored(found: pa.Table) -> pa.Table:
    columns = {
        name: pa.chunked_array([retyped(chunk, storage_of(chunk.type)) for chunk in found[name].chunks])
        for name in found.column_names
    }
    return pa.table(columns)


def test_a_table_that_was_read_before_its_types_were_registered_is_read_afterwards():
    with registered():
        store = store_with(rows(0, COUNT), rows(COUNT, 5))
    early = Store(store.object_store)
    check_rows(early, COUNT + 5)

    with registered():
        late = Store(store.object_store)
        assert late.snapshot().table("t").schema.field("d").type == Degrees()
        check_rows(late, COUNT + 5)
        check_rows(early, COUNT + 5)


def test_rows_of_a_process_that_does_not_know_the_type_are_rows_like_others():
    with registered():
        store = store_with(rows(0, COUNT))
    unknowing = Store(store.object_store)
    with unknowing.transaction() as txn:
        txn.append("t", stored_rows(COUNT, COUNT))
        txn.update_rows("t", [0], {"d": [0]})

    with registered():
        knowing = Store(store.object_store)
        check_rows(knowing, 2 * COUNT)
        with knowing.transaction() as txn:
            txn.update_rows("t", [COUNT], {"d": rows(COUNT, 1)["d"]})
            txn.append("t", rows(2 * COUNT, 5))
        check_rows(knowing, 2 * COUNT + 5)
        knowing.compact_pages("t")
        check_rows(knowing, 2 * COUNT + 5)
    check_rows(Store(store.object_store), 2 * COUNT + 5)


def test_small_appends_take_pages_along_whether_the_type_is_known_or_not():
    with registered():
        store = store_with(schema=rows(0, 1).schema)
    with store.transaction() as txn:
        txn.set_properties({"tail_page_bytes": "8192"})
    for number in range(16):
        if number % 2:
            with registered(), Store(store.object_store).transaction() as txn:
                txn.append("t", rows(number, 1))
        else:
            with Store(store.object_store).transaction() as txn:
                txn.append("t", stored_rows(number, 1))

    assert store.snapshot().table("t").pages("d")["entry_count"].to_pylist() == [16]
    with registered():
        check_rows(Store(store.object_store), 16)


def test_a_page_under_the_storage_type_may_be_registered():
    key = "imports/day-1.pages"
    with registered():
        store = store_with(rows(0, 1).select(["d"]))
        pages = write_file(store.object_store, key, pa.array([1, 2]))
        with store.transaction() as txn:
            txn.directory("t").register_batch([pending("d", key, pages)])

        table: Table = store.snapshot().table("t")
        assert as_stored(table.read())["d"].to_pylist() == [0, 1, 2]


FOUR = pa.array([1, None, 3, 4])


@pytest.mark.parametrize(
    "array",
    [
        pa.StructArray.from_arrays([FOUR], ["x"], mask=pa.array([False, True, False, False])),
        pa.FixedSizeListArray.from_arrays(FOUR, 2),
        pa.MapArray.from_arrays([0, 1, 4], list("abcd"), FOUR),
        pa.ListViewArray.from_arrays([1, 0], [2, 2], FOUR),
        pa.UnionArray.from_dense(
            pa.array([0, 0, 0], pa.int8()), pa.array([3, 0, 2], pa.int32()), [FOUR], ["x"]
        ),
    ],
    ids=lambda array: str(array.type.id),
)
def test_the_type_may_stand_anywhere_inside_of_another(array):
    own = [array.type.field(index) for index in range(array.type.num_fields)]
    inside = [field.with_type(Degrees()) if field.type == pa.int64() else field for field in own]
    kind = {
        pa.StructType: lambda: pa.struct(inside),
        pa.FixedSizeListType: lambda: pa.list_(inside[0], 2),
        pa.MapType: lambda: pa.map_(pa.string(), Degrees()),
        pa.ListViewType: lambda: pa.list_view(inside[0]),
        pa.DenseUnionType: lambda: pa.dense_union(inside),
    }[type(array.type)]()

    named = retyped(array[1:], kind)

    named.validate(full=True)
    assert (named.type, storage_of(kind)) == (kind, array.type)
    assert retyped(named, array.type).equals(array[1:])
