"""What a verb prints: JSON, tables for people, tab-separated text for pipes, and errors."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spark_pages.display.text import shorten, size
from spark_pages.errors import SparkPagesError
from spark_pages.job_result import FAILED, failure_document
from spark_pages.printable import escape_controls, escape_controls_in_json, plain
from spark_pages.progress import rest

if TYPE_CHECKING:
    import pyarrow as pa

_KEY_CHARS = 40
_TEXT_CHARS = 240
"""Sentences may be folded, keys only lose their middle."""

_TURNED_ROWS = 3
_COLUMN_CHARS = 20
"""So wide a column is at least, if it has so much to show: a page id or a time is on one line."""

_PADDING = 3

_STYLES = {"ok": "green", "failed": "bold red", "warning": "yellow"}
"""Of words that say how something went, where a terminal has colours."""


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document is on stdout."""
    rest()
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False)
    sys.stdout.write(escape_controls_in_json(text) + "\n")


def print_error(error: Exception, as_json: bool) -> None:
    """Print an error without a traceback: as JSON on stdout, or for people on stderr."""
    rest()
    message, hint = str(error), None
    if isinstance(error, SparkPagesError):
        message, hint = error.message, error.hint
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}."
    kind = type(error).__name__
    if as_json:
        print_json(failure_document(kind, message, hint))
        return
    talk = Console(stderr=True, highlight=False, soft_wrap=True)
    talk.print(Text.assemble(("error", "bold red"), f" [{kind}] {escape_controls(message)}"))
    if hint:
        talk.print(Text(f"  {escape_controls(hint)}", style="cyan"))


def say(message: str) -> None:
    """Print a message on stderr."""
    rest()
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(escape_controls(message), style="dim"))


def print_table(title: str, table: pa.Table) -> None:
    """Print an Arrow table, as `print_rows` does."""
    print_rows(title, table.column_names, rows_of(table))


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the values of a table row by row."""
    return list(zip(*map(_values, table.columns), strict=True))


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Return names and types of columns; a list, because two of a query may have one name."""
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def records_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON objects, maps as objects too."""
    return [dict(zip(table.column_names, row, strict=True)) for row in rows_of(table)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    values: list[Any] = column.to_pylist()
    if not _holds_map(kind):
        return values
    return [_with_objects(value, kind) for value in values]


def _holds_map(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_map(kind) or any(
        _holds_map(kind.field(index).type) for index in range(kind.num_fields)
    )


def _with_objects(value: Any, kind: pa.DataType) -> Any:
    """Return a value with its maps as objects; where keys repeat or are no texts, as lists of pairs."""
    import pyarrow as pa

    if value is None or not _holds_map(kind):
        return value
    if pa.types.is_map(kind):
        pairs = [(key, _with_objects(item, kind.item_type)) for key, item in value]
        made = dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else {}
        return made if len(made) == len(pairs) else pairs
    if pa.types.is_struct(kind):
        return {field.name: _with_objects(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_with_objects(each, kind.field(0).type) for each in value]
    return value


def with_shown_ids(table: pa.Table) -> pa.Table:
    """Write page ids and checksums as 16 hex digits: a number of JSON holds 53 bits."""
    import pyarrow as pa

    for place, name in enumerate(table.column_names):
        if name in ("page_id", "old_page_id", "checksum"):
            numbers = table[name].to_pylist()
            ids = [None if number is None else f"{number % (1 << 64):016x}" for number in numbers]
            table = table.set_column(place, name, pa.array(ids, pa.string()))
    return table


def print_rows(
    title: str, names: Sequence[str], rows: Sequence[Sequence[Any]], *, whole: bool = False
) -> None:
    """Print a table for people on a terminal; tab-separated text with a header elsewhere.

    Parameters
    ----------
    whole
        Whether all columns are shown on a narrow terminal too: sentences, which can be folded.

    Notes
    -----
    Of more columns than fit a terminal, the first are shown; few rows are turned, a line for each column.
    """
    rest()
    console = Console()
    if not console.is_terminal:
        for row in [names, *rows]:
            sys.stdout.write("\t".join(_text(value) for value in row) + "\n")
        return
    shown = [[_shown_as(name, value) for name, value in zip(names, row, strict=True)] for row in rows]
    numeric = {index for index in range(len(names)) if any(_is_number(row[index]) for row in rows)}
    fitting = len(names) if whole else _columns_that_fit(_least_widths(names, shown, numeric), console.width)
    if fitting < len(names) and len(rows) <= _TURNED_ROWS:
        turned = [[name, *(row[index] for row in shown)] for index, name in enumerate(names)]
        heads = ["column", *(f"row {number}" for number in range(1, len(rows) + 1))]
        _draw(console, title, heads, turned, set())
        return
    _draw(console, title, names[:fitting], [row[:fitting] for row in shown], numeric, folding=whole)
    if fitting < len(names):
        others = ", ".join(names[fitting:])
        say(f"not shown for want of room: {others}; a pipe and --json have all columns")


def print_findings(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a paragraph for each row on a terminal, nothing of it cut; as `print_rows` anywhere else.

    Parameters
    ----------
    names, rows
        A word, the key of an object, sentences about it, and last what to do, which is printed once for all
        rows that have it in common.
    """
    rest()
    console = Console(highlight=False)
    if not console.is_terminal:
        print_rows(title, names[:-1], [row[:-1] for row in rows])
    else:
        console.print(Text(escape_controls(title), style="bold"))
        for word, key, *sentences, _ in rows:
            heading = escape_controls(f"\n  {word}  {key}")
            console.print(Text(heading, style="bold"), soft_wrap=True)  # so that a key can be copied
            for sentence in sentences:
                console.print(Padding(Text(escape_controls(sentence)), (0, 0, 0, 4)))
        console.print()
    for remedy, number in Counter(row[-1] for row in rows).items():
        share = "" if number == len(rows) else f" ({number:,} of {len(rows):,})"
        console.print(Text(escape_controls(f"{names[-1]}{share}: {remedy}")), soft_wrap=True)


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    rest()
    console = Console()
    if console.is_terminal:
        _draw(console, title, ["name", "value"], [[n, _shown_as(n, v)] for n, v in facts.items()], set())
    else:
        print_rows(title, ["name", "value"], list(facts.items()))


