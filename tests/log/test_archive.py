"""Bundles: long ranges of slots in one object, whatever their number and bytes."""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise
from math import log2
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.changes.feed import iterate_commits
from spark_pages.errors import DamageError, StorageError, UnsupportedFormatError
from spark_pages.format.commit import decode_slot, encode_commit, encode_tombstone
from spark_pages.format.names import commit_key
from spark_pages.log import slots
from spark_pages.log.compaction import archive as bundles
from spark_pages.log.compaction import compacted_range, reader
from spark_pages.log.compaction.archive import BLOCK, Index, decode_index, encode_index, index_size
from spark_pages.log.compaction.compacted_range import (
    BUNDLES,
    LARGEST,
    CompactedRange,
    plan_ranges,
    plan_reads,
)
from spark_pages.log.compaction.reader import _Usable, slots_of
from spark_pages.log.compaction.writer import LogCompaction, compact_slots, missing_bundles, write_ranges
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import CheckpointRef, Commit, Tombstone
from spark_pages.model.location import Location
from spark_pages.runtime import map_in_threads
from spark_pages.storage import MeteredStore, open_object_store
from spark_pages.storage.store import ObjectStore
from tests.log.records import commit, record

if TYPE_CHECKING:
    from spark_pages.log.log import Log

LONG = (1 << 14) + 3_000
HEAVY = 1_024 + 300


def log_of(size: int) -> ObjectStore:
    """A store that holds nothing but slots 0 to `size` - 1."""
    objects = open_object_store(f"memory://{uuid4().hex}")
    last = None
    for version in range(size):
        last = commit(version, record(version), parent=last)
        data, digest = encode_commit(last)
        objects.put(commit_key(version), data)
        last = decode_slot(data, "slot") if last.digest != digest else last
    return objects


def compact(objects: ObjectStore, stop: int, compacted: int = 0) -> LogCompaction:
    done = compact_slots(objects, map_in_threads, compacted, stop)
    made = make_bundles(objects, done.compacted)
    return LogCompaction(done.compacted, done.keys + made.keys, done.size_bytes + made.size_bytes)


def make_bundles(objects: ObjectStore, stop: int, start: int = 0) -> LogCompaction:
    return write_ranges(objects, map_in_threads, missing_bundles(objects, map_in_threads, start, stop))


def copy_of(objects: ObjectStore) -> ObjectStore:
    copy = open_object_store(f"memory://{uuid4().hex}")
    for info in objects.list(""):
        copy.put(info.key, objects.get(info.key))
    return copy


def bundle_keys(objects: ObjectStore) -> list[str]:
    return [info.key for info in objects.list("_log/") if info.key.endswith(".bundle")]


def digests(objects: ObjectStore, start: int, stop: int, compacted: int) -> list[str]:
    found = SlotReader(objects)
    found.record_range(compacted)
    return [each.digest for each in found.commits(start, stop)]


@pytest.fixture(scope="module")
def slots_alone() -> ObjectStore:
    """Slots, not to be changed."""
    return log_of(HEAVY)


def frames_of(slots_alone: ObjectStore, patch: pytest.MonkeyPatch) -> None:
    """32 commits are too much for one frame."""
    patch.setattr(compacted_range, "MAX_RANGE_BYTES", 24 * slots_alone.size(commit_key(100)))


@pytest.fixture(scope="module")
def compacted(slots_alone: ObjectStore) -> ObjectStore:
    """The same slots, compacted; not to be changed."""
    objects = copy_of(slots_alone)
    with pytest.MonkeyPatch.context() as patch:
        frames_of(slots_alone, patch)
        compact(objects, HEAVY)
    return objects


