"""Columns become pages, by a few threads: LZ4, zstd and Arrow let go of the GIL.

Order and bytes follow from the values alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io import Codec, stats_of_pages
from spark_pages.io.workers import Workers
from spark_pages.model.page import PageStats
from spark_pages.tables.page_writer import StagedPage, stage_page

MOST_THREADS = 4
"""More do not help: part of the work on a page holds the GIL."""

_PAGES_OF_A_JOB = 16
_FEW_PAGES = 32
"""So many pages are done by the calling thread sooner than others are told of them."""


@dataclass(frozen=True, eq=False, slots=True)
class ToEncode:
    """Values of one column, and where they are cut.

    Attributes
    ----------
    values
        Whole pages of them.
    bounds : int64, shape (n_pages + 1,)
        First row of each page, and the number of rows last.
    codec
        How the pages are compressed.
    bloom
        Share of false positives of their bloom filters; None for none.
    """

    values: pa.Array
    bounds: NDArray[np.int64]
    codec: Codec
    bloom: float | None = None


def encode_columns(columns: Sequence[ToEncode]) -> list[list[StagedPage]]:
    """The pages of every column, in order.

    Notes
    -----
    In the calling thread, and where there are many pages in up to `MOST_THREADS` - 1 others too.
    """
    parts: list[list[list[StagedPage]]] = [[] for _ in columns]
    stats: list[list[PageStats]] = [[] for _ in columns]

    def measure(index: int) -> None:
        stats[index] = stats_of_pages(columns[index].values, columns[index].bounds)

    def encode(index: int, part: int, first: int, last: int) -> None:
        column = columns[index]
        bounds = column.bounds[first : last + 1].tolist()
        parts[index][part] = [
            stage_page(column.values.slice(low, high - low), each, column.codec, column.bloom)
            for (low, high), each in zip(pairwise(bounds), stats[index][first:last], strict=True)
        ]

    encoding = []
    for index, column in enumerate(columns):
        pages = len(column.bounds) - 1
        for part, first in enumerate(range(0, pages, _PAGES_OF_A_JOB)):
            parts[index].append([])
            encoding.append(partial(encode, index, part, first, min(first + _PAGES_OF_A_JOB, pages)))
    many = sum(len(column.bounds) - 1 for column in columns) > _FEW_PAGES
    workers = _workers() if many else _ALONE
    workers.run([partial(measure, index) for index in range(len(columns))])
    workers.run(encoding)
    return [[page for part in of_column for page in part] for of_column in parts]


_ALONE = Workers(1)
_pools: dict[int, Workers] = {}


def _workers() -> Workers:
    """Those of this process; a forked child has none of its parent's threads."""
    process = os.getpid()
    workers = _pools.get(process)
    if workers is None:
        workers = _pools[process] = Workers(min(MOST_THREADS, os.cpu_count() or 1))
    return workers
