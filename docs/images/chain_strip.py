"""Draw docs/images/chain_strip.svg, the picture of the README.

Run ``python docs/images/chain_strip.py`` after a change to the drawing code. A test compares the two.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages.display.canvas import Picture
from spark_pages.display.chain_strip import Lane, chain_strip
from spark_pages.model.chain_drawing import lane_of
from spark_pages.query.table import Table

LABELS = {3: "version 3: 20,000 rows appended", 2: "version 2: one row updated", 1: "version 1: 60,000 rows"}


def draw() -> Picture:
    """Draw the chain of one column at three versions of a store in memory."""
    # Random numbers do not compress: pages of small numbers would be stored in the commit, without a file.
    numbers = pa.array(np.random.default_rng(0).integers(0, 2**62, 80_000))
    rows = pa.table({"distance": numbers})
    with sp.create("memory://chain-strip") as store:
        with store.transaction("ingest") as txn:
            txn.create_table("flights", rows.schema)
            txn.append("flights", rows.slice(0, 60_000))
        with store.transaction("correct") as txn:
            txn.update_rows("flights", [30_000], {"distance": [733]})
        with store.transaction("append") as txn:
            txn.append("flights", rows.slice(60_000))
        lanes = [_lane(store.snapshot(version=version).table("flights")) for version in LABELS]
    return chain_strip("Pages of the column flights.distance", lanes)


def _lane(table: Table) -> Lane:
    lane = lane_of(LABELS[int(table.version or 0)], [table.directory.chain("distance").all_pages()])
    # A key is pages/<read version>-<random transaction id>-<n>.pages: the picture must not depend on chance.
    reads = [int(name.rpartition("/")[2].partition("-")[0]) for name in lane.names.to_pylist()]
    return dataclasses.replace(
        lane, names=pa.array([f"file of version {read + 1}" for read in reads], pa.string())
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw().svg + "\n", encoding="utf-8")
