from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import spark_pages as sp
from spark_pages.doctor import examination, probe
from spark_pages.doctor.checks import Check, Status
from spark_pages.doctor.examination import examine, examine_storage
from spark_pages.doctor.races import CREATORS, Attempt, body, judge
from spark_pages.errors import StorageError
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.storage.store import MAX_OBJECT_BYTES, Created, CreateOutcome, Doubtful, Exists, ObjectInfo


def memory() -> Any:
    return open_object_store(f"memory://{uuid4().hex}")


class Liar:
    """A store that passes everything on, and lies in one way."""

    def __init__(self) -> None:
        self.inner = memory()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class SaysCreatedToAll(Liar):
    """Ignores the condition, as storage that does not know If-None-Match."""

    def create(self, key: str, data: bytes) -> CreateOutcome:
        self.inner.put(key, data)
        return Created()


class SaysCreatedAndKeepsTheFirst(Liar):
    def create(self, key: str, data: bytes) -> CreateOutcome:
        self.inner.create(key, data)
        return Created()


class LooksBeforeItWrites(Liar):
    """Honours the condition only where nobody else is writing; the first two of a race are there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.both = threading.Barrier(2)

    def create(self, key: str, data: bytes) -> CreateOutcome:
        if self.inner.list(key):
            return Exists()
        if "race" in key:
            with suppress(threading.BrokenBarrierError):
                self.both.wait(60)
                self.both.abort()
        self.inner.put(key, data)
        return Created()


class LosersOverwrite(Liar):
    def create(self, key: str, data: bytes) -> CreateOutcome:
        outcome = self.inner.create(key, data)
        self.inner.put(key, data)
        return outcome


class ForgetsWhatWasCreated(Liar):
    def create(self, key: str, data: bytes) -> CreateOutcome:
        outcome = self.inner.create(key, data)
        self.inner.put(f"{key}-hidden", data)
        self.inner.delete(key)
        return Exists() if self.inner.list(f"{key}-hidden") and isinstance(outcome, Exists) else Created()


class ForgetsTheCondition(Liar):
    """Honours it for as long as the race lasts, and then no more."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def create(self, key: str, data: bytes) -> CreateOutcome:
        self.calls += 1
        return self.inner.create(key, data) if self.calls <= 3 * CREATORS else Created()


