from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import MissingDependencyError
from spark_pages.spark.session import check_spark, session
from tests import PROJECT

FLIGHTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("carrier", pa.string()),
        pa.field("delay", pa.float64()),
        pa.field("departed", pa.timestamp("us")),
        pa.field("landed", pa.timestamp("us", tz="UTC")),
        pa.field("seats", pa.uint16()),
    ]
)
ROWS = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file in which workers look for profiles; they have the environment that Spark was started in."""
    file = tmp_path_factory.mktemp("profiles") / "profiles.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_PAGES_PROFILES", str(file))
        yield file


@pytest.fixture(scope="session")
def spark(profiles: Path) -> Iterator[Any]:
    try:
        check_spark()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    spark = session("tests", "local[2,2]")  # a task that fails is tried once more
    yield spark
    spark.stop()


def flights(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    start = datetime(2026, 1, 1)
    moments = [start + timedelta(seconds=int(i)) for i in ids]
    return pa.table(
        {
            "id": ids,
            "carrier": [None if i % 7 == 0 else f"carrier-{i % 13:02d}" for i in ids.tolist()],
            "delay": [None if i % 11 == 0 else i / 4 for i in ids.tolist()],
            "departed": pa.array(moments, pa.timestamp("us")),
            "landed": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "seats": (ids % 60_000).astype(np.uint16),
        },
        schema=FLIGHTS,
    )


@dataclass(frozen=True)
class History:
    """A store, and the versions at which something happened to it."""

    url: str
    store: sp.Store
    before_checkpoint: int
    checkpoint: int
    latest: int


def build_store(url: str) -> History:
    """Three tables, appends to all of them, an update, a checkpoint, and more of the same after it."""
    store = sp.create(url)
    with store.transaction("create") as txn:
        txn.create_table("flights", FLIGHTS)
        txn.create_table("planes", pa.schema([("tail", pa.string()), ("year", pa.int32())]))
        txn.create_table("empty", pa.schema([("nothing", pa.int32())]))
    planes = pa.table({"tail": ["N1", None, "N3"], "year": pa.array([1999, 2004, None], pa.int32())})
    with store.transaction("ingest") as txn:
        txn.append("flights", flights(0, ROWS))
        txn.append("planes", planes)
    with store.transaction("ingest") as txn:
        txn.append("flights", flights(ROWS, ROWS))
    with store.transaction("correct") as txn:
        txn.update_rows("flights", [5, 15_000, ROWS + 1], {"delay": [-1.0, -2.0, -3.0]})
    before = store.snapshot().version
    with store.transaction("late") as txn:
        txn.append("flights", flights(2 * ROWS, 10))
    store.checkpoint()
    checkpoint = store.snapshot().version
    for index in range(6):
        with store.transaction("late") as txn:
            txn.append("flights", flights(2 * ROWS + 10 * (index + 1), 10))
            txn.append("planes", planes)
    with store.transaction("correct") as txn:
        txn.update_rows("flights", [3, 2 * ROWS + 15], {"carrier": ["late", None]})
        txn.append("flights", flights(2 * ROWS + 70, 5))
    return History(url, store, before, checkpoint, store.snapshot().version)


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Read by many tests, written by none."""
    return build_store(str(tmp_path_factory.mktemp("spark") / "store"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is published."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, capture_output=True, cwd=PROJECT)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def own_history(history: History, tmp_path: Path) -> History:
    """A copy of the store, which the test may change."""
    url = str(shutil.copytree(history.url, tmp_path / "store"))
    return replace(history, url=url, store=sp.open(url))
