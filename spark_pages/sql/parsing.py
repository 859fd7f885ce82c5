"""From text to the tree of sqlglot, with errors of our own. Pure.

The grammar is that of DuckDB, and from Spark the names in backticks, ``VERSION AS OF`` and
``TIMESTAMP AS OF``.
"""

from __future__ import annotations

from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token

from spark_pages.errors import InvalidInputError, SparkPagesError

_LONGEST = 1 << 20
"""Characters of a statement; what is longer is refused before it is parsed."""

_FAILURES = (SqlglotError, ValueError, TypeError, AttributeError, LookupError)
"""What sqlglot raises for texts that nobody has thought of."""


class Grammar(DuckDB):
    """DuckDB's grammar with names in backticks too."""

    class Tokenizer(DuckDB.Tokenizer):
        """See `Grammar`."""

        IDENTIFIERS: ClassVar = ['"', "`"]

    class Parser(DuckDBParser):
        """See `Grammar`."""

        def _warn_unsupported(self) -> None:
            """Nothing: what sqlglot does not know is refused here by name."""


def parse(text: str) -> exp.Expr:
    """The tree of the one statement that the text holds.

    Raises
    ------
    InvalidInputError
        If it cannot be read, or is no statement, or several; names line and column.
    """
    if len(text) > _LONGEST:
        raise InvalidInputError(f"The statement has {len(text)} characters: expected at most {_LONGEST}.")
    try:
        found = [tree for tree in sqlglot.parse(text, dialect=Grammar) if tree is not None]
    except ParseError as error:
        raise unreadable(text, error) from error
    except RecursionError as error:
        raise InvalidInputError("Cannot read the statement: it is nested too deep.") from error
    except _FAILURES as error:
        raise InvalidInputError(f"Cannot read the statement {shown(text)}: {error}.") from error
    if not found:
        raise InvalidInputError(f"The text {shown(text)} is no statement.")
    if len(found) > 1:
        raise InvalidInputError(f"Expected one statement, found {len(found)}.", hint="Run them one by one.")
    return found[0]


def tokens(text: str) -> list[Token]:
    """The words of a statement.

    Raises
    ------
    InvalidInputError
        If quotes do not end.
    """
    try:
        return Grammar().tokenize(text)
    except SqlglotError as error:
        raise InvalidInputError(f"Cannot read the statement {shown(text)}: {error}.") from error


def unreadable(text: str, error: ParseError, kind: str = "statement") -> InvalidInputError:
    """What is wrong with a text that sqlglot cannot parse, and where."""
    if not error.errors:
        return InvalidInputError(f"Cannot read the {kind} {shown(text)}: there is nothing in it.")
    first = error.errors[0]
    line, column = int(first.get("line") or 1), int(first.get("col") or 1)
    near = str(first.get("highlight") or "").strip()
    what = str(first.get("description")).split(" but got <Token")[0]
    if what.startswith("Required keyword"):
        what = "something is missing"
    return InvalidInputError(
        f"Cannot read the {kind} {shown(text)}: {what}, at line {line}, column {column}"
        f"{f', near {near!r}' if near else ''}.",
        line=line,
        column=column,
    )


def written(node: exp.Expr) -> str:
    """The text of a node, for people."""
    return node.sql(dialect=Grammar, unsupported_level=ErrorLevel.IGNORE, normalize_functions="lower")


def rewritten(node: exp.Expr) -> str:
    """The text of a node, for DuckDB.

    Raises
    ------
    InvalidInputError
        If DuckDB has no words for it: leaving it out would mean something else.
    """
    try:
        return node.sql(dialect=Grammar, unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise InvalidInputError(f"Cannot say {written(node)!r} to DuckDB: {error}.") from error


def chain(root: exp.Expr) -> list[exp.Expr]:
    """The parts of a chain of AND or OR, in order: sqlglot's tree of it is as deep as the chain is long."""
    parts: list[exp.Expr] = []
    left = [root]
    while left:
        node = bare = left.pop()
        while isinstance(bare, exp.Paren):
            bare = bare.this
        if type(bare) is type(root):
            left += [bare.expression, bare.this]
        else:
            parts.append(node)
    return parts


def located(error: SparkPagesError, node: exp.Expr, text: str) -> SparkPagesError:
    """The same error, with the place in the statement where the node stands."""
    place = place_of(node, text)
    if place is None:
        return error
    line, column = place
    told = f"{error.message.removesuffix('.')} (line {line}, column {column})."
    return type(error)(told, hint=error.hint, **{**error.context, "line": line, "column_number": column})


def place_of(node: exp.Expr, text: str) -> tuple[int, int] | None:
    """Line and column where a node begins, both from 1, if it is known."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    if not starts:
        return None
    before = text[: min(starts)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def shown(text: str, most: int = 120) -> str:
    """The text in quotes, cut where it is long."""
    text = " ".join(text.split())
    return repr(text if len(text) <= most else text[: most - 1] + "…")
