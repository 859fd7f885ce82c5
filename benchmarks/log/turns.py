"""A model of writers that take turns (`spark_pages.log.pacing`), without storage and processes.

    python -m benchmarks.log.turns --writers 8 --latency 0.02 --cpu 0.0012

Each writer commits in a closed loop. A request takes effect half way through its latency. The waits are those
that the shipped `Pace` says. The numbers in `pacing.py` were chosen by running this on many sets of them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Generator
from dataclasses import replace

from benchmarks.log.writers import summary
from spark_pages.log.pacing import Pace
from spark_pages.runtime import Runtime

_FIRST_ROUND = 8


class Model:
    """Writers on one log, and a clock that jumps from event to event.

    Parameters
    ----------
    latency_s, cpu_s
        What a request takes, and what a commit takes beside it.
    seed
        Of all chance.
    """

    def __init__(self, latency_s: float, cpu_s: float, seed: int) -> None:
        self._latency_s = latency_s
        self._cpu_s = cpu_s
        self._random = random.Random(seed)
        self._now = 0.0
        self._head = 0

    def run(self, writers: int, seconds: float) -> list[list[float]]:
        """Seconds that each commit of each writer took."""
        done: list[list[float]] = [[] for _ in range(writers)]
        events = [(self._random.random() / 100, i, self._write(done[i])) for i in range(writers)]
        heapq.heapify(events)
        while events[0][0] < seconds:
            self._now, number, writer = heapq.heappop(events)
            heapq.heappush(events, (self._now + next(writer), number, writer))
        return done

    def _write(self, took: list[float]) -> Generator[float, None, None]:
        runtime = replace(Runtime(), monotonic_s=lambda: self._now, jitter=self._random.random)
        pace = Pace(runtime)
        known = 0
        while True:
            began = self._now
            yield pace.before_first_try()
            tries = 0
            while True:
                yield self._cpu_s * (0.7 + 0.6 * self._random.random())
                asked = self._now
                tries += 1
                won = yield from self._create(known + 1)
                pace.create_took(self._now - asked)
                known += 1
                if won:
                    break
                yield self._latency_s  # reads the slot
                yield pace.after_loss(tries)
                if tries > 1:
                    known = yield from self._read_tail(known)
            took.append(self._now - began)

    def _create(self, slot: int) -> Generator[float, None, bool]:
        yield self._latency_s / 2
        won = self._head == slot - 1
        self._head = max(self._head, slot)
        yield self._latency_s / 2
        return won

    def _read_tail(self, known: int) -> Generator[float, None, int]:
        size = _FIRST_ROUND
        while True:
            yield self._latency_s / 2
            found = min(size, self._head - known)
            yield self._latency_s / 2
            known += found
            if found < size:
                return known
            size *= 2


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--cpu", type=float, default=0.0012)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    done = Model(args.latency, args.cpu, args.seed).run(args.writers, args.seconds)
    print(json.dumps(summary(done, args.seconds), indent=1))


if __name__ == "__main__":
    main()
