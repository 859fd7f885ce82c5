"""What lies in a store and is no file is named; no verb follows it, waits for it or looks behind it."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import DamageError, InvalidKeyError, SparkPagesError
from spark_pages.maintenance.repair import plan_repair
from spark_pages.maintenance.verify.faults import Verification
from spark_pages.maintenance.verify.verify import verify
from spark_pages.storage import open_object_store
from spark_pages.storage.local import DurableLocalStore
from tests.transaction.stores import QUIET

PLACES = [
    "_log/00000000000000000005.avro",
    "_log/00000000000000000006.avro",
    "_log/_last_checkpoint",
    "_log/*.compacted.avro",
    "_log/checkpoints/*",
    "_log/parts/*",
    "_log/segments/*",
    "_log/catalog/*",
    "pages/*",
    "pages/nobody",
    "_log/segments",
    "_log",
    "pages",
    "_tmp",
]
"""The head, the slot behind it, an object of each kind, and folders."""


def make_pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path, _: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.fchdir(here)
    os.close(here)


def make_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "moved" if (outside / "moved").exists() else outside)


def make_folder(path: Path, _: Path) -> None:
    path.mkdir()


KINDS = {"a named pipe": make_pipe, "a socket": make_socket, "a symbolic link": make_link}

CALLS: dict[str, Callable[[str], object]] = {
    "read": lambda url: sp.open(url).snapshot().table("t").read(),
    "append": lambda url: append(sp.open(url), [1]),
    "checkpoint": lambda url: sp.open(url).checkpoint(),
    "log compaction": lambda url: sp.open(url).compact_log(),
    "page compaction": lambda url: sp.open(url).compact_pages(),
    "vacuum": lambda url: sp.open(url).vacuum(retention=1),
    "repair": lambda url: sp.open(url).repair_plan().execute(),
}


def append(store: sp.Store, rows: list[int]) -> None:
    with store.transaction() as txn:
        txn.append("t", {"n": rows})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a checkpoint, a page file, a compacted range and five commits."""
    made = tmp_path_factory.mktemp("whole") / "store"
    store = sp.create(str(made), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": np.random.default_rng(0).integers(0, 1 << 60, 9_000)})
    append(store, [1])
    store.checkpoint()
    for number in range(3):
        append(store, [number])
    store.compact_log()
    return made


@pytest.fixture
def folder(tmp_path: Path, whole: Path) -> Path:
    """A copy of the store."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    home = tmp_path / "home-of-somebody"
    home.mkdir()
    (home / "thesis.doc").write_text("ten years of work")
    os.utime(home / "thesis.doc", (1, 1))
    return home


@pytest.fixture(autouse=True)
def _ends_in_time() -> Iterator[None]:
    """A call that waits for a pipe is told by a stack trace, not by a job that never ends."""
    timer = threading.Timer(60, lambda: os._exit(97))
    timer.start()
    yield
    timer.cancel()


def put_in_place(folder: Path, place: str, make: Callable[[Path, Path], None], outside: Path) -> str:
    """Move away what is there, and put something else in its place; gives its path below the root."""
    (path, *_) = [*sorted(folder.glob(place)), folder / place]
    if path.exists():
        path.rename(outside / "moved")
    make(path, outside)
    return str(path.relative_to(folder))


def content(outside: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(outside.rglob("*")) if path.is_file()}


def looked_at(folder: Path) -> Verification:
    return verify(open_object_store(str(folder)), pages="all")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_verify_names_what_is_no_file(folder, outside, place, kind):
    path = put_in_place(folder, place, KINDS[kind], outside)

    found = looked_at(folder)

    assert path in {fault.key for fault in found.faults}
    assert not found.ok or path == "_log/_last_checkpoint"  # no answer rests on the hint


@pytest.mark.parametrize("place", [place for place in PLACES if "." in place or place.endswith("/*")])
def test_verify_names_a_folder_in_place_of_an_object(folder, outside, place):
    path = put_in_place(folder, place, make_folder, outside)

    assert path in {fault.key for fault in looked_at(folder).faults}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ["a named pipe", "a symbolic link"])
@pytest.mark.parametrize("place", PLACES)
def test_no_call_waits_for_a_pipe_or_follows_a_link_out_of_the_store(folder, outside, place, kind):
    put_in_place(folder, place, KINDS[kind], outside)
    before = content(outside)

    for call in CALLS.values():
        with suppress(SparkPagesError):
            call(str(folder))

    assert content(outside) == before


def test_the_slot_behind_the_head_is_not_taken_for_empty(folder, outside):
    put_in_place(folder, "_log/00000000000000000006.avro", make_pipe, outside)

    with pytest.raises(DamageError, match=r"0006.avro' in .* a named pipe lies in its place"):
        sp.open(str(folder)).snapshot()


def test_a_repair_sweeps_no_folder_behind_a_link(folder, outside):
    put_in_place(folder, "_tmp", make_link, outside)
    store = DurableLocalStore(folder)

    with pytest.raises(InvalidKeyError, match=r"'_tmp' in .* it is no folder"):
        store.sweep_temporaries(before_us=1 << 60)
    with pytest.raises(InvalidKeyError, match=r"'_tmp' in .* it is no folder"):
        store.temporaries()
    assert sp.open(str(folder)).repair_plan().execute() == ()
    assert (outside / "thesis.doc").exists()


def test_a_sweep_leaves_alone_what_no_writer_has_made(folder):
    (folder / "_tmp").mkdir(exist_ok=True)
    (folder / "_tmp" / "thesis.doc").write_text("ten years of work")
    make_pipe(folder / "_tmp" / ("ab" * 16), folder)
    store = DurableLocalStore(folder)

    assert store.temporaries() == []
    assert store.sweep_temporaries(before_us=1 << 60) == 0
    assert (folder / "_tmp" / "thesis.doc").exists()


def test_something_that_lies_beside_the_folders_of_the_store_is_told_and_harmless(folder, outside):
    put_in_place(folder, "notes", make_link, outside)

    found = looked_at(folder)

    assert found.ok
    assert "notes" in {fault.key for fault in found.faults}


def test_a_lost_slot_is_put_back_in_place_of_a_link(folder, outside):
    path = put_in_place(folder, "_log/00000000000000000002.avro", make_link, outside)
    before = content(outside)

    plan_repair(open_object_store(str(folder))).execute()

    assert (folder / path).is_file()
    assert not (folder / path).is_symlink()
    assert content(outside) == before
    assert looked_at(folder).ok


@pytest.mark.parametrize(("kind", "make"), [*KINDS.items(), ("a folder", make_folder)])
def test_a_read_names_what_lies_in_place_of_a_page_file(folder, outside, kind, make):
    path = put_in_place(folder, "pages/*", make, outside)
    table = sp.open(str(folder)).snapshot().table("t")

    for read in (
        table.read,
        lambda: table.take([5, 8_000]),
        lambda: sp.open(str(folder)).sql("SELECT * FROM t"),
    ):
        with pytest.raises(SparkPagesError, match=f"{path}.*{kind}") as caught:
            read()
        assert caught.value.hint
