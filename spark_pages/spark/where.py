"""Print where a file of the package lies, for a command line.

export SPARK_CONF_DIR="$(python -m spark_pages.spark.where conf)"
spark-submit "$(python -m spark_pages.spark.where)" verify URL
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spark_pages.spark.package_files import CONF, ENTRY

_PLACES = {"entry": ENTRY, "conf": CONF}


def main(argv: Sequence[str] | None = None) -> int:
    """Print one path."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_pages.spark.where", description="Print where a file of spark_pages lies."
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=tuple(_PLACES),
        default="entry",
        help="the entry of the jobs for spark-submit (default), or the folder of its profiles",
    )
    print(_PLACES[parser.parse_args(argv).what])
    return 0


if __name__ == "__main__":
    sys.exit(main())
