"""What a slot would take in memory is bounded before it is decoded, whatever it announces."""

from __future__ import annotations

import io
import tracemalloc
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.format import container
from spark_pages.format.commit import MAX_COMMIT_BYTES, decode_slot, encode_commit, slot_digest
from spark_pages.format.commit_schema import (
    ACCEPTED_SCHEMAS,
    CONTENT,
    EARLIER_SCHEMAS,
    HEADING,
    SHORT_SCHEMA,
    TRANSACTIONS_SCHEMA,
)
from spark_pages.format.container import (
    TooManyItemsError,
    avro_count,
    check_decoded_size,
    encode_container,
    most_decoded_bytes,
)
from spark_pages.model.actions import Commit, Tag, TransactionRecord
from spark_pages.model.ids import Version
from tests.io.strategies import steady

TOKEN = "0" * 32
LOCATION = {"key": "", "offset": 0, "length": 0, "original_length": 0, "shared": False, "digest": ""}
HEADER = {
    "format_version": 1, "reader_features": [], "writer_features": [], "version": 2, "timestamp_us": 1,
    "token": TOKEN, "parent_digest": "", "checkpoint": None, "compacted": 0, "transactions": 1,
    "store_id": "",
}  # fmt: skip
HEADING_VALUES = {
    "token": TOKEN, "operation": "", "parameters": {}, "writer": "", "app_id": None, "app_version": None,
    "read_version": 0,
}  # fmt: skip
LISTS = {"manifests": 9, "splices": 11, "intents": 8, "tags": 2, "leases": 3, "claims": 7, "properties": 2}
"""Lists of a transaction, and the bytes of their smallest item, all zeros."""

