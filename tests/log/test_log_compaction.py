from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError, StorageError
from spark_pages.format.commit import decode_slot, encode_commit, encode_tombstone
from spark_pages.format.names import HINT_KEY, commit_key
from spark_pages.log.compaction import compacted_range as compaction
from spark_pages.log.compaction.compacted_range import (
    CompactedRange,
    decode_range,
    encode_range,
    plan_ranges,
    plan_reads,
)
from spark_pages.log.compaction.reader import RangeReader, is_chained
from spark_pages.log.last_checkpoint import read_hints, write_hint
from spark_pages.log.replay import replay
from spark_pages.log.slots import SlotReader
from spark_pages.log.state import LogState
from spark_pages.model.actions import COMMITTED, Tombstone
from spark_pages.runtime import map_in_threads
from spark_pages.storage import MeteredStore, open_object_store
from spark_pages.storage.store import Doubtful, NotCreated
from spark_pages.store import Store
from tests.invariants import check_same
from tests.log.records import commit, record
from tests.transaction.stores import metered, store_with

ROWS = pa.table({"n": [1, 2], "s": ["a", "b"]})


def append(store: Store, count: int) -> None:
    for _ in range(count):
        with store.transaction() as txn:
            txn.append("t", ROWS)


@cache
def made(versions: int, history: int, compacted: bool) -> Store:
    """A store with slots 0 to `versions` - 1. Not to be changed; `history` tells it from others."""
    if not compacted:
        return store_with(*[ROWS] * (versions - 2))
    store = copy_of(made(versions, history, False))
    store.compact_log()
    return store


def copy_of(store: Store) -> Store:
    """A store with the same objects."""
    copy = open_object_store(f"memory://{uuid4().hex}")
    for each in store.object_store.list(""):
        copy.put(each.key, store.object_store.get(each.key))
    return Store(copy)


def plain_store(versions: int = 45, history: int = 0) -> Store:
    """A store with slots 0 to `versions` - 1."""
    return copy_of(made(versions, history, False))


def compacted_store(versions: int = 45, history: int = 0) -> Store:
    """The same, with all slots compacted that can be."""
    return copy_of(made(versions, history, True))


def keys_of(store: Store) -> list[str]:
    return [each.key for each in store.object_store.list("_log/") if "compacted" in each.key]


def check_answers(store: Store, before: tuple[Any, ...]) -> None:
    """A reader that comes new, and one from far behind, see what was seen before."""
    fresh = Store(store.object_store)
    check_same(fresh.snapshot().log, before[0])
    assert told(fresh).equals(before[1])
    check_same(fresh.snapshot(version=20).log, before[2])


def answers(store: Store) -> tuple[Any, ...]:
    fresh = Store(store.object_store)
    return fresh.snapshot().log, told(fresh), fresh.snapshot(version=20).log


def told(store: Store) -> pa.Table:
    """The history as far as commits tell it, whatever a hint says."""
    history = store.history()
    return history.filter(history.column("version").is_valid())


# which ranges there are


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=6))
def test_what_is_read_has_been_written_whatever_the_steps_of_compaction(steps):
    written: set[CompactedRange] = set()
    compacted = stop = 0

    for growth, small in steps:
        stop += growth
        target = stop if small else stop // 16 * 16
        written |= set(plan_ranges(compacted, target))
        compacted = max(compacted, target & ~1)

    for start in range(0, compacted, 7):
        position = start
        for piece in plan_reads(start, compacted, compacted):
            assert not piece.exponent or piece in written
            assert piece.start <= position < piece.stop
            position = piece.stop
        assert position == compacted


def test_ranges_come_after_their_halves():
    seen: set[CompactedRange] = set()

    for each in plan_ranges(0, 300):
        assert each not in seen
        assert each.exponent <= compaction.WHOLE or seen >= set(each.halves)
        seen.add(each)

    assert {(each.start, each.stop) for each in seen if each.exponent < 4} == {(288, 296), (296, 300)}


def test_a_hundred_slots_are_in_seven_objects_wherever_they_begin():
    longest = max(
        len(list(plan_reads(stop - 97, stop & ~1, stop & ~1))) + stop % 2 for stop in range(100, 2_500)
    )

    assert longest == 7


