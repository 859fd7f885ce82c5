"""Processes die here on a disk, where `fsync` takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder where the system keeps its temporary files, not the one in memory that other tests get."""
    with TemporaryDirectory(prefix="spark-pages-crash-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
