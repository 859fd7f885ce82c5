from __future__ import annotations

import io
from dataclasses import replace

import fastavro
import pytest
from hypothesis import assume, given, settings

from spark_pages.errors import DamageError, InvalidInputError, UnsupportedFormatError
from spark_pages.format import commit as commit_codec
from spark_pages.format import container
from spark_pages.format.commit import (
    EncodedTransaction,
    decode_slot,
    encode_commit,
    encode_tombstone,
)
from spark_pages.format.commit_schema import (
    COMMIT_SCHEMA,
    EARLIER_SCHEMAS,
    SHORT_SCHEMA,
    TRANSACTIONS_SCHEMA,
)
from spark_pages.format.container import decode_container
from spark_pages.format.page_columns import unpack_numbers
from spark_pages.model.actions import CheckpointRef, Features, Tombstone, UpkeepNote
from spark_pages.model.location import Location
from tests.effort import examples
from tests.io.strategies import steady
from tests.log.records import append, commit, commits, create, record, same, token

REF = CheckpointRef(3, Location("_log/checkpoints/x", 10, "ab" * 32, original_length=10))
TOMBSTONE = Tombstone(7, 99, token(5), "cd" * 32, ((token(6), "committed"), (token(8), "other")), REF)
UPKEEP = UpkeepNote("checkpoint", "somebody", 99, 3, 4, 5_000)
SMALL = commit(4, record(1, (3,), splices=(append(1, 1, 0, 3),)), checkpoint=REF)


@settings(steady, max_examples=examples(60))
@given(commits)
def test_a_commit_is_read_as_it_was_written_and_the_same_commit_gives_the_same_bytes(written):
    data, digest = encode_commit(written)

    read = decode_slot(data, "slot")

    assert same(read, written)
    assert read.digest == digest
    assert encode_commit(read) == (data, digest)


@settings(steady, max_examples=examples(40))
@given(commits)
def test_transactions_that_were_encoded_before_give_the_same_commit_wherever_their_pages_begin(written):
    assume(len({each.token for each in written.records}) == len(written.records))
    moved = replace(written, records=tuple(replace(r, base_ordinal=300) for r in written.records))

    encoded = {each.token: EncodedTransaction.of(each) for each in written.records}

    assert encode_commit(moved, encoded) == encode_commit(moved)
    assert encode_commit(written, encoded) == encode_commit(written)


def test_a_commit_may_hold_text_that_looks_like_an_empty_digest():
    written = commit(1, record(1, parameters={"x": "0" * 64, "0" * 64: "y"}))

    assert same(decode_slot(encode_commit(written)[0], "slot"), written)


def test_the_schema_stands_in_a_commit_in_its_shortest_form_and_says_the_same():
    data, _ = encode_commit(SMALL)
    written = fastavro.reader(io.BytesIO(data))

    assert plain(written.writer_schema) == plain(SHORT_SCHEMA)[:2]
    assert len(written.metadata["avro.schema"]) < 4_600
    assert next(iter(fastavro.reader(io.BytesIO(data))))["version"] == 4


def test_only_a_commit_that_tells_of_upkeep_has_a_place_for_it():
    silent, _ = encode_commit(SMALL)
    data, _ = encode_commit(replace(SMALL, upkeep=(UPKEEP,)))
    schemas = [plain(fastavro.reader(io.BytesIO(each)).writer_schema) for each in (silent, data)]

    assert schemas == [plain(SHORT_SCHEMA)[:2], plain(COMMIT_SCHEMA)[:2]]
    assert decode_slot(data, "slot").upkeep == (UPKEEP,)
    assert decode_slot(silent, "slot").upkeep == ()


def test_a_schema_that_the_format_does_not_have_is_damage(monkeypatch):
    data, _ = encode_commit(replace(SMALL, upkeep=(UPKEEP,)))
    monkeypatch.setattr(commit_codec, "_SCHEMA", container.ContainerSchema(SHORT_SCHEMA, TRANSACTIONS_SCHEMA))

    with pytest.raises(DamageError, match=r"Cannot read commit slot: .*schema") as failure:
        decode_slot(data, "slot")
    assert not isinstance(failure.value, UnsupportedFormatError)


@pytest.mark.parametrize(
    "schema",
    EARLIER_SCHEMAS,
    ids=[
        "arrays, upkeep and tombstones",
        "arrays and upkeep",
        "arrays and tombstones",
        "arrays",
        "upkeep and tombstones",
        "upkeep",
        "tombstones",
        "no store id",
        "no columns and tombstones",
        "no columns",
        "before blooms",
    ],
)
def test_a_commit_of_an_earlier_release_is_read(schema):
    records = decode_container(encode_commit(SMALL)[0], commit_codec._SCHEMA, "slot")[0]
    before, digest = container.encode_container(schema, map(listed, records), b"marks the blocks")

    assert same(decode_slot(before, "slot"), replace(SMALL, digest=digest))