def test_not_much_more_is_read_than_was_asked_for():
    for start in range(0, 200, 3):
        for stop in range(start + 1, 260, 5):
            slots = sum(1 << piece.exponent for piece in plan_reads(start, stop, 512))
            assert slots <= max(16, 8 * (stop - start))


# bytes


def test_a_range_gives_back_its_slots_bit_by_bit():
    slots = [bytes([number]) * number for number in range(1, 5)]

    data = encode_range(4, slots)

    assert decode_range(data, CompactedRange(4, 2)) == slots
    assert data == encode_range(4, slots)


@pytest.mark.parametrize("wanted", [CompactedRange(0, 2), CompactedRange(4, 3), CompactedRange(8, 2)])
def test_a_range_under_another_name_is_damage(wanted):
    data = encode_range(4, [b"a", b"b", b"c", b"d"])

    with pytest.raises(
        DamageError,
        match=f"expected slots {wanted.start} to {wanted.stop - 1}, found 4 slots announced from 4 on",
    ):
        decode_range(data, wanted)


def test_a_range_that_says_it_is_huge_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(compaction, "_MAX_READ_BYTES", 99)

    with pytest.raises(DamageError, match="with 100 bytes"):
        decode_range(encode_range(0, [bytes(50), bytes(50)]), CompactedRange(0, 1))


def test_every_flipped_byte_of_a_range_is_noticed():
    data = encode_range(0, [b"first", b"second"])

    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(DamageError):
            decode_range(bytes(damaged), CompactedRange(0, 1))


# the same answer either way


def test_snapshots_history_and_changes_are_the_same_from_ranges_and_from_slots():
    store = plain_store()
    before, changes = answers(store), store.changes(4, 40)

    store.compact_log()

    check_answers(store, before)
    assert Store(store.object_store).changes(4, 40).equals(changes)


def test_the_slots_stay_as_they_are():
    store = plain_store()
    slots = {each.key: store.object_store.get(each.key) for each in store.object_store.list("_log/0")}

    store.compact_log()

    assert {key: store.object_store.get(key) for key in slots} == slots


def lose(store: Store, key: str) -> None:
    store.object_store.delete(key)


def cut(store: Store, key: str) -> None:
    store.object_store.put(key, store.object_store.get(key)[:-20])


