"""What belongs in front of and behind entries, and to pages, comes back and stays with its rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import ConstraintError, InvalidInputError, SchemaMismatchError
from spark_pages.query import concat
from spark_pages.store import Store
from tests.transaction.stores import store_with

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
ROWS = pa.table({"n": [1, 2, 3], "s": ["a", None, "c"]})
META = pa.table({"n.prefix_meta": ["p1", None, "p3"], "n.suffix_meta": [b"\xff", b"", None]})
READ = {
    "n": [1, 2, 3],
    "n.prefix_meta": [b"p1", None, b"p3"],
    "n.suffix_meta": [b"\xff", b"", None],
    "n.page_metadata": [[(b"source", b"radar")]] * 3,
    "s": ["a", None, "c"],
    "s.prefix_meta": [None] * 3,
    "s.suffix_meta": [None] * 3,
    "s.page_metadata": [None] * 3,
}
TOLD = pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string()))


@pytest.fixture
def store() -> Store:
    store = store_with(schema=SCHEMA)
    with store.transaction() as txn:
        txn.append("t", ROWS, entry_meta=META, page_metadata={"n": {"source": "radar"}})
    return store


def read(store: Store, **how: object) -> dict[str, list[object]]:
    return store.snapshot().table("t").read(entry_meta=True, **how).to_pydict()


def page_metadata(store: Store, column: str = "n") -> list[object]:
    listed = store.snapshot().table("t").pages(column, metadata=True).column("page_metadata")
    return [None if each is None else dict(each) for each in listed.to_pylist()]


def test_entry_metadata_comes_back_beside_its_column_and_only_if_asked_for(store):
    assert read(store) == READ
    assert list(READ) == store.snapshot().table("t").read(entry_meta=True).column_names
    assert store.snapshot().table("t").read().to_pydict() == ROWS.to_pydict()
    assert read(Store(store.object_store), columns=["n"], start=1, stop=3) == {
        name: READ[name][1:3] for name in ("n", "n.prefix_meta", "n.suffix_meta", "n.page_metadata")
    }


def test_rows_of_several_pages_say_what_belongs_to_each(store):
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4, 5], "s": ["d", "e"]}), page_metadata={"n": {"source": "tower"}})
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [6], "s": ["f"]}))

    found = read(store, columns=["n"], start=2)["n.page_metadata"]

    assert found == [[(b"source", b"radar")], *[[(b"source", b"tower")]] * 2, None]


def test_what_is_read_can_be_appended_again(store):
    rows = store.snapshot().table("t").read(entry_meta=True)
    data = rows.select(["n", "s"])

    with store.transaction() as txn:
        txn.append("t", data, entry_meta=rows.drop_columns(["n", "s"]))

    assert read(store, start=3) == READ


def test_page_metadata_belongs_to_the_pages_of_its_append(store):
    with store.transaction() as txn:
        txn.append("t", ROWS)
        txn.append("t", ROWS, page_metadata={"n": {b"\xfe": b"\xff"}, "s": {"k": ""}})

    assert page_metadata(store) == [{b"source": b"radar"}, None, {b"\xfe": b"\xff"}]
    assert page_metadata(store, "s") == [None, None, {b"k": b""}]
    assert "page_metadata" not in store.snapshot().table("t").pages("n").column_names


def test_small_appends_of_one_transaction_share_pages_with_the_same_metadata():
    store = store_with(schema=SCHEMA)

    with store.transaction() as txn:
        for number in range(6):
            row = pa.table({"n": [number], "s": ["x"]})
            meta = {"n.prefix_meta": [f"p{number}"]} if number != 2 else None
            txn.append("t", row, entry_meta=meta, page_metadata={"n": {"half": str(number // 3)}})

    table = store.snapshot().table("t")
    assert table.pages("n")["entry_count"].to_pylist() == [3, 3]
    assert table.pages("s")["entry_count"].to_pylist() == [6]
    assert page_metadata(store) == [{b"half": b"0"}, {b"half": b"1"}]
    assert read(store)["n.prefix_meta"] == [b"p0", b"p1", None, b"p3", b"p4", b"p5"]
    assert read(store)["n"] == [0, 1, 2, 3, 4, 5]


def test_what_is_given_may_change_before_the_commit(store):
    memory = bytearray(b"abc")
    prefix = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.array([0, 3], pa.int32()).buffers()[1], pa.py_buffer(memory)]
    )
    metadata = {"k": "v"}
    with store.transaction() as txn:
        txn.append("t", ROWS.slice(0, 1), entry_meta={"n.prefix_meta": prefix}, page_metadata={"n": metadata})
        memory[:] = b"xyz"
        metadata["k"] = "w"

    found = read(store, columns=["n"], start=3)
    assert (found["n.prefix_meta"], found["n.page_metadata"]) == ([b"abc"], [[(b"k", b"v")]])


def test_rows_with_metadata_are_held_to_the_constraints_of_their_table(store):
    with store.transaction() as txn:
        txn.add_constraint("t", "positive", check="n > 0")

    row = pa.table({"n": [-1], "s": ["x"]})
    with store.transaction() as txn, pytest.raises(ConstraintError, match="positive"):
        txn.append("t", row, entry_meta={"n.prefix_meta": ["a"]})

    assert store.snapshot().table("t").num_rows == 3


def test_dictionaries_that_fit_no_one_page_are_appended_with_their_metadata():
    kind = pa.dictionary(pa.int8(), pa.string())
    store = store_with(schema=pa.schema([("d", kind)]))
    halves = [pa.array([str(first + i) for i in range(100)]) for first in (0, 100)]
    chunks = [half.dictionary_encode().cast(kind) for half in halves]
    prefixes = [b"%d" % i for i in range(200)]

    with store.transaction() as txn:
        txn.append("t", pa.table({"d": pa.chunked_array(chunks)}), entry_meta={"d.prefix_meta": prefixes})

    found = store.snapshot().table("t").read(entry_meta=True)
    assert found["d"].to_pylist() == [str(i) for i in range(200)]
    assert found["d.prefix_meta"].to_pylist() == prefixes


def test_rows_appended_before_and_behind_stand_in_their_order(store):
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4], "s": ["d"]}))
        txn.append("t", pa.table({"n": [5], "s": ["e"]}), entry_meta={"s.suffix_meta": ["x"]})
        txn.append("t", pa.table({"n": [6], "s": ["f"]}))
        assert txn.table("t").num_rows == 6

    found = read(store, start=3)

    assert (found["n"], found["s.suffix_meta"]) == ([4, 5, 6], [None, b"x", None])


def test_many_small_appends_behind_leave_it_where_it_is(store):
    for number in range(12):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [number], "s": ["z"]}))

    assert read(store, stop=3) == READ
    assert page_metadata(store)[0] == {b"source": b"radar"}


def test_an_update_changes_the_value_and_keeps_what_is_beside_it(store):
    with store.transaction() as txn:
        txn.update_rows("t", [0, 1], {"n": [100, None]})

    assert read(store) == READ | {"n": [100, None, 3]}
    assert page_metadata(store) == [{b"source": b"radar"}]


def test_page_compaction_keeps_it_and_does_not_join_pages_with_other_metadata(store):
    with store.transaction() as txn:
        txn.append("t", ROWS, entry_meta={"n.suffix_meta": ["x", "y", "z"]}, page_metadata={"n": {"k": "1"}})
    with store.transaction() as txn:
        txn.append("t", ROWS, page_metadata={"n": {"k": "1"}})
    before = read(store)
    assert len(page_metadata(store)) == 3

    store.compact_pages("t")

    assert read(store) == before
    assert page_metadata(store) == [{b"source": b"radar"}, {b"k": b"1"}]
    assert store.verify(pages="all").ok


def test_restore_and_checkpoints_keep_it(store):
    version = store.snapshot().version
    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [100]})
    store.checkpoint()

    store.restore(version=version)

    assert read(store) == READ
    store.checkpoint()
    assert read(Store(store.object_store)) == READ
    assert page_metadata(Store(store.object_store)) == [{b"source": b"radar"}]


def test_rows_behind_the_payload_have_that_of_their_page_alone(store):
    with store.transaction() as txn:
        txn.directory("t").update_latest_entry_count("n", 4)
        txn.directory("t").update_latest_entry_count("s", 4)

    more = dict.fromkeys(READ) | {"n.page_metadata": [(b"source", b"radar")]}
    assert read(store) == {name: [*values, more[name]] for name, values in READ.items()}


def test_large_appends_are_cut_with_what_is_beside_the_values():
    store = store_with(schema=SCHEMA)
    count = 20_000
    rows = pa.table({"n": range(count), "s": ["s"] * count})
    meta = {"n.prefix_meta": [b"%06d" % i * 4 for i in range(count)]}
    with store.transaction() as txn:
        txn.append("t", rows, entry_meta=meta)

    found = store.snapshot().table("t").read(["n"], start=12_345, stop=12_347, entry_meta=True)

    assert found.column("n.prefix_meta").to_pylist() == [b"012345" * 4, b"012346" * 4]
    assert store.snapshot().table("t").pages("n").num_rows > 8
    assert store.snapshot().table("t").read().equals(rows.cast(SCHEMA))


def test_metadata_that_does_not_fit_one_array_is_read_in_several(store, monkeypatch):
    with store.transaction() as txn:
        txn.append("t", ROWS, entry_meta=META)
    monkeypatch.setattr(concat, "_MOST_TEXT", 5)

    found = store.snapshot().table("t").read(["n"], entry_meta=True)["n.prefix_meta"]

    assert found.num_chunks == 2
    assert found.to_pylist() == READ["n.prefix_meta"] * 2


def test_a_column_left_out_is_null_as_ever(store):
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [9]}), entry_meta={"n.prefix_meta": ["x"]})

    assert read(store, start=3)["s"] == [None]


@pytest.mark.parametrize(
    ("meta", "metadata", "said"),
    [
        ({"m.prefix_meta": ["a", "b", "c"]}, None, "m.prefix_meta"),
        ({"n.prefix": ["a", "b", "c"]}, None, "n.prefix"),
        ({"n.prefix_meta": ["a"]}, None, "metadata of 1"),
        ({"n.prefix_meta": [1, 2, 3]}, None, "must be binary or text"),
        ({"n.page_metadata": ["a", "b", "c"]}, None, "must be a map"),
        ({"n.page_metadata": TOLD.take([0, 0, 1])}, None, "differs from row to row"),
        ({"n.page_metadata": [["abc"]] * 3}, None, "keys and values"),
        (None, {"m": {"k": "v"}}, "'m'"),
        (None, {"n": {"k": 5}}, "keys and values"),
    ],
)
def test_metadata_that_belongs_to_nothing_is_refused_and_nothing_is_appended(store, meta, metadata, said):
    with store.transaction() as txn:
        with pytest.raises(SchemaMismatchError, match=said):
            txn.append("t", ROWS, entry_meta=meta, page_metadata=metadata)
        txn.append("t", pa.table({"n": [4], "s": ["d"]}))

    assert store.snapshot().table("t").num_rows == 4


def test_a_column_that_is_called_like_the_metadata_of_another_is_told_apart_by_name():
    store = store_with(pa.table({"n": [1], "n.prefix_meta": ["x"]}))
    table = store.snapshot().table("t")

    with pytest.raises(InvalidInputError, match=r"n\.prefix_meta"):
        table.read(entry_meta=True)
    assert table.read(["n.prefix_meta"], entry_meta=True).num_columns == 4


def test_entry_metadata_and_a_filter_do_not_go_together(store):
    with pytest.raises(InvalidInputError, match="through a filter"):
        store.snapshot().table("t").read(filter=[("n", ">", 1)], entry_meta=True)


def test_an_append_of_no_rows_is_none(store):
    version = store.snapshot().version

    with store.transaction() as txn:
        txn.append("t", SCHEMA.empty_table(), entry_meta={"n.prefix_meta": []})

    assert store.snapshot().version == version
