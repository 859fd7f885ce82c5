"""Fixtures that more than one folder uses."""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

import spark_pages as sp
from spark_pages.log.checkpoint import writer as checkpoint_writer
from spark_pages.storage import clients
from spark_pages.store import Store
from tests.effort import LONG, examples

# The same examples on every machine and in every run, so that a red test speaks of the change at hand. Long
# runs draw new ones: that is where to hunt. How long one takes says how busy the machine is.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100))
settings.register_profile("fixed", _UNTIMED, derandomize=True)
settings.register_profile("drawn", _UNTIMED, print_blob=True)
settings.load_profile("drawn" if LONG else "fixed")


_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder there that nobody else can write
_ENOUGH = 4 << 30


def pytest_configure() -> None:
    """Folders of tests lie in memory, where there is room: else half of a run is waiting for `fsync`.

    What is about a disk asks for one: `tests/crash`.
    """
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not asked for by its marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests, and leave cases of some to `make test-slow`.

    The tests of Spark come first: then one of two processes has them all, and one JVM serves the run. Of a
    test that is `sampled(every=n)`, all cases but each n-th are `slow`.
    """
    spark = Path(__file__).parent / "spark"
    items.sort(key=lambda item: spark not in item.path.parents)
    cases: Counter[str] = Counter()
    for item in items:
        sampled, name = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        if sampled and cases[name] % sampled.kwargs.get("every", 1):
            item.add_marker(pytest.mark.slow)
        cases[name] += 1


def pytest_collection_finish() -> None:
    """Keep modules and tests out of later garbage collections, which take most of a second each with them."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let go of them, so that libraries find nothing left at the end of the process."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _memory_of_one_module() -> Iterator[None]:
    """Forget every `memory://` store at the end of a module, so that two modules may use one name."""
    yield
    clients._memory_stores.clear()


@pytest.fixture
def url() -> str:
    """The address of a store in memory that no other test has."""
    return f"memory://{uuid4().hex}"


@pytest.fixture
def store(url: str) -> Store:
    """An empty store in memory."""
    return sp.create(url)


@pytest.fixture
def small_trees(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Checkpoints with few pages a segment and few segments a part, so that trees have many nodes."""

    def shrink(pages: int = 4, segments: int = 3, tables: int = 2) -> None:
        monkeypatch.setattr(checkpoint_writer, "PAGES_PER_SEGMENT", pages)
        monkeypatch.setattr(checkpoint_writer, "SEGMENTS_PER_PART", segments)
        monkeypatch.setattr(checkpoint_writer, "_TABLES_PER_FILE", tables)

    shrink()
    return shrink
