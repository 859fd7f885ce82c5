"""What is published, read at several Delta versions, before and after everything that upkeep does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_pages as sp
from spark_pages.spark.feed import Feed
from spark_pages.spark.publish import CHANGES, HISTORY, SEGMENTS, publish_delta
from spark_pages.spark.session import find_java
from tests import PROJECT
from tests.spark.polars_reader import pages_in_order
from tests.spark.published import PUBLISHED, folder, local_rows, published_rows, table
from tests.spark.test_publish import SCHEMA, change, rows

ORDERED = ["table_id", "field_id", "first_row", *PUBLISHED]
COMMITS = 20
"""Enough for the log to be compacted."""


@dataclass
class Published:
    """A store, and what each Delta version must show."""

    store: sp.Store
    expected: dict[int, pa.Table] = field(default_factory=dict)

    def publish(self) -> int:
        """The newest version has a checkpoint, which is published; gives the Delta version."""
        self.store.checkpoint()
        publish_delta(self.store.url)
        version = int(table(self.store, SEGMENTS.root).version())
        self.expected[version] = local_rows(self.store, self.store.snapshot().version).select(ORDERED)
        return version


@pytest.fixture
def published(tmp_path: Path) -> Published:
    """Versions before and after page compaction and log compaction; nothing is vacuumed yet."""
    store = sp.create(str(tmp_path / "store"), properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"page_bytes": "1024"})
        txn.append("t", rows(0, 5_000))
    published = Published(store)
    published.publish()
    change(store, 1)
    published.publish()
    store.tag("kept")
    for number in range(COMMITS):
        with store.transaction() as txn:
            txn.update_rows("t", [number], {"n": [-1]})
    published.publish()
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "16384"})
    assert store.compact_pages("t")
    published.publish()
    assert store.compact_log()
    change(store, 2)
    published.publish()
    return published


DUCKDB = PROJECT / ".tools" / "duckdb-delta"
"""A DuckDB for which its `delta` extension is in the package registry."""

KEPT = 1
"""The Delta version of the tagged one."""


def test_deltalake_reads_order_and_first_rows_at_every_version_that_vacuum_leaves(
    published: Published,
) -> None:
    store = published.store
    before = {version: published_rows(store, version) for version in published.expected}
    changes = Feed(store.url, "rows", None).read(0, store.snapshot().version)

    store.vacuum(retention=1, orphans=True)
    newest = published.publish()

    assert list(before) == [0, 1, 2, 3, 4]
    assert all(found.equals(_like(published.expected[version], found)) for version, found in before.items())
    for version in (KEPT, newest):
        found = published_rows(store, version)
        assert found.equals(_like(published.expected[version], found))
    assert _is_whole(
        store, changes, *(table(store, each.root).to_pyarrow_table() for each in (HISTORY, CHANGES))
    )


def test_polars_reads_order_and_first_rows_at_every_version_that_vacuum_leaves(published: Published) -> None:
    store = published.store

    def read(version: int) -> pa.Table:
        return pages_in_order(str(folder(store)), version).select(ORDERED).to_arrow()

    before = {version: read(version) for version in published.expected}
    store.vacuum(retention=1, orphans=True)
    newest = published.publish()

    assert list(before) == [0, 1, 2, 3, 4]
    assert all(found.equals(_like(published.expected[version], found)) for version, found in before.items())
    for version in (KEPT, newest):
        found = read(version)
        assert found.equals(_like(published.expected[version], found))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(find_java() is None, reason="delta-spark needs Java, and there is none")
def test_delta_spark_reads_order_and_first_rows_at_every_version_that_vacuum_leaves(
    published: Published, delta_spark: Callable[[int], Path]
) -> None:
    store = published.store
    before = {version: pq.read_table(delta_spark(version) / "rows.parquet") for version in (0, 2, 3, 4)}
    changes = Feed(store.url, "rows", None).read(0, store.snapshot().version)

    store.vacuum(retention=1, orphans=True)
    newest = published.publish()

    assert all(found.equals(_like(published.expected[version], found)) for version, found in before.items())
    for version in (KEPT, newest):
        read = delta_spark(version)
        found = pq.read_table(read / "rows.parquet")
        assert found.equals(_like(published.expected[version], found))
    assert _is_whole(
        store, changes, *(pq.read_table(read / f"{each.name}.parquet") for each in (HISTORY, CHANGES))
    )


@pytest.mark.skipif(not DUCKDB.is_dir(), reason="its extension is missing: `make duckdb-delta` installs it")
def test_duckdb_reads_order_and_first_rows_at_every_version_that_vacuum_leaves_and_writes_nothing(
    published: Published, tmp_path: Path
) -> None:
    store = published.store
    before, _ = by_duckdb(store, tmp_path / "before", published.expected)
    changes = Feed(store.url, "rows", None).read(0, store.snapshot().version)

    store.vacuum(retention=1, orphans=True)
    newest = published.publish()
    keys = {each.key for each in store.object_store.list("_log/segments")}
    after, ended = by_duckdb(store, tmp_path / "after", (KEPT, newest))

    for version, found in (*before.items(), *after.items()):
        assert found.equals(_like(published.expected[version], found))
    others = (pq.read_table(tmp_path / "after" / f"{each.name}.parquet") for each in (HISTORY, CHANGES))
    assert _is_whole(store, changes, *others)
    assert len(ended) == 3
    assert "done" not in ended.values()
    assert "spark_pages-published" in ended["INSERT INTO segments FROM segments"]
    left = {each.key for each in store.object_store.list("_log/segments")}
    assert left >= keys, "DuckDB writes a file of its own before it asks, and leaves it"
    assert store.verify("all").ok


def by_duckdb(
    store: sp.Store, output: Path, versions: Iterable[int]
) -> tuple[dict[int, pa.Table], dict[str, str]]:
    """What DuckDB finds at some Delta versions, and what came of its tries to write."""
    output.mkdir()
    (extension,) = DUCKDB.rglob("delta.duckdb_extension")
    script = Path(__file__).parent / "duckdb_reader.py"
    done = subprocess.run(
        [sys.executable, str(script), str(extension), str(folder(store)), str(output), *map(str, versions)],
        env={**os.environ, "PYTHONPATH": str(DUCKDB)},
        cwd=output,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = {version: pq.read_table(output / f"rows-{version}.parquet") for version in versions}
    return read, json.loads(done.stdout)


def _like(expected: pa.Table, found: pa.Table) -> pa.Table:
    """In the types of the other: which integers these are is the client's."""
    return expected.select(found.column_names).cast(found.schema)


