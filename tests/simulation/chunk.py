"""Schedules drawn by one process of a large run."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from tests.simulation.mutants import MUTANTS
from tests.simulation.report import describe
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.search import Tally, search_random, shrink, simulation
from tests.simulation.world import Laid, lay


@dataclass(frozen=True)
class Chunk:
    """Schedules of one scenario with consecutive seeds, perhaps with a planted bug."""

    scenario: str
    first_seed: int
    schedules: int
    mutant: str | None


def run_chunk(chunk: Chunk) -> Tally:
    """Draw them; what was found is put into words."""
    gc.set_threshold(20_000, 10, 50)
    with simulation():
        laid = lay(SCENARIOS[chunk.scenario])
        with planted(chunk.mutant):
            tally = search_random(SCENARIOS[chunk.scenario], chunk.first_seed, chunk.schedules, laid)
            put_into_words(tally, laid, chunk.mutant)
    return tally


def put_into_words(tally: Tally, laid: Laid, mutant: str | None) -> None:
    """Programs do not go from process to process, but words do."""
    if tally.found is not None:
        tally.report = describe(shrink(tally.found, laid), mutant)
        tally.found = None


def planted(name: str | None) -> AbstractContextManager[None]:
    """Inside, shipped code has the bug of this name, if one is given."""
    return next((mutant.planted() for mutant in MUTANTS if mutant.name == name), nullcontext())
