"""An object that says that it grows out of all proportion is refused before memory is taken for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_pages.errors import DamageError
from spark_pages.format.parquet import _footer, check_limits, decode_table, encode_table, pages_of
from spark_pages.format.segment import checkpoint_of
from spark_pages.log.checkpoint.root import decode_root

SCHEMA = pa.schema([pa.field("text", pa.string()), pa.field("number", pa.int64())])


def written(rows: int, text: str = "a", **options: object) -> bytes:
    table = pa.table({"text": pa.repeat(text, rows), "number": pa.repeat(7, rows)}, SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, compression="zstd", **options)
    return sink.getvalue().to_pybytes()


def taken_by(data: bytes) -> int:
    """Most bytes that Arrow has had more than before while the object was refused."""
    pool = pa.default_memory_pool()
    before, peak = pool.bytes_allocated(), pool.max_memory()
    with pytest.raises(DamageError, match="Cannot read the-key: expected Parquet"):
        decode_table(data, SCHEMA, "the-key")
    after = pool.max_memory()
    return 0 if after == peak else after - before


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def chunk(data: bytes, index: int) -> dict:
    """ColumnMetaData of a column, as the footer has it."""
    return _footer(data)[4][0][1][index][3]


def test_a_table_that_is_what_it_says_is_read_whatever_it_repeats():
    data = written(16_000, "x" * 50)

    found = decode_table(data, SCHEMA, "the-key")

    assert found["text"].unique().to_pylist() == ["x" * 50]
    assert len(found["number"]) == 16_000


def test_all_pages_of_a_column_are_found_with_their_sizes():
    data = written(10_000, data_page_size=2_000, write_batch_size=100, use_dictionary=["text"])

    for index in range(2):
        pages = list(pages_of(data, chunk(data, index)))
        assert sum(values for kind, _, values in pages if kind != 2) == 10_000
        assert [kind for kind, _, _ in pages if kind == 2] == [2] * (1 - index)
        assert 0 < sum(size for _, size, _ in pages) <= chunk(data, index)[6]
        assert index == 0 or len(pages) > 20


def test_rows_that_cost_nothing_are_counted():
    data = written(5_000_000)

    assert len(data) < 40_000
    assert taken_by(data) < 1 << 20


def test_a_long_text_that_stands_for_many_rows_is_measured_before_it_is_repeated():
    data = written(2_000, "x" * 100_000)

    assert len(data) < 20_000
    assert taken_by(data) < 8 << 20


def test_text_of_shared_beginnings_is_no_encoding_of_the_log():
    data = written(
        100, "x" * 100, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY", "number": "PLAIN"}
    )

    with pytest.raises(DamageError, match="encoding 7"):
        decode_table(data, SCHEMA, "the-key")


@pytest.mark.parametrize("size", [(1 << 31) - 1, 1 << 30])
def test_a_page_that_says_it_has_gibibytes_is_refused_unread(size):
    data = written(4, use_dictionary=False)
    start = chunk(data, 1)[9]
    at = start + 3  # behind the kind of the page stands its size
    end = next(place for place in range(at, len(data)) if data[place] < 128) + 1
    told = varint(2 * size)
    # The footer says where columns begin; the last column alone may move, and what it says of its length.
    length = chunk(data, 1)[7]
    forged = data[:at] + told + data[end : start + length]
    footer = data[start + length : -8]
    longer = footer.replace(varint(2 * length), varint(2 * (length + len(told) - (end - at))))
    forged += longer + len(longer).to_bytes(4, "little") + b"PAR1"

    assert next(iter(pages_of(forged, chunk(forged, 1))))[1] == size
    assert taken_by(forged) < 1 << 20


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("15", "does not end"),
        ("15 ff ff ff ff ff ff ff ff ff ff ff", "does not end"),
        ("18 7f 61", "does not end"),
        ("19 fc ff ff 03", "does not end"),
        ("1c " * 40, "too deep"),
        ("1b 00 00", "kind 11"),
        ("15 00 05 02 00 00", "field 1 twice"),
        ("15 02 15 00 15 00 00", "kind 1"),
        ("15 00 15 01 15 00 2c 15 02 15 00 00 00", "become -1"),
        ("15 00 15 00 15 7e 2c 15 02 15 00 00 00", "63 bytes"),
        ("15 00 15 00 15 00 2c 15 01 15 00 00 00", "-1 values"),
        ("15 00 15 00 15 00 00", "without a struct"),
        ("15 04 15 00 15 00 4c 15 02 15 0e 00 00", "encoding 7"),
    ],
)
def test_a_header_that_cannot_be_is_refused(head, told):
    data = bytes.fromhex(head)

    with pytest.raises(ValueError, match=told):
        list(pages_of(data, {5: 1, 7: len(data), 9: 0}))


@pytest.mark.parametrize("place", [(0, 4), (-1, 2), (2, -1), (3, 1)])
def test_a_chunk_outside_of_the_object_is_refused(place):
    start, length = place

    with pytest.raises(ValueError, match="in 3 bytes"):
        list(pages_of(b"abc", {5: 1, 7: length, 9: start}))


def test_footers_that_promise_more_than_such_bytes_hold_are_refused():
    data = written(4)
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]

    with pytest.raises(ValueError, match="a footer of"):
        check_limits(data[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match="does not end"):
        check_limits(b"PAR1" + footer[:-1] + (len(footer) - 1).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match="no Parquet"):
        check_limits(data[:-1])


def written_as(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"store_schema": False, "compression": "zstd", **options})
    return sink.getvalue().to_pybytes()


GOOD = pa.table({"text": ["a"], "number": [7]}, SCHEMA)

FOREIGN = {
    "another codec": written_as(GOOD, compression="snappy"),
    "the schema of Arrow, which Arrow would parse": written_as(GOOD, store_schema=True),
    "other metadata": encode_table(GOOD, dictionary=False, metadata={b"x": b"y"}),
    "a column too many": written_as(GOOD.append_column("more", pa.array([1]))),
    "a column too few": written_as(GOOD.select(["text"])),
    "two columns of one name": written_as(GOOD.append_column("text", pa.array(["b"]))),
    "a list": written_as(pa.table({"text": [["a"]], "number": [7]})),
    "a struct": written_as(pa.table({"text": [{"text": "a", "number": 7}], "number": [7]})),
    "a column of another width": written_as(pa.table({"text": ["a"], "number": pa.array([7], pa.int32())})),
    "bytes of fixed width": written_as(pa.table({"text": pa.array([b"a"], pa.binary(1)), "number": [7]})),
    "a decimal": written_as(pa.table({"text": ["a"], "number": pa.array([7], pa.decimal128(3))})),
    "no column": written_as(pa.table({})),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_columns_that_the_format_does_not_have_reach_no_parser(data, monkeypatch):
    monkeypatch.setattr(pq, "ParquetFile", lambda *_, **__: pytest.fail("parsed"))

    with pytest.raises(DamageError, match="Cannot read the-key: expected Parquet"):
        decode_table(data, SCHEMA, "the-key")


def test_columns_may_come_in_any_order_be_null_or_be_missing_if_the_format_says_so():
    data = written_as(pa.table({"number": pa.array([None, 7], pa.int64()), "text": ["a", "b"]}))
    fewer = written_as(pa.table({"text": ["a", "b"]}))

    assert decode_table(data, SCHEMA, "k")["number"].to_pylist() == [None, 7]
    assert decode_table(fewer, SCHEMA, "k", optional=["number"])["number"].to_pylist() == [None, None]


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_a_root_or_an_object_without_a_name_of_another_form_reaches_no_parser(data, monkeypatch):
    monkeypatch.setattr(pq, "ParquetFile", lambda *_, **__: pytest.fail("parsed"))

    assert checkpoint_of(data) is None
    with pytest.raises(DamageError, match="Cannot read the-key: it is not the root"):
        decode_root(data, "the-key")
