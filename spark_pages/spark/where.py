"""Print what a command line of ``spark-submit`` needs of the package.

spark-submit $(python -m spark_pages.spark.where) verify URL
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spark_pages.spark.package_files import CONF, ENTRY, LOGGING

_LOGGING_FILES = "log4j2*.*"
"""What log4j looks for on the class path: properties, XML, JSON and YAML, and those for tests."""


def job_words(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the words before the name of a job: options of ``spark-submit`` for a quiet log, and the entry.

    Parameters
    ----------
    environment
        Variables that say where Spark finds its configuration.

    Notes
    -----
    The entry stands alone where Spark has a logging configuration of its own, and where a path holds a blank,
    because a shell would split it. ``spark.driver.extraJavaOptions`` of the caller comes after this option,
    and so decides.
    """
    entry = str(ENTRY)
    if len(entry.split()) != 1 or not LOGGING.is_file() or _configures_logging(environment):
        return [entry]
    option = f"spark.driver.defaultJavaOptions=-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    return ["--conf", option, entry]


def _configures_logging(environment: Mapping[str, str]) -> bool:
    folder = environment.get("SPARK_CONF_DIR")
    if folder is None and "SPARK_HOME" in environment:
        folder = os.path.join(environment["SPARK_HOME"], "conf")
    return folder is not None and any(Path(folder).glob(_LOGGING_FILES))


_PLACES: dict[str, Callable[[], list[str]]] = {
    "job": job_words,
    "entry": lambda: [str(ENTRY)],
    "conf": lambda: [str(CONF)],
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print one word a line."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_pages.spark.where",
        description="Print what a command line of spark-submit needs of spark_pages.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=tuple(_PLACES),
        default="job",
        help="options for a quiet log and the entry of the jobs (default), the path of the entry alone, or "
        "the folder of the profiles",
    )
    print(*_PLACES[parser.parse_args(argv).what](), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
