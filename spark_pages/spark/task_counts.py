"""What executors have done so far, for the progress of the driver."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from spark_pages.progress import Phase

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Units and bytes that tasks have done; the driver sees those of a task when it has ended.

    Notes
    -----
    A task that is run twice counts twice: for progress alone, never for a result.
    """

    units: Accumulator[int]
    size_bytes: Accumulator[int]

    @classmethod
    def of(cls, context: SparkContext, phase: Phase) -> Self:
        """Return counts that tasks take along, and that the phase of the driver shows."""
        counts = cls(context.accumulator(0), context.accumulator(0))
        phase.follow(lambda: (counts.units.value, counts.size_bytes.value))
        return counts

    def add(self, units: int, num_bytes: int) -> None:
        """Count what this task has done."""
        self.units.add(units)
        self.size_bytes.add(num_bytes)


def spark_tasks() -> str:
    """Return how many tasks of the running stages are done, such as ``12 of 200 Spark tasks``, or nothing."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark is not None else None
    if context is None:
        return ""
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    except Exception:  # noqa: BLE001 - a JVM that ends meanwhile is told by the job itself
        return ""
    known = [each for each in stages if each is not None]
    total = sum(each.numTasks for each in known)
    return f"{sum(each.numCompletedTasks for each in known):,} of {total:,} Spark tasks" if total else ""
