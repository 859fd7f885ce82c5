"""Bloom filters against the pages that they speak of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.format.bloom import BLOCK_BYTES, Blooms, bloom_checksum
from spark_pages.format.value_hash import hash_values
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.io.file_writer import padding_of
from spark_pages.model.run import PageRun
from spark_pages.storage.store import ObjectStore

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class BloomFlaws:
    """What is wrong with the filters of some pages.

    Attributes
    ----------
    damaged, false, littered : bool, shape (n_pages,)
        Pages whose filter is damaged, whose filter denies a value that they hold, and behind whose filter is
        what is neither a filter nor zeros.
    """

    damaged: Flags
    false: Flags
    littered: Flags


def check_blooms(store: ObjectStore, run: PageRun, values: Mapping[int, pa.Array]) -> BloomFlaws:
    """What is wrong with the filters of the pages of a run, and with what lies behind them.

    Parameters
    ----------
    values
        Payloads of pages, by their index in the run; only these are looked at.

    Notes
    -----
    A request for each stretch of filters that follow one another.
    """
    flaws = BloomFlaws(*np.zeros((3, run.num_pages), dtype=bool))
    named = valid_of(run.stats.column("bloom_offset")) | valid_of(run.stats.column("bloom_length"))
    readable = has_bloom(run)
    by_path: dict[str, list[int]] = {}
    for index in values:
        if readable[index]:
            by_path.setdefault(run.pages.column("path")[index].as_py(), []).append(index)
        elif named[index]:
            flaws.damaged[index] = True
    for path, indices in by_path.items():
        for index, read in zip(indices, _read(store, path, run, indices), strict=True):
            flaws.damaged[index] = read.bloom is None
            flaws.littered[index] = not _clean(read.behind)
            hashes = None if read.bloom is None else hash_values(values[index])
            if read.bloom is not None and hashes is not None:
                flaws.false[index] = not Blooms.of([read.bloom]).hold_all(hashes)
    return flaws


class _Read(NamedTuple):
    """A filter, None if it is damaged, and what lies behind it up to the next page."""

    bloom: bytes | None
    behind: bytes


def _read(store: ObjectStore, path: str, run: PageRun, indices: list[int]) -> list[_Read]:
    """The filters of pages in one file; what lies behind those that no other of them follows."""
    places = [
        tuple(run.stats.column(f"bloom_{name}")[index].as_py() for name in ("offset", "length", "checksum"))
        for index in indices
    ]
    starts = {offset for offset, _, _ in places}
    ends = [offset + length for offset, length, _ in places]
    behind = {end: padding_of(end) for end in ends if end not in starts and padding_of(end)}
    wanted = [(offset, length) for offset, length, _ in places]
    try:
        answers = [bytes(found) for found in store.get_ranges(path, [*wanted, *behind.items()])]
    except (DamageError, ObjectNotFoundError):
        if len(indices) == 1:
            return [_Read(None, b"")]
        return [found for index in indices for found in _read(store, path, run, [index])]
    rests = dict(zip(behind, answers[len(places) :], strict=True))
    return [
        _Read(
            bloom if bloom_checksum(bloom) == checksum & 0xFFFF_FFFF_FFFF_FFFF else None, rests.get(end, b"")
        )
        for bloom, end, (_, _, checksum) in zip(answers, ends, places, strict=False)
    ]


def _clean(behind: bytes) -> bool:
    """Whether bytes behind a filter are zeros and filters: of these each block has all of its words, or none.

    Notes
    -----
    Filters may lie there that nobody names any more.
    """
    if len(behind) % BLOCK_BYTES:
        return not any(behind)
    words = np.frombuffer(behind, "<u4").reshape(-1, BLOCK_BYTES // 4) != 0
    return bool((words.all(axis=1) == words.any(axis=1)).all())
