"""The picture of the log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.display.canvas import Picture
from spark_pages.display.log_lane import CommitKind, LoggedTransactions, log_lane
from spark_pages.store import Store

MOST_TRANSACTIONS = 1_000
_KEEPING = ("claim rows", "release claims", "lease", "release", "tag", "delete tag", "vacuum", "repair")


def log(store: Store, limit: int | None = MOST_TRANSACTIONS) -> Picture:
    """Commits on a time axis, rebases as arcs from the version that was read, checkpoints below.

    Parameters
    ----------
    limit
        Number of rows of the history at most, the newest; None shows all that can be read.

    Notes
    -----
    Reads these commits, as `Store.history` does.
    """
    return log_of(store.url, store.history(limit), newest_checkpoint(store))


def newest_checkpoint(store: Store) -> int | None:
    """Version of the newest checkpoint; commits tell of those that were there before them."""
    newest = store.snapshot().log.state.newest_checkpoint
    return None if newest is None else newest.version


def log_of(title: str, history: pa.Table, checkpoint: int | None) -> Picture:
    """The same of a history that was read already, in any order, and the newest checkpoint."""
    history = history.filter(history.column("transaction").is_valid()).sort_by([("version", "ascending")])
    numbers = {name: _numbers(history, name) for name in history.column_names if _is_number(history, name)}
    rows = numbers["rows_added"] + numbers["rows_updated"] + np.abs(numbers["rows_removed"])
    pages = numbers["pages_added"] + numbers["pages_removed"]
    keeping = np.array([each in _KEEPING for each in history.column("operation").to_pylist()], dtype=bool)
    kinds = np.select(
        [rows > 0, pages > 0, ~keeping],
        [CommitKind.ROWS, CommitKind.PAGES, CommitKind.TABLES],
        CommitKind.OTHER,
    )
    # Times of commits increase; clocks that were put back would turn the axis around.
    times = np.maximum.accumulate(numbers["timestamp"]) if len(history) else numbers["timestamp"]
    checkpoints = numbers["checkpoint"][history.column("checkpoint").is_valid().to_numpy()]
    newest = [] if checkpoint is None else [checkpoint]
    return log_lane(
        title,
        LoggedTransactions(
            versions=numbers["version"],
            read_versions=numbers["read_version"],
            times_us=times,
            kinds=kinds.astype(np.int8),
            checkpoints=np.unique(np.concatenate([checkpoints, np.array(newest, np.int64)])),
        ),
    )


def _is_number(history: pa.Table, name: str) -> bool:
    kind = history.schema.field(name).type
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def _numbers(history: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of numbers; -1 where there is none, as for the rows that a truncate removes."""
    column = history.column(name).combine_chunks().cast(pa.int64())
    found: NDArray[np.int64] = column.fill_null(-1).to_numpy(zero_copy_only=False)
    return found
