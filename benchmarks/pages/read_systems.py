# ruff: noqa: PLC0415, D102 - imports are late so that a system may be missing; `ReadSystem` says what each method does
"""Systems that hold the table of `mixed_table`, behind one small face."""

from __future__ import annotations

import importlib
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import lz4.block
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import spark_pages as sp
from benchmarks.pages.mixed_table import SCHEMA
from spark_pages.io import Codec, parse_header
from spark_pages.model.page import PAGE_HEADER_SIZE

INSTALL = "pip install pylance==14.0.2"
IPC_BATCH_ROWS = 1 << 16
ROOM_FOR_THE_TABLE = 4 << 30

Columns = Sequence[str] | None


class ReadSystem(Protocol):
    """What is asked of each; `folder` is where it keeps its one table."""

    name: str
    module: str

    def make(self, folder: Path, pieces: Iterator[pa.Table]) -> None:
        """Store the pieces as one table."""
        ...

    def open(self, folder: Path) -> Any:
        """A handle that has read nothing yet."""
        ...

    def forget(self, handle: Any) -> None:
        """No value of the table is in the memory of the handle; what it knows of the layout stays."""
        ...

    def take(self, handle: Any, rows: NDArray[np.int64], columns: Columns) -> int:
        """Rows in the order asked; gives how many."""
        ...

    def scan(self, handle: Any, columns: Columns) -> int:
        """Every value of some columns, batch by batch; gives the rows."""
        ...

    def read(self, handle: Any, column: str, start: int, stop: int) -> int:
        """Neighbouring rows of one column; gives how many."""
        ...


class SparkPages:
    """This project."""

    name, module = "spark-pages", "spark_pages"

    def make(self, folder: Path, pieces: Iterator[pa.Table]) -> None:
        store = sp.create(str(folder))
        with store.transaction() as txn:
            txn.create_table("t", SCHEMA)
        for piece in pieces:
            with store.transaction() as txn:
                txn.append("t", piece)
        store.checkpoint()
        store.close()

    def open(self, folder: Path) -> sp.Table:
        # Others have the page cache of the kernel.
        cache = sp.CacheConfig(decoded_bytes=ROOM_FOR_THE_TABLE, compressed_bytes=ROOM_FOR_THE_TABLE)
        return sp.open(str(folder), cache=cache).snapshot().table("t")

    def forget(self, handle: sp.Table) -> None:
        handle.page_handler.clear()

    def take(self, handle: sp.Table, rows: NDArray[np.int64], columns: Columns) -> int:
        return int(handle.take(rows, columns).num_rows)

    def scan(self, handle: sp.Table, columns: Columns) -> int:
        return sum(batch.num_rows for batch in handle.scan(columns))

    def read(self, handle: sp.Table, column: str, start: int, stop: int) -> int:
        return int(handle.read([column], start, stop).num_rows)


class Lance:
    """Lance, as its writer makes files by default."""

    name, module = "Lance", "lance"

    def make(self, folder: Path, pieces: Iterator[pa.Table]) -> None:
        import lance

        batches = (batch for piece in pieces for batch in piece.to_batches())
        lance.write_dataset(pa.RecordBatchReader.from_batches(SCHEMA, batches), str(folder))

    def open(self, folder: Path) -> Any:
        import lance

        return lance.dataset(str(folder))

    def forget(self, handle: Any) -> None:
        """It keeps no values."""

    def take(self, handle: Any, rows: NDArray[np.int64], columns: Columns) -> int:
        return int(handle.take(rows, columns=columns).num_rows)

    def scan(self, handle: Any, columns: Columns) -> int:
        return sum(batch.num_rows for batch in handle.to_batches(columns=columns))

    def read(self, handle: Any, column: str, start: int, stop: int) -> int:
        return int(handle.take(np.arange(start, stop), columns=[column]).num_rows)


