# ruff: noqa: PLC0415 - a system that is not installed must not keep the others from being measured
"""Other systems behind one small face, each doing the same work with what it calls an entry.

An entry is one data file (delta-rs, Iceberg), one fragment (Lance), one chunk reference (Icechunk) or one
page descriptor (here). It stands for 8,192 rows; to locate is to find the entry that holds a row. The files
that entries name are not there, for no system: what is measured is metadata.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import spark_pages as sp
from benchmarks.log.synthetic import Shape, make_store

ENTRIES = 8192
INSTALL = "pip install -r benchmarks/requirements.txt"
_BATCH = 100_000
_CHAINS = 50


class Peer(Protocol):
    """What is asked of each system; `folder` is where it keeps its one table or array."""

    name: str
    durable: bool
    modules: tuple[str, ...]

    def make(self, folder: Path, entries: int) -> None:
        """Store that many entries, in a checkpoint where there is such a thing."""
        ...

    def open(self, folder: Path) -> Any:
        """Be ready to commit."""
        ...

    def commit(self, handle: Any, number: int) -> Any:
        """Commit one more entry; gives the handle to go on with."""
        ...

    def locate(self, folder: Path, row: int) -> object:
        """Open from nothing and find the entry that holds the row."""
        ...


def missing(peer: Peer) -> str:
    """Why it cannot be measured here, with the line that helps; empty if it can."""
    for module in peer.modules:
        try:
            importlib.import_module(module)
        except ImportError:
            return f"{peer.name} is not installed: {INSTALL}"
    return ""


@dataclass
class SparkPages:
    """This project: a page of one row is appended, and the commit is synced."""

    name: str = "spark-pages"
    durable: bool = True
    modules: tuple[str, ...] = ("spark_pages.store",)

    def make(self, folder: Path, entries: int) -> None:
        """See `Peer.make`."""
        make_store(str(folder), Shape(entries, tables=1, columns=1))

    def open(self, folder: Path) -> Any:
        """See `Peer.open`."""
        return sp.open(str(folder))

    def commit(self, handle: Any, number: int) -> Any:  # noqa: ARG002 - rows need no number
        """See `Peer.commit`."""
        with handle.transaction("append") as txn:
            txn.append("small", pa.table({"a": [1]}))
        return handle

    def locate(self, folder: Path, row: int) -> object:
        """See `Peer.locate`."""
        table = sp.open(str(folder)).snapshot().table("t000000")
        return table.directory.locate_row("c000", row).page.page_id


@dataclass
class DeltaRs:
    """`deltalake`: add actions with statistics of the row number, and a checkpoint."""

    name: str = "delta-rs"
    durable: bool = False
    modules: tuple[str, ...] = ("deltalake", "deltalake.transaction")

    @staticmethod
    def _action(number: int) -> Any:
        from deltalake.transaction import AddAction

        first = number * ENTRIES
        bounds = {"minValues": {"r": first}, "maxValues": {"r": first + ENTRIES - 1}, "nullCount": {"r": 0}}
        stats = json.dumps({"numRecords": ENTRIES, **bounds})
        return AddAction(f"part-{number:012d}.parquet", 1 << 20, {}, 1_700_000_000_000, True, stats)

    @staticmethod
    def _schema() -> Any:
        from deltalake import Schema

        return Schema.from_arrow(pa.schema([("r", pa.int64())]))

    def make(self, folder: Path, entries: int) -> None:
        """See `Peer.make`."""
        from deltalake import DeltaTable
        from deltalake.transaction import create_table_with_add_actions

        create_table_with_add_actions(str(folder), self._schema(), [])
        for first in range(0, entries, _BATCH):
            actions = [self._action(number) for number in range(first, min(first + _BATCH, entries))]
            DeltaTable(str(folder)).create_write_transaction(actions, "append", self._schema())
        DeltaTable(str(folder)).create_checkpoint()

    def open(self, folder: Path) -> Any:
        """See `Peer.open`."""
        from deltalake import DeltaTable

        return DeltaTable(str(folder))

    def commit(self, handle: Any, number: int) -> Any:
        """See `Peer.commit`."""
        handle.create_write_transaction([self._action(number)], "append", self._schema())
        return handle

    def locate(self, folder: Path, row: int) -> object:
        """See `Peer.locate`."""
        from deltalake import DeltaTable

        actions = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True))
        first = actions.column("min.r").to_numpy()
        order = np.argsort(first)
        found = order[np.searchsorted(first[order], row, side="right") - 1]
        return actions.column("path")[int(found)].as_py()


@dataclass
class PyIceberg:
    """`pyiceberg` with a catalog in SQLite: data files with bounds of the row number."""

    name: str = "pyiceberg"
    durable: bool = False
    modules: tuple[str, ...] = ("sqlalchemy", "pyiceberg.catalog.sql", "pyiceberg.expressions")

    @staticmethod
    def _catalog(folder: Path) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir(parents=True, exist_ok=True)
        return SqlCatalog(
            "bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )

    @staticmethod
    def _file(table: Any, number: int) -> Any:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        first = number * ENTRIES
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/part-{number:012d}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=ENTRIES,
            file_size_in_bytes=1 << 20,
            column_sizes={1: 1 << 20},
            value_counts={1: ENTRIES},
            null_value_counts={1: 0},
            nan_value_counts={},
            lower_bounds={1: first.to_bytes(8, "little")},
            upper_bounds={1: (first + ENTRIES - 1).to_bytes(8, "little")},
            key_metadata=None,
            split_offsets=[4],
            equality_ids=None,
            sort_order_id=None,
        )

    def _append(self, table: Any, numbers: range) -> None:
        with table.transaction() as txn, txn.update_snapshot().fast_append() as update:
            for number in numbers:
                update.append_data_file(self._file(table, number))

    def make(self, folder: Path, entries: int) -> None:
        """See `Peer.make`."""
        catalog = self._catalog(folder)
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", pa.schema([("r", pa.int64())]))
        for first in range(0, entries, 10_000):
            self._append(table, range(first, min(first + 10_000, entries)))

    def open(self, folder: Path) -> Any:
        """See `Peer.open`."""
        return self._catalog(folder).load_table("n.t")

    def commit(self, handle: Any, number: int) -> Any:
        """See `Peer.commit`."""
        self._append(handle, range(number, number + 1))
        return handle

    def locate(self, folder: Path, row: int) -> object:
        """See `Peer.locate`."""
        from pyiceberg.expressions import EqualTo

        table = self._catalog(folder).load_table("n.t")
        (task,) = table.scan(row_filter=EqualTo("r", row)).plan_files()
        return task.file.file_path


@dataclass
class Lance:
    """`pylance`: fragments in the manifest."""

    name: str = "Lance"
    durable: bool = False
    modules: tuple[str, ...] = ("lance", "lance.fragment")

    @staticmethod
    def _fragment(number: int) -> Any:
        from lance.fragment import DataFile, FragmentMetadata

        file = DataFile(f"part-{number:012d}.lance", [0], [0], 2, 0, 1 << 20)
        return FragmentMetadata(id=number, files=[file], physical_rows=ENTRIES)

    def make(self, folder: Path, entries: int) -> None:
        """See `Peer.make`."""
        import lance

        fragments = [self._fragment(number) for number in range(entries)]
        operation = lance.LanceOperation.Overwrite(pa.schema([("r", pa.int64())]), fragments)
        lance.LanceDataset.commit(str(folder), operation)

    def open(self, folder: Path) -> Any:
        """See `Peer.open`."""
        import lance

        return lance.dataset(str(folder))

    def commit(self, handle: Any, number: int) -> Any:
        """See `Peer.commit`."""
        import lance

        operation = lance.LanceOperation.Append([self._fragment(number)])
        return lance.LanceDataset.commit(handle, operation, read_version=handle.version)

    def locate(self, folder: Path, row: int) -> object:
        """See `Peer.locate`."""
        import lance

        fragments = lance.dataset(str(folder)).get_fragments()
        ends = np.cumsum([fragment.physical_rows for fragment in fragments])
        return fragments[int(np.searchsorted(ends, row, side="right"))].fragment_id


@dataclass
class Icechunk:
    """`icechunk`: references to virtual chunks of 50 arrays; commits go on with the last one."""

    name: str = "Icechunk"
    durable: bool = False
    modules: tuple[str, ...] = ("icechunk", "zarr")

    def __post_init__(self) -> None:
        os.environ.setdefault("ICECHUNK_LOG", "error")  # it warns in colours whenever a folder is opened

    def _config(self, folder: Path) -> tuple[Any, Any, dict[str, None]]:
        import icechunk

        chunks = f"file://{folder}-chunks/"
        config = icechunk.RepositoryConfig.default()
        store = icechunk.local_filesystem_store(f"{folder}-chunks")
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(chunks, store))
        return icechunk.local_filesystem_storage(str(folder)), config, {chunks: None}

    def _references(self, folder: Path, numbers: range) -> list[Any]:
        import icechunk

        place = f"file://{folder}-chunks/all"
        return [icechunk.VirtualChunkSpec([number], place, 0, 64) for number in numbers]

    def make(self, folder: Path, entries: int) -> None:
        """See `Peer.make`."""
        import icechunk
        import zarr

        storage, config, access = self._config(folder)
        (Path(f"{folder}-chunks")).mkdir(parents=True)
        (Path(f"{folder}-chunks") / "all").write_bytes(bytes(64))
        repository = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)
        session = repository.writable_session("main")
        each = -(-entries // _CHAINS)
        for chain in range(_CHAINS):
            zarr.create_array(
                session.store,
                name=f"a{chain:02d}",
                shape=(each + 1_000_000,),
                chunks=(1,),
                dtype="i8",
                compressors=None,
                filters=None,
            )
            if each:
                references = self._references(folder, range(each))
                session.store.set_virtual_refs(f"a{chain:02d}", references, validate_containers=False)
        session.commit("make")

    def open(self, folder: Path) -> Any:
        """See `Peer.open`."""
        import icechunk

        storage, config, access = self._config(folder)
        return icechunk.Repository.open(storage, config, authorize_virtual_chunk_access=access), folder

    def commit(self, handle: Any, number: int) -> Any:
        """See `Peer.commit`."""
        repository, folder = handle
        session = repository.writable_session("main")
        wanted = self._references(folder, range(number, number + 1))
        session.store.set_virtual_refs(f"a{_CHAINS - 1:02d}", wanted, validate_containers=False)
        session.commit("append")
        return handle

    def locate(self, folder: Path, row: int) -> object:
        """See `Peer.locate`; the 64 bytes that the reference names are read, there is no other way."""
        import zarr

        repository, _ = self.open(folder)
        store = repository.readonly_session("main").store
        number = row // ENTRIES // _CHAINS  # of the first chain: the entry in the middle of it

        async def get() -> object:
            return await store.get(f"a00/c/{number}", zarr.core.buffer.default_buffer_prototype())

        found = zarr.core.sync.sync(get())
        assert found is not None
        return number


PEERS: tuple[Peer, ...] = (SparkPages(), DeltaRs(), PyIceberg(), Lance(), Icechunk())
