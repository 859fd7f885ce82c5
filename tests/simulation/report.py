"""A schedule as people read it, and as they play it again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tests.simulation.process import OK
from tests.simulation.search import Found
from tests.simulation.world import Step


def describe(found: Found, mutant: str | None = None) -> str:
    """What goes wrong, step by step, and the command that shows it again."""
    drawn = "" if found.seed is None else f" (seed {found.seed})"
    planted = f" --mutant {mutant!r}" if mutant else ""
    lines = [
        f"{found.violation}",
        f"scenario {found.scenario.name!r}{drawn}, found after {found.schedules:,} schedules, shortened to "
        f"{len(found.steps)} steps:",
        *(f"{number:4}  {line}" for number, line in enumerate(found.trace, 1)),
        "again:",
        f"  python -m tests.simulation --scenario {found.scenario.name!r}{planted} "
        f"--steps {format_steps(found.steps)!r}",
    ]
    if found.seed is not None:
        lines.append(
            f"  python -m tests.simulation --scenario {found.scenario.name!r}{planted} --seed {found.seed} "
            f"--schedules 1"
        )
    return "\n".join(lines)


def format_steps(steps: Sequence[Step]) -> str:
    """Steps in one line: ``reader*3; writer=late`` is three steps of a reader, then a fault."""
    parts = []
    for (who, effect), group in groupby(steps):
        count = len(list(group))
        parts += [f"{who}*{count}"] if effect == OK else [f"{who}={effect}"] * count
    return "; ".join(parts)


def parse_steps(text: str) -> list[Step]:
    """The steps of such a line."""
    steps: list[Step] = []
    for part in text.split("; "):
        who, is_fault, effect = part.partition("=")
        if is_fault:
            steps.append((who, effect))
        elif part:
            name, _, count = part.rpartition("*")
            steps += [(name, OK)] * int(count)
    return steps
