"""A storm or a medley in a process of its own: it forks, and whoever tests it has threads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def outcome_of(module: str, flags: list[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """What it tells at the end, which must be that nothing was wrong. None of its processes outlives it."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *flags, "--folder", str(folder), "--seed", str(os.getpid())],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, said = process.communicate(timeout=limit_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert told, said
    outcome: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert not outcome["faults"], f"{outcome['faults']}\n{said}"
    return outcome
