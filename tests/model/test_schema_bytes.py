"""Schemas of the catalog are read where a class of an extension type fails, and written as they were read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.arrow.stored_types import UNAVAILABLE_KEY, schema_from_bytes, schema_to_bytes


class Money(pa.ExtensionType):
    fails = False

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.money")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"EUR"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, told: bytes) -> Money:
        if cls.fails:
            raise RuntimeError("this release wants a country")
        return cls(storage)

    def __hash__(self) -> int:
        return hash("tests.money")


@pytest.fixture(autouse=True)
def _registered():
    pa.register_extension_type(Money(pa.int64()))
    yield
    pa.unregister_extension_type("tests.money")


MONEY, TEXT = Money(pa.int64()), Money(pa.string())
TYPES = [
    MONEY,
    pa.list_(pa.field("item", MONEY, nullable=False, metadata={"k": "v"})),
    pa.struct([pa.field("a", pa.uuid()), pa.field("b", TEXT)]),
    pa.map_(TEXT, MONEY),
    pa.list_(MONEY, 3),
    pa.dictionary(pa.int8(), pa.list_(TEXT)),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_that_cannot_be_made_is_read_as_it_is_stored_and_written_as_it_was(kind, monkeypatch):
    schema = pa.schema(
        [pa.field("ARROW:extension:name", kind, False, {"own": "1"}), pa.field("id", pa.uuid())],
        {"of": "all"},
    )
    data = schema_to_bytes(schema)
    monkeypatch.setattr(Money, "fails", True)

    found = schema_from_bytes(data)

    assert found.names == schema.names
    assert (found.field(1), found.metadata) == (schema.field(1), {b"of": b"all"})
    column = found.field(0)
    assert "tests.money cannot be constructed" in column.metadata[UNAVAILABLE_KEY].decode()
    assert "wants a country" in column.metadata[UNAVAILABLE_KEY].decode()
    assert (column.nullable, column.metadata[b"own"]) == (False, b"1")
    assert "extension" not in str(column.type)
    pa.ipc.read_schema(found.serialize())
    assert schema_from_bytes(schema_to_bytes(found)).equals(found, check_metadata=True)
    renamed = found.set(0, column.with_name("new"))
    monkeypatch.setattr(Money, "fails", False)
    assert schema_from_bytes(schema_to_bytes(found)).equals(schema, check_metadata=True)
    assert schema_from_bytes(schema_to_bytes(renamed)).field("new").type == kind


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"ARROW:extension:name" * 9])
def test_what_is_no_schema_is_none(data):
    with pytest.raises((pa.ArrowException, OSError, ValueError)):
        schema_from_bytes(data)
