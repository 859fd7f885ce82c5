"""A process that dies at each of its storage requests in turn, before it or after it.

    python -m tests.crash.every_request

For every kind of work, and every n: a forked child works on a copy of a small store and exits at request n;
then a fresh open must find a sound store with all of the work or nothing of it, and the work is done again.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages import store as store_module
from spark_pages.errors import StoreNotFoundError
from spark_pages.storage import DurableLocalStore
from tests.crash.storm import fork
from tests.invariants import check_store

_DIED = 9
_DIED_CLEAN = 10
"""Died before anything was written: what is left is what was there, and needs no judge."""

_HAPPENED = 3
_REQUESTS = ("create", "put", "get", "get_range", "get_ranges", "size", "list", "delete")
_WRITES = ("create", "put", "delete")
_NUMBERS = np.random.default_rng(0).integers(0, 2**60, 30_000)
BASE = pa.table({"n": _NUMBERS[:4_000]})
MORE = pa.table({"n": _NUMBERS[4_000:8_000]})
FEW = pa.table({"n": _NUMBERS[8_000:8_003]})


class DyingStore:
    """A local store at whose n-th request the process ends, before it is made or right after."""

    def __init__(self, folder: str, request: int, after: bool, counted: tuple[str, ...] = _REQUESTS) -> None:
        self._counted = counted
        self._inner = DurableLocalStore(folder)
        self._left = request
        self._after = after
        self._written = False
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name not in self._counted:
            return inner

        def counted(*arguments: object) -> object:
            with self._lock:
                self._left -= 1
                dies = self._left == 0
                if dies and not self._after:
                    self._die()
                self._written |= name in _WRITES
            try:
                return inner(*arguments)
            finally:
                if dies:
                    self._die()

        return counted

    def _die(self) -> None:
        os._exit(_DIED if self._written else _DIED_CLEAN)

    def local_path(self, _key: str) -> None:
        """None, so that no read passes by."""


def create(url: str) -> None:
    sp.create(url)


def append_few(url: str) -> None:
    """A commit with its pages inline."""
    with sp.open(url).transaction() as txn:
        txn.append("t", FEW)


def append_more(url: str) -> None:
    """A commit with a page file."""
    with sp.open(url).transaction() as txn:
        txn.append("t", MORE)


def update(url: str) -> None:
    with sp.open(url).transaction() as txn:
        txn.update_rows("t", [5, 4_001], {"n": [-1, -2]})


def create_table(url: str) -> None:
    with sp.open(url).transaction() as txn:
        txn.create_table("other", BASE.schema)
        txn.append("other", FEW)


def change_the_catalog(url: str) -> None:
    """One commit of many changes, rows among them."""
    with sp.open(url).transaction() as txn:
        txn.create_namespace("sales", {"page_bytes": "4096"})
        txn.create_type("percent", pa.int8(), check="VALUE BETWEEN 0 AND 100")
        txn.create_table("sales.marks", pa.schema([sp.typed("p", "percent"), ("n", pa.int16())]))
        txn.append("sales.marks", {"p": [1, 100], "n": [1, 2]})
        txn.widen_column("sales.marks", "n", pa.int64())
        txn.set_nullable("sales.marks", "n", False)
        txn.add_constraint("t", "ids", check="n >= 0")
        txn.add_constraint("sales.marks", "of", foreign_key=(["n"], "t", ["n"]))
        txn.create_table("temp.stage", BASE.schema)
        txn.append("stage", FEW)


def move_and_describe(url: str) -> None:
    """There and back again: what is left is a comment, and ids that are used up."""
    with sp.open(url).transaction() as txn:
        txn.create_namespace("old")
        txn.rename_table("t", "old.t")
        txn.set_comment("old.t", "moved")
        txn.add_column("old.t", pa.field("m", pa.int8()), default=1)
        txn.reorder_columns("old.t", ["m"])
        txn.drop_column("old.t", "m")
        txn.rename_table("old.t", "t")
        txn.drop_namespace("old")


def checkpoint(url: str) -> None:
    sp.open(url).checkpoint()


def compact_pages(url: str) -> None:
    sp.open(url).compact_pages("t")


def compact_log(url: str) -> None:
    sp.open(url).compact_log()


def tag(url: str) -> None:
    sp.open(url).tag("kept", 1)


def restore(url: str) -> None:
    sp.open(url).restore(version=1)


DEAD = [1, 2_000, 4_001]


def delete(url: str) -> None:
    with sp.open(url).transaction() as txn:
        txn.delete("t", DEAD)


def purge(url: str) -> None:
    """Two commits: a delete, and what takes the values out of the pages."""
    delete(url)
    sp.open(url).compact_pages("t", purge=True)


def erase(url: str) -> None:
    """Plan by number, so that it can be done again after a death."""
    store = sp.open(url)
    report = store.erase("t", rows=DEAD, retention=1).execute()
    found = store.verify("none", erased=report)
    if not report.done or not found.ok:
        raise AssertionError(f"{report} {found}")


DELETES = (delete, purge, erase)


@dataclass(frozen=True, slots=True)
class Work:
    """Something to do with a store, and how many commits it makes at most.

    Attributes
    ----------
    only_writes
        Whether to die after requests that write, and at no others: nothing changes until the next.
    again
        Whether it is done again after each death, since it is several commits.
    """

    do: Callable[[str], None]
    commits: int
    needs_store: bool = True
    only_writes: bool = False
    again: bool = False


WORK = {
    "create a store": Work(create, 1, needs_store=False),
    "commit with inline pages": Work(append_few, 1),
    "commit with a page file": Work(append_more, 1),
    "update": Work(update, 1),
    "create a table": Work(create_table, 1),
    "change the catalog": Work(change_the_catalog, 1),
    "move and describe a table": Work(move_and_describe, 1),
    "checkpoint": Work(checkpoint, 0),
    "compact pages": Work(compact_pages, 3),  # with its claim, set and removed
    "compact the log": Work(compact_log, 0),
    "tag": Work(tag, 1),
    "restore": Work(restore, 1),
    "delete": Work(delete, 1),
    "purge": Work(purge, 5, again=True, only_writes=True),
    "erase": Work(erase, 8, again=True, only_writes=True),
}


@dataclass(slots=True)
class Sweep:
    """What became of one kind of work: deaths, and how often it had happened all the same."""

    deaths: int = 0
    happened: int = 0


def make_template(folder: Path) -> str:
    """A store with a checkpoint, and commits before and after it."""
    url = str(folder / "template")
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", BASE.schema)
        txn.append("t", BASE)
    store.checkpoint()
    for each in (FEW, FEW, FEW):
        with store.transaction() as txn:
            txn.append("t", each)
    store.close()
    return url


def sweep(work: Work, template: str, folder: Path) -> Sweep:
    """Die at every request of the work, before it and after it."""
    result = Sweep()
    for after in (True,) if work.only_writes else (False, True):
        for request in itertools.count(1):
            url = str(folder / "copy")
            shutil.rmtree(url, ignore_errors=True)
            if work.needs_store:
                shutil.copytree(template, url)
            code = _code_of_death(work, url, request, after)
            if code == 0:
                break
            result.deaths += 1
            if code == _DIED:
                result.happened += _judged_in_a_child(work, url)
    return result


def _code_of_death(work: Work, url: str, request: int, after: bool) -> int:
    def child() -> None:
        store_module.open_object_store = lambda url, _options=None: DyingStore(  # type: ignore[assignment]
            os.fspath(url), request, after, _WRITES if work.only_writes else _REQUESTS
        )
        work.do(url)

    _, status = os.waitpid(fork(child), 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, _DIED, _DIED_CLEAN):
        raise AssertionError(f"the child ended with {code}; see its traceback")
    return code


def _judged_in_a_child(work: Work, url: str) -> bool:
    """`_judge` in a process of its own: the one that forks must start no threads."""

    def child() -> None:
        if _judge(work, url):
            os._exit(_HAPPENED)

    _, status = os.waitpid(fork(child), 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, _HAPPENED):
        raise AssertionError("the store is not sound; see the traceback of the judge")
    return code == _HAPPENED


def _judge(work: Work, url: str) -> bool:
    """Whether the work had happened; it has when this returns, once where it is one commit."""
    before = 4 if work.needs_store else -1
    after = before + work.commits
    version = _version(url)
    if version >= 0 and work.do is erase:  # whose vacuum cleans slots
        found = sp.open(url).verify("none")
        if not found.ok:
            raise AssertionError(str(found))
    elif version >= 0:
        check_store(sp.open(url))
    if not before <= version <= after:
        raise AssertionError(f"version {version} after a death, {before} before")
    happened = version > before
    if not happened or work.again:
        work.do(url)
    if work.commits == 1 and _version(url) != after:
        raise AssertionError(f"version {_version(url)}, expected {after}")
    if work.needs_store:
        added = {append_few: [FEW], append_more: [MORE]}.get(work.do, [])
        rows = pa.concat_tables([BASE, FEW, FEW, FEW, *added]).combine_chunks()
        shown = sp.open(url).snapshot().table("t").read()
        if work.do in DELETES:
            rows = rows.take([row for row in range(rows.num_rows) if row not in DEAD])
        if work.do not in (update, restore) and not shown.equals(rows):
            raise AssertionError("the rows are not those that were appended")
    return happened


def _version(url: str) -> int:
    try:
        return sp.open(url).snapshot().version
    except StoreNotFoundError:
        return -1


def main() -> int:
    """Sweep over all kinds of work and print what came of it as one line of JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = make_template(folder)
        swept = {}
        for what, work in WORK.items():
            try:
                swept[what] = sweep(work, template, folder)
            except BaseException as error:
                error.add_note(f"while it was to {what}")
                raise
    print(json.dumps({what: [each.deaths, each.happened] for what, each in swept.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
