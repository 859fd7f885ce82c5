from __future__ import annotations

import math
import struct
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from spark_pages.errors import DamageError
from spark_pages.format.bounds import decode_bound
from spark_pages.format.pages.paginate import plan_pages
from spark_pages.format.statistics import page_stats, stats_of_pages
from spark_pages.model.page import PageStats
from tests.io.strategies import ORDERED, arrays, steady


def comparable(kind, bound):
    """A bound as a Python value that orders like the column does (text by its code points)."""
    return decode_bound(kind, bound).as_py()


@steady
@given(arrays(ORDERED))
def test_all_values_lie_within_the_bounds(array):
    stats = page_stats(array)

    values = [value for value in array.to_pylist() if value is not None]
    assert stats.null_count == array.null_count
    assert stats.min is None or all(comparable(array.type, stats.min) <= value for value in values)
    assert stats.max is None or all(comparable(array.type, stats.max) >= value for value in values)
    assert len(stats.min or b"") <= 32
    assert len(stats.max or b"") <= 32
    assert values or (stats.min is None and stats.max is None)


@steady
@given(arrays(ORDERED, min_size=1))
def test_exact_bounds_are_values_of_the_page(array):
    stats = page_stats(array)

    values = [value for value in array.to_pylist() if value is not None]
    expected = (min(values), max(values)) if values else (None, None)
    exact = stats.exact and values
    assert not exact or (comparable(array.type, stats.min), comparable(array.type, stats.max)) == expected


@steady
@given(arrays(ORDERED))
def test_the_statistics_of_many_pages_are_those_of_each(array):
    boundaries = plan_pages(array, 40)

    together = stats_of_pages(array, boundaries)

    one_by_one = [page_stats(array[a:b]) for a, b in pairwise(boundaries)]
    assert together == one_by_one


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a" * 40, "a" * 31 + "b"),
        ("é" * 20, "é" * 15 + "ê"),
        ("a" * 31 + "é", "a" * 30 + "b"),
        ("a" * 31 + "\x7f" + "a", "a" * 30 + "b"),
        ("\ud7ff" * 12, "\ud7ff" * 9 + "\ue000"),
        ("a" + "\U0010ffff" * 9, "b"),
    ],
)
def test_the_maximum_of_long_text_is_rounded_up_to_text_that_fits(value, expected):
    stats = page_stats(pa.array([value]))

    assert stats.max == expected.encode()
    assert stats.max.decode() > value
    assert value.startswith(stats.min.decode())
    assert not stats.exact


@pytest.mark.parametrize("value", [b"\xff" * 33, "\U0010ffff" * 9])
def test_a_maximum_that_cannot_be_rounded_up_is_no_bound(value):
    assert page_stats(pa.array([value])).max is None


NAN = float("nan")
FLOATS: dict[str, Callable[[list[float | None]], pa.Array]] = {
    "half": lambda values: pa.array(values, pa.float16()),
    "single": lambda values: pa.array(values, pa.float32()),
    "double": lambda values: pa.array(values, pa.float64()),
    "a slice": lambda values: pa.array([NAN, *values, NAN])[1:-1],
    "a dictionary": lambda values: pa.array(values).dictionary_encode(),
    "runs": lambda values: pc.run_end_encode(pa.array(values)),
}


@pytest.mark.parametrize("made", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize(
    "values", [[1.5, NAN, -2.0], [NAN, 1.5, None, -2.0, NAN], [-2.0, None, 1.5, -NAN], [NAN, -2.0, 1.5]]
)
def test_bounds_of_a_page_with_a_nan_are_those_of_its_other_values(made, times, values):
    array = made(values * times)

    stats = page_stats(array)

    assert (stats.nan, stats.exact, stats.null_count) == (True, True, times * values.count(None))
    assert [decode_bound(array.type, bound).as_py() for bound in (stats.min, stats.max)] == [-2.0, 1.5]
    assert stats_of_pages(array, [0, len(array)]) == [stats]


@pytest.mark.parametrize("made", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("values", [[NAN], [NAN, None], [NAN, NAN, None, NAN]])
def test_a_page_of_nothing_but_nan_has_no_bounds_and_says_that_this_is_exact(made, times, values):
    stats = page_stats(made(values * times))

    assert stats == PageStats(times * values.count(None), None, None, True, 1, nan=True)


def test_one_page_with_a_nan_changes_nothing_of_those_beside_it():
    pages = [[1.0, 2.0], [NAN, 3.0], [-0.0, 0.0], [math.inf, NAN], [None, 5.0], [NAN, None], [None, None]]
    array = pa.array([value for page in pages for value in page], pa.float64())

    found = stats_of_pages(array, [0, 2, 4, 6, 8, 10, 12, 14])

    assert found == [page_stats(pa.array(page, pa.float64())) for page in pages]
    assert [each.nan for each in found] == [False, True, False, True, False, True, False]


def test_a_zero_beside_a_nan_is_bounded_by_both_zeros():
    for array in (pa.array([NAN, 0.0]), pa.array([NAN, 0.0] * 100)):
        stats = page_stats(array)

        assert (stats.min, stats.max) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))


def test_zeros_are_bounded_by_both_zeros():
    stats = page_stats(pa.array([0.0]))
    negative = page_stats(pa.array([-0.0]))

    assert (stats.min, stats.max) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))
    assert (negative.min, negative.max) == (stats.min, stats.max)


