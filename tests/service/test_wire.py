"""Answers as bytes and back; a service that answers nonsense is told as such."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_pages.errors import DamageError, InternalError, SparkPagesError, StorageError, VersionNotFoundError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain import ColumnChain
from spark_pages.model.run import PageRun
from spark_pages.service.extents import Extents
from spark_pages.service.failures import from_flight, to_flight
from spark_pages.service.metadata import MetadataService
from spark_pages.service.wire import (
    changes_of_frame,
    decode_header,
    encode_header,
    frame_of_changes,
    frame_of_snapshot,
    snapshot_of_frame,
)
from tests.effort import examples
from tests.service.stores import store_with_a_past, write_more


def never(_: object) -> PageRun:
    raise AssertionError("nothing is promised here")


@pytest.fixture(scope="module")
def frames():
    """Frame of a snapshot and of changes, of a store with a checkpoint and redo."""
    store = store_with_a_past()
    store.checkpoint()
    first = write_more(store)
    write_more(store, 2000)
    service = MetadataService(store.object_store)
    answer = service.get_table_meta_snapshot("default", "t")
    changes = service.collect_table_meta_changes_in_range("default", "t", first + 1)
    return answer, changes


def test_answers_are_the_same_after_their_way_over_the_network(frames):
    answer, changes = frames
    one, two = frame_of_snapshot(answer), frame_of_changes(changes)

    told = snapshot_of_frame(decode_header(encode_header(one.header)), list(one.split(500)), never)
    told_changes = changes_of_frame(decode_header(encode_header(two.header)), list(two.split(1 << 30)), never)

    assert told.definition == answer.definition
    assert (told.version, told.timestamp_us, told.checkpoint) == (
        answer.version, answer.timestamp_us, answer.checkpoint,
    )  # fmt: skip
    assert told.places.keys() == answer.places.keys()
    for field_id, found in answer.places.items():
        assert [(p.location.digest, p.pages, p.rows) for p in told.places[field_id]] == [
            (p.location.digest, p.pages, p.rows) for p in found
        ]
    for mine, theirs in ((told.redo, answer.redo), (told_changes.hot_redo, changes.hot_redo)):
        assert mine.keys() == theirs.keys()
        for field_id, edits in theirs.items():
            assert [(e.version, e.removed, e.removed_entries, e.clears) for e in mine[field_id]] == [
                (e.version, e.removed, e.removed_entries, e.clears) for e in edits
            ]
            for own, other in zip(mine[field_id], edits, strict=True):
                assert own.added.descriptors() == other.added.descriptors()
                assert own.added.stats.equals(other.added.stats)
    assert (told_changes.from_, told_changes.to) == (changes.from_, changes.to)
    assert told_changes.redo_locations == changes.redo_locations


@given(data=st.data())
@settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_headers_that_are_not_understood_are_named_errors(frames, data):
    frame = frame_of_snapshot(frames[0])
    header = json.loads(encode_header(frame.header))
    place = header
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(
                st.one_of(
                    st.none(),
                    st.integers(-5, 1 << 70),
                    st.text(max_size=5),
                    st.lists(st.integers(), max_size=9),
                )
            )
            break
        place = place[key]

    with suppress(DamageError):  # anything else fails the test
        answer = snapshot_of_frame(header, list(frame.split(1 << 20)), never)
        for field_id in answer.redo:
            ColumnChain().apply([e for e in answer.redo[field_id] if not e.removed])


def test_rows_that_cannot_be_true_are_refused(frames):
    frame = frame_of_snapshot(frames[0])
    rows = frame.rows
    wrong = {
        "entry_count": pa.array([-1] * rows.num_rows, pa.int64()),
        "kind": pa.array([7] * rows.num_rows, pa.int8()),
        "page_id": pa.nulls(rows.num_rows, pa.int64()),
        "actual_len": pa.array([1] * rows.num_rows, pa.int32()),
    }

    for name, column in wrong.items():
        index = rows.schema.get_field_index(name)
        broken = rows.set_column(index, rows.schema.field(name), column)
        with pytest.raises(DamageError, match=r"cannot be true|lack their"):
            snapshot_of_frame(frame.header, [broken], never)
    with pytest.raises(DamageError, match="not those of page descriptors"):
        snapshot_of_frame(frame.header, [rows.drop_columns(["kind"])], never)
    with pytest.raises(DamageError, match="not understood"):
        snapshot_of_frame(frame.header, [rows.slice(0, 1)], never)


def test_headers_that_are_no_json_objects_are_refused():
    for data in (b"", b"[]", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(DamageError):
            decode_header(data)


def test_errors_keep_class_message_hint_and_plain_context_and_lose_the_rest():
    error = VersionNotFoundError("No such version.", hint="Look.", version=7, secret=object())

    found = from_flight(to_flight(error, "i"), "url")

    assert type(found) is VersionNotFoundError
    assert (found.message, found.hint, found.context) == ("No such version.", "Look.", {"version": 7})
    assert type(from_flight(to_flight(ValueError("insides"), "i"), "url")) is InternalError
    assert "insides" not in str(from_flight(to_flight(ValueError("insides"), "i"), "url"))


def test_errors_that_another_service_makes_up_become_errors_of_the_tree():
    for detail in (b"", b"null", b"[]", b'{"error": "os"}', b'{"error": "Any", "message": 1}', b"{" * 9000):
        error = to_flight(StorageError("x"), "i")
        error.extra_info = detail
        assert isinstance(from_flight(error, "url"), SparkPagesError)


def test_extents_join_pages_that_touch_and_leave_out_what_lies_between(frames):
    answer, _ = frames
    run = next(e.added for edits in answer.redo.values() for e in edits if isinstance(e.added, PageRun))
    assert Extents.of(run, blooms=False).by_path == {}  # inline pages are in no file

    store = store_with_a_past()
    store.checkpoint()
    snapshot: LogSnapshot = type(store)(store.object_store).snapshot().log
    definition = next(d for d in snapshot.tables() if d.name == "t")
    pages = snapshot.chain((definition.table_id, 1)).all_pages()
    for path, (starts, ends) in Extents.of(pages, blooms=False).by_path.items():
        blocks = {
            block
            for page in pages.descriptors()
            if page.disk_path == path
            for block in range(page.offset, page.offset + page.alloc_len, 4096)
        }
        told = np.concatenate([np.arange(a, b, 4096) for a, b in zip(starts, ends, strict=True)])
        assert sorted(blocks) == told.tolist()
        assert (starts[1:] > ends[:-1]).all()
