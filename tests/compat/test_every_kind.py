"""The stores of this release hold every kind of object, action and page that its code knows."""

from __future__ import annotations

import inspect
import io
import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_pages as sp
from spark_pages.catalog.constraints import Kind
from spark_pages.errors import SnapshotExpiredError
from spark_pages.format.pages.codecs import Codec, decompress
from spark_pages.format.pages.integer_encoding import read_encoding_table
from spark_pages.format.pages.page_codec import arrow_stream
from spark_pages.format.pages.page_header import PAGE_MAGIC, PageHeader, parse_header
from spark_pages.format.pages.page_codec import read_payload
from spark_pages.format import names
from spark_pages.log.checkpoint.root import Root, encode_catalog, encode_root
from spark_pages.format.segment import NODE_SCHEMA, SEGMENT_SCHEMA
from spark_pages.format.commit import decode_slot
from spark_pages.format.commit_schema import COMMIT_SCHEMA
from spark_pages.format.page_columns import BLOOM, DATA, DISTINCT, EXACT, EXACT_KNOWN, MAX, MIN, NAN
from spark_pages.format.features import READER_FEATURES, WRITER_FEATURES
from spark_pages.format.names import LOCATION_PROPERTY
from spark_pages.log.state import LogState
from spark_pages.model import table as definitions
from spark_pages.model.actions import Commit, IntentKind, Splice, TransactionRecord
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE, PageKind
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA
from spark_pages.spark.publish import TABLES
from spark_pages.store import Store
from tests.compat.make_every_kind import state_of

V1 = Path(__file__).parent / "v1"
STORES = sorted(V1.glob("*/store"))
ANY: Any = object()
"""In place of a value: whatever the schema allows."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(V1 / "every-kind" / "store", tmp_path / "store")
    with sp.open(str(tmp_path / "store")) as found:
        yield found


# what is there


def objects(part: str) -> dict[str, bytes]:
    """The objects of all stores whose key has this part, by store and key."""
    found = [path for root in STORES for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(V1)): path.read_bytes() for path in found if part in path.as_posix()}


def keys() -> set[str]:
    return {name.partition("/store/")[2] for name in objects("/store/")}


def slots() -> dict[str, bytes]:
    return {key: data for key, data in objects("/_log/0").items() if re.search(r"/\d{20}\.avro$", key)}


@cache
def records() -> list[TransactionRecord]:
    found = [decode_slot(data, key) for key, data in slots().items()]
    return list(chain.from_iterable(slot.records for slot in found if isinstance(slot, Commit)))


@cache
def pages() -> list[bytes]:
    """Header and payload of the pages in files and in commits."""
    inline = [data.as_py() for record in records() for data in record.pages.column("data") if data.is_valid]
    files = [data for key, data in objects("/").items() if key.endswith(".pages")]
    starts = [data[at:] for data in files for at in range(0, len(data), PAGE_ALIGNMENT)]
    found = [data for data in chain(inline, starts) if data.startswith(PAGE_MAGIC)]
    return [data[: parse_header(data).actual_len] for data in found]


def headers() -> list[PageHeader]:
    return [parse_header(page) for page in pages()]


def roots() -> list[dict[str, Any]]:
    return [
        _document(data) for key, data in objects("/_log/checkpoints/").items() if key.endswith(".parquet")
    ]


def _document(root: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        pq.ParquetFile(pa.BufferReader(root)).metadata.metadata[b"spark_pages.root"]
    )
    return found


def shape(key: str) -> str:
    """A key without the numbers, digests and tokens in it."""
    return re.sub(r"-\d+\.", "-#.", re.sub(r"[0-9a-f]{64}|[0-9a-f]{32}|\d{20}", "#", key))


def fields(schema: Any, value: Any, path: str, named: dict[str, Any]) -> Iterator[str]:
    """The fields that have a value, and those that may be null and are."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        if value is ANY or value is None:
            yield f"{path} null"
        if value is not None:
            yield from fields(next(each for each in schema if each != "null"), value, path, named)
    elif isinstance(schema, dict) and schema["type"] == "record":
        for each in schema["fields"]:
            inside = ANY if value is ANY else value.get(each["name"])
            yield from fields(each["type"], inside, f"{path}.{each['name']}", named)
    elif isinstance(schema, dict) and schema["type"] in ("array", "map"):
        items = schema["items"] if schema["type"] == "array" else schema["values"]
        for each in [ANY] if value is ANY else value.values() if isinstance(value, dict) else value or ():
            yield from fields(items, each, path, named)
    elif value is ANY or value:
        yield path