def test_bounds_of_numbers_are_the_bytes_that_arrow_keeps():
    stats = page_stats(pa.array([-2, 300], pa.int16()))
    flags = page_stats(pa.array([True, False]))

    assert (stats.min, stats.max) == (struct.pack("<h", -2), struct.pack("<h", 300))
    assert (flags.min, flags.max) == (b"\x00", b"\x01")


def test_a_dictionary_has_the_bounds_of_the_values_it_uses():
    whole = pa.array(["a", "m", "z"]).dictionary_encode()

    stats = page_stats(whole[1:2])

    assert (stats.min, stats.max) == (b"m", b"m")


@pytest.mark.parametrize(
    "kind", [pa.decimal32(5, 1), pa.decimal64(10, 1), pa.decimal256(50, 1), pa.time64("ns")]
)
def test_types_without_a_kernel_of_their_own_have_bounds_too(kind):
    array = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(np.arange(8).tobytes() * 2)])

    stats = page_stats(array)

    assert decode_bound(kind, stats.min) in list(array)
    assert decode_bound(kind, stats.max) in list(array)


def test_text_without_a_byte_has_statistics():
    offsets = pa.py_buffer(np.zeros(4, np.int32))

    stats = page_stats(pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"")]))

    assert (stats.null_count, stats.min, stats.max, stats.exact, stats.distinct) == (0, b"", b"", True, 1)


@steady
@given(arrays(ORDERED))
def test_small_pages_are_counted(array):
    stats = page_stats(array)

    values = {repr(value) for value in array.to_pylist() if value is not None}
    alike = (
        pa.types.is_string(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_binary(array.type)
    )
    zeros = pa.types.is_floating(array.type) and {"0.0", "-0.0"} <= values
    if not values:
        assert stats.distinct is None
    elif alike or zeros:
        assert 1 <= stats.distinct <= len(values)
    else:
        assert stats.distinct == len(values)


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        (np.random.default_rng(1).permutation(10**6)[:8192], 8192, 8192),
        (np.random.default_rng(2).integers(0, 1000, 8192), 700, 1350),
        (np.random.default_rng(3).integers(0, 40, 8192) * 10**9, 40, 40),
        (np.repeat(np.random.default_rng(4).integers(0, 2**40, 4096), 2), 4096, 8192),
        (np.full(8192, 7), 1, 1),
    ],
)
def test_the_number_of_different_values_of_large_pages_is_estimated(values, least, most):
    texts = pa.array([f"{value:020d}" for value in values.tolist()])

    for array in (pa.array(values), pa.array(values / 2), pa.array(values, pa.timestamp("us")), texts):
        assert least <= page_stats(array).distinct <= most


def test_a_dictionary_has_as_many_values_as_it_uses():
    whole = pa.array([f"v{n % 300}" for n in range(9_000)]).dictionary_encode()

    assert page_stats(whole).distinct == 300
    assert page_stats(whole[:7]).distinct == 7
    assert (
        page_stats(pa.DictionaryArray.from_arrays(pa.array([1, None, 1], pa.uint64()), ["a", "b"])).distinct
        == 1
    )


def test_nested_pages_have_a_null_count_and_no_bounds():
    stats = page_stats(pa.array([[1], None]))

    assert (stats.null_count, stats.min, stats.max) == (1, None, None)


def test_bytes_that_are_no_value_of_the_type_are_damage():
    with pytest.raises(DamageError, match="expected 8 bytes, found 3"):
        decode_bound(pa.int64(), b"abc")


def test_the_bounds_of_a_large_page_agree_with_arrow():
    array = pa.array(np.random.default_rng(1).integers(-(10**12), 10**12, 8192))

    stats = page_stats(array)

    assert decode_bound(array.type, stats.min) == pc.min(array)
    assert decode_bound(array.type, stats.max) == pc.max(array)


@steady
@given(arrays(ORDERED, min_size=1))
def test_a_few_values_have_the_statistics_that_they_have_among_more(array):
    boundaries = [0, len(array), 2 * len(array)]

    together = stats_of_pages(pa.concat_arrays([array, array]), boundaries)

    assert together == [page_stats(array)] * 2


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    "values",
    [[0.0, -0.0], [-0.0, 0.0, 1.0], [0.0, -1.0], [2.5], [float("inf"), 1.0], [float("nan"), 1.0]],
)
def test_few_floats_are_told_apart_by_their_bits_as_many_are(kind, values):
    array = pa.array(values, kind)

    together = stats_of_pages(pa.concat_arrays([array, array]), [0, len(values), 2 * len(values)])

    assert together == [page_stats(array)] * 2


@pytest.mark.parametrize("rows", [5, 100, 512, 513, 4000])
@pytest.mark.parametrize("most", [1, 2, 50, 5000, 1 << 62])
@pytest.mark.parametrize("kind", ["i8", "f8", "i2"])
def test_many_pages_of_one_size_are_counted_as_each_is(rows, most, kind):
    random = np.random.default_rng(rows + most)
    values = pa.array(random.integers(0, most, rows * 70 + 3).astype(kind))
    bounds = np.append(np.arange(71) * rows, len(values))

    together = stats_of_pages(values, bounds)

    assert together == [page_stats(values.slice(a, b - a)) for a, b in pairwise(bounds.tolist())]
