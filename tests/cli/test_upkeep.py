"""The verbs ``compact-pages`` and ``publish-delta``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "store")
    store = sp.create(url, properties={"tail_page_bytes": "0"})
    schema = pa.schema([("n", pa.int64())])
    with store.transaction() as txn:
        txn.create_table("t", schema)
    for first in range(0, 60, 10):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": range(first, first + 10)}, schema))
    return url


def told(*arguments: str) -> dict[str, object]:
    ended = CliRunner().invoke(app, [*arguments, "--json"])
    assert ended.exit_code == 0, ended.output
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_compaction_is_planned_and_done_by_the_verb(url: str) -> None:
    planned = told("compact-pages", url, "--table", "t", "--dry-run")["tables"]
    done = told("compact-pages", url)["tables"]

    assert planned[0]["pages_before"] == done[0]["pages_before"] == 6
    assert done[0]["pages_after"] == 1
    assert sp.open(url).snapshot().table("t").read()["n"].to_pylist() == list(range(60))


def test_delta_tables_are_planned_and_published_by_the_verb(url: str) -> None:
    store = sp.open(url)
    store.checkpoint()

    planned = told("publish-delta", url, "--dry-run")
    done = told("publish-delta", url, "--no-history")
    for number in range(2):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [number]}))
        store.checkpoint()
    planned_again = told("publish-delta", url, "--dry-run")
    done_again = told("publish-delta", url)
    nothing = told("publish-delta", url, "--dry-run")

    counts = "checkpoint", "checkpoints", "files_added", "files_removed"
    assert (planned["published_checkpoint"], planned["checkpoint"], planned["commits"]) == (-1, 7, 8)
    assert [planned[name] for name in counts] == [done[name] for name in counts]
    assert [planned_again[name] for name in counts] == [done_again[name] for name in counts]
    assert (planned_again["published_checkpoint"], planned_again["checkpoints"]) == (7, 2)
    assert (nothing["published_checkpoint"], nothing["commits"], *map(nothing.get, counts)) == (
        9,
        0,
        9,
        0,
        0,
        0,
    )
    assert done["checkpoint"] == 7
    assert DeltaTable(f"{url}/_log/segments").transaction_version("spark_pages-segments") == 9
