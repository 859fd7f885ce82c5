"""Aggregates are those of Arrow over the same rows, and read no page whose statistics tell enough."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spark_pages.arrow.stored_types import stored_type
from spark_pages.errors import ColumnNotFoundError, RowOutOfRangeError
from spark_pages.model.added_pages import NewPage
from spark_pages.model.page import PageKind, PageStats
from spark_pages.query.aggregate import Aggregate
from spark_pages.store import Store
from tests.io.strategies import steady
from tests.transaction.stores import store_with

LONG = "a" * 40
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int16(): st.integers(-3, 3) | st.sampled_from([-(2**15), 2**15 - 1]),
    pa.uint64(): st.integers(0, 3) | st.just(2**64 - 1),
    pa.float64(): st.sampled_from([-1.5, -0.0, 0.0, 2.5, math.nan, math.inf, -math.inf]),
    pa.float16(): st.sampled_from([-1.5, 0.0, 0.25, math.nan]),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "a", "b", "é", LONG, LONG + "b", "a" * 32, "\U0010ffff" * 9]),
    pa.string_view(): st.sampled_from(["", "a", LONG, LONG + "b"]),
    pa.binary(): st.sampled_from([b"", b"\x00", b"\xff" * 33, b"\xff" * 34, b"x"]),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["x", "yy", LONG]),
    pa.date32(): st.dates(dt.date(1960, 1, 1), dt.date(2030, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2030, 1, 1)).map(
        lambda moment: moment.replace(tzinfo=dt.UTC)
    ),
    pa.duration("ms"): st.timedeltas(dt.timedelta(-9), dt.timedelta(9)).map(
        lambda span: span - span % dt.timedelta(milliseconds=1)
    ),
    pa.decimal64(9, 2): st.decimals(-99, 99, places=2),
    pa.decimal128(10, -2): st.integers(-99, 99).map(lambda number: Decimal(100 * number)),
    pa.decimal256(60, 1): st.decimals(-99, 99, places=1),
    pa.list_(pa.int8()): st.lists(st.integers(0, 3), max_size=2),
    pa.null(): st.none(),
}


def expected(rows: pa.ChunkedArray, kind: pa.DataType) -> tuple[Any, Any, int, int]:
    """What plain Python says of the rows, with NaN as Arrow has it."""
    known = [value for value in rows.to_pylist() if value is not None]
    counts = (len(known), len(rows) - len(known))
    if pa.types.is_nested(kind) or not known:
        return (None, None, *counts)
    numbers = [value for value in known if not is_nan(value)] or known
    return (min(numbers), max(numbers), *counts)


def told(found: Aggregate) -> tuple[Any, Any, int, int]:
    low, high = (None if bound is None else bound.as_py() for bound in (found.min, found.max))
    return (low, high, found.count, found.null_count)


def same(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    return all(a == b or (is_nan(a) and is_nan(b)) for a, b in zip(one, two, strict=True))


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def append(store: Store, values: pa.Array, page_bytes: int) -> None:
    with store.transaction() as txn:
        txn._page_bytes = page_bytes
        txn.append("t", pa.table({"c": values}))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(steady, max_examples=5, phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_an_aggregate_is_that_of_the_rows_themselves(kind, data):
    values = st.none() | KINDS[kind] if data.draw(st.booleans(), label="nulls") else KINDS[kind]
    pieces = data.draw(st.lists(st.lists(values, min_size=1, max_size=12), min_size=1, max_size=3))
    store = store_with(schema=pa.schema([("c", kind)]))
    for piece in pieces:
        append(store, pa.array(piece, kind), data.draw(st.sampled_from([1, 16]), label="page bytes"))
    rows = sum(map(len, pieces))
    if kind != pa.string_view() and data.draw(
        st.booleans(), label="update"
    ):  # no kernel of Arrow takes views
        changed = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=4), label="rows")
        values = pa.array([data.draw(st.none() | KINDS[kind]) for _ in changed], kind)
        with store.transaction() as txn:
            txn.update_rows("t", changed, {"c": values})
    if data.draw(st.booleans(), label="checkpoint"):
        store.checkpoint()
    if data.draw(st.booleans(), label="compact"):
        store.compact_pages("t")
    table = store.snapshot().table("t")
    whole = table.read().column("c")

    for _ in range(6):
        start = data.draw(st.integers(0, rows), label="start")
        stop = data.draw(st.integers(start, rows), label="stop")
        found = table.aggregate("c", start, stop)

        assert same(told(found), expected(whole.slice(start, stop - start), kind))
        value_type = stored_type(kind.value_type if pa.types.is_dictionary(kind) else kind)
        assert found.min is None or found.min.type == value_type
    assert same(told(table.aggregate("c")), expected(whole, kind))


@pytest.mark.parametrize(
    "values", [[1.5, math.nan], [math.nan], [math.nan, None], [0.0, -0.0], [None], [], [-math.inf, 1.0]]
)
def test_floats_are_compared_as_arrow_compares_them(values):
    column = pa.array(values, pa.float64())
    store = store_with(pa.table({"c": column}), schema=pa.schema([("c", pa.float64())]))

    found = store.snapshot().table("t").aggregate("c")

    arrow = pc.min_max(column)
    assert same(told(found)[:2], (arrow["min"].as_py(), arrow["max"].as_py()))
    assert not any(
        bound.as_py() == 0 and math.copysign(1, bound.as_py()) < 0 for bound in (found.min, found.max)
    )


@pytest.fixture(scope="module")
def numbers() -> Store:
    """20 pages of a column of numbers, of its half as floats, and of text that is longer than a bound."""
    values = np.random.default_rng(3).integers(-(10**12), 10**12, 20_000)
    store = store_with(schema=pa.schema([("n", pa.int64()), ("f", pa.float64()), ("s", pa.string())]))
    with store.transaction() as txn:
        txn._page_bytes = 8_000
        text = [f"{'x' * (index % 7 == 0)}{index:020d}{'y' * 30}" for index in range(20_000)]
        txn.append("t", pa.table({"n": values, "f": values / 2, "s": text}))
    return store


def test_the_whole_of_a_column_of_numbers_needs_no_page(numbers):
    table = numbers.snapshot().table("t")
    before = table.page_handler.stats()

    found = [table.aggregate(name) for name in ("n", "f")]

    after = table.page_handler.stats()
    assert [each.pages_read for each in found] == [0, 0]
    assert after == before
    assert found[0].min.as_py() == pc.min(table.read(["n"]).column("n")).as_py()


def test_any_interval_of_numbers_needs_the_two_pages_at_its_ends_at_most(numbers):
    table = numbers.snapshot().table("t")
    generator = np.random.default_rng(4)

    read = set()
    for _ in range(60):
        start, stop = np.sort(generator.integers(0, 20_001, 2)).tolist()
        found = table.aggregate("n", start, stop)
        read.add(found.pages_read)
        rows = table.read(["n"], start, stop).column("n")
        assert told(found)[:2] == (pc.min(rows).as_py(), pc.max(rows).as_py())

    assert read <= {0, 1, 2}
    assert {0, 2} <= read


def test_an_end_page_whose_bounds_lie_inside_is_not_read():
    tables = [pa.table({"c": values}) for values in ([4, 5, 6], [0, 9], [4, 5, 6])]
    table = store_with(*tables).snapshot().table("t")

    found = table.aggregate("c", 1, 7)

    assert (told(found), found.pages_read) == ((0, 9, 6, 0), 0)


def test_of_long_text_only_pages_that_could_hold_the_answer_are_read(numbers):
    table = numbers.snapshot().table("t")

    found = table.aggregate("s")

    rows = table.read(["s"]).column("s")
    assert told(found)[:2] == (pc.min(rows).as_py(), pc.max(rows).as_py())
    assert found.pages_read == 2
    assert table.directory.chain("s").num_pages > 20


def test_any_interval_of_long_text_needs_one_page_more_for_each_side_at_most(numbers):
    table = numbers.snapshot().table("t")
    generator = np.random.default_rng(5)

    read = []
    for _ in range(60):
        start, stop = np.sort(generator.integers(0, 20_001, 2)).tolist()
        found = table.aggregate("s", start, stop)
        rows = table.read(["s"], start, stop).column("s")
        read.append(found.pages_read)
        assert told(found)[:2] == (pc.min(rows).as_py(), pc.max(rows).as_py())

    assert max(read) <= 4
    assert min(read) < 4


@pytest.mark.parametrize(
    ("first_values", "pages_read"),
    [
        (
            ["a" * 32, "a" * 32 + "b"],
            2,
        ),  # a value is the cut bound: one page tells the least, one the greatest
        (["a" * 33, "a" * 32 + "b"], 9),  # only the values tell pages with the same bound apart
    ],
)
def test_of_pages_whose_bounds_are_cut_alike_no_more_are_read_than_it_takes(first_values, pages_read):
    alike = [pa.table({"c": ["a" * 32 + f"b{page}", "b"]}) for page in range(7)]
    between = [pa.table({"c": [f"b{page}" * 20, "c" * 33]}) for page in range(5)]
    greatest = pa.table({"c": ["b", "d" * 33]})
    table = store_with(pa.table({"c": first_values}), *alike, *between, greatest).snapshot().table("t")

    found = table.aggregate("c")

    assert (told(found), found.pages_read) == ((min(first_values), "d" * 33, 28, 0), pages_read)


def test_no_page_is_read_for_its_nan():
    tables = [pa.table({"c": [float(n), math.nan, n + 0.5]}) for n in range(5)]
    tables += [pa.table({"c": [math.nan, -7.0]}), pa.table({"c": [math.nan, None]})]
    table = store_with(*tables).snapshot().table("t")

    found = table.aggregate("c")

    assert (told(found), found.pages_read) == ((-7.0, 4.5, 18, 1), 0)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_of_an_interval_with_nan_everywhere_at_most_two_pages_are_read(kind):
    random = np.random.default_rng(3)
    values = np.where(random.random(60) < 0.4, np.nan, random.normal(size=60)).astype(kind.to_pandas_dtype())
    pages = [pa.table({"c": pa.array(values[first : first + 6], kind)}) for first in range(0, 60, 6)]
    table = store_with(*pages).snapshot().table("t")
    rows = table.read().column("c")

    for start in range(0, 60, 7):
        for stop in range(start + 1, 61):
            found = table.aggregate("c", start, stop)

            assert same(told(found), expected(rows.slice(start, stop - start), kind))
            assert found.pages_read <= 2


@pytest.mark.parametrize("kind", [pa.float16(), pa.float64()], ids=str)
@settings(steady, max_examples=10, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(
        st.lists(st.sampled_from([None, math.nan]) | KINDS[pa.float16()], min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_each_interval_of_pages_with_nan_and_nulls_is_told_from_two_pages(kind, pages):
    tables = [pa.table({"c": pa.array(page, kind)}) for page in pages]
    table = store_with(*tables).snapshot().table("t")
    rows = table.read().column("c")

    for start, stop in combinations(range(table.num_rows + 1), 2):
        found = table.aggregate("c", start, stop)

        assert same(told(found), expected(rows.slice(start, stop - start), kind))
        assert found.pages_read <= 2


def test_pages_of_nothing_but_nan_hide_no_value_of_others_and_are_not_read():
    store = store_with(pa.table({"c": [math.nan] * 2}), pa.table({"c": [1.0, 2.0, 3.0]}))
    table = store.snapshot().table("t")

    assert (told(table.aggregate("c", 0, 4)), table.aggregate("c", 0, 4).pages_read) == ((1.0, 2.0, 4, 0), 1)
    nothing_else = table.aggregate("c", 1, 2)
    assert same((*told(nothing_else), nothing_else.pages_read), (math.nan, math.nan, 1, 0, 0))


def test_of_part_of_a_page_of_nulls_and_nan_each_is_told_from_the_other():
    table = store_with(pa.table({"c": pa.array([math.nan, None, math.nan])})).snapshot().table("t")

    assert told(table.aggregate("c", 1, 2)) == (None, None, 0, 1)
    assert same(told(table.aggregate("c", 1)), (math.nan, math.nan, 1, 1))


def test_a_page_of_an_earlier_release_with_a_nan_is_read():
    store = store_with(pa.table({"c": [3.0, math.nan, 1.0]}), pa.table({"c": [2.0]}))
    foreign(store, [3.0, math.nan, 1.0], PageStats(0, None, None, False, 3))

    found = store.snapshot().table("t").aggregate("c")

    assert (told(found), found.pages_read) == ((1.0, 3.0, 4, 0), 1)


def test_of_part_of_a_page_one_bound_says_nothing_where_there_is_a_nan():
    table = store_with(pa.table({"c": [5.0, math.nan, math.nan]})).snapshot().table("t")

    assert same(told(table.aggregate("c", 1)), (math.nan, math.nan, 2, 0))


def test_the_nulls_of_part_of_a_page_are_counted_in_it():
    table = store_with(pa.table({"c": [1, None, 3]}), pa.table({"c": [None, None]})).snapshot().table("t")

    assert (told(table.aggregate("c")), table.aggregate("c").pages_read) == ((1, 3, 2, 3), 0)
    assert (told(table.aggregate("c", 1, 4)), table.aggregate("c", 1, 4).pages_read) == ((3, 3, 1, 2), 1)
    assert table.aggregate("c", 4).pages_read == 0


def foreign(store: Store, rows: list[Any], stats: PageStats) -> None:
    """Put a page with statistics of another writer in the place of the only page of ``t.c``."""
    table = store.snapshot().table("t")
    page = table.directory.chain("c").all_pages().descriptor(0)
    new = NewPage(
        page.entry_count, page.payload_entries, PageKind.INLINE, None, 0, 0, page.actual_len, page.checksum,
        page.data, stats,
    )  # fmt: skip
    txn = store.transaction()
    definition = table.definition
    txn.replace_pages(definition.table_id, definition.field_ids["c"], 0, [page.page_id], [new])
    txn.commit()


@pytest.mark.parametrize(
    "stats",
    [
        PageStats(None, None, None, None),
        PageStats(1, None, None, False),
        PageStats(1, (-9).to_bytes(8, "little", signed=True), (99).to_bytes(8, "little"), False),
        PageStats(1, (1).to_bytes(8, "little"), None, False),
        PageStats(1, b"odd", b"odd", True),
    ],
)
def test_statistics_that_say_less_cost_a_page_and_change_no_answer(stats):
    store = store_with(pa.table({"c": [3, None, 1, 2]}))
    foreign(store, [3, None, 1, 2], stats)

    found = store.snapshot().table("t").aggregate("c")

    assert (told(found), found.pages_read) == ((1, 3, 3, 1), 1)


def test_bounds_that_are_nan_are_no_bounds():
    store = store_with(pa.table({"c": [3.0, None, 1.0, 2.0]}))
    foreign(store, [3.0, None, 1.0, 2.0], PageStats(1, np.float64("nan").tobytes(), b"\0" * 8, True))

    found = store.snapshot().table("t").aggregate("c")

    assert (told(found), found.pages_read) == ((1.0, 3.0, 3, 1), 1)


def test_columns_of_table_0_are_aggregated_as_they_are_read():
    store = store_with(pa.table({"c": [1]}))
    table = store.snapshot().table("system.catalog")

    found = table.aggregate("created_by")

    rows = table.read(["created_by"]).column("created_by")
    assert told(found)[:2] == (pc.min(rows).as_py(), pc.max(rows).as_py()) == (0, 1)


def test_a_column_that_an_append_left_out_is_told_by_its_constant():
    schema = pa.schema([("a", pa.int64()), ("c", pa.int64())])
    store = store_with(pa.table({"a": [1, 2, 3]}), pa.table({"a": [4], "c": [Decimal(7)]}), schema=schema)

    found = store.snapshot().table("t").aggregate("c", 1, 4)

    assert (told(found), found.pages_read) == ((7, 7, 1, 2), 0)


def test_what_is_not_there_is_refused():
    table = store_with(pa.table({"c": [1]})).snapshot().table("t")

    with pytest.raises(ColumnNotFoundError):
        table.aggregate("d")
    with pytest.raises(RowOutOfRangeError):
        table.aggregate("c", 0, 2)


def test_an_aggregate_shows_itself():
    table = store_with(pa.table({"c": [1, None, 5]})).snapshot().table("t")

    assert repr(table.aggregate("c")) == "Aggregate(min=1, max=5, count=2, null_count=1, pages_read=0)"
