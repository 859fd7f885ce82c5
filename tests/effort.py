"""How much a test tries: little in `make test`, the usual in `make test-slow`, most in a long run."""

from __future__ import annotations

import os

_RUN = os.environ.get("SPARK_PAGES_TESTS", "")

LONG = _RUN == "long"
"""A run of hours that hunts for what nobody has seen yet; asked for by `SPARK_PAGES_TESTS=long`."""

SLOW = _RUN == "slow" or LONG
"""A run that may take its time; `make test-slow` sets `SPARK_PAGES_TESTS=slow`."""


def examples(usual: int) -> int:
    """Return how many examples to draw: a quarter of the usual number in `make test`, and at least five."""
    return usual if SLOW else max(usual // 4, min(usual, 5))
