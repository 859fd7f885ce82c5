"""Check what ``spark-pages demo --json`` printed: that it is ok, and its figures right."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLIGHTS = 336_776
MAX_SPARK_FREE_SECONDS = 30
MAX_SECONDS = 540
"""Three times what the demo promises: a busy machine may be slow, a hang is an error."""
EXPECTED_CHECKS = {
    "all_rows_arrived",
    "compaction_keeps_every_row",
    "correction_is_visible",
    "every_month_is_a_commit",
    "every_offset_is_aligned",
    "locate_row_finds_the_value",
    "old_version_keeps_its_rows",
    "older_version_is_readable_after_the_checkpoint",
    "read_equals_the_source",
    "reconstruction_equals_the_local_snapshot",
    "reopened_store_gives_the_same_rows",
    "scan_equals_the_source",
    "spark_equals_the_local_reader",
    "tables_equal",
    "take_equals_the_source",
    "time_finds_the_version",
}


def problems(result: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each figure that is not what it must be."""
    if result.get("ok") is not True:
        yield f"ok is {result.get('ok')}: {json.dumps(result)[:1000]}"
    checks = result["checks"]
    wrong = sorted(name for name, holds in checks.items() if holds is not True)
    if wrong:
        yield f"checks that do not hold: {', '.join(wrong)}"
    missing = sorted(EXPECTED_CHECKS - set(checks))
    if missing:
        yield f"checks that were not made: {', '.join(missing)}"
    steps = {step["name"]: step for step in result["steps"]}
    ingest, read, correct = steps["ingest"], steps["read"], steps["correct"]
    if ingest["commits"] != 12:
        yield f"{ingest['commits']} ingest commits, expected 12"
    if ingest["tables"] != 5:
        yield f"{ingest['tables']} tables, expected 5"
    if ingest["rows"]["flights"] != FLIGHTS:
        yield f"{ingest['rows']['flights']} flights ingested, expected {FLIGHTS}"
    late = correct["late_flights"]
    if late < 1 or correct["rows"] != {"old": FLIGHTS, "new": FLIGHTS + late}:
        yield f"after {late} late flights the rows are {correct['rows']}, expected {FLIGHTS} and so many more"
    for name in ("read", "take", "scan"):
        requests = read[name]["requests"]
        if requests["warm"] != 0 or requests["cold"] < 1:
            yield f"{name} took {requests} requests, expected some cold and none warm"
    if read["locate"]["requests"]["warm"] != 0:
        yield f"a warm locate_row took {read['locate']['requests']['warm']} requests"
    spark = result["spark"]
    if "skipped" in spark:
        yield f"the Spark part was skipped: {spark['skipped']}"
    elif spark["rows"]["equal"] is not True:
        yield f"Spark and the local reader differ: {spark['rows']}"
    if not 0 < result["spark_free_seconds"] < MAX_SPARK_FREE_SECONDS:
        yield f"without Spark it took {result['spark_free_seconds']} s, expected < {MAX_SPARK_FREE_SECONDS}"
    if not 0 < result["total_seconds"] < MAX_SECONDS:
        yield f"the demo took {result['total_seconds']} s, expected < {MAX_SECONDS}"


def main(path: Path) -> str | None:
    """Return what is wrong with the document, or None."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{path.name}: expected one JSON document, found something else: {error}"
    if not isinstance(result, dict):
        return f"{path.name}: expected a JSON object, found: {json.dumps(result)[:1000]}"
    if "error" in result:
        return f"{path.name}: the demo stopped with {result['error']}"
    try:
        found = list(problems(result))
    except (KeyError, TypeError, AttributeError) as error:
        return f"{path.name}: the document lacks a part: {error!r}"
    if found:
        return "\n".join(f"{path.name}: {each}" for each in found)
    print(
        f"the demo says ok: {len(result['checks'])} checks, {result['spark_free_seconds']} s without Spark, "
        f"{result['total_seconds']} s in all"
    )
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
