"""Many pages encoded together are, byte by byte, the pages that are encoded one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.format.pages.page_codec import EncodedPage
from spark_pages.io import Codec, encode_page, encode_pages, plan_pages
from tests.effort import examples

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64()]
TIMES = [pa.timestamp("us"), pa.date32(), pa.time64("us"), pa.duration("us")]
TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
OTHERS = [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(20, 2)]


def told(page: EncodedPage) -> tuple[bytes, int, int, int, int]:
    return bytes(page.data), page.actual_len, page.alloc_len, page.entry_count, page.checksum


def check_same(values: pa.Array, bounds: np.ndarray, codec: Codec = Codec.LZ4) -> list[EncodedPage]:
    together = encode_pages(values, bounds, codec)
    one_by_one = [encode_page(values.slice(a, b - a), codec=codec) for a, b in pairwise(bounds.tolist())]
    assert [told(page) for page in together] == [told(page) for page in one_by_one]
    return together


def of_bits(kind: pa.DataType, numbers: np.ndarray) -> pa.Array:
    width = kind.bit_width // 8
    data = np.ascontiguousarray(numbers.astype(np.int64)).view(np.uint8).reshape(len(numbers), 8)
    wide = np.zeros((len(numbers), width), np.uint8)
    wide[:, : min(8, width)] = data[:, : min(8, width)]
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(wide.tobytes())])


@st.composite
def stretch(draw: st.DrawFn, rows: int) -> np.ndarray:
    """Numbers of one page, of a form that narrowing tells apart."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    start = draw(st.sampled_from([0, 1, -1, 200, 70_000, 1 << 33, -(1 << 63), (1 << 63) - 1]))
    range_bits = draw(st.sampled_from([0, 1, 7, 8, 9, 16, 17, 32, 33, 62]))
    noise = random.integers(0, 1 << range_bits, rows, dtype=np.int64, endpoint=True)
    form = draw(st.sampled_from(["apart", "rising", "steps", "sorted", "few"]))
    with np.errstate(over="ignore"):
        if form == "rising":
            return np.int64(start) + np.cumsum(noise)
        if form == "steps":
            return np.int64(start) + np.arange(rows) * int(noise[0])
        if form == "sorted":
            return np.int64(start) + np.sort(noise)
        if form == "few":
            return np.int64(start) + noise[random.integers(0, min(3, rows), rows)]
        return np.int64(start) + noise


@st.composite
def with_nulls(draw: st.DrawFn, values: pa.Array, rows: int) -> pa.Array:
    """The same values, some of them hidden under nulls: here and there, or all of some pages."""
    form = draw(st.sampled_from(["none", "some", "some pages", "all"]))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    null = random.random(len(values)) < {"none": 0.0, "all": 1.0}.get(form, 0.2)
    if form == "some pages":
        null &= np.arange(len(values)) // rows % 2 == 0
    bits = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [bits, *values.buffers()[1:]])


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), kind=st.sampled_from([*INTEGERS, *TIMES, *OTHERS]))
def test_pages_of_every_form_are_the_same(data: st.DataObject, kind: pa.DataType) -> None:
    rows = data.draw(st.sampled_from([1, 8, 16, 31, 32, 33, 64, 320, 3000, 3008]))
    pages = data.draw(st.integers(4, 7))
    last = data.draw(st.integers(0, rows - 1))
    numbers = np.concatenate([data.draw(stretch(rows)) for _ in range(pages)] + [np.arange(last)])
    before = data.draw(st.integers(0, 3))
    values = of_bits(kind, np.concatenate([np.arange(before), numbers]))
    values = data.draw(with_nulls(values, rows)).slice(before)
    bounds = np.unique(np.append(np.arange(pages + 1) * rows, len(values)))
    codec = data.draw(st.sampled_from(list(Codec)))

    check_same(values, bounds, codec)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), kind=st.sampled_from(TEXTS))
def test_pages_of_text_are_the_same(data: st.DataObject, kind: pa.DataType) -> None:
    rows = data.draw(st.lists(st.sampled_from([1, 30, 31, 32, 33, 64, 255, 1000]), min_size=4, max_size=8))
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    longest = [data.draw(st.sampled_from([0, 1, 3, 200, 300, 70_000])) for _ in rows]
    least = [data.draw(st.integers(0, longer)) for longer in longest]
    lengths = [
        random.integers(low, high, n, endpoint=True)
        for n, low, high in zip(rows, least, longest, strict=True)
    ]
    before, behind = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    ends = np.cumsum(np.concatenate([[0], np.full(before, 5), *lengths, np.full(behind, 7)]))
    letters = pa.py_buffer(random.choice(np.frombuffer(b"abcdefgh", np.uint8), int(ends[-1])))
    offsets = pa.py_buffer(ends.astype(np.int64 if "large" in str(kind) else np.int32))
    whole = pa.Array.from_buffers(kind, len(ends) - 1, [None, offsets, letters])
    whole = data.draw(with_nulls(whole, rows[0]))
    codec = data.draw(st.sampled_from(list(Codec)))

    check_same(whole.slice(before, sum(rows)), np.cumsum([0, *rows]), codec)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None if n % 7 == 0 else n for n in range(20_000)], pa.int64()),
        pa.array([f"text {n * n}" for n in range(20_000)]),
        pa.array([None if n % 7 == 0 else f"text {n * n}" for n in range(20_000)], pa.string_view()),
        pa.array([""] * 20_000),
        pa.array([n % 3 == 0 for n in range(200_000)]),
        pa.array([[n] for n in range(20_000)]),
        pa.array([str(n % 5) for n in range(20_000)]).dictionary_encode(),
        pa.nulls(20_000, pa.int32()),
        pa.array([], pa.int64()),
    ],
    ids=["nulls", "text", "views", "empty", "bits", "lists", "dictionary", "only nulls", "nothing"],
)
def test_pages_that_are_not_alike_are_the_same(values: pa.Array) -> None:
    check_same(values, plan_pages(values, 2048))


def test_pages_of_one_size_among_others_are_the_same() -> None:
    values = pa.array(np.random.default_rng(1).random(40_000))

    check_same(values, np.array([0, 5000, 10_000, 15_000, 20_000, 20_500, 25_500, 40_000]))


def test_stored_pages_share_memory_and_a_few_of_them_have_their_own() -> None:
    random = np.random.default_rng(2)
    noise, flat = random.random((12, 4096)), np.zeros((12, 4096))
    mixed = np.vstack([noise[:2], flat])
    bounds = np.arange(0, mixed.size + 1, 4096)

    stored = check_same(pa.array(noise.reshape(-1)), bounds[:13])
    few = check_same(pa.array(mixed.reshape(-1)), bounds)

    assert all(isinstance(page.data, memoryview) for page in stored)
    assert all(isinstance(page.data, bytes) for page in few)
