"""A model of writers that take turns (`spark_pages.log.fairness`), without storage and processes.

    python -m benchmarks.log.turns --writers 8 --latency 0.02 --cpu 0.0012

Each writer commits in a closed loop. A request takes effect half way through its latency. The waits are those
that the shipped `turns` and `Backoff` say. Their numbers were chosen by running this on many sets of them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Generator
from dataclasses import replace

from benchmarks.log.writers import summary
from spark_pages.log.commit.driver import Backoff
from spark_pages.log.fairness import (
    COMMIT_TURNS,
    NOBODY,
    SLOW,
    CommitSchedule,
    CommitTurn,
    is_for_slow,
    is_lagging,
    schedule,
    should_recheck,
    with_commit,
)
from spark_pages.runtime import Runtime


class Model:
    """Writers on one log, and a clock that jumps from event to event.

    Parameters
    ----------
    latency_s, cpu_s
        What a request takes, and what a commit takes beside it.
    fair
        Whether turns are of one commit each.
    seed
        Of all chance.
    """

    def __init__(self, latency_s: float, cpu_s: float, fair: bool, seed: int) -> None:
        self._latency_s = latency_s
        self._cpu_s = cpu_s
        self._properties = {COMMIT_TURNS: "fair"} if fair else {}
        self._random = random.Random(seed)
        self._now = 0.0
        self._slots: list[tuple[str, int]] = []
        self.requests = 0

    def run(
        self, writers: int, seconds: float, late: int = 0, behind: int = 0, slow: float = 1.0
    ) -> list[list[float]]:
        """Seconds that each commit of each writer took.

        Parameters
        ----------
        late
            So many of the writers, the last ones, begin at half of the time.
        behind
            So many of the newest commits these do not know then.
        slow
            Requests of the last writer take so many times as long.
        """
        done: list[list[float]] = [[] for _ in range(writers)]
        events = [
            (
                (i >= writers - late) * seconds / 2 + self._random.random() / 100,
                i,
                self._write(str(i), done[i], behind, self._latency_s * (slow if i == writers - 1 else 1.0)),
            )
            for i in range(writers)
        ]
        heapq.heapify(events)
        while events[0][0] < seconds:
            self._now, number, writer = heapq.heappop(events)
            heapq.heappush(events, (self._now + next(writer), number, writer))
        return done

    def _write(
        self, name: str, took: list[float], behind: int, latency_s: float
    ) -> Generator[float, None, None]:
        runtime = replace(Runtime(), monotonic_s=lambda: self._now, jitter=self._random.random)
        pace = Backoff(runtime)
        turns: tuple[CommitTurn, ...] = ()
        known = max(0, len(self._slots) - behind)
        while True:
            began, arrived = self._now, known - 1
            tries = 0
            while True:
                late, knows_head, looks, gave_way = is_lagging(tries), tries < 2, 0, -1
                while True:
                    if not late and gave_way != known and is_for_slow(turns, self._properties):
                        yield pace.for_newcomers(SLOW)
                        pace.head_moved()
                        gave_way = known
                    first = NOBODY if late else schedule(turns, self._properties, name, arrived)
                    if not first.writers and knows_head:
                        break
                    came = yield from self._let_others(pace, first, known, latency_s)
                    if not came:
                        break
                    turns = self._learn(turns, known, came)
                    known += came
                    looks += 1
                    knows_head = not late or not should_recheck(came, looks)
                yield self._cpu_s * (0.7 + 0.6 * self._random.random())
                asked = self._now
                tries += 1
                won = yield from self._create(known, name, arrived, latency_s)
                pace.create_took(self._now - asked)
                if not won:
                    yield from self._read(known, 1, latency_s)
                pace.head_moved()
                turns = self._learn(turns, known, 1)
                known += 1
                if won:
                    break
                yield pace.after_loss(tries)
            took.append(self._now - began)

    def _learn(self, turns: tuple[CommitTurn, ...], known: int, came: int) -> tuple[CommitTurn, ...]:
        for version in range(known, known + came):
            turns = with_commit(turns, version, *self._slots[version])
        return turns

    def _let_others(
        self, pace: Backoff, first: CommitSchedule, known: int, latency_s: float
    ) -> Generator[float, None, int]:
        if first.unknown:
            yield pace.for_newcomers(first)
            return 0
        expected = min(7, max(1, first.commits + first.writers - 1)) if first.writers else 7
        count = expected + 1
        for wait_s in pace.for_turn(first) if first.writers else (0.0,):
            yield wait_s
            came = yield from self._read(known, count, latency_s)
            if came:
                pace.head_moved()
                more = came > expected
                while more:
                    found = yield from self._read(known + came, 8, latency_s)
                    came, more = came + found, found == 8
                return came
            count = 1
        return 0

    def _create(self, slot: int, name: str, read: int, latency_s: float) -> Generator[float, None, bool]:
        self.requests += 1
        yield latency_s / 2
        won = len(self._slots) == slot
        if won:
            self._slots.append((name, read))
        yield latency_s / 2
        return won

    def _read(self, first: int, count: int, latency_s: float) -> Generator[float, None, int]:
        self.requests += count
        yield latency_s / 2
        found = min(count, len(self._slots) - first)
        yield latency_s / 2 + found * self._cpu_s / 4
        return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--cpu", type=float, default=0.0012)
    parser.add_argument("--fair", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model = Model(args.latency, args.cpu, args.fair, args.seed)
    found = summary(model.run(args.writers, args.seconds), args.seconds)
    commits = found["per_second"] * args.seconds
    print(json.dumps({**found, "requests_a_commit": round(model.requests / commits, 1)}, indent=1))


if __name__ == "__main__":
    main()
