"""The command line ``spark-pages``: data to stdout, talk to stderr, exit codes that scripts can use.

Start with `app.py`, which lists the verbs; `output.py` renders tables, JSON and errors.
May import everything of spark_pages; nothing imports it. Verbs import what they need when they run, so
that ``--help`` is quick.
"""

from __future__ import annotations


def main() -> None:
    """Run the command that was typed, and exit with its code."""
    from spark_pages.cli.app import app

    app()
