"""One simulated world: storage that fails, processes that share it, and who goes next.

Each process runs shipped code in a greenlet. Whatever it asks of storage parks it; a *step* lets one process
go on, with its request done, failed, or lost, until it parks again. A world has no chance of its own: a
`Chooser` decides every step, so that a schedule can be drawn, searched, shortened and played again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from greenlet import getcurrent, greenlet
from typing_extensions import Buffer

from spark_pages.errors import ObjectNotFoundError, StorageError
from spark_pages.log.log import Log
from spark_pages.log.names import HINT_KEY
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.runtime import Runtime
from spark_pages.storage.store import Created, CreateOutcome, Doubtful, Exists, NotCreated, ObjectInfo
from tests.simulation.invariants import History, Violation

OK = "ok"
DELIVERED = "arrives"
POWER_CUT = "power cut"
MAX_STEPS = 4_000
"""A schedule that takes longer makes no progress; the longest of the scenarios takes a few hundred."""

FAULTS: dict[str, tuple[str, ...]] = {
    # answered with an error without effect; the same, and storage is sure; done, but the answer is lost; done
    # later, when nobody waits; refused as taken though nothing is there (HTTP 409); visible, but a power cut
    # would take it away
    "create": ("fails", "not created", "answer lost", "late", "refused", "unsynced", "crash", "crash, late"),
    "put": ("fails", "answer lost", "late", "torn", "crash", "crash, late"),
    "delete": ("fails", "answer lost", "late", "crash", "crash, late"),
    "get": ("fails", "crash"),
    "list": ("fails", "stale", "crash"),
    "sleep": ("time is up",),
}
ALL_FAULTS = frozenset(fault for faults in FAULTS.values() for fault in faults) | {POWER_CUT}
ON_A_DISK = frozenset({"unsynced", POWER_CUT})
"""Faults of local disks; the others are those of networks."""

READ_BY_DIGEST = ("pages/", "_log/parts/", "_log/segments/", "_log/stats/", "_log/catalog/")
"""Objects that nobody sees before something names them."""

Step = tuple[str, str]
"""Who goes on, and what becomes of its request."""


class CrashError(BaseException):
    """The process dies here; nothing may catch it."""


@dataclass(slots=True)
class LateRequest:
    """A request that storage will do when nobody waits for it any more, if ever."""

    name: str
    kind: str
    key: str
    data: bytes


class Chooser(Protocol):
    """Decides what happens next."""

    def next(self, world: World) -> Step | None:
        """A step that is possible now; None to end the schedule."""
        ...


class Strand:
    """One thread of a process: runs until it asks something of storage, and goes on when it is told."""

    __slots__ = ("_work", "greenlet", "is_dying", "key", "kind", "name", "process", "trail")

    def __init__(self, process: Process, name: str, work: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.kind = "start"
        self.key = ""
        self.trail = hash(name)
        self.is_dying = False
        self._work = work
        self.greenlet: greenlet | None = greenlet(self._run, parent=process.world.hub)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else can tell when the request is made that it waits with."""
        spec = self.process.spec
        keys = {"get": spec.reads_alone, "put": spec.writes_alone, "sleep": ("",)}.get(self.kind, ())
        return self.key.startswith(keys)

    def _run(self, _: str) -> None:
        self.process.world.guard(self.process, self._work)


