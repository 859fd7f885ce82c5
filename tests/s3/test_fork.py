"""A process that was forked works or says at once that it cannot; it never hangs."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

import spark_pages as sp
from tests.s3.server import S3Server

SCRIPT = """
import json, os, signal, sys
import pyarrow as pa
import spark_pages as sp
from spark_pages.errors import SparkPagesError
from spark_pages.storage import open_object_store
from spark_pages.store import Store

url, options, when = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
objects = open_object_store(url, options)
store = Store(objects)
if when == "after use":
    store.snapshot().table("t").read()

def work(name, action):
    try:
        return name + ": " + str(action())
    except SparkPagesError as error:
        return name + ": " + type(error).__name__ + (" forked" if "forked" in str(error) else "")

def append(store):
    with store.transaction() as txn:
        txn.append("t", pa.table({"a": [2]}))
    return txn.version

child = os.fork()
if child == 0:
    signal.alarm(120)
    print(work("read", lambda: store.snapshot().table("t").num_rows), flush=True)
    print(work("commit", lambda: append(store)), flush=True)
    print(work("open", lambda: sp.open(url, storage_options=options).snapshot().version), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), flush=True)
print(work("parent", lambda: store.snapshot().table("t").num_rows), flush=True)
"""


def told(url: str, options: object, when: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, url, json.dumps(options), when],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return ended.stdout.splitlines()


def make(url: str, options: dict[str, object] | None) -> None:
    with sp.create(url, storage_options=options).transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", pa.table({"a": [1]}))


@pytest.mark.s3
def test_a_child_of_a_process_that_used_s3_is_told_at_once_and_the_parent_goes_on(
    server: S3Server, url: str
) -> None:
    make(url, server.options())

    lines = told(url, server.options(), "after use")

    refused = "StorageError forked"
    assert lines == [f"read: {refused}", f"commit: {refused}", f"open: {refused}", "0", "parent: 1"]


@pytest.mark.s3
def test_a_child_forked_before_the_first_use_of_s3_works(server: S3Server, url: str) -> None:
    make(url, server.options())

    lines = told(url, server.options(), "before use")

    assert lines == ["read: 1", "commit: 2", "open: 2", "0", "parent: 2"]


def test_a_child_of_a_process_that_used_a_local_store_works(tmp_path) -> None:
    url = str(tmp_path / "store")
    make(url, None)

    lines = told(url, None, "after use")

    assert lines == ["read: 1", "commit: 2", "open: 2", "0", "parent: 2"]
