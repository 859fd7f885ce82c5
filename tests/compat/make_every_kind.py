"""Makes the store of ``tests/compat/v1/every-kind/``: ``python -m tests.compat.make_every_kind``.

It holds what the stores of `make_v1` lack, so that together they have every kind of object, action and page
of ``docs/format.md``; ``test_every_kind.py`` says so. Clock and ids are counted, so that with the same
libraries the same bytes come out, the Delta logs apart. As with `make_v1`, neither this file nor what it made
is edited after a release.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import spark_pages as sp
from spark_pages.catalog.table_zero import first_record
from spark_pages.io import encode_page
from spark_pages.model.actions import Claim
from spark_pages.model.ids import FieldId, TableId
from spark_pages.runtime import Runtime
from spark_pages.spark import publish
from spark_pages.storage import open_object_store
from spark_pages import transaction
from spark_pages.store import Store

HERE = Path(__file__).parent / "v1" / "every-kind"
SYSTEM = ("catalog", "tables", "columns", "types", "constraints", "namespaces")
HOUR = timedelta(hours=1)

_START_US = 1_800_000_000_000_000


def counted_runtime() -> Runtime:
    """A world in which each question about time or chance has the answer that it had the last time."""
    times, tokens = count(_START_US, 1000), count()

    def in_turn(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [work(item) for item in items]

    def at_once(work: Callable[[], None]) -> Callable[[float | None], object]:
        work()
        return lambda _: None

    return Runtime(
        now_us=lambda: next(times),
        token=lambda: blake2b(str(next(tokens)).encode(), digest_size=16).hexdigest(),
        jitter=lambda: 0.0,
        map=in_turn,
        spawn=at_once,
    )


def create(url: str) -> Store:
    """A new store that does nothing by itself."""
    runtime = counted_runtime()
    store = Store(open_object_store(url), runtime)
    record = first_record(runtime, {"checkpoint_commits": "0", "log_compaction_commits": "0"})
    store._log.create(lambda _: record)
    return store


def cleaned_slots(store: Store) -> None:
    """Tombstones, bounds of what can be read, a purged table, and rows taken out of table 0."""
    with store.transaction("first", app_id="loader", app_version=1) as txn:
        txn.create_table("flights", pa.schema([("distance", pa.int32())]))
        txn.append("flights", {"distance": pa.array([1400, None], pa.int32())})
        txn.create_table("doomed", pa.schema([("n", pa.int64())]))
        txn.append("doomed", pa.table({"n": [1]}))
    with store.transaction() as txn:
        txn.drop_table("doomed")
    store.compact_pages("system.catalog")
    for distance in (1416, 1089, 1576):
        with store.transaction() as txn:
            txn.append("flights", {"distance": pa.array([distance], pa.int32())})
    store.vacuum(retention=3)


def changed_tables(store: Store) -> None:
    """Tables and columns altered, renamed, dropped, brought back, truncated; old pages under a wider type."""
    with store.transaction() as txn:
        schema = pa.schema([("at", pa.int64()), ("level", pa.int16())])
        txn.create_table("readings", schema, properties={"codec": "zstd"})
        levels = pa.array(1_000 + np.arange(100) * 37 % 50, pa.int16())
        txn.append("readings", pa.table({"at": np.arange(100) * 999_983 % 5_000_000, "level": levels}))
        txn.create_table("truncated", pa.schema([("n", pa.int64())]))
        txn.append("truncated", pa.table({"n": [1, 2]}))
    with store.transaction("alter", parameters={"why": "ü"}) as txn:
        txn.add_column("flights", pa.field("delay", pa.int32()), default=7)
        txn.widen_column("flights", "distance", pa.int64())
        txn.set_comment("flights", "one row a flight")
        txn.set_comment("flights", "great circle", column="distance")
        txn.set_column_properties("flights", "distance", {"unit": "mile"})
        txn.set_table_properties("flights", {"owner": "tests"})
    with store.transaction() as txn:
        txn.rename_table("readings", "measured")
        txn.add_column("measured", pa.field("gone", pa.string()))
    with store.transaction() as txn:
        txn.drop_column("measured", "gone")
        txn.set_nullable("measured", "at", False)
        txn.truncate_table("truncated")
    with store.transaction() as txn:
        txn.drop_table("measured")
    with store.transaction() as txn:
        txn.undrop_table("measured")


def catalog_objects(store: Store) -> None:
    """A namespace with a place of its own, types, each kind of constraint, bloom filters."""
    with store.transaction() as txn:
        txn.create_namespace("sales", {"location": "eu/sales"})
        txn.create_type("percent", pa.int8(), check="VALUE BETWEEN 0 AND 100")
        txn.create_type("short_lived", pa.int8())
        txn.create_type("load_factor", "percent", not_null=True)
    with store.transaction() as txn:
        txn.drop_type("short_lived")
        schema = pa.schema([("ticket", pa.int64()), sp.typed("load", "load_factor")])
        properties = {"bloom.ticket": "0.1", "page_bytes": "32768"}
        txn.create_table("sales.tickets", schema, properties=properties)
        tickets = np.random.default_rng(7).integers(0, 2**62, 2_100)
        txn.append("sales.tickets", {"ticket": tickets, "load": pa.array([50] * 2_100, pa.int8())})
    with store.transaction() as txn:
        txn.create_table("sales.people", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
        txn.append("sales.people", pa.table({"id": [1, 2]}))
        txn.add_constraint("sales.people", "people_key", primary_key=["id"])
        txn.create_table("sales.trips", pa.schema([("who", pa.int64())]))
        txn.add_constraint("sales.trips", "real", check="who > 0")
        txn.add_constraint("sales.trips", "of_people", foreign_key=(["who"], "sales.people", ["id"]))
        txn.append("sales.trips", pa.table({"who": [2]}))
    with store.transaction() as txn:
        txn.rename_table("sales.trips", "trips")


def pages_of_all_sorts(store: Store) -> None:
    """Codecs, pages of others, longer and shorter than their payload, entry metadata, a page manifest."""
    pages = [encode_page(pa.array(values, pa.int32())) for values in ([1, 2, 3], [4, 5])]
    places = zip(pages, (8192, 4096), strict=True)
    store.object_store.put("imports/day-1.pages", b"".join(p.data.ljust(size, b"\0") for p, size in places))
    with store.transaction("import") as txn:
        txn.create_table("imported", pa.schema([("day", pa.int32())]))
        directory = txn.directory("imported")
        directory.register_page_with_sizes("day", "imports/day-1.pages", 0, 8192, pages[0].actual_len, 2)
        directory.register_page_with_sizes("day", "imports/day-1.pages", 8192, 4096, pages[1].actual_len, 4)
    with store.transaction("cut") as txn:
        txn.directory("imported").update_latest_entry_count("day", 1)
    with store.transaction() as txn:
        schema = pa.schema([("raw", pa.binary()), ("word", pa.string())])
        txn.create_table("mixed", schema, properties={"codec.raw": "none"})
        words = ["early"] * 40 + ["a word of more than thirty-two bytes " * 2]
        txn.append("mixed", pa.table({"raw": [b"x" * n for n in range(41)], "word": words}))
        row = pa.table({"raw": [b"y"], "word": ["late"]})
        beside = {"word.prefix_meta": ["begin"], "word.suffix_meta": ["end"]}
        txn.append("mixed", row, entry_meta=beside, page_metadata={"word": {"by": "me"}})
    with store.transaction() as txn:
        txn.create_table("ragged", pa.schema([("a", pa.int64()), ("b", pa.int64())]), aligned=False)
        txn.append("ragged", pa.table({"a": [1, 2]}))
    limit = transaction.MANIFEST_PAGES
    transaction.MANIFEST_PAGES = 2
    try:
        with store.transaction() as txn:
            schema = pa.schema([("n", pa.int64()), ("absent", pa.string())])
            txn.create_table("many", schema, properties={"page_bytes": "4096", "bloom": "0.1"})
            numbers = [None, *np.random.default_rng(8).integers(0, 2**62, 1_100).tolist()]
            txn.append("many", pa.table({"n": pa.array(numbers, pa.int64())}))
    finally:
        transaction.MANIFEST_PAGES = limit


def held_versions(store: Store) -> None:
    """Tags, leases and claims, some of them ended; properties of the store that a restore takes away."""
    store.tag("before")
    store.tag("gone")
    store.delete_tag("gone")
    with store.snapshot().lease(HOUR):
        store.snapshot().lease(2 * HOUR)
    with store.transaction() as txn:
        txn.set_properties({"mood": "good"})
    store.restore(tag="before")
    store.compact_pages("flights")
    with store.transaction("claim") as txn:
        table = txn.snapshot.table("flights").definition.table_id
        txn.claim(Claim(TableId(table), FieldId(1), 1, 3, "somebody else", 999, _START_US + 10**12))


def make(url: str) -> Store:
    """Everything, a checkpoint with a tail run, a compacted log, Delta tables, and a commit after them."""
    store = create(url)
    cleaned_slots(store)
    changed_tables(store)
    catalog_objects(store)
    pages_of_all_sorts(store)
    store.compact_pages("system.catalog")
    store.checkpoint()
    held_versions(store)
    with store.transaction() as txn:
        txn.append("imported", {"day": pa.array([6, 7], pa.int32())})
    store.compact_log()
    store.checkpoint()
    with patch.object(publish, "Runtime", lambda: store._runtime):
        publish.publish_delta(url)
    with store.transaction("last", app_id="loader", app_version=2) as txn:
        txn.update_rows("flights", [1], {"delay": [None]})
    return store


def answers(store: Store, folder: Path) -> dict[str, object]:
    """What a reader must find; as of `make_v1`, from the oldest version on that can be read."""
    head = store.snapshot()
    state = head.log.state
    assert state.retention is not None
    versions, known = [], list[tuple[pa.Table, str]]()
    for version in range(state.retention.min_readable, head.version + 1):
        snapshot = store.snapshot(version=version)
        files = {}
        for name in snapshot.tables():
            found = snapshot.table(name).read()
            file = next((file for other, file in known if other.equals(found)), None)
            if file is None:
                file = f"rows-{len(known)}.parquet"
                pq.write_table(found, folder / file, compression="zstd", store_schema=False)
                known.append((found, file))
            files[name] = {"rows": snapshot.table(name).num_rows, "file": file}
        time_us = int(snapshot.timestamp.timestamp() * 1_000_000)
        versions.append({"version": version, "tables": files, "time_us": time_us})
    history = store.history().select(["version", "operation", "rows_added", "pages_added"]).to_pylist()
    return {"versions": versions, "history": history, "tags": dict(state.tags), "state": state_of(store)}


def state_of(store: Store) -> dict[str, Any]:
    """What the newest version says beside rows, as JSON gives it back."""
    head = store.snapshot()
    state = head.log.state
    told = {
        "features": [state.features.reader, state.features.writer],
        "properties": dict(state.properties),
        "apps": dict(state.apps),
        "leases": [[each.lease_id, each.version, each.expires_at_us] for each in state.leases.values()],
        "claims": [
            [each.table_id, each.field_id, each.first_row, each.end_row, each.owner, each.fence]
            for each in state.claims
        ],
        "retention": [state.retention.min_epoch, state.retention.min_readable] if state.retention else None,
        "entry_meta": head.table("mixed").read(["word"], start=40, entry_meta=True).to_pylist(),
        "system": {name: head.table(f"system.{name}").read().to_pylist() for name in SYSTEM},
    }
    for row in told["system"]["catalog"]:
        row["arrow_schema"] = (
            str(pa.ipc.read_schema(pa.py_buffer(row["arrow_schema"]))) if row["arrow_schema"] else ""
        )
    plain: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return plain


def main() -> None:
    """Make the store and its answers anew. No name of a machine or person goes into them."""
    getpass.getuser = lambda: "somebody"
    socket.gethostname = lambda: "somewhere"
    os.getpid = lambda: 1
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    make(str(HERE / "store")).close()
    shutil.rmtree(HERE / "store" / "_tmp", ignore_errors=True)
    found = answers(sp.open(str(HERE / "store")), HERE)
    (HERE / "answers.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    size = sum(file.stat().st_size for file in HERE.rglob("*") if file.is_file())
    sys.stdout.write(f"{len(found['versions'])} versions, {size:,} bytes\n")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
