"""Shipped code under a scheduler with faults; see ``docs/testing.md``, also for large runs."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.effort import LONG, SLOW
from tests.simulation.chunk import planted
from tests.simulation.independence import NONE, Footprint
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.report import describe, format_steps, parse_steps
from tests.simulation.scenarios import RANDOM, TWO_WRITERS, TWO_WRITERS_AND_ORPHANS, TWO_WRITERS_AND_VACUUM
from tests.simulation.search import Drawn, Given, play, search_all, search_random, shrink, simulation
from tests.simulation.world import Scenario, lay

TESTING = Path(__file__).parents[2] / "docs" / "testing.md"

slow = partial(pytest.param, marks=pytest.mark.slow)

STEPS = 8_000 if SLOW else 4_000
"""Taken in each scenario, about; `python -m tests.simulation` takes as many as you like."""

FAULTS = 1 if LONG else 0
"""Of a complete search with a vacuum: with one it takes minutes."""

WITH_A_VACUUM = replace(TWO_WRITERS_AND_VACUUM, max_faults=FAULTS)
FOUND_WITH_A_VACUUM = (
    "a tombstone is an empty slot",
    "slots are deleted",
    "vacuum deletes before it commits",
    "a checkpoint is not read back",
    "the hint is the head",
    "no read-back after doubt",
    "exists is taken for a conflict",
    "goes on while its own put may land",
)


@pytest.mark.sampled
@pytest.mark.parametrize("scenario", RANDOM, ids=lambda scenario: scenario.name)
def test_no_drawn_schedule_breaks_an_invariant(scenario: Scenario):
    with simulation():
        tally = search_random(scenario, 0, STEPS // scenario.usual_steps)
        report = describe(shrink(tally.found)) if tally.found else ""

    assert tally.found is None, report
    assert tally.schedules == STEPS // scenario.usual_steps
    assert tally.faults, "no fault ever happened"


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if not each.steps], ids=lambda mutant: mutant.name
)
def test_every_planted_bug_is_found(mutant: Mutant):
    with simulation():
        laid = lay(mutant.scenario)
        with mutant.planted():
            found = search_random(mutant.scenario, mutant.seed, mutant.schedules, laid).found

            assert found is not None, f"{mutant.schedules} schedules did not find it"
            shortest = shrink(found, laid, tries=100)
            again = play(mutant.scenario, laid, Given(parse_steps(format_steps(shortest.steps))))

    assert again.violation is not None
    assert again.violation.rule == found.violation.rule
    assert len(shortest.steps) <= len(found.steps)
    assert str(shortest.violation) in describe(shortest)


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.steps], ids=lambda mutant: mutant.name)
def test_a_planted_bug_that_hardly_any_schedule_finds_is_found_by_its_own(mutant: Mutant):
    steps = parse_steps(mutant.steps)
    with simulation():
        laid = lay(mutant.scenario)
        sound = play(mutant.scenario, laid, Given(steps))
        with mutant.planted():
            broken = play(mutant.scenario, laid, Given(steps))

    assert sound.violation is None
    assert broken.violation is not None
    assert broken.violation.rule == "no ghost"


def test_the_table_of_planted_bugs_names_every_one():
    told = TESTING.read_text().partition("## Planted bugs")[2].partition("\n## ")[0]
    table = [line for line in told.splitlines() if line.startswith("| ")][1:]

    names = [name for line in table for name in re.findall(r"`([^`]+)`", line.split(" | ")[1])]

    assert sorted(names) == sorted(mutant.name for mutant in MUTANTS)


def test_the_same_seed_gives_the_same_schedule_with_and_without_memory():
    def schedules(remember: bool) -> list[object]:
        with simulation(remember):
            worlds = [
                play(scenario, lay(scenario), Drawn(seed), tracing=True).world
                for scenario in RANDOM
                for seed in range(2)
            ]
        return [(world.steps, world.trace, sorted(world.objects)) for world in worlds]

    assert schedules(remember=True) == schedules(remember=False)


@pytest.mark.timeout(1_800 if LONG else 300)
@pytest.mark.parametrize(
    "scenario",
    [TWO_WRITERS, slow(WITH_A_VACUUM), slow(TWO_WRITERS_AND_ORPHANS)],
    ids=lambda scenario: scenario.name,
)
def test_no_schedule_at_all_of_a_small_scenario_breaks_an_invariant(scenario: Scenario):
    with simulation():
        tally = search_all(scenario)
        report = describe(shrink(tally.found)) if tally.found else ""

    assert tally.found is None, report
    assert tally.complete


@pytest.mark.parametrize(
    "scenario",
    [
        TWO_WRITERS,
        slow(replace(TWO_WRITERS_AND_VACUUM, max_faults=0)),
        replace(WITH_A_VACUUM, processes=WITH_A_VACUUM.processes[1:]),
    ],
    ids=("two writers", "vacuum without faults", "one writer and vacuum"),
)
def test_a_complete_search_reaches_all_ends_although_it_leaves_out_orders(scenario: Scenario):
    with simulation():
        laid = lay(scenario)
        some = search_all(scenario, laid=laid)
        every = search_all(scenario, laid=laid, reduced=False)

    assert some.complete
    assert every.complete
    assert some.ends == every.ends
    assert some.schedules < every.schedules


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        *((TWO_WRITERS_AND_VACUUM, name) for name in FOUND_WITH_A_VACUUM),
        (TWO_WRITERS_AND_ORPHANS, "vacuum without an epoch"),
    ],
    ids=lambda given: getattr(given, "name", given),
)
def test_planted_bugs_are_found_by_a_complete_search(scenario: Scenario, name: str):
    with simulation():
        laid = lay(scenario)
        with planted(name):
            tally = search_all(scenario, limit=2_000, laid=laid)

    assert tally.found is not None


def test_a_request_that_a_process_has_not_declared_is_noticed():
    silent = replace(TWO_WRITERS.processes[0], footprint=Footprint(makes=NONE, changes=NONE))
    with simulation(), pytest.raises(AssertionError, match="counter makes _log/"):
        search_all(replace(TWO_WRITERS, processes=(silent, *TWO_WRITERS.processes[1:])))
