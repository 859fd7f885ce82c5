"""Where a client learned of the pages that it reads through the service.

The service hands out bytes of a page file only for pieces that the client names. Reading knows files and
offsets, not pieces; so it is noted, for every piece that comes, which stretches of which files are its. Pages
that lie one after another are one stretch, so notes are few where pages are many.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

from spark_pages.model.run import PageRun
from spark_pages.service.extents import Extents, Stretches, clip
from spark_pages.service.responses import PieceName

_MOST_FILES = 1 << 16
_MOST_NOTES = 1 << 12

Source = TypeVar("Source")


class PageIndex(Generic[Source]):
    """Which pieces hold some bytes. Safe to share between threads.

    Notes
    -----
    Bounded: the files used longest ago are forgotten. Who needs them opens the version again, and learns.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OrderedDict[tuple[Source, PieceName, bool], Stretches]] = OrderedDict()

    def add(self, source: Source, name: PieceName, run: PageRun, blooms: bool) -> None:
        """The pages of a run are of this piece; with `blooms` its bloom filters too."""
        found = Extents.of(run, blooms).by_path
        with self._lock:
            for path, stretches in found.items():
                notes = self._files.setdefault(path, OrderedDict())
                notes[source, name, blooms] = stretches
                notes.move_to_end((source, name, blooms))
                if len(notes) > _MOST_NOTES:
                    notes.popitem(last=False)
                self._files.move_to_end(path)
            while len(self._files) > _MOST_FILES:
                self._files.popitem(last=False)

    def of(self, path: str, offset: int, length: int) -> dict[tuple[Source, bool], list[PieceName]]:
        """The pieces that hold bytes of a range, by where they are from and whether for filters.

        What was learned last comes first. What only holds bytes that something newer holds too is left out:
        else a client that lives long would ask for every checkpoint that it has seen.
        """
        found: dict[tuple[Source, bool], list[PieceName]] = {}
        held: list[tuple[int, int]] = []
        with self._lock:
            notes = self._files.get(path)
            if notes is None:
                return found
            self._files.move_to_end(path)
            for (source, name, blooms), stretches in reversed(notes.items()):
                new = [each for each in clip(stretches, offset, offset + length) if not _covers(held, each)]
                if new:
                    found.setdefault((source, blooms), []).append(name)
                    held = _joined([*held, *new])
        return found


def _covers(held: Sequence[tuple[int, int]], stretch: tuple[int, int]) -> bool:
    return any(start <= stretch[0] and stretch[1] <= end for start, end in held)


def _joined(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches in order, those that touch or overlap made one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
