"""How much a test tries: little in `make test`, the usual in `make test-slow`, most in a long run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

Value = TypeVar("Value")

_RUN = os.environ.get("SPARK_PAGES_TESTS", "")

LONG = _RUN == "long"
"""A run of hours that hunts for what nobody has seen yet; asked for by `SPARK_PAGES_TESTS=long`."""

SLOW = _RUN == "slow" or LONG
"""A run that may take its time; `make test-slow` sets `SPARK_PAGES_TESTS=slow`."""


def examples(usual: int) -> int:
    """Return how many examples to draw: a sixth of the usual number in `make test`, and at least three."""
    return usual if SLOW else max(usual // 6, min(usual, 3))


def some(values: Sequence[Value], every: int, first: int = 0) -> Sequence[Value]:
    """Return all values, but in `make test` each n-th alone; the test bears the marker `sampled`.

    Parameters
    ----------
    every
        The n.
    first
        Where to begin: a number of the case, so that all cases together try every value.
    """
    return values if SLOW else values[first % every :: every]


def run_machine(
    machine: type[RuleBasedStateMachine], usual: int, steps: int, *, shrinks: bool = True
) -> None:
    """Run a state machine: 400 examples of 40 steps in a long run, else `examples(usual)` of so many steps.

    Parameters
    ----------
    machine
        What to run. Its test bears the marker `sampled`, so that `make test-slow` runs it, too.
    usual
        Number of examples in `make test-slow`.
    steps
        Steps of an example, at most.
    shrinks
        Whether a failure is shortened outside a long run; where that takes minutes, it is not.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(400) if LONG else examples(usual),
            stateful_step_count=40 if LONG else steps,
            deadline=None,
            phases=list(Phase) if LONG or shrinks else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