class Parquet:
    """One Parquet file, LZ4, row groups as pyarrow makes them; only whole ones can be read."""

    name, module = "Parquet LZ4", "pyarrow.parquet"

    def make(self, folder: Path, pieces: Iterator[pa.Table]) -> None:
        folder.mkdir()
        with pq.ParquetWriter(folder / "t.parquet", SCHEMA, compression="lz4") as writer:
            for piece in pieces:
                writer.write_table(piece)

    def open(self, folder: Path) -> pq.ParquetFile:
        return pq.ParquetFile(folder / "t.parquet")

    def forget(self, handle: pq.ParquetFile) -> None:
        """It keeps no values."""

    def take(self, handle: pq.ParquetFile, rows: NDArray[np.int64], columns: Columns) -> int:
        counts = [handle.metadata.row_group(i).num_rows for i in range(handle.num_row_groups)]
        ends = np.cumsum(counts)
        groups = np.unique(np.searchsorted(ends, rows, side="right"))
        table = handle.read_row_groups(groups.tolist(), columns=columns)
        begins, kept = ends - counts, np.array(counts)[groups]
        shift = begins[groups] - (np.cumsum(kept) - kept)
        of_row = np.searchsorted(groups, np.searchsorted(ends, rows, side="right"))
        return int(table.take(pa.array(rows - shift[of_row])).num_rows)

    def scan(self, handle: pq.ParquetFile, columns: Columns) -> int:
        return int(handle.read(columns=columns).num_rows)

    def read(self, handle: pq.ParquetFile, column: str, start: int, stop: int) -> int:
        return self.take(handle, np.arange(start, stop), [column])


