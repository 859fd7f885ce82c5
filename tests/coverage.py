"""Lines of the package that `make test` runs, and those that only `make test-slow` does: `make coverage`.

    python -m tests.coverage [--workers 2] [--untimed]

Each run is made twice: as `make` makes it, for its time, and then with lines counted in every process that
it starts, which takes about twice as long. The report says how many of the lines of both the first one runs
alone, and where those are that it does not run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
ENOUGH = 0.95
"""Of the lines of all tests, `make test` must run so many."""

_SETTINGS = f"""
[run]
source = {ROOT}/spark_pages
parallel = true
concurrency =
    greenlet
    thread
patch =
    _exit
    fork
disable_warnings =
    no-data-collected
    module-not-imported
    module-not-measured
    already-imported
"""
_IN_EACH_PROCESS = "import coverage; coverage.process_startup()\n"


@dataclass(frozen=True)
class Run:
    """One of the two runs of all tests."""

    name: str
    marks: str
    effort: str


RUNS = (Run("test", "not slow", ""), Run("test-slow", "slow or hypothesis or sampled", "slow"))


def run(tests: Run, workers: str, environment: dict[str, str]) -> tuple[float, int]:
    """Run the tests; gives how many seconds that took, and the exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal", "-m", tests.marks]
    began = time.monotonic()
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "SPARK_PAGES_TESTS": tests.effort, **environment},
        check=False,
    )
    return time.monotonic() - began, ended.returncode


def lines_of(tests: Run, workers: str, folder: Path) -> dict[str, set[int]]:
    """Run the tests, and collect the lines that any of their processes has run, by file."""
    (folder / "sitecustomize.py").write_text(_IN_EACH_PROCESS)
    (folder / "settings").write_text(_SETTINGS)
    data_file = folder / tests.name
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    counting = {"COVERAGE_PROCESS_START": str(folder / "settings"), "COVERAGE_FILE": str(data_file)}
    seconds, code = run(tests, workers, {"PYTHONPATH": path, **counting})
    print(f"make {tests.name}, lines counted: {seconds:.0f} s, exit code {code}", flush=True)
    whole = coverage.Coverage(str(data_file), config_file=str(folder / "settings"))
    whole.combine([str(each) for each in folder.glob(f"{tests.name}.*")])
    data = whole.get_data()
    return {file: set(data.lines(file) or ()) for file in data.measured_files()}


def report(fast: dict[str, set[int]], slow: dict[str, set[int]]) -> float:
    """Print how many lines each runs, and where the first falls short; gives its share of all."""
    both = {file: fast.get(file, set()) | slow.get(file, set()) for file in {*fast, *slow}}
    missing = {file: lines - fast.get(file, set()) for file, lines in both.items()}
    counts = [sum(map(len, lines.values())) for lines in (fast, slow, both)]
    share = counts[0] / counts[2]
    print(f"lines run by make test: {counts[0]}, by make test-slow: {counts[1]}, by either: {counts[2]}")
    print(f"make test runs {share:.1%} of them")
    packages: Counter[str] = Counter()
    for file, lines in missing.items():
        packages[Path(file).relative_to(ROOT / "spark_pages").parts[0]] += len(lines)
    for package, count in (+packages).most_common():
        print(f"  {count:6} missed in {package}")
    files = sorted(filter(lambda item: item[1], missing.items()), key=lambda item: -len(item[1]))
    for file, lines in files[:20]:
        print(f"  {len(lines):6} missed in {Path(file).relative_to(ROOT)}: {sorted(lines)[:12]}")
    return share


def main() -> int:
    """Measure both runs; 0 if the first runs enough of the lines of both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default="2", help="tests at once")
    parser.add_argument("--untimed", action="store_true", help="leave out the runs that count no lines")
    asked = parser.parse_args()
    for tests in () if asked.untimed else RUNS:
        seconds, code = run(tests, asked.workers, {})
        print(f"make {tests.name}: {seconds:.0f} s, exit code {code}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        fast, slow = (lines_of(tests, asked.workers, Path(folder)) for tests in RUNS)
    return 0 if report(fast, slow) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
