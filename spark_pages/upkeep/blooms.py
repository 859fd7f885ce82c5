"""Bloom filters against the pages that they speak of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.io.bloom import Blooms, bloom_checksum
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.io.value_hash import hash_values
from spark_pages.model.columns import valid_of
from spark_pages.model.run import PageRun
from spark_pages.storage.store import ObjectStore

Flags = NDArray[np.bool_]


def check_blooms(store: ObjectStore, run: PageRun, values: Mapping[int, pa.Array]) -> tuple[Flags, Flags]:
    """Which pages of a run have a filter that is damaged, and which one that denies a value they hold.

    Parameters
    ----------
    values
        Payloads of pages, by their index in the run; only these are looked at.

    Notes
    -----
    A request for each stretch of filters that follow one another.
    """
    damaged, false = np.zeros((2, run.num_pages), dtype=bool)
    named = valid_of(run.stats.column("bloom_offset")) | valid_of(run.stats.column("bloom_length"))
    readable = has_bloom(run)
    by_path: dict[str, list[int]] = {}
    for index in values:
        if readable[index]:
            by_path.setdefault(run.pages.column("path")[index].as_py(), []).append(index)
        elif named[index]:
            damaged[index] = True
    for path, indices in by_path.items():
        for index, bloom in zip(indices, _read(store, path, run, indices), strict=True):
            if bloom is None:
                damaged[index] = True
            else:
                hashes = hash_values(values[index])
                false[index] = hashes is not None and not Blooms.of([bloom]).hold_all(hashes)
    return damaged, false


def _read(store: ObjectStore, path: str, run: PageRun, indices: list[int]) -> list[bytes | None]:
    """The filters of pages in one file; None for one that is damaged."""
    places = [
        tuple(run.stats.column(f"bloom_{name}")[index].as_py() for name in ("offset", "length", "checksum"))
        for index in indices
    ]
    try:
        answers: list[bytes] = store.get_ranges(path, [(offset, length) for offset, length, _ in places])
    except (DamageError, ObjectNotFoundError):
        if len(indices) == 1:
            return [None]
        return [found for index in indices for found in _read(store, path, run, [index])]
    return [
        answer if bloom_checksum(bytes(answer)) == checksum & 0xFFFF_FFFF_FFFF_FFFF else None
        for answer, (_, _, checksum) in zip(answers, places, strict=True)
    ]