# whether they are read as they were written


def test_it_says_what_it_said_beside_its_rows(store: Store) -> None:
    answers = json.loads((V1 / "every-kind" / "answers.json").read_text())

    assert state_of(store) == answers["state"]


def test_versions_whose_slots_were_cleaned_are_refused(store: Store) -> None:
    with pytest.raises(SnapshotExpiredError):
        store.snapshot(version=0)


# whether nothing is missing


def test_every_sort_of_key_is_there() -> None:
    number, token, digest = "0" * 20, "0" * 32, "0" * 64
    given = {
        "version": 0, "read_version": 0, "start": 0, "end": 0, "number": 0,
        "digest": digest, "transaction": token, "manifest_id": f"{number}-{token}-0",
    }  # fmt: skip
    makers = [make for name, make in vars(names).items() if name.endswith("_key")]
    known = {
        make(**{n: given[n] for n in inspect.signature(make).parameters if n != "folder"}) for make in makers
    }
    properties = {name for record in records() for name in record.properties}
    folders = {
        name.removeprefix(LOCATION_PROPERTY) for name in properties if name.startswith(LOCATION_PROPERTY)
    }
    known |= {names.HINT_KEY, *(names.page_file_key(0, token, 0, folder) for folder in folders)}
    known |= {f"{table.root}_delta_log/{number}.json" for table in TABLES}

    assert folders
    assert {shape(key) for key in known} - {shape(key) for key in keys()} == set()


def test_pages_lie_in_files_of_other_names_too() -> None:
    assert any(re.fullmatch(r"imports/day-#\.pages", shape(key)) for key in keys())


def test_every_field_of_commits_and_tombstones_has_a_value() -> None:
    named: dict[str, Any] = {}
    fastavro.parse_schema(COMMIT_SCHEMA, named_schemas=named)
    known = {each for name in COMMIT_SCHEMA for each in fields(name, ANY, name["name"], named)}
    found = set()
    for data in slots().values():
        slot = fastavro.reader(io.BytesIO(data), return_record_name=True, return_record_name_override=True)
        found |= {each for name, record in slot for each in fields(name, record, name, named)}
    never = {each for each in known if each.endswith("location.offset")}  # what is named whole begins at 0
    never.add("spark_pages.Transaction.retention.checkpoint null")  # without one there is nothing to delete

    never.add("spark_pages.Tombstone.store_id")  # stores with tombstones are older than ids of stores

    assert known - found == never


def test_every_kind_of_intent_is_there() -> None:
    assert {intent.kind for record in records() for intent in record.intents} == set(IntentKind)


def test_every_sort_of_splice_is_there() -> None:
    def sort(splice: Splice) -> str:
        kind = "row-preserving" if splice.row_preserving else "row-changing"
        return f"{kind if splice.removed else 'append'}, {'changed' if splice.data_change else 'same'} rows"

    assert {sort(splice) for record in records() for splice in record.splices} == {
        "append, changed rows",
        "row-preserving, changed rows",
        "row-preserving, same rows",
        "row-changing, changed rows",
    }


def test_every_kind_of_page_is_there_with_all_that_it_may_be_given() -> None:
    raw = [
        record["pages"]
        for data in slots().values()
        for record in fastavro.reader(io.BytesIO(data))
        if "pages" in record
    ]
    found = np.bitwise_or.reduce(np.frombuffer(b"".join(each["given"] for each in raw), np.uint8))

    assert set(b"".join(each["kind"] for each in raw)) == set(PageKind)
    assert found == DATA | MIN | MAX | EXACT_KNOWN | EXACT | DISTINCT | BLOOM | NAN


