"""Bytes of a page descriptor at rest and in memory, statistics apart.

At rest: all objects of a checkpoint. In memory: what Arrow, numpy and Python hold more after a whole chain
has been loaded than before, buffers that columns share counted once.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa

import spark_pages as sp
from benchmarks.log.checkpoint import full_bytes
from benchmarks.log.report import Row, arguments, in_fresh_process, log_note, resident_mb, show
from benchmarks.log.synthetic import Shape, make_store


def loaded(url: str, table: str, column: str) -> Row:
    """What one loaded chain takes, in this process."""
    chain = sp.open(url).snapshot().table(table).directory.chain(column)
    pages = chain.num_pages
    gc.collect()
    resident = resident_mb()
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    python = tracemalloc.get_traced_memory()[0]
    chain.locate_rows(np.arange(0, chain.num_rows, 2_000))
    gc.collect()
    arrow = pa.total_allocated_bytes() - arrow
    python = tracemalloc.get_traced_memory()[0] - python
    return {
        "pages": pages,
        "arrow": arrow / pages,
        "numpy and Python": python / pages,
        "in memory": (arrow + python) / pages,
        "resident": (resident_mb() - resident) * 1e6 / pages,
    }


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--probe"]:
        print(json.dumps(loaded(*sys.argv[2:])))
        return
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--tables", type=int, default=1)
    options = parser.parse_args()
    shape = Shape(options.pages, options.tables, columns=10)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = str(Path(folder) / "store")
        make_store(url, shape)
        log_note("made")
        at_rest = full_bytes(url) / (shape.pages_of_chain * shape.chains)
        for column, entries in (("c000", "equal"), ("c001", "varying")):
            found = in_fresh_process("benchmarks.log.memory", "--probe", url, shape.table_name(0), column)
            rows.append({"entries a page": entries, "at rest, all columns": at_rest, **found})
    show("bytes of a descriptor (promised: 18 at rest, 64 in memory)", rows, options.json)


if __name__ == "__main__":
    main()
