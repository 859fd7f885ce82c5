"""The steps that need no Spark: write, read exactly, correct, travel in time, checkpoint, reopen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import spark_pages
from spark_pages.cli.demo.flights import MONTHS, TABLES, Flights
from spark_pages.cli.demo.report import Report
from spark_pages.display.text import count, size
from spark_pages.io import ReadTrace
from spark_pages.query.table import Table
from spark_pages.storage import MeteredStore, open_object_store
from spark_pages.store import Store

LATE_FLIGHTS = 5
_WRONG_ROWS = [12_345, 12_346, 200_000]
_PAGE_ALIGNMENT = 4096


@dataclass(slots=True)
class Tour:
    """What one step leaves to the next.

    Attributes
    ----------
    path
        Folder of the store.
    expected
        What the flights must be now, kept in memory from the source on.
    ingested, ingested_version
        The flights and the version after the last month.
    """

    path: Path
    report: Report
    source: Flights
    expected: pa.Table = None
    ingested: pa.Table = None
    ingested_version: int = -1

    @property
    def url(self) -> str:
        """Address of the store."""
        return str(self.path)

    @property
    def shown_path(self) -> str:
        """The same, short enough to type."""
        relative = os.path.relpath(self.path)
        return relative if len(relative) < len(self.url) else self.url


def ingest(tour: Tour) -> None:
    """Five tables are made in one commit, and filled by twelve, one for each month."""
    report = tour.report
    with report.step("ingest", "Write: five tables, twelve commits over several tables at once"):
        store = spark_pages.create(tour.url)
        with store.transaction("create tables") as txn:
            for name in TABLES:
                txn.create_table(name, tour.source.tables[name].schema)
        versions: list[int] = []
        for month in report.track(MONTHS, len(MONTHS), "ingest"):
            with store.transaction("ingest", parameters={"month": f"2013-{month:02}"}) as txn:
                for name, rows in tour.source.of_month(month).items():
                    txn.append(name, rows)
            versions.append(txn.version or 0)
        snapshot = store.snapshot()
        tour.expected = tour.ingested = tour.source.tables["flights"]
        tour.ingested_version = snapshot.version
        descriptors = pa.concat_tables([snapshot.table(name).pages() for name in TABLES])
        in_files = descriptors.filter(pc.not_equal(descriptors.column("path"), ""))
        offsets = in_files.column("offset").to_numpy()
        raw = sum(tour.source.tables[name].nbytes for name in TABLES)
        stored = int(pc.sum(descriptors.column("actual_len")).as_py())
        rows = {name: snapshot.table(name).num_rows for name in TABLES}
        report.figure(
            commits=len(set(versions)),
            tables=len(snapshot.tables()),
            rows=rows,
            pages=descriptors.num_rows,
            pages_in_files=in_files.num_rows,
            raw_bytes=raw,
            stored_bytes=stored,
            compression=round(raw / stored, 2),
        )
        counted = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        right = {name: tour.source.tables[name].num_rows for name in TABLES} == rows
        report.say("tables", counted, "all_rows_arrived", right)
        report.say(
            "commits",
            f"{len(versions)} months, versions {versions[0]}–{versions[-1]}",
            "every_month_is_a_commit",
            versions == list(range(versions[0], versions[0] + len(MONTHS))),
        )
        report.say(
            "pages",
            f"{descriptors.num_rows:,} pages, each at a multiple of 4 KiB in its file",
            "every_offset_is_aligned",
            in_files.num_rows > 0 and not (offsets % _PAGE_ALIGNMENT).any(),
        )
        report.say("bytes", f"{size(raw)} in Arrow → {size(stored)} in LZ4 pages, {raw / stored:.1f} : 1")
        same = all(snapshot.table(name).read().equals(tour.source.tables[name]) for name in TABLES)
        report.say(
            "equal", "every row of every table read back and compared with the source", "tables_equal", same
        )


def read_rows(tour: Tour) -> None:
    """Each kind of read gives the source's rows: cold from storage, then warm without a request."""
    report = tour.report
    wanted = tour.expected
    far = [("distance", ">", 4_900), ("month", "==", 7)]
    chosen = np.random.default_rng(13).integers(0, wanted.num_rows, 1_000)
    expected_far = wanted.filter((pc.field("distance") > 4_900) & (pc.field("month") == 7))
    with report.step("read", "Read exact rows without Spark: cold from storage, then warm from the cache"):
        _locate(tour, 123_456)
        _twice(
            tour,
            "read",
            "rows [100,000 … 101,000), all columns",
            lambda table, trace: table.read(start=100_000, stop=101_000, trace=trace),
            wanted.slice(100_000, 1_000),
        )
        _twice(
            tour,
            "take",
            "1,000 rows at random, 2 columns",
            lambda table, trace: table.take(chosen, ["dep_delay", "dest"], trace=trace),
            wanted.select(["dep_delay", "dest"]).take(chosen),
        )
        _twice(
            tour,
            "scan",
            "distance > 4900 and month = 7",
            lambda table, trace: table.scan(filter=far, trace=trace).read_all(),
            expected_far,
            warm_up=lambda table: table.read(filter=far),
        )