def _is_whole(store: sp.Store, before: pa.Table, history: pa.Table, changes: pa.Table) -> bool:
    """Every version has its transaction once, and what the feed told before vacuum is there once and as it
    was.
    """
    versions = sorted(history.filter(history["transaction"].is_valid())["version"].to_pylist())
    told = [str(row) for row in changes.to_pylist() if row["version"] <= max(before["version"].to_pylist())]
    wanted = before.select(changes.column_names).cast(changes.schema)
    same = sorted(told) == sorted(map(str, wanted.to_pylist()))
    return same and versions == list(range(store.snapshot().version + 1))


@pytest.fixture
def delta_spark(published: Published, tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Reads one Delta version into a folder."""
    script = PROJECT / "tests" / "spark" / "delta_reader.py"
    said = (tmp_path / "said").open("w")
    with subprocess.Popen(
        [sys.executable, str(script), str(folder(published.store))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        cwd=tmp_path,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        ask, answers = client.stdin, client.stdout
        made = iter(range(100))

        def read(version: int) -> Path:
            output = tmp_path / f"read-{next(made)}"
            output.mkdir()
            ask.write(f"{version} {output}\n")
            ask.flush()
            if answers.readline() != f"read {version}\n":
                error = (tmp_path / "said").read_text()
                if "UNRESOLVED DEPENDENCIES" in error or "unresolved dependency" in error:
                    pytest.skip("the JARs of delta-spark cannot be fetched here")
                raise AssertionError(error[-3000:])
            return output

        yield read
        ask.close()
    said.close()
