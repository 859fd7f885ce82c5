"""Types that users make: aliases and domains, made of each other, and kept by every write."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.catalog.annotations import with_fact
from spark_pages.catalog.types import new_type, resolve_column
from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConstraintError,
    DamageError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
)
from spark_pages.model.ids import TableId
from spark_pages.model.table import TYPE_KEY, TYPE_NAMES
from spark_pages.store import Store
from tests.invariants import check_table_zero


@pytest.fixture
def typed(store: Store) -> Store:
    """A domain, one made of it, an alias of that, and a table with columns of the last and the first."""
    with store.transaction() as txn:
        txn.create_type("percent", pa.int32(), check="VALUE BETWEEN 0 AND 100")
        txn.create_type("mark", "percent", not_null=True, check="value > 40")
        txn.create_type("grade", "mark")
        txn.create_table("t", pa.schema([sp.typed("g", "grade"), sp.typed("p", "percent"), ("n", pa.int8())]))
        txn.append("t", {"g": [50, 60], "p": [0, None]})
    return store


def test_a_column_is_stored_under_the_type_at_the_bottom_and_keeps_the_name_it_was_given(typed):
    table = typed.snapshot().table("t")

    assert table.schema == pa.schema(
        [pa.field("g", pa.int32(), nullable=False), ("p", pa.int32()), ("n", pa.int8())]
    )
    columns = typed.snapshot().table("system.columns").read(["name", "alias"], filter="\"table\" = 't'")
    assert columns["alias"].to_pylist() == ["grade", "percent", None]
    raw = typed.snapshot().table("system.catalog").read(["metadata"], filter="name = 'g'")
    assert raw["metadata"].to_pylist() == ['{"alias": "grade", "type": "int32"}']
    check_table_zero(typed)


def test_types_are_listed_with_all_rules_that_hold(typed):
    found = {each.name: each for each in typed.snapshot().types()}

    assert {name: (each.base, each.value_type, each.not_null) for name, each in found.items()} == {
        "percent": ("int32", pa.int32(), False),
        "mark": ("percent", pa.int32(), True),
        "grade": ("mark", pa.int32(), True),
    }
    assert [check.sql for check in found["grade"].checks] == ["VALUE BETWEEN 0 AND 100", "value > 40"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"g": [101]}, "type 'percent' of column 'g': VALUE BETWEEN 0 AND 100"),
        ({"g": [50, 40]}, "type 'mark' of column 'g'.*number 1"),
        ({"g": [50], "p": [-1]}, "type 'percent' of column 'p'"),
    ],
)
def test_values_that_break_a_rule_are_not_appended(typed, values, message):
    txn = typed.transaction()
    with pytest.raises(ConstraintError, match=message):
        txn.append("t", {name: pa.array(each, pa.int32()) for name, each in values.items()})

    txn.append("t", {"g": [41]})
    txn.commit()
    assert typed.snapshot().table("t").read()["g"].to_pylist() == [50, 60, 41]


def test_a_type_that_is_never_null_is_not_null_whatever_the_column_says(typed):
    with pytest.raises(SchemaMismatchError, match="not nullable"):
        typed.transaction().append("t", {"g": [None]})
    with pytest.raises(InvalidInputError, match="'grade', which is never null"):
        typed.transaction().set_nullable("t", "g", True)


def test_a_column_may_be_not_null_where_its_type_does_not_say_so(store):
    with store.transaction() as txn:
        txn.create_type("share", pa.int32())
        txn.create_table("t", pa.schema([sp.typed("p", "share", nullable=False)]))
    store.sql("CREATE TABLE u (p share NOT NULL, q Share)")

    assert store.snapshot().table("t").schema == pa.schema([pa.field("p", pa.int32(), nullable=False)])
    assert [each.nullable for each in store.snapshot().table("u").schema] == [False, True]
    with pytest.raises(SchemaMismatchError, match="not nullable"):
        store.transaction().append("t", {"p": pa.array([None], pa.int32())})


def test_updates_and_new_columns_keep_the_rules(typed):
    with pytest.raises(ConstraintError, match="'mark'"), typed.transaction() as txn:
        txn.update_rows("t", [0], {"g": [12]})
    with pytest.raises(ConstraintError, match="'percent'"):
        typed.transaction().add_column("t", sp.typed("q", "percent"), default=101)
    with typed.transaction() as txn:
        txn.update_rows("t", [0, 1], {"p": [None, 100]})
        txn.add_column("t", sp.typed("q", "percent"), default=100)

    assert typed.snapshot().table("t").read()["q"].to_pylist() == [100, 100]
    assert typed.snapshot().table("t").read()["p"].to_pylist() == [None, 100]


def test_rules_outlive_renames_and_reach_other_processes(typed):
    with typed.transaction() as txn:
        txn.rename_column("t", "p", "share")
        txn.rename_table("t", "u")
    typed.checkpoint()

    with pytest.raises(ConstraintError, match="column 'share'"):
        Store(typed.object_store).transaction().append("u", {"g": [50], "share": [200]})


def test_a_type_in_use_stays_and_one_that_nobody_uses_goes(typed):
    for name in ("grade", "mark", "percent"):
        with pytest.raises(InvalidInputError, match=f"Cannot drop type '{name}'"):
            typed.transaction().drop_type(name)

    with typed.transaction() as txn:
        txn.drop_column("t", "g")
        txn.drop_type("grade")
        txn.drop_type("mark")

    assert [each.name for each in typed.snapshot().types()] == ["percent"]
    check_table_zero(typed)


def test_a_table_does_not_come_back_when_its_type_is_gone(typed):
    with typed.transaction() as txn:
        txn.drop_table("t")
        txn.drop_type("grade")

    with pytest.raises(InvalidInputError, match="'grade', which is gone"):
        typed.transaction().undrop_table("t")


@pytest.mark.parametrize("first", ["the table", "the drop"])
def test_a_type_is_not_dropped_while_a_table_of_it_is_made(typed, first):
    with typed.transaction() as txn:
        txn.create_type("lonely", pa.int8())
    making, dropping = typed.transaction(), Store(typed.object_store).transaction()
    making.create_table("u", pa.schema([sp.typed("a", "lonely")]))
    dropping.drop_type("lonely")
    one, two = (making, dropping) if first == "the table" else (dropping, making)

    one.commit()

    with pytest.raises(CommitConflictError, match="type 'lonely'"):
        two.commit()


def test_what_cannot_be_a_type_is_refused(typed):
    txn = typed.transaction()
    with pytest.raises(AlreadyExistsError):
        txn.create_type("mark", pa.int8())
    with pytest.raises(NotFoundError, match="of type 'nothing': there is no such type"):
        txn.create_type("a", "nothing")
    with pytest.raises(NotFoundError, match="of type 'nothing': there is no such type"):
        txn.create_table("u", pa.schema([sp.typed("a", "nothing")]))
    with pytest.raises(InvalidInputError, match="from itself"):
        txn.create_type("a", "a")
    with pytest.raises(InvalidInputError, match="must evaluate to bool"):
        txn.create_type("a", pa.int8(), check="VALUE + 1")
    with pytest.raises(InvalidInputError, match="about no column"):
        txn.create_type("a", pa.int8(), check="1 = 1")
    with pytest.raises(InvalidInputError, match=r"named type .*, which is fixed"):
        txn.widen_column("t", "p", pa.int64())


def test_types_in_a_circle_are_refused():
    one = new_type(TableId(5), "one", pa.int8(), NoNames(), False, None, 0)
    field = one.schema.field(0)
    circle = {
        "one": replace(one, schema=pa.schema([with_fact(field, TYPE_KEY, "two")])),
        "two": replace(one, name="two", schema=pa.schema([with_fact(field, TYPE_KEY, "one")])),
    }

    with pytest.raises(DamageError, match="in a circle: one → two → one"):
        resolve_column(sp.typed("a", "one"), NoNames(circle))


class NoNames:
    """Names of types, and of nothing else."""

    def __init__(self, types=None):
        self.types = types or {}

    def table(self, name):
        return self.types.get(name[1]) if name[0] == TYPE_NAMES else None
