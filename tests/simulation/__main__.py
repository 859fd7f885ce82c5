"""Large runs: ``python -m tests.simulation --help``."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from multiprocessing import get_context

from tests.simulation.chunk import Chunk, planted, put_into_words, run_chunk
from tests.simulation.mutants import MUTANTS
from tests.simulation.report import parse_steps
from tests.simulation.scenarios import EXHAUSTIVE, RANDOM, SCENARIOS
from tests.simulation.search import Given, Tally, play, search_all, simulation
from tests.simulation.world import lay

_CHUNK = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where no schedule breaks an invariant."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000, help="how many to draw, over all scenarios")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; schedules have consecutive ones")
    parser.add_argument("--jobs", type=int, default=1, help="processes that draw schedules")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, action="append", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--exhaustive", action="store_true", help="go through all schedules of small scenarios"
    )
    parser.add_argument("--steps", help="play these steps of the one --scenario again, and print them")
    parser.add_argument("--mutant", choices=[m.name for m in MUTANTS], help="with this bug planted")
    options = parser.parse_args(arguments)
    if options.steps is not None:
        return _play(options)
    began = time.monotonic()
    tallies = _exhaustive(options) if options.exhaustive else _random(options)
    failed = False
    total = 0
    for name, tally in tallies:
        total += tally.schedules
        if tally.report:
            failed = True
            print(tally.report)
            break
        if options.exhaustive:
            complete = "complete" if tally.complete else "cut short"
            print(f"{name}: {tally.schedules:,} schedules, {tally.states:,} states, {complete}", flush=True)
        elif total % (5 * _CHUNK) == 0:
            print(f"{total:,} schedules, {total / (time.monotonic() - began):,.0f} a second", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{total:,} schedules in {seconds:,.0f} s ({total / seconds:,.0f} a second): "
        f"{'a violation' if failed else 'no violation'}"
    )
    return int(failed)


def _random(options: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    names = options.scenario or [scenario.name for scenario in RANDOM]
    chunks: list[Chunk] = []
    left = dict.fromkeys(names, options.seed)
    for name in cycle(names):
        size = min(_CHUNK, options.schedules - sum(chunk.schedules for chunk in chunks))
        if size <= 0:
            break
        chunks.append(Chunk(name, left[name], size, options.mutant))
        left[name] += size
    if options.jobs == 1:
        return ((chunk.scenario, run_chunk(chunk)) for chunk in chunks)
    return _parallel(chunks, options.jobs)


def _parallel(chunks: Sequence[Chunk], jobs: int) -> Iterator[tuple[str, Tally]]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for chunk, tally in zip(chunks, pool.map(run_chunk, chunks), strict=True):
            yield chunk.scenario, tally
            if tally.report:
                pool.shutdown(wait=False, cancel_futures=True)
                return


def _exhaustive(options: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    for scenario in [SCENARIOS[name] for name in options.scenario] if options.scenario else EXHAUSTIVE:
        gc.set_threshold(20_000, 10, 50)
        with simulation():
            laid = lay(scenario)
            with planted(options.mutant):
                tally = search_all(scenario, laid=laid)
                put_into_words(tally, laid, options.mutant)
        yield scenario.name, tally


def _play(options: argparse.Namespace) -> int:
    if not options.scenario or len(options.scenario) != 1:
        print("--steps needs exactly one --scenario", file=sys.stderr)
        return 2
    scenario = SCENARIOS[options.scenario[0]]
    with simulation():
        laid = lay(scenario)
        with planted(options.mutant):
            played = play(scenario, laid, Given(parse_steps(options.steps)), tracing=True)
    print("\n".join(f"{number:4}  {line}" for number, line in enumerate(played.world.trace or [], 1)))
    print(played.violation or "no violation")
    return int(played.violation is not None)


if __name__ == "__main__":
    sys.exit(main())
