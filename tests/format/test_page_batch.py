from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.format.pages.batch_codec import decode_batch
from spark_pages.format.pages.codecs import compress, decompress
from spark_pages.format.pages.integer_encoding import ONE_ENTRY_BYTES, SAME_ENTRY_BYTES
from spark_pages.format.pages.ipc_layout import extent_of
from spark_pages.format.pages.page_codec import EncodedPage, finish_page, open_page
from spark_pages.format.pages.page_header import encode_header, parse_header
from spark_pages.io import Codec, LazyPage, encode_page, page_reader
from spark_pages.io.page_cache import PageCache
from spark_pages.io.single_flight import LoadedPage, PendingLoad
from spark_pages.memory_budget import CacheBudgets
from spark_pages.model.page import PAGE_HEADER_SIZE
from spark_pages.model.run import PageKey
from spark_pages.query.concat import assemble
from tests.format.test_lazy_page import PLAIN, values_of
from tests.io.strategies import steady

ROWS = 9000
COUNTING = pa.array(range(10**12, 10**12 + ROWS))


def keys_of(pages: list[EncodedPage]) -> list[PageKey]:
    return [
        ("pages/x", 4096 * i, page.alloc_len, page.actual_len, page.checksum, page.entry_count)
        for i, page in enumerate(pages)
    ]


def opened(pages: list[EncodedPage], *, apart: bool = False) -> list[LazyPage | None]:
    return decode_batch([memoryview(page.data) for page in pages], keys_of(pages), apart=apart)


def pages_of(columns: list[pa.Array], codec: Codec = Codec.LZ4) -> list[EncodedPage]:
    pages = [encode_page(values, codec=codec) for values in columns]
    for page in pages[:2]:  # so that what they look like is known
        open_page(page.data, where="pages/x@0", expected_checksum=None, expected_entries=None)
    return pages


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.NONE])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", PLAIN.values(), ids=PLAIN)
def test_pages_cut_alike_are_opened_together_and_hold_what_each_alone_holds(kind, nulls, codec):
    columns = [values_of(kind, ROWS, nulls, seed) for seed in range(6)]

    found = opened(pages_of(columns, codec))

    assert all(isinstance(page, LazyPage) for page in found)
    assert len({id(page.block) for page in found}) <= 2, "one for those narrowed, one for those not"
    for page, values in zip(found, columns, strict=True):
        page.batch().validate(full=True)
        assert page.array().equals(values)
        assert page.alone().array().equals(values)
    kept_apart = opened(pages_of(columns, codec), apart=True)
    assert [page.array() for page in kept_apart] == columns
    assert len({id(page.block) for page in kept_apart}) == len(columns)
    assert assemble([(page, 0, ROWS) for page in found], kind).equals(pa.concat_arrays(columns))


@pytest.mark.parametrize("gaps", [[0, 0, 0, 0, 0], [0, 4096, 0, 64, 0]], ids=["even", "uneven"])
def test_stored_pages_may_be_used_where_they_were_read(gaps):
    columns = [pa.array(np.random.default_rng(seed).random(ROWS)) for seed in range(5)]
    pages = pages_of(columns)
    memory = memoryview(bytearray(sum(gaps) + sum(page.alloc_len for page in pages)))
    packed, at = [], 0
    for page, gap in zip(pages, gaps, strict=True):
        at += gap
        packed.append(memory[at : at + page.actual_len])
        packed[-1][:] = page.data
        at += page.alloc_len

    found = decode_batch(packed, keys_of(pages), borrowed=True)

    assert [page.array() for page in found] == columns
    first, end = pa.py_buffer(memory).address, pa.py_buffer(memory).address + len(memory)
    shares = [first < page.array().buffers()[1].address < end for page in found]
    assert shares == [not any(gaps)] * 5


def test_pages_of_two_columns_that_alternate_are_opened_together_with_their_like():
    prices = [pa.array(np.round(np.random.default_rng(n).normal(9, 2, ROWS), 2)) for n in range(5)]
    counts = [pa.array(range(n, ROWS + n)) for n in range(5)]
    columns = [column for both in zip(prices, counts, strict=True) for column in both]

    found = opened(pages_of(columns))

    assert [page.array() for page in found] == columns
    assert [len({id(page.block) for page in found[first::2]}) for first in (0, 1)] == [1, 1]
    assert [page.index for page in found] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_text_of_many_lengths_from_all_over_is_opened_together_too():
    texts = [pa.array([f"{'x' * n} of {row % (n + 2)}" for row in range(ROWS)]) for n in range(5)]
    counts = [pa.array(range(n, ROWS + n)) for n in range(5)]
    columns = [column for both in zip(texts, counts, strict=True) for column in both]

    found = opened(pages_of(columns))

    assert [len({id(page.block) for page in found[first::2]}) for first in (0, 1)] == [1, 1]
    assert [page.array() for page in found] == columns


