"""What users hold shows itself: as HTML in notebooks, as a line anywhere else."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.io import CacheStats, ReadTrace
from spark_pages.maintenance.repair import RepairPlan, Step, StepKind
from spark_pages.maintenance.verify.faults import Fault, FaultKind
from spark_pages.model.actions import CatalogIntent, IntentKind
from spark_pages.storage import MeteredStore, open_object_store
from spark_pages.store import Store
from spark_pages.versions.restore_plan import RestorePlan
from tests.display.reading import assert_harmless, elements, pictures_in

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
"""A column may be called that."""


def words(html: str) -> list[str]:
    return elements(html).words


@pytest.fixture
def filled(store: Store) -> Store:
    rows = pa.table({"id": pa.array(range(30_000), pa.int64()), HOSTILE: ["a", "b", "c"] * 10_000})
    with store.transaction("fill") as txn:
        txn.create_table("things", rows.schema)
        txn.append("things", rows)
    with store.transaction(f"correct {HOSTILE}", parameters={HOSTILE: HOSTILE}) as txn:
        txn.update_rows("things", [5], {"id": [-5]})
    return store


def shown(store: Store) -> dict[str, object]:
    table = store.snapshot().table("things")
    return {
        "store": store,
        "snapshot": store.snapshot(),
        "table": table,
        "chain": table.directory.chain(HOSTILE),
        "commit": store._log.commits(2, 3)[0],
        "vacuum plan": store.vacuum_plan(retention=1),
        "repair plan": store.repair_plan(),
        "scan plan": table.explain(filter=[(HOSTILE, "==", HOSTILE)]),
        "cache statistics": store.cache_stats,
    }


SHOWN = (
    "store", "snapshot", "table", "chain", "commit", "vacuum plan", "repair plan", "scan plan",
    "cache statistics",
)  # fmt: skip


@pytest.mark.parametrize("what", SHOWN)
def test_everything_that_users_hold_shows_itself_and_runs_nothing(filled, what):
    value = shown(filled)[what]

    assert_harmless(value._repr_html_())  # type: ignore[attr-defined]
    assert len(repr(value)) < 2_000


def test_a_hostile_column_name_is_shown_as_it_is(filled):
    html = filled.snapshot().table("things")._repr_html_()

    assert HOSTILE in words(html)
    (picture,) = pictures_in(html)
    assert HOSTILE not in picture
    assert "&lt;img" in picture


def test_a_table_shows_rows_columns_pages_and_its_chains(filled):
    html = filled.snapshot().table("things")._repr_html_()

    text = "".join(words(html))
    assert "30,000 rows · 2 columns · version 2" in text
    assert "int64" in words(html)
    assert len(pictures_in(html)) == 1


def test_a_store_shows_its_version_tables_tags_and_caches(filled):
    filled.tag("monthly", 1)
    filled.snapshot().table("things").read(stop=10)

    text = words(filled._repr_html_())

    assert {"version 3", "things", "30,000", "monthly", "decoded"} <= set(text)


def test_a_store_that_does_not_answer_still_shows_where_it_is(filled, monkeypatch):
    def fail(*_: object) -> None:
        raise StorageError("The network is down.")

    monkeypatch.setattr(filled._log, "refresh", fail)

    html = filled._repr_html_()

    assert filled.url in words(html)
    assert "The network is down." in html


def test_a_snapshot_of_many_tables_shows_some_and_says_how_many_more(store):
    with store.transaction() as txn:
        for number in range(25):
            txn.create_table(f"t{number:02}", pa.schema([("a", pa.int64())]))

    html = store.snapshot()._repr_html_()

    assert "t19" in html
    assert "t20" not in html
    assert "… and 5 more" in html


def test_a_wide_table_shows_some_columns_and_says_how_many_more(store):
    with store.transaction() as txn:
        txn.create_table("wide", pa.schema([(f"c{number:03}", pa.int64()) for number in range(100)]))

    html = store.snapshot().table("wide")._repr_html_()

    assert "c029" in html
    assert "c030" not in html
    assert "… and 70 more" in html


def test_showing_a_table_asks_storage_for_nothing_that_opening_its_chains_did_not(small_trees, url):
    store = sp.create(url)
    rows = pa.table({name: pa.array(range(100), pa.int64()) for name in "abcdef"})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "4096"})
    for _ in range(12):
        with store.transaction() as txn:
            txn.append("t", rows)
    store.checkpoint()
    metered = MeteredStore(open_object_store(url))
    table = Store(metered).snapshot().table("t")
    pages = [table.directory.chain(name).num_pages for name in table.columns]
    before = metered.counts

    html = table._repr_html_()
    chain_html = table.directory.chain("a")._repr_html_()

    assert (metered.counts - before).requests == 0
    assert str(pages[0]) in words(html)
    assert "not loaded" in pictures_in(chain_html)[0]


def test_a_commit_shows_its_transactions_in_a_line(filled):
    (commit,) = filled._log.commits(1, 2)

    assert repr(commit).startswith("Commit(version 1, ")
    assert "'fill': " in repr(commit)
    assert "fill" in words(commit._repr_html_())


def test_the_plan_of_a_vacuum_shows_what_goes_by_reason(filled):
    html = filled.vacuum_plan(retention=1)._repr_html_()

    assert "nothing was deleted yet" in html
    assert "versions 2 to 2" in words(html)
    assert "slot" in words(html)


def test_the_plan_of_a_repair_shows_steps_and_what_is_lost(filled):
    healthy = filled.repair_plan()
    step, fault = (
        Step(StepKind.HINT, "_log/x", "mended <b>"),
        Fault(FaultKind.DAMAGED, "pages/1", "gone", "copy"),
    )
    plan = RepairPlan(
        healthy.store, healthy.runtime, 2, (step,), (fault,), {}, None, None
    )  # fmt: skip

    assert "nothing to mend" in healthy._repr_html_()
    assert {"mended <b>", "pages/1", "copy"} <= set(words(plan._repr_html_()))


def test_the_plan_of_a_restore_shows_what_comes_back():
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, pa.int64())], names=["page_id"])
    intent = CatalogIntent(IntentKind.DROP, 7, 0, HOSTILE)
    plan = RestorePlan((), empty, empty, (intent,), (), (), {})

    assert_harmless(plan._repr_html_())
    assert HOSTILE in words(plan._repr_html_())
    assert repr(plan) == "RestorePlan(0 pages back in 0 splices, 1 catalog change, 0 properties)"


def test_cache_statistics_tell_where_pages_came_from():
    stats = CacheStats(decoded_hits=1234, misses=6, requests=2, bytes_read=4096)

    assert {"1,234", "storage, 2 requests", "4.0 KiB read"} <= set(words(stats._repr_html_()))
    assert "1,240 pages: 1,234 decoded" in repr(stats)


def test_a_trace_of_many_pages_is_shown_in_a_line():
    trace = ReadTrace(
        page_ids=[f"{n:016x}" for n in range(10_000)], misses=10_000, requests=7, bytes_read=1 << 20
    )

    assert len(repr(trace)) < 250
    assert "10,000 pages" in repr(trace)
    assert repr(ReadTrace()).endswith("0 read in 0 requests of 0 B)")


def test_the_descriptor_of_an_inline_page_does_not_spell_its_bytes(filled):
    page = filled.snapshot().table("things").directory.locate_row("id", 0).page

    assert page.data is not None
    assert repr(page) == f"PageDescriptor(inline page {page.id}, 8,192 rows, {page.actual_len:,} bytes)"


def test_a_transaction_says_whether_it_is_open(store):
    txn = store.transaction("look")
    before = repr(txn)

    txn.rollback()

    assert before == "Transaction('look', reads version 0, open)"
    assert repr(txn) == "Transaction('look', reads version 0, ended)"


def test_one_of_a_kind_is_told_as_one(store):
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("x", pa.int64())]))
        txn.append("t", {"x": [1]})
    table = store.snapshot().table("t")

    assert repr(table) == "Table('t', 1 row, 1 column)"
    assert repr(table.directory.chain("x")) == "ColumnChain(1 page, 1 row)"
    assert "1 page " in repr(table.explain())
    assert "1 in 0 runs, 1 window\n" in repr(table.explain())


def test_a_plan_of_nothing_says_so(store):
    assert repr(store.vacuum_plan()) == "VacuumPlan(versions 0 to 0 stay; nothing goes)"


def test_no_repr_needs_ipython():
    code = (
        "import sys; sys.modules['IPython'] = None\n"
        "import spark_pages as sp\n"
        "store = sp.create('memory://plain')\n"
        "store._repr_html_(), store.snapshot()._repr_html_(), store.vacuum_plan()._repr_html_()\n"
        "assert 'matplotlib' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
