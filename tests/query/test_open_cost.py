"""The promise of a cold open: what it costs to find one row from nothing, whatever the size of the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.log.open import BOUNDS
from benchmarks.log.slow_store import SlowStore
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore, MeteredStore
from spark_pages.store import Store
from tests.transaction.stores import LOOKS, reads_and_looks

pytestmark = pytest.mark.sampled(every=2)

SHAPES = {
    "10 k": Shape(10_000, tables=10, columns=10, names_statistics=True),
    "10 k, many tables": Shape(10_000, tables=1_000, columns=10, names_statistics=True),
    "1 M": Shape(1_000_000, tables=100, columns=10, names_statistics=True),
    "1 M, one chain": Shape(1_000_000, tables=1, columns=1, names_statistics=True),
}


@pytest.fixture(scope="module", params=list(SHAPES))
def synthetic(request, tmp_path_factory):
    """A store on disk, and what it holds."""
    url = str(tmp_path_factory.mktemp("synthetic") / "store")
    make_store(url, SHAPES[request.param])
    return url, SHAPES[request.param]


def first_middle_last(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1})


def test_to_locate_a_row_by_ids_takes_five_reads_one_look_and_few_bytes(synthetic):
    url, shape = synthetic
    for table in first_middle_last(shape.tables):
        for row in (0, 8192 * (shape.pages_of_chain // 2)):
            objects = MeteredStore(DurableLocalStore(url))

            found = Log(objects, Runtime()).snapshot().chain(shape.key(table, 0)).locate_row(row)

            assert found.page.entry_count == 8192
            reads, looks = reads_and_looks(objects.counts)
            assert reads <= BOUNDS["ids"]["reads"]
            assert looks == BOUNDS["ids"]["looks"] == LOOKS
            assert objects.counts.bytes_read <= BOUNDS["ids"]["bytes"]
            assert objects.counts.lists == 0


def test_to_locate_a_row_by_name_takes_one_read_more(synthetic):
    url, shape = synthetic
    for table in first_middle_last(shape.tables):
        objects = MeteredStore(DurableLocalStore(url))

        Store(objects).snapshot().table(shape.table_name(table)).directory.locate_row("c000", 0)

        reads, looks = reads_and_looks(objects.counts)
        assert reads <= BOUNDS["ids"]["reads"] + 1 <= BOUNDS["name"]["reads"]
        assert looks == BOUNDS["name"]["looks"] == LOOKS
        assert objects.counts.bytes_read <= BOUNDS["name"]["bytes"]


def test_to_locate_several_rows_side_by_side_reads_what_it_takes_to_locate_one(synthetic):
    url, shape = synthetic
    one, some = (MeteredStore(DurableLocalStore(url)) for _ in range(2))

    Store(one).snapshot().table(shape.table_name(0)).directory.locate_row("c000", 0)
    Store(some).snapshot().table(shape.table_name(0)).directory.locate_rows("c000", [1, 0, 2])

    assert sorted(one.counts.keys) == sorted(some.counts.keys)


def test_requests_wait_for_each_other_four_deep_by_ids_and_five_by_name(synthetic):
    url, shape = synthetic
    by_ids, by_name = (SlowStore(DurableLocalStore(url), 0.1) for _ in range(2))

    Log(by_ids, Runtime()).snapshot().chain(shape.key(0, 0)).locate_row(0)
    Store(by_name).snapshot().table(shape.table_name(0)).directory.locate_row("c000", 0)

    assert by_ids.depth <= BOUNDS["ids"]["depth"]
    assert by_name.depth <= BOUNDS["name"]["depth"]


FRESH = """
import json, sys
from benchmarks.log.open import probe
figures = probe(sys.argv[1], 0.0, "t000000", "c000", 0, 0)
figures["imported"] = sorted({name.split(".")[0] for name in sys.modules} & {"pandas"})
figures["imported"] += [name for name in sys.modules if name == "pyarrow.dataset"]
print(json.dumps(figures))
"""


def test_a_fresh_process_takes_little_memory_and_imports_nothing_large(synthetic):
    url, _ = synthetic
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", FRESH, url], capture_output=True, text=True, check=True, env=environment
    )

    figures = json.loads(run.stdout)

    assert figures["imported"] == []
    assert figures["above_imports_mb"] < 20
    assert figures["peak_mb"] < 150
