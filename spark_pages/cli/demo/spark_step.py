"""The step with Spark: the same rows through a data source, and two jobs through ``spark-submit``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

import spark_pages
from spark_pages.cli.demo.steps import Tour
from spark_pages.errors import MissingDependencyError
from spark_pages.spark import session, submit
from spark_pages.spark.session import check_spark


def why_no_spark() -> str | None:
    """What Spark lacks here and how to get it, or None."""
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
    with report.waiting("spark-submit jobs/compact_pages.py …"):
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
    with report.waiting("spark-submit jobs/reconstruct_snapshot.py …"):
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
