"""Every public callable with arguments by which it works, found by inspecting classes and signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

import spark_pages as sp
from spark_pages import spark
from spark_pages.errors import CommitUnknownError, InternalError, SparkPagesError
from spark_pages.io import PageHandler
from spark_pages.log.lease import ReaderLease
from spark_pages.log.vacuum.plan import VacuumPlan
from spark_pages.maintenance.repair import RepairPlan
from spark_pages.model.actions import Claim
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.row_ranges import RowRanges
from spark_pages.service.extents import NamedBytes
from spark_pages.service.metadata import MetadataService
from spark_pages.service.remote_store import RemoteSnapshot, StoreClient
from spark_pages.service.responses import PieceName
from spark_pages.service.serving import Serving
from spark_pages.service.settings import ServiceSettings
from spark_pages.service.tokens import TokenVerifier
from spark_pages.spark.external import External
from spark_pages.spark.options import WriteOptions
from spark_pages.storage import open_object_store
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.remote import RemoteStore
from spark_pages.transaction.registration import StagedDirectory

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}


def report_of(store: sp.Store) -> sp.ErasureReport:
    """Report of an erase of nothing."""
    table = store.snapshot().table("t").definition.table_id
    return sp.ErasureReport(store._log.refresh().state.store_id, "t", table, (), 1, 1, ())


@dataclass(frozen=True)
class World:
    """A store with a table, and a service on it."""

    store: sp.Store
    served: StoreClient
    service: MetadataService
    url: str
    folder: Path
    own: dict[str, sp.Store] = field(default_factory=dict)

    @classmethod
    def open(cls) -> Iterator[World]:
        store = new_store()
        with TemporaryDirectory() as folder, Serving(store.object_store, ServiceSettings(), None) as serving:
            url = f"grpc://127.0.0.1:{serving.port}"
            with closing(sp.connect(url)) as served:
                fill(sp.create(f"{folder}/store", properties=QUIET))
                pq.write_table(pa.table({"n": [4], "s": ["d"]}), f"{folder}/rows.parquet")
                yield cls(store, served, serving.metadata, url, Path(folder))

    def own_store(self, name: str) -> sp.Store:
        """The store of one callable, which nothing else is called on."""
        if name not in self.own:
            self.own[name] = new_store()
        return self.own[name]

    def receiver(self, kind: type) -> Any:
        """An object to call a method of; a new one where calls change it."""
        table = self.store.snapshot().table("t")
        makers: Mapping[type, Callable[[], Any]] = {
            sp.Store: lambda: self.store,
            sp.Snapshot: self.store.snapshot,
            sp.Table: lambda: table,
            sp.PageDirectory: lambda: table.directory,
            sp.Transaction: self.store.transaction,
            StagedDirectory: lambda: self.store.transaction().directory("t"),
            ReaderLease: lambda: ReaderLease(self.store.snapshot(), "x", lambda _: None, lambda: 0),
            StoreClient: lambda: self.served,
            RemoteSnapshot: self.served.snapshot,
            MetadataService: lambda: self.service,
            VacuumPlan: self.store.vacuum_plan,
            RepairPlan: self.store.repair_plan,
            TokenVerifier: lambda: TokenVerifier([b"x" * 32], "HS256", "a"),
            sp.ReadTrace: sp.ReadTrace,
            PageHandler: lambda: table.page_handler,
            DurableLocalStore: lambda: with_object(open_object_store(f"{self.folder}/objects")),
            RemoteStore: lambda: with_object(open_object_store("memory://objects")),
        }
        return makers[kind]()


def with_object(objects: Any) -> Any:
    """The object store with an object that calls name."""
    objects.put("x/y", b"abc")
    return objects


def new_store() -> sp.Store:
    return fill(sp.create(f"memory://{uuid4().hex}", properties=QUIET))


def fill(store: sp.Store) -> sp.Store:
    """The store with what the calls name."""
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", pa.table({"n": [1, 2, 3], "s": ["a", "b", None]}, SCHEMA))
        txn.create_type("a_type", pa.int64())
        txn.create_namespace("a_namespace")
        txn.create_table("other", pa.schema([("m", pa.int64())]))
        txn.add_constraint("other", "a_constraint", check="m > 0")
        txn.create_table("dropped", SCHEMA)
    with store.transaction() as txn:
        txn.drop_table("dropped")
    store.tag("a_tag", 1)
    return store


RECEIVERS = (
    sp.Store, sp.Snapshot, sp.Table, sp.PageDirectory, sp.Transaction, StagedDirectory, ReaderLease,
    StoreClient, RemoteSnapshot, MetadataService, VacuumPlan, RepairPlan, TokenVerifier, sp.ReadTrace,
    PageHandler, DurableLocalStore, RemoteStore,
)  # fmt: skip
FUNCTIONS = (
    sp.create, sp.open, sp.connect, sp.typed, sp.expr,
    sp.CacheConfig, sp.PendingPage, sp.PageStats, ServiceSettings,
    MetadataService, TokenVerifier, spark.compact_pages, spark.export, spark.ingest, spark.publish_delta,
    spark.reconstruct_snapshot, spark.submit, External, WriteOptions,
    sp.ErasureReport.from_json,
)  # fmt: skip
NEEDS_JVM = {
    spark.session: "starts a JVM whenever its arguments are right; wrong ones have a test of their own",
    spark.delete_rows: "joins frames of a session: `tests/spark/test_delete_rows.py`",
}
"""Public functions that are not called here, by the reason."""

NOT_CALLED = {
    **dict.fromkeys(
        (
            "ChainTail", "ColumnChain", "FlatColumn", "FrozenDict", "LazyPage", "LogSnapshot", "PageOptions",
            "PageRun", "PageSelection", "RowRanges", "TableView",
        ),
        "immutable values of the engine; hot loops call their methods, which validate nothing",
    ),
    **dict.fromkeys(
        ("Batches", "ErasePlan", "RowClaim", "StoreInfo", "Verification"), "its methods take no arguments"
    ),
    "ErasureReport": "reads itself from text: `tests/maintenance/erase/test_erase.py`",
    "Expr": "`Transaction.update` computes it, after it has validated what it passes",
    "RowReader": "reads for the engine, whose callers have validated what they pass",
    "TableScanner": "has the methods of a scanner of pyarrow: `tests/query/test_dataset.py`",
    "ObjectStore": "a protocol: those of a folder and of a bucket are called",
}  # fmt: skip
"""Classes that public objects hand out, and whose methods are not called here, by the reason."""

LEFT_OUT = {"StoreClient.close", "PageHandler.may_contain"}
"""What ends its receiver, and has no arguments; what takes hashes that the library alone makes."""

CHANGES_THE_PAST = {"Store.restore", "Store.vacuum", "Store.delete_tag"}
"""What other calls would notice."""

GIVEN: dict[str, Any] = {
    "actual_len": 4096,
    "algorithm": "HS256",
    "alloc_len": 4096,
    "at_once": lambda _: map,
    "audience": "a",
    "base": pa.int64(),
    "check": "n > 0",
    "claim": Claim(TableId(1), FieldId(1), 0, 1, "me", 1, 0),
    "column": "n",
    "store_id": "b" * 32,
    "columns": ["n"],
    "commit_time_upper_bound": "9999-01-01",
    "comment": "x",
    "data": {"n": [4], "s": ["d"]},
    "db": "default",
    "definition": lambda world: world.store.snapshot().table("t").definition,
    "disk_path": "pages/x",
    "duration": timedelta(days=1),
    "a": 1,
    "b": 1,
    "end": 1,
    "entry_count": 1,
    "error": CommitUnknownError("?"),
    "field_id": 1,
    "filter": "n > 1",
    "first_row": 0,
    "from_": 1,
    "header": "Bearer x",
    "key": lambda world: world.store.snapshot().table("t").directory.key("n"),
    "keys": [b"x" * 32],
    "report": lambda world: report_of(world.store),
    "l": 0,
    "l_bound": 0,
    "missing": sp.SparkPagesError("?"),
    "n": 1,
    "name": "new",
    "nullable": True,
    "null_count": 0,
    "object_store": lambda world: world.store.object_store,
    "offset": 0,
    "on_read": lambda _: None,
    "open_again": lambda _: None,
    "options": WriteOptions("t"),
    "other": sp.ReadTrace(),
    "owner": "me",
    "page": lambda world: world.store.snapshot().table("t").directory.latest("n"),
    "page_id": 1,
    "path": "pages/x",
    "paths": ["pages/x"],
    "positions": [0],
    "prefix": "x/",
    "pages": [],
    "properties": {"x": "y"},
    "r": 1,
    "r_bound": 1,
    "ranges": RowRanges.of(0, 1),
    "removed": [],
    "row": 0,
    "run": lambda world: world.store.snapshot().table("t").directory.chain("n").all_pages(),
    "runs": [],
    "rows": [0],
    "schema": SCHEMA,
    "ss": 1,
    "start": 0,
    "source": lambda world: External("parquet", f"{world.folder}/rows.parquet", {}),
    "stop": 1,
    "table": "t",
    "table_id": 1,
    "target": lambda world: External("parquet", f"{world.folder}/{uuid4().hex}", {}),
    "text": "SELECT 1 AS a",
    "type": pa.int64(),
    "type_name": "a_type",
    "url": "memory://nothing",
    "values": [5],
    "version": 1,
    "wanted": NamedBytes("pages/x", ((0, 1),), (PieceName(1, "x", "", -1, 0),)),
    "written": [],
}
"""By the name of a parameter."""

_OBJECT = {"key": "x/y", "data": b"abc", "ranges": [(0, 1)], "length": 1, "before_us": 0}
"""By the name of a parameter, of object stores."""

_PIECE = {"name": PieceName(1, "x", "", -1, 0)}

GIVEN_TO: dict[str, dict[str, Any]] = {
    "External": {"format": "parquet", "path": "rows.parquet", "options": {}},
    **{
        f"{kind}.{name}": {each: _OBJECT[each] for each in needed}
        for kind in ("DurableLocalStore", "RemoteStore")
        for name, needed in {
            "create": ("key", "data"),
            "put": ("key", "data"),
            "get": ("key",),
            "size": ("key",),
            "get_range": ("key", "length"),
            "get_ranges": ("key", "ranges"),
            "delete": ("key",),
            "local_path": ("key",),
            "sweep_temporaries": ("before_us",),
        }.items()
    },
    "MetadataService.part": _PIECE,
    "MetadataService.piece": _PIECE,
    "MetadataService.stats": _PIECE,
    "StagedDirectory.update_latest_entry_count": {"place_and_count": ("n", 1)},
    "Snapshot.table": {"name": "t"},
    "RemoteSnapshot.table": {"name": "t"},
    "Transaction.table": {"name": "t"},
    "Transaction.add_column": {"column": pa.field("new", pa.int64())},
    "Transaction.undrop_table": {"table": "dropped"},
    "Transaction.drop_type": {"name": "a_type"},
    "Transaction.drop_namespace": {"name": "a_namespace"},
    "Transaction.set_namespace_properties": {"name": "a_namespace"},
    "Transaction.drop_constraint": {"table": "other", "name": "a_constraint"},
    "Transaction.add_constraint": {"check": "n > 0"},
    "Transaction.update": {"assignments": {"n": 1}, "where": True},
    "Transaction.update_rows": {"values": {"n": [1]}},
    "Store.restore": {"version": 2},
    "Store.delete_tag": {"name": "a_tag"},
    "compact_pages": {"spark": None, "url": lambda world: f"{world.folder}/store"},
    "export": {"spark": None, "url": lambda world: f"{world.folder}/store", "dry_run": True},
    "ingest": {"spark": None, "url": lambda world: f"{world.folder}/store", "dry_run": True},
    "publish_delta": {"url": lambda world: f"{world.folder}/store"},
    "reconstruct_snapshot": {"spark": None, "url": lambda world: f"{world.folder}/store", "dry_run": True},
    "submit": {"job": "nothing", "arguments": []},
    "connect": {"url": lambda world: world.url},
    "create": {"url": lambda _: f"memory://{uuid4().hex}"},
    "open": {"url": "memory://nothing"},
}
"""By the name of a callable, where another argument is needed."""


@dataclass(frozen=True)
class Call:
    """A public callable."""

    name: str
    act: Callable[..., Any]
    kind: type | None = None

    def arguments(self, world: World) -> dict[str, Any]:
        """Those that it needs."""
        own = GIVEN_TO.get(self.name, {})
        needed = [
            each.name
            for each in self.parameters
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        given = {name: own[name] if name in own else GIVEN[name] for name in {**dict.fromkeys(needed), **own}}
        of_world = [name for name, each in given.items() if inspect.isfunction(each) and name not in CALLED]
        return {**given, **{name: given[name](world) for name in of_world}}

    @property
    def parameters(self) -> list[inspect.Parameter]:
        found = list(inspect.signature(self.act).parameters.values())
        return found[1:] if self.kind is not None else found

    def wrong(self, world: World, parameter: inspect.Parameter, value: Any) -> dict[str, Any]:
        """The same with one of another kind; of several in one parameter the last."""
        many = parameter.kind is parameter.VAR_POSITIONAL
        given = self.arguments(world)
        return {**given, parameter.name: (*given[parameter.name][:-1], value) if many else value}

    def __call__(self, world: World, arguments: Mapping[str, Any]) -> Any:
        return self.made(world, dict(arguments))

    def made(self, world: World, arguments: dict[str, Any]) -> Any:
        receiver: tuple[Any, ...] = ()
        if self.kind is not None:
            own = self.name in CHANGES_THE_PAST
            receiver = (world.own_store(self.name) if own else world.receiver(self.kind),)
        many = [each.name for each in self.parameters if each.kind is each.VAR_POSITIONAL]
        places = [value for name in many if name in arguments for value in arguments.pop(name)]
        found = self.act(*receiver, *places, **arguments)
        return found.read_all() if isinstance(found, pa.RecordBatchReader) else found


CALLED = ("on_read", "open_again")


def public_calls() -> list[Call]:
    """All of them."""
    found = [Call(each.__name__, each) for each in FUNCTIONS]
    for kind in RECEIVERS:
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if name.startswith("_") or isinstance(member, property | cached_property) or not callable(member):
                continue
            if f"{kind.__name__}.{name}" not in LEFT_OUT:
                found.append(Call(f"{kind.__name__}.{name}", getattr(kind, name), kind))
    return found


def foreign_outcome(call: Call, world: World, arguments: Mapping[str, Any]) -> str | None:
    """The exception of a call, where it is not one that may leave the public API."""
    try:
        call(world, arguments)
    except InternalError as error:
        return str(error)
    except SparkPagesError:
        return None
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:200]}"
    return None