def test_pages_show_fewer_and_more_rows_than_they_hold() -> None:
    shown = [
        np.sign(np.subtract(record.pages.column("entry_count"), record.pages.column("payload_entries")))
        for record in records()
    ]

    assert set(np.concatenate(shown).tolist()) == {-1, 0, 1}


def test_every_codec_and_every_sort_of_narrowed_integers_is_there() -> None:
    ranges = []
    for page, header in zip(pages(), headers(), strict=True):
        if header.stream_size:
            stored = decompress(header.codec, page[PAGE_HEADER_SIZE:], header.uncompressed_size)
            ranges += read_encoding_table(stored, header.stream_size, "a page")[0]

    assert {header.codec for header in headers()} == set(Codec)
    assert {bool(header.stream_size) for header in headers()} == {True, False}
    assert {kind for _, _, kind, *_ in ranges} == {1, 2}
    assert {wide for _, _, _, wide, *_ in ranges} == {2, 4, 8}
    assert {narrow for _, _, _, _, narrow, *_ in ranges} == {1, 2, 4}


def test_pages_hold_what_stands_beside_values() -> None:
    streams = [arrow_stream(parse_header(page), page[PAGE_HEADER_SIZE:], where="a page") for page in pages()]
    batches = [read_payload(stream, where="a page") for stream in streams]

    names_there = {name for batch in batches for name in batch.schema.names}

    assert names_there == {"data", "prefix_meta", "suffix_meta"}
    assert any(batch.schema.metadata for batch in batches)


def test_every_member_of_a_root_has_a_value() -> None:
    known = _document(encode_root(Root(LogState(), 0, (), (), ()))).keys() - {"store_id"}  # of later releases

    assert {name for name in known if not any(root.get(name) for root in roots())} == set()


@pytest.mark.parametrize(
    ("folder", "columns"),
    [
        ("checkpoints", [name for name in NODE_SCHEMA.names if not name.startswith("stats_")]),
        ("parts", NODE_SCHEMA.names),
        ("segments", SEGMENT_SCHEMA.names),
        ("stats", STATS_SCHEMA.names),
        ("catalog", pq.read_schema(pa.BufferReader(encode_catalog([]))).names),
        ("manifests", [*PAGE_SCHEMA.names[1:], *STATS_SCHEMA.names]),
    ],
)
def test_every_column_has_a_value(folder: str, columns: list[str]) -> None:
    files = [data for key, data in objects(f"/_log/{folder}/").items() if key.endswith(".parquet")]
    tables = [pq.read_table(pa.BufferReader(data)) for data in files]
    found = {name for table in tables for name in table.column_names if any(table.column(name).to_pylist())}

    assert set(columns) - found == set()


def test_every_feature_is_needed() -> None:
    reader, writer = (
        {name for root in roots() for name in root[f"{who}_features"]} for who in ("reader", "writer")
    )

    assert (READER_FEATURES, WRITER_FEATURES) == (reader, writer)


def test_definitions_hold_everything_that_the_catalog_keeps_in_them() -> None:
    intents = [intent for record in records() for intent in record.intents]
    schemas = [intent.definition.schema for intent in intents if intent.definition]
    held = {key for schema in schemas for each in (schema, *schema) for key in each.metadata or {}}
    constraints = [(schema.metadata or {}).get(definitions.CONSTRAINTS_KEY, b"[]") for schema in schemas]

    assert {value for name, value in vars(definitions).items() if name.endswith("_KEY")} - held == set()
    assert {rule["kind"] for some in constraints for rule in json.loads(some)} == set(get_args(Kind))


def test_table_0_has_rows_of_every_kind(store: Store) -> None:
    kinds = {
        kind
        for version in range(store.history()["version"].to_pylist()[-1], store.snapshot().version + 1)
        for kind in store.snapshot(version=version).table("system.catalog").read(["kind"])["kind"].to_pylist()
    }

    assert kinds == {"table", "column", "constraint", "namespace", "type", "purged"}
