"""Tables on the terminal, JSON for machines, and what else the benchmarks share in talking."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    return parser


def show(title: str, rows: Sequence[Row], as_json: bool) -> None:
    """Print the rows, which have the same keys in the same order."""
    if as_json:
        print(json.dumps({"table": title, "rows": list(rows)}))
        return
    print(f"\n{title}\n")
    names = list(rows[0])
    cells = [[_shown(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    for line in ([*names], ["-" * width for width in widths], *cells):
        print("| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def in_fresh_process(module: str, *words: object) -> Row:
    """What the module prints as JSON when it runs with these arguments in a process of its own."""
    command = [sys.executable, "-m", module, *(str(word) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: Row = json.loads(done.stdout.splitlines()[-1])  # some libraries talk on standard output
    return found


def log_note(text: str) -> None:
    """Say on standard error how far it is."""
    print(text, file=sys.stderr, flush=True)


def resident_mb() -> float:
    """Resident memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def peak_mb() -> float:
    """Largest resident memory of this program so far, imports included.

    Not `ru_maxrss`, which a child process inherits from its parent.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6
