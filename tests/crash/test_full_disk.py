"""A disk that is full, fails, or opens no more files: an honest error, nothing changed, a next try works."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitUnknownError, SparkPagesError, StorageError
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore
from spark_pages.store import Store
from tests.invariants import check_store

NUMBERS = np.random.default_rng(0).integers(0, 2**60, 60_000)
BASE = pa.table({"n": NUMBERS[:4_000]})
MORE = pa.table({"n": NUMBERS[4_000:]})
FEW = pa.table({"n": NUMBERS[:1_000]})


def quick() -> Runtime:
    """A minute, after which a commit gives up, passes in a fifth of a second."""
    return replace(
        Runtime(),
        monotonic_s=lambda: time.monotonic() * 300,
        sleep_s=lambda seconds: time.sleep(min(seconds, 0.01)),
    )


def append_few(store: Store) -> None:
    with store.transaction() as txn:
        txn.append("t", FEW)


def append_more(store: Store) -> None:
    with store.transaction() as txn:
        txn.append("t", MORE)


WORK: dict[str, tuple[Callable[[Store], object], pa.Table | None]] = {
    "a commit with inline pages": (append_few, FEW),
    "a commit with a page file": (append_more, MORE),
    "a checkpoint": (Store.checkpoint, None),
}


def make(folder: Path) -> Store:
    url = str(folder / "store")
    made = sp.create(url)
    with made.transaction() as txn:
        txn.create_table("t", BASE.schema)
        txn.append("t", BASE)
    return Store(DurableLocalStore(url), quick())


def check_unchanged(folder: Path, version: int) -> None:
    fresh = sp.open(str(folder / "store"))
    check_store(fresh)
    assert fresh.snapshot().version == version
    assert fresh.snapshot().table("t").read().equals(BASE)


def check_done_once(folder: Path, added: pa.Table | None) -> None:
    fresh = sp.open(str(folder / "store"))
    check_store(fresh)
    rows = pa.concat_tables([BASE, added]).combine_chunks() if added is not None else BASE
    assert fresh.snapshot().table("t").read().equals(rows)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the space there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    assert os.statvfs(folder).f_bavail == 0
    return filler


@pytest.mark.root
@pytest.mark.parametrize("what", WORK)
def test_on_a_full_disk_work_fails_with_its_reason_changes_nothing_and_works_when_there_is_space(
    small_disk: Path, what: str
) -> None:
    work, added = WORK[what]
    store = make(small_disk)
    filler = fill(small_disk)

    with pytest.raises((StorageError, CommitUnknownError), match="ENOSPC") as caught:
        work(store)

    assert "_log/" in str(caught.value) or "pages/" in str(caught.value)
    check_unchanged(small_disk, version=1)
    assert list((small_disk / "store").glob("_tmp/*")) == []
    filler.unlink()
    if isinstance(caught.value, CommitUnknownError):
        store.resume(caught.value)
    else:
        work(store)
    check_done_once(small_disk, added)


@pytest.mark.root
def test_a_page_file_that_grows_past_the_end_of_the_disk_leaves_nothing_behind(small_disk: Path) -> None:
    store = make(small_disk)
    too_much = pa.table({"n": np.random.default_rng(1).integers(0, 2**60, 400_000)})

    with pytest.raises(StorageError, match="ENOSPC"), store.transaction() as txn:
        txn.append("t", too_much)

    assert list((small_disk / "store").glob("_tmp/*")) == []
    check_unchanged(small_disk, version=1)
    append_more(store)
    check_done_once(small_disk, MORE)


@pytest.mark.parametrize("what", WORK)
@pytest.mark.parametrize("call", ["write", "fsync", "link", "rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_once_is_got_over_or_told_and_nothing_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, call: str, code: int
) -> None:
    work, added = WORK[what]
    store = make(tmp_path)
    really, failed = getattr(os, call), []

    def fail_once(*arguments: object, **options: object) -> object:
        if not failed:
            failed.append(call)
            raise OSError(code, os.strerror(code))
        return really(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail_once)
        told = ""
        try:
            work(store)
        except SparkPagesError as error:
            told = str(error)

    if told:
        assert errno.errorcode[code] in told
        check_unchanged(tmp_path, version=1)
        work(store)
    check_done_once(tmp_path, added)


@pytest.mark.parametrize("what", WORK)
def test_a_process_without_file_descriptors_says_so_and_goes_on_when_it_has_some(
    tmp_path: Path, what: str
) -> None:
    work, added = WORK[what]
    store = make(tmp_path)
    store.snapshot()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises((StorageError, CommitUnknownError), match="EMFILE"):
            work(store)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    check_unchanged(tmp_path, version=1)
    work(store)
    check_done_once(tmp_path, added)
