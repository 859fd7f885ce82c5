"""What takes long to make and is only read then: one process of a run makes it, for all of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, which the first process that asks has made; the others wait for it."""
    base = factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # a worker has a folder of its own
    folder, made = run / f"once-{name}", run / f"once-{name}.made"
    with (run / f"once-{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
