"""A column whose type a process cannot construct is unavailable there; everything else goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import ColumnUnavailableError, InvalidInputError
from spark_pages.store import Store
from tests.transaction.stores import store_with

NAME = "tests.temperature"


class Temperature(pa.ExtensionType):
    """A type of somebody's library, of which this process has another release."""

    fails = False

    def __init__(self) -> None:
        super().__init__(pa.int64(), NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, told: bytes) -> Temperature:
        if cls.fails:
            raise ValueError("this release wants a unit")
        return cls()

    def __hash__(self) -> int:
        return hash(NAME)


@pytest.fixture
def store(monkeypatch):
    """Tables ``t``, with columns ``n`` and ``warm``, and ``other``, of a reader that lacks the type."""
    pa.register_extension_type(Temperature())
    warm = pa.ExtensionArray.from_storage(Temperature(), pa.array([20, 30]))
    written = store_with(pa.table({"n": [1, 2], "warm": warm}))
    with written.transaction() as txn:
        txn.create_table("other", pa.schema([("a", pa.int64())]))
        txn.append("other", {"a": [7]})
    written.checkpoint()
    monkeypatch.setattr(Temperature, "fails", True)
    yield Store(written.object_store)
    pa.unregister_extension_type(NAME)


READS = {
    "read": lambda table: table.read(),
    "read of it alone": lambda table: table.read(["warm"]),
    "take": lambda table: table.take([0]),
    "scan": lambda table: table.scan().read_all(),
    "filter": lambda table: table.read(["n"], filter="warm is null"),
    "aggregate": lambda table: table.aggregate("warm"),
    "to pandas": lambda table: table.to_pandas() if hasattr(table, "to_pandas") else table.read(),
}


@pytest.mark.parametrize("act", READS.values(), ids=READS)
def test_reading_the_column_names_it_and_why(store, act):
    with pytest.raises(ColumnUnavailableError, match=r"'warm' of 't': .* wants a unit") as told:
        act(store.snapshot().table("t"))

    assert "name other columns: n" in str(told.value)


def test_other_columns_tables_and_versions_stay_readable(store):
    snapshot = store.snapshot()

    assert snapshot.table("t").read(["n"]).to_pydict() == {"n": [1, 2]}
    assert snapshot.table("t").read(["n"], filter="n > 1").to_pydict() == {"n": [2]}
    assert snapshot.table("t").num_rows == 2
    assert snapshot.table("other").read().to_pydict() == {"a": [7]}
    assert store.snapshot(version=2).table("t").read(["n"]).num_rows == 2
    assert store.sql("select n from t").to_pydict() == {"n": [1, 2]}
    assert snapshot.table("system.columns").read(["name", "type"]).num_rows > 0
    assert len(store.history()) > 0


def test_commits_go_on_beside_it_and_a_reader_that_knows_the_type_sees_all(store, monkeypatch):
    with store.transaction() as txn:
        txn.append("t", {"n": [3]})
        txn.append("other", {"a": [8]})
        txn.rename_column("t", "warm", "heat")
        with pytest.raises(ColumnUnavailableError):
            txn.append("t", {"n": [4], "heat": [40]})
        with pytest.raises(ColumnUnavailableError):
            txn.update_rows("t", [0], {"heat": [40]})
    store.compact_pages()
    store.checkpoint()
    monkeypatch.setattr(Temperature, "fails", False)

    table = Store(store.object_store).snapshot().table("t")

    assert table.schema.field("heat").type == Temperature()
    assert table.read().to_pydict() == {"n": [1, 2, 3], "heat": [20, 30, None]}
    assert Store(store.object_store).verify(pages="all").ok


def test_the_column_and_its_table_can_be_dropped_and_restored(store):
    with store.transaction() as txn:
        txn.drop_column("t", "warm")
    assert store.snapshot().table("t").read().to_pydict() == {"n": [1, 2]}
    with store.transaction() as txn:
        txn.drop_table("t")
    store.restore(version=3)

    assert store.snapshot().table("t").read(["n"]).to_pydict() == {"n": [1, 2]}


def test_verify_says_which_column_and_finds_no_damage_beside_it(store):
    found = store.verify(pages="all")

    assert [(fault.kind, fault.key) for fault in found.faults] == [("unavailable", "t.warm")]
    assert "wants a unit" in found.faults[0].what


def refuse(*_: object) -> object:
    """Stands for a method of a class that has changed."""
    raise ValueError("this release wants a unit")


CHANGED = {
    "a class that makes what it is stored as": (
        "__arrow_ext_deserialize__",
        classmethod(lambda *_: pa.int64()),
    ),
    "a class that makes another type": ("__arrow_ext_deserialize__", classmethod(lambda *_: pa.uuid())),
    "a class that makes nothing": ("__arrow_ext_deserialize__", classmethod(lambda *_: None)),
    "a class that runs out of memory": ("__arrow_ext_deserialize__", classmethod(lambda *_: bytes(1 << 62))),
    "a hash that raises": ("__hash__", refuse),
    "an equality that raises": ("__eq__", refuse),
    "a type that does not equal itself": ("__eq__", lambda *_: False),
    "a text that raises": ("__str__", refuse),
}


@pytest.mark.parametrize(("method", "changed"), CHANGED.values(), ids=CHANGED)
def test_a_class_that_has_changed_in_any_way_makes_its_column_unavailable(
    store, monkeypatch, method, changed
):
    monkeypatch.setattr(Temperature, "fails", False)
    monkeypatch.setattr(Temperature, method, changed)
    fresh = Store(store.object_store)

    assert fresh.snapshot().table("t").read(["n"]).to_pydict() == {"n": [1, 2]}
    assert "cannot be constructed" in str(fresh.verify())
    with pytest.raises(ColumnUnavailableError, match="'warm' of 't'"):
        fresh.snapshot().table("t").read()
    with fresh.transaction() as txn:
        txn.append("t", {"n": [3]})
        txn.drop_column("t", "warm")
    assert fresh.snapshot().table("t").read().to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize("method", ["__hash__", "__eq__", "__str__"])
def test_no_column_gets_a_type_whose_class_fails(store, monkeypatch, method):
    monkeypatch.setattr(Temperature, "fails", False)
    kind = Temperature()
    monkeypatch.setattr(Temperature, method, refuse)

    with store.transaction() as txn, pytest.raises(InvalidInputError, match=f"Temperature has no {method}"):
        txn.create_table("new", pa.schema([("x", kind)]))
