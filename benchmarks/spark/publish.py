"""Bytes and seconds of publishing a checkpoint that touched some of the segments of a large state; needs no
Spark.

python -m benchmarks.spark.publish --pages 10000000
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.log.records import replace_page
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.spark.publish import publish_delta
from spark_pages.storage import DurableLocalStore


def measure(url: str, shape: Shape) -> list[Row]:
    """The first publication, and one after each change."""
    make_store(url, shape)
    store = DurableLocalStore(url)
    log = Log(store, Runtime())
    whole = sum(info.size_bytes for info in store.list("_log/segments/"))
    keys = [shape.key(table, 0) for table in range(shape.tables)]
    rows = [_row("the first publication", url, whole)]
    for share in (0.01, 0.1):
        replace_page(log, keys[: max(1, int(len(keys) * share))])
        log.checkpoint()
        rows.append(_row(f"a page in {share:.0%} of the tables replaced", url, whole))
    rows.append(_row("nothing new", url, whole))
    return rows


def _row(what: str, url: str, whole: int) -> Row:
    started = time.perf_counter()
    done = publish_delta(url, history=False)
    return {
        "what": what,
        "segments": done.files_added,
        "bytes": done.bytes_written,
        "% of the state": 100 * done.bytes_written / whole,
        "s": time.perf_counter() - started,
    }


def main() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark_pages-", ignore_cleanup_errors=True) as folder:
        log_note(f"writing {given.pages:,} descriptors …")
        rows = measure(str(Path(folder) / "store"), Shape(given.pages))
    show("Publishing a checkpoint as a Delta version", rows, given.json)


if __name__ == "__main__":
    main()
