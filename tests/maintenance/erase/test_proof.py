"""The proof of an erase finds what is left of rows, whatever it is left in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.maintenance.erase.proof import has_remains
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.store import Store
from spark_pages.transaction import rewritten_pages
from tests.maintenance.erase.secrets import places_of
from tests.transaction.stores import store_with

DEAD = np.array([False, True, False])


def words(store: Store) -> str:
    """Erase row 1 of a store at once, and return what the proof says of what is left."""
    report = store.erase("t", rows=[1], retention=1).execute()
    found = store.verify("none", erased=report)
    return " ".join(fault.what for fault in found.faults if fault.kind is FaultKind.ERASED)


def some(kind: pa.DataType | None = None, **properties: str) -> Store:
    values = pa.array(["first", "q9Zx7secret", "third"], kind)
    store = store_with(schema=pa.schema([("s", values.type)]))
    with store.transaction() as txn:
        txn.set_table_properties("t", properties)
        txn.append("t", pa.table({"s": values}))
    return store


def test_a_sound_erase_leaves_nothing():
    assert words(some()) == ""


def test_an_entry_that_was_not_blanked_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("spark_pages.maintenance.erase.plan.purge_table", lambda *_, **__: (0, None))

    assert "have entries of erased rows" in words(some())


def test_a_bound_of_an_erased_row_is_found(monkeypatch: pytest.MonkeyPatch):
    stage = rewritten_pages.stage_pages

    def with_old_bounds(*given: object) -> list:
        return [replace(each, stats=replace(each.stats, max=b"q9Zx7secret")) for each in stage(*given)]

    monkeypatch.setattr(rewritten_pages, "stage_pages", with_old_bounds)

    assert "have bounds that none of their values explains" in words(some())


def test_a_value_of_a_dictionary_that_no_entry_uses_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rewritten_pages, "with_used_values", lambda values: values)

    assert "values of dictionaries" in words(some(pa.dictionary(pa.int32(), pa.string())))


def test_text_in_the_parameters_of_a_commit_that_is_kept_is_found():
    store = some()
    with store.transaction(parameters={"why": "Bob asked"}) as txn:
        txn.delete("t", [1])
    report = store.erase("t", rows=[1]).execute()

    told = [fault.what for fault in store.verify("none", erased=report).faults]

    assert any("its operation or parameters may tell of them" in each for each in told)


def test_a_bloom_filter_that_its_values_do_not_explain_is_found(monkeypatch: pytest.MonkeyPatch):
    numbers = np.random.default_rng(0).integers(0, 1 << 60, 3_000)
    store = store_with(schema=pa.schema([("n", pa.int64())]))
    with store.transaction() as txn:
        txn.set_table_properties("t", {"bloom.n": "true"})
        txn.append("t", {"n": numbers})
    stage = rewritten_pages.stage_pages
    old = stage(pa.array(numbers), np.array([0, 3_000]), bloom=0.01)
    monkeypatch.setattr("spark_pages.transaction.page_writer.INLINE_PAGE_BYTES", 0)
    monkeypatch.setattr("spark_pages.transaction.page_writer.INLINE_TRANSACTION_BYTES", 0)
    monkeypatch.setattr(
        rewritten_pages, "stage_pages", lambda *given: [replace(stage(*given)[0], bloom=old[0].bloom)]
    )

    assert "have bloom filters that their values do not explain" in words(store)


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        (pa.array([1, 2, 3]), pa.array([1, 1, 3])),
        (pa.array([1, 2, 3]), pa.array([1, 0, 3])),
        (pa.array([1.5, 2.5, 3.5]), pa.array([1.5, 3.5, 3.5])),
        (pa.array(["a", "b", "c"]), pa.array(["a", "", "c"])),
        (pa.array([[1], [2], [3]]), pa.array([[1], [], [3]])),
        (
            pa.array([[1], [2], [3]], pa.list_(pa.int64(), 1)),
            pa.array([[1], [0], [3]], pa.list_(pa.int64(), 1)),
        ),
        (pa.array([{"a": 1}, {"a": 2}, {"a": 3}]), pa.array([{"a": 1}, {"a": 3}, {"a": 3}])),
    ],
    ids=lambda array: str(array.type),
)
def test_bytes_under_a_null_are_those_of_another_entry_or_zero(dirty: pa.Array, clean: pa.Array):
    assert has_remains(under_null(dirty), DEAD)
    assert not has_remains(under_null(clean), DEAD)


def under_null(values: pa.Array) -> pa.Array:
    """The values with a null over the second one, and its bytes below."""
    valid = pa.py_buffer(bytes([0b101]))
    buffers = [valid, *values.buffers()[1 : values.type.num_buffers]]
    children = [values.field(0)] if pa.types.is_struct(values.type) else []
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        children = [values.values]
    return pa.Array.from_buffers(values.type, 3, buffers, children=children or None)


def test_a_dictionary_without_the_value_of_the_null_has_no_remains():
    used = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), ["a", "c"])
    unused = pa.DictionaryArray.from_arrays(pa.array([0, None, 2]), ["a", "b", "c"])

    assert not has_remains(used, DEAD)
    assert has_remains(unused, DEAD)


def test_no_page_of_other_rows_has_the_value_in_its_dictionary():
    kind = pa.dictionary(pa.int32(), pa.string())
    texts = [[f"v{part}-{row}" for row in range(500)] for part in range(40)]
    texts[0][1] = "q9Zx7secret"
    store = store_with(*(pa.table({"s": pa.array(each, kind)}) for each in texts))
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "4096"})
    store.compact_pages("t")
    assert store.snapshot().table("t").pages("s").num_rows > 20

    store.erase("t", rows=[1], retention=1).execute()

    assert places_of(b"q9Zx7secret", store.object_store) == set()
