"""Arguments of the wrong kind are refused by name, and nothing is done."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ColumnNotFoundError, InvalidInputError, RowOutOfRangeError

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = sp.create(str(tmp_path_factory.mktemp("given") / "store"))
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", pa.table({"name": ["a", "b"], "n": [1, 2]}, SCHEMA))
    return store


def table(store):
    return store.snapshot().table("t")


READS = {
    "no address": (
        lambda _: sp.open(None),
        r"Cannot use None \(NoneType\) as the address of a store: expected a path or a URL",
    ),
    "an address in bytes": (
        lambda _: sp.create(b"x"),
        r"Cannot use b'x' \(bytes\) as the address of a store",
    ),
    "a version as text": (
        lambda s: s.snapshot("1"),
        r"Cannot use '1' \(str\) as version: expected a whole number",
    ),
    "half a version": (lambda s: s.snapshot(0.5), r"Cannot use 0.5 \(float\) as version"),
    "a truth": (lambda s: s.snapshot(True), r"Cannot use True \(bool\) as version"),
    "versions": (
        lambda s: s.snapshot(np.array([0, 1])),
        r"Cannot use array\(\[0, 1\]\) \(ndarray\) as version",
    ),
    "a time": (
        lambda s: s.snapshot(timestamp=1.5),
        r"Cannot use 1.5 \(float\) as timestamp: expected a time",
    ),
    "a tag": (
        lambda s: s.snapshot(tag=["x"]),
        r"Cannot use \['x'\] \(list\) as the name of a tag: expected text",
    ),
    "a new tag": (lambda s: s.tag(7), r"Cannot use 7 \(int\) as the name of a tag"),
    "what to tag": (lambda s: s.tag("x", version="0"), r"Cannot use '0' \(str\) as version"),
    "a table": (
        lambda s: s.snapshot().table(3),
        r"Cannot use 3 \(int\) as the name of a table: expected text",
    ),
    "one column": (
        lambda s: table(s).read("name"),
        r"Cannot use the text 'name' as columns: expected a list",
    ),
    "columns": (lambda s: table(s).scan(5), r"Cannot use 5 \(int\) as columns: expected a list of names"),
    "what to add up": (lambda s: table(s).aggregate(5), r"Cannot use 5 \(int\) as column: expected text"),
    "where to look": (lambda s: table(s).directory.locate_row(5, 1), r"Cannot use 5 \(int\) as column"),
    "columns to look in": (
        lambda s: table(s).directory.locate_row(["n"], 1),
        r"Cannot use \['n'\] \(list\) as column",
    ),
    "a row and a half": (
        lambda s: table(s).directory.locate_row("n", 0.5),
        r"Cannot use 0.5 \(float\) as row",
    ),
    "pages of columns": (
        lambda s: table(s).directory.latest(["n"]),
        r"Cannot use \['n'\] \(list\) as column",
    ),
    "half a range": (
        lambda s: table(s).directory.locate_range("n", 0, 1.5),
        r"Cannot use 1.5 \(float\) as end",
    ),
    "when": (
        lambda s: table(s).directory.range("n", 0, 1, "now"),
        r"Cannot use 'now' \(str\) as ts: expected a time",
    ),
    "pages before the first": (
        lambda s: table(s).directory.pages_from("n", -1, 1),
        r"find pages \[-1, 1\) of column 'n'.*it has \d pages",
    ),
    "no page": (
        lambda s: table(s).directory.lookup(None),
        r"Cannot use None \(NoneType\) as page_id: expected 16 hexadecimal digits",
    ),
    "a day": (
        lambda s: s.snapshot(timestamp="yesterday"),
        r"Cannot use 'yesterday' \(str\) as timestamp: expected a time: text",
    ),
    "a column in a list": (lambda s: table(s).read([1]), r"Cannot use 1 \(int\) as a name in columns"),
    "a row": (lambda s: table(s).read(start="0"), r"Cannot use '0' \(str\) as start"),
    "the last row": (lambda s: table(s).read(stop=1.5), r"Cannot use 1.5 \(float\) as stop"),
    "rows of a batch": (
        lambda s: table(s).explain(batch_rows="9"),
        r"Cannot use '9' \(str\) as batch_rows",
    ),
    "blocks": (
        lambda s: table(s).blocks(["n"]),
        r"Cannot use \['n'\] \(list\) as by: expected a column, or a number",
    ),
    "an aggregate": (lambda s: table(s).aggregate(4), r"Cannot use 4 \(int\) as column: expected text"),
    "a filter": (lambda s: table(s).read(filter=[0]), "filter"),
    "changes": (lambda s: s.changes("0", 1), r"Cannot use '0' \(str\) as start"),
    "history": (lambda s: s.history("2"), r"Cannot use '2' \(str\) as limit"),
    "less than no history": (
        lambda s: s.history(-1),
        r"Cannot use -1 \(int\) as limit: expected a number of rows",
    ),
    "SQL": (lambda s: s.sql(b"select 1"), r"Cannot use b'select 1' \(bytes\) as the statement"),
    "retention": (
        lambda s: s.vacuum_plan("7x"),
        "Cannot use '7x' as a retention: it is neither",
    ),
    "half a retention": (lambda s: s.vacuum_plan(2.9), r"Cannot use 2.9 \(float\) as retention"),
    "half a row": (
        lambda s: table(s).directory.locate_rows("n", [1.5]),
        "rows of type float64",
    ),
    "masked rows": (
        lambda s: table(s).take(np.ma.masked_array([0, 1], [False, True])),
        "Cannot use a masked array as rows: expected whole numbers",
    ),
    "no list of rows": (
        lambda s: table(s).directory.locate_rows("n", 1),
        "rows of type int64",
    ),
    "too long": (lambda s: s.snapshot().lease(timedelta.max, required=True), "after the year 9999"),
    "a lease": (lambda s: s.snapshot().lease(60), r"Cannot use 60 \(int\) as duration: expected a timedelta"),
    "an error": (
        lambda s: s.resume("it failed"),
        r"Cannot use 'it failed' \(str\) as error: expected a CommitUnknownError",
    ),
    "a transaction": (lambda s: s.transaction(read_version="0"), r"Cannot use '0' \(str\) as read_version"),
    "what is done": (lambda s: s.transaction(5), r"Cannot use 5 \(int\) as operation"),
    "parameters": (
        lambda s: s.transaction(parameters={"n": 1}),
        r"Cannot use 1 \(int\) as 'n' in parameters",
    ),
    "a definition": (
        lambda s: s.snapshot().table_of("t"),
        r"Cannot use 't' \(str\) as definition: expected a TableDefinition",
    ),
    "pages": (lambda s: table(s).page_values("n", ["t"]), r"Cannot use 't' \(str\) as a value in pages"),
    "no pages": (
        lambda s: table(s).page_values("n", 5),
        r"Cannot use 5 \(int\) as pages: expected a list of page",
    ),
    "ranges": (lambda s: table(s).rows_in(["n"], 1), r"Cannot use 1 \(int\) as ranges: expected RowRanges"),
    "a trace": (lambda s: table(s).read(trace="x"), r"Cannot use 'x' \(str\) as trace: expected a ReadTrace"),
    "a scan's trace": (lambda s: table(s).scan(trace=1), r"Cannot use 1 \(int\) as trace"),
    "a trace of rows": (lambda s: table(s).take([0], trace=[]), r"Cannot use \[\] \(list\) as trace"),
    "candidates of nothing": (
        lambda s: table(s).candidate_rows(None),
        "Cannot use None as filter: expected a condition",
    ),
    "rows of nothing": (
        lambda s: table(s).rows_to_read(None),
        "Cannot use None as filter: expected a condition",
    ),
    "metadata": (lambda s: table(s).read(entry_meta=np.array([0, 1])), r"as entry_meta"),
    "which pages": (
        lambda s: s.verify(pages=np.array([0, 1])),
        r"array.* as pages: expected 'all', 'sample'",
    ),
    "pages to mend": (
        lambda s: s.repair_plan(pages=1),
        r"Cannot use 1 \(int\) as pages: expected 'all', 'sample'",
    ),
    "a number of a store": (
        lambda _: sp.create("memory://no", properties={"checkpoint_commits": "-1"}),
        "checkpoint_commits of a store to '-1': expected a whole number",
    ),
    "an option of a table": (
        lambda _: sp.create("memory://no", properties={"page_bytes": "-1"}),
        "page_bytes of a store: it has no meaning there.*set_table_properties",
    ),
    "an application": (
        lambda s: s.transaction(app_id="a", app_version="1"),
        r"Cannot use '1' \(str\) as app_version",
    ),
}

CHANGES = {
    "a table": (lambda t: t.append(["t"], {}), r"Cannot use \['t'\] \(list\) as the name of a table"),
    "a schema": (
        lambda t: t.create_table("u", ["n"]),
        "Cannot make a schema: expected pairs of a name and a type, found 'n'",
    ),
    "properties": (
        lambda t: t.set_table_properties("t", "x"),
        r"Cannot use 'x' \(str\) as properties: expected texts",
    ),
    "a property": (
        lambda t: t.set_properties({"x": 1}),
        r"Cannot use 1 \(int\) as 'x' in properties: expected text",
    ),
    "its name": (
        lambda t: t.create_namespace("u", {1: "x"}),
        r"Cannot use 1 \(int\) as a name in properties",
    ),
    "a namespace": (lambda t: t.create_namespace(1), r"Cannot use 1 \(int\) as the name of a namespace"),
    "another": (
        lambda t: t.drop_namespace(pa.table({"n": [1]})),
        r"Cannot use pyarrow.Table n.* as the name of a namespace",
    ),
    "a type": (lambda t: t.drop_type(None), r"Cannot use None \(NoneType\) as the name of a type"),
    "what it is of": (lambda t: t.create_type("u", 5), r"Cannot use 5 \(int\) as base"),
    "a column": (
        lambda t: t.add_column("t", "m"),
        r"Cannot use 'm' \(str\) as column: expected a pyarrow.Field",
    ),
    "what to drop": (lambda t: t.drop_column("t", 2), r"Cannot use 2 \(int\) as column"),
    "wider": (
        lambda t: t.widen_column("t", "n", "int64"),
        r"Cannot use 'int64' \(str\) as type: expected a pyarrow.D",
    ),
    "a new name": (
        lambda t: t.rename_column("t", "n", 1.5),
        r"Cannot use 1.5 \(float\) as name: expected text",
    ),
    "an order": (
        lambda t: t.reorder_columns("t", None),
        r"Cannot use None \(NoneType\) as columns: expected a list",
    ),
    "what to update": (
        lambda t: t.update_rows("t", [0], {5: [1]}),
        r"Cannot use 5 \(int\) as a name in columns",
    ),
    "what goes with rows": (
        lambda t: t.append("t", pa.table({"name": ["a"], "n": [1]}), entry_meta=1.5),
        "Cannot use a float as entry_meta: expected a table",
    ),
    "what goes with pages": (
        lambda t: t.append("t", pa.table({"name": ["a"], "n": [1]}), page_metadata=("n",)),
        r"Cannot use \('n',\) \(tuple\) as page_metadata: expected metadata by column",
    ),
    "a claim": (lambda t: t.claim("mine"), r"Cannot use 'mine' \(str\) as claim: expected a Claim"),
    "a run": (
        lambda t: t.replace_pages("t", 1, 0, [], []),
        r"Cannot use 't' \(str\) as table_id: expected a whole number",
    ),
    "what gives way": (
        lambda t: t.replace_pages(1, 1, 0, 5, []),
        r"Cannot use 5 \(int\) as removed: expected a list",
    ),
    "new pages": (
        lambda t: t.replace_pages(1, 1, 0, [1], ["x"]),
        r"Cannot use 'x' \(str\) as a value in pages",
    ),
    "written rows": (
        lambda t: t.append_written("t", [{"n": [1]}]),
        r"Cannot use \{'n': \[1\]\} \(dict\) as a value in written: expected one of WrittenRows",
    ),
    "a foreign key": (
        lambda t: t.add_constraint("t", "f", foreign_key=5),
        r"Cannot use 5 \(int\) as foreign_key: expected a list of columns",
    ),
    "half a foreign key": (
        lambda t: t.add_constraint("t", "f", foreign_key=(["n"], "t")),
        "Cannot add a foreign key of 2 parts: expected columns, a table",
    ),
    "its columns": (
        lambda t: t.add_constraint("t", "f", foreign_key=("n", "t", ["n"])),
        "Cannot use the text 'n' as foreign_key: expected a list of names",
    ),
    "a key": (lambda t: t.add_constraint("t", "k", primary_key=5), r"Cannot use 5 \(int\) as primary_key"),
    "a check": (
        lambda t: t.add_constraint("t", "c", check=5),
        r"Cannot use 5 \(int\) as check: expected text",
    ),
    "whose rule": (
        lambda t: t.add_constraint("t", 5, check="n > 0"),
        r"Cannot use 5 \(int\) as the name of a constraint",
    ),
    "where a page is": (
        lambda t: t.directory("t").register_page("n", "data/x", "0"),
        r"Cannot use '0' \(str\) as offset",
    ),
    "whose page": (
        lambda t: t.directory("t").register_page("n", 5, 0),
        r"Cannot use 5 \(int\) as the path of a page",
    ),
    "its size": (
        lambda t: t.directory("t").register_page_with_sizes("n", "data/x", 0, 4096, 1.5, 1),
        r"Cannot use 1.5 \(float\) as actual_len: expected a whole number",
    ),
    "a batch": (lambda t: t.directory("t").register_batch([7]), r"Cannot use 7 \(int\) as a value in pages"),
    "a number of the store": (
        lambda t: t.set_properties({"retention_versions": "many"}),
        "retention_versions of a store to 'many'",
    ),
    "a comment": (lambda t: t.set_comment("t", 5), r"Cannot use 5 \(int\) as comment"),
    "rows": (lambda t: t.append("t", pa.array([1, 2])), r"Cannot append a Int64Array: expected columns"),
    "columns of two lengths": (
        lambda t: t.append("t", {"name": ["a"], "n": [1, 2]}),
        r"Cannot append this mapping: expected columns of equal length by name, found: .*length",
    ),
    "a column that is no list": (
        lambda t: t.append("t", {"name": "a", "n": 1}),
        r"Cannot append column 'name' of a mapping: expected a list of values, found 'a' \(str\)",
    ),
    "lists in masked arrays": (
        lambda t: t.append("t", {"name": ["a"], "n": [np.ma.masked_array([1, 2], [False, True])]}),
        "Cannot append column 'n' of a mapping: a value is an array with masked elements",
    ),
    "a list in a masked array": (
        lambda t: t.update_rows("t", [0], {"n": [np.ma.masked_array([1, 2], [False, True])]}),
        "column 'n' of 't': it holds int64.*a value is an array with masked elements",
    ),
    "masked rows": (
        lambda t: t.update_rows("t", np.ma.masked_array([0, 1], [False, True]), {"n": [1, 2]}),
        "Cannot use a masked array as rows",
    ),
    "more rows": (lambda t: t.append("t", pa.chunked_array([[1]])), r"Cannot append a ChunkedArray"),
}


@pytest.mark.parametrize("what", READS)
def test_a_read_says_what_it_was_given_and_what_it_expected(store, what):
    call, message = READS[what]

    with pytest.raises(InvalidInputError, match=message):
        call(store)


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_says_what_it_was_given_and_what_it_expected_and_nothing_is_staged(store, what):
    call, message = CHANGES[what]
    txn = store.transaction()

    with pytest.raises(InvalidInputError, match=message):
        call(txn)

    assert txn.commit() == store.snapshot().version == 1


def test_numbers_of_numpy_are_numbers(store):
    assert store.snapshot(np.int64(1)).table("t").read(start=np.int32(1), stop=np.uint8(2)).num_rows == 1


def test_what_is_masked_is_null_and_arrays_that_mask_nothing_are_arrays(store):
    masked = np.ma.masked_array([5, 6], [False, True])
    with store.transaction() as txn:
        txn.create_table("masked", pa.schema([("n", pa.int64()), ("l", pa.list_(pa.int64()))]))
        txn.append("masked", {"n": masked, "l": [np.ma.masked_array([1]), np.ma.masked_array([2, 3])]})
    with store.transaction() as txn:
        txn.update_rows("masked", np.ma.masked_array([0]), {"n": masked[1:]})

    assert store.snapshot().table("masked").read().to_pydict() == {"n": [None, None], "l": [[1], [2, 3]]}


def test_a_negative_row_is_told_as_it_was_given(store):
    with pytest.raises(RowOutOfRangeError, match="Cannot find row -1 of table 't'"):
        table(store).directory.locate_rows("n", [-1])


def test_values_of_pages_of_no_column_are_refused_by_name(store):
    with pytest.raises(ColumnNotFoundError, match="column 'nope' of table 't'"):
        table(store).page_values("nope", [])


def test_properties_are_taken_away_by_none(store):
    with store.transaction() as txn:
        txn.create_table("gone", SCHEMA, properties={"x": "y"})
        txn.set_table_properties("gone", {"x": None})

    assert "x" not in store.snapshot().table("gone").definition.properties


def test_what_is_long_is_cut():
    with pytest.raises(InvalidInputError, match="…") as refused:
        sp.create("memory://given", properties={"x": ["long"] * 99})
    assert len(refused.value.message) < 150
