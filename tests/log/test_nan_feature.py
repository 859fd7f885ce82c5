"""A store whose pages pass NaN over in their bounds says so to its readers, whoever brought the pages."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import UnsupportedFormatError
from spark_pages.format.features import NAN_BOUNDS, READER_FEATURES
from spark_pages.log.checkpoint import reader
from spark_pages.model.page import PageStats
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from spark_pages.transaction.placement import MANIFEST_PAGES
from spark_pages.transaction.written_rows import write_rows
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import store_with

NAN = float("nan")
SCHEMA = pa.schema([("c", pa.float64())])
KEY = "lake/c.pages"


def rows(count: int = 3, *, nan: bool = True) -> pa.Table:
    """Different numbers, of which the second to last is NaN."""
    values = np.random.default_rng(count).normal(size=count)
    if nan:
        values[-2] = np.nan
    return pa.table({"c": values})


def append(store: Store, data: pa.Table) -> None:
    with store.transaction() as txn:
        txn._page_bytes = 1024
        txn.append("t", data)


def append_written(store: Store, parts: list[pa.Table]) -> None:
    snapshot = store.snapshot()
    definition = snapshot.table("t").definition
    made = [
        write_rows(store.object_store, Runtime(), definition, snapshot.version, part, {"page_bytes": "1024"})
        for part in parts
    ]
    with store.transaction() as txn:
        txn.append_written("t", pickle.loads(pickle.dumps(made)))  # noqa: S301 - they cross between processes


def register(store: Store, data: pa.Table) -> None:
    pages = write_file(store.object_store, KEY, data.column("c").chunk(0))
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("c", KEY, pages)])


def update(store: Store, data: pa.Table) -> None:
    with store.transaction() as txn:
        txn.update_rows("t", range(data.num_rows), {"c": data.column("c")})


MANY = 200 * MANIFEST_PAGES
BRINGS: dict[str, Callable[[Store, bool], object]] = {
    "a few pages": lambda store, nan: append(store, rows(nan=nan)),
    "as many as are listed in a commit": lambda store, nan: append(store, rows(20_000, nan=nan)),
    "a page manifest": lambda store, nan: append(store, rows(MANY, nan=nan)),
    "written rows": lambda store, nan: append_written(store, [rows(500, nan=nan)]),
    "written rows, in a list of theirs": lambda store, nan: append_written(store, [rows(40_000, nan=nan)]),
    "many lists of written rows": lambda store, nan: append_written(store, [rows(7_000, nan=nan)] * 20),
    "pages of another writer": lambda store, nan: register(store, rows(nan=nan)),
    "an update": lambda store, nan: update(store, rows(nan=nan)),
}


@pytest.mark.parametrize("bring", BRINGS.values(), ids=BRINGS)
def test_a_commit_that_brings_a_page_with_a_nan_asks_its_readers_to_know_of_it(bring):
    store = store_with(rows(nan=False), schema=SCHEMA)

    bring(store, False)
    without = store.snapshot().log.state.features
    bring(store, True)

    assert without.reader == ()
    assert store.snapshot().log.state.features.reader == (NAN_BOUNDS,)
    assert Store(store.object_store).snapshot().log.state.features.reader == (NAN_BOUNDS,)
    store.checkpoint()
    assert Store(store.object_store).snapshot().log.state.features.reader == (NAN_BOUNDS,)


def test_large_commits_have_manifests_here():
    store = store_with(schema=SCHEMA)
    append(store, rows(MANY))
    append_written(store, [rows(7_000)] * 20)
    append_written(store, [rows(40_000)])

    commits = store._log.commits(2, 5)

    assert [len(each.records[0].manifests) > 0 for each in commits] == [True, True, True]


def test_compaction_of_pages_of_an_earlier_release_asks_for_it():
    store = store_with(schema=SCHEMA)
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(
            "spark_pages.transaction.page_writer.stats_of_pages",
            lambda _, bounds: [PageStats(0, None, None, False)] * (len(bounds) - 1),
        )
        append(store, rows())
        append(store, rows(4))
    before = store.snapshot().log.state.features

    store.compact_pages("t")

    assert before.reader == ()
    assert store.snapshot().log.state.features.reader == (NAN_BOUNDS,)
    assert store.snapshot().table("t").aggregate("c").pages_read == 0


def test_a_restore_of_many_pages_keeps_what_is_known_of_them(monkeypatch):
    store = store_with(rows(), rows(4), rows(5))
    version = store.snapshot().version
    with store.transaction() as txn:
        txn.truncate_table("t")
    monkeypatch.setattr("spark_pages.versions.restore.MANIFEST_PAGES", 1)

    store.restore(version=version)

    (commit,) = store._log.commits(store.snapshot().version, store.snapshot().version + 1)
    assert len(commit.records[0].manifests) == 1
    stats = store.snapshot().table("t").directory.chain("c").all_pages().stats
    assert stats.column("nan").to_pylist() == [True, True, True]


def test_a_release_that_does_not_know_of_it_gives_out_no_row(monkeypatch):
    store = store_with(rows())
    monkeypatch.setattr("spark_pages.format.features.READER_FEATURES", READER_FEATURES - {NAN_BOUNDS})

    with pytest.raises(UnsupportedFormatError, match="reader features nan-bounds"):
        Store(store.object_store).snapshot()


def test_no_manifest_is_read_to_know_of_it(monkeypatch):
    store = store_with(schema=SCHEMA)
    monkeypatch.setattr(reader, "decode_manifest", lambda *_: pytest.fail("a manifest was read"))

    append(store, rows(MANY))

    assert store.snapshot().log.state.features.reader == (NAN_BOUNDS,)
