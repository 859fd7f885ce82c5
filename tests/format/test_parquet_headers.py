"""Headers of pages of Parquet: the quick way finds what goes through them field by field finds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.format import parquet
from spark_pages.format.parquet import check_limits, page_header
from tests.io.strategies import steady


def varint(value: int) -> bytes:
    digits = (value << 1) ^ (value >> 63)
    found = bytearray()
    while digits > 127:
        found.append(digits & 127 | 128)
        digits >>= 7
    return bytes([*found, digits])


numbers = st.one_of(st.integers(-2, 70), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
headers = st.builds(
    lambda kind, told, fields, end: b"".join(
        [b"\x15", varint(kind), b"\x15", varint(fields[0]), b"\x15", varint(fields[1]), told]
        + [b"\x15" + varint(each) for each in fields[2:]]
        + [end]
    ),
    st.integers(0, 4),
    st.sampled_from([b"\x2c", b"\x4c", b"\x5c"]),
    st.lists(numbers, min_size=4, max_size=7),
    st.sampled_from(
        [b"\x00\x00", b"\x1c\x00\x00\x00", b"\x11\x00\x00", b"\x12\x00\x00", b"\x00", b"\x11\x15\x00"]
    ),
)


def outcome(find, data: bytes, start: int, stop: int) -> object:
    try:
        return find(data, start, stop)
    except ValueError as error:
        return str(error)


@steady
@given(
    headers, st.binary(max_size=4), st.integers(0, 3), st.lists(st.integers(0, 255), max_size=2), st.data()
)
def test_both_ways_find_the_same_in_any_bytes(header, behind, start, changes, data):
    found = bytearray(bytes(start) + header + behind)
    for value in changes:
        found[data.draw(st.integers(0, len(found) - 1))] = value
    stop = data.draw(st.integers(start, len(found)))

    quick = outcome(page_header, bytes(found), start, stop)

    assert quick == outcome(parquet._page_header_by_field, bytes(found), start, stop)


def test_headers_as_arrow_writes_them_are_found_the_quick_way(monkeypatch):
    monkeypatch.setattr(parquet, "_page_header_by_field", lambda *_: pytest.fail("went field by field"))
    table = pa.table({"n": pa.array(range(5000), pa.int64()), "s": ["a", "b"] * 2500})
    data = parquet.encode_table(table, ["s"])

    claims = check_limits(data)

    assert pq.read_table(pa.BufferReader(data)).equals(table)
    assert list(claims.columns) == ["n", "s"]


def test_an_object_is_checked_once_however_often_it_is_decoded(monkeypatch):
    table = pa.table({"n": pa.array(range(91), pa.int64())})
    data, checks = parquet.encode_table(table, False), []
    real = parquet.check_limits
    monkeypatch.setattr(parquet, "check_limits", lambda each: checks.append(1) or real(each))

    for _ in range(3):
        parquet.decode_table(bytes(bytearray(data)), table.schema, "k")

    assert checks == [1]
