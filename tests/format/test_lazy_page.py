from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import DamageError
from spark_pages.format.pages import ipc_layout, page_codec
from spark_pages.format.pages.ipc_layout import extent_of
from spark_pages.format.pages.lazy_page import plain_page
from spark_pages.format.pages.page_codec import EncodedPage, open_page
from spark_pages.io import Codec, LazyPage, encode_page

ROWS = 500
PLAIN = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "decimal": pa.decimal128(24, 2),
    "text": pa.string(),
    "large binary": pa.large_binary(),
}
"""Types of which no entry has entries inside."""


def values_of(kind: pa.DataType, rows: int, nulls: bool, seed: int = 0) -> pa.Array:
    numbers = np.random.default_rng(seed).integers(0, 200, rows)
    if pa.types.is_boolean(kind):
        found = pa.array(numbers % 2 == 0)
    elif pa.types.is_string(kind) or pa.types.is_large_binary(kind):
        found = pa.array(["é" * (number % 7) for number in numbers.tolist()]).cast(kind)
    elif pa.types.is_timestamp(kind):
        found = pa.array(numbers).cast(kind)
    else:
        found = pa.array(numbers).cast(kind)
    if not nulls:
        return found
    return pa.array(
        [None if number % 5 == 0 else each for number, each in zip(numbers, found, strict=True)], kind
    )


def opened(page: EncodedPage) -> LazyPage | pa.RecordBatch:
    return open_page(page.data, where="pages/x@0", expected_checksum=None, expected_entries=None)


def with_offsets(page: LazyPage, offsets: list[int]) -> LazyPage:
    """The page of text, not narrowed, with other offsets."""
    stream, begin = np.frombuffer(page.block._memory, np.uint8).copy(), page.block._shape.values[0]
    stream[begin : begin + 4 * len(offsets)] = np.array(offsets, np.int32).view(np.uint8)
    forged = plain_page(pa.py_buffer(stream), 0, where="pages/x@0")
    assert forged is not None
    return forged


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.NONE])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", PLAIN.values(), ids=PLAIN)
def test_a_page_like_one_that_arrow_has_read_gives_the_same_without_arrow(kind, nulls, codec):
    opened(encode_page(values_of(kind, ROWS, nulls), codec=codec))
    values = values_of(kind, ROWS // 2, nulls, seed=1)

    page = opened(encode_page(values, codec=codec))

    assert isinstance(page, LazyPage)
    assert (page.rows, page.nulls) == (len(values), values.null_count)
    batch = page.batch()
    batch.validate(full=True)
    assert batch.column("data").equals(values)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, 2], [], None]),
        pa.array([{"a": 1}]),
        pa.array(["x", "y"]).dictionary_encode(),
        pa.array(["x"], pa.string_view()),
        pa.nulls(3),
        pa.array([], pa.int64()),
    ],
    ids=lambda values: str(values.type),
)
def test_other_pages_are_read_by_arrow_each_time(values):
    for _ in range(2):
        page = opened(encode_page(values))
        assert isinstance(page, pa.RecordBatch)
        assert page.column("data").equals(values)


def test_an_empty_page_that_comes_first_tells_nothing_of_those_behind_it():
    ipc_layout._shapes.clear()

    opened(encode_page(pa.array([], pa.int16())))
    opened(encode_page(pa.array([1], pa.int16())))

    assert isinstance(opened(encode_page(pa.array([2], pa.int16()))), LazyPage)


def test_pages_with_more_than_values_are_read_by_arrow():
    page = encode_page(pa.array([1, 2]), prefix_meta=pa.array([b"a", None], pa.binary()))

    assert all(isinstance(opened(page), pa.RecordBatch) for _ in range(2))


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.string()], ids=str)
def test_no_byte_of_the_messages_can_lead_outside_of_the_stream(kind, nulls):
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values_of(kind, ROWS, nulls)], ["data"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    page_codec.read_payload(stream, where="x")
    true = extent_of(memoryview(stream), 0, stream.size)
    assert true is not None
    width = 4 if pa.types.is_string(kind) else kind.bit_width / 8
    believed = set()

    for place in range(true.begin):
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, stream[place] ^ 1, stream[place] + 8 & 0xFF} - {
            stream[place]
        }:
            forged = bytearray(stream)
            forged[place] = value
            found = extent_of(memoryview(forged), 0, stream.size)
            if found is None:
                continue
            believed.add(place)
            entries = found.rows + (1 if pa.types.is_string(kind) else 0)
            assert 0 <= found.nulls <= found.rows != 0
            assert found.values[1] >= entries * width
            assert not found.nulls or found.validity[1] >= found.rows / 8
            for start, size in (found.validity, found.values, found.text):
                assert found.begin <= start <= start + size <= stream.size

    numbers = 2 + 2 + 2 * (3 if pa.types.is_string(kind) else 2)
    assert 0 < len(believed) < 8 * numbers, "all but the numbers is compared with what is known"


def test_a_stream_that_ends_early_is_for_arrow_to_refuse():
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values_of(pa.string(), ROWS, True)], ["data"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    page_codec.read_payload(stream, where="x")

    for length in range(0, stream.size - 8, 7):
        assert plain_page(stream.slice(0, length), 0, where="pages/x@0") is None


def test_text_that_lies_outside_of_its_page_is_damage():
    values = pa.array(["abc", "de"])
    opened(encode_page(values, codec=Codec.NONE))
    page = opened(encode_page(values, codec=Codec.NONE))
    assert isinstance(page, LazyPage)
    forged = with_offsets(page, [0, 3, 99])

    with pytest.raises(DamageError, match="pages/x@0"):
        forged.array()


def test_shapes_that_are_remembered_are_bounded():
    ipc_layout._shapes.clear()

    for number in range(ipc_layout._KNOWN_SHAPES + 10):
        opened(encode_page(pa.array([1]), page_metadata={"n": str(number)}))

    assert 0 < len(ipc_layout._shapes) <= ipc_layout._KNOWN_SHAPES
