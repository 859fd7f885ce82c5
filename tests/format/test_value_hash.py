"""Hashes of values are xxh3_64 of their bytes, whatever their length and type."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.format.bounds import is_bytes
from spark_pages.format.statistics import page_stats
from spark_pages.format.value_hash import hash_values, xxh3_64
from tests.io.strategies import NESTED, ORDERED, arrays, steady

LENGTHS = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    31,
    32,
    33,
    48,
    64,
    65,
    96,
    97,
    127,
    128,
    129,
    240,
    241,
    999,
]


def test_pieces_of_every_length_hash_as_the_library_does():
    data = np.random.default_rng(1).integers(0, 256, 40_000).astype(np.uint8)
    starts = np.random.default_rng(2).integers(0, 39_000, 10 * len(LENGTHS))
    lengths = np.array(LENGTHS * 10)

    found = xxh3_64(data, starts, lengths)

    pieces = [data[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True)]
    assert found.tolist() == [xxhash.xxh3_64_intdigest(piece) for piece in pieces]


@pytest.mark.parametrize("length", LENGTHS)
def test_pieces_of_one_length_hash_as_the_library_does(length):
    values = [bytes([index]) * length for index in range(9)]

    found = hash_values(pa.array(values, pa.binary()))

    assert found.tolist() == [xxhash.xxh3_64_intdigest(value) for value in values]


def expected_hash(one):
    """The hash of an array of one value by the library, from the bytes that a bound of it has."""
    if is_bytes(one.type):
        return xxhash.xxh3_64_intdigest(one.cast(pa.large_binary())[0].as_py())
    if one[0].as_py() == 0 and pa.types.is_floating(one.type):
        return xxhash.xxh3_64_intdigest(bytes(one.type.bit_width // 8))
    return xxhash.xxh3_64_intdigest(page_stats(one).min)


@steady
@given(arrays(ORDERED))
def test_a_hash_is_that_of_the_bytes_which_a_bound_would_have(array):
    known = [one for one in (array.slice(index, 1) for index in range(len(array))) if not one.null_count]

    found = hash_values(array)

    expected = [expected_hash(one) for one in known]
    assert sorted(found.tolist()) == sorted(set(expected) if pa.types.is_boolean(array.type) else expected)


@steady
@given(st.data())
def test_a_dictionary_has_the_hashes_of_the_values_that_it_uses(data):
    array = data.draw(arrays({pa.string(): st.text("ab", max_size=3)}))
    encoded = array.dictionary_encode()

    found = hash_values(encoded.slice(len(array) // 2))

    assert set(found.tolist()) == set(hash_values(array.slice(len(array) // 2)).tolist())


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_equal_floats_and_all_nans_have_equal_hashes(kind):
    width = kind.bit_width // 8
    odd = (1 << width * 8) - 3
    nans = pa.Array.from_buffers(
        kind, 2, [None, pa.py_buffer(b"".join(n.to_bytes(width, "little") for n in (odd, odd >> 1)))]
    )
    code = {2: "e", 4: "f", 8: "d"}[width]

    assert len(set(hash_values(nans).tolist())) == 1
    assert hash_values(nans)[0] == xxhash.xxh3_64_intdigest(struct.pack(f"<{code}", float("nan")))
    assert len(set(hash_values(pa.array([0.0, -0.0], kind)).tolist())) == 1


@pytest.mark.parametrize("kind", [kind for kind in NESTED if pa.types.is_nested(kind)] + [pa.null()])
def test_types_without_an_order_have_no_hashes(kind):
    assert hash_values(pa.nulls(3, kind)) is None


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint16(), pa.decimal256(50, 1), pa.binary(7), pa.string_view()]
)
def test_types_of_every_width_are_hashed_by_their_bytes(kind):
    raw = np.arange(1, 5, dtype=np.uint8)
    array = (
        pa.array(raw.tolist()).cast(pa.string()).cast(pa.string_view()) if kind == pa.string_view() else None
    )
    if array is None:
        width = kind.byte_width
        array = pa.Array.from_buffers(kind, 4, [None, pa.py_buffer(np.repeat(raw, width).tobytes())])

    found = hash_values(array)

    expected = [str(n).encode() if kind == pa.string_view() else bytes([n]) * width for n in raw.tolist()]
    assert found.tolist() == [xxhash.xxh3_64_intdigest(value) for value in expected]
