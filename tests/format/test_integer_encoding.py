from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError
from spark_pages.format.pages.integer_encoding import (
    decode,
    decode_column,
    decode_columns,
    decode_entries,
    encode,
)
from spark_pages.io import Codec, decode_page, encode_page, parse_header
from tests.io.strategies import steady

TABLE, RANGE = 8, 32


def stream_of(values: pa.Array) -> pa.Buffer:
    batch = pa.record_batch([values], ["data"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def narrow(stream: pa.Buffer) -> bytes | None:
    columns = pa.ipc.open_stream(stream).read_next_batch().columns
    return encode(stream.slice(0, 0), stream, b"", columns)


def decoded(data: bytes) -> pa.Array:
    return decode_page(data, where="x", expected_checksum=None, expected_entries=None).column("data")


INTEGERS = st.sampled_from(["i2", "i4", "i8", "u2", "u4", "u8"])


@steady
@given(
    kind=INTEGERS,
    lowest=st.integers(-(2**63), 2**63 - 1),
    reach=st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**62]),
    steps=st.booleans(),
    seed=st.integers(0, 9),
)
def test_integers_of_any_range_come_back_bit_by_bit_also_where_sums_wrap_around(
    kind, lowest, reach, steps, seed
):
    random = np.random.default_rng(seed).integers(0, reach, 200, endpoint=True, dtype=np.uint64)
    with np.errstate(over="ignore"):
        wide = (np.cumsum(random) if steps else random) + np.uint64(lowest % 2**64)
    values = wide.astype(f"u{kind[1]}").view(kind)
    stream = stream_of(pa.array(values))

    kept = narrow(stream)

    assert kept is None or decode(pa.py_buffer(kept), stream.size, where="x").equals(stream)
    assert kept is None or len(kept) < stream.size


TABLE_OF_TYPES = {
    "timestamps": pa.array(np.cumsum(np.arange(400) % 7) + 10**15, pa.timestamp("us", "UTC")),
    "times": pa.array(np.arange(400, dtype=np.int32)).cast(pa.time32("s")),
    "text": pa.array([f"a{'b' * (i % 9)}" for i in range(400)]),
    "large binary": pa.array([bytes(i % 5) for i in range(400)], pa.large_binary()),
    "lists": pa.array([[i, None] * (i % 4) for i in range(400)], pa.list_(pa.int64())),
    "structs": pa.StructArray.from_arrays([pa.array(range(400)), pa.array(["x"] * 400)], ["a", "b"]),
    "maps": pa.array([[(str(i), i)] for i in range(400)], pa.map_(pa.string(), pa.int32())),
    "fixed lists": pa.array([[i, i + 1] for i in range(400)], pa.list_(pa.int16(), 2)),
    "dictionary": pa.array([f"v{i % 40}" for i in range(400)]).dictionary_encode(),
    "run ends": pa.RunEndEncodedArray.from_arrays(
        np.arange(2, 402, 2, dtype=np.int32), pa.array(np.arange(200))
    ),
}


@pytest.mark.parametrize("name", TABLE_OF_TYPES)
def test_the_integers_inside_of_every_type_are_narrowed_and_come_back(name):
    values = TABLE_OF_TYPES[name]
    stream = stream_of(values)

    page = encode_page(values)

    assert parse_header(page.data).stream_size == stream.size > parse_header(page.data).uncompressed_size
    assert decoded(page.data).equals(values)
    assert decoded(page.data).type == values.type


def test_timestamps_take_less_than_half_of_what_the_codec_alone_makes_of_them():
    random = np.random.default_rng(7)
    moments = pa.array(np.cumsum(random.integers(0, 2_000, 8_192)) + 10**15, pa.timestamp("us"))
    stream = stream_of(moments)

    narrow_bytes = encode_page(moments).actual_len

    assert narrow_bytes < len(pa.compress(stream, "lz4_raw", asbytes=True)) / 2
    assert narrow_bytes < 2.1 * 8_192, "two bytes each, and little more"


