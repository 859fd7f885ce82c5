"""What executors have done so far, for the progress of the driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from spark_pages.progress import Phase, is_reporting
from spark_pages.runtime import Runtime

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession


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


@contextmanager
def following_jobs(spark: SparkSession, phase: Phase, side: Literal["input", "output"]) -> Iterator[None]:
    """Show in a phase the records and bytes that the JVM reads or writes in the jobs of the block.

    Notes
    -----
    Executors report at the end of a task. A session of Spark Connect has no context to ask, and shows
    nothing.
    """
    context = getattr(spark, "_sc", None)
    if context is None or not is_reporting():
        yield
        return
    tag = f"spark_pages-{Runtime().token()}"
    context.addJobTag(tag)
    phase.follow(_JobCounts(context._jsc.sc(), tag, side))
    try:
        yield
    finally:
        context.removeJobTag(tag)


class _JobCounts:
    """What the stages of all jobs with a tag have read or written so far."""

    def __init__(self, context: Any, tag: str, side: str) -> None:
        self._context = context
        self._tag = tag
        self._side = side
        self._last = (0, 0)

    def __call__(self) -> tuple[int, int]:
        with suppress(Exception):  # a JVM that ends, or has forgotten a stage: the last counts stay
            self._last = self._counted()
        return self._last

    def _counted(self) -> tuple[int, int]:
        tracker, statuses = self._context.statusTracker(), self._context.statusStore()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(self._tag)]
        stages = {stage for job in jobs if job.isDefined() for stage in job.get().stageIds()}
        told = [statuses.lastStageAttempt(stage) for stage in stages]
        records, size_bytes = f"{self._side}Records", f"{self._side}Bytes"
        return (
            sum(getattr(each, records)() for each in told),
            sum(getattr(each, size_bytes)() for each in told),
        )


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