@pytest.fixture
def heavy(slots_alone: ObjectStore, compacted: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A compacted log in which 32 commits are too much for one frame."""
    frames_of(slots_alone, monkeypatch)
    return copy_of(compacted)


# which there are, and which are read


def objects_read(start: int, stop: int, compacted: int, is_heavy: bool) -> list[CompactedRange]:
    def usable(piece: CompactedRange) -> bool:
        return not (is_heavy and piece.exponent in range(5, LARGEST + 1) and not piece.bundled)

    return list(plan_reads(start, stop, compacted, usable))


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40), st.integers(0, 40), st.booleans())
def test_any_interval_is_in_a_logarithmic_number_of_objects(start, length, more, is_heavy):
    compacted = start + length + more

    pieces = objects_read(start, start + length, compacted, is_heavy)

    assert len(pieces) <= 8 * log2(length + 1) + 16
    assert pieces[0].start <= start < pieces[0].stop
    assert pieces[-1].stop >= start + length > pieces[-1].start
    assert all(later.start <= before.stop < later.stop for before, later in pairwise(pieces))


@given(st.lists(st.tuples(st.integers(0, 9_000), st.booleans()), max_size=5), st.integers(0, 20_000))
def test_what_is_read_is_due_before(steps, start):
    written: set[CompactedRange] = set()
    compacted = stop = 0
    for growth, small in steps:
        stop += growth
        target = stop if small else stop // 16 * 16
        written |= set(plan_ranges(compacted, target))
        compacted = max(compacted, target & ~1)

    nowhere = open_object_store(f"memory://{uuid4().hex}")
    written |= set(missing_bundles(nowhere, map_in_threads, 0, compacted))
    for is_heavy in (False, True):
        for piece in objects_read(start, compacted, compacted, is_heavy):
            assert not piece.exponent or piece in written


def test_bundles_come_after_smaller_ones():
    nowhere = open_object_store(f"memory://{uuid4().hex}")

    due = missing_bundles(nowhere, map_in_threads, 0, (1 << 14) + 70)

    for at, each in enumerate(due):
        assert {*each.bundles_below} <= {*due[:at]}
    assert {each.exponent for each in due} == {6, 10, 14}
    assert [each.start for each in due if each.exponent == 10] == list(range(0, 1 << 14, 1 << 10))
    assert [each.start for each in due if each.exponent == 6] == list(range(0, (1 << 14) + 64, 64))


def test_a_short_interval_is_read_out_of_the_smallest_bundle_that_has_it():
    def usable(piece: CompactedRange) -> bool:
        return piece.bundled

    assert [*plan_reads(5_000, 9_096, 1 << 26, usable)] == [CompactedRange(0, 14, bundled=True)]
    assert [*plan_reads(5_000, 1 << 20, 1 << 26, usable)] == [CompactedRange(0, 22, bundled=True)]


def test_bundles_with_cleaned_slots_are_not_missed():
    nowhere = open_object_store(f"memory://{uuid4().hex}")

    due = missing_bundles(nowhere, map_in_threads, 100, 2_100, behind=1_100)
    from_the_oldest = missing_bundles(nowhere, map_in_threads, 100, 2_100)

    assert min(each.start for each in from_the_oldest) == 128
    assert due == [
        *(CompactedRange(start, 6, bundled=True) for start in range(1_088, 2_048, 64)),
        CompactedRange(1_024, 10, bundled=True),
    ]


# the index

INDEX_OF = CompactedRange(128, 6, bundled=True)
PARTS = [(CompactedRange(128, 5), 700), *((CompactedRange(version, 0), 90) for version in range(160, 192))]


def test_the_index_tells_where_each_part_is():
    data = encode_index(INDEX_OF, PARTS)

    index = decode_index(data, INDEX_OF)
    parts = [*index.parts(128, 192)]

    assert index.size_bytes == BLOCK + 700 + 32 * 90
    assert [*index.parts(150, 161)] == parts[:2]
    assert [*index.parts(191, 500)] == parts[-1:]
    assert len(data) == BLOCK == index_size(data[:BLOCK], INDEX_OF)
    assert [(part.piece, part.length) for part in parts] == PARTS
    assert [part.offset for part in parts[:3]] == [BLOCK, BLOCK + 700, BLOCK + 790]


def test_a_long_index_takes_several_blocks():
    around = CompactedRange(0, 14, bundled=True)
    data = encode_index(around, [(CompactedRange(version, 0), 100_000) for version in range(1 << 14)])

    assert index_size(data[:BLOCK], around) == len(data) > BLOCK
    assert len(decode_index(data, around)) == 1 << 14


@pytest.mark.slow
def test_every_flipped_bit_of_an_index_is_noticed():
    data = encode_index(INDEX_OF, PARTS)

    for position in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises((DamageError, UnsupportedFormatError)):
            parts_of(bytes(damaged))


def parts_of(data: bytes) -> Index:
    """As a reader finds them."""
    return decode_index(data[: index_size(data[:BLOCK], INDEX_OF)], INDEX_OF)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        PARTS[1:],
        PARTS[:-1],
        [*PARTS, (CompactedRange(192, 0), 90)],
        [(CompactedRange(128, 11), 700)],
        [(CompactedRange(128, 0), 90), (CompactedRange(129, 5), 700), *PARTS[2:]],
        [(CompactedRange(128, 5), 0), *PARTS[1:]],
        [(CompactedRange(128, 5), -700), *PARTS[1:]],
        [(CompactedRange(128, -1), 700), *PARTS[1:]],
        [(CompactedRange(128, 300), 700)],
        [(CompactedRange(128, 5), 1 << 50), *PARTS[1:]],
    ],
)
def test_an_index_whose_parts_are_not_the_slots_of_the_bundle_is_damage(parts):
    with pytest.raises(DamageError, match=r"expected slots 128 to 191, found|fail with Overflow"):
        decode_index(encode_index(INDEX_OF, parts), INDEX_OF)


def test_the_index_of_another_bundle_is_damage():
    other = CompactedRange(0, 6, bundled=True)

    with pytest.raises(DamageError, match="expected slots 0 to 63, found"):
        decode_index(encode_index(INDEX_OF, PARTS), other)


def test_an_index_that_says_it_is_huge_is_refused_before_it_is_read():
    data = encode_index(INDEX_OF, PARTS)
    forged = (1 << 40).to_bytes(8, "little") + data[8:]

    with pytest.raises(DamageError, match="found 1099511627776 announced"):
        index_size(forged[:BLOCK], INDEX_OF)


def test_an_index_of_a_newer_release_is_refused(monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(bundles, "FORMAT_VERSION", 2)
        data = encode_index(INDEX_OF, PARTS)

    with pytest.raises(UnsupportedFormatError):
        decode_index(data, INDEX_OF)


# the same answer, in few requests


@pytest.mark.slow
def test_a_long_log_of_small_commits_is_read_out_of_few_objects():
    objects = log_of(LONG)
    compact(objects, LONG)
    expected = digests(objects, 0, LONG, 0)
    meter = MeteredStore(objects)
    whole = CompactedRange(0, 14, bundled=True).key

    assert digests(meter, 0, LONG, LONG) == expected

    assert bundle_keys(objects) == [whole]
    # The bundle; behind it 1,024, 1,024, 512, 256, 128, 32, 16 and 8 slots; and the last slot itself.
    assert len(set(meter.counts.keys)) == 10
    # Of the bundle its index, and four times 4,096 slots.
    assert meter.counts.keys.count(whole) == 5
    for start, stop in [(5_000, 9_000), (1_023, 1_025), (16_380, 16_390), (14_000, LONG)]:
        assert digests(objects, start, stop, LONG) == expected[start:stop]
    check_reading_in_turn(objects, expected)


def check_reading_in_turn(objects: ObjectStore, expected: list[str]) -> None:
    """Few at a time come out of few objects too, and each of these is read about once."""
    meter = MeteredStore(objects)
    commits = SlotReader(meter)
    commits.record_range(LONG)

    found = [each.digest for each in iterate_commits(cast("Log", commits), 0, LONG)]

    ranges = [key for key in meter.counts.keys if "-" in key]
    assert found == expected
    assert len(set(ranges)) <= 9
    assert len(ranges) <= 16
    assert meter.counts.requests <= 26
    assert meter.counts.bytes_read < 1.1 * sum(objects.size(key) for key in set(ranges))


def test_no_more_commits_are_read_at_once_than_have_some_bytes(heavy, monkeypatch):
    monkeypatch.setattr(slots, "_SOME_BYTES", 100 * heavy.size(commit_key(100)))
    monkeypatch.setattr(reader, "RUN_BYTES", 30 * heavy.size(commit_key(100)))
    known = SlotReader(heavy)
    known.record_range(HEAVY)
    at_once, start = [], 0

    while start < HEAVY:
        some = known.some_commits(start, HEAVY)
        assert [each.version for each in some] == list(range(start, start + len(some)))
        at_once.append(len(some))
        start += len(some)

    assert 90 < max(at_once) < 200
    assert start == HEAVY


def test_slots_with_many_bytes_are_in_few_objects_too(heavy):
    meter = MeteredStore(heavy)

    found = digests(meter, 0, HEAVY, HEAVY)

    assert found == digests(heavy, 0, HEAVY, 0)
    sizes = {(each.exponent, each.bundled) for each in map(named, range_keys(heavy))}
    assert sizes == {(4, False), (6, True), (10, True), (3, False), (2, False)}
    assert {named(key) for key in {*meter.counts.keys} & {*bundle_keys(heavy)}} == {
        CompactedRange(0, 10, bundled=True),
        *(CompactedRange(start, 6, bundled=True) for start in range(1_024, 1_280, 64)),
    }
    assert meter.counts.requests < 40


def named(key: str) -> CompactedRange:
    start, end = (int(each) for each in key.removeprefix("_log/").split(".")[0].split("-"))
    return CompactedRange(start, (end - start + 1).bit_length() - 1, key.endswith(".bundle"))


def range_keys(objects: ObjectStore) -> set[str]:
    return {info.key for info in objects.list("_log/") if "-" in info.key}


def test_a_bundle_holds_its_slots_bit_by_bit(heavy):
    around = CompactedRange(0, 10, bundled=True)

    held = [slot for _, some in slots_of(heavy, around, 0, 1 << 10) for slot in some]

    assert held == [heavy.get(commit_key(version)) for version in range(1 << 10)]


def test_of_a_bundle_only_what_is_asked_for_is_read(heavy, monkeypatch):
    monkeypatch.setattr(reader, "RUN_BYTES", 1)
    meter = MeteredStore(heavy)

    ((part, held),) = slots_of(meter, CompactedRange(0, 10, bundled=True), 500, 501)

    assert part == CompactedRange(496, 4)
    assert held[4] == heavy.get(commit_key(500))
    assert meter.counts.requests == 2


def lose(objects: ObjectStore, key: str) -> None:
    objects.delete(key)


def cut(objects: ObjectStore, key: str) -> None:
    objects.put(key, objects.get(key)[:-20])


def cut_short(objects: ObjectStore, key: str) -> None:
    objects.put(key, objects.get(key)[:100])


def flip(objects: ObjectStore, key: str) -> None:
    data = bytearray(objects.get(key))
    data[len(data) // 2] ^= 1
    objects.put(key, bytes(data))


def flip_index(objects: ObjectStore, key: str) -> None:
    data = bytearray(objects.get(key))
    data[40] ^= 1
    objects.put(key, bytes(data))


def empty(objects: ObjectStore, key: str) -> None:
    objects.put(key, b"")


def swap(objects: ObjectStore, key: str) -> None:
    objects.put(key, objects.get(next(each for each in bundle_keys(objects) if each != key)))


HARMS = [lose, cut, cut_short, flip, flip_index, empty, swap]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("harm", HARMS)
def test_a_bundle_that_is_lost_or_damaged_changes_no_answer(
    heavy: ObjectStore, harm: Callable[[ObjectStore, str], None]
):
    expected = digests(heavy, 0, HEAVY, 0)
    known = SlotReader(heavy)
    known.record_range(HEAVY)
    known.commits(0, HEAVY)

    for key in (CompactedRange(0, 10, bundled=True).key, CompactedRange(1_088, 6, bundled=True).key):
        harm(heavy, key)

        assert digests(heavy, 0, HEAVY, HEAVY) == expected
        assert [each.digest for each in known.commits(0, HEAVY)] == expected


def test_a_bundle_that_is_replaced_by_one_of_other_parts_is_read_anew(heavy):
    around = CompactedRange(0, 10, bundled=True)
    expected = digests(heavy, 0, HEAVY, 0)
    meter = MeteredStore(heavy)
    known = SlotReader(meter)
    known.record_range(HEAVY)
    known.commits(0, HEAVY)
    bodies = [heavy.get(commit_key(version)) for version in range(1 << 10)]
    parts = [(CompactedRange(version, 0), len(body)) for version, body in enumerate(bodies)]
    heavy.put(around.key, encode_index(around, parts) + b"".join(bodies))

    assert [each.digest for each in known.commits(0, HEAVY)] == expected
    before = meter.counts.keys.count(around.key)
    known._ranges._usable = _Usable()  # as if others of its size had been there since
    assert [each.digest for each in known.commits(1, HEAVY)] == expected[1:]

    assert meter.counts.keys.count(around.key) == before + 2  # for the index, and for the parts


def test_what_is_missing_in_old_versions_is_not_avoided_in_new_ones(heavy, slots_alone, monkeypatch):
    known = SlotReader(heavy)
    known.record_range(HEAVY)
    for start in range(900, 0, -100):
        known.commits(start, start + 100)
    monkeypatch.setattr(compacted_range, "MAX_RANGE_BYTES", 8 << 20)
    light = copy_of(slots_alone)
    compact(light, HEAVY)
    for key in range_keys(light):
        heavy.put(key, light.get(key))
    meter = MeteredStore(heavy)
    known._ranges._store = meter

    known.commits(1_024, 1_280)

    assert meter.counts.requests < 10


def test_where_all_bundles_are_gone_few_of_them_are_asked_for(heavy):
    for key in bundle_keys(heavy):
        heavy.delete(key)
    meter = MeteredStore(heavy)

    assert digests(meter, 0, HEAVY, HEAVY) == digests(heavy, 0, HEAVY, 0)

    gone = [key for key in meter.counts.keys if "-" in key and key not in range_keys(heavy)]
    assert len(gone) < 60
    assert max(Counter(meter.counts.keys).values()) == 1


# writing


def test_two_that_write_a_bundle_write_the_same_bytes(heavy, slots_alone):
    other = copy_of(slots_alone)

    compact(other, HEAVY)

    assert bundle_keys(other) == bundle_keys(heavy)
    assert all(other.get(key) == heavy.get(key) for key in bundle_keys(heavy))


def test_a_bundle_that_is_there_is_not_written_again(heavy):
    before = {key: heavy.get(key) for key in range_keys(heavy)}
    meter = MeteredStore(heavy)

    assert compact(meter, HEAVY).keys == ()

    assert {key: heavy.get(key) for key in range_keys(heavy)} == before
    assert meter.counts.puts == meter.counts.creates == 0


def test_a_large_bundle_is_made_of_smaller_ones_without_reading_slots(heavy):
    key = CompactedRange(0, 10, bundled=True).key
    before = heavy.get(key)
    meter = MeteredStore(heavy)

    write_ranges(meter, map_in_threads, [CompactedRange(0, 10, bundled=True)])

    assert heavy.get(key) == before
    assert [each for each in meter.counts.keys if "-" not in each] == [commit_key(0)]
    bundles_read = Counter(each for each in meter.counts.keys if each.endswith(".bundle") and each != key)
    assert {*bundles_read.values()} == {3}  # whether it is there, its index, and its parts


def test_a_log_that_grows_step_by_step_has_the_same_bundles(slots_alone, heavy):
    objects = copy_of(slots_alone)
    compacted = 0
    for stop in (40, 64, 100, 700, 1_023, HEAVY):
        compacted = compact(objects, stop, compacted).compacted

    assert {key: objects.get(key) for key in bundle_keys(objects)} == {
        key: heavy.get(key) for key in bundle_keys(heavy)
    }


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", ["size", "get", "get_range", "put", "create"])
def test_compaction_that_stops_anywhere_goes_on_from_there(slots_alone, heavy, kind):
    class Stops:
        """A store of which some calls of a kind fail."""

        def __init__(self) -> None:
            self._calls = count(1)

        def __getattr__(self, name: str) -> Callable[..., object]:
            method = getattr(objects, name)

            def call(*arguments: object) -> object:
                if name == kind and next(self._calls) in (1, 3, 10, 40, 90, 200, 450):
                    raise StorageError("made up")
                return method(*arguments)

            return call

    objects, stops, failed = copy_of(slots_alone), Stops(), 0
    done = None
    while done is None:
        try:
            done = compact(cast("ObjectStore", stops), 1 << 10)
        except StorageError:
            failed += 1

    expected = {key: heavy.get(key) for key in bundle_keys(heavy) if named(key).stop <= 1 << 10}
    assert {key: objects.get(key) for key in bundle_keys(objects)} == expected
    assert failed > 2


def bury(objects: ObjectStore, version: int) -> None:
    key = commit_key(version)
    slot = decode_slot(objects.get(key), key)
    assert isinstance(slot, Commit)
    checkpoint = CheckpointRef(version, Location("_log/checkpoints/x", 1, "0" * 64))
    stone = Tombstone(version, slot.timestamp_us, slot.token, slot.digest, (), checkpoint)
    objects.put(key, encode_tombstone(stone)[0])


def test_a_bundle_with_a_tombstone_in_it_is_not_made(slots_alone, monkeypatch):
    monkeypatch.setattr(compacted_range, "MAX_RANGE_BYTES", 24 * slots_alone.size(commit_key(100)))
    objects = copy_of(slots_alone)
    bury(objects, 70)

    compact(objects, 256)

    kept = {CompactedRange(start, 6, bundled=True).key for start in (0, 128, 192)}
    assert set(bundle_keys(objects)) == kept


@pytest.mark.parametrize("harm", [cut, flip, flip_index, empty])
@pytest.mark.parametrize("damaged", [CompactedRange(64, 6, bundled=True), CompactedRange(48, 4)])
def test_a_bundle_is_made_of_slots_where_what_it_would_be_made_of_is_damaged(heavy, harm, damaged):
    around = CompactedRange(0, 10, bundled=True)
    expected = [heavy.get(commit_key(version)) for version in range(1 << 10)]
    harm(heavy, damaged.key)
    heavy.delete(CompactedRange(0, 6, bundled=True).key)
    heavy.delete(around.key)

    make_bundles(heavy, HEAVY)

    assert [slot for _, some in slots_of(heavy, around, 0, 1 << 10) for slot in some] == expected


def test_a_bundle_that_cannot_be_made_anew_stays(heavy):
    key = CompactedRange(64, 6, bundled=True).key
    flip_index(heavy, key)
    before = heavy.get(key)
    for each in (commit_key(70), CompactedRange(64, 4).key):
        heavy.delete(each)

    done = write_ranges(heavy, map_in_threads, [CompactedRange(64, 6, bundled=True)])

    assert done.keys == ()
    assert heavy.get(key) == before


@pytest.mark.parametrize("harm", [lose, flip])
def test_a_bundle_is_made_of_ranges_that_have_the_only_copy_of_a_slot(heavy, harm):
    key = CompactedRange(64, 6, bundled=True).key
    before = heavy.get(key)
    harm(heavy, commit_key(64))
    heavy.delete(key)

    write_ranges(heavy, map_in_threads, [CompactedRange(64, 6, bundled=True)])

    assert heavy.get(key) == before


def test_a_bundle_of_slots_that_are_buried_meanwhile_does_not_stay(heavy):
    class Burying:
        def __getattr__(self, name: str) -> object:
            return getattr(heavy, name)

        def put(self, key: str, data: bytes) -> None:
            heavy.put(key, data)
            bury(heavy, 64)

    heavy.delete(CompactedRange(64, 6, bundled=True).key)

    done = write_ranges(cast("ObjectStore", Burying()), map_in_threads, [CompactedRange(64, 6, bundled=True)])

    assert done.keys == ()
    assert CompactedRange(64, 6, bundled=True).key not in bundle_keys(heavy)


def test_a_slot_that_is_buried_while_a_bundle_is_written_leaves_none(slots_alone, monkeypatch):
    monkeypatch.setattr(compacted_range, "MAX_RANGE_BYTES", 1)
    objects = copy_of(slots_alone)
    size = objects.size(commit_key(5))

    class Burying:
        def __getattr__(self, name: str) -> object:
            return getattr(objects, name)

        def get_range(self, key: str, offset: int, length: int) -> bytes:
            if key == commit_key(5) and length == size == objects.size(key):
                bury(objects, 5)
            return objects.get_range(key, offset, length)

    write_ranges(cast("ObjectStore", Burying()), map_in_threads, [CompactedRange(0, 6, bundled=True)])

    assert bundle_keys(objects) == []


def test_no_room_for_what_is_put_together_is_an_own_error(heavy, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)

    with pytest.raises(
        StorageError, match=r"not put together in a temporary file: No space left on device\. Make"
    ):
        write_ranges(heavy, map_in_threads, [CompactedRange(0, 10, bundled=True)])


def test_all_sizes_of_bundles_have_room_in_the_names():
    assert all(len(CompactedRange(0, exponent, bundled=True).key) == 5 + 41 + 7 for exponent in BUNDLES)
