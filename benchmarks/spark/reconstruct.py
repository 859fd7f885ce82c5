"""Reconstruction of a synthetic store, beside what Spark needs merely to read the same files.

The files are the segments of the checkpoint, read by Spark's own Parquet reader into a ``noop`` sink, and the
commits after it, read by a task that decodes them. Driver memory is what the Python driver and its JVM use at
the most, beside a run of a tenth.

python -m benchmarks.spark.reconstruct --pages 10000000 --commits 1000
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from benchmarks.log.records import append
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.spark import reconstruct_snapshot, session
from spark_pages.spark.feed import split_versions
from spark_pages.spark.serialization import objects_of
from spark_pages.spark.tasks import CountCommits
from spark_pages.storage import DurableLocalStore


def prepare(url: str, pages: int, commits: int) -> None:
    """A checkpoint of so many descriptors, and commits after it that append a page to each of ten chains."""
    shape = Shape(pages)
    make_store(url, shape)
    log = Log(DurableLocalStore(url), Runtime())
    keys = [shape.key(table, 0) for table in range(0, shape.tables, shape.tables // 10)]
    for _ in range(commits):
        append(log, keys)


def read_only(spark: object, url: str) -> float:
    """Seconds that Spark takes to read the segments and commits, and do nothing with them."""
    started = time.perf_counter()
    spark.read.parquet(f"{url}/_log/segments").write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]
    head = Log(objects_of(url), Runtime()).snapshot()
    base = head.checkpoint.ref.version if head.checkpoint else -1
    tasks = [
        CountCommits(url, tuple(range(start, end + 1)))
        for start, end in split_versions(base + 1, head.state.version)
    ]
    if tasks:
        spark.sparkContext.parallelize(tasks, len(tasks)).foreach(_exhaust)  # type: ignore[attr-defined]
    return time.perf_counter() - started


def _exhaust(task: CountCommits) -> None:
    for _ in task.counts():
        pass


def measure(folder: Path, pages: int, commits: int, rounds: int) -> list[Row]:
    """Medians of some rounds, after one that warms up."""
    spark = session("benchmark")
    rows = []
    for size in (pages // 10, pages):
        url = str(folder / f"store-{size}")
        log_note(f"writing {size:,} descriptors and {commits:,} commits …")
        prepare(url, size, commits)
        reading, rebuilding = [], []
        for _ in range(rounds + 1):
            reading.append(read_only(spark, url))
            done = reconstruct_snapshot(spark, url, check=False)
            rebuilding.append(done["seconds"])
        read, rebuilt = sorted(reading[1:])[rounds // 2], sorted(rebuilding[1:])[rounds // 2]
        rows.append(
            {
                "pages": done["pages"],
                "commits": done["commits"],
                "read only, s": read,
                "reconstruct, s": rebuilt,
                "ratio": rebuilt / read,
                "driver (Python), MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    spark.stop()
    return rows


def main() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark_pages-", ignore_cleanup_errors=True) as folder:
        rows = measure(Path(folder), given.pages, given.commits, given.rounds)
    show("Reconstruction by Spark, local[2]", rows, given.json)


if __name__ == "__main__":
    main()
