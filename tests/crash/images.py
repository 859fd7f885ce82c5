"""Power cuts: a writer commits to ext4 on a loop device, and copies of the device are what a cut would leave.

    python -m tests.crash.images --images 1000 --options noauto_da_alloc

What the kernel has not yet written is not in the copy. The writer is stopped while it is taken, between two
of its system calls, and a copy during which the device changed is taken again: it would be of no moment. Each
copy is mounted, which replays the journal, and the store on it is judged. Needs root and loop devices.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages.errors import SparkPagesError
from spark_pages.format.digest import digest_of
from spark_pages.storage import folders, local
from tests.crash.storm import fork
from tests.invariants import check_store

_MEMORY = Path("/dev/shm")  # noqa: S108  folders in it get random names
_IMAGE_BYTES = 64 << 20
_BIG_ROWS = 4_000


@dataclass(slots=True)
class Outcome:
    """What the images were like."""

    images: int = 0
    commits: int = 0
    unacknowledged: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def why_not() -> str | None:
    """Why no image can be mounted here, or None."""
    if os.geteuid() != 0:
        return "mounting images of a disk needs root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            return f"{tool} is not installed"
    if not _MEMORY.is_dir():
        return f"{_MEMORY} is not there"
    try:
        with _scratch() as folder:
            _make_image(folder / "probe")
            with _mounted(folder / "probe", folder / "mount", ""):
                return None
    except subprocess.CalledProcessError as error:
        return f"no image can be mounted here: {error.stderr.strip()}"


def run(images: int, options: str = "", seed: int = 0, syncs: bool = True) -> Outcome:
    """Cut the power that often, and judge what is left.

    Parameters
    ----------
    images
        How many copies.
    options
        Mount options of ext4, such as ``noauto_da_alloc`` or ``data=writeback``.
    syncs
        Whether the writer syncs at all; where it does not, this must find faults.
    """
    outcome = Outcome()
    chance = random.Random(seed)
    began = time.monotonic()
    with _scratch() as folder:
        image, copy, notes = folder / "image", folder / "copy", folder / "acks"
        _make_image(image)
        with _mounted(image, folder / "mount", options) as disk:
            child = fork(lambda: _write(disk / "store", notes, syncs))
            try:
                while not _acked(notes):
                    time.sleep(0.01)
                for _ in range(images):
                    os.kill(child, signal.SIGCONT)
                    time.sleep(chance.random() * 0.1)
                    acked = _copy(image, copy, notes, child)
                    _judge(copy, folder / "judged", options, acked, outcome)
                    outcome.images += 1
            finally:
                os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
                    outcome.faults.append("the writer ended by itself; see its traceback")
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def _write(folder: Path, notes: Path, syncs: bool) -> None:
    """Commit numbers, now inline and now in a page file, with checkpoints between them."""
    if not syncs:
        folders.sync = local.sync = lambda _descriptor: None
    store = sp.create(str(folder))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("noise", pa.int64())]))
    noise = np.random.default_rng(0).integers(0, 2**60, _BIG_ROWS)
    with notes.open("ab", buffering=0) as file:
        for number in range(10**9):
            rows = _BIG_ROWS if number % 7 == 3 else 1
            with store.transaction() as txn:
                txn.append("t", pa.table({"n": np.full(rows, number), "noise": noise[:rows]}))
            file.write(b".")
            if number % 10 == 9:
                store.checkpoint()
            time.sleep(random.random() * 0.02)


def _acked(notes: Path) -> int:
    return notes.stat().st_size if notes.exists() else 0


def _copy(image: Path, copy: Path, notes: Path, child: int) -> int:
    """Copy the device and leave the writer stopped; gives how many commits were acknowledged before."""
    os.kill(child, signal.SIGSTOP)
    while not _is_stopped(child):
        time.sleep(0.001)
    acked = _acked(notes)
    written_ns = None
    while written_ns != image.stat().st_mtime_ns:
        written_ns = image.stat().st_mtime_ns
        copy.unlink(missing_ok=True)
        _run("cp", "--sparse=always", str(image), str(copy))
    return acked


def _is_stopped(child: int) -> bool:
    """Whether no thread of the process is inside a system call any more."""
    try:
        states = [
            Path(task, "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{child}/task").iterdir()
        ]
    except FileNotFoundError:
        return False
    return all(state in "TZ" for state in states)


def _judge(copy: Path, where: Path, options: str, acked: int, outcome: Outcome) -> None:
    try:
        with _mounted(copy, where, options) as disk:
            _judge_store(disk / "store", acked, outcome)
    except (SparkPagesError, AssertionError, subprocess.CalledProcessError, OSError) as error:
        outcome.faults.append(f"image {outcome.images}: {type(error).__name__}: {str(error)[:300]}")


def _judge_store(folder: Path, acked: int, outcome: Outcome) -> None:
    store = sp.open(str(folder))
    check_store(store)
    assert list((folder / "_log").glob("*.avro")), "the log is empty"
    numbers = store.snapshot().table("t").read(["n"])["n"].to_numpy()
    commits = int(numbers[-1]) + 1 if len(numbers) else 0
    expected = [np.full(_BIG_ROWS if number % 7 == 3 else 1, number) for number in range(commits)]
    assert np.array_equal(numbers, np.concatenate([np.empty(0, np.int64), *expected])), "rows are missing"
    assert commits >= acked, f"{acked} commits were acknowledged, {commits} are there"
    outcome.commits += commits
    outcome.unacknowledged += commits - acked
    for kind in ("segments", "parts", "stats", "catalog"):
        for file in (folder / "_log" / kind).glob("*"):
            assert digest_of(file.read_bytes()) == file.stem, f"{file.name} is torn"
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [commits], "noise": [0]}))
    assert txn.version == commits + 2, "the next commit lands elsewhere"
    store.close()


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        yield Path(name)


def _make_image(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", str(path))


@contextmanager
def _mounted(image: Path, where: Path, options: str) -> Iterator[Path]:
    where.mkdir(exist_ok=True)
    _run("mount", "-o", f"loop,{options}" if options else "loop", str(image), str(where))
    try:
        yield where
    finally:
        for _ in range(50):
            if subprocess.run(["umount", str(where)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.05)
        else:
            _run("umount", "--lazy", str(where))


def _run(*command: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    subprocess.run(command, check=True, capture_output=True, text=True, env={"PATH": path})


def main() -> int:
    """Cut the power and print the outcome as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--options", default="", help="mount options of ext4")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--no-sync", action="store_true", help="the writer syncs nothing: faults must be found"
    )
    asked = parser.parse_args()
    reason = why_not()
    if reason:
        print(json.dumps({"skipped": reason}))
        return 0
    outcome = run(asked.images, asked.options, asked.seed, syncs=not asked.no_sync)
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}))
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