def _locate(tour: Tour, row: int) -> None:
    report = tour.report
    metered = MeteredStore(open_object_store(tour.url))
    table = Store(metered).snapshot().table("flights")
    seconds, requests = [], []
    for _ in range(2):
        before, started = metered.counts, time.perf_counter()
        found = table.directory.locate_row("dest", row)
        page = found.page
        seconds.append(time.perf_counter() - started)
        requests.append((metered.counts - before).requests)
    value = table.page_values("dest", [page])[0][found.row_in_page]
    report.figure(
        locate={
            "page": page.id,
            "requests": {"cold": requests[0], "warm": requests[1]},
            "milliseconds": {"cold": _ms(seconds[0]), "warm": _ms(seconds[1])},
        }
    )
    report.say(
        "locate_row",
        f"dest[{row:,}] is entry {found.row_in_page:,} of page {page.id}; "
        f"{count(requests[0], 'request')}, {_ms(seconds[0])} ms → again {_ms(seconds[1])} ms",
        "locate_row_finds_the_value",
        value.as_py() == tour.expected.column("dest")[row].as_py(),
    )
    report.checks["warm_locate_row_needs_no_request"] = requests[1] == 0


def _twice(
    tour: Tour,
    name: str,
    what: str,
    question: Callable[[Table, ReadTrace], pa.Table],
    expected: pa.Table,
    warm_up: Callable[[Table], object] | None = None,
) -> None:
    """Ask a store that was just opened, then ask again; a scan leaves no pages behind, so a read does."""
    report = tour.report
    table = spark_pages.open(tour.url).snapshot().table("flights")
    traces, seconds, right = [], [], []
    for attempt in range(2):
        if attempt and warm_up:
            warm_up(table)
        trace, started = ReadTrace(), time.perf_counter()
        rows = question(table, trace)
        seconds.append(time.perf_counter() - started)
        right.append(rows.num_rows > 0 and rows.equals(expected))
        traces.append(trace)
    cold, warm = traces
    pages = list(dict.fromkeys(cold.page_ids))
    report.figure(
        **{
            name: {
                "rows": expected.num_rows,
                "pages": len(pages),
                "page_ids": pages[:8],
                "requests": {"cold": cold.requests, "warm": warm.requests},
                "bytes": {"cold": cold.bytes_read, "warm": warm.bytes_read},
                "milliseconds": {"cold": _ms(seconds[0]), "warm": _ms(seconds[1])},
            }
        }
    )
    report.say(
        name,
        f"{what}: {count(expected.num_rows, 'row')} from {count(len(pages), 'page')} ({_some(pages)})",
        f"{name}_equals_the_source",
        all(right),
    )
    again = "again, after a read has cached them," if warm_up else "again"
    report.say(
        "",
        f"cold {count(cold.requests, 'request')}, {size(cold.bytes_read)}, {_ms(seconds[0])} ms → "
        f"{again} {count(warm.requests, 'request')}, {_ms(seconds[1])} ms",
        f"warm_{name}_needs_no_request",
        warm.requests == 0 and warm.bytes_read == 0 and cold.requests > 0,
    )


