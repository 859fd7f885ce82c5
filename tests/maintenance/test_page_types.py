"""`verify` checks the type of every page by default: by statistics, and by bytes where only these tell."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.arrow.types import cast_to_column
from spark_pages.catalog import evolution
from spark_pages.catalog.evolution import with_stored_types
from spark_pages.format.statistics import page_stats
from spark_pages.maintenance.verify import verify as module
from spark_pages.maintenance.verify.page_types import type_evidence
from spark_pages.model.added_pages import NewPage, page_batches
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import PageRun
from spark_pages.store import Store
from spark_pages.transaction import page_writer
from tests.io.strategies import steady
from tests.transaction.stores import QUIET, store_with

ROWS = 200_000
"""Rows of a hundred pages or more, of which a sample reads one or two."""

CASES: dict[str, tuple[pa.DataType, pa.DataType, Any, Any]] = {
    "integers": (pa.int32(), pa.int64(), 1, 2**40),
    "unsigned": (pa.uint8(), pa.uint64(), 1, 256),
    "doubles out of range": (pa.float32(), pa.float64(), 1.0, 1e300),
    "doubles of more digits": (pa.float32(), pa.float64(), 1.0, 0.1),
    "decimals": (pa.decimal128(5, 2), pa.decimal128(20, 2), Decimal("1.00"), Decimal("99999999.99")),
}


def narrowed(
    narrow: pa.DataType, wide: pa.DataType, values: pa.Array, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """A store with pages of a wider type, appended behind a restore that narrowed the column."""
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("k", narrow)]))
        txn.append("t", {"k": pa.array([None], narrow)})
    before = store.snapshot().version
    with store.transaction() as txn:
        txn.widen_column("t", "k", wide)
    late = sp.open(store.url)
    txn = late.transaction()
    txn.append("t", {"k": values})
    store.restore(version=before)
    with monkeypatch.context() as old_rule:
        old_rule.setattr(evolution, "_accepts_pages", lambda *_: True)
        txn.commit()
    return Store(store.object_store)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_pages_whose_values_their_column_cannot_hold_are_found_by_default(case, checkpoint, monkeypatch):
    narrow, wide, fits, fits_not = CASES[case]
    values = pa.array([fits] * ROWS, wide).slice(0, ROWS)
    values = pa.concat_arrays([values[: ROWS // 2], pa.array([fits_not], wide), values[ROWS // 2 :]])
    store = narrowed(narrow, wide, values, monkeypatch)
    if checkpoint:
        store.checkpoint()

    found = store.verify()

    assert {fault.kind.value for fault in found.damage} == {"contradiction"}
    assert all("1 page" in fault.what or "page 0" in fault.what for fault in found.damage)
    assert all("of t.k, added by version 4" in fault.what for fault in found.damage)


@pytest.mark.parametrize("case", CASES)
def test_such_a_small_append_is_found_by_default(case, monkeypatch):
    narrow, wide, _, fits_not = CASES[case]

    store = narrowed(narrow, wide, pa.array([fits_not], wide), monkeypatch)

    assert not store.verify().ok


@pytest.mark.parametrize("case", ["integers", "unsigned", "doubles out of range", "decimals"])
def test_bounds_tell_without_reading_a_page(case, monkeypatch):
    narrow, wide, _, fits_not = CASES[case]
    store = narrowed(narrow, wide, pa.array([fits_not], wide), monkeypatch)

    found = store.verify(pages="none")

    assert not found.ok
    assert found.pages_read == 0


@pytest.mark.parametrize("case", CASES)
def test_pages_of_a_wider_type_whose_values_all_fit_are_no_fault(case, monkeypatch):
    narrow, wide, fits, _ = CASES[case]
    store = narrowed(narrow, wide, pa.array([fits] * 3, wide), monkeypatch)

    assert store.verify().ok
    assert store.verify(pages="none").ok


def test_pages_in_the_log_are_all_read_and_of_others_a_sample():
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": np.random.default_rng(0).integers(0, 1 << 60, ROWS)})
    in_files = store.snapshot().table("t").pages().num_rows
    catalog = store.verify().pages - in_files
    for number in range(20):
        with store.transaction() as txn:
            txn.append("t", {"n": [number]})

    found = store.verify()

    assert in_files >= 20
    assert catalog + 20 <= found.pages_read < catalog + 20 + in_files // 2


def run_of(stats: PageStats) -> PageRun:
    page = NewPage(3, 3, PageKind.INLINE, None, 0, 0, 64, 0, bytes(64), stats)
    pages, bounds = page_batches([page])
    return PageRun(pages.append_column("page_id", pa.array([0], pa.int64())), lambda: bounds)


PAIRS = st.sampled_from(
    [
        *((pa.int8(), pa.int16()), (pa.int16(), pa.int64()), (pa.uint8(), pa.uint32())),
        *((pa.float32(), pa.float64()), (pa.decimal128(5, 2), pa.decimal128(30, 2))),
        *((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())),
    ]
)


@st.composite
def pages(draw: st.DrawFn) -> tuple[pa.Field, pa.Array]:
    """A column that was wider once, and the values of one of its pages."""
    narrow, wide = draw(PAIRS)
    kind = draw(st.sampled_from([narrow, wide]))
    if pa.types.is_floating(kind):
        one = st.floats(width=32 if kind == narrow else 64)
    elif pa.types.is_decimal(kind):
        one = st.decimals(-999, 999 if kind == narrow else 10**9, places=2)
    elif pa.types.is_integer(kind):
        low, high = (0, 255) if "u" in str(kind) else (-128, 127)
        one = st.integers(low, high if kind == narrow else high * 100)
    else:
        one = st.binary(max_size=40) if "binary" in str(kind) else st.text(max_size=40)
    values = draw(st.lists(st.none() | one, max_size=3))
    return with_stored_types(pa.field("n", narrow), wide), pa.array(values, kind)


@given(pages())
@settings(steady, max_examples=60)
def test_statistics_accuse_no_page_that_fits_and_acquit_none_that_does_not(page):
    column, values = page
    fits = cast_to_column(values, column.type) is not None

    evidence = type_evidence(run_of(page_stats(values)), column)

    assert not (fits and evidence.wrong[0])
    assert fits or evidence.wrong[0] or evidence.open[0]
    assert not (evidence.wrong[0] and evidence.open[0])


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.int32(), pa.int64()),
        (pa.timestamp("us"), pa.int32()),
        (pa.date32(), pa.int64()),
        (pa.bool_(), pa.int8()),
    ],
)
def test_bounds_of_another_width_than_a_column_ever_had_are_a_fault_except_where_widths_agree(kind, other):
    stats = page_stats(pa.array([1, 2, 3], other))

    evidence = type_evidence(run_of(stats), pa.field("n", kind))

    assert evidence.wrong[0] == (kind != pa.bool_())


def test_bounds_of_no_type_of_the_column_are_told(monkeypatch):
    lie = PageStats(0, b"short", b"short", False)
    monkeypatch.setattr(page_writer, "stats_of_pages", lambda _, bounds: [lie] * (len(bounds) - 1))
    store = store_with(pa.table({"n": [1, 9]}))

    assert "statistics are of another type than their column" in store.verify(pages="none").damage[0].what


def test_references_of_every_kept_version_are_checked(monkeypatch):
    store = store_with(pa.table({"n": [1]}))
    store.tag("kept")
    with store.transaction() as txn:
        txn.append("t", {"n": [2]})
    answers = iter([[], ["table 't' refers to namespace 'gone', which is not there"], []])
    monkeypatch.setattr(module, "dangling_references", lambda _: next(answers, []))

    (fault,) = store.verify(pages="none").damage

    assert fault.what.startswith("At version ")
    assert "namespace 'gone'" in fault.what
