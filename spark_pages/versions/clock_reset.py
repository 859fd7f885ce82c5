"""The clock of a store: the way back after a commit whose clock was far ahead."""

from __future__ import annotations

from spark_pages.errors import CommitConflictError
from spark_pages.log.commit.protocol_types import Duplicate
from spark_pages.log.commit_times import ClockReset, dated, with_reset
from spark_pages.log.log import Log
from spark_pages.log.state import LogState
from spark_pages.model.actions import TransactionRecord
from spark_pages.runtime import Runtime, writer_name

_FAR_OFF_US = 60_000_000
"""Newest commits that are less far ahead are left as they are."""


def reset_clock(log: Log, runtime: Runtime) -> int:
    """Commit a reset of the clock and return its version; see `Store.reset_clock`."""
    head = log.refresh()
    if not _is_ahead(head.state, runtime.now_us()):
        return head.state.version
    token = runtime.token()

    def build(state: LogState) -> TransactionRecord | Duplicate:
        now_us = runtime.now_us()
        if not _is_ahead(state, now_us):
            return Duplicate(state.version)
        recorded_us = state.timestamp_us + 1  # what the commit will record: its clock is behind that
        reset = ClockReset(state.version + 1, now_us, recorded_us - now_us)
        return TransactionRecord(
            token=token,
            operation="reset clock",
            parameters={"seconds_ahead": str(reset.ahead_us // 1_000_000)},
            read_version=head.state.version,
            writer=writer_name(),
            properties=with_reset(state.properties, reset),
        )

    try:
        return log.commit(head, build).version
    except CommitConflictError:
        head = log.refresh()
        if _is_ahead(head.state, runtime.now_us()):
            raise
        return head.state.version  # another one has reset it


def _is_ahead(state: LogState, now_us: int) -> bool:
    return dated(state.properties, state.version, state.timestamp_us) - now_us > _FAR_OFF_US