def correct(tour: Tour) -> None:
    """Correct some values and append late flights; the previous version keeps its rows."""
    report = tour.report
    with report.step("correct", "Correct, then travel in time"):
        store = spark_pages.open(tour.url)
        before = store.snapshot()
        old = tour.expected
        late = old.slice(old.num_rows - LATE_FLIGHTS, LATE_FLIGHTS)
        corrected = pa.array([7, 8, 9], pa.int64())
        with store.transaction("correction") as txn:
            txn.update_rows("flights", _WRONG_ROWS, {"dep_delay": corrected})
            txn.append("flights", late)
        tour.expected = pa.concat_tables([_with_values(old, "dep_delay", _WRONG_ROWS, corrected), late])
        now = store.snapshot().table("flights")
        then = store.snapshot(version=before.version).table("flights")
        then_by_time = store.snapshot(timestamp=before.timestamp)
        old_values = then.take(_WRONG_ROWS, ["dep_delay"]).column(0).to_pylist()
        new_values = now.take(_WRONG_ROWS, ["dep_delay"]).column(0).to_pylist()
        report.figure(
            version=txn.version,
            updated_rows=len(_WRONG_ROWS),
            late_flights=LATE_FLIGHTS,
            old_values=old_values,
            new_values=new_values,
            rows={"old": then.num_rows, "new": now.num_rows},
        )
        report.say(
            "commit",
            f"version {txn.version}: {len(_WRONG_ROWS)} delays corrected, {LATE_FLIGHTS} late flights",
            "correction_is_visible",
            new_values == corrected.to_pylist() and now.read().equals(tour.expected),
        )
        report.say(
            "now",
            f"version {txn.version}: dep_delay {new_values}, {now.num_rows:,} rows",
        )
        report.say(
            "then",
            f"version {before.version}: dep_delay {old_values}, {then.num_rows:,} rows",
            "old_version_keeps_its_rows",
            old_values != new_values and then.read().equals(old),
        )
        report.say(
            "by time",
            f"{before.timestamp:%H:%M:%S.%f} is version {then_by_time.version}",
            "time_finds_the_version",
            then_by_time.version == before.version,
        )


def check_point(tour: Tour) -> None:
    """Open the store from its checkpoint and the one commit after it, with the same answers."""
    report = tour.report
    with report.step("checkpoint", "Checkpoint, one more commit, reopen from both"):
        store = spark_pages.open(tour.url)
        replayed = _reopen(tour)
        made = store.checkpoint()
        one = tour.expected.slice(0, 1)
        with store.transaction("one more flight") as txn:
            txn.append("flights", one)
        tour.expected = pa.concat_tables([tour.expected, one])
        reopened = _reopen(tour)
        report.figure(
            version=made.version,
            checkpoint_bytes=made.location.length,
            delta_commits=(txn.version or 0) - made.version,
            reopen={"replayed_log": replayed[1], "from_checkpoint": reopened[1]},
        )
        report.say("checkpoint", f"version {made.version}, and one commit after it, {txn.version}")
        for name, (_, cost) in (("before", replayed), ("after", reopened)):
            how = "the whole log" if name == "before" else "checkpoint + 1 commit"
            report.say(
                name,
                f"open from {how}: {cost['requests']} requests, {size(cost['bytes'])}, "
                f"{cost['milliseconds']} ms",
            )
        table = reopened[0].snapshot().table("flights")
        report.say(
            "equal",
            f"{table.num_rows:,} flights from checkpoint and delta, compared row by row",
            "reopened_store_gives_the_same_rows",
            table.read().equals(tour.expected),
        )
        old = reopened[0].snapshot(version=tour.ingested_version).table("flights")
        report.say(
            "then",
            f"version {tour.ingested_version}, older than the checkpoint, still has {old.num_rows:,} rows",
            "older_version_is_readable_after_the_checkpoint",
            old.read().equals(tour.ingested),
        )


def _reopen(tour: Tour) -> tuple[Store, dict[str, float]]:
    """Open the store with new caches, and report what the newest version and one row cost."""
    metered = MeteredStore(open_object_store(tour.url))
    started = time.perf_counter()
    store = Store(metered)
    store.snapshot().table("flights").directory.locate_row("dest", 123_456)
    seconds, counts = time.perf_counter() - started, metered.counts
    return store, {
        "requests": counts.requests,
        "bytes": counts.bytes_read,
        "milliseconds": _ms(seconds),
    }


def _with_values(table: pa.Table, column: str, rows: list[int], values: pa.Array) -> pa.Table:
    """Replace values in some rows of a column."""
    position = table.schema.get_field_index(column)
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[rows] = True
    old = table.column(position).combine_chunks()
    return table.set_column(position, table.schema.field(position), pc.replace_with_mask(old, mask, values))


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 3 if seconds < 0.01 else 1)


def _some(pages: list[str]) -> str:
    return " ".join(pages[:2]) + (" …" if len(pages) > 2 else "")
