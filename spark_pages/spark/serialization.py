"""What travels between driver and executors: stores by address, pages as Arrow bytes. No pyspark here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import as_path, as_str
from spark_pages.errors import InvalidInputError
from spark_pages.io import PageHandler
from spark_pages.model.page_schema import PAGE_SCHEMA, concat_batches
from spark_pages.model.run import PageRun
from spark_pages.storage import open_object_store
from spark_pages.storage.factory import folder_of
from spark_pages.storage.profiles import split_profile, storage_options, with_profile
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.store import open as open_store

_WORTH_COMPRESSING = 64
"""From so many rows on zstd makes a batch smaller; starting it takes longer than all else of fewer."""


def store_url(url: str, profile: str | None = None) -> str:
    """Return the address as executors need it: absolute, reachable by other processes, with its profile."""
    url = as_path(url, "the address of a store", "a path or a URL such as file:///folder")
    profile = None if profile is None else as_str(profile, "profile")
    if url.startswith("memory://"):
        raise InvalidInputError(
            f"Cannot read {url} in Spark: a store in memory belongs to one process, and Spark has others.",
            hint="Use a folder or an object store, such as file:///data/store.",
        )
    folder = None if "://" in url else folder_of(url)
    return with_profile(url if folder is None else os.path.abspath(folder), profile)


def store_of(url: str) -> Store:
    """Open the store at an address."""
    plain, profile = split_profile(url)
    return open_store(plain, storage_options(profile))


def objects_of(url: str) -> ObjectStore:
    """Open the object store of an address once in each process, by its environment or profile."""
    return _opened(url, os.getpid())[0]


def pages_of(url: str) -> PageHandler:
    """Create a page handler without caches: a task reads each page once."""
    return _opened(url, os.getpid())[1]


@lru_cache(8)
def _opened(url: str, _pid: int) -> tuple[ObjectStore, PageHandler]:
    plain, profile = split_profile(url)
    objects = open_object_store(plain, storage_options(profile))
    return objects, PageHandler(objects, decoded_bytes=0, compressed_bytes=0)


def pack_run(run: PageRun) -> bytes:
    """Encode the descriptors of a run as an Arrow stream, without statistics."""
    return pack_runs([run])


def pack_runs(runs: Sequence[PageRun]) -> bytes:
    """Encode several runs as one, which takes hardly longer than for one run."""
    return _packed(concat_batches([_with_own_paths(run.pages) for run in runs], PAGE_SCHEMA))


def pack_with_stats(run: PageRun) -> tuple[bytes, bytes]:
    """Encode the descriptors and the statistics of a run, each as an Arrow stream."""
    return pack_run(run), _packed(run.stats)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    compression = "zstd" if batch.num_rows >= _WORTH_COMPRESSING else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _with_own_paths(pages: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same pages without unused paths."""
    index = PAGE_SCHEMA.get_field_index("path")
    own = pages.column(index).cast(pa.string()).dictionary_encode()
    return pages.set_column(index, PAGE_SCHEMA.field(index), own)


def unpack_run(data: bytes) -> PageRun:
    """Decode the result of `pack_run`."""
    return PageRun(_unpacked(data))


def unpack_with_stats(pages: bytes, stats: bytes) -> PageRun:
    """Decode the result of `pack_with_stats`."""
    beside = _unpacked(stats)
    return PageRun(_unpacked(pages), lambda: beside)


def _unpacked(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def even_groups(weights: NDArray[np.int64], groups: int) -> list[tuple[int, int]]:
    """[start, stop) of consecutive items, in at most `groups` groups of about equal weight."""
    if not len(weights):
        return []
    middle = np.cumsum(weights) - weights / 2
    total = max(float(weights.sum()), 1.0)
    group = np.minimum((middle * groups / total).astype(np.int64), groups - 1)
    edges = np.flatnonzero(np.diff(group)) + 1
    bounds = [0, *edges.tolist(), len(weights)]
    return list(pairwise(bounds))