WORDS = [f"word {row % 97}" for row in range(ROWS)]


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array(np.random.default_rng(n).integers(0, 10**6, ROWS)) for n in range(4)],
        [pa.array([*WORDS[n:], *["a longer one"] * n]) for n in range(4)],
        [pa.array([*WORDS[1:], letter]) for letter in "aäbé"],
        [pa.array([*WORDS[n:], *[None] * n]) for n in range(1, 5)],
        [pa.array([b"%d\xff" % (row % (n + 3)) for row in range(ROWS)]) for n in range(4)],
    ],
    ids=["numbers", "text", "letters", "nulls", "binary"],
)
def test_pages_materialize_at_once_are_what_each_alone_is(columns):
    found = opened(pages_of(columns))
    (block,) = {page.block for page in found}

    block.materialize()

    for page, values in zip(found, columns, strict=True):
        page.batch().validate(full=True)
        assert page.array().equals(values)


@pytest.mark.parametrize("base", [-7, 1 << 20], ids=["falling", "outside"])
def test_offsets_that_lead_out_of_a_page_are_seen_where_many_are_materialize(base):
    pages = pages_of([pa.array([*WORDS[n:], *["x"] * n]) for n in range(4)])
    header = parse_header(pages[2].data)
    plain = bytearray(decompress(header.codec, pages[2].data[PAGE_HEADER_SIZE:], header.uncompressed_size))
    plain[SAME_ENTRY_BYTES : SAME_ENTRY_BYTES + 8] = base.to_bytes(8, "little", signed=True)
    pages[2] = finish_page(Codec.LZ4, bytes(plain), ROWS, header.stream_size)
    found = opened(pages)
    (block,) = {page.block for page in found}

    block.materialize()

    assert [page.array()[0].as_py() for page in (found[0], found[1], found[3])] == WORDS[0:2] + WORDS[3:4]
    with pytest.raises(DamageError, match="pages/x@8192"):
        found[2].array()


def test_text_that_is_none_is_seen_where_many_pages_are_materialize():
    good = pa.array(WORDS)
    bad = pa.array([*(word.encode() for word in WORDS[1:]), b"\xff"]).view(pa.string())
    found = opened(pages_of([good, good, bad, good]))
    (block,) = {page.block for page in found}

    block.materialize()

    assert found[3].array().equals(good)
    with pytest.raises(DamageError, match="pages/x@8192"):
        found[2].array()


def test_numbers_that_count_up_and_numbers_in_uneven_steps_are_widened_as_they_were():
    uneven = np.cumsum(np.random.default_rng(3).integers(0, 50, ROWS)) + 2**40
    for columns in (
        [pa.array(range(i, ROWS * 7 + i, 7)) for i in range(5)],
        [pa.array(range(i, ROWS * (i + 3) + i, i + 3)) for i in range(5)],
        [pa.array(uneven + i) for i in range(5)],
    ):
        found = opened(pages_of(columns))

        assert all(found)
        assert assemble([(page, 0, ROWS) for page in found], pa.int64()).equals(pa.concat_arrays(columns))


@steady
@given(st.data())
def test_no_byte_of_a_page_among_others_can_change_unseen(data):
    pages = pages_of([pa.array(np.arange(ROWS) * 3 + i) for i in range(5)])
    chosen = data.draw(st.integers(0, 4))
    bit = data.draw(st.integers(0, 8 * len(pages[chosen].data) - 1))
    damaged = [bytearray(page.data) for page in pages]
    damaged[chosen][bit // 8] ^= 1 << bit % 8

    found = decode_batch([memoryview(each) for each in damaged], keys_of(pages))

    assert found[chosen] is None


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.NONE])
@steady
@given(st.data())
def test_a_forged_page_is_not_believed_more_among_others_than_alone(codec, apart, data):
    texts = [pa.array([f"{n * i}" for n in range(200)]) for i in range(3, 8)]
    numbers = [pa.array(range(i, 200 + i)) for i in range(5)]
    pages = pages_of(data.draw(st.sampled_from([texts, numbers])), codec)
    honest = pages[2].data
    forged = reforge(honest, data.draw(st.sampled_from(["body", "nulls", "text", "size", "stream"])), data)
    checksum = int.from_bytes(forged[32:40], "little")
    pages[2] = EncodedPage(forged, len(forged), 4096, 200, checksum)
    assert (parse_header(honest).stream_size > 0) == (codec is Codec.LZ4)

    found = opened(pages, apart=apart)[2]

    try:
        alone = open_page(forged, where="x", expected_checksum=checksum, expected_entries=200)
        alone = alone.batch() if isinstance(alone, LazyPage) else alone
    except SparkPagesError:
        if found is not None:
            with pytest.raises(DamageError):
                found.batch()
    else:
        assert found is None or (found.batch().equals(alone) and found.nulls == alone.column(0).null_count)


