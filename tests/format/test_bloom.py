"""Bloom filters: no value of a page is ever denied, and few others are let through."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.format.bloom import BLOCK_BYTES, Blooms, build_bloom
from spark_pages.format.value_hash import hash_values
from tests.io.strategies import ORDERED, arrays, steady

RATES = st.sampled_from([0.5, 0.1, 0.01, 1e-4, 1e-9])


def as_the_format_says(bloom: bytes, value: bytes) -> bool:
    """The test of one value, written from ``docs/format.md`` alone."""
    salts = "47b6137b 44974d91 8824ad5b a2b7289d 705495c7 2df1424b 9efc4947 5c6bfb31"
    h = xxhash.xxh3_64_intdigest(value)
    block = ((h >> 32) * (len(bloom) // 32)) >> 32
    words = [int.from_bytes(bloom[block * 32 + 4 * i :][:4], "little") for i in range(8)]
    bits = [((h % 2**32) * int(salt, 16) % 2**32) >> 27 for salt in salts.split()]
    return all(word >> bit & 1 for word, bit in zip(words, bits, strict=True))


@steady
@given(arrays(ORDERED), RATES)
def test_no_value_of_a_page_is_denied(array, rate):
    bloom = build_bloom(array, rate)

    hashes = hash_values(array)
    assert (bloom is None) == (not len(hashes))
    for each in hashes.tolist() if bloom else ():
        assert Blooms.of([bloom]).may_contain(np.array([each], np.uint64)).all()


@steady
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=60), st.lists(st.binary(max_size=9)), RATES)
def test_a_filter_says_of_any_value_what_the_specification_says(held, others, rate):
    bloom = build_bloom(pa.array(held, pa.binary()), rate)

    for value in [*held, *others]:
        found = Blooms.of([bloom]).may_contain(hash_values(pa.array([value], pa.binary())))
        assert found.tolist() == [as_the_format_says(bloom, value)]


@steady
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=20), min_size=1, max_size=9), st.lists(st.integers(0, 99))
)
def test_the_filters_of_many_pages_are_asked_at_once(pages, asked):
    blooms = [build_bloom(pa.array(page, pa.int64()), 0.1) or b"" for page in pages]
    hashes = hash_values(pa.array(asked, pa.int64()))

    found = Blooms.of(blooms).may_contain(hashes)

    alone = [not bloom or bool(Blooms.of([bloom]).may_contain(hashes)[0]) for bloom in blooms]
    assert found.tolist() == alone


def test_a_page_may_hold_any_of_several_values_if_it_holds_one():
    blooms = Blooms.of([build_bloom(pa.array([value]), 1e-6) for value in (1, 2, 3)])

    assert blooms.may_contain(hash_values(pa.array([1, 3, 77]))).tolist() == [True, False, True]
    assert blooms.may_contain(hash_values(pa.array([77, 78]))).tolist() == [False] * 3
    assert not blooms.contain_all(hash_values(pa.array([1])))
    assert Blooms.of([build_bloom(pa.array([1, 3]), 1e-6)]).contain_all(hash_values(pa.array([3, 1])))


@pytest.mark.parametrize("rate", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("count", [300, 8192])
def test_the_rate_of_false_positives_is_the_one_that_was_asked_for(rate, count):
    generator = np.random.default_rng(7)
    blooms = Blooms.of([build_bloom(pa.array(generator.integers(0, 2**40, count)), rate) for _ in range(6)])
    strangers = hash_values(pa.array(np.arange(2**41, 2**41 + 4_000)))

    let_through = (
        sum(blooms.may_contain(strangers[index : index + 1]).sum() for index in range(4_000)) / 24_000
    )

    assert rate / 2 < let_through < rate * 1.25


def test_the_size_follows_the_number_of_different_values():
    few, many = (build_bloom(pa.array(np.arange(8192) % n), 0.01) for n in (64, 8192))

    assert len(few) % BLOCK_BYTES == len(many) % BLOCK_BYTES == 0
    assert 80 < len(many) / len(few) < 160
    assert 10 < len(many) * 8 / 8192 < 11


def test_no_filter_is_made_that_is_larger_than_allowed():
    values = pa.array(range(8192))
    size = len(build_bloom(values, 0.01))

    assert build_bloom(values, 0.01, most_bytes=size) is not None
    assert build_bloom(values, 0.01, most_bytes=size - 1) is None
