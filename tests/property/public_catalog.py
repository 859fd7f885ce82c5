"""Changes of tables, columns, namespaces and types; each is undone by the rule that makes it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from spark_pages.errors import InvalidInputError, SparkPagesError
from tests.property.public_model import PublicModel, as_table


class CatalogChanges(PublicModel):
    """What is renamed, ordered, described and constrained holds the same rows."""

    def altered(self, version: int | None, name: str, halfway: bool = False) -> None:
        """A version that changes a table and none of its rows."""
        assert version is not None
        self.landed(version, self.now, {name})
        self.changed()
        if halfway:
            self.halfway.add(version)

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def columns_get_other_names_and_places(self, second: bool, data: st.DataObject) -> None:
        name, store = self.a_table(data), self.handle(second)
        with store.transaction() as txn:
            txn.rename_column(name, "n", "m")
            txn.reorder_columns(name, ["s", "m"])
        self.altered(txn.version, name, halfway=True)
        table = self.handle(not second).snapshot().table(name)
        assert table.columns == ["s", "m"]
        assert [(n, s) for s, n in zip(*table.read().to_pydict().values(), strict=True)] == self.now[name]
        with store.transaction() as txn:
            txn.reorder_columns(name, ["m", "s"])
            txn.rename_column(name, "m", "n")
        self.altered(txn.version, name)

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), text=st.text("xyz", min_size=1, max_size=4))
    def tables_and_columns_are_described(self, second: bool, data: st.DataObject, text: str) -> None:
        name, store = self.a_table(data), self.handle(second)
        with store.transaction() as txn:
            txn.set_comment(name, text)
            txn.set_column_properties(name, "n", {"unit": text})
            txn.set_table_properties(name, {"owner": text})
            txn.set_properties({"whose": text})
        self.altered(txn.version, name)
        found = self.handle(not second).snapshot()
        assert found.log.state.properties["whose"] == text
        assert found.table(name).definition.properties["owner"] == text
        assert text in found.table("system.tables").read(["comment"])["comment"].to_pylist()
        with store.transaction() as txn:
            txn.set_comment(name, None)
            txn.set_column_properties(name, "n", {"unit": None})
            txn.set_table_properties(name, {"owner": None})
        self.altered(txn.version, name)

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def rules_hold_until_they_are_dropped(self, second: bool, data: st.DataObject) -> None:
        name, store = self.a_table(data), self.handle(second)
        with store.transaction() as txn:
            txn.add_constraint(name, "small", check="n < 1000000")
        self.altered(txn.version, name, halfway=True)
        with pytest.raises(SparkPagesError, match="small"), self.handle(not second).transaction() as txn:
            txn.append(name, as_table([(1_000_001, "x")]))
        with store.transaction() as txn:
            txn.drop_constraint(name, "small")
        self.altered(txn.version, name)

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def a_column_may_be_null_or_not(self, second: bool, data: st.DataObject) -> None:
        name, store = self.a_table(data), self.handle(second)
        if any(n is None for n, _ in self.now[name]):
            with pytest.raises(SparkPagesError), store.transaction() as txn:
                txn.set_nullable(name, "n", False)
            return
        with store.transaction() as txn:
            txn.set_nullable(name, "n", False)
        self.altered(txn.version, name, halfway=True)
        with pytest.raises(SparkPagesError), self.handle(not second).transaction() as txn:
            txn.append(name, as_table([(None, "x")]))
        with store.transaction() as txn:
            txn.set_nullable(name, "n", True)
        self.altered(txn.version, name)

    @rule(second=st.booleans(), values=st.lists(st.integers(-9, 9), min_size=1, max_size=4))
    def a_namespace_with_a_type_and_a_table_comes_and_goes(self, second: bool, values: list[int]) -> None:
        store, other = self.handle(second), self.handle(not second)
        with store.transaction() as txn:
            txn.create_namespace("space")
            txn.set_namespace_properties("space", {"whose": "mine"})
            txn.create_type("small_number", pa.int16())
            txn.create_table("space.narrow", pa.schema([("v", pa.int8())]))
            txn.append("space.narrow", {"v": pa.array(values, pa.int8())})
            txn.widen_column("space.narrow", "v", pa.int32())
        self.altered(txn.version, "space.narrow", halfway=True)
        found = other.snapshot()
        assert found.namespaces()[-1].properties["whose"] == "mine"
        assert [each.name for each in found.types()] == ["small_number"]
        assert found.table("space.narrow").read()["v"] == pa.chunked_array([pa.array(values, pa.int32())])
        with pytest.raises(InvalidInputError), other.transaction() as txn:
            txn.drop_namespace("space")
        with store.transaction() as txn:
            txn.drop_table("space.narrow")
            txn.drop_namespace("space")
            txn.drop_type("small_number")
        self.altered(txn.version, "space.narrow")
