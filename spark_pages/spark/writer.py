"""``df.write`` and ``df.writeStream`` for the format ``spark_pages``: Spark's classes around `writing`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_pages.spark.writing import TaskRows, WritePlan, commit_write, write_task

_QUERY = "sql.streaming.queryId"


@dataclass
class RowsWritten(WriterCommitMessage):
    """What one task has written.

    Attributes
    ----------
    task
        Where its rows are.
    query
        Id of the streaming query, which stays the same when it is started again from its checkpoint.
    """

    task: TaskRows
    query: str | None = None


def _write(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return RowsWritten(write_task(plan, context.partitionId(), batches), context.getLocalProperty(_QUERY))


class TableWriter(DataSourceArrowWriter):
    """Writes a frame into a table, in one commit."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task are where nothing names them yet."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are in the table."""
        commit_write([each.task for each in messages if isinstance(each, RowsWritten)], self._plan)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is in the table. What tasks have written stays for vacuum: a commit may be in doubt."""


def _of_batch(plan: WritePlan, query: str | None, batch: int) -> WritePlan:
    assert query, "Spark tells tasks of a stream which query it is"
    return replace(plan, options=replace(plan.options, app_id=f"spark-stream-{query}", app_version=batch))


class TableStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch into a table, in one commit, exactly once.

    Parameters
    ----------
    plan
        What tasks do. Spark makes one writer where it plans and another where it commits: what counts is the
        plan that the tasks were given.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task are where nothing names them yet."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch is in the table, once: a batch that Spark repeats is found in the log by query and
        number.
        """
        told = [each for each in messages if isinstance(each, RowsWritten)]
        commit_write(
            [replace(each.task, plan=_of_batch(each.task.plan, each.query, batchId)) for each in told]
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing of the batch is in the table."""
