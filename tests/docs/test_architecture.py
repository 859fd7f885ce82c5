"""`docs/architecture.md` against a traced read and a traced commit, and how many files each enters."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import spark_pages as sp

PACKAGE = Path(sp.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")

MOST_FILES = {"open and read": 74, "append": 78, "update": 105}
"""Files that each operation may enter. Lower a number when a merge allows it; a higher one needs a reason."""


def steps(section: str) -> list[str]:
    """The files that the numbered steps of a section name, in order."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    numbered = "\n".join(re.findall(r"^\d\. .*(?:\n {3}.*)*", text, re.MULTILINE))
    return re.findall(r"`([\w/]+\.py)`", numbered)


def entered(work: Callable[[], object]) -> list[str]:
    """The files of the package that some work enters, in the order of their first call."""
    files: dict[str, None] = {}

    def record(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(f"{PACKAGE}/") and frame.f_code.co_name != "<module>":
            files.setdefault(name.removeprefix(f"{PACKAGE}/"))

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(files)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A store with a table of 100,000 rows behind a checkpoint."""
    rows = pa.table({"id": range(100_000), "distance": range(100_000)})
    with sp.create(str(tmp_path / "store")) as store:
        with store.transaction() as txn:
            txn.create_table("flights", rows.schema)
            txn.append("flights", rows)
        store.checkpoint()
    return str(tmp_path / "store")


def read(store: sp.Store) -> pa.Table:
    return store.snapshot().table("flights").read(["distance"], start=12_345, stop=12_347)


def open_and_read(folder: str) -> pa.Table:
    return read(sp.open(folder))


def append(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.append("flights", pa.table({"id": [1], "distance": [2]}))


def update(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.update_rows("flights", [5], {"distance": pa.array([7])})


def in_traced_order(named: list[str], traced: list[str]) -> list[str]:
    return sorted(set(named), key=lambda file: traced.index(file) if file in traced else -1)


def test_a_read_enters_the_files_that_the_page_names_in_that_order(folder: str) -> None:
    # given another process's commit, so that the read has a slot to decode
    store = sp.open(folder)
    append(sp.open(folder))
    # when
    traced = entered(lambda: read(store))
    # then
    assert in_traced_order(steps("One read"), traced) == steps("One read")


def test_a_commit_enters_the_files_that_the_page_names_in_that_order(folder: str) -> None:
    # given
    store = sp.open(folder)
    append(store)
    # when
    traced = entered(lambda: append(store))
    # then
    assert in_traced_order(steps("One commit"), traced) == steps("One commit")


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("open and read", lambda folder: partial(open_and_read, folder)),
        ("append", lambda folder: partial(append, sp.open(folder))),
        ("update", lambda folder: partial(update, sp.open(folder))),
    ],
)
def test_few_files_are_entered(folder: str, name: str, work: Callable[[str], Callable[[], object]]) -> None:
    # given
    prepared = work(folder)
    # when
    files = entered(prepared)
    # then
    assert len(files) <= MOST_FILES[name], f"{len(files)} files: {', '.join(files)}"


def test_every_file_that_the_page_names_exists() -> None:
    # given
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    # then
    missing = [
        name for name in named if not (PACKAGE / name).exists() and not (PACKAGE.parent / name).exists()
    ]
    assert missing == []
