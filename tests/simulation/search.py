"""Ways through the schedules of a scenario: at random, all of them, one again, and ever shorter ones."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from unittest.mock import patch

from spark_pages.errors import ObjectNotFoundError
from spark_pages.log import auto_maintenance, latest
from spark_pages.log.commit import group
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from tests.simulation.actor import forget_too_many
from tests.simulation.independence import is_alone
from tests.simulation.invariants import Violation, holds
from tests.simulation.process import OK, Parked, Process, ProcessSpec
from tests.simulation.threads import SimpleQueue, Threads
from tests.simulation.values import memory, values
from tests.simulation.world import (
    DELIVERED,
    MAX_STEPS,
    POWER_CUT,
    Chooser,
    Laid,
    Scenario,
    Step,
    World,
    lay,
    outage_of,
)

_contents = memory()
_remembers: list[bool] = []


@contextmanager
def simulation(remember: bool = True) -> Iterator[None]:
    """Inside, the log holds values, and threads of one process are strands of a world.

    Parameters
    ----------
    remember
        Whether pure steps are done once for all schedules.
    """
    logger = logging.getLogger("spark_pages")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what fails here is meant to
    try:
        with ExitStack() as strands, values(remember):
            for module in (auto_maintenance, group, latest):
                strands.enter_context(patch.object(module, "threading", Threads))
            strands.enter_context(patch.object(group, "SimpleQueue", SimpleQueue))
            _remembers[:] = [True] if remember else []
            yield
    finally:
        logger.setLevel(level)


class Drawn:
    """Draws steps from a seed: some schedules switch at every request, some let processes run on.

    One schedule of five goes by priorities: the first thread of an order runs, and at few places, drawn
    beforehand, the one that runs becomes the last. So one process stands still at a certain request while
    others do all that they have to do, which a switch at every request hardly ever gives.

    Parameters
    ----------
    seed
        The same one gives the same schedule.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._random = draw.random
        self._order: dict[str, float] | None = {} if seed % 5 == 4 else None
        self._stalls: list[int] | None = None
        self._stays = (0.0, 0.5, 0.8, 0.95)[seed % 4]
        self._fault_rate = (0.1, 0.3, 0.03)[seed % 3]
        self._last = ""

    def next(self, world: World) -> Step | None:
        """See `Chooser.next`."""
        draw = self._random
        parked = world.parked
        if world.unsynced and POWER_CUT in world.faults and draw() < 0.3:
            return POWER_CUT, OK
        if world.late and (not parked or draw() < 0.15):
            if not parked and draw() < 0.3:
                return None
            return world.late[int(draw() * len(world.late))].name, DELIVERED
        if not parked:
            return None
        chosen = self._first(world) if self._order is not None else self._any(parked)
        if outage_of(chosen) in world.outages and draw() < _GOES_ON_FAILING:
            return chosen.name, "fails"
        if world.faults_left and draw() < (0.3 if chosen.kind == "sleep" else self._fault_rate):
            faults = world.possible(chosen)
            if faults:
                return chosen.name, faults[int(draw() * len(faults))]
        return chosen.name, OK

    def _any(self, parked: Sequence[Parked]) -> Parked:
        """The thread that ran last, or any."""
        if self._last and self._random() < self._stays:
            for each in parked:
                if each.name == self._last:
                    return each
        chosen = parked[int(self._random() * len(parked))]
        self._last = chosen.name
        return chosen

    def _first(self, world: World) -> Parked:
        """The first thread in the order, which is drawn as threads come up."""
        order, draw = self._order, self._random
        assert order is not None
        if self._stalls is None:
            self._stalls = [int(draw() * world.scenario.usual_steps) for _ in range(1 + int(draw() * 3))]
        for each in world.parked:
            order.setdefault(each.name, draw())
        chosen = min(world.parked, key=lambda each: order[each.name])
        if len(world.steps) in self._stalls or chosen.kind == "sleep":  # who waits lets others go on
            order[chosen.name] = max(order.values()) + 1
            chosen = min(world.parked, key=lambda each: order[each.name])
        return chosen


_GOES_ON_FAILING = 0.7
"""How likely the next request of the same kind fails, too, in an outage."""


