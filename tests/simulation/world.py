"""One simulated world: storage that fails, processes that share it, and who goes next.

Each process runs shipped code; whatever it asks of storage parks it. A *step* does one request, or fails it,
or loses it, and lets who asked go on until it parks again. A world has no chance of its own: a `Chooser`
decides every step, so that a schedule can be drawn, searched, shortened and played again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from spark_pages.format.digest import digest_of
from spark_pages.format.names import HINT_KEY
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.storage.store import Created, Doubtful, Exists, NotCreated, ObjectInfo
from tests.simulation.actor import Actor
from tests.simulation.independence import check_footprint
from tests.simulation.invariants import History, Violation
from tests.simulation.process import (
    CRASH,
    OK,
    TIME_IS_UP,
    Answer,
    Failed,
    Parked,
    Process,
    ProcessSpec,
    Program,
)

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
    "stamps": ("fails", "crash"),
    "sleep": (TIME_IS_UP,),
}
ALL_FAULTS = frozenset(fault for faults in FAULTS.values() for fault in faults) | {POWER_CUT}
ON_A_DISK = frozenset({"unsynced", POWER_CUT})
"""Faults of local disks; the others are those of networks."""

READ_BY_DIGEST = ("pages/", "_log/parts/", "_log/segments/", "_log/stats/", "_log/catalog/")
"""Objects that nobody sees before something names them."""

Step = tuple[str, str]
"""Who goes on, and what becomes of its request."""


Outage = tuple[str, str, str]
"""Of which process, what kind of request, below which folder."""


def outage_of(parked: Parked) -> Outage:
    """The outage that a failure of this request would be the beginning of."""
    return parked.name.partition("/")[0], parked.kind, parked.key.rpartition("/")[0]


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
    outages
        Whether storage may go on failing: where a request of a process has failed, later ones of the same
        kind, of the same process below the same folder, may fail too, and all of them count as one fault.
    """

    name: str
    setup: Program
    processes: tuple[ProcessSpec, ...]
    faults: frozenset[str] = ALL_FAULTS - ON_A_DISK
    max_faults: int = 2
    usual_steps: int = 30
    outages: bool = False


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
    process = Process(98, ProcessSpec("setup", scenario.setup), world, at_once=True)
    process.open()
    scenario.setup(process)
    process.open()
    return Laid(world.objects, world.history, world.content, process.log.refresh())