def flip(store: Store, key: str) -> None:
    data = bytearray(store.object_store.get(key))
    data[len(data) // 2] ^= 1
    store.object_store.put(key, bytes(data))


def empty(store: Store, key: str) -> None:
    store.object_store.put(key, b"")


def swap(store: Store, key: str) -> None:
    other = next(each for each in keys_of(store) if each != key)
    store.object_store.put(key, store.object_store.get(other))


def forge(store: Store, key: str) -> None:
    """Put in its place the range of another history, sound in itself, as after a wrong restore."""
    store.object_store.put(key, made(45, 1, True).object_store.get(key))


@pytest.mark.parametrize("harm", [lose, cut, flip, empty, swap, forge])
def test_a_range_that_is_lost_damaged_or_foreign_changes_no_answer(harm: Callable[[Store, str], None]):
    store = compacted_store()
    before = answers(store)

    for key in keys_of(store):
        data = store.object_store.get(key)
        harm(store, key)
        check_answers(store, before)
        store.object_store.put(key, data)


def test_all_ranges_may_be_of_another_history_without_changing_an_answer():
    store, other = compacted_store(), compacted_store(history=1)
    behind = Store(store.object_store)
    behind._log._newest.advance(behind._log.snapshot(version=5).state)
    before = answers(store)

    for key in keys_of(store):
        store.object_store.put(key, other.object_store.get(key))

    check_answers(store, before)


def test_a_foreign_range_at_the_very_end_is_found_out_by_the_slot():
    store = compacted_store(32)
    before = answers(store)

    for key in keys_of(store):
        forge(store, key)

    check_answers(store, before)


def test_commits_out_of_foreign_ranges_are_not_believed():
    store = compacted_store()
    expected = [each.digest for each in store._log.commits(0, 45)]
    for key in keys_of(store):
        forge(store, key)
    reader = SlotReader(store.object_store)
    reader.record_range(44)

    assert [each.digest for each in reader.commits(0, 45)] == expected


def test_the_last_slot_vouches_for_those_before():
    one = commit(0, record(1))
    two = commit(1, record(2), parent=one)
    foreign = commit(0, record(3))

    assert is_chained([one, two])
    assert not is_chained([foreign, two])
    assert not is_chained([one, replace(two, version=2)])


@pytest.mark.parametrize("compacted", [46, 10**3, 10**15])
def test_a_hint_that_promises_too_much_costs_little_and_changes_nothing(compacted):
    store = compacted_store()
    before = answers(store)
    write_hint(store.object_store, None, compacted)
    cold, meter = metered(store)

    assert cold.snapshot().version == 44

    assert meter.counts.requests < 100  # from slots alone it is 77
    check_answers(store, before)


@pytest.mark.parametrize(
    "hint", [b"{}", b"[]", b"\xff", b'{"compacted": -5}', b'{"compacted": "x"}', b'{"compacted": 1e999}']
)
def test_a_hint_without_sense_changes_nothing(hint):
    store = compacted_store()
    before = answers(store)

    store.object_store.put(HINT_KEY, hint)

    check_answers(store, before)


def test_a_hint_of_ranges_makes_no_store():
    store = compacted_store()
    empty_folder = store_with(ROWS)
    empty_folder.object_store.delete(commit_key(0))
    empty_folder.object_store.put(HINT_KEY, store.object_store.get(HINT_KEY))

    with pytest.raises(Exception, match="so it has a gap"):
        Store(empty_folder.object_store).snapshot()


# writing


def test_to_compact_twice_writes_nothing_the_second_time():
    store = plain_store()

    first = store.compact_log()
    second = store.compact_log()

    assert sorted(first.keys) == keys_of(store)
    assert (first.compacted, second.compacted, second.keys) == (44, 44, ())
    assert first.size_bytes == sum(len(store.object_store.get(key)) for key in first.keys)


def test_two_that_compact_at_once_write_the_same_bytes():
    one, copy = plain_store(), plain_store()

    one.compact_log()
    copy.compact_log()

    assert keys_of(one) == keys_of(copy)
    assert all(one.object_store.get(key) == copy.object_store.get(key) for key in keys_of(one))


class Stops:
    """A store that fails from its n-th request on, once applied or not."""

    def __init__(self, inner: Any, after: int, applied: bool) -> None:
        self._inner, self._left, self._applied = inner, after, applied

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in ("get", "put", "create", "size"):
            return method

        def call(*arguments: Any) -> Any:
            self._left -= 1
            if self._left >= 0:
                return method(*arguments)
            if self._applied and self._left == -1 and name in ("put", "create"):
                method(*arguments)
            if name == "create":
                return Doubtful("made up")
            raise StorageError("made up")

        return call


@pytest.mark.parametrize("applied", [False, True])
def test_compaction_that_stops_anywhere_goes_on_from_there(applied):
    store = plain_store()
    expected = keys_of(made(45, 0, True))
    before = answers(store)
    whole, meter = metered(plain_store())
    whole.compact_log()
    stops = range(1, meter.counts.requests - meter.counts.stamps, 17)  # whose slots nobody has to find

    for after in stops:
        for each in keys_of(store):
            store.object_store.delete(each)
        store.object_store.delete(HINT_KEY)
        with pytest.raises(StorageError):
            Store(Stops(store.object_store, after, applied)).compact_log()
        check_answers(store, before)
        Store(store.object_store).compact_log()
        assert keys_of(store) == expected

    assert len(stops) > 5


def test_a_range_is_made_of_slots_where_its_half_is_damaged():
    store = compacted_store(22)
    flip(store, CompactedRange(0, 4).key)
    append(store, 10)

    store.compact_log()

    whole = decode_range(store.object_store.get(CompactedRange(0, 5).key), CompactedRange(0, 5))
    assert whole == [store.object_store.get(commit_key(version)) for version in range(32)]


def test_large_slots_are_left_out_and_read_one_by_one(monkeypatch):
    monkeypatch.setattr(compaction, "MAX_RANGE_BYTES", 16 * 5_900)
    store = plain_store(64)
    before = answers(store)

    store.compact_log()

    assert {key.split(".")[0][-20:] for key in keys_of(store)} <= {f"{end:020d}" for end in (31, 47, 63)}
    assert CompactedRange(0, 5).key not in keys_of(store)
    check_answers(store, before)


def bury(store: Store, version: int) -> None:
    """Overwrite a slot by a tombstone."""
    key = commit_key(version)
    slot = decode_slot(store.object_store.get(key), key)
    stone = Tombstone(
        slot.version,
        slot.timestamp_us,
        slot.token,
        slot.digest,
        tuple((each.token, COMMITTED) for each in slot.records),
        store.snapshot().log.state.newest_checkpoint,
    )
    store.object_store.put(key, encode_tombstone(stone)[0])


def test_a_range_with_a_tombstone_in_it_is_not_made():
    store = plain_store(42)
    store.checkpoint()
    append(store, 1)
    bury(store, 3)

    done = store.compact_log()

    assert done.compacted == 42
    assert not {CompactedRange(0, 4).key, CompactedRange(0, 5).key} & set(keys_of(store))
    assert CompactedRange(16, 4).key in keys_of(store)
    assert Store(store.object_store).snapshot().version == 42


def test_a_reader_behind_tombstones_gets_past_them_with_and_without_ranges():
    store = plain_store(42)
    behind = Store(store.object_store), Store(store.object_store)
    for each in behind:
        each._log._newest.advance(each._log.snapshot(version=10).state)
        each._log._newest.snapshot = each._log.snapshot(version=10)
    store.checkpoint()
    append(store, 4)
    store.compact_log()
    for version in range(36):
        bury(store, version)

    with_ranges = behind[0].snapshot()
    for key in keys_of(store):
        store.object_store.delete(key)
    without = behind[1].snapshot()

    assert with_ranges.version == without.version == 45
    check_same(with_ranges.log, without.log)


# what is known of it


def test_headers_tell_how_far_compaction_has_got():
    one = commit(0, record(1))
    two = commit(1, record(2), parent=one, compacted=1)
    three = commit(2, record(3), parent=two, compacted=10**6)
    four = commit(3, record(4), parent=three)

    states = [replay(LogState(), [one, two, three, four][:count], lambda _: None) for count in (2, 3, 4)]

    assert decode_slot(encode_commit(two)[0], "slot").compacted == 1
    assert [state.compacted for state in states] == [1, 2, 2]


def test_without_a_hint_headers_lead_to_ranges():
    store = compacted_store(40)
    head = store._log.snapshot().state
    last = commit(40, record(77), parent=replace(commit(0), digest=head.digest), compacted=40)
    last = replace(last, timestamp_us=head.timestamp_us + 1)
    store.object_store.create(commit_key(40), encode_commit(last)[0])
    store.object_store.delete(HINT_KEY)
    cold, meter = metered(store)

    assert cold.snapshot().version == 40

    assert sum("compacted" in key for key in meter.counts.keys) == 2


def test_a_checkpoint_remembers_how_far_compaction_has_got():
    store = plain_store(40)

    store.compact_log()
    store.checkpoint()

    assert Store(store.object_store).snapshot().log.state.compacted == 40


def test_a_checkpoint_by_a_process_that_knows_nothing_of_ranges_leaves_them_in_the_hint():
    store = compacted_store(40)

    Store(store.object_store).checkpoint()

    assert read_hints(store.object_store).compacted == 40


def test_ranges_that_are_gone_are_not_asked_for_again_and_again():
    store = compacted_store(45)
    asked: list[str] = []
    inner = MeteredStore(store.object_store)
    reader = RangeReader(
        inner, lambda version: decode_slot(inner.get(commit_key(version)), "slot"), map_in_threads
    )
    for key in keys_of(store):
        store.object_store.delete(key)

    found = reader.between(0, 44, 44)
    asked += [key for key in inner.counts.keys if "compacted" in key]

    assert [slot.version for slot in found] == list(range(44))
    assert len(asked) <= 6


def test_a_reader_asks_only_for_what_the_root_hint_or_header_names():
    store = plain_store(22)
    cold, meter = metered(store)

    cold.snapshot()
    cold.snapshot(version=10)

    assert not [key for key in meter.counts.keys if "compacted" in key]


def test_a_range_that_cannot_be_written_is_named_with_the_reason(monkeypatch):
    store = plain_store()
    monkeypatch.setattr(store.object_store, "create", lambda *_: NotCreated("There is no room."))

    with pytest.raises(StorageError, match=r"Cannot confirm that .* was written: There is no room\. Run "):
        store.compact_log()