class Given:
    """Plays steps again; those that are not possible are left out, and what is left over runs to its end."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = iter(steps)

    def next(self, world: World) -> Step | None:
        """See `Chooser.next`."""
        for who, effect in self._steps:
            if who == POWER_CUT:
                if world.unsynced:
                    return who, effect
            elif effect == DELIVERED:
                if any(late.name == who for late in world.late):
                    return who, effect
            else:
                parked = next((each for each in world.parked if each.name == who), None)
                if parked is not None:
                    return who, effect if effect in world.possible(parked) else OK
        return (world.parked[0].name, OK) if world.parked else None


def possible_steps(world: World, reduced: bool = True) -> list[Step]:
    """The steps that a complete search must try here.

    Where a request is alone, see `independence`, all else can come after it as well: then only the outcomes
    of that request are tried.
    """
    steps: list[Step] = []
    for actor in world.actors if reduced else ():
        for parked in actor.node.parked:
            if is_alone(world, actor, parked):
                return [(parked.name, effect) for effect in (OK, *world.possible(parked))]
    for parked in world.parked:
        steps.append((parked.name, OK))
        steps += [(parked.name, fault) for fault in world.possible(parked)]
    steps += [(late.name, DELIVERED) for late in world.late]
    if world.unsynced and POWER_CUT in world.faults:
        steps.append((POWER_CUT, OK))
    return steps


def play(scenario: Scenario, laid: Laid, chooser: Chooser, tracing: bool = False) -> Played:
    """Run one schedule to its end, or to the first violation."""
    if isinstance(chooser, Given):
        _contents.clear()  # it is to fail again as it did, so nothing is taken as seen
    forget_too_many()
    world, violation = World(scenario, laid, bool(_remembers), tracing), None
    try:
        while (step := chooser.next(world)) is not None:
            go_on(world, step)
    except Violation as error:
        violation = error
    finally:
        world.end()
    return Played(world, violation)


def go_on(world: World, step: Step) -> None:
    """Do a step, and look whether all is well.

    Raises
    ------
    Violation
        If not.
    """
    world.changed = world.deleted = world.buried = False
    if not world.step(*step):
        raise ValueError(f"{step} is not possible after {world.steps}")
    if world.changed:
        observe(world)
    if len(world.steps) > MAX_STEPS:
        raise Violation("progress", f"{MAX_STEPS} steps, and no end")
    if world.waiting():
        raise Violation("progress", f"{', '.join(world.waiting())} wait for ever")


@dataclass(frozen=True, slots=True)
class Played:
    """A schedule that has been run.

    Attributes
    ----------
    world
        As it left it.
    violation
        What it broke, if anything.
    """

    world: World
    violation: Violation | None


def observe(world: World) -> None:
    """Whoever opens the store now, with the hint or without it, sees exactly what the model says."""
    looked = world.visible, world.buried
    if looked in _contents and not (world.deleted or world.torn):
        return
    _contents.keep(looked, True)
    try:
        for world.hide_hint in (False, True):
            _look(world)
    except Violation:
        raise
    except ObjectNotFoundError as error:
        raise Violation("nothing live is deleted", f"a fresh reader met {error}") from error
    except Exception as error:
        raise Violation("open", f"a fresh reader met {type(error).__name__}: {error}") from error
    finally:
        world.hide_hint = False


def _look(world: World) -> None:
    process = Process(99, _OBSERVER, world, at_once=True)
    log = Log(process, process.runtime())
    snapshot = log.refresh()
    version = snapshot.state.version
    holds(
        version == world.history.head,
        "open",
        f"a fresh reader got {version}, the head is {world.history.head}",
    )
    world.history.check_whole(snapshot, world.objects, again=world.torn)
    oldest = oldest_readable(snapshot.state)
    if world.deleted or world.buried:
        kept: Iterable[int] = range(oldest, version)
    else:  # a new commit or hint may lead past the checkpoint that these are read from
        kept = world.history.held() - {version}
    for earlier in kept:
        world.history.check_whole(log.snapshot(version=earlier), world.objects, again=world.torn)


_OBSERVER = ProcessSpec("observer", lambda _: None)


@dataclass
class Found:
    """A schedule that breaks an invariant.

    Attributes
    ----------
    scenario
        Of which scenario.
    seed
        Where it was drawn; None if it was searched.
    schedules
        Schedules tried, this one included.
    steps
        What happens.
    violation
        What goes wrong.
    trace
        The steps as people read them; filled in by `shrink`.
    """

    scenario: Scenario
    seed: int | None
    schedules: int
    steps: list[Step]
    violation: Violation
    trace: list[str] = field(default_factory=list)


@dataclass
class Tally:
    """What a search went through."""

    schedules: int = 0
    steps: int = 0
    states: int = 0
    complete: bool = False
    found: Found | None = None
    report: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)


def search_random(scenario: Scenario, first_seed: int, schedules: int, laid: Laid | None = None) -> Tally:
    """Try schedules drawn from consecutive seeds, up to the first violation."""
    laid = laid or lay(scenario)
    tally = Tally()
    for seed in range(first_seed, first_seed + schedules):
        played = play(scenario, laid, Drawn(seed))
        _count_in(tally, played.world)
        if played.violation is not None:
            tally.found = Found(scenario, seed, tally.schedules, played.world.steps, played.violation)
            break
    return tally


def search_all(
    scenario: Scenario, limit: int | None = None, laid: Laid | None = None, reduced: bool = True
) -> Tally:
    """Try every schedule, up to the first violation; a state met before is not gone through again.

    Goes on from copies of worlds, depth first, so that no step is done twice.

    Parameters
    ----------
    limit
        How many schedules at most.
    reduced
        Whether to leave out orders that differ in nothing, see `independence`.
    """
    tally = Tally()
    world = World(scenario, laid or lay(scenario), bool(_remembers))
    seen = {world.key()}
    open_worlds = [(world, iter(possible_steps(world, reduced)))]
    while open_worlds and (limit is None or tally.schedules < limit):
        world, steps = open_worlds[-1]
        step = next(steps, None)
        if step is None:
            world.end()
            open_worlds.pop()
            continue
        after = world.fork()
        try:
            go_on(after, step)
        except Violation as error:
            _count_in(tally, after)
            tally.found = Found(scenario, None, tally.schedules, after.steps, error)
            break
        key = after.key()
        following = possible_steps(after, reduced) if key not in seen else []
        seen.add(key)
        if not after.parked:
            tally.ends.add(key)
        if following:
            open_worlds.append((after, iter(following)))
        else:
            _count_in(tally, after)
            after.end()
    tally.states = len(seen)
    tally.complete = not open_worlds
    for world, _ in open_worlds:
        world.end()
    return tally


def _count_in(tally: Tally, world: World) -> None:
    tally.schedules += 1
    tally.steps += len(world.steps)
    if world.faults_left != world.scenario.max_faults:
        for _, effect in world.steps:
            if effect != OK:
                tally.faults[effect] = tally.faults.get(effect, 0) + 1


def shrink(found: Found, laid: Laid | None = None, tries: int = 1_000) -> Found:
    """A shorter schedule with fewer faults that breaks the same invariant."""
    laid = laid or lay(found.scenario)
    best, violation = found.steps, found.violation

    def fails(steps: Sequence[Step]) -> bool:
        nonlocal best, violation, tries
        tries -= 1
        if tries < 0:
            return False
        played = play(found.scenario, laid, Given(steps))
        if played.violation is None or played.violation.rule != violation.rule:
            return False
        if _weight(played.world.steps) >= _weight(best):
            return False
        best, violation = played.world.steps, played.violation
        return True

    improved = True
    while improved and tries > 0:
        improved = any(fails(_without_fault(best, index)) for index, (_, e) in enumerate(best) if e != OK)
        size = max(1, len(best) // 2)
        while size:
            start = 0
            while start < len(best):
                if fails(best[:start] + best[start + size :]):
                    improved = True
                else:
                    start += size
            size //= 2
        for index in range(len(best) - 1):  # run on where that makes no difference: fewer switches
            if index + 1 < len(best) and best[index][0] != best[index + 1][0]:
                improved |= fails([*best[:index], best[index + 1], best[index], *best[index + 2 :]])
    trace = play(found.scenario, laid, Given(best), tracing=True).world.trace or []
    return Found(found.scenario, found.seed, found.schedules, best, violation, trace)


def _without_fault(steps: Sequence[Step], index: int) -> list[Step]:
    return [*steps[:index], (steps[index][0], OK), *steps[index + 1 :]]


def _weight(steps: Sequence[Step]) -> tuple[int, int, int]:
    faults = sum(effect not in (OK, DELIVERED) for _, effect in steps)
    switches = sum(one[0] != two[0] for one, two in pairwise(steps))
    return faults, len(steps), switches
