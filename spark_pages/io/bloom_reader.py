"""Bloom filters of many pages, fetched in few requests and kept as long as they fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.errors import DamageError
from spark_pages.format.bloom import BLOCK_BYTES, Blooms, bloom_checksum
from spark_pages.format.value_hash import Hashes
from spark_pages.io.read_counts import ReadCounts
from spark_pages.memory_budget import LruCache, MemoryBudget
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun
from spark_pages.storage.store import ObjectStore

_BATCH_BYTES = 8 << 20
"""Filters that are in memory together, beside those that are kept."""

_GAP_BYTES = 64 << 10
"""Filters that lie nearer to each other are fetched by one request."""

_ENTRY_OVERHEAD_BYTES = 200

Place = tuple[str, int, int, int]
"""Path, offset, length and checksum of a filter."""


class BloomReader:
    """Asks the bloom filters of pages.

    Parameters
    ----------
    store
        Where the page files are.
    budget
        Of the filters that are kept; 0 keeps none.

    Notes
    -----
    Safe to share between threads and across a fork.
    """

    def __init__(self, store: ObjectStore, budget: MemoryBudget) -> None:
        self._store = store
        self._kept: LruCache[Place, bytes] = LruCache(budget)

    @property
    def held_bytes(self) -> int:
        """Bytes of the filters that are kept."""
        return self._kept.held_bytes

    def clear(self) -> None:
        """Keep no filter."""
        self._kept.clear()

    def may_contain(
        self, run: PageRun, chosen: NDArray[np.bool_], hashes: Hashes, spent: ReadCounts
    ) -> NDArray[np.bool_]:
        """Which of the pages chosen may hold any of the values with these hashes.

        Parameters
        ----------
        run
            Pages of a chain.
        chosen : bool, shape (n_pages,)
            Those that are asked about.
        hashes : uint64, shape (n_values,)
            By `io.stats.value_hash.hash_values`, of the values as the column has them.
        spent
            Receives what it takes.

        Returns
        -------
        numpy.ndarray of bool, shape (n_pages,)
            True for pages that have no filter too, or one that is damaged or not smaller than the page; False
            for pages not chosen.

        Raises
        ------
        ObjectNotFoundError, StorageError
            If a page file is gone, or the storage fails: the page could not be read either.

        Notes
        -----
        A request for each stretch of filters that lie near each other. `verify` reports damaged ones.
        """
        possible = chosen.copy()
        asked = np.flatnonzero(chosen & _is_selective(run))
        places = _places(run, asked)
        sizes = np.cumsum([place[2] for place in places])
        start = 0
        while start < len(places):
            before = int(sizes[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(sizes, before + _BATCH_BYTES, side="right")))
            blooms = self._blooms(places[start:stop], spent)
            possible[asked[start:stop]] = Blooms.of(blooms).may_contain(hashes)
            start = stop
        return possible

    def _blooms(self, places: list[Place], spent: ReadCounts) -> list[bytes]:
        """Read the filters; a damaged one becomes an empty one."""
        found = self._kept.get_many(places)
        spent.bloom_hits += len(found)
        by_path: dict[str, list[Place]] = {}
        for place in places:
            if place not in found:
                by_path.setdefault(place[0], []).append(place)
        for path, lacking in by_path.items():
            fetched = self._fetch(path, lacking, spent)
            wrong = [place for place in lacking if not fetched[place]]
            if wrong:  # one wrong answer of storage is read again
                fetched |= self._fetch(path, wrong, spent)
            for place, bloom in fetched.items():
                self._kept.put(place, bloom, len(bloom) + _ENTRY_OVERHEAD_BYTES)
            found |= fetched
        return [found[place] for place in places]

    def _fetch(self, path: str, places: list[Place], spent: ReadCounts) -> dict[Place, bytes]:
        found = dict.fromkeys(places, b"")
        spans = _spans(sorted(set(places), key=lambda place: place[1]))
        spent.bloom_requests += len(spans)
        spent.bloom_bytes += sum(end - start for start, end, _ in spans)
        try:
            answers = self._store.get_ranges(path, [(start, end - start) for start, end, _ in spans])
        except DamageError:
            return found  # the file ends before one of them
        for (start, _, inside), answer in zip(spans, answers, strict=True):
            for place in inside:
                data = bytes(memoryview(answer)[place[1] - start : place[1] - start + place[2]])
                if bloom_checksum(data) == place[3]:
                    found[place] = data
        return found


def has_bloom(run: PageRun) -> NDArray[np.bool_]:
    """Which pages have a filter that could be one, shape (n_pages,)."""
    stats = run.stats
    offset, length, checksum = (stats.column(f"bloom_{name}") for name in ("offset", "length", "checksum"))
    if offset.null_count == len(offset):
        return np.zeros(len(offset), dtype=bool)
    sizes = numbers_of(length)
    found: NDArray[np.bool_] = valid_of(offset) & valid_of(length) & valid_of(checksum)
    found &= (numbers_of(offset) >= 0) & (sizes > 0) & (sizes % BLOCK_BYTES == 0)
    found &= (run.numbers("kind") == PageKind.FILE) & valid_of(run.pages.column("path"))
    return found


def _is_selective(run: PageRun) -> NDArray[np.bool_]:
    smaller: NDArray[np.bool_] = numbers_of(run.stats.column("bloom_length")) < run.numbers("actual_len")
    return has_bloom(run) & smaller


def _places(run: PageRun, positions: NDArray[np.int64]) -> list[Place]:
    columns = [
        numbers_of(run.stats.column(f"bloom_{name}"))[positions] for name in ("offset", "length", "checksum")
    ]
    offsets, lengths, checksums = (column.tolist() for column in (*columns[:2], columns[2].view(np.uint64)))
    path = run.pages.column("path")
    names, indices = path.dictionary.to_pylist(), numbers_of(path.indices)[positions].tolist()
    paths = [names[index] for index in indices]
    return list(zip(paths, offsets, lengths, checksums, strict=True))


def _spans(places: list[Place]) -> list[tuple[int, int, list[Place]]]:
    """Stretches of a file that are fetched by one request each: start, end and the filters in it."""
    spans: list[tuple[int, int, list[Place]]] = []
    for place in places:
        start, end = place[1], place[1] + place[2]
        if spans and start - spans[-1][1] <= _GAP_BYTES:
            first, last, inside = spans[-1]
            spans[-1] = first, max(last, end), [*inside, place]
        else:
            spans.append((start, end, [place]))
    return spans
