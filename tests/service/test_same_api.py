"""A connected store has the reading API of an opened one: each public method is called on both."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.query.directory import PageDirectory
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.service.remote_store import StoreClient
from spark_pages.storage import MeteredStore
from spark_pages.store import Store
from tests.service.stores import QUIET

Call = Callable[[Any], Any]


def unasked(_: object) -> None:
    """For what writes to the log, or is there for the library itself."""


SNAPSHOT: dict[str, Call] = {
    "version": lambda s: s.version,
    "timestamp": lambda s: s.timestamp,
    "tables": lambda s: s.tables(),
    "table": lambda s: s.table("sales.orders").read(),
    "dataset": lambda s: s.dataset("t").to_table(),
    "duckdb": unasked,
    "table_of": lambda s: s.table_of(s.table("t").definition).definition,
    "namespaces": lambda s: s.namespaces(),
    "types": lambda s: s.types(),
    "uncommitted": lambda s: s.uncommitted(unasked).version,
    "watched": lambda s: s.watched(print).version,
    "lease": unasked,
    "reopen": unasked,
}
TABLE: dict[str, Call] = {
    "version": lambda t: t.version,
    "name": lambda t: t.name,
    "schema": lambda t: t.schema,
    "columns": lambda t: t.columns,
    "num_rows": lambda t: t.num_rows,
    "rows_at": lambda t: t.rows_at([0, 2, 1]).tolist(),
    "end_row": lambda t: t.end_row,
    "row_numbers": lambda t: t.row_numbers("n < 4").tolist(),
    "are_live": lambda t: t.are_live(np.arange(4)).tolist(),
    "marks": lambda t: t.marks.definition.schema,
    "read": lambda t: t.read(["n"], 1, 5, filter="n > 2"),
    "scan": lambda t: t.scan(["n", "s"], filter="t.n < 7").read_all(),
    "take": lambda t: t.take([3, 0, 3]),
    "dataset": lambda t: t.dataset().take([0, 7]),
    "head": lambda t: t.head(3),
    "sample": lambda t: t.sample(3, seed=1),
    "batches": lambda t: pa.Table.from_batches(t.batches(4, shuffle=True, seed=1)),
    "count_rows": lambda t: t.count_rows("n > 2"),
    "scan_polars": lambda t: t.scan_polars().collect().to_dicts(),
    "to_pandas": lambda t: t.to_pandas().to_dict("list"),
    "to_polars": lambda t: t.to_polars().to_dicts(),
    "explain": lambda t: t.explain(["n"], filter="n > 2").rows,
    "aggregate": lambda t: t.aggregate("n"),
    "pages": lambda t: t.pages("n").drop_columns(["kind", "path", "offset", "alloc_len"]),
    "blocks": lambda t: t.blocks(),
    "page_handler": unasked,
    "page_options": lambda t: t.page_options,
    "page_folder": lambda t: t.page_folder,
    "page_values": lambda t: t.page_values("n", [t.directory.latest("n")]),
    "candidate_rows": lambda t: t.candidate_rows("n > 2").num_rows,
    "rows_to_read": lambda t: t.rows_to_read("n > 2").num_rows,
    "filter_columns": lambda t: list(t.filter_columns("n > 2")),
    "rows_in": lambda t: t.rows_in(["n"], t.candidate_rows("n > 2")),
    "reopen": unasked,
}
DIRECTORY: dict[str, Call] = {
    "latest": lambda d: d.latest("n").page_id,
    "locate_row": lambda d: d.locate_row("n", 3).row_in_page,
    "locate_rows": lambda d: d.locate_rows("n", [3, 1]).rows_in_page.tolist(),
    "locate_range": lambda d: [(each.start, each.stop) for each in d.locate_range("n", 1, 4)],
    "range": lambda d: [each.page_id for each in d.range("n", 1, 4)],
    "lookup": lambda d: d.lookup(d.latest("n").page_id, "n").entry_count,
    "get_latest_page_meta": lambda d: d.get_latest_page_meta("n").page_id,
    "get_ranged_pages_meta": lambda d: [each.page_id for each in d.get_ranged_pages_meta("n", 0, 4, 1 << 60)],
    "chain": lambda d: d.chain("n").num_rows,
    "chain_of": lambda d: d.chain_of(d.key("n")).num_rows,
    "key": lambda d: tuple(d.key("n")),
    "pages_from": lambda d: d.pages_from("n", 0, 1).run.num_pages,
    "check_lengths": lambda d: d.check_lengths([]),
    "load": lambda d: d.load(lambda read, manifests: [read(each) for each in manifests]),
    "marks": lambda d: d.marks().chain("live").num_rows,
    "dead_rows": lambda d: d.dead_rows,
    "of_unfinished": lambda d: d.of_unfinished().definition.aligned,
    "reopen": unasked,
}
NOT_SERVED = {
    "append", "checkpoint", "claim", "claims", "compact_log", "compact_pages", "delete_tag", "diff",
    "erase", "info",
    "object_store", "properties", "release_claims", "repair_plan", "reset_clock", "restore", "resume",
    "resume_erase",
    "table", "tag", "transaction", "vacuum", "vacuum_plan", "verify", "version", "write",
}  # fmt: skip
"""What of a store writes, or looks after it: open the store for it."""


@pytest.fixture
def past(url: str) -> Store:
    store = sp.create(url, properties=QUIET)
    rows = pa.table({"n": pa.array(range(10), pa.int64()), "s": [str(n % 3) for n in range(10)]})
    with store.transaction() as txn:
        txn.create_namespace("sales", {"page_bytes": "8192", "location": "eu"})
        txn.create_namespace("archive")
        txn.create_type("small", pa.int64(), check="VALUE < 100")
        txn.create_table("t", rows.schema)
        txn.create_table("sales.orders", pa.schema([sp.typed("n", "small"), ("s", pa.string())]))
        txn.append("t", rows)
        txn.append("sales.orders", rows)
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", rows)
        txn.delete("t", [1, 8])
        txn.create_table("archive.t", rows.schema)
    return store


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "calls", "of"),
    [
        (Snapshot, SNAPSHOT, lambda s: s),
        (Table, TABLE, lambda s: s.table("t")),
        (PageDirectory, DIRECTORY, lambda s: s.table("t").directory),
    ],
)
def test_every_public_method_answers_as_that_of_an_opened_store(past, serve, kind, calls, of):
    connected = serve(past).connect().snapshot()
    opened = past.snapshot()

    assert public(kind) - calls.keys() == set(), "say how a new method is compared"
    for name, call in calls.items():
        if name in public(kind):
            ours, theirs = call(of(connected)), call(of(opened))
            assert ours == theirs or str(ours) == str(theirs), name


def test_what_a_connected_store_lacks_is_what_writes_or_looks_after_the_store(past):
    assert public(Store) - public(StoreClient) <= NOT_SERVED
    assert not public(StoreClient) & NOT_SERVED


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s, sum(n) AS n FROM t GROUP BY s ORDER BY s",
        "SELECT count(*) AS c FROM T JOIN Sales.Orders AS o USING (n)",
        "SELECT n FROM t VERSION AS OF 1 WHERE n > 7 ORDER BY n",
        'SELECT "table", name, position FROM system.columns WHERE "table" = \'orders\' ORDER BY position',
        "SELECT namespace, name FROM system.tables ORDER BY namespace, name",
        "SELECT name, properties FROM system.namespaces ORDER BY namespace_id",
    ],
)
def test_queries_give_the_same_rows(past, serve, text):
    assert serve(past).connect().sql(text) == past.sql(text)


def test_statements_that_change_something_are_refused(past, serve):
    client = serve(past).connect()
    for text in ("DROP TABLE t", "INSERT INTO t VALUES (1, 'x')", "CREATE TABLE u AS SELECT * FROM t"):
        with pytest.raises(InvalidInputError, match="only read"):
            client.sql(text)
    assert past.snapshot().version == 2


def test_a_token_sees_the_namespaces_that_it_may_read_and_types_with_the_catalog(past, serve):
    served = serve(past)

    sales = served.connect("read:sales").snapshot()
    catalog = served.connect("read:system read:archive").snapshot()

    assert [each.name for each in sales.namespaces()][3:] == ["sales"]
    assert sales.types() == []
    assert [each.name for each in catalog.namespaces()][3:] == ["archive"]
    assert [each.name for each in catalog.types()] == ["small"]


def test_many_clients_ask_storage_no_more_than_one(past, serve):
    meter = MeteredStore(past.object_store)
    served = serve(Store(meter), staleness_s=600.0)

    def ask() -> int:
        before = meter.counts.requests
        snapshot = served.connect().snapshot(version=2)
        snapshot.namespaces(), snapshot.types(), snapshot.tables()
        return meter.counts.requests - before

    first = ask()
    others = [ask() for _ in range(8)]

    assert first > 0
    assert others == [0] * 8


def test_pages_with_a_nan_are_known_by_their_other_values_to_whoever_is_connected(past, serve):
    with past.transaction() as txn:
        txn.create_table("floats", pa.schema([("x", pa.float64())]))
        txn.append("floats", pa.table({"x": [1.0, math.nan, 2.0]}))
    table = serve(past).connect().snapshot().table("floats")

    found = table.aggregate("x")

    assert (found.min.as_py(), found.max.as_py(), found.pages_read) == (1.0, 2.0, 0)
    assert table.explain(filter=[("x", ">", 3.0)]).rows == 0
    assert table.read(filter=~(pc.field("x") <= 3.0)).num_rows == 1
