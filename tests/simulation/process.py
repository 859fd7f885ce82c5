"""One simulated process: shipped code in greenlets, which park whenever they ask something of storage.

What a process does follows from the answers that it gets, and from nothing else. What its programs have to
say to the history, they say in tells, which the world passes on: so nothing here looks at the world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from greenlet import getcurrent, greenlet
from typing_extensions import Buffer

from spark_pages.errors import ObjectNotFoundError, StorageError
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.runtime import Runtime
from spark_pages.storage.store import CreateOutcome, ObjectInfo
from tests.simulation.independence import ANYTHING, Footprint
from tests.simulation.threads import CrashError, running

OK = "ok"
TIME_IS_UP = "time is up"


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer of storage that it could not do what was asked."""

    effect: str


CRASH = Failed("crash")
"""Instead of an answer: the process dies."""

Answer = Any
"""Of a request: what storage says, `Failed`, or `CRASH`."""

Tell = tuple[str, tuple[Any, ...]]
"""Something that a program says to the history: the name of what it says, and what belongs to it."""


class Storage(Protocol):
    """Whoever answers at once: before the schedule begins, nothing parks."""

    def perform(self, kind: str, key: str, data: bytes, effect: str) -> Answer:
        """Do what a request asks for, or what an effect makes of it."""
        ...

    def tell(self, what: str, *about: Any) -> None:
        """Take note of what a program says."""
        ...


@dataclass(frozen=True, slots=True)
class Parked:
    """A thread that waits for an answer.

    Attributes
    ----------
    name
        Of the thread, in schedules.
    kind, key, data
        What it asks for.
    """

    name: str
    kind: str
    key: str
    data: bytes


Program = Callable[["Process"], None]


@dataclass(frozen=True)
class ProcessSpec:
    """One process of a scenario.

    Attributes
    ----------
    name
        In schedules.
    program
        What it does.
    threads
        What other threads of it do.
    opened
        Whether it has the store open when the schedule begins.
    clock_us
        What its clock says, always.
    restarts
        How often it is started again after a crash.
    reads_backwards
        Whether requests of one round reach storage in the opposite order.
    request_s
        What a request takes by its own clock; with 0 no writer ever waits for its turn.
    patience_s
        How long it tries to commit; with 0 any doubt is an unknown outcome at once.
    footprint
        What it may touch; the less that is, the less a complete search has to try.
    """

    name: str
    program: Program
    threads: tuple[Program, ...] = ()
    opened: bool = True
    clock_us: int = 0
    restarts: int = 0
    reads_backwards: bool = False
    request_s: float = 0.0
    patience_s: float = 60.0
    footprint: Footprint = ANYTHING


