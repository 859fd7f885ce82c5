"""Charts of a store: chains, compactions, the log, the requests of a read, and its cache hits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.display import request_charts as drawing
from spark_pages.display.canvas import Picture
from spark_pages.display.chain_strip import ColumnEffect, chain_strip, compaction_effect
from spark_pages.display.log_lane import CommitKind, LoggedTransactions, log_lane
from spark_pages.display.request_charts import cache_calls
from spark_pages.format.names import LOG
from spark_pages.io import CacheStats
from spark_pages.model.chain_drawing import lane_of
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime
from spark_pages.storage import TimedRequest, TimedStore
from spark_pages.store import Store


def chain(table: Table, column: str, before: Table | None = None) -> Picture:
    """Draw the chain of a column: x is the row, each box a page, coloured by its file.

    Parameters
    ----------
    table
        As of a version.
    before
        The same table as of another version, for a second lane; pages that it lacks are marked.

    Raises
    ------
    ColumnNotFoundError

    Notes
    -----
    Loads the descriptors of the whole chain, and no page. Of a chain with many pages what falls on a few
    pixels is drawn as one, so that the picture stays small.
    """
    shown = [table] if before is None else [table, before]
    lanes = [lane_of(_version(each), [each.directory.chain(column).all_pages()]) for each in shown]
    return chain_strip(f"{table.name}.{column}", lanes)


def compaction(before: Table, after: Table) -> Picture:
    """Pages and bytes of each column at two versions of a table.

    Notes
    -----
    Loads all descriptors of both versions, and no page.
    """
    then, now = _by_column(before), _by_column(after)
    effects = []
    for name, (pages, size_bytes) in now.items():
        pages_before, bytes_before = then.get(name, (0, 0))
        effects.append(ColumnEffect(name, pages_before, pages, bytes_before, size_bytes))
    return compaction_effect(f"{after.name}: {_version(before)} → {_version(after)}", effects)


def _by_column(table: Table) -> dict[str, tuple[int, int]]:
    """Pages and stored bytes of each column, in the order of the columns."""
    found = {}
    for name in table.columns:
        pages = table.directory.chain(name).all_pages()
        found[name] = (pages.num_pages, int(pages.numbers("actual_len").sum()))
    return found


def _version(table: Table) -> str:
    return "no version" if table.version is None else f"version {table.version:,}"


def cache(calls: Mapping[str, CacheStats] | Iterable[CacheStats], title: str = "page cache") -> Picture:
    """Draw a bar for each call, by the cache tier of its pages.

    Parameters
    ----------
    calls
        What each call took, by its name or without names: ``store.cache_stats`` after it less that before it.
    """
    labels = [str(name) for name in calls] if isinstance(calls, Mapping) else []
    spent = list(calls.values() if isinstance(calls, Mapping) else calls)
    tiers = [[s.decoded_hits, s.compressed_hits, s.disk_hits, s.joined, s.misses] for s in spent]
    pages = np.array(tiers, dtype=np.int64).reshape(-1, 5)
    return cache_calls(title, pages, np.array([s.bytes_read for s in spent], dtype=np.int64), labels)


MOST_TRANSACTIONS = 1_000
_KEEPING = ("claim rows", "release claims", "lease", "release", "tag", "delete tag", "vacuum", "repair")


def log(store: Store, limit: int | None = MOST_TRANSACTIONS) -> Picture:
    """Draw commits on a time axis, rebases as arcs from the read version, and checkpoints below.

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
    """Draw the log from a history that was read already, in any order, and the newest checkpoint."""
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
    """Return a column of numbers, with -1 for nulls, such as the rows of a truncate."""
    column = history.column(name).combine_chunks().cast(pa.int64())
    found: NDArray[np.int64] = column.fill_null(-1).to_numpy(zero_copy_only=False)
    return found


def waterfall(store: Store, question: Callable[[Store], object], title: str = "requests") -> Picture:
    """Draw the requests that a reader without caches makes for a question: one line each, by time.

    Parameters
    ----------
    store
        Where it is. It is opened anew, with empty caches, and not read through its own.
    question
        Told the store that was opened; such as ``lambda s: s.snapshot().table("flights").take([5])``.

    Notes
    -----
    Asks the question. A store on a local disk is read as a remote one is, request by request; the times are
    those of this disk.
    """
    clock_s = Runtime().monotonic_s
    timed = TimedStore(store.object_store, clock_s)
    start_s = clock_s()
    question(Store(timed))
    total_s = clock_s() - start_s
    return drawing.waterfall(title, [_shown(each, start_s) for each in timed.requests], total_s)


def _shown(request: TimedRequest, start_s: float) -> drawing.ShownRequest:
    place = "" if request.offset is None else f" @ {request.offset:,}"
    return drawing.ShownRequest(
        what=_kind(request.key),
        key=f"{request.key}{place}",
        start_s=request.start_s - start_s,
        end_s=request.end_s - start_s,
        size_bytes=request.size_bytes,
        failed=request.failed,
    )


def _kind(key: str) -> str:
    if not key.startswith(LOG):
        return "pages"
    return "commit" if key.endswith(".avro") or key.startswith(f"{LOG}manifests/") else "checkpoint"
