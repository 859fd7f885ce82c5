"""The command ``spark-pages``: its verbs, in the groups of ``--help``, and how its errors are told."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spark_pages import __version__
from spark_pages.cli import inspect, jobs, maintenance, output, rows, versions
from spark_pages.cli.arguments import Json, Profile, Url, options_of
from spark_pages.cli.inspect import report, sql
from spark_pages.cli.maintenance import doctor, repair, verify
from spark_pages.cli.serve import serve
from spark_pages.errors import SparkPagesError
from spark_pages.job_result import USAGE, exit_code, failure_document
from spark_pages.printable import escape_controls
from spark_pages.progress import Mode, reporting

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has had its own click since 0.26


class _Verbs(TyperGroup):
    """Tells errors of spark_pages without a traceback, and every error as JSON where JSON was asked for."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """See `TyperGroup.main`."""
        given = list(sys.argv[1:] if args is None else args)
        as_json = _wants_json(given)
        if as_json:
            extra["standalone_mode"] = False
        try:
            result = super().main(given, *more, **extra)
        except (SparkPagesError, OSError) as error:
            output.print_error(error, as_json)
            sys.exit(exit_code(error))
        except _UsageError as error:  # comes here only where JSON was asked for
            message = getattr(error, "format_message", error.__str__)()
            hint = "spark-pages --help lists the verbs; spark-pages VERB --help its arguments."
            output.print_json(failure_document("UsageError", message, hint))
            sys.exit(USAGE)
        if as_json:
            sys.exit(result if isinstance(result, int) else 0)
        return result

    def make_context(self, *given: Any, **extra: Any) -> Any:
        """See `TyperGroup.make_context`."""
        with _escaped_usage_errors():
            return super().make_context(*given, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Show the progress of the verb; see `TyperGroup.invoke`."""
        mode: Mode = ctx.params["progress"]
        if mode == "auto":
            mode = "bar" if sys.stderr.isatty() and not _wants_json(ctx.args) else "none"
        with _escaped_usage_errors(), reporting(mode, "spark-pages"):
            return super().invoke(ctx)


@contextmanager
def _escaped_usage_errors() -> Iterator[None]:
    """Escape the arguments that a usage error names: typer leaves marks of direction as they are."""
    try:
        yield
    except _UsageError as error:
        if hasattr(error, "message"):
            error.message = escape_controls(error.message)
        raise


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--json" in arguments


app = typer.Typer(
    cls=_Verbs,
    name="spark-pages",
    help="Exact rows out of column pages in object storage, as of any version.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"spark-pages {__version__}\n")
        raise typer.Exit


@app.callback()
def command(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    progress: Annotated[
        Mode, typer.Option(help="On stderr: bars, a log line every ten seconds, or bars on a terminal alone.")
    ] = "auto",
) -> None:
    """Read options that precede any command."""


def demo(
    folder: Annotated[Path, typer.Option(help="Made anew; nothing outside is written.")] = Path(
        "spark-pages-demo"
    ),
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the part that needs Java.")] = False,
    json: Json = False,
) -> None:
    """Take the guided tour with real flights, from the first page to a Spark job."""
    started_at = time.perf_counter()
    from spark_pages.cli.demo import run_demo

    result = run_demo(folder, spark=not no_spark, quiet=json, started_at=started_at)
    if json:
        output.print_json(result)
    output.exit_unless(result["ok"])


def create(url: Url, profile: Profile = None, json: Json = False) -> None:
    """Create an empty store."""
    import spark_pages

    store = spark_pages.create(url, options_of(url, profile))
    version = store.snapshot().version
    if json:
        output.print_json({"url": store.url, "version": version})
    else:
        output.say(f"created {store.url}")


PANELS = {
    "Start": (demo, create),
    "Inspect": (
        *(
            inspect.info,
            inspect.tables,
            inspect.schema,
            inspect.head,
            inspect.history,
            inspect.pages,
            inspect.locate,
            inspect.read,
            sql,
        ),
        *(versions.changes, versions.blame, versions.tags, maintenance.leases, maintenance.claims, report),
    ),
    "Change": (
        *(versions.tag, versions.untag, versions.restore, versions.reset_clock),
        *(rows.delete, rows.erase, maintenance.claim, maintenance.release),
    ),
    "Maintain": (
        *(
            jobs.checkpoint,
            maintenance.compact_log,
            maintenance.compact_pages,
            maintenance.publish_delta,
            maintenance.vacuum,
        ),
        *(verify, repair, doctor, jobs.reconstruct_snapshot),
    ),
    "In and out": (jobs.ingest, jobs.delete_rows, jobs.export, serve),
}
"""Every verb, as ``--help`` groups them."""

_WITH_ROWS = (inspect.locate, versions.blame)
"""Verbs with a row number as an argument: -1 is no option, but a row that no table has."""

for _panel, _verbs in PANELS.items():
    for _verb in _verbs:
        _settings = {"ignore_unknown_options": True} if _verb in _WITH_ROWS else None
        app.command(rich_help_panel=_panel, context_settings=_settings)(_verb)