class Strand:
    """One thread of a process: runs until it asks something of storage, and goes on when it is told."""

    __slots__ = ("greenlet", "is_dying", "is_waiting", "name", "parked", "process")

    def __init__(self, process: Process, name: str, work: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.parked = Parked(name, "start", "", b"")
        self.is_dying = self.is_waiting = False
        self.greenlet = greenlet(lambda _: process.guard(work), parent=process.hub)

    def stand_by(self) -> None:
        """Let other threads of the process go on until one of them says that this one may."""
        self.parked = Parked(self.name, "wake", "", b"")
        self.is_waiting = True
        self.wait()

    def wait(self) -> Answer:
        """Let others go on until there is an answer."""
        answer = self.process.hub.switch()
        if answer is CRASH:
            raise CrashError
        return answer


class Process:
    """One process: its own log, clock and tokens, over the storage that all share.

    Parameters
    ----------
    index
        Which one of the scenario: its tokens tell it.
    spec
        What it does.
    storage
        Answers what is asked before the schedule begins.
    head
        What a process that has the store open when the schedule begins knows.
    at_once
        Whether everything is answered at once, and nothing parks.
    sleeps
        Whether time may be up when it sleeps, so that it parks then.
    """

    def __init__(
        self,
        index: int,
        spec: ProcessSpec,
        storage: Storage,
        head: LogSnapshot | None = None,
        *,
        at_once: bool = False,
        sleeps: bool = False,
    ) -> None:
        self.name = spec.name
        self.spec = spec
        self.hub = getcurrent()
        self.url = "sim://store"
        self.lives = 1 + spec.restarts
        self.unknown: dict[str, Any] | None = None
        self.landed_before: dict[str, tuple[str | None, int | None]] = {}
        self.log: Log = None  # type: ignore[assignment]
        self.tells: list[Tell] = []
        self.strands: dict[str, Strand] = {}
        self._storage = storage
        self._head = head
        self._at_once = at_once
        self._sleeps = sleeps
        self._index = index
        self._tokens = 0
        self._clock_s = 0.0
        self._strand_count = 0
        self._is_dead = False

    # what it is driven with

    def start(self) -> None:
        """Begin, every thread up to its first request."""
        self._begin(self.spec.opened)
        for name in list(self.strands):
            self.go_on(name, OK)

    def go_on(self, name: str, answer: Answer) -> None:
        """Let a thread go on with an answer, until it asks again or ends."""
        strand = self.strands[name]
        running[:] = [strand]
        strand.greenlet.switch(answer)
        if strand.greenlet.dead:
            self.strands.pop(name, None)
        if self._is_dead:
            self.bury()
            self.lives -= 1
            if self.lives > 0:
                self.tell("note", f"{self.name:<14} starts again")
                self._is_dead = False
                self._begin(opened=False)

    def bury(self) -> None:
        """End all threads, where they are."""
        for strand in list(self.strands.values()):
            if strand.parked.kind != "start" and not strand.greenlet.dead:
                running[:] = [strand]
                strand.is_dying = True
                told = len(self.tells)
                strand.greenlet.throw(CrashError)
                del self.tells[told:]  # the dead tell nothing
                assert strand.greenlet.dead, f"{strand.name} does not die"
        self.strands.clear()

    def parked(self) -> tuple[Parked, ...]:
        """The threads that wait for an answer, in a fixed order."""
        return tuple(strand.parked for strand in self.strands.values() if not strand.is_waiting)

    def waiting(self) -> tuple[str, ...]:
        """The threads that wait for other threads."""
        return tuple(strand.name for strand in self.strands.values() if strand.is_waiting)

    def guard(self, work: Callable[[], None]) -> None:
        """Run a thread; note how it ends."""
        try:
            work()
        except CrashError:
            self._is_dead = True
        except Exception as error:  # noqa: BLE001 - whatever shipped code raises here is a finding
            self.tell("broken", f"{self.name} met {type(error).__name__}: {error}")

    def _begin(self, opened: bool) -> None:
        self.open(opened)
        self._strand_count = 0
        for program in (self.spec.program, *self.spec.threads):
            self.spawn(partial(program, self))

    # what shipped code and programs are given

    def tell(self, what: str, *about: Any) -> None:
        """Say something to the history."""
        if self._at_once:
            self._storage.tell(what, *about)
        else:
            self.tells.append((what, about))

    def spawn(self, work: Callable[[], None]) -> Callable[[float | None], object]:
        """Begin work beside what the process does already."""
        self._strand_count += 1
        name = self.name if self._strand_count == 1 else f"{self.name}/{self._strand_count}"
        self.strands[name] = Strand(self, name, work)
        return lambda _: None

    def open(self, opened: bool = False) -> None:
        """Know nothing but the address; with `opened`, also what was there before the schedule."""
        self.log = Log(
            self, self.runtime(), timeout_s=self.spec.patience_s, writer=lambda: f"{self._index + 1:02x}"
        )
        self.landed_before.clear()
        self.unknown = None
        head = self._head
        if opened and head is not None:  # as if it had refreshed before the schedule began
            newest = self.log._newest
            self._at_once = True
            newest.snapshot = head if head.checkpoint is None else newest.open(head.state)
            self.log._slots.identity.set_store_id(head.state.store_id)
            self.log._slots.identity.find_slots(head.state.version + 1)
            self._at_once = False

    def runtime(self) -> Runtime:
        """Clock, tokens and sleep of this process."""
        return Runtime(
            now_us=lambda: self.spec.clock_us,
            monotonic_s=lambda: self._clock_s,
            token=self.token,
            sleep_s=self._sleep,
            jitter=lambda: 0.5,
            map=self._map,
            spawn=self.spawn,
        )

    def token(self) -> str:
        """32 digits that tell the process and a count."""
        self._tokens += 1
        return f"{self._index + 1:02x}{self._tokens:030x}"

    def _map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if not self.spec.reads_backwards:
            return [work(item) for item in items]
        return [work(item) for item in reversed(items)][::-1]

    def _sleep(self, seconds: float) -> None:
        self._clock_s += seconds
        if self._sleeps and self._ask("sleep", "") == Failed(TIME_IS_UP):
            self._clock_s += 1_000.0

    # storage, as this process sees it

    def _ask(self, kind: str, key: str, data: bytes = b"") -> Answer:
        if self._at_once:
            return self._storage.perform(kind, key, data, OK)
        strand = running[0]
        if strand.is_dying:
            raise CrashError
        strand.parked = Parked(strand.name, kind, key, data)
        self._clock_s += self.spec.request_s
        return strand.wait()

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`."""
        return self._ask("create", key, data)  # type: ignore[no-any-return]

    def put(self, key: str, data: Buffer) -> None:
        """See `ObjectStore.put`."""
        data = data if isinstance(data, bytes) else bytes(data)  # a `Value` stays one
        answer = self._ask("put", key, data)
        if isinstance(answer, Failed):
            raise StorageError(f"Writing {key}: {answer.effect}.", key=key)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        answer = self._ask("delete", key)
        if isinstance(answer, Failed):
            raise StorageError(f"Deleting {key}: {answer.effect}.", key=key)

    def get(self, key: str, most_bytes: int = 0) -> bytes:
        """See `ObjectStore.get`."""
        answer = self._ask("get", key)
        if isinstance(answer, Failed):
            raise StorageError(f"Reading {key}: {answer.effect}.", key=key)
        if answer is None:
            raise ObjectNotFoundError(f"There is no object {key}.", key=key)
        return answer  # type: ignore[no-any-return]

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        return self.get(key)[offset : offset + length]

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        return len(self.get(key))

    def stamps(self, keys: Sequence[str]) -> list[str | None]:
        """See `ObjectStore.stamps`; one step, as requests of one round are."""
        answer = self._ask("stamps", " ".join(keys))
        if isinstance(answer, Failed):
            raise StorageError(f"Looking for {keys[0]}: {answer.effect}.", key=keys[0])
        return list(answer)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore.list`."""
        answer = self._ask("list", prefix)
        if isinstance(answer, Failed):
            raise StorageError(f"Listing {prefix}: {answer.effect}.")
        return list(answer)

    def local_path(self, key: str) -> str | None:
        """See `ObjectStore.local_path`."""
        return None

    def now_us(self) -> int | None:
        """See `ObjectStore.now_us`."""
        return None
