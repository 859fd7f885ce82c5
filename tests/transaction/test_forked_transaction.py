"""A transaction that was begun before a fork is committed by parent and child, each for itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.store import Store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def in_child(work: Callable[[], object]) -> bool:
    """Whether the work succeeds in a forked process."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent asserts on it
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def new_store(folder: Path) -> Store:
    store = sp.create(str(folder / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    return store


def test_both_commit_what_was_staged_before_the_fork(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    txn = store.transaction()
    txn.append("t", {"n": [1]})

    child_committed = in_child(txn.commit)
    txn.commit()

    assert child_committed
    assert store.snapshot().table("t").read().column("n").to_pylist() == [1, 1]
    assert sp.open(str(tmp_path / "store")).verify().ok


def test_a_child_may_not_go_on_where_page_files_were_written(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    txn = store.transaction()
    txn.append("t", {"n": [1]})
    txn.next_page_file("t")

    assert not in_child(txn.commit)
    txn.commit()
    assert store.snapshot().table("t").num_rows == 1
