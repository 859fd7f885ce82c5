"""Public values are deeply immutable: no caller can change what another one is answered."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.model.chain import ColumnChain
from spark_pages.model.immutable import FrozenDict
from spark_pages.model.run import PageRun
from spark_pages.runtime import Runtime
from spark_pages.service.metadata import MetadataService


@pytest.fixture(scope="module")
def store() -> sp.Store:
    """Two tables, a namespace, a type, a constraint, a tag, pages in a checkpoint and pages after it."""
    made = sp.create(f"memory://{uuid4().hex}", properties={"owner": "etl"})
    rows = pa.table({"n": range(5_000), "s": [str(n) for n in range(5_000)]})
    with made.transaction() as txn:
        txn.create_namespace("sales", {"page_bytes": "8192"})
        txn.create_type("money", pa.int64())
        txn.create_table("t", rows.schema, properties={"a": "b"})
        txn.create_table("sales.orders", pa.schema([sp.typed("m", "money")]))
        txn.append("t", rows)
    made.checkpoint()
    made.tag("first")
    with made.transaction() as txn:
        txn.append("t", rows)
        txn.add_constraint("t", "positive", check="n >= 0")
    return made


def service(store: sp.Store) -> MetadataService:
    return MetadataService(store.object_store, Runtime())


STORE: dict[str, Callable[[sp.Store], Any]] = {
    "tags": lambda s: s.tags(),
    "leases": lambda s: s.leases(),
    "blame": lambda s: s.blame("t", "n", 0),
    "verify": lambda s: s.verify(),
    "plan of a vacuum": lambda s: s.vacuum_plan(),
    "plan of a repair": lambda s: s.repair_plan(),
    "namespaces": lambda s: s.snapshot().namespaces(),
    "types": lambda s: s.snapshot().types(),
    "tables": lambda s: s.snapshot().tables(),
    "definition": lambda s: s.snapshot().table("t").definition,
    "columns": lambda s: s.snapshot().table("t").columns,
    "field ids": lambda s: s.snapshot().table("t").definition.field_ids,
    "aggregate": lambda s: s.snapshot().table("t").aggregate("n"),
    "latest": lambda s: s.snapshot().table("t").directory.latest("n"),
    "row": lambda s: s.snapshot().table("t").directory.locate_row("n", 7),
    "rows": lambda s: s.snapshot().table("t").directory.locate_rows("n", [7, 4_000, 1]),
    "no rows": lambda s: s.snapshot().table("t").directory.locate_rows("n", []),
    "range": lambda s: s.snapshot().table("t").directory.locate_range("n", 7, 4_000),
    "pages of a range": lambda s: s.snapshot().table("t").directory.range("n", 7, 4_000),
    "chain": lambda s: s.snapshot().table("t").directory.chain("n"),
    "state": lambda s: s.snapshot().log.state,
}
SERVICE: dict[str, Callable[[MetadataService], Any]] = {
    "moment": lambda s: s.version_info(),
    "tables": lambda s: s.tables(),
    "objects": lambda s: s.namespaces_and_types(),
    "snapshot": lambda s: s.get_table_meta_snapshot("default", "t"),
    "changes": lambda s: s.collect_table_meta_changes_in_range("default", "t", 0),
    "older snapshot": lambda s: s.get_table_meta_snapshot("default", "t", 1),
}


def changeable(value: Any, path: str, seen: set[int]) -> Iterator[str]:
    """Paths to what somebody could change inside of a value."""
    if id(value) in seen or isinstance(
        value, str | bytes | int | float | None | type | pa.DataType | pa.Schema
    ):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield from [f"{path} is an array that can be written to"] * value.flags.writeable
    elif isinstance(value, Mapping):
        if not isinstance(value, FrozenDict):
            yield f"{path} is a mapping that can be changed"
        for key, each in value.items():
            yield from changeable(each, f"{path}[{key!r}]", seen)
    elif isinstance(value, tuple | frozenset):
        for index, each in enumerate(value):
            yield from changeable(each, f"{path}[{index}]", seen)
    elif isinstance(value, list | set | bytearray):
        yield f"{path} is a {type(value).__name__}"
    elif isinstance(value, ColumnChain | PageRun):
        for name in ("pieces",) if isinstance(value, ColumnChain) else ("page_ids", "prefix_entries"):
            yield from changeable(getattr(value, name), f"{path}.{name}", seen)
    elif dataclasses.is_dataclass(value):
        if not value.__dataclass_params__.frozen:
            yield f"{path} is a {type(value).__name__}, which is not frozen"
        for name in (each.name for each in dataclasses.fields(value) if not each.name.startswith("_")):
            yield from changeable(getattr(value, name), f"{path}.{name}", seen)


def inside(value: Any) -> list[str]:
    """What could be changed; a list or dict that is made for each caller may be, but not what is in it."""
    if isinstance(value, list):
        return [what for each in value for what in changeable(each, "[…]", set())]
    if type(value) is dict:
        return [what for each in value.values() for what in changeable(each, "[…]", set())]
    return [*changeable(value, "it", set())]


@pytest.mark.parametrize("call", STORE.values(), ids=STORE)
def test_what_a_store_gives_cannot_be_changed(store, call):
    assert inside(call(store)) == []


@pytest.mark.parametrize("call", SERVICE.values(), ids=SERVICE)
def test_what_the_service_gives_cannot_be_changed_for_others(store, call):
    served = service(store)
    first, second = call(served), call(served)

    assert inside(first) == []
    assert not isinstance(first, list | dict) or first is not second


def test_one_caller_cannot_change_the_redo_of_all(store):
    served = service(store)
    answer = served.get_table_meta_snapshot("default", "t")
    before = dict(answer.redo)

    for change in (
        lambda redo: redo.__setitem__(1, ()),
        lambda redo: redo.pop(1),
        lambda redo: redo.update({1: ()}),
        lambda redo: redo.clear(),
        lambda redo: redo.setdefault(99, ()),
        lambda redo: redo.__delitem__(1),
        lambda redo: redo.__ior__({1: ()}),
        lambda redo: redo.popitem(),
    ):
        with pytest.raises(TypeError, match="read-only"):
            change(answer.redo)

    assert served.get_table_meta_snapshot("default", "t").redo == before


def test_a_frozen_dict_is_pickled_copied_and_compared_as_a_dict_is():
    frozen = FrozenDict({"a": 1})

    again = pickle.loads(pickle.dumps(frozen))  # noqa: S301 - of this very test

    assert again == frozen == {"a": 1}
    assert type(again) is FrozenDict
    assert {**frozen, "b": 2} == {"a": 1, "b": 2}
    assert frozen | {"b": 2} == {"a": 1, "b": 2}
