"""Pages whose checksums are right and whose values are not, as whoever can write a store might forge them."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from spark_pages.arrow.validate_array import validate_array
from spark_pages.errors import DamageError, SchemaMismatchError
from spark_pages.format.pages.batch_codec import decode_batch
from spark_pages.format.pages.codecs import compress
from spark_pages.format.pages.lazy_page import LazyPage
from spark_pages.format.pages.page_codec import open_page
from spark_pages.format.pages.page_header import PageHeader, encode_header
from spark_pages.format.pages.untrusted_page import check_untrusted_page
from spark_pages.io import Codec, EncodedPage, PageHandler, decode_page, encode_page
from spark_pages.io.file_writer import PageFileWriter
from spark_pages.model.run import key_of
from spark_pages.query.concat import assemble
from tests.io.fakes import MemoryStore, descriptor
from tests.transaction.stores import store_with

ROWS = 200
FAR = 1 << 30
ENDS = np.arange(0, 2 * ROWS + 1, 2, "<i4")
HALF = np.packbits(np.arange(ROWS) % 2 == 0, bitorder="little").tobytes()

TEXT = pa.array(["ab"] * ROWS)
ACCENTS = pa.array(["é"] * ROWS)
BLOB = pa.array([b"ab"] * ROWS, pa.large_binary())
VIEWS = pa.array(["more than twelve bytes"] * ROWS, pa.string_view())
WORDS = pa.DictionaryArray.from_arrays(pa.array([1] * ROWS, pa.int32()), ["x", "y"])
LISTS = pa.array([[1, 2]] * ROWS)
BESIDE_NULLS = pa.array([[{"a": "ab", "n": None}] * 2] * ROWS)
NUMBERS = pa.array([None if row % 2 else row for row in range(ROWS)])
SWITCHES = pa.array([None if row % 2 else True for row in range(ROWS)])
SOME_TEXT = pa.array([None if row % 2 else "ab" for row in range(ROWS)])


def ends(place: int, value: int) -> bytes:
    """The offsets of entries of two bytes, but for one."""
    found = ENDS.copy()
    found[place] = value
    return found.tobytes()


def nulls(count: int) -> bytes:
    """How a message says that of all rows so many are null."""
    return struct.pack("<qq", ROWS, count)


ENDS_OF_TEXT = ENDS.tobytes()
ENDS_OF_BLOB = ENDS.astype("<i8").tobytes()
INDEX = struct.pack("<i", 1)

FORGED = {
    "text whose offsets decrease": (TEXT, ENDS_OF_TEXT, ends(7, 3)),
    "text whose last offset is beyond it": (TEXT, ENDS_OF_TEXT, ends(ROWS, FAR)),
    "text whose last offset is a little beyond it": (TEXT, ENDS_OF_TEXT, ends(ROWS, 2 * ROWS + 3)),
    "text with an offset beyond it": (TEXT, ENDS_OF_TEXT, ends(50, FAR)),
    "text with a negative offset": (TEXT, ENDS_OF_TEXT, ends(9, -FAR)),
    "text that begins before it": (TEXT, ENDS_OF_TEXT, ends(0, -4)),
    "large binary beyond its end": (BLOB, ENDS_OF_BLOB[:400], ENDS_OF_BLOB[:392] + b"\0\0\0\0\0\1\0\0"),
    "text that is not UTF-8": (TEXT, b"ab" * ROWS, b"a\xff" * ROWS),
    "text cut inside of a character": (ACCENTS, ENDS_OF_TEXT, ends(3, 7)),
    "numbers with more nulls than they say": (NUMBERS, nulls(100), nulls(3)),
    "numbers with fewer nulls than they say": (NUMBERS, nulls(100), nulls(ROWS)),
    "booleans with more nulls than they say": (SWITCHES, nulls(100), nulls(3)),
    "text with more nulls than it says": (SOME_TEXT, nulls(100), nulls(3)),
    "an index behind the dictionary": (WORDS, INDEX * ROWS, INDEX * 199 + struct.pack("<i", FAR)),
    "a negative index": (WORDS, INDEX * ROWS, INDEX * 199 + struct.pack("<i", -5)),
    "a dictionary of text that is none": (WORDS, b"xy", b"x\xff"),
    "lists with a negative offset": (LISTS, ENDS_OF_TEXT, ends(5, -FAR)),
    "lists whose offsets decrease": (LISTS, ENDS_OF_TEXT, ends(5, 0)),
    "lists beyond their entries": (LISTS, ENDS_OF_TEXT, ends(ROWS, FAR)),
    "lists of an index behind the dictionary": (
        pa.ListArray.from_arrays(ENDS, pa.concat_arrays([WORDS, WORDS])),
        INDEX * ROWS * 2, INDEX * 399 + struct.pack("<i", FAR),
    ),
    "lists beyond their indices": (
        pa.ListArray.from_arrays(ENDS, pa.concat_arrays([WORDS, WORDS])), ENDS_OF_TEXT, ends(ROWS, FAR)
    ),
    "views of lists beyond their indices": (
        pa.ListViewArray.from_arrays(ENDS[:-1], np.full(ROWS, 2, "<i4"), pa.concat_arrays([WORDS, WORDS])),
        ENDS_OF_TEXT[:-4], ends(50, FAR)[:-4],
    ),
    "fixed lists of an index behind the dictionary": (
        pa.FixedSizeListArray.from_arrays(pa.concat_arrays([WORDS, WORDS]), 2),
        INDEX * ROWS * 2, INDEX * 399 + struct.pack("<i", FAR),
    ),
    "lists of text beside nulls beyond their entries": (BESIDE_NULLS, ENDS_OF_TEXT, ends(ROWS, FAR)),
    "lists of text beside nulls that is none": (BESIDE_NULLS, b"ab" * ROWS * 2, b"a\xff" * ROWS * 2),
    "structs of text beyond its end": (pa.StructArray.from_arrays([TEXT], ["t"]), ENDS_OF_TEXT, ends(9, FAR)),
    "structs of text that is none": (
        pa.StructArray.from_arrays([TEXT], ["t"]), b"ab" * ROWS, b"a\xff" * ROWS
    ),
    "structs of an index behind the dictionary": (
        pa.StructArray.from_arrays([WORDS], ["d"]), INDEX * ROWS, INDEX * 199 + struct.pack("<i", FAR),
    ),
    "views beyond their memory": (
        VIEWS, struct.pack("<i4sii", 22, b"more", 0, 0), struct.pack("<i4sii", 22, b"more", 0, FAR),
    ),
}  # fmt: skip
"""Entries, what of their page is changed, and into what."""


def forged(values: pa.Array, good: bytes, bad: bytes, codec: Codec = Codec.NONE) -> EncodedPage:
    """The page of the values with some bytes changed, and all checksums right."""
    plain = encode_page(values, codec=Codec.NONE).data[64:]
    assert good in plain
    plain = plain.replace(good, bad, 1)
    payload = compress(codec, plain)
    checksum = xxhash.xxh3_64_intdigest(payload)
    page = encode_header(PageHeader(codec, len(payload), len(plain), ROWS, checksum, 0)) + payload
    return EncodedPage(page, len(page), -(-len(page) // 4096) * 4096, ROWS, checksum)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("case", FORGED.values(), ids=FORGED)
def test_a_page_that_lies_about_its_values_is_damage_however_right_its_checksums_are(case, codec):
    page = forged(*case, codec)
    good = encode_page(case[0], codec=Codec.NONE)

    for _ in range(2):  # the second time the shape of the page is known
        with pytest.raises(DamageError, match=r"pages/x@4096"):
            decode_page(
                page.data, where="pages/x@4096", expected_checksum=page.checksum, expected_entries=ROWS
            )
        assert decode_page(good.data, where="x", expected_checksum=None, expected_entries=None)[
            "data"
        ].equals(case[0])
    with pytest.raises(DamageError, match=r"pages/x@4096"):
        check_untrusted_page(page.data, case[0].type, where="pages/x@4096")


@pytest.mark.parametrize("case", FORGED.values(), ids=FORGED)
def test_what_a_scan_joins_is_damage_too_and_names_the_page(case):
    good, bad = encode_page(case[0], codec=Codec.NONE), forged(*case)
    open_page(good.data, where="x", expected_checksum=None, expected_entries=None)
    places = [descriptor(page, "pages/x", 4096 * n) for n, page in enumerate([good] * 4 + [bad, good])]
    packed = [memoryview(page.data) for page in [good] * 4 + [bad, good]]

    pages = decode_batch(packed, [key_of(place) for place in places])

    flat = not case[0].type.num_fields and not pa.types.is_dictionary(case[0].type)
    if flat and not pa.types.is_string_view(case[0].type):
        assert all(isinstance(page, LazyPage) for page in pages)
        with pytest.raises(DamageError, match=r"pages/x@16384"):
            assemble([(page, 0, ROWS) for page in pages], case[0].type)
        with pytest.raises(DamageError, match=r"pages/x@16384"):
            pages[4].array()
        assert len(assemble([(page, 0, ROWS) for page in pages[:4]], case[0].type)) == 4 * ROWS
    else:
        assert pages == [None] * 6


@pytest.mark.parametrize("values", [BLOB, WORDS, LISTS], ids=["flat", "dictionary", "lists"])
def test_a_page_that_arrow_has_compressed_once_more_is_refused(values):
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"data": values})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    plain = sink.getvalue().to_pybytes()
    checksum = xxhash.xxh3_64_intdigest(plain)
    page = encode_header(PageHeader(Codec.NONE, len(plain), len(plain), ROWS, checksum, 0)) + plain

    with pytest.raises(DamageError, match=r"Cannot read pages/x@0: .* compressed once more"):
        decode_page(page, where="pages/x@0", expected_checksum=None, expected_entries=None)


def test_a_handler_gives_no_page_that_lies():
    store = MemoryStore()
    writer = PageFileWriter(store, "pages/x")
    page = forged(*FORGED["an index behind the dictionary"])
    place = descriptor(page, "pages/x", writer.add(page))
    writer.finish()

    with pytest.raises(DamageError, match="pages/x@0"):
        PageHandler(store).get_page(place)


def array_of(kind: pa.DataType, *memory: bytes | None, nulls: int = 0, children=None) -> pa.Array:
    buffers = [None if each is None else pa.py_buffer(each) for each in memory]
    return pa.Array.from_buffers(kind, ROWS, buffers, nulls, children=children)


@pytest.mark.parametrize(
    "values",
    [
        array_of(pa.string(), None, ends(50, FAR), b"ab" * ROWS),
        array_of(pa.string(), None, ENDS_OF_TEXT, b"a\xff" * ROWS),
        pa.DictionaryArray.from_arrays(pa.array([FAR] * ROWS, pa.int32()), ["x", "y"], safe=False),
        array_of(pa.list_(pa.int64()), None, ends(5, -FAR), children=[pa.array(range(2 * ROWS))]),
    ],
    ids=["text", "no text", "dictionary", "lists"],
)
def test_what_contradicts_itself_is_not_appended(values):
    store = store_with(schema=pa.schema([("c", values.type)]))
    txn = store.transaction()

    with pytest.raises(SchemaMismatchError, match=r"'c' of 't': .* do not fit"):
        txn.append("t", pa.table({"c": values}))

    txn.rollback()
    assert store.snapshot().table("t").num_rows == 0


@pytest.mark.parametrize(
    "values",
    [
        array_of(pa.string(), HALF, ENDS_OF_TEXT, b"ab\xff\xfe" * (ROWS // 2), nulls=100),
        pa.array([None, "é", "", "a\U0001f600"]),
        pa.array(["aé", "bé", "cé"])[1:2],
        pa.array(np.arange(5)).view(pa.date64()),
        pa.array(np.arange(5) - 2).view(pa.time64("us")),
        pa.array([None], pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))])),
        pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string()))),
    ],
    ids=["no text under nulls", "wide", "slice", "parts of days", "no time of day", "stray indices", "map"],
)
def test_what_means_nothing_but_does_no_harm_is_let_through(values):
    validate_array(values)
    page = encode_page(values)

    decode_page(page.data, where="x", expected_checksum=None, expected_entries=None)


def test_a_field_that_is_never_null_may_be_where_what_it_is_a_part_of_is():
    fields = [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]
    parts = [pa.array([1, None], pa.int32()), pa.array(["x", None])]
    array = pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array([False, True]))
    store = store_with(pa.table({"s": array, "l": pa.ListArray.from_arrays([0, 1, 2], array)}))

    assert store.snapshot().table("t").read().to_pydict() == {
        "s": [{"a": 1, "b": "x"}, None],
        "l": [[{"a": 1, "b": "x"}], [None]],
    }
