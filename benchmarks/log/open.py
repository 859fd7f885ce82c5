"""Open a store cold and locate one row: reads, looks, depth, bytes, own time and memory in fresh processes.

By ids: the chain is named by table and field id. By name: the catalog file of the table is read too. Own
time is what is left of the time when the round trips are taken off, so that a busy machine counts too; CPU
time is that of all threads. Of the largest stores only those segments are written that are asked for; parts
and root are whole.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.log.report import Row, arguments, in_fresh_process, log_note, peak_mb, resident_mb, show
from benchmarks.log.slow_store import SlowStore
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore
from spark_pages.store import Store

BOUNDS = {
    "ids": {"reads": 5, "looks": 10, "depth": 4, "bytes": 384 << 10},
    "name": {"reads": 7, "looks": 10, "depth": 5, "bytes": 512 << 10},
}
"""What was promised; and 30 ms of own time, 150 MB peak, 20 MB above the imports."""


def probe(url: str, latency_s: float, table: str, column: str, table_id: int, field_id: int) -> Row:
    """One cold open and locate in this process, by name if there is one."""
    objects = SlowStore(DurableLocalStore(url), latency_s)
    after_imports = resident_mb()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    if table:
        found = Store(objects).snapshot().table(table).directory.locate_row(column, 7)
    else:
        found = Log(objects, Runtime()).snapshot().chain((table_id, field_id)).locate_row(7)
    spent, spent_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    _ = found.page.page_id
    counts = objects.counts
    return {
        "reads": counts.requests - counts.stamps,
        "looks": counts.stamps,
        "depth": objects.depth,
        "bytes": counts.bytes_read,
        "ms": round(spent * 1e3, 1),
        "own_ms": round((spent - objects.depth * latency_s) * 1e3, 1),
        "cpu_ms": round(spent_cpu * 1e3, 1),
        "peak_mb": round(peak_mb(), 1),
        "above_imports_mb": round(resident_mb() - after_imports, 1),
    }


def measure(url: str, shape: Shape, latency_s: float, runs: int) -> list[Row]:
    """Chains from the front, the middle and the end, by ids and by name; the worst of each figure."""
    rows = []
    for how in ("ids", "name"):
        found = []
        for table in sorted({0, shape.tables // 2, shape.tables - 1}):
            column = min(4, shape.columns - 1)
            table_id, field_id = shape.key(table, column)
            name = shape.table_name(table) if how == "name" else ""
            words = ("--probe", url, latency_s, name or "-", f"c{column:03d}", table_id, field_id)
            found += [in_fresh_process("benchmarks.log.open", *words) for _ in range(runs)]
        worst = {key: max(each[key] for each in found) for key in ("reads", "looks", "bytes")}
        # On a busy machine a thread may start a round trip late; what most runs agree on is the depth.
        worst["depth"] = statistics.mode(each["depth"] for each in found)
        rows.append(
            {
                "descriptors": shape.pages_of_chain * shape.chains,
                "tables": shape.tables,
                "columns": shape.columns,
                "by": how,
                **worst,
                "ms": statistics.median(each["ms"] for each in found),
                "own_ms": statistics.median(each["own_ms"] for each in found),
                "cpu_ms": statistics.median(each["cpu_ms"] for each in found),
                "peak_mb": max(each["peak_mb"] for each in found),
                "above_imports_mb": max(each["above_imports_mb"] for each in found),
                "kept": all(worst[key] <= bound for key, bound in BOUNDS[how].items()),
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--probe"]:
        url, latency_s, name, column, table_id, field_id = sys.argv[2:]
        asked = "" if name == "-" else name
        print(json.dumps(probe(url, float(latency_s), asked, column, int(table_id), int(field_id))))
        return
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--tables", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--whole-up-to", type=int, default=10_000_000, help="larger ones lack most segments")
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rows: list[Row] = []
    for pages in options.pages:
        for tables in options.tables:
            shape = Shape(
                pages, tables, options.columns, names_statistics=True, thin=pages > options.whole_up_to
            )
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                url = str(Path(folder) / "store")
                begin = time.perf_counter()
                make_store(url, shape)
                log_note(
                    f"{pages:,} descriptors in {tables:,} tables: made in {time.perf_counter() - begin:.0f} s"
                )
                rows += measure(url, shape, options.latency_ms / 1e3, options.runs)
    show("open cold and locate one row", rows, options.json)


if __name__ == "__main__":
    main()