def listed(named):
    """A record with arrays for packed numbers, as earlier releases wrote splices."""
    name, value = named
    splices = [
        {**each, **{name: unpack_numbers(each[name]).tolist() for name in ("removed", "touched")}}
        for each in value.get("splices", ())
    ]
    return name, {**value, "splices": splices}


@pytest.mark.parametrize(
    "wrong", [{"reached": 4}, {"reached": -1}, {"timestamp_us": -1}, {"objects": -1}, {"size_bytes": -1}]
)
def test_upkeep_that_cannot_have_been_is_damage(wrong):
    data, _ = encode_commit(replace(SMALL, upkeep=(replace(UPKEEP, **wrong),)))

    with pytest.raises(DamageError, match="upkeep that cannot have been"):
        decode_slot(data, "slot")


def test_a_commit_of_a_release_that_wrote_its_schema_out_is_read_without_parsing_it(monkeypatch):
    data, _ = encode_commit(SMALL)
    monkeypatch.setattr(container, "_shortest", lambda schema: schema)
    monkeypatch.setattr(commit_codec, "TRANSACTIONS_SCHEMA", SHORT_SCHEMA)
    monkeypatch.setattr(container, "_forms", {})
    before, _ = encode_commit(SMALL)
    monkeypatch.setattr(container.fastavro, "reader", None)

    assert len(before) > len(data) + 500
    assert same(decode_slot(before, "slot"), decode_slot(data, "slot"))


def plain(schema):
    """A parsed schema without what fastavro keeps in it."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key[0] != "_" and key != "default"}
    return [plain(each) for each in schema] if isinstance(schema, list) else schema


def test_a_tombstone_is_read_as_it_was_written():
    data, _ = encode_tombstone(TOMBSTONE)

    assert decode_slot(data, "slot") == TOMBSTONE


@pytest.mark.parametrize(
    "data", [encode_commit(SMALL)[0], encode_tombstone(TOMBSTONE)[0]], ids=["commit", "tombstone"]
)
def test_every_flipped_bit_is_noticed(data):
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8

        with pytest.raises(DamageError, match="slot"):
            decode_slot(bytes(damaged), "slot")


def test_every_cut_tail_and_every_addition_is_noticed():
    data, _ = encode_commit(SMALL)

    for damaged in [*(data[:length] for length in range(0, len(data), 3)), data + b"\0", data + data]:
        with pytest.raises(DamageError, match="slot"):
            decode_slot(damaged, "slot")


def test_an_unknown_feature_is_refused_by_name():
    data, _ = encode_commit(replace(SMALL, features=Features(reader=("holograms",))))

    with pytest.raises(UnsupportedFormatError, match="holograms"):
        decode_slot(data, "slot")


def test_a_newer_format_is_refused(monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(commit_codec, "FORMAT_VERSION", 2)
        data, _ = encode_commit(SMALL)

    with pytest.raises(UnsupportedFormatError, match="format 2"):
        decode_slot(data, "slot")


def test_a_format_that_cannot_even_be_parsed_is_refused_and_is_not_called_damage():
    """A later format may change every record but the header; fields of the header may be added."""
    header = {"type": "record", "name": "spark_pages.CommitHeader"}
    header["fields"] = [
        {"name": "format_version", "type": "int"},
        {"name": "reader_features", "type": {"type": "array", "items": "string"}},
        {"name": "mood", "type": "string"},
    ]
    told = {"format_version": 2, "reader_features": ["moods"], "mood": "calm"}
    data, _ = container.encode_container([header], [("spark_pages.CommitHeader", told)], b"marks the blocks")

    with pytest.raises(UnsupportedFormatError, match="format 2 with reader features moods"):
        decode_slot(data, "slot")
    with pytest.raises(DamageError, match="slot") as failure:
        decode_slot(data.replace(b"calm", b"mean"), "slot")
    assert not isinstance(failure.value, UnsupportedFormatError)


def test_a_slot_beyond_the_limit_is_refused_before_it_is_parsed(monkeypatch):
    data, _ = encode_commit(SMALL)
    monkeypatch.setattr(commit_codec, "MAX_COMMIT_BYTES", len(data) - 1)

    with pytest.raises(DamageError, match="at most"):
        decode_slot(data, "slot")


def test_a_commit_beyond_the_limit_is_not_written(monkeypatch):
    data, _ = encode_commit(SMALL)
    monkeypatch.setattr(commit_codec, "MAX_COMMIT_BYTES", len(data) - 1)

    with pytest.raises(InvalidInputError, match="into several transactions"):
        encode_commit(SMALL)


def test_an_intent_keeps_the_schema_with_its_field_ids():
    read = decode_slot(encode_commit(commit(1, record(1, intents=(create(4, "x"),))))[0], "slot")

    assert read.records[0].intents[0].definition.field_ids == {"a": 1, "b": 2}
