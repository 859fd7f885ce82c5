"""The command line ``spark-pages``: data to stdout, talk to stderr, exit codes that scripts can use.

Start with `app.py`, which lists the verbs; `output.py` renders tables, JSON and errors; `filters.py`
reads ``--filter``. May import everything of spark_pages; nothing imports it. Verbs import what they
need when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The command that was typed has run; exits with its code."""
    try:
        from spark_pages.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"error [MissingDependencyError] The command line needs {error.name}, which is not installed.\n"
            "  pip install 'spark-pages[cli]' (or 'spark-pages[demo]', which brings the demo's data too)\n"
        )
        sys.exit(1)
    app()