class ArrowFile:
    """One Arrow IPC file, LZ4, by memory map."""

    name, module = "Arrow IPC LZ4", "pyarrow"

    def make(self, folder: Path, pieces: Iterator[pa.Table]) -> None:
        folder.mkdir()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(folder / "t.arrow", SCHEMA, options=options) as writer:
            for piece in pieces:
                writer.write_table(piece, max_chunksize=IPC_BATCH_ROWS)

    def open(self, folder: Path) -> Any:
        return folder / "t.arrow"

    def forget(self, handle: Path) -> None:
        """It keeps no values."""

    def take(self, handle: Path, rows: NDArray[np.int64], columns: Columns) -> int:
        numbers = [SCHEMA.get_field_index(name) for name in columns] if columns else None
        with pa.memory_map(str(handle)) as source:
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=numbers or []))
            batches, which = np.unique(rows // IPC_BATCH_ROWS, return_inverse=True)
            table = pa.Table.from_batches([reader.get_batch(int(number)) for number in batches])
            return int(table.take(pa.array(which * IPC_BATCH_ROWS + rows % IPC_BATCH_ROWS)).num_rows)

    def scan(self, handle: Path, columns: Columns) -> int:
        numbers = [SCHEMA.get_field_index(name) for name in columns] if columns else None
        with pa.memory_map(str(handle)) as source:
            options = pa.ipc.IpcReadOptions(included_fields=numbers or [])
            return int(pa.ipc.open_file(source, options=options).read_all().num_rows)

    def read(self, handle: Path, column: str, start: int, stop: int) -> int:
        return self.take(handle, np.arange(start, stop), [column])


class BareColumn(NamedTuple):
    """The pages of a column, in the order of their rows.

    Attributes
    ----------
    ends : shape (n_pages,)
        One past the last row of each page.
    places : shape (5, n_pages)
        Descriptor of its open file, offset, bytes reserved, those of header and payload, and those that its
        LZ4 block holds; 0 of the last where it is not compressed.
    """

    ends: NDArray[np.int64]
    places: NDArray[np.int64]


class BareReads:
    """The pages that the question of spark-pages touches, read past the page cache and decompressed; no more.

    Two threads, neighbours in one request. Nothing is checked, put into its place or given to the caller,
    so this is the least that pages of this size take: a bound, not a system.
    """

    name, module = "bare", "spark_pages"
    threads, request_bytes = 2, 1 << 20

    def make(self, folder: Path, pieces: Iterator[pa.Table]) -> None:
        SparkPages().make(folder, pieces)

    def open(self, folder: Path) -> dict[str, BareColumn]:
        table = sp.open(str(folder)).snapshot().table("t")
        files: dict[str, int] = {}
        return {column: self._layout(folder, table.pages(column), files) for column in table.columns}

    def forget(self, handle: Any) -> None:
        """It keeps no values."""

    def take(self, handle: dict[str, BareColumn], rows: NDArray[np.int64], columns: Columns) -> int:
        asked = [handle[name] for name in columns or handle]
        self._fetch([(column, np.unique(np.searchsorted(column.ends, rows, "right"))) for column in asked])
        return len(rows)

    def scan(self, handle: dict[str, BareColumn], columns: Columns) -> int:
        wanted = [handle[name] for name in columns or handle]
        self._fetch([(column, np.arange(len(column.ends))) for column in wanted])
        return int(next(iter(handle.values())).ends[-1])

    def read(self, handle: dict[str, BareColumn], column: str, start: int, stop: int) -> int:
        self.take(handle, np.arange(start, stop), [column])
        return stop - start

    @staticmethod
    def _layout(folder: Path, pages: pa.Table, files: dict[str, int]) -> BareColumn:
        def of(name: str) -> NDArray[np.int64]:
            return np.asarray(pages[name].to_numpy(), np.int64)

        paths = pages["path"].to_pylist()
        for path in set(paths) - files.keys():
            files[path] = os.open(folder / path, os.O_RDONLY | os.O_DIRECT)
        sizes = []
        memory = mmap.mmap(-1, mmap.PAGESIZE)  # as O_DIRECT wants it
        for path, offset in zip(paths, pages["offset"].to_pylist(), strict=True):
            os.preadv(files[path], [memory], offset)
            header = parse_header(memory[:PAGE_HEADER_SIZE])
            sizes.append(0 if header.codec is Codec.NONE else header.uncompressed_size)
        places = [[files[path] for path in paths], of("offset"), of("alloc_len"), of("actual_len"), sizes]
        return BareColumn(np.cumsum(of("entry_count")), np.stack(places))

    def _fetch(self, wanted: Sequence[tuple[BareColumn, NDArray[np.int64]]]) -> None:
        found = np.concatenate([column.places[:, pages] for column, pages in wanted], axis=1)
        found = found[:, np.lexsort((found[1], found[0]))]
        file, offset, alloc_len = found[:3]
        apart = (file[1:] != file[:-1]) | (offset[1:] != offset[:-1] + alloc_len[:-1])
        runs: list[list[list[int]]] = []
        for begins, page in zip(np.append(True, apart).tolist(), found.T.tolist(), strict=True):
            if begins or page[1] + page[2] - runs[-1][0][1] > self.request_bytes:
                runs.append([])
            runs[-1].append(page)
        if len(runs) == 1:
            self._read(runs)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(self._read, [runs[first :: self.threads] for first in range(self.threads)]))

    def _read(self, runs: Sequence[Sequence[Sequence[int]]]) -> None:
        memory = memoryview(mmap.mmap(-1, self.request_bytes))
        for run in runs:
            begin, end = run[0][1], run[-1][1] + run[-1][2]
            os.preadv(run[0][0], [memory[: end - begin]], begin)
            for _, offset, _, actual_len, decompressed_len in run:
                payload = memory[offset - begin + PAGE_HEADER_SIZE : offset - begin + actual_len]
                if decompressed_len:
                    lz4.block.decompress(payload, uncompressed_size=decompressed_len)


SYSTEMS: tuple[ReadSystem, ...] = (SparkPages(), Lance(), Parquet(), ArrowFile(), BareReads())


def is_installed(system: ReadSystem) -> bool:
    """Whether it can be measured here."""
    try:
        importlib.import_module(system.module)
    except ImportError:
        return False
    return True


def make(system: ReadSystem, folder: Path, pieces: Iterator[pa.Table]) -> None:
    """The table is in the folder, whole or not at all; one that is there already stays."""
    if folder.exists():
        return
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    system.make(unfinished, pieces)
    unfinished.rename(folder)
    os.sync()


def drop_page_cache(folder: Path) -> None:
    """The kernel holds nothing of these files."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
