from __future__ import annotations

import struct

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError, InvalidInputError, UnsupportedFormatError
from spark_pages.format.pages import codecs
from spark_pages.format.pages.batch_encoder import encode_pages
from spark_pages.format.pages.codecs import Codec, compress, decompress
from spark_pages.format.pages.page_codec import decode_page, encode_page
from spark_pages.format.pages.page_header import parse_header
from tests.io.strategies import NESTED, ORDERED, arrays, dictionary_arrays, steady

SMALL = encode_page(
    pa.array([1, None, 3]), prefix_meta=pa.array([b"p", None, b""]), page_metadata={"who": "test"}
)


def decode(page, data=None):
    return decode_page(
        page.data if data is None else data,
        where="pages/a.pages@4096",
        expected_checksum=page.checksum,
        expected_entries=page.entry_count,
    )


def reseal(data: bytes, place: int, form: str, value: int) -> bytes:
    """The page with one header field changed and the header's checksum made right again."""
    header = bytearray(data[:56])
    struct.pack_into(form, header, place, value)
    return bytes(header) + struct.pack("<Q", xxhash.xxh3_64_intdigest(header)) + data[64:]


@steady
@given(arrays({**ORDERED, **NESTED}) | dictionary_arrays(), st.sampled_from(list(Codec)))
def test_what_is_encoded_is_decoded_whatever_its_type_nulls_or_slice(array, codec):
    page = encode_page(array, codec=codec)

    batch = decode(page, page.data + bytes(page.alloc_len - page.actual_len))

    batch.validate(full=True)
    assert batch.column("data").equals(array)
    assert batch.column("data").type == array.type
    assert page.entry_count == batch.num_rows == len(array)
    assert page.alloc_len % 4096 == 0


@pytest.mark.parametrize("shown", [[], [0], [5], [1, 2, 6, 7]], ids=["none", "the first", "one", "some"])
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.decimal128(20, 2), pa.string(), pa.large_binary()]
)
def test_what_stands_under_a_null_is_not_written(kind, shown):
    wide = 2 if pa.types.is_decimal(kind) else 1
    words = [b"hide %03d" % row * wide for row in range(64)]
    data = pa.py_buffer(b"".join(words))
    offsets = np.arange(65, dtype=np.int64 if pa.types.is_large_binary(kind) else np.int32) * 8
    buffers = [data] if pa.types.is_primitive(kind) or wide > 1 else [pa.py_buffer(offsets), data]
    valid = np.isin(np.arange(64) % 8, shown)
    array = pa.Array.from_buffers(kind, 64, [pa.py_buffer(np.packbits(valid, bitorder="little")), *buffers])

    together = encode_pages(array, np.arange(0, 65, 8), Codec.NONE)

    for page in (encode_page(array, codec=Codec.NONE), *together):
        assert not [
            word
            for word, is_shown in zip(words, valid, strict=True)
            if word in bytes(page.data) and not is_shown
        ]
    assert pa.concat_arrays(decode(page).column("data") for page in together).equals(array)


def test_metadata_of_entries_and_of_the_page_comes_back():
    suffix = pa.array([b"x", b"yy", None])
    page = encode_page(pa.array([1, 2, 3]), suffix_meta=suffix, page_metadata={"k": "v"})

    batch = decode(page)

    assert batch.schema.names == ["data", "suffix_meta"]
    assert batch.column("suffix_meta").equals(suffix)
    assert batch.schema.metadata == {b"k": b"v"}


def test_the_header_is_laid_out_as_the_format_says():
    header = SMALL.data[:64]

    assert struct.unpack_from("<4sHBB", header) == (b"SPPG", 1, Codec.LZ4, 0)
    assert struct.unpack_from("<QQQQ", header, 8)[0] == SMALL.actual_len - 64
    assert struct.unpack_from("<QQQQ", header, 8)[2:] == (3, xxhash.xxh3_64_intdigest(SMALL.data[64:]))
    assert header[40:56] == bytes(16)
    assert struct.unpack_from("<Q", header, 56) == (xxhash.xxh3_64_intdigest(header[:56]),)
    assert parse_header(header).actual_len == len(SMALL.data)


@pytest.mark.parametrize("place", range(len(SMALL.data)))
def test_every_flipped_bit_is_damage_that_names_the_place(place):
    for bit in range(8):
        damaged = bytearray(SMALL.data)
        damaged[place] ^= 1 << bit

        with pytest.raises(DamageError, match=r"pages/a\.pages@4096"):
            decode(SMALL, bytes(damaged))


@pytest.mark.parametrize("length", range(len(SMALL.data)))
def test_every_cut_tail_is_damage(length):
    with pytest.raises(DamageError, match=r"pages/a\.pages@4096"):
        decode(SMALL, SMALL.data[:length])


