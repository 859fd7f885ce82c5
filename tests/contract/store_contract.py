"""What every `ObjectStore` must do. A backend is tested by deriving from `StoreContract`."""

from __future__ import annotations

import mmap
import pickle
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_pages.errors import DamageError, InvalidInputError, InvalidKeyError, ObjectNotFoundError
from spark_pages.storage import Created, Exists, ObjectStore

BAD_KEYS = [
    *("", "..", "../x", "x/../y", "./x", "/a", "a//b", "a/"),
    *("A", "a%2e", "a#1", "a\n", "a\\b", "a b", "é", "a\0"),
    *("_tmp/x", "a" * 201, "/".join(["abc"] * 200)),
]


class StoreContract:
    """Derive, and override the fixture `store` with an empty store of the backend."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def test_an_object_that_was_created_reads_back_as_it_was_written(self, store: ObjectStore) -> None:
        outcome = store.create("_log/00000000000000000000.avro", b"commit 0")

        assert outcome == Created()
        assert store.get("_log/00000000000000000000.avro") == b"commit 0"

    def test_a_second_create_is_told_that_the_key_is_taken_and_changes_nothing(
        self, store: ObjectStore
    ) -> None:
        store.create("_log/0", b"first")

        outcome = store.create("_log/0", b"second")

        assert outcome == Exists()
        assert store.get("_log/0") == b"first"

    def test_of_16_threads_that_race_on_a_key_exactly_one_is_told_that_it_created_it(
        self, store: ObjectStore
    ) -> None:
        keys = [f"_log/{slot}" for slot in range(20)]
        start = threading.Barrier(16)

        def create_all(writer: int) -> list[bool]:
            start.wait()
            return [store.create(key, _body(writer)) == Created() for key in keys]

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(create_all, range(16)))

        for slot, key in enumerate(keys):
            winners = [writer for writer in range(16) if won[writer][slot]]
            assert len(winners) == 1
            assert store.get(key) == _body(winners[0])

    def test_an_empty_object_can_be_created_and_read(self, store: ObjectStore) -> None:
        assert store.create("empty", b"") == Created()

        assert store.get("empty") == b""
        assert store.size("empty") == 0

    def test_a_put_replaces_the_whole_object(self, store: ObjectStore) -> None:
        store.put("_log/_last_checkpoint", b"a long first body")

        store.put("_log/_last_checkpoint", b"short")

        assert store.get("_log/_last_checkpoint") == b"short"

    def test_a_reader_beside_puts_sees_one_body_whole(self, store: ObjectStore) -> None:
        bodies = {_body(writer) for writer in range(30)}
        store.put("hint", _body(0))

        with ThreadPoolExecutor(4) as pool:
            puts = [pool.submit(store.put, "hint", body) for body in bodies]
            seen = {store.get("hint") for _ in range(50)}
            for put in puts:
                put.result()

        assert seen <= bodies

    def test_a_put_takes_any_buffer_and_keeps_no_view_of_it(self, store: ObjectStore) -> None:
        reused = bytearray(b"xabcdx")

        store.put("pages/1", reused)
        store.put("pages/2", memoryview(reused)[1:5])
        reused[:] = b"------"

        assert store.get("pages/1") == b"xabcdx"
        assert store.get("pages/2") == b"abcd"

    def test_a_put_takes_a_mapped_file_of_several_parts(self, store: ObjectStore) -> None:
        with tempfile.TemporaryFile() as file:
            file.write(b"".join(number.to_bytes(4, "big") * 2_048 for number in range(1_500)))
            file.flush()
            store.put("pages/1", mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

        assert store.size("pages/1") == 1_500 * 8_192
        for number in (0, 639, 640, 641, 1_499):
            assert store.get_range("pages/1", number * 8_192 + 8_188, 4) == number.to_bytes(4, "big")

    def test_an_object_longer_than_was_asked_for_is_damage(self, store: ObjectStore) -> None:
        store.put("_log/1", bytes(100))

        assert len(store.get("_log/1", 100)) == 100
        with pytest.raises(DamageError, match=r"'_log/1': it holds 100 bytes, expected at most 99") as caught:
            store.get("_log/1", 99)
        assert caught.value.context == {"key": "_log/1"}

    def test_a_range_is_answered_exactly(self, store: ObjectStore) -> None:
        store.put("pages/1", bytes(range(100)))

        assert store.get_range("pages/1", 10, 5) == bytes(range(10, 15))
        assert store.get_range("pages/1", 99, 1) == b"c"
        assert store.get_range("pages/1", 0, 100) == bytes(range(100))
        assert store.get_range("pages/1", 7, 0) == b""

    @pytest.mark.parametrize(
        ("offset", "length"), [(95, 6), (100, 1), (5_000, 1), (0, 2**40), (2**62, 5), (2**63, 2**63)]
    )
    def test_a_range_past_the_end_is_damage_and_never_a_short_answer(
        self, store: ObjectStore, offset: int, length: int
    ) -> None:
        store.put("pages/1", bytes(100))

        with pytest.raises(DamageError, match="pages/1"):
            store.get_range("pages/1", offset, length)
        with pytest.raises(DamageError, match="pages/1"):
            store.get_ranges("pages/1", [(0, 4), (offset, length)])

    @pytest.mark.parametrize(("offset", "length"), [(-1, 4), (4, -1)])
    def test_a_negative_range_is_a_wrong_call(self, store: ObjectStore, offset: int, length: int) -> None:
        store.put("pages/1", bytes(100))

        with pytest.raises(InvalidInputError):
            store.get_range("pages/1", offset, length)

    def test_ranges_come_in_the_order_asked_for(self, store: ObjectStore) -> None:
        store.put("pages/1", bytes(range(100)))

        answers = store.get_ranges("pages/1", [(50, 2), (3, 0), (0, 3), (51, 2), (3, 2)])

        assert answers == [b"23", b"", b"\0\1\2", b"34", b"\3\4"]
        assert [type(answer) for answer in answers] == [bytes] * 5
        assert store.get_ranges("pages/1", []) == []

    def test_the_size_is_the_length_of_the_object(self, store: ObjectStore) -> None:
        store.put("pages/1", bytes(1_234))

        assert store.size("pages/1") == 1_234

    def test_a_listing_is_sorted_and_holds_what_begins_with_the_prefix(self, store: ObjectStore) -> None:
        for key in ["pages/b", "pages/a", "pages-2/a", "pages/a.x/c", "top", "_log/1", "_log/0"]:
            store.put(key, key.encode())

        everything = ["_log/0", "_log/1", "pages-2/a", "pages/a", "pages/a.x/c", "pages/b", "top"]
        assert [info.key for info in store.list("")] == everything
        assert [info.key for info in store.list("pages/")] == ["pages/a", "pages/a.x/c", "pages/b"]
        assert [info.key for info in store.list("pages/a")] == ["pages/a", "pages/a.x/c"]
        assert [info.key for info in store.list("pa")] == everything[2:6]
        assert store.list("nothing/here/") == []

    def test_a_listing_tells_size_and_time_in_microseconds(self, store: ObjectStore) -> None:
        store.put("pages/a", b"12345")

        (info,) = store.list("pages/")

        assert info.size_bytes == 5
        assert 1_700_000_000_000_000 < info.modified_at_us < 10_000_000_000_000_000

    def test_a_deleted_object_is_gone_and_deleting_it_again_is_fine(self, store: ObjectStore) -> None:
        store.put("pages/a", b"x")

        store.delete("pages/a")
        store.delete("pages/a")
        store.delete("never/was")

        assert store.list("") == []

    def test_a_missing_object_is_not_found_and_the_error_names_it(self, store: ObjectStore) -> None:
        for read in (
            lambda: store.get("pages/gone"),
            lambda: store.get_range("pages/gone", 0, 1),
            lambda: store.get_ranges("pages/gone", [(0, 1), (9, 1)]),
            lambda: store.size("pages/gone"),
        ):
            with pytest.raises(ObjectNotFoundError, match="pages/gone"):
                read()

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_key_outside_the_grammar_is_refused_by_every_method(self, store: ObjectStore, key: str) -> None:
        for call in (
            lambda: store.create(key, b"x"),
            lambda: store.put(key, b"x"),
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 0),
            lambda: store.get_ranges(key, []),
            lambda: store.size(key),
            lambda: store.delete(key),
            lambda: store.local_path(key),
        ):
            with pytest.raises(InvalidKeyError):
                call()
        assert store.list("") == []

    @pytest.mark.parametrize("prefix", ["/", "../", "a//", "A", "_tmp/", "a\n"])
    def test_a_prefix_that_begins_no_key_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(InvalidKeyError):
            store.list(prefix)

    def test_an_error_survives_pickling(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectNotFoundError) as caught:
            store.get("pages/gone")

        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  our own bytes

        assert type(again) is ObjectNotFoundError
        assert str(again) == str(caught.value)
        assert again.context == {"key": "pages/gone"}

    def test_the_clock_of_the_storage_is_told_and_nothing_is_left_behind(self, store: ObjectStore) -> None:
        told = store.now_us()

        assert told is not None
        assert abs(told - time.time_ns() // 1000) < 60_000_000
        assert store.list("") == []


def _body(writer: int) -> bytes:
    return f"body of writer {writer};".encode() * (1 + writer * 50)
