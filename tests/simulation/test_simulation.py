"""Shipped code under a scheduler with faults; see ``docs/testing.md``, also for large runs."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.report import describe, format_steps, parse_steps
from tests.simulation.scenarios import RANDOM, TWO_WRITERS
from tests.simulation.search import Drawn, Given, play, search_all, search_random, shrink, simulation
from tests.simulation.world import Scenario, lay

STEPS = 8_000
"""Taken in each scenario of the usual run, about; `python -m tests.simulation` takes as many as you like."""


@pytest.mark.parametrize("scenario", RANDOM, ids=lambda scenario: scenario.name)
def test_no_drawn_schedule_breaks_an_invariant(scenario: Scenario):
    with simulation():
        tally = search_random(scenario, 0, STEPS // scenario.usual_steps)
        report = describe(shrink(tally.found)) if tally.found else ""

    assert tally.found is None, report
    assert tally.schedules == STEPS // scenario.usual_steps
    assert tally.faults, "no fault ever happened"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
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


def test_no_schedule_of_two_writers_and_a_checkpoint_breaks_an_invariant():
    with simulation():
        tally = search_all(TWO_WRITERS)
        report = describe(shrink(tally.found)) if tally.found else ""

    assert tally.found is None, report
    assert tally.complete