def reforge(page: bytes, what: str, data: st.DataObject) -> bytes:
    """The page with one of its numbers changed, under checksums that are right."""
    header = parse_header(page)
    plain = bytearray(decompress(header.codec, page[PAGE_HEADER_SIZE:], header.uncompressed_size))
    shift = ONE_ENTRY_BYTES if header.stream_size else 0
    extent = extent_of(memoryview(plain), shift, header.arrow_size)
    now = {"body": header.arrow_size - extent.begin, "nulls": 0, "text": extent.text[1]}
    near = {**now, "size": header.uncompressed_size, "stream": header.stream_size}[what]
    numbers = st.integers(near - 70, near + 70) | st.integers(0, near)
    number = data.draw(numbers | st.sampled_from([-1, 2**31, 2**62, 2**63 - 1]))
    if what in now:
        at = shift + extent.varied[["body", "nulls", "text"].index(what)]
        plain[at : at + 8] = number.to_bytes(8, "little", signed=True)
    payload = compress(header.codec, plain)
    sizes = {"uncompressed_size": len(plain), "stream_size": header.stream_size}
    if what not in now:
        sizes[{"size": "uncompressed_size", "stream": "stream_size"}[what]] = number % 2**64
    header = replace(header, read_size=len(payload), checksum=xxhash.xxh3_64_intdigest(payload), **sizes)
    fields = encode_header(header)[:7] + page[7:8] + encode_header(header)[8:56]  # with the flags it had
    return fields + xxhash.xxh3_64_intdigest(fields).to_bytes(8, "little") + payload


def test_text_of_very_different_lengths_does_not_take_room_for_the_longest_each_time():
    texts = [pa.array(["x" * length] * 40) for length in (10, 11, 12, 13, 14, 15, 16, 100_000)]

    assert opened(pages_of(texts, Codec.LZ4)) == [None] * 8
    assert all(opened(pages_of(texts[:-1], Codec.LZ4)))


def test_pages_that_are_another_than_described_are_left_alone():
    pages = pages_of([COUNTING] * 5)
    keys = keys_of(pages)
    packed = [memoryview(page.data) for page in pages]

    for place, wrong in ((4, pages[0].checksum ^ 1), (5, ROWS + 1)):
        forged = [*keys[:2], (*keys[2][:place], wrong, *keys[2][place + 1 :]), *keys[3:]]
        assert decode_batch(packed, forged) == [None] * 5
    assert all(decode_batch(packed, keys))


def test_a_scan_opens_pages_one_by_one_only_where_they_differ(tmp_path, monkeypatch):
    store = sp.create(str(tmp_path / "store"))
    rows = 40 * 8192
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("id", pa.int64()), ("price", pa.float64())]))
        txn.append("t", pa.table({"id": pa.array(range(rows)), "price": np.arange(rows) / 8}))
    alone = []
    real = page_reader.decode_loaded
    monkeypatch.setattr(
        page_reader, "decode_loaded", lambda key, *rest: alone.append(key) or real(key, *rest)
    )
    table = store.snapshot().table("t")
    table.scan(["id", "price"]).read_all()
    alone.clear()

    found = table.scan(["id", "price"]).read_all()

    assert found.column("id").to_pylist() == list(range(rows))
    assert len(alone) <= 4, "the last page of each column, and what shares a request with too few"


def test_a_page_that_another_call_wants_is_kept_without_its_neighbours():
    pages = pages_of([COUNTING] * 5)
    keys = keys_of(pages)
    block = opened(pages)
    cache = PageCache(CacheBudgets(1 << 20))
    pending = PendingLoad()
    cache.lookup(keys, pending, touch=False)
    for key, page in zip(keys, block, strict=True):
        pending.complete(key, LoadedPage(page, 1000, None))
    cache.lookup(keys[1:3], PendingLoad(), touch=True)
    pending.loaded[keys[1]].detach()

    cache.store_loaded(pending, admit=False)

    assert cache.peek(keys)[0] == {keys[1]}, "the other one still shares memory with its neighbours"
    assert cache.hit(keys[1]).column(0).equals(COUNTING)