PAGE_LISTS = ("paths", "data", "min", "max")


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def forged(field: str, block_bytes: int) -> bytes:
    """A slot with a right digest, of an accepted schema, one list of which has as many items as fit."""
    item = bytes(LISTS.get(field, 1))
    items = avro_count(block_bytes // len(item)) + bytes(block_bytes // len(item) * len(item)) + b"\0"
    pages = b"".join(
        items if each["name"] == field else b"\0" for each in CONTENT["fields"][0]["type"]["fields"]
    )
    rest = b"".join(items if each["name"] == field else b"\0" for each in CONTENT["fields"][1:])
    transaction = b"\x02" + written(HEADING, HEADING_VALUES) + avro_count(0) + pages + rest
    return encode_container(
        TRANSACTIONS_SCHEMA, [("spark_pages.CommitHeader", HEADER), transaction], bytes(16)
    )[0]


def forged_tombstone(block_bytes: int) -> bytes:
    record = {
        "version": 2, "timestamp_us": 1, "token": TOKEN, "digest": "", "transactions": [],
        "checkpoint": {"version": 1, "location": LOCATION}, "store_id": "",
    }  # fmt: skip
    whole = written(SHORT_SCHEMA, ("spark_pages.Tombstone", record))
    head = b"\x04" + avro_count(2) + avro_count(1) + avro_count(32) + TOKEN.encode() + avro_count(0)
    many = head + avro_count(block_bytes) + bytes(block_bytes) + whole[len(head) :]
    return encode_container(SHORT_SCHEMA, [many], bytes(16))[0]


@pytest.fixture
def no_limit_of_writers(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(container, "check_decoded_size", lambda *_: None)
    return monkeypatch


@pytest.mark.parametrize("field", [*LISTS, *PAGE_LISTS, "a tombstone"])
def test_a_slot_of_many_small_items_is_refused_before_it_takes_memory(field, no_limit_of_writers):
    size = MAX_COMMIT_BYTES // 4
    data = forged_tombstone(size) if field == "a tombstone" else forged(field, size)
    no_limit_of_writers.undo()

    tracemalloc.start()
    with pytest.raises(DamageError, match="so many items that they would take more than"):
        decode_slot(data, "_log/2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 2 * len(data)  # a copy for the digest


@pytest.mark.parametrize("field", [*LISTS, *PAGE_LISTS])
def test_a_slot_takes_at_most_what_its_size_allows(field, no_limit_of_writers):
    data = forged(field, 1 << 20)
    no_limit_of_writers.undo()

    tracemalloc.start()
    with suppress(DamageError):
        decode_slot(data, "_log/2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < most_decoded_bytes(len(data)) + 2 * len(data)


def test_a_block_may_hold_64_times_its_bytes_between_32_and_512_mib():
    assert most_decoded_bytes(container.MAX_UNCHECKED_BYTES) == 32 << 20
    assert most_decoded_bytes(2 << 20) == 128 << 20
    assert most_decoded_bytes(MAX_COMMIT_BYTES) == 512 << 20


@pytest.mark.parametrize("field", [*LISTS, *PAGE_LISTS])
def test_a_small_slot_takes_a_bounded_multiple_of_its_bytes(field):
    size = container.MAX_UNCHECKED_BYTES
    data = forged(field, size - 1024)

    tracemalloc.start()
    with suppress(DamageError):
        decode_slot(data, "_log/2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 150 * size


@pytest.mark.parametrize("field", [each for each in (*LISTS, *PAGE_LISTS) if each != "manifests"])
def test_what_is_counted_is_about_what_decoding_takes(field):
    size = 1 << 17
    data = forged(field, size)
    tracemalloc.start()
    with suppress(DamageError):
        decode_slot(data, "_log/2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    items = size // LISTS.get(field, 1)

    assert peak < counted(field, items) * 1.5


def counted(field: str, items: int) -> int:
    """The least budget, in steps of a tenth, with which a list of so many items passes."""
    item = bytes(LISTS.get(field, 1))
    fields = CONTENT["fields"] if field in LISTS else CONTENT["fields"][0]["type"]["fields"]
    schema = next(each["type"] for each in fields if each["name"] == field)
    data = avro_count(items) + item * items + b"\0"
    budget = 1 << 16
    while True:
        try:
            check_decoded_size(
                data, 0, {"type": "record", "name": "x", "fields": [{"type": schema}]}, 1, budget
            )
            return budget
        except TooManyItemsError:
            budget += budget // 10


def test_items_are_counted_before_they_are_looked_at():
    data = avro_count(1 << 60) + b"\0"

    with pytest.raises(TooManyItemsError):
        check_decoded_size(data, 0, {"type": "array", "items": "string"}, 1, 1 << 30)


def test_a_header_is_read_alone_whatever_stands_behind_it(no_limit_of_writers):
    data = forged("tags", 4 << 20)
    no_limit_of_writers.undo()

    assert slot_digest(data, 2, "_log/2")


def test_a_writer_refuses_what_no_reader_would_decode(monkeypatch):
    monkeypatch.setattr(container, "MAX_DECODED_BYTES", 4 << 20)
    tags = tuple(Tag(f"{number:0200d}", Version(1)) for number in range(12_000))
    record = TransactionRecord(TOKEN, "tag", 1, "somebody", tags=tags)
    commit = Commit(Version(2), 1, TOKEN, "", (record,))

    with pytest.raises(InvalidInputError, match="so many items"):
        encode_commit(commit)


@pytest.mark.parametrize("schema", [*ACCEPTED_SCHEMAS, *EARLIER_SCHEMAS])
@settings(steady, max_examples=25)
@given(data=st.binary(max_size=200))
def test_whatever_fastavro_reads_is_skipped_to_its_end_and_nothing_else_fails(schema, data):
    source = io.BytesIO(data)
    try:
        fastavro.schemaless_reader(source, schema, None)
        read = True
    except Exception:  # noqa: BLE001 - fastavro raises anything
        read = False

    try:
        check_decoded_size(data[: source.tell()] if read else data, 0, schema, 1, 1 << 20)
        skipped = True
    except ValueError:
        skipped = False

    assert skipped or not read
