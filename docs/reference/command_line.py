"""Write docs/reference/command-line.md: every command of ``spark-pages`` with its arguments and options.

The page is generated from the command line itself when the site is built, so it is never out of date.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from spark_pages.cli.app import app

STYLE = re.compile(r"\[/?(?:bold|dim|italic|cyan|green|red|yellow)[^\]]*\]")


def plain(words: str | None) -> str:
    """Return help text as one paragraph of Markdown, without rich's markup."""
    lines = STYLE.sub("", words or "").replace("\b", "").strip().split("\n\n")
    return "\n\n".join(" ".join(line.split()) for line in lines)


def cell(words: str | None) -> str:
    """Return help text for a cell of a table."""
    return plain(words).replace("\n\n", " ").replace("|", "\\|")


def parameters(command: Any, kind: str) -> list[tuple[str, str]]:
    """List the names and the help of the arguments or options of a command."""
    shown = [
        one for one in command.params if one.param_type_name == kind and not getattr(one, "hidden", False)
    ]
    return [(", ".join([*one.opts, *one.secondary_opts]), cell(getattr(one, "help", None))) for one in shown]


def section(name: str, command: Any) -> str:
    """Describe one command."""
    lines = [f"## {name}", "", plain(command.help), ""]
    for kind in ("argument", "option"):
        rows = parameters(command, kind)
        if rows:
            lines += [f"| {kind} | meaning |", "|---|---|", *(f"| `{a}` | {b} |" for a, b in rows), ""]
    return "\n".join(lines)


def page() -> str:
    """Describe all commands, in the order of ``spark-pages --help``."""
    group: Any = typer.main.get_command(app)  # typer brings a click of its own, which has no public types
    context = group.make_context("spark-pages", ["--help"], resilient_parsing=True)
    commands = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    shown = [section(name, command) for name, command in commands if not command.hidden]
    head = (
        "# Command line\n\nEach command is `spark-pages <command> <url>`. Commands that print a result take "
        "`--json`.\n"
    )
    return "\n".join([head, *shown])


if __name__ == "__main__":
    Path(__file__).with_name("command-line.md").write_text(page(), encoding="utf-8")
