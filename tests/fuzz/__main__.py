"""Fuzz every decoder for a fixed time, each in a process of its own: `python -m tests.fuzz --seconds 60`.

Findings become files in `cases/`, which the tests replay from then on. `make fuzz` installs what is needed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CASES = Path(__file__).with_name("cases")


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="target")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    options = parser.parse_args()
    share = max(1, options.seconds // len(options.targets))
    good = seeds()
    found = [name for name in options.targets if _job(name, good[name], share)]
    print(f"findings in: {', '.join(found)}" if found else "nothing was found")
    return len(found)


def _job(name: str, inputs: list[bytes], seconds: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(inputs):
            Path(folder, f"seed-{number}").write_bytes(data)
        known = CASES / name
        known.mkdir(parents=True, exist_ok=True)
        flags = [
            f"-max_total_time={seconds}", "-max_len=65536", "-timeout=10", "-rss_limit_mb=3072",
            f"-artifact_prefix={known}/", "-print_final_stats=1",
        ]  # fmt: skip
        command = [sys.executable, "-m", "tests.fuzz.one", name, folder, str(known), *flags]
        print(f"== {name}: {seconds} s", flush=True)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    told = done.stderr.splitlines()
    shown = told[-40:] if done.returncode else [line for line in told if "stat::" in line]
    print("\n".join(shown), flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
