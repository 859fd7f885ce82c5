from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.arrow.join import DoesNotFitError
from spark_pages.errors import DamageError
from spark_pages.format.pages.page_codec import open_page
from spark_pages.io import LazyPage, encode_page
from spark_pages.query import concat
from spark_pages.query.concat import assemble, assembled
from tests.format.test_lazy_page import PLAIN, values_of, with_offsets
from tests.io.strategies import steady

KINDS = {**PLAIN, "list": pa.list_(pa.int64()), "dictionary": pa.dictionary(pa.int8(), pa.string())}


def some_values(kind: pa.DataType, rows: int, nulls: bool, seed: int) -> pa.Array:
    if pa.types.is_list(kind):
        return pa.array([[seed] * (row % 3) for row in range(rows)], kind)
    if pa.types.is_dictionary(kind):
        return pa.array([str((row + seed) % 5) for row in range(rows)]).cast(kind)
    return values_of(kind, rows, nulls, seed)


def page_of(values: pa.Array) -> concat.Values:
    found = [
        open_page(encode_page(values).data, where="pages/x@0", expected_checksum=None, expected_entries=None)
        for _ in range(2)
    ][-1]
    return found if isinstance(found, LazyPage) else found.column(0)


@steady
@given(
    kind=st.sampled_from(list(KINDS.values())),
    pages=st.lists(st.tuples(st.integers(1, 90), st.booleans(), st.booleans()), max_size=5),
    data=st.data(),
)
def test_parts_of_pages_become_arrays_as_if_arrow_had_joined_them(kind, pages, data):
    parts, expected = [], []
    for seed, (rows, nulls, is_array) in enumerate(pages):
        values = some_values(kind, rows, nulls, seed)
        start = data.draw(st.sampled_from([0, rows // 3]))
        stop = data.draw(st.sampled_from([rows, rows - rows // 3]))
        parts.append((values if is_array else page_of(values), start, stop))
        expected += values.slice(start, stop - start).to_pylist()

    found = assemble(parts, kind)

    found.validate(full=True)
    assert found.to_pylist() == expected
    assert found.type == kind


def test_text_that_does_not_fit_one_array_comes_as_several(monkeypatch):
    pages = [pa.array(["abc"] * 4), pa.array(["de"]), pa.array(["fgh"] * 4)]
    parts = [(page_of(page), 0, len(page)) for page in pages]
    monkeypatch.setattr(concat, "_MOST_TEXT", 14)

    with pytest.raises(DoesNotFitError):
        assemble(parts, pa.string())

    assert [each.to_pylist() for each in assembled(parts, pa.string())] == [
        ["abc"] * 4,
        ["de", *["fgh"] * 4],
    ]


def test_text_outside_of_its_page_is_damage_also_among_others():
    page = page_of(pa.array(["abc", "de"]))
    assert isinstance(page, LazyPage)
    forged = with_offsets(page, [0, 3, 99])

    with pytest.raises(DamageError, match="pages/x@0"):
        assemble([(page, 0, 2), (forged, 0, 2)], pa.string())
