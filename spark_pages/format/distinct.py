"""About how many different values each page has, from a sample of its rows. Pure.

The estimate is that of Chao (1984): the values that a sample has once and twice tell how many it lacks. The
samples of many pages are drawn, sorted and counted together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLED_ROWS = 512
"""Pages with no more values than this are counted; of larger ones so many rows at random, a few less."""

_TOGETHER = 64
"""Pages whose samples are sorted together: they stay in the cache of the processor."""

_WORD = 8
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(_WORD + 1)], dtype=np.uint64)
_MIX_FRONT, _MIX_LENGTH = np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9FB21C651E98DF25)
_PLACES = np.sort(np.random.default_rng(1).integers(0, 1 << 32, SAMPLED_ROWS, dtype=np.uint64))

Words = NDArray[Any]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class PageRows:
    """The rows of pages of one column.

    Attributes
    ----------
    starts, ends, nulls : int64, shape (n_pages,)
        First row of each page and one past its last, and how many of them are null.
    valid : bool, shape (n_rows,), or None
        Which rows are not null; None where all are.
    """

    starts: Rows
    ends: Rows
    nulls: Rows
    valid: NDArray[np.bool_] | None = None

    @classmethod
    def of_one(cls, rows: int) -> PageRows:
        """A page of so many rows, none of them null."""
        return cls(np.array([0]), np.array([rows]), np.array([0]))

    def boundaries(self) -> Iterator[tuple[int, int]]:
        """First row of each page and one past its last."""
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)


def distinct_numbers(values: Words, pages: PageRows) -> list[int]:
    """About how many different numbers each page has; of floats, how many different bits.

    Parameters
    ----------
    values : shape (n_rows,)
        The numbers.

    Notes
    -----
    Right for up to SAMPLED_ROWS values, and about right where values come equally often or only once; too
    low where few values are most of the rows. Some 10 µs a page.
    """
    return _distinct(values.__getitem__, pages)


def distinct_bytes(data: NDArray[np.uint8], ends: NDArray[Any], pages: PageRows) -> list[int]:
    """About how many different pieces of `data` each page has.

    Parameters
    ----------
    data : uint8, shape (n_bytes,)
    ends : integers, shape (n_rows + 1,)
        Row i is ``data[ends[i]:ends[i + 1]]``.

    Notes
    -----
    Looks at the length, the first 8 and the last 8 bytes of each: pieces that differ elsewhere count as one.
    """
    if len(data) < _WORD:
        data = np.concatenate([data, np.zeros(_WORD, np.uint8)])

    def mixed(rows: Rows) -> Words:
        starts, stops = ends[rows], ends[rows + 1]
        lengths = stops - starts
        shorter = np.minimum(lengths, _WORD)
        masks = _MASKS[shorter]
        front, back = (_words(data, places) & masks for places in (starts, stops - shorter))
        found: Words = front * _MIX_FRONT + back + lengths.astype(np.uint64) * _MIX_LENGTH
        return found

    return _distinct(mixed, pages)


def _distinct(words_of: Callable[[Rows], Words], pages: PageRows) -> list[int]:
    """About how many different words each page has; `words_of` gives those of some rows."""
    found: list[int] = []
    for first in range(0, len(pages.starts), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        starts, lengths = pages.starts[some], pages.ends[some] - pages.starts[some]
        rows, sizes = _sampled_rows(starts, lengths)
        if pages.valid is not None:
            held = pages.valid[rows]
            sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[held], minlength=len(sizes))
            rows = rows[held]
        found += _estimates(words_of(rows), sizes, lengths - pages.nulls[some])
    return found


def _sampled_rows(starts: Rows, lengths: Rows) -> tuple[Rows, Rows]:
    """The rows of the samples of pages, one page behind the other, and how many each has."""
    if (lengths == lengths[0]).all():
        of_page = _sampled(int(lengths[0]))
        return np.add.outer(starts, of_page).ravel(), np.full(len(starts), len(of_page))
    of_each = [_sampled(length) + start for length, start in zip(lengths.tolist(), starts, strict=True)]
    return np.concatenate(of_each), np.array([len(rows) for rows in of_each])


@lru_cache(256)
def _sampled(count: int) -> Rows:
    """Rows of a sample of the first `count`, increasing; all where they are few."""
    if count <= SAMPLED_ROWS:
        return np.arange(count)
    rows = (_PLACES * np.uint64(count) >> np.uint64(32)).view(np.int64)
    chosen: Rows = rows[np.append(True, rows[1:] > rows[:-1])]
    return chosen


def _words(data: NDArray[np.uint8], places: NDArray[Any]) -> Words:
    """The 8 bytes at each place as a number; behind the end of the data, zeros."""
    every: Words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    last = len(data) - _WORD
    if int(places.max(initial=0)) <= last:
        whole: Words = every[places]
        return whole
    inside = np.minimum(places, last)
    found: Words = every[inside] >> np.minimum((places - inside) * 8, 63).astype(np.uint64)
    return found


def _estimates(samples: Words, sizes: Rows, counts: Rows) -> list[int]:
    """Different words of each page.

    Parameters
    ----------
    samples
        Words of the pages, one page behind the other; they are put into order.
    sizes, counts : shape (n_pages,)
        How many words the sample of each page has, and how many the page.
    """
    firsts = sizes.cumsum() - sizes
    if (sizes == sizes[0]).all():
        samples.reshape(len(sizes), -1).sort(axis=1)
    else:
        for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True):
            samples[first : first + size].sort()
    # where a word begins that differs from the one before, or a page does; and three times behind the end
    begins = np.ones(len(samples) + 3, np.bool_)
    np.not_equal(samples[1:], samples[:-1], out=begins[1:-3])
    begins[firsts] = True
    here, following, after = begins[:-2].copy(), begins[1:-1], begins[2:]
    here[-1] = False
    seen = _in_each(here, firsts)
    if np.array_equal(sizes, counts):
        return seen
    once = here & following
    often = _in_each(once, firsts), _in_each((here > once) & after, firsts)
    found = zip(seen, *often, sizes.tolist(), counts.tolist(), strict=True)
    return [_estimate(*of_page) for of_page in found]


def _in_each(which: NDArray[np.bool_], firsts: Rows) -> list[int]:
    """How many there are of each page."""
    counts: list[int] = np.add.reduceat(which, firsts, dtype=np.int64).tolist()
    return counts


def _estimate(seen: int, once: int, twice: int, size: int, count: int) -> int:
    """Different words among `count`, from how many a sample of `size` has at all, once and twice."""
    if size == count:
        return seen
    if not size:
        return 1
    return count if seen == size else min(count, seen + once * (once - 1) // (2 * (twice + 1)))