def test_a_flipped_bit_of_the_payload_is_damage_even_where_no_descriptor_is_at_hand():
    damaged = SMALL.data[:-1] + bytes([SMALL.data[-1] ^ 1])

    with pytest.raises(DamageError, match="payload checksum"):
        decode_page(damaged, where="x", expected_checksum=None, expected_entries=None)


def test_a_header_whose_sizes_cannot_be_true_is_refused_by_itself():
    with pytest.raises(DamageError, match="Cannot decompress"):
        parse_header(reseal(SMALL.data, 16, "<Q", 1 << 31)[:64])


def test_padding_behind_the_payload_is_not_looked_at():
    batch = decode(SMALL, SMALL.data + b"\xff" * 100)

    assert batch.column("data").to_pylist() == [1, None, 3]


def test_another_valid_page_in_its_place_is_damage():
    other = encode_page(pa.array([4, 5, 6]))

    with pytest.raises(DamageError, match="descriptor's checksum"):
        decode(SMALL, other.data)


def test_another_number_of_entries_than_described_is_damage():
    with pytest.raises(DamageError, match="payload entries 4, found 3"):
        decode_page(SMALL.data, where="x", expected_checksum=None, expected_entries=4)


def test_a_header_that_lies_about_its_entries_is_damage():
    lying = reseal(SMALL.data, 24, "<Q", 4)

    with pytest.raises(DamageError, match="entries 4, found 3"):
        decode_page(lying, where="x", expected_checksum=None, expected_entries=None)


def test_a_payload_that_is_no_arrow_stream_is_damage():
    junk = b"not arrow at all" * 4
    header = struct.pack("<4sHBBQQQQ16s", b"SPPG", 1, 0, 0, 64, 64, 1, xxhash.xxh3_64_intdigest(junk), b"")
    page = header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header)) + junk

    with pytest.raises(DamageError, match="x: expected an Arrow stream"):
        decode_page(page, where="x", expected_checksum=None, expected_entries=None)


@pytest.mark.parametrize(("place", "form"), [(4, "<H"), (6, "<B"), (7, "<B")])
def test_a_newer_version_codec_or_flag_is_unsupported_and_not_merely_damage(place, form):
    newer = reseal(SMALL.data, place, form, 99)

    with pytest.raises(UnsupportedFormatError, match="99"):
        decode(SMALL, newer)


def test_reserved_bytes_that_are_not_zero_are_damage():
    with pytest.raises(DamageError, match="reserved"):
        decode(SMALL, reseal(SMALL.data, 48, "<B", 1))


OF_LZ4 = encode_page(pa.array([0.5] * 400))


@pytest.mark.parametrize("size", [2**63, 2**31, 255 * (len(OF_LZ4.data) - 64) + 1])
def test_a_lying_uncompressed_size_is_refused_before_anything_is_allocated(size, monkeypatch):
    monkeypatch.setattr(codecs.lz4.block, "decompress", lambda *_, **__: pytest.fail("was decompressed"))

    with pytest.raises(DamageError, match="Cannot"):
        decode(OF_LZ4, reseal(OF_LZ4.data, 16, "<Q", size))


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("lie", [-1, 1, 64])
def test_a_block_of_another_size_than_promised_is_damage(codec, lie):
    block = compress(codec, b"abcd" * 100)

    with pytest.raises(DamageError, match="Cannot decompress"):
        decompress(codec, block, 400 + lie)


@steady
@given(st.integers(0, 300_000), st.sampled_from([Codec.LZ4, Codec.ZSTD]))
def test_even_the_most_compressible_block_is_within_the_expansion_that_is_believed(size, codec):
    block = compress(codec, bytes(size))

    assert decompress(codec, block, size).to_pybytes() == bytes(size)


def test_a_payload_that_does_not_shrink_is_stored_as_it_is():
    page = encode_page(pa.array([bytes(range(256))]), codec=Codec.ZSTD)
    noise = encode_page(pa.array([lz4.block.compress(bytes(range(256)) * 2)]), codec=Codec.LZ4)

    assert parse_header(page.data).codec in (Codec.NONE, Codec.ZSTD)
    assert noise.actual_len - 64 <= parse_header(noise.data).uncompressed_size


def test_a_slice_of_a_large_dictionary_carries_only_the_values_it_uses():
    whole = pa.array([f"value number {n}" for n in range(20_000)]).dictionary_encode()

    page = encode_page(whole[100:110], codec=Codec.NONE)

    assert page.actual_len < 2_000
    assert decode(page).column("data").to_pylist() == whole[100:110].to_pylist()


def test_a_slice_of_a_string_view_carries_only_its_own_text():
    whole = pa.array([f"a rather long value number {n}" for n in range(20_000)], pa.string_view())

    page = encode_page(whole[100:110], codec=Codec.NONE)

    assert page.actual_len < 2_000


def test_columns_of_different_length_are_refused():
    with pytest.raises(InvalidInputError, match="one length"):
        encode_page(pa.array([1, 2]), prefix_meta=pa.array([b"x"]))