def test_a_null_among_large_numbers_does_not_widen_the_range():
    moments = pa.array([None if i % 10 == 0 else 10**15 + i for i in range(1_000)], pa.timestamp("us"))

    page = encode_page(moments)

    assert parse_header(page.data).uncompressed_size < 3_000
    assert decoded(page.data).equals(moments)


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.timestamp("ns"), pa.float16()])
def test_what_stood_under_a_null_is_not_in_the_page(kind):
    secret = pa.array(
        np.frombuffer(b"hidden!!" * 12, np.int8 if kind.bit_width == 8 else f"i{kind.bit_width // 8}")
    )
    flags = pa.array([index > 2 for index in range(len(secret))]).buffers()[1]
    shown = pa.Array.from_buffers(kind, len(secret), [flags, secret.buffers()[1]])
    first_hidden = shown.slice(0, 3)

    page = encode_page(first_hidden, codec=Codec.NONE)

    assert b"hidden!!"[: kind.bit_width // 8] not in page.data[64:]
    assert decoded(page.data).to_pylist() == [None, None, None]


def test_pages_without_a_codec_are_as_arrow_has_them():
    page = encode_page(TABLE_OF_TYPES["timestamps"], codec=Codec.NONE)

    assert parse_header(page.data).stream_size == 0


def test_few_entries_and_wide_ranges_stay_as_they_are():
    wide = pa.array(np.random.default_rng(1).integers(-(2**62), 2**62, 500))

    assert narrow(stream_of(wide)) is None
    assert narrow(stream_of(pa.array(range(20)))) is None
    assert parse_header(encode_page(wide).data).stream_size == 0


NARROW = narrow(stream_of(TABLE_OF_TYPES["timestamps"]))
STREAM_BYTES = stream_of(TABLE_OF_TYPES["timestamps"]).size


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [
        (0, "<Q", 0),
        (0, "<Q", 2),
        (0, "<Q", 1 << 62),
        (TABLE, "<I", 4),
        (TABLE, "<I", 1 << 31),
        (TABLE + 4, "<I", 0),
        (TABLE + 4, "<I", 500),
        (TABLE + 4, "<I", 1 << 31),
        (TABLE + 8, "<B", 0),
        (TABLE + 8, "<B", 3),
        (TABLE + 9, "<B", 3),
        (TABLE + 9, "<B", 1),
        (TABLE + 9, "<B", 4),
        (TABLE + 10, "<B", 8),
        (TABLE + 10, "<B", 0),
        (TABLE + 10, "<B", 2),
        (TABLE + 11, "<B", 1),
    ],
)
def test_a_table_that_contradicts_itself_is_damage(place, form, value):
    assert NARROW is not None
    data = bytearray(NARROW)
    struct.pack_into(form, data, place, value)

    with pytest.raises(DamageError, match="pages/x@0"):
        decode(pa.py_buffer(bytes(data)), STREAM_BYTES, where="pages/x@0")


@pytest.mark.parametrize("stream_bytes", [0, 8, STREAM_BYTES - 8, STREAM_BYTES + 8, 1 << 60])
def test_a_page_that_promises_another_size_is_damage_before_anything_is_allocated(stream_bytes, monkeypatch):
    page = bytearray(encode_page(TABLE_OF_TYPES["timestamps"]).data)
    struct.pack_into("<Q", page, 40, stream_bytes)
    struct.pack_into("<Q", page, 56, xxhash.xxh3_64_intdigest(bytes(page[:56])))
    allocate, asked = pa.allocate_buffer, []
    monkeypatch.setattr(pa, "allocate_buffer", lambda size: asked.append(size) or allocate(size))

    with pytest.raises(DamageError):
        decoded(bytes(page))

    assert stream_bytes not in asked


def test_a_plain_page_with_a_size_of_a_widened_stream_is_damage():
    page = bytearray(encode_page(pa.array([1, 2])).data)
    struct.pack_into("<Q", page, 40, 8)
    struct.pack_into("<Q", page, 56, xxhash.xxh3_64_intdigest(bytes(page[:56])))

    with pytest.raises(DamageError, match="decode"):
        decoded(bytes(page))


@given(
    st.sampled_from([1, 2, 4]), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.data()
)
def test_steps_are_summed_alike_whether_they_are_even_or_not_one_by_one_and_side_by_side(
    width, base, first, data
):
    number = st.integers(0, (1 << 8 * width) - 1)
    steps = data.draw(st.lists(number, min_size=7, max_size=7) | number.map(lambda step: [step] * 7))
    kept = np.array([data.draw(number), *steps], f"<u{width}")  # the first difference is none
    around = 1 << 64
    expected = np.array([(first + base * i + sum(steps[:i])) % around for i in range(8)], "<u8")
    alone, beside, some = np.empty(8, "<u8"), np.empty((2, 8), "<u8"), np.empty(2, "<u8")

    decode_column(kept, alone, 2, base, first)
    decode_columns(np.stack([kept, kept]), beside, 2, np.array([base, base]), np.array([first, first]))
    is_some = decode_entries(kept, np.array([1, 6]), some, 2, base, first)

    assert (alone == expected).all()
    assert (beside == expected).all()
    assert is_some == (len(set(steps)) == 1)
    assert not is_some or (some == expected[[1, 6]]).all()
