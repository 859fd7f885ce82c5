"""What writes Avro gives the bytes that fastavro gives."""

from __future__ import annotations

import io
from unittest import mock

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.log import commit_codec
from spark_pages.log.avro_writer import write_bytes, write_long, writer_of
from spark_pages.log.commit_codec import encode_commit
from tests.io.strategies import steady
from tests.log.records import commits


def by_fastavro(schema, value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def written(schema, value) -> bytes:
    out = bytearray()
    writer_of(schema)(out, value)
    return bytes(out)


@pytest.mark.parametrize("schema", ["long", "int"])
@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, (1 << 31) - 1, -(1 << 31)])
def test_whole_numbers(schema, value):
    assert written(schema, value) == by_fastavro(schema, value)


@settings(steady)
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_whole_numbers_of_64_bits(value):
    assert written("long", value) == by_fastavro("long", value)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_a_number_of_more_than_64_bits_is_refused(value):
    with pytest.raises(OverflowError):
        write_long(bytearray(), value)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 100_000])
def test_bytes_of_any_length(size):
    out = bytearray()

    write_bytes(out, bytes(size))

    assert bytes(out) == by_fastavro("bytes", bytes(size))


@settings(steady, max_examples=60)
@given(commits)
def test_commits(commit):
    with mock.patch.object(commit_codec, "encode_container", return_value=(b"", "")) as encode:
        encode_commit(commit)
    schema, records, _ = encode.call_args.args

    assert [written(schema, each) for each in records] == [by_fastavro(schema, each) for each in records]
