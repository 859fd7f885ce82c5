"""Makes the stores of ``tests/compat/v1/``, once for each release of the format: ``python tests/compat/make_v1.py``.

Run it from the root of the project, before a release; afterwards neither this file nor what it made is ever
edited, and every later release must read and write these stores. Beside each store lie the answers to
expect: its rows at every version as Parquet, and the rest as JSON.
"""

from __future__ import annotations

import getpass
import json
import shutil
import socket
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from threading import Barrier, Thread
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import spark_pages as sp
from spark_pages.store import Store
from spark_pages.transaction import placement

HERE = Path(__file__).parent / "v1"

TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("unsigned", pa.uint32()),
        ("half_full", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(12, 2)),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("list", pa.list_(pa.int32())),
        ("pair", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    """Rows of every type, nulls, extremes and long text among them."""
    ids = range(first, first + count)
    columns = {
        "id": list(ids),
        "small": [None if i % 5 == 0 else i % 256 - 128 for i in ids],
        "unsigned": [2**32 - 1 - i for i in ids],
        "half_full": [None if i % 2 else i / 3 for i in ids],
        "double": [float("nan") if i % 7 == 3 else (-0.0 if i % 7 == 4 else i * 1e300) for i in ids],
        "flag": [None if i % 3 == 0 else i % 2 == 0 for i in ids],
        "text": [None if i % 4 == 0 else ("ä€😀" * (i % 8) + str(i)) for i in ids],
        "bytes": [bytes([255]) * (i % 40) for i in ids],
        "day": [date(1970 + i % 100, 1 + i % 12, 1) for i in ids],
        "moment": [datetime(2026, 1, 1, tzinfo=UTC) for _ in ids],
        "price": [Decimal(i) / 100 for i in ids],
        "kind": pa.array(["red" if i % 2 else "green" for i in ids]).dictionary_encode(),
        "list": [None if i % 6 == 0 else list(range(i % 3)) for i in ids],
        "pair": [{"x": i, "y": None} for i in ids],
    }
    arrays = [
        column.cast(field.type) if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field, column in zip(TYPES, columns.values(), strict=True)
    ]
    return pa.table(arrays, schema=TYPES)


def only_log(url: str) -> Store:
    """No checkpoint: inline pages only, every type, an update, and properties."""
    store = sp.create(url, properties={"owner": "tests"})
    with store.transaction("first", parameters={"why": "to be read later"}) as txn:
        txn.create_table("types", TYPES, properties={"note": "ü"})
        txn.append("types", rows(0, 12))
    with store.transaction("second", app_id="loader", app_version=7) as txn:
        txn.append("types", rows(12, 3))
    with store.transaction("correct") as txn:
        txn.update_rows("types", [3, 14], {"text": ["corrected", None]})
    return store


def checkpoint_and_tail(url: str) -> Store:
    """Checkpoints with a tail run, file, inline and constant pages, two tables, and commits after them."""
    store = sp.create(url)
    values = np.arange(10_000) // 64
    with store.transaction() as txn:
        txn.create_table("numbers", pa.schema([("n", pa.int64()), ("absent", pa.string())]))
        txn.append("numbers", pa.table({"n": values}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.create_table("words", pa.schema([("word", pa.string())]))
        txn.append("words", pa.table({"word": ["one", None, "three" * 20]}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("numbers", pa.table({"n": [1, 2, 3]}))
        txn.update_rows("numbers", [0, 9_999], {"n": [-1, None]})
    store.compact_pages("numbers")
    with store.transaction() as txn:
        txn.append("words", pa.table({"word": ["four"]}))
    return store


def manifest(url: str) -> Store:
    """A transaction that lists its pages in a page manifest, and a table whose columns are independent."""
    store = sp.create(url)
    with patch.object(placement, "MANIFEST_PAGES", 2), store.transaction() as txn:
        txn.create_table("many", pa.schema([("n", pa.int64())]))
        txn.append("many", pa.table({"n": np.arange(20_000) // 100}))
    with store.transaction() as txn:
        txn.create_table("ragged", pa.schema([("a", pa.int64()), ("b", pa.int64())]), aligned=False)
        txn.append("ragged", pa.table({"a": [1, 2]}))
        txn.append("ragged", pa.table({"b": [3]}))
    return store


def groups_tags_and_restore(url: str) -> Store:
    """Group commits of several threads, tags, a restored version, and a compacted log."""
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("writer", pa.int64())]))
    threads = 4
    barrier = Barrier(threads)

    def write(number: int) -> None:
        barrier.wait()
        with store.transaction(f"writer {number}", app_id=str(number), app_version=1) as txn:
            txn.append("t", pa.table({"writer": [number]}))

    workers = [Thread(target=write, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    commits = store._log.commits(0, store.snapshot().version + 1)
    if all(len(commit.records) == 1 for commit in commits):
        raise SystemExit("No transactions shared a commit: run this again.")
    store.tag("grouped")
    with store.transaction() as txn:
        txn.update_rows("t", [0], {"writer": [-1]})
    store.restore(tag="grouped")
    store.tag("gone", version=2)
    store.delete_tag("gone")
    store.compact_log()
    return store


STORES: dict[str, Callable[[str], Store]] = {
    "only-log": only_log,
    "checkpoint-and-tail": checkpoint_and_tail,
    "manifest": manifest,
    "groups-tags-and-restore": groups_tags_and_restore,
}


def answers(store: Store, folder: Path) -> dict[str, object]:
    """What a reader must find: rows as Parquet, shared by versions that hold the same, and the rest."""
    versions = []
    known: list[tuple[pa.Table, str]] = []
    for version in range(store.snapshot().version + 1):
        snapshot = store.snapshot(version=version)
        files = {}
        for name in snapshot.tables():
            table = snapshot.table(name)
            found = table.read()
            file = next((file for other, file in known if other.equals(found, check_metadata=True)), None)
            if file is None:
                file = f"rows-{len(known)}.parquet"
                pq.write_table(found, folder / file, compression="zstd")
                known.append((found, file))
            files[name] = {"rows": table.num_rows, "file": file}
        time_us = int(snapshot.timestamp.timestamp() * 1_000_000)
        versions.append({"version": version, "tables": files, "time_us": time_us})
    history = store.history().select(["version", "operation", "rows_added", "pages_added"]).to_pylist()
    return {"versions": versions, "history": history, "tags": _tags(store)}


def _tags(store: Store) -> dict[str, int]:
    return {name: int(version) for name, version in store.snapshot().log.state.tags.items()}


def make_anew(name: str, make: Callable[[str], Store]) -> None:
    """Make a store and its answers. No name of a machine or person goes into them."""
    getpass.getuser = lambda: "somebody"
    socket.gethostname = lambda: "somewhere"
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make(str(folder / "store")).close()
    shutil.rmtree(folder / "store" / "_tmp", ignore_errors=True)
    found = answers(sp.open(str(folder / "store")), folder)
    (folder / "answers.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    sys.stdout.write(f"{name}: {len(found['versions'])} versions, {size:,} bytes\n")


def main() -> None:
    """Make every store of this file and its answers anew."""
    for name, make in STORES.items():
        make_anew(name, make)


if __name__ == "__main__":
    main()