class World:
    """Storage and processes of one schedule.

    Parameters
    ----------
    scenario
        What takes part.
    laid
        The store as the setup left it.
    remembers
        Whether what processes do is remembered for other schedules.
    tracing
        Whether to keep the schedule as people read it.
    """

    def __init__(self, scenario: Scenario, laid: Laid, remembers: bool = True, tracing: bool = False) -> None:
        self.scenario = scenario
        self.faults = scenario.faults
        self.objects = dict(laid.objects)
        self.content = laid.content
        self.history = laid.history.copy()
        self.hide_hint = False
        self.faults_left = scenario.max_faults
        self.late: list[LateRequest] = []
        self.unsynced: dict[str, bytes] = {}
        self.steps: list[Step] = []
        self.trace: list[str] | None = [] if tracing else None
        self.visible = laid.content
        self.changed = self.deleted = self.buried = self.torn = False
        self.gone: frozenset[str] = frozenset()
        self.outages: frozenset[Outage] = frozenset()
        self._late_count = 0
        self.actors = [
            Actor(spec, (scenario.name, index), partial(_process, scenario, index, laid), remembers)
            for index, spec in enumerate(scenario.processes)
        ]
        for actor in self.actors:
            self._hear(actor)
        self._park()

    def fork(self) -> World:
        """The same world, to go on by itself."""
        other = copy(self)
        other.objects = dict(self.objects)
        other.history = self.history.fork()
        other.late = list(self.late)
        other.unsynced = dict(self.unsynced)
        other.steps = list(self.steps)
        other.trace = None if self.trace is None else list(self.trace)
        other.actors = [actor.fork() for actor in self.actors]
        other._park()
        return other

    def _park(self) -> None:
        self.parked: list[Parked] = [parked for actor in self.actors for parked in actor.node.parked]

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
        if key in self.objects and key != HINT_KEY:
            self.buried = True  # the commit that a tombstone overwrites is as gone as a deleted object
        self._set(key, data)
        self.history.overwritten(key, data, self.objects)

    def delete(self, key: str) -> None:
        """Take the object away."""
        old = self.objects.pop(key, None)
        if old is not None:
            self.gone |= {key}
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

    def _send_late(self, kind: str, key: str, data: bytes) -> None:
        """A request is on its way, and nobody waits for it."""
        self._late_count += 1
        self.late.append(LateRequest(f"late request {self._late_count}", kind, key, data))

    def perform(self, kind: str, key: str, data: bytes, effect: str) -> Answer:
        """Do what a request asks for, or what a fault makes of it; gives the answer."""
        if effect == "crash":
            return CRASH
        if effect in ("late", "crash, late"):
            self._send_late(kind, key, data)
            if effect == "crash, late":
                return CRASH
            return Doubtful(effect) if kind == "create" else Failed(effect)
        if kind == "get":
            if effect != OK:
                return Failed(effect)
            return None if key == HINT_KEY and self.hide_hint else self.objects.get(key)
        if kind == "stamps":
            return Failed(effect) if effect != OK else stamps_in(self.objects, key)
        if kind == "create":
            return self._perform_create(key, data, effect)
        if kind == "put":
            return self._perform_put(key, data, effect)
        if kind == "delete":
            if effect in (OK, "answer lost"):
                self.delete(key)
            return None if effect == OK else Failed(effect)
        if kind == "list":
            return self._perform_list(key, effect)
        return OK if effect == OK else Failed(effect)

    def _perform_create(self, key: str, data: bytes, effect: str) -> Answer:
        if effect == "not created":
            return NotCreated(effect)
        if effect == "fails":
            return Doubtful(effect)
        if effect == "refused" and key not in self.objects:
            return Exists()
        was_absent = self.create(key, data, synced=effect != "unsynced")
        if effect in ("answer lost", "unsynced"):
            return Doubtful(effect)
        return Created() if was_absent else Exists()

    def _perform_put(self, key: str, data: bytes, effect: str) -> Answer:
        """Torn means: half of it is there, and storage says that all is well."""
        if effect == "torn":
            self.torn = True
            self.put(key, bytes(data)[: len(data) // 2])
        elif effect in (OK, "answer lost"):
            self.put(key, data)
        return None if effect in (OK, "torn") else Failed(effect)

    def _perform_list(self, prefix: str, effect: str) -> Answer:
        """Stale means: the newest objects are missing."""
        if effect == "fails":
            return Failed(effect)
        keys = list(self.objects)
        if effect == "stale":
            keys = keys[: -max(1, len(keys) // 4)]
        return tuple(
            ObjectInfo(key, len(self.objects[key]), 0) for key in sorted(keys) if key.startswith(prefix)
        )

    # steps

    def possible(self, parked: Parked) -> list[str]:
        """Faults that may befall the request of a thread now."""
        if not self.faults_left:
            return ["fails"] if outage_of(parked) in self.outages else []
        faults = [fault for fault in FAULTS.get(parked.kind, ()) if fault in self.faults]
        if "torn" in faults and not (parked.key == HINT_KEY or self._may_tear(parked.key)):
            faults.remove("torn")
        return faults

    def _may_tear(self, key: str) -> bool:
        """Slots never tear, nor do page files of transactions; the rest of the log is read back.

        An object that is there gives way to another whole, on every storage: it is replaced in one step.
        """
        return key.startswith("_log/") and key.count("/") == 2 and key not in self.objects

    def step(self, who: str, effect: str) -> bool:
        """Do a step; False if there is no such step now.

        Raises
        ------
        Violation
            If it breaks an invariant.
        """
        self.steps.append((who, effect))
        if who == POWER_CUT:
            done = bool(self.unsynced) and self._cut_power()
        elif effect == DELIVERED:
            done = self._deliver(who)
        else:
            done = self._go_on(who, effect)
        if not done:
            self.steps.pop()
        return done

    def _go_on(self, who: str, effect: str) -> bool:
        for actor in self.actors:
            for parked in actor.node.parked:
                if parked.name == who:
                    return self._answer(actor, parked, effect)
        return False

    def _answer(self, actor: Actor, parked: Parked, effect: str) -> bool:
        if effect != OK:
            if effect not in self.possible(parked):
                return False
            outage = outage_of(parked)
            if effect != "fails" or outage not in self.outages:
                self.faults_left -= 1
            if effect == "fails" and self.scenario.outages:
                self.outages |= {outage}
        check_footprint(self, actor, parked)
        if self.trace is not None:
            self.trace.append(f"{parked.name:<14} {parked.kind} {parked.key}: {effect}")
        answer = self.perform(parked.kind, parked.key, parked.data, effect)
        actor.go_on(parked.name, answer)
        if answer is CRASH:
            self.history.forget_process(actor.name)
        if actor.node.tells:
            self._hear(actor)
        self._park()
        return True

    def _hear(self, actor: Actor) -> None:
        for what, about in actor.node.tells:
            self.tell(what, *about)

    def tell(self, what: str, *about: Any) -> None:
        """Pass on what a program says to the history."""
        if what == "note":
            self.note(*about)
        elif what == "damaged":
            if not self.torn:
                raise Violation("unexpected error", *about)
        else:
            getattr(self.history, what)(*about)

    def _deliver(self, who: str) -> bool:
        for index, request in enumerate(self.late):
            if request.name == who:
                del self.late[index]
                if self.trace is not None:
                    self.trace.append(f"{who:<12} {request.kind} {request.key}: {DELIVERED}")
                if request.kind == "create":
                    self.create(request.key, request.data)
                elif request.kind == "put":
                    self.put(request.key, request.data)
                else:
                    self.delete(request.key)
                return True
        return False

    def _cut_power(self) -> bool:
        """Everybody dies, and what was not synced is gone."""
        self.note("power cut    everybody dies; gone: " + ", ".join(self.unsynced))
        self.end()
        self.actors = []
        self._park()
        for key, data in self.unsynced.items():
            if self.objects.get(key) == data:
                self.delete(key)
        self.history.power_cut(self.unsynced)
        self.unsynced.clear()
        self.late.clear()
        return True

    def end(self) -> None:
        """End all processes where they are."""
        for actor in self.actors:
            actor.end()

    def waiting(self) -> list[str]:
        """Threads that wait for each other and for nothing else."""
        return [] if self.parked else [name for actor in self.actors for name in actor.node.waiting]

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
                self.outages,
                frozenset(self.unsynced),
                tuple(sorted((late.kind, late.key, late.data) for late in self.late)),
                tuple(actor.node.number for actor in self.actors),
                self.history.key(),
            )
        )


def stamps_in(objects: dict[str, bytes], keys: str) -> tuple[str | None, ...]:
    """What tells the objects of some keys from others; the same object has the same in every world."""
    found = [objects.get(key) for key in keys.split()]
    return tuple(None if data is None else digest_of(data) for data in found)


def _process(scenario: Scenario, index: int, laid: Laid) -> Process:
    """A process that has not begun; what it knows of the store is what the setup left."""
    spec = scenario.processes[index]
    return Process(index, spec, _AsLaid(laid), laid.head, sleeps=TIME_IS_UP in scenario.faults)


class _AsLaid:
    """Storage as the setup left it, to be read."""

    def __init__(self, laid: Laid) -> None:
        self._objects = laid.objects

    def perform(self, kind: str, key: str, data: bytes, effect: str) -> Answer:
        assert kind in ("get", "stamps"), f"{kind} {key} before the schedule begins"
        return stamps_in(self._objects, key) if kind == "stamps" else self._objects.get(key)

    def tell(self, what: str, *about: Any) -> None:
        raise AssertionError(what)