def print_result(title: str, told: Mapping[str, Any], as_json: bool, hidden: Sequence[str] = ()) -> None:
    """Print the report of a job; `hidden` facts only as JSON."""
    if as_json:
        print_json(told)
    else:
        shown = {name: value for name, value in told.items() if name not in ("ok", "job", *hidden)}
        sizes = {name: size(value) for name, value in shown.items() if _is_size(name) and value is not None}
        print_facts(title, {**shown, **sizes})


def _is_size(name: str) -> bool:
    return name.startswith("bytes") or name.endswith("_bytes")


def print_list(title: str, table: pa.Table, limit: int) -> None:
    """Print the first rows of a table, and say if there are more; all rows if `limit` is 0."""
    shown = table.slice(0, limit) if limit else table
    print_table(title, shown)
    if shown.num_rows < table.num_rows:
        say(f"the first {shown.num_rows:,} rows of {table.num_rows:,}; --limit 0 shows all")


def exit_unless(ok: bool, code: int = FAILED) -> None:
    """Nothing if all is well; else the verb ends, with the exit code of a failure."""
    if not ok:
        raise typer.Exit(code)


def _least_widths(names: Sequence[str], shown: Sequence[Sequence[str]], numeric: set[int]) -> list[int]:
    """Return the characters that each column takes at least: names and numbers are never cut."""
    widest = [max([len(name), *(len(row[index]) for row in shown)]) for index, name in enumerate(names)]
    return [
        width if index in numeric else min(width, max(len(names[index]), _COLUMN_CHARS))
        for index, width in enumerate(widest)
    ]


def _has_sentence(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Whether a column has a text of several words that is longer than a key: it is folded, and not cut."""
    return any(len(row[column]) > _KEY_CHARS and " " in row[column] for row in rows)


def _columns_that_fit(widths: Sequence[int], width: int) -> int:
    """How many columns fit without breaking words; at least one."""
    left = width - 1
    for index, least in enumerate(widths):
        left -= least + _PADDING
        if left < 0:
            return max(index, 1)
    return len(widths)


def _draw(
    console: Console,
    title: str,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: set[int],
    folding: bool = True,
) -> None:
    # no title of the table, which would be folded to its width
    console.print(Text(escape_controls(title), style="bold"))
    table = Table(box=box.SIMPLE_HEAD)
    least = [0] * len(names) if folding else _least_widths(names, rows, numeric)
    for position, name in enumerate(names):
        side: Literal["left", "right"] = "right" if position in numeric else "left"
        table.add_column(
            escape(_text(name)),
            justify=side,
            overflow="fold" if folding or _has_sentence(rows, position) else "ellipsis",
            no_wrap=position in numeric or not (folding or _has_sentence(rows, position)),
            min_width=least[position],
        )
    for row in rows:
        table.add_row(*(Text(escape_controls(cell), style=_STYLES.get(cell, "")) for cell in row))
    console.print(table)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    value = plain(value)
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return escape_controls(text.replace("\t", " ").replace("\n", " "))


def _shown_as(name: str, value: Any) -> str:
    """Return a value as text for a terminal: bytes as a size, numbers with their thousands apart."""
    return size(value) if _is_size(name) and isinstance(value, int) else _shown(value)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}" + ("Z" if value.utcoffset() == timedelta(0) else "")
        case _:
            text = _text(value)
            return shorten(text, _TEXT_CHARS if " " in text else _KEY_CHARS)
