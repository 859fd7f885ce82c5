"""A process as a schedule sees it: where it stands, and where each answer leads it.

What a process does follows from the answers that it gets. So it is run once for each sequence of answers, and
remembered as a tree: `Node` after `Node`. A schedule walks the trees of its processes; shipped code runs
again only where an answer is new, and gets there by the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from tests.simulation.process import Answer, Parked, Process, ProcessSpec, Tell
from tests.simulation.values import memory

_NODES = 400_000
"""Nodes that are remembered before the trees are grown anew."""


_ENDED = -1


class _Trees:
    """What processes do, by process."""

    def __init__(self) -> None:
        self.roots = memory()
        self.numbers = count()
        self.grown = 0

    def forget_too_many(self) -> None:
        """Grow the trees anew, if they have grown large."""
        number = next(self.numbers)
        if number - self.grown > _NODES:
            self.roots.clear()
            self.grown = number


_trees = _Trees()


class Node:
    """Where a process stands after some answers. Immutable but for its children.

    Attributes
    ----------
    parked
        The threads that wait for an answer, and what they ask for.
    waiting
        The threads that wait for these.
    tells
        What programs said on the way here from the node before.
    lives
        How often it may still be started, this time included.
    children
        By thread and answer.
    number
        Tells it from every other node, but for those at which nothing is left to do.
    """

    __slots__ = ("children", "lives", "number", "parked", "tells", "waiting")

    def __init__(self, process: Process) -> None:
        self.parked: tuple[Parked, ...] = process.parked()
        self.waiting = process.waiting()
        self.tells: list[Tell] = process.tells
        self.lives = process.lives
        self.children: dict[tuple[str, Answer], Node] = {}
        self.number = next(_trees.numbers) if self.parked or self.waiting else _ENDED
        process.tells = []


class Actor:
    """One process in one schedule.

    Parameters
    ----------
    spec
        Of the process.
    key
        Of the process and all that it begins with.
    make
        Makes the process, which has not begun.
    remembers
        Whether its tree is kept for other schedules.
    """

    __slots__ = ("_done", "_make", "_path", "_process", "_remembers", "name", "node", "spec")

    def __init__(self, spec: ProcessSpec, key: object, make: Callable[[], Process], remembers: bool) -> None:
        self.spec = spec
        self.name = spec.name
        self._make = make
        self._remembers = remembers
        self._path: list[tuple[str, Answer]] = []
        self._process: Process | None = None
        self._done = 0
        root: Node | None = _trees.roots.get(key) if remembers else None
        if root is None:
            root = Node(self._running())
            if remembers:
                _trees.roots.keep(key, root)
        self.node = root

    def fork(self) -> Actor:
        """The same process at the same place, to go on by itself.

        What runs goes with it, as the search goes on there; here it is run again where an answer is new.
        """
        other = Actor.__new__(Actor)
        other.spec, other.name, other.node = self.spec, self.name, self.node
        other._make, other._remembers = self._make, self._remembers
        other._path, other._process, other._done = list(self._path), self._process, self._done
        self._process, self._done = None, 0
        return other

    def _running(self) -> Process:
        """The process, at the end of the path."""
        process = self._process
        if process is None:
            process = self._process = self._make()
            process.start()
        for name, answer in self._path[self._done :]:
            process.go_on(name, answer)
            process.tells = []
        self._done = len(self._path)
        return process

    def go_on(self, name: str, answer: Answer) -> None:
        """A thread goes on with an answer."""
        way = name, answer
        child = self.node.children.get(way)
        if child is None:
            process = self._running()
            process.go_on(name, answer)
            self._done += 1
            child = Node(process)
            if self._remembers:
                self.node.children[way] = child
        self._path.append(way)
        self.node = child

    def end(self) -> None:
        """The process is not needed any more."""
        if self._process is not None:
            self._process.bury()
            self._process = None


def forget_too_many() -> None:
    """To be called between schedules: memory stays bounded."""
    _trees.forget_too_many()