class Process:
    """One process: its own log, clock and tokens, over the storage that all share."""

    def __init__(self, world: World, index: int, spec: ProcessSpec) -> None:
        self.world = world
        self.name = spec.name
        self.spec = spec
        self.lives = 1 + spec.restarts
        self.floor = -1
        self.url = "sim://store"
        self.unknown: dict[str, Any] | None = None
        self.landed_before: dict[str, tuple[str | None, int | None]] = {}
        self.log: Log = None  # type: ignore[assignment]
        self._index = index
        self._tokens = 0
        self._clock_s = 0.0
        self._strands = 0

    def start(self, opened: bool) -> None:
        """Begin, or begin again after a crash, with nothing in memory."""
        self.open(opened)
        self._strands = 0
        for program in (self.spec.program, *self.spec.threads):
            self.spawn(partial(program, self))

    def spawn(self, work: Callable[[], None]) -> Callable[[float | None], object]:
        """Begin work beside what the process does already."""
        self._strands += 1
        name = self.name if self._strands == 1 else f"{self.name}/{self._strands}"
        self.world.begin(Strand(self, name, work))
        return lambda _: None

    def open(self, opened: bool = False) -> None:
        """Know nothing but the address; with `opened`, also what was there before the schedule."""
        self.log = Log(self, self.runtime(), timeout_s=60.0)
        self.landed_before.clear()
        self.unknown = None
        head = self.world.laid.head
        if opened and head is not None:  # as if it had refreshed before the schedule began
            newest = self.log._newest
            newest.snapshot = (
                head if head.checkpoint is None else self.quietly(lambda: newest.bind(head.state))
            )

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

    def quietly(self, work: Callable[[], Any]) -> Any:
        """Do it without a step, as if it were over before the schedule begins."""
        self.world.quiet += 1
        try:
            return work()
        finally:
            self.world.quiet -= 1

    def _map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if not self.spec.reads_backwards:
            return [work(item) for item in items]
        return [work(item) for item in reversed(items)][::-1]

    def _sleep(self, seconds: float) -> None:
        self._clock_s += seconds
        if "time is up" in self.world.faults and self._ask("sleep", "") == "time is up":
            self._clock_s += 1_000.0

    # storage, as this process sees it

    def _ask(self, kind: str, key: str) -> str:
        world = self.world
        if world.quiet:
            return OK
        strand = world.current
        if strand.is_dying:
            raise CrashError
        strand.kind, strand.key = kind, key
        effect: str = world.hub.switch()
        if effect == "crash":
            raise CrashError
        return effect

    def _leave_behind(self, effect: str, kind: str, key: str, data: bytes = b"") -> bool:
        """Whether the request goes on by itself."""
        if effect not in ("late", "crash, late"):
            return False
        self.world.send_late(kind, key, data)
        if effect == "crash, late":
            raise CrashError
        return True

    def _heard(self, answer: object) -> None:
        if self.world.hashing and not self.world.quiet:
            strand = self.world.current
            strand.trail = hash((strand.trail, strand.kind, strand.key, answer))

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """See `ObjectStore.create`."""
        effect = self._ask("create", key)
        outcome: CreateOutcome
        if effect == "not created":
            outcome = NotCreated(effect)
        elif effect == "fails" or self._leave_behind(effect, "create", key, data):
            outcome = Doubtful(effect)
        elif effect == "refused" and key not in self.world.objects:
            outcome = Exists()
        else:
            was_absent = self.world.create(key, data, synced=effect != "unsynced")
            if effect in ("answer lost", "unsynced"):
                outcome = Doubtful(effect)
            else:
                outcome = Created() if was_absent else Exists()
        self._heard(type(outcome))
        return outcome

    def put(self, key: str, data: Buffer) -> None:
        """See `ObjectStore.put`; torn means: half of it is there, and storage says that all is well."""
        data = data if isinstance(data, bytes) else bytes(data)  # a `Value` stays one
        effect = self._ask("put", key)
        done = False
        if effect == "torn":
            self.world.torn = True
            self.world.put(key, bytes(data)[: len(data) // 2])
            done = True
        elif effect in (OK, "answer lost"):
            self.world.put(key, data)
            done = effect == OK
        elif effect != "fails":
            self._leave_behind(effect, "put", key, data)
        self._heard(done)
        if not done:
            raise StorageError(f"Writing {key}: {effect}.", key=key)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        effect = self._ask("delete", key)
        if effect in (OK, "answer lost"):
            self.world.delete(key)
        elif effect != "fails":
            self._leave_behind(effect, "delete", key)
        self._heard(effect == OK)
        if effect != OK:
            raise StorageError(f"Deleting {key}: {effect}.", key=key)

    def get(self, key: str) -> bytes:
        """See `ObjectStore.get`."""
        effect = self._ask("get", key)
        data = self.world.objects.get(key) if effect == OK else b""
        self._heard(data)
        if effect != OK:
            raise StorageError(f"Reading {key}: {effect}.", key=key)
        if data is None or (key == HINT_KEY and self.world.hide_hint):
            raise ObjectNotFoundError(f"There is no object {key}.", key=key)
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        return self.get(key)[offset : offset + length]

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        return len(self.get(key))

    def list(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore.list`; stale means: the newest objects are missing."""
        effect = self._ask("list", prefix)
        keys = list(self.world.objects)
        if effect == "stale":
            keys = keys[: -max(1, len(keys) // 4)]
        found = [
            ObjectInfo(key, len(self.world.objects[key]), 0) for key in sorted(keys) if key.startswith(prefix)
        ]
        self._heard(tuple(found) if effect in (OK, "stale") else None)
        if effect == "fails":
            raise StorageError(f"Listing {prefix}: {effect}.")
        return found

    def local_path(self, key: str) -> str | None:
        """See `ObjectStore.local_path`."""
        return None

    def now_us(self) -> int | None:
        """See `ObjectStore.now_us`."""
        return None


Program = Callable[[Process], None]


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
    reads_alone, writes_alone
        Beginnings of keys that nobody else writes, or that nobody else asks for before something names them:
        a complete search need not try what others do in between.
    """

    name: str
    program: Program
    threads: tuple[Program, ...] = ()
    opened: bool = True
    clock_us: int = 0
    restarts: int = 0
    reads_backwards: bool = False
    reads_alone: tuple[str, ...] = ()
    writes_alone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A store, the processes that work on it, and the faults that may befall them.

    Attributes
    ----------
    name
        For the command line.
    setup
        Makes the store, step by step without faults.
    processes
        Who takes part.
    faults
        Names of the faults that may happen.
    max_faults
        How many of them at most in one schedule.
    usual_steps
        Steps of one schedule, about.
    """

    name: str
    setup: Program
    processes: tuple[ProcessSpec, ...]
    faults: frozenset[str] = ALL_FAULTS - ON_A_DISK
    max_faults: int = 2
    usual_steps: int = 30


@dataclass
class Laid:
    """The store that a setup leaves; made once for all schedules of a scenario."""

    objects: dict[str, bytes] = field(default_factory=dict)
    history: History = field(default_factory=History)
    content: int = 0
    head: LogSnapshot | None = None


def lay(scenario: Scenario) -> Laid:
    """Run the setup of a scenario, quietly."""
    world = World(replace(scenario, processes=()), Laid())
    process = Process(world, 98, ProcessSpec("setup", scenario.setup))
    process.open()
    process.quietly(lambda: scenario.setup(process))
    process.open()
    head = process.quietly(process.log.refresh)
    return Laid(world.objects, world.history, world.content, head)


class World:
    """Storage and processes of one schedule.

    Parameters
    ----------
    scenario
        What takes part.
    laid
        The store as the setup left it.
    hashing
        Whether to keep what tells two states apart, for the complete search.
    """

    def __init__(self, scenario: Scenario, laid: Laid, hashing: bool = False, tracing: bool = False) -> None:
        self.scenario = scenario
        self.laid = laid
        self.faults = scenario.faults
        self.objects = dict(laid.objects)
        self.content = laid.content
        self.history = laid.history.copy()
        self.hashing = hashing
        self.hub = getcurrent()
        self.quiet = 0
        self.hide_hint = False
        self.faults_left = scenario.max_faults
        self.late: list[LateRequest] = []
        self.unsynced: dict[str, bytes] = {}
        self.steps: list[Step] = []
        self.trace: list[str] | None = [] if tracing else None
        self.violation: Violation | None = None
        self.visible = laid.content
        self.changed = self.deleted = self.torn = False
        self._late_count = 0
        self.strands: dict[str, Strand] = {}
        self.running: list[Strand] = []
        self.current: Strand = None  # type: ignore[assignment]
        self.crashed: Process | None = None
        self.processes = [Process(self, index, spec) for index, spec in enumerate(scenario.processes)]
        _worlds[:] = [self]
        for process in self.processes:
            process.start(process.spec.opened)
        for strand in list(self.running):
            self._resume(strand, OK)

    # what storage does

    def create(self, key: str, data: bytes, synced: bool = True) -> bool:
        """Put the object if the key is free; whether it was."""
        absent = key not in self.objects
        if absent:
            self._set(key, data)
            self.history.created(key, data, self.objects)
        if synced:
            self.unsynced.clear()  # the folder is synced with it, and all that is in it
        elif absent:
            self.unsynced[key] = data
        return absent

    def put(self, key: str, data: bytes) -> None:
        """Put the object in the place of what is there."""
        self._set(key, data)
        self.history.overwritten(key, data, self.objects)

    def delete(self, key: str) -> None:
        """Take the object away."""
        old = self.objects.pop(key, None)
        if old is not None:
            self.content ^= hash((key, old))
            self.visible ^= hash((key, old))
            self.changed = self.deleted = True

    def _set(self, key: str, data: bytes) -> None:
        old = self.objects.get(key)
        change = hash((key, data)) if old is None else hash((key, data)) ^ hash((key, old))
        self.objects[key] = data
        self.content ^= change
        if old is not None or self.torn or not key.startswith(READ_BY_DIGEST):
            self.visible ^= change
            self.changed = True

    def send_late(self, kind: str, key: str, data: bytes) -> None:
        """A request is on its way, and nobody waits for it."""
        self._late_count += 1
        self.late.append(LateRequest(f"late request {self._late_count}", kind, key, data))

    # steps

    def begin(self, strand: Strand) -> None:
        """A thread more."""
        self.strands[strand.name] = strand
        self.running.append(strand)

    def possible(self, strand: Strand) -> list[str]:
        """Faults that may befall the request of a strand now."""
        if not self.faults_left:
            return []
        faults = [fault for fault in FAULTS.get(strand.kind, ()) if fault in self.faults]
        if "torn" in faults and not (strand.key == HINT_KEY or self._may_tear(strand.key)):
            faults.remove("torn")
        return faults

    def _may_tear(self, key: str) -> bool:
        """Slots never tear, nor do page files of transactions; the rest of the log is read back.

        An object that is there gives way to another whole, on every storage: it is replaced in one step.
        """
        return key.startswith("_log/") and key.count("/") == 2 and key not in self.objects

    def step(self, who: str, effect: str) -> bool:
        """Do a step; False if there is no such step now."""
        self.steps.append((who, effect))
        if who == POWER_CUT:
            done = bool(self.unsynced) and self._cut_power()
        elif effect == DELIVERED:
            done = self._deliver(who)
        else:
            done = self._go_on(self.strands.get(who), effect)
        if not done:
            self.steps.pop()
        return done

    def _go_on(self, strand: Strand | None, effect: str) -> bool:
        if strand is None or strand not in self.running:
            return False
        if effect != OK:
            if effect not in self.possible(strand):
                return False
            self.faults_left -= 1
        if self.trace is not None:
            self.trace.append(f"{strand.name:<14} {strand.kind} {strand.key}: {effect}")
        self._resume(strand, effect)
        return True

    def _resume(self, strand: Strand, effect: str) -> None:
        self.current = strand
        assert strand.greenlet is not None
        strand.greenlet.switch(effect)
        if strand.greenlet.dead:
            strand.greenlet = None
            self.running.remove(strand)
        if self.crashed is not None:
            process, self.crashed = self.crashed, None
            self._bury(process)
            if process.lives:
                self.note(f"{process.name:<14} starts again")
                process.start(opened=False)

    def _bury(self, process: Process) -> None:
        """End all threads of a process, where they are."""
        for strand in list(self.strands.values()):
            if strand.process is process:
                if strand.greenlet is not None and strand.kind != "start":
                    self.current, strand.is_dying = strand, True
                    strand.greenlet.throw(CrashError)
                    assert strand.greenlet.dead, f"{strand.name} does not die"
                strand.greenlet = None
                del self.strands[strand.name]
                if strand in self.running:
                    self.running.remove(strand)
        self.crashed = None
        self.history.forget_process(process.name)

    def _deliver(self, who: str) -> bool:
        for index, request in enumerate(self.late):
            if request.name == who:
                del self.late[index]
                if self.trace is not None:
                    self.trace.append(f"{who:<12} {request.kind} {request.key}: {DELIVERED}")
                try:
                    if request.kind == "create":
                        self.create(request.key, request.data)
                    elif request.kind == "put":
                        self.put(request.key, request.data)
                    else:
                        self.delete(request.key)
                except Violation as violation:
                    self.violation = self.violation or violation
                return True
        return False

    def _cut_power(self) -> bool:
        """Everybody dies, and what was not synced is gone."""
        self.note("power cut    everybody dies; gone: " + ", ".join(self.unsynced))
        self.kill()
        for key, data in self.unsynced.items():
            if self.objects.get(key) == data:
                self.delete(key)
        self.history.power_cut(self.unsynced)
        self.unsynced.clear()
        self.late.clear()
        return True

    def kill(self) -> None:
        """End all processes where they are."""
        for process in self.processes:
            process.lives = 0
            self._bury(process)

    def guard(self, process: Process, work: Callable[[], None]) -> None:
        """Run a thread; note how it ends."""
        try:
            work()
        except CrashError:
            if self.crashed is None:
                process.lives = max(0, process.lives - 1)
                self.crashed = process
        except Violation as violation:
            self.violation = self.violation or violation
        except Exception as error:  # noqa: BLE001 - whatever shipped code raises here is a finding
            if self.violation is None:
                what = f"{process.name} met {type(error).__name__}: {error}"
                self.violation = Violation("unexpected error", what)
                self.violation.__cause__ = error

    def waiting(self) -> list[str]:
        """Threads that wait for each other and for nothing else."""
        return [] if self.running else [s.name for s in self.strands.values() if s.greenlet is not None]

    def note(self, text: str) -> None:
        """A line of the schedule as people read it."""
        if self.trace is not None:
            self.trace.append(text)

    def key(self) -> int:
        """What tells this state from others: storage, requests under way, and what each process has heard."""
        return hash(
            (
                self.content,
                self.faults_left,
                frozenset(self.unsynced),
                tuple(sorted((late.kind, late.key, late.data) for late in self.late)),
                tuple((s.name, s.trail, s.kind, s.key) for s in self.strands.values() if s.greenlet),
                tuple((process.floor, process.lives) for process in self.processes),
                frozenset(self.history.acknowledged.items()),
                frozenset(self.history.refused),
            )
        )


class Event:
    """`threading.Event` for threads of the simulation."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Strand] = []

    def set(self) -> None:
        """Whoever waits may go on."""
        self._is_set = True
        world = _worlds[0]
        world.running += [strand for strand in self._waiting if strand.name in world.strands]
        self._waiting.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Let others go on until it is set."""
        while not self._is_set:
            world = _worlds[0]
            strand = world.current
            strand.kind, strand.key = "wake", ""
            self._waiting.append(strand)
            world.running.remove(strand)
            if world.hub.switch() == "crash":
                raise CrashError
        return True


class Lock:
    """`threading.Lock` for threads of the simulation, which switch only where they ask storage."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> bool:
        assert not self._held, "a lock is held while storage is asked"
        self._held = True
        return True

    def __exit__(self, *_: object) -> None:
        self._held = False


class Threads:
    """As much of `threading` as the log needs."""

    Event = Event
    Lock = Lock


_worlds: list[World] = []
