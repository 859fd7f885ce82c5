"""Containers of foreign or forged content are refused before fastavro runs: Avro executes its schema."""

from __future__ import annotations

import io
import json
import zlib
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import DamageError, UnsupportedFormatError
from spark_pages.format import container
from spark_pages.format.commit import decode_slot, encode_commit, is_commit, slot_digest
from spark_pages.format.container import AvroReader, avro_count
from spark_pages.format.digest import digest_of
from spark_pages.log.compaction.compacted_range import CompactedRange, decode_range
from tests.effort import examples
from tests.log.records import commit, record

GOOD, _ = encode_commit(commit(1, record(1)))
SCHEMA = json.loads(fastavro.reader(io.BytesIO(GOOD)).metadata["avro.schema"])
ZEROS = b"0" * 64
NULLS = {"type": "array", "items": "null"}
EMPTY_RECORDS = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
MANY = avro_count(0) + avro_count(1 << 60)
DEEP = avro_count(0) + avro_count(1) * 10_000 + avro_count(0)


def sealed(metadata: dict[str, bytes], block: bytes, count: int = 1) -> bytes:
    """A container with its digest right, whatever it holds."""
    pairs = {**metadata, "spark_pages.digest": ZEROS}.items()
    text = [(key.encode(), value) for key, value in pairs]
    head = b"".join(avro_count(len(each)) + each for pair in text for each in pair)
    data = b"Obj\x01" + avro_count(len(text)) + head + avro_count(0) + bytes(16)
    data += avro_count(count) + avro_count(len(block)) + block + bytes(16)
    return data.replace(ZEROS, digest_of(data).encode())


def told(schema: Any, codec: bytes = b"null") -> dict[str, bytes]:
    return {"avro.codec": codec, "avro.schema": json.dumps(schema, separators=(",", ":")).encode()}


def with_field(kind: Any, place: int) -> Any:
    header, transaction = SCHEMA
    fields = [*header["fields"]]
    fields.insert(place, {"name": "zz", "type": kind})
    return [{**header, "fields": fields}, transaction]


HOSTILE = {
    "a recursive record": sealed(told(with_field(NODE, 0)), DEEP),
    "2^60 nulls": sealed(told(with_field(NULLS, 0)), MANY),
    "2^60 empty records": sealed(told(with_field(EMPTY_RECORDS, 0)), MANY),
    "2^60 nulls behind the fields that every format has": sealed(told(with_field(NULLS, 2)), MANY),
    "another codec": sealed(told(SCHEMA, b"deflate"), zlib.compress(bytes(1 << 20))),
    "a codec that is not said": sealed({"avro.schema": told(SCHEMA)["avro.schema"]}, b"\0"),
    "metadata that the format does not have": sealed({**told(SCHEMA), "x": b""}, b"\0"),
    "2^60 records": sealed(told(SCHEMA), b"\0", 1 << 60),
    "fewer than no records": sealed(told(SCHEMA), b"\0", 1 << 64),
    "a schema that is no JSON": sealed({"avro.codec": b"null", "avro.schema": b"[" * 50_000}, b"\0"),
    "a tail that reads as ff": GOOD[:2048] + b"\xff" * (1 << 20),
    "nothing but ff": b"Obj\x01" + b"\xff" * (1 << 20),
    "2^60 pairs of metadata": b"Obj\x01" + avro_count(1 << 60) + b"\0" * 100,
}


@pytest.fixture
def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container.fastavro, "reader", lambda *_, **__: pytest.fail("parsed"))
    monkeypatch.setattr(container.fastavro, "schemaless_reader", lambda *_, **__: pytest.fail("parsed"))


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_no_release_wrote_is_damage_and_reaches_no_parser(data, no_parser):
    with pytest.raises(DamageError, match="slot"):
        decode_slot(data, "slot")
    with pytest.raises(DamageError, match="slot"):
        is_commit(data, 1, "slot")
    with pytest.raises(DamageError, match="slot"):
        slot_digest(data, 1, "slot")
    with pytest.raises(DamageError, match="compacted"):
        decode_range(data, CompactedRange(0, 1))


def test_a_wrong_digest_is_told_before_a_wrong_codec_and_that_before_an_unknown_schema(no_parser):
    codec = sealed(told(with_field(NULLS, 0), b"deflate"), MANY)

    with pytest.raises(DamageError, match="expected digest"):
        decode_slot(codec.replace(MANY, MANY[::-1]), "slot")
    with pytest.raises(DamageError, match="codec"):
        decode_slot(codec, "slot")
    with pytest.raises(DamageError, match="schema"):
        decode_slot(HOSTILE["2^60 nulls"], "slot")


def test_a_newer_format_is_told_by_the_fields_that_every_format_has(no_parser):
    features = avro_count(1) + avro_count(9) + b"holograms" + avro_count(0)
    data = sealed(told(with_field(NULLS, 2)), avro_count(0) + avro_count(2) + features + MANY)

    with pytest.raises(UnsupportedFormatError, match="format 2 with reader features holograms"):
        decode_slot(data, "slot")


def test_a_block_with_more_features_than_bytes_is_no_newer_format(no_parser):
    features = avro_count(1 << 60) + b"x"
    data = sealed(told(with_field(NULLS, 2)), avro_count(0) + avro_count(2) + features)

    with pytest.raises(DamageError, match="slot") as failure:
        decode_slot(data, "slot")
    assert not isinstance(failure.value, UnsupportedFormatError)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=12))
def test_numbers_are_read_as_avro_writes_them(number, behind):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    source = AvroReader(out.getvalue() + behind, 0)

    assert (source.number(), source.position) == (number, len(out.getvalue()))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_value_or_refused(data):
    for read in (AvroReader.number, AvroReader.bytes, AvroReader.count):
        source = AvroReader(data, 0)
        try:
            read(source)
        except ValueError:
            source.position = 0
        assert 0 <= source.position <= len(data)


@settings(max_examples=examples(200))
@given(st.binary(max_size=200), st.integers(0, (1 << 62)))
def test_any_block_of_an_accepted_schema_is_a_commit_or_damage(block, count):
    data = sealed(told(SCHEMA), block, count)

    with suppress(DamageError):
        decode_slot(data, "slot")
