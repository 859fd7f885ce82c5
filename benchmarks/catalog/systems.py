"""The systems whose catalogs are compared, each with the same few verbs."""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TYPES = ("BIGINT", "DOUBLE", "VARCHAR", "DATE")
"""Columns have these types in turn."""


@dataclass(frozen=True, slots=True)
class CatalogSystem:
    """One system.

    Attributes
    ----------
    name, modules
        Its name, and what it imports.
    make
        Makes so many tables of so many columns in a folder.
    open
        A handle on the folder.
    resolve
        Names of the columns of a table with their types, by the table's name.
    names
        The names of all tables.
    create
        One more table, in a commit of its own; None for what only reads.
    refresh
        Whether a look-up sees what others have committed by then.
    requests
        What opening and resolving ask of storage, where that can be counted.
    """

    name: str
    modules: tuple[str, ...]
    make: Callable[[Path, int, int], None]
    open: Callable[[Path], Any]
    resolve: Callable[[Any, str], list[tuple[str, str]]]
    names: Callable[[Any], list[str]]
    create: Callable[[Any, str, int], Any] | None
    refresh: str
    requests: Callable[[Path, str], int] | None = None


def table_name(number: int) -> str:
    """The name of a table."""
    return f"table_{number:06d}"


def columns_of(count: int) -> list[tuple[str, str]]:
    """Names and types of the columns of a table."""
    return [(f"column_{number:03d}", TYPES[number % len(TYPES)]) for number in range(count)]


def _ddl(name: str, columns: int) -> str:
    told = ", ".join(f"{column} {kind}" for column, kind in columns_of(columns))
    return f"CREATE TABLE {name} ({told})"


# spark-pages


def _arrow_schema(columns: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - each system imports its own

    kinds = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "DATE": pa.date32()}
    return pa.schema([(column, kinds[kind]) for column, kind in columns_of(columns)])


def _make_pages(folder: Path, tables: int, columns: int) -> None:
    import spark_pages as sp  # noqa: PLC0415

    store, schema = sp.create(str(folder)), _arrow_schema(columns)
    for first in range(0, tables, 250):
        with store.transaction("create tables") as txn:
            for number in range(first, min(first + 250, tables)):
                txn.create_table(table_name(number), schema)
    with store.transaction("something small") as txn:  # whoever opens the checkpoint reads its commit too
        txn.set_table_properties(table_name(0), {"small": "yes"})
    store.checkpoint()
    store.close()


def _open_pages(folder: Path) -> Any:
    import spark_pages as sp  # noqa: PLC0415

    return sp.open(str(folder))


def _resolve_pages(store: Any, name: str) -> list[tuple[str, str]]:
    schema = store.snapshot().table(name).schema
    return [(field.name, str(field.type)) for field in schema]


def _create_pages(store: Any, name: str, columns: int) -> None:
    with store.transaction("create table") as txn:
        txn.create_table(name, _arrow_schema(columns))


def _requests_of_pages(folder: Path, name: str) -> int:
    from spark_pages.storage import MeteredStore  # noqa: PLC0415
    from spark_pages.store import Store  # noqa: PLC0415

    meter = MeteredStore(_open_pages(folder).object_store)
    _resolve_pages(Store(meter), name)
    return meter.counts.requests


def _open_snapshot(folder: Path) -> Any:
    return _open_pages(folder).snapshot()


def _resolve_in_snapshot(snapshot: Any, name: str) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in snapshot.table(name).schema]


# DuckDB


def _make_duckdb(folder: Path, tables: int, columns: int) -> None:
    connection = _open_duckdb(folder)
    connection.execute("BEGIN")
    for number in range(tables):
        connection.execute(_ddl(table_name(number), columns))
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT")
    connection.close()


def _open_duckdb(folder: Path) -> Any:
    import duckdb  # noqa: PLC0415

    folder.mkdir(exist_ok=True)
    return duckdb.connect(str(folder / "catalog.duckdb"))


def _resolve_duckdb(connection: Any, name: str) -> list[tuple[str, str]]:
    found = connection.table(name)
    return [(column, str(kind)) for column, kind in zip(found.columns, found.types, strict=True)]


def _names_duckdb(connection: Any) -> list[str]:
    return [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]


# SQLite


def _make_sqlite(folder: Path, tables: int, columns: int) -> None:
    connection = _open_sqlite(folder)
    with connection:
        connection.execute("BEGIN")
        for number in range(tables):
            connection.execute(_ddl(table_name(number), columns))
    connection.close()


def _open_sqlite(folder: Path) -> sqlite3.Connection:
    folder.mkdir(exist_ok=True)
    return sqlite3.connect(folder / "catalog.sqlite", isolation_level=None)


def _resolve_sqlite(connection: sqlite3.Connection, name: str) -> list[tuple[str, str]]:
    return [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({name})")]


def _names_sqlite(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


# pyiceberg on SQLite


def _iceberg_schema(columns: int) -> Any:
    from pyiceberg.schema import Schema  # noqa: PLC0415
    from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType  # noqa: PLC0415

    kinds = {"BIGINT": LongType(), "DOUBLE": DoubleType(), "VARCHAR": StringType(), "DATE": DateType()}
    fields = enumerate(columns_of(columns), 1)
    return Schema(
        *(NestedField(number, name, kinds[kind], required=False) for number, (name, kind) in fields)
    )


def _make_iceberg(folder: Path, tables: int, columns: int) -> None:
    folder.mkdir(exist_ok=True)
    catalog, schema = _open_iceberg(folder), _iceberg_schema(columns)
    catalog.create_namespace("n")
    for number in range(tables):
        catalog.create_table(("n", table_name(number)), schema)


def _open_iceberg(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415

    return SqlCatalog("peer", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")


def _resolve_iceberg(catalog: Any, name: str) -> list[tuple[str, str]]:
    return [(field.name, str(field.field_type)) for field in catalog.load_table(("n", name)).schema().fields]


SYSTEMS = (
    CatalogSystem(
        "spark-pages", ("spark_pages.store",), _make_pages, _open_pages,
        _resolve_pages, lambda store: store.snapshot().tables(), _create_pages, "yes",
        _requests_of_pages,
    ),
    CatalogSystem(
        "spark-pages, one snapshot", ("spark_pages.store",), _make_pages, _open_snapshot,
        _resolve_in_snapshot, lambda snapshot: snapshot.tables(), None, "no",
    ),
    CatalogSystem(
        "DuckDB", ("duckdb",), _make_duckdb, _open_duckdb, _resolve_duckdb, _names_duckdb,
        lambda connection, name, columns: connection.execute(_ddl(name, columns)), "one process",
    ),
    CatalogSystem(
        "SQLite", ("sqlite3",), _make_sqlite, _open_sqlite, _resolve_sqlite, _names_sqlite,
        lambda connection, name, columns: connection.execute(_ddl(name, columns)), "yes",
    ),
    CatalogSystem(
        "pyiceberg, SQL catalog", ("pyiceberg.catalog.sql",), _make_iceberg, _open_iceberg, _resolve_iceberg,
        lambda catalog: [name for _, name in catalog.list_tables("n")],
        lambda catalog, name, columns: catalog.create_table(("n", name), _iceberg_schema(columns)), "yes",
    ),
)  # fmt: skip


def is_there(system: CatalogSystem) -> bool:
    """Whether the system is installed; it is imported from then on."""
    try:
        for module in system.modules:
            importlib.import_module(module)
    except ImportError:
        return False
    return True
