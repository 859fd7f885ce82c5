"""Which runs of pages gain by a rewrite: pages of each are read, and cut as the rewrite would cut them.

Descriptors tell how many bytes a page has as stored. How many values these are, and how a rewrite would cut
them, only the pages tell: of text that repeats, of dictionaries, of lists. Without a look at them, a run that
gains nothing would be rewritten by every compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_pages.io import PageHandler
from spark_pages.maintenance.page_rewrite import PageTarget, count_full_pages
from spark_pages.model.run import PageRun
from spark_pages.query.page_metadata import Page

_FIRST_PAGES = 2
_MOST_PAGES = 64
"""Pages of a run that are read at a time: few at first, because most runs gain where they begin."""

_PAGES_AT_ONCE = 512
"""Pages of all runs that are in memory together, at most."""


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A run that may gain.

    Attributes
    ----------
    run
        The pages.
    wanted
        What new pages are to be like.
    splits
        Whether its pages are to be split; else they are to be joined.
    """

    run: PageRun
    wanted: PageTarget
    splits: bool

    @property
    def width(self) -> int:
        """Neighbouring pages that are looked at together."""
        return 1 if self.splits else 2

    def gains(self, start: int, found: Sequence[Page]) -> bool:
        """Whether a page becomes several, or two neighbours one; `found` are the pages from `start` on."""
        count = count_full_pages(self.run.slice(start, start + self.width), found, self.wanted)
        return count > 1 if self.splits else count <= 1


def gaining_parts(candidates: Sequence[Candidate], pages: PageHandler) -> list[tuple[int, int] | None]:
    """For each run the pages [start, stop) from the first gain to the last; None where nothing gains.

    Notes
    -----
    Reads the two pages at both ends of a run that gains there, and all pages of a run that does not gain.
    """
    starts = _first_gains(candidates, pages, backward=False)
    some = [each for each, start in zip(candidates, starts, strict=True) if start is not None]
    stops = iter(_first_gains(some, pages, backward=True))
    found: list[tuple[int, int] | None] = []
    for each, start in zip(candidates, starts, strict=True):
        last = None if start is None else next(stops)
        found.append(None if start is None or last is None else (start, last + each.width))
    return found


def _first_gains(candidates: Sequence[Candidate], pages: PageHandler, *, backward: bool) -> list[int | None]:
    """Where the first gain of each run begins, or the last one; None where nothing gains."""
    gains: list[int | None] = [None] * len(candidates)
    waiting, done, size = list(range(len(candidates))), 0, _FIRST_PAGES
    while waiting:
        for group in _groups(waiting, max(1, _PAGES_AT_ONCE // size)):
            spans = [_span(candidates[index], done, size, backward) for index in group]
            runs = [candidates[index].run.slice(*span) for index, span in zip(group, spans, strict=True)]
            read = pages.get_values(runs, admit=False, whole=True)
            for index, (first, stop), found in zip(group, spans, read, strict=True):
                each = candidates[index]
                places = range(first, stop - each.width + 1)
                gains[index] = next(
                    (
                        at
                        for at in (reversed(places) if backward else places)
                        if each.gains(at, found[at - first : at - first + each.width])
                    ),
                    None,
                )
        done += size
        size = min(2 * size, _MOST_PAGES)
        waiting = [i for i in waiting if gains[i] is None and done < candidates[i].run.num_pages]
    return gains


def _span(candidate: Candidate, done: int, size: int, backward: bool) -> tuple[int, int]:
    """The next pages of a run, with the one before that is a neighbour of the first."""
    total, overlap = candidate.run.num_pages, candidate.width - 1 if done else 0
    first, stop = done - overlap, min(done + size, total)
    return (total - stop, total - first) if backward else (first, stop)


def _groups(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (indices[first : first + size] for first in range(0, len(indices), size))
