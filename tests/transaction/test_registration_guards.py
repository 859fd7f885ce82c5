"""What comes from outside is confined and checked before it is used: paths, sizes, bytes, Arrow structure."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

import spark_pages as sp
from spark_pages.errors import (
    DamageError,
    InvalidInputError,
    InvalidKeyError,
    ObjectNotFoundError,
    SparkPagesError,
    UnsupportedFormatError,
)
from spark_pages.io import encode_page
from spark_pages.model.page import PendingPage
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import metered, store_with

KEY = "imports/day-1.pages"
HEADER = struct.Struct("<4sHBBQQQQ16s")


def forged(payload: bytes, entries: int, codec: int = 0, size: int | None = None) -> bytes:
    """A page with right checksums, whatever its payload is."""
    head = HEADER.pack(
        b"SPPG", 1, codec, 0, len(payload), len(payload) if size is None else size, entries,
        xxhash.xxh3_64_intdigest(payload), bytes(16),
    )  # fmt: skip
    page = head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)) + payload
    return page + bytes(-len(page) % 4096)


def stream_of(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def register(data: bytes, kind: pa.DataType) -> None:
    """Put the bytes below the root and register the page at their beginning."""
    store = store_with(schema=pa.schema([("x", kind)]))
    store.object_store.put(KEY, data)
    with store.transaction() as txn:
        txn.directory("t").register_page("x", KEY, 0)


# paths


@pytest.mark.parametrize(
    "path",
    [
        "../outside.pages", "imports/../../x", "/etc/passwd", "file:///etc/passwd", "s3://bucket/x", "",
        "imports//x", "imports/x/", "Imports/X", "imports/x y", "imports/x\n", "imports\\x", "imports/\0",
        "_tmp/x", "a" * 201, "_log/00000000000000000000.avro", "_log/x.pages", "_doctor/x", "imports/é",
        "pages/00000000000000000001-0123456789abcdef0123456789abcdef-0.pages",
    ],
)  # fmt: skip
def test_a_path_that_is_no_place_for_foreign_pages_is_refused_before_storage_is_asked(path):
    store, meter = metered(store_with(pa.table({"n": [1]})))
    page = encode_page(pa.array([1]))
    with store.transaction() as txn:
        directory = txn.directory("t")
        before = meter.counts.requests

        with pytest.raises(InvalidKeyError):
            directory.register_page("n", path, 0)
        with pytest.raises(InvalidKeyError):
            directory.register_page_with_sizes("n", path, 0, page.alloc_len, page.actual_len, 1)

        assert meter.counts.requests == before
        assert directory.chain("n").num_pages == 1


def test_a_page_file_that_the_transaction_asked_for_may_be_registered(tmp_path):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    with store.transaction() as txn:
        directory = txn.directory("t")
        key = txn.next_page_file()
        write_file(txn.store, key, pa.array([7]))
        directory.register_page("n", key, 0)

    assert store.snapshot().table("t").read().column("n").to_pylist() == [7]

    with store.transaction() as txn, pytest.raises(InvalidKeyError, match="another transaction's"):
        txn.directory("t").register_page("n", key, 0)


def test_a_page_file_that_was_asked_for_is_the_transactions_own_whoever_has_committed_before(tmp_path):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    txn = store.transaction()
    with sp.open(store.url).transaction() as other:
        other.append("t", pa.table({"n": [1]}))

    key = txn.next_page_file()
    write_file(txn.store, key, pa.array([7]))
    txn.directory("t").register_page("n", key, 0)
    txn.commit()

    assert store.snapshot().table("t").read().column("n").to_pylist() == [1, 7]


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_no_symbolic_link_leads_out_of_a_local_store(tmp_path, linked):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    outside = tmp_path / "outside"
    outside.mkdir()
    page = encode_page(pa.array([7]))
    (outside / "day-1.pages").write_bytes(page.data + bytes(page.alloc_len - page.actual_len))
    inside = tmp_path / "store" / "imports"
    if linked == "folder":
        inside.symlink_to(outside)
    else:
        inside.mkdir()
        (inside / "day-1.pages").symlink_to(outside / "day-1.pages")

    with store.transaction() as txn:
        directory = txn.directory("t")
        with pytest.raises(InvalidKeyError, match="symbolic link"):
            directory.register_page("n", KEY, 0)
        with pytest.raises(InvalidKeyError, match="symbolic link"):
            directory.register_page_with_sizes("n", KEY, 0, page.alloc_len, page.actual_len, 1)


def test_a_link_put_in_the_place_of_a_registered_file_is_not_followed(tmp_path):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        write_file(store.object_store, KEY, pa.array([7]))
        txn.directory("t").register_page("n", KEY, 0)
    file = tmp_path / "store" / KEY
    Path(tmp_path / "outside").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(tmp_path / "outside")

    with pytest.raises(InvalidKeyError, match="symbolic link"):
        sp.open(str(tmp_path / "store")).snapshot().table("t").read()


def test_a_link_in_the_place_of_a_registered_file_is_a_fault_and_the_rest_is_verified(tmp_path):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    pages = write_file(store.object_store, "imports/day-1.pages", pa.array([1, 2]))
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", "imports/day-1.pages", pages)])
    file = tmp_path / "store" / "imports" / "day-1.pages"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")

    found = store.verify(pages="all")

    assert [(fault.key, fault.kind) for fault in found.faults] == [("imports/day-1.pages", "damaged")]
    assert "symbolic link" in found.faults[0].what


def test_a_file_that_is_not_there_is_named():
    store = store_with(pa.table({"n": [1]}))

    with store.transaction() as txn, pytest.raises(ObjectNotFoundError, match=KEY):
        txn.directory("t").register_page("n", KEY, 0)


# sizes


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": 1}, {"offset": -4096}, {"alloc_len": 0}, {"alloc_len": 100}, {"alloc_len": 1 << 31},
        {"actual_len": 63}, {"actual_len": 8192}, {"entry_count": -1}, {"entry_count": 1 << 63},
        {"checksum": -1}, {"checksum": 1 << 64},
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused_when_they_are_told(wrong):
    told = {"offset": 0, "alloc_len": 4096, "actual_len": 300, "entry_count": 1} | wrong

    with pytest.raises(InvalidInputError, match="Cannot register"):
        PendingPage("n", KEY, **told)


def test_sizes_and_checksums_that_are_not_those_of_the_page_are_refused():
    store = store_with(pa.table({"n": [1]}))
    pages = write_file(store.object_store, KEY, pa.array([1, 2]), pa.array([3]))
    right = pending("n", KEY, pages)

    with store.transaction() as txn:
        directory = txn.directory("t")
        for actual_len in (64, right.actual_len - 1, right.actual_len + 1, 4096):
            with pytest.raises(DamageError, match=f"{KEY}@0"):
                directory.register_page_with_sizes("n", KEY, 0, 4096, actual_len, 2)
        with pytest.raises(DamageError, match=f"{KEY}@0.*another page"):
            directory.register_page_with_sizes(
                "n", KEY, 0, 4096, right.actual_len, 2, checksum=pages[1].checksum
            )
        with pytest.raises(InvalidInputError, match="the file ends at 8192"):
            directory.register_page_with_sizes("n", KEY, 0, 12288, right.actual_len, 2)
        with pytest.raises(InvalidInputError, match="the file ends at 8192"):
            directory.register_page("n", KEY, 8192)
        with pytest.raises(InvalidInputError, match="multiple of 4096"):
            directory.register_page("n", KEY, 64)
        assert directory.chain("n").num_pages == 1


def test_a_file_that_is_not_padded_to_its_reserve_is_refused():
    store = store_with(pa.table({"n": [1]}))
    page = encode_page(pa.array([1, 2]))
    store.object_store.put(KEY, page.data)

    with store.transaction() as txn, pytest.raises(InvalidInputError, match="pad the file"):
        txn.directory("t").register_page("n", KEY, 0)


def test_a_header_that_promises_more_than_the_file_holds_moves_only_the_header():
    store, meter = metered(store_with(pa.table({"n": [1]})))
    head = HEADER.pack(b"SPPG", 1, 1, 0, 1 << 30, 1 << 30, 1 << 20, 0, bytes(16))
    data = head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)) + bytes(4096 - 64)
    store.object_store.put(KEY, data)
    with store.transaction() as txn:
        directory = txn.directory("t")
        before = meter.counts.bytes_read

        with pytest.raises(InvalidInputError, match=f"{(1 << 30) + 64} bytes at 0 of {KEY}"):
            directory.register_page("n", KEY, 0)

        assert meter.counts.bytes_read - before == 64


# bytes


def test_every_flipped_bit_of_a_foreign_page_is_refused_and_named():
    store = store_with(pa.table({"n": [1]}))
    page = encode_page(pa.array([1, 2, None]))
    with store.transaction() as txn:
        directory = txn.directory("t")
        padding = range(8 * page.actual_len, 8 * page.alloc_len, 997)
        for bit in (*range(8 * page.actual_len), *padding):
            flipped = bytearray(page.data + bytes(page.alloc_len - page.actual_len))
            flipped[bit // 8] ^= 1 << bit % 8
            store.object_store.put(KEY, bytes(flipped))

            with pytest.raises((DamageError, InvalidInputError), match=KEY):
                directory.register_page("n", KEY, 0)

        assert directory.chain("n").num_pages == 1


def test_a_registered_file_that_is_another_one_later_is_damage_that_names_it():
    store = store_with(pa.table({"n": [1]}))
    write_file(store.object_store, KEY, pa.array([1, 2]))
    with store.transaction() as txn:
        txn.directory("t").register_page("n", KEY, 0)
    write_file(store.object_store, KEY, pa.array([3, 4]))

    with pytest.raises(DamageError, match=f"{KEY}@0"):
        store.snapshot().table("t").read()


# Arrow structure, behind right checksums


def test_the_forger_of_these_tests_makes_pages_that_are_taken_if_their_payload_is_right():
    register(forged(stream_of(pa.record_batch({"data": pa.array(["a", "b"])})), 2), pa.string())


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


TEXT = pa.array(["ab", "cd", "ef"])
WORDS = pa.array(["x", "y", "x", "y"]).dictionary_encode()
LIES = {
    "offsets behind the text": (TEXT, ints(0, 2, 4, 6), ints(0, 2, 4, 1 << 20)),
    "offsets that fall": (TEXT, ints(0, 2, 4, 6), ints(0, 4, 2, 6)),
    "negative offsets": (TEXT, ints(0, 2, 4, 6), ints(0, -2, 4, 6)),
    "text that is not UTF-8": (TEXT, b"abcdef", b"ab\xffdef"),
    "an index behind the dictionary": (WORDS, ints(0, 1, 0, 1), ints(0, 1, 0, 7)),
    "a negative index": (WORDS, ints(0, 1, 0, 1), ints(0, 1, 0, -7)),
    "list offsets behind the values": (pa.array([[1], [2, 3]]), ints(0, 1, 3), ints(0, 1, 30)),
    "list offsets inside that fall": (pa.array([[[1], [2, 3]]]), ints(0, 1, 3), ints(0, 9, 3)),
}


@pytest.mark.parametrize("name", LIES)
def test_a_payload_that_lies_is_refused(name):
    values, true, lie = LIES[name]
    stream = stream_of(pa.record_batch({"data": values}))
    assert stream.count(true) == 1

    with pytest.raises(DamageError, match=f"{KEY}@0"):
        register(forged(stream.replace(true, lie), len(values)), values.type)


def test_entries_that_are_not_as_many_as_the_header_says_are_refused():
    for values in (pa.array([1]), pa.array([1, 2, 3])):
        with pytest.raises(DamageError, match=f"{KEY}@0"):
            register(forged(stream_of(pa.record_batch({"data": values})), 2), values.type)


def test_entries_that_need_no_bytes_are_bounded_all_the_same():
    stream = stream_of(pa.record_batch({"data": pa.nulls(12_345)}))
    many = stream.replace(struct.pack("<q", 12_345), struct.pack("<q", 1 << 40))
    assert many != stream

    with pytest.raises(DamageError, match=f"{KEY}@0"):
        register(forged(many, 1 << 40), pa.null())
    with pytest.raises(DamageError, match=f"{KEY}@0"):
        register(forged(many, 12_345), pa.null())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_inside_of_the_payload_is_refused_because_nothing_bounds_it(compression):
    batch = pa.record_batch({"data": pa.array(["a" * 100] * 50)})
    coded = pa.record_batch({"data": pa.array(["a" * 100, "b"] * 50).dictionary_encode()})

    with pytest.raises(DamageError, match="compressed once more"):
        register(forged(stream_of(batch, compression=compression), 50), pa.string())
    with pytest.raises(DamageError, match="compressed once more"):
        register(forged(stream_of(coded, compression=compression), 100), coded.column(0).type)


def test_a_payload_of_no_batch_or_two_or_with_other_columns_is_refused():
    one = pa.record_batch({"data": pa.array([1])})
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, one.schema).close()
    none = sink.getvalue().to_pybytes()
    other = pa.record_batch({"values": pa.array([1])})
    reordered = pa.record_batch({"prefix_meta": pa.array([b""]), "data": pa.array([1])})
    wrong_meta = pa.record_batch({"data": pa.array([1]), "prefix_meta": pa.array([1])})

    for payload in (stream_of(one, one), none, stream_of(other), stream_of(reordered), b"", b"\xff" * 8):
        with pytest.raises(DamageError, match=KEY):
            register(forged(payload, 1), pa.int64())
    with pytest.raises(SparkPagesError, match="be binary"):
        register(forged(stream_of(wrong_meta), 1), pa.int64())


def test_a_size_that_so_few_bytes_cannot_expand_to_is_refused():
    with pytest.raises(DamageError, match=KEY):
        register(forged(b"\0" * 50, 1, codec=1, size=1 << 31), pa.int64())
    with pytest.raises(DamageError, match=KEY):
        register(forged(b"\0" * 50, 1, codec=1, size=(1 << 31) - 1), pa.int64())
    with pytest.raises(DamageError, match=KEY):
        register(forged(b"\0" * 50, 1, codec=1, size=200), pa.int64())


def test_a_page_of_a_newer_format_asks_for_a_newer_release():
    page = bytearray(forged(stream_of(pa.record_batch({"data": pa.array([1])})), 1))
    page[4] = 9
    page[56:64] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(page[:56])))

    with pytest.raises(UnsupportedFormatError, match=KEY):
        register(bytes(page), pa.int64())


def test_a_folder_is_no_page_file(tmp_path):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    os.makedirs(tmp_path / "store" / KEY)

    with store.transaction() as txn, pytest.raises(DamageError, match="a folder lies in its place"):
        txn.directory("t").register_page("n", KEY, 0)