def check_of(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.mark.parametrize(
    "liar",
    [
        SaysCreatedToAll,
        SaysCreatedAndKeepsTheFirst,
        LooksBeforeItWrites,
        LosersOverwrite,
        ForgetsWhatWasCreated,
        ForgetsTheCondition,
    ],
)
def test_storage_that_only_pretends_to_honour_conditional_puts_is_refused(liar: type[Liar]) -> None:
    checks = examine_storage(liar(), Runtime())

    assert check_of(checks, "conditional puts").status is Status.FAILED
    assert "commits would be lost" in check_of(checks, "conditional puts").remedy


def test_storage_that_keeps_its_promises_passes_and_is_left_clean() -> None:
    store = memory()

    checks = examine_storage(store, Runtime())

    assert [check for check in checks if check.status is not Status.OK] == []
    assert f"{CREATORS} creators" in check_of(checks, "conditional puts").found
    assert store.list("") == []


class DoubtsHalf(Liar):
    def create(self, key: str, data: bytes) -> CreateOutcome:
        outcome = self.inner.create(key, data)
        return Doubtful("the answer was lost") if int(data[:2], 16) % 2 else outcome


def test_doubt_is_no_lie_but_is_told() -> None:
    check = check_of(examine_storage(DoubtsHalf(), Runtime()), "conditional puts")

    assert check.status is Status.WARNING
    assert "the answer was lost" in check.found


class Stale(Liar):
    """Reads after an overwrite as before."""

    def put(self, key: str, data: bytes) -> None:
        if not self.inner.list(key):
            self.inner.put(key, data)


class ListsNothing(Liar):
    def list(self, prefix: str) -> list[ObjectInfo]:
        return []


class ShortRanges(Liar):
    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.inner.get(key)[offset : offset + length]


class NeverMissing(Liar):
    def get(self, key: str, most_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        return self.inner.get(key, most_bytes) if self.inner.list(key) else b""


@pytest.mark.parametrize(
    ("liar", "name"),
    [
        (Stale, "overwrite"),
        (ListsNothing, "listing"),
        (ShortRanges, "ranges"),
        (NeverMissing, "missing objects"),
    ],
)
def test_other_promises_that_are_not_kept_are_told(liar: type[Liar], name: str) -> None:
    checks = examine_storage(liar(), Runtime())

    assert check_of(checks, name).status is Status.FAILED


def test_credentials_that_are_wrong_are_told_without_secrets() -> None:
    class Refused(Liar):
        def put(self, key: str, data: bytes) -> None:
            raise StorageError(
                "Writing failed: PermissionDeniedError, HTTP 403.", hint="Check the credentials."
            )

    checks = examine_storage(Refused(), Runtime())

    assert checks[0] == Check(
        "reach", Status.FAILED, "Writing failed: PermissionDeniedError, HTTP 403.", "Check the credentials."
    )
    assert [check.name for check in checks] == ["reach"]


@pytest.mark.parametrize("skew_s", [-3600, 3600])
def test_a_clock_that_is_off_is_told(skew_s: int) -> None:
    runtime = Runtime(now_us=lambda: time.time_ns() // 1000 + skew_s * 1_000_000)

    check = check_of(examine_storage(memory(), runtime), "clock of the storage")

    assert check.status is Status.WARNING
    assert f"{skew_s:+d}" in check.found


def test_a_store_that_is_there_is_told_and_not_touched(tmp_path: Path) -> None:
    store = sp.create(tmp_path / "store")
    before = [info.key for info in store.object_store.list("")]
    ahead = Runtime(now_us=lambda: time.time_ns() // 1000 - 3_600_000_000)

    checks = examine_storage(store.object_store, Runtime())
    later = examine_storage(store.object_store, ahead)

    assert check_of(checks, "store").found == "version 0"
    assert check_of(checks, "newest commit").status is Status.OK
    assert check_of(later, "newest commit").status is Status.WARNING
    assert [info.key for info in store.object_store.list("")] == before


def test_a_local_disk_passes_with_several_processes_and_a_fork(tmp_path: Path) -> None:
    found = examine(str(tmp_path / "new"))

    assert found.ok
    assert "4 processes" in check_of(list(found.checks), "conditional puts").found
    assert check_of(list(found.checks), "fork").found == "a forked child can read"
    assert open_object_store(tmp_path / "new").list("") == []
    assert list((tmp_path / "new").glob("_doctor*")) == [], "not even an empty folder"


def test_a_child_that_hangs_is_found_out_and_killed() -> None:
    class Hangs(Liar):
        calls = 0

        def get(self, key: str) -> bytes:
            self.calls += 1
            if self.calls > 1:
                time.sleep(60)
            return b"x"

    assert probe.read_after_fork(Hangs(), "k", timeout_s=0.3) == "hangs"


def test_a_child_that_is_refused_is_told_apart_from_one_that_dies() -> None:
    class Fails(Liar):
        calls = 0
        error: type[Exception] = StorageError

        def get(self, key: str) -> bytes:
            self.calls += 1
            if self.calls > 1:
                raise self.error("no")
            return b"x"

    dying = Fails()
    dying.error = ZeroDivisionError

    assert probe.read_after_fork(Fails(), "k") == "refused"
    assert probe.read_after_fork(dying, "k") == "dies"


@pytest.mark.parametrize(
    ("told", "content", "says"),
    [
        ([Attempt("1", "created"), Attempt("2", "exists")], body(1), None),
        ([Attempt("1", "created"), Attempt("2", "created")], body(1), "2 of 2 creators"),
        ([Attempt("1", "created"), Attempt("2", "exists")], body(2), "other bytes"),
        ([Attempt("1", "created"), Attempt("2", "exists")], None, "is not there"),
        ([Attempt("1", "exists"), Attempt("2", "exists")], body(1), "none of 2 creators"),
        ([Attempt("1", "timeout"), Attempt("2", "exists")], body(1), None),
        ([Attempt("1", "timeout"), Attempt("2", "exists")], body(2), "other bytes"),
        ([Attempt("1", "timeout")], None, None),
    ],
)
def test_races_are_judged(told: list[Attempt], content: bytes | None, says: str | None) -> None:
    problem = judge(told, content)

    assert (problem is None) if says is None else says in problem


@pytest.mark.parametrize(
    ("installed", "status"),
    [
        ({"pyspark": None, "delta-spark": None}, Status.OK),
        ({"pyspark": "4.2.0", "delta-spark": None}, Status.OK),
        ({"pyspark": "4.2.1", "delta-spark": "4.4.0"}, Status.OK),
        ({"pyspark": "4.2.1", "delta-spark": "4.3.0"}, Status.WARNING),
        ({"pyspark": "3.5.1", "delta-spark": "4.4.0"}, Status.WARNING),
    ],
)
def test_pyspark_and_delta_must_go_together(installed: dict[str, str | None], status: Status) -> None:
    assert examination.check_spark(installed).status is status


@pytest.mark.parametrize(
    ("told", "status", "found"),
    [
        ('openjdk version "21.0.2" 2024', Status.OK, "version 21"),
        ('openjdk version "17" 2021', Status.OK, "version 17"),
        ('java version "1.8.0_392"', Status.WARNING, "version 8"),
        ("nonsense", Status.WARNING, "does not tell its version"),
    ],
)
def test_java_must_be_new_enough(
    monkeypatch: pytest.MonkeyPatch, told: str, status: Status, found: str
) -> None:
    monkeypatch.setattr(examination, "find_java", lambda: "java")
    monkeypatch.setattr(examination, "_output", lambda _: told)

    check = examination.check_java()

    assert (check.status, check.found) == (status, found)


def test_a_machine_without_java_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "find_java", lambda: None)

    assert examination.check_java().status is Status.WARNING


def test_sparks_python_must_be_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    found = {}
    for name, given in (("same", sys.executable), ("other", str(other)), ("gone", str(tmp_path / "no"))):
        monkeypatch.setenv("PYSPARK_PYTHON", given)
        found[name] = examination.check_pyspark_python().status

    assert found == {"same": Status.OK, "other": Status.WARNING, "gone": Status.WARNING}


def test_this_machine_can_run_a_store() -> None:
    assert [check for check in examination.check_machine() if check.status is Status.FAILED] == []
