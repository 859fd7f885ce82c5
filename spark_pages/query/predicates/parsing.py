"""From text to the tree of sqlglot, with errors of our own. Pure.

The grammar is that of DuckDB, and from Spark the names in backticks, ``VERSION AS OF`` and
``TIMESTAMP AS OF``.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.query.predicates.nodes import NODES
from spark_pages.query.predicates.vocabulary import ELSEWHERE, FUNCTIONS, check

_AT_VERSION = re.compile(r"[vV]([0-9]{1,19})")
_AT_TIME = re.compile(r"(\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})(\d{3})", re.ASCII)

_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "(")
"""Words that a query may begin with."""

_LONGEST = 1 << 20
"""Characters of a statement; what is longer is refused before it is parsed."""

IMPURE_HINT = (
    "See docs/sql.md for the functions that there are. A query sees its tables and parameters, and no clock, "
    "setting or random number: give such values as parameters, as in store.sql(text, {'now': …}) for $now."
)

_FAILURES = (SqlglotError, ValueError, TypeError, AttributeError, LookupError)
"""What sqlglot raises for texts that nobody has thought of."""


class Grammar(DuckDB):
    """DuckDB's grammar with names in backticks and versions behind ``@`` too.

    Calls of functions stay as they are written, but for those with words inside of their parentheses: what
    sqlglot makes of others is meant for translation to other dialects, and not always the same.
    """

    class Tokenizer(DuckDB.Tokenizer):
        """See `Grammar`."""

        IDENTIFIERS: ClassVar = ['"', "`"]
        # Text between $$ is text; with tags, as in $a$…$a$, sqlglot takes $1,$2 for the beginning of one.
        HEREDOC_STRINGS: ClassVar = []
        RAW_STRINGS: ClassVar = [("$$", "$$")]
        KEYWORDS: ClassVar = {  # ?:: is a parameter and a cast
            word: kind for word, kind in DuckDB.Tokenizer.KEYWORDS.items() if word != "?::"
        }

    class Parser(DuckDBParser):
        """See `Grammar`."""

        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: DuckDBParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "EXTRACT", "SUBSTRING", "TRIM", "TRY_CAST")
        }
        NO_PAREN_FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: DuckDBParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("@", "ANY", "CASE", "MAP")
        }
        TYPE_CONVERTERS: ClassVar = {}
        JSON_OPERATORS: ClassVar = {
            TokenType.ARROW: lambda _, this, path: exp.JSONExtract(this=this, expression=path),
            TokenType.DARROW: lambda _, this, path: exp.JSONExtractScalar(this=this, expression=path),
        }
        UNARY_PARSERS: ClassVar = {
            **DuckDBParser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: self._parse_positive(),
        }

        PLACEHOLDER_PARSERS: ClassVar = {
            kind: made for kind, made in DuckDBParser.PLACEHOLDER_PARSERS.items() if kind != TokenType.COLON
        }

        def _warn_unsupported(self) -> None:
            """Nothing: what sqlglot does not know is refused here by name."""

        def _parse_placeholder(self) -> exp.Expr | None:
            """``?``, ``$1`` and ``$name``, with their place in the text."""
            token = self._curr
            found = super()._parse_placeholder()
            if isinstance(found, exp.Placeholder):
                if token.text == "@":
                    self.raise_error("Expected $ before the name of a parameter", token)
                found.meta.update(start=token.start, line=token.line, col=token.col)
            return found

        def _parse_table_parts_fast(self) -> Any:
            return self._at_version(super()._parse_table_parts_fast())

        def _parse_table_parts(self, *given: Any, **named: Any) -> Any:
            return self._at_version(super()._parse_table_parts(*given, **named))

        def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query | None:
            self.raise_error("Pipes are not supported here", self._curr)
            return query

        def _parse_types(self, *given: Any, **named: Any) -> exp.Expr | None:
            """Parse a type. A quoted name is the type of exactly that name."""
            word = self._curr
            found = super()._parse_types(*given, **named)
            quoted = word is not None and word.token_type == TokenType.IDENTIFIER
            is_own = isinstance(found, exp.DataType) and found.this == exp.DType.USERDEFINED
            if found is not None and quoted and not is_own and not word.text.isidentifier():
                self.raise_error("Expected the name of a type in the quotes", word)
            return found

        def _parse_positive(self) -> exp.Expr | None:
            """Parse the operand of a plus, which sqlglot would drop; DuckDB refuses a plus before text."""
            if self._curr.token_type == TokenType.NUMBER:
                return self._parse_unary()
            operand = self._parse_unary()
            if operand is None:
                self.raise_error("Expected a value after +", self._curr)
            return exp.Anonymous(this="+", expressions=[operand])

        def _at_version(self, table: Any) -> Any:
            """Parse a table with its version, as in ``t@v7`` or ``t@20260131180000000``."""
            at, word = self._curr, self._next
            beside = at.start == self._prev.end + 1 and word.start == at.end + 1
            if not isinstance(table, exp.Table) or at.text != "@" or not beside:
                return table
            if table.args.get("at") is not None:
                self.raise_error("Expected one version of the table", word)
            self._advance(2)
            asked = _AT_VERSION.fullmatch(word.text)
            moment = _AT_TIME.fullmatch(word.text)
            if asked and word.token_type == TokenType.VAR:
                number = exp.Literal.number(int(asked[1]))
                table.set("at", exp.Version(this="VERSION", kind="AS OF", expression=number))
            elif moment and word.token_type == TokenType.NUMBER:
                year, month, day, hour, minute, second, fraction = moment.groups()
                text = exp.Literal.string(f"{year}-{month}-{day}T{hour}:{minute}:{second}.{fraction}Z")
                table.set("at", exp.Version(this="TIMESTAMP", kind="AS OF", expression=text))
            else:
                self.raise_error("Expected @v and a version, or @ and a time of 17 digits", word)
            return table

    class Generator(DuckDBGenerator):
        """See `Grammar`."""

        MULTI_ARG_DISTINCT = True  # else f(DISTINCT a, ',') becomes f(DISTINCT (a, ','))
        TRANSFORMS: ClassVar = {
            **DuckDBGenerator.TRANSFORMS,
            exp.IgnoreNulls: lambda self, node: f"{self.sql(node, 'this')} IGNORE NULLS",
            exp.RespectNulls: lambda self, node: f"{self.sql(node, 'this')} RESPECT NULLS",
            exp.WithinGroup: lambda self, node: (
                f"{self.sql(node, 'this')} WITHIN GROUP ({self.sql(node, 'expression').strip()})"
            ),
        }


def parse(text: str) -> exp.Expr:
    """Parse a text that holds one statement.

    Raises
    ------
    InvalidInputError
        If it cannot be read, or is no statement, or several; names line and column.
    """
    if len(text) > _LONGEST:
        raise InvalidInputError(
            f"Cannot read the statement: it has {len(text)} characters, and at most {_LONGEST} are read.",
            hint="Pass long lists of values as a parameter: `store.sql('SELECT … WHERE n IN $values', "
            "{'values': […]})`.",
        )
    try:
        found = [tree for tree in sqlglot.parse(text, dialect=Grammar) if tree is not None]
    except ParseError as error:
        raise unreadable(text, error) from error
    except RecursionError as error:
        raise InvalidInputError(
            "Cannot read the statement: it is nested too deep.",
            hint="Name parts of it by `WITH name AS (…)`, and write chains of conditions without brackets.",
        ) from error
    except _FAILURES as error:
        raise InvalidInputError(
            f"Cannot read the statement {shown(text)}: {error}.",
            hint='Write values between single quotes, names between double quotes: `WHERE "my column" = '
            "'x'`.",
        ) from error
    if not found:
        raise InvalidInputError(
            f"Cannot read the text {shown(text)}: it is no statement.",
            hint="Write a statement such as `SELECT * FROM t`.",
        )
    if len(found) > 1:
        raise InvalidInputError(
            f"Cannot run {len(found)} statements at once: expected one.", hint="Call `sql` for each of them."
        )
    check(found[0], NODES, lambda node, what: not_understood(node, what, text))
    return found[0]


def not_understood(node: exp.Expr, what: str | None, text: str) -> InvalidInputError:
    """Create the error for an unsupported part of a statement."""
    hint = None
    if isinstance(node, exp.Anonymous) and what is None:
        name = node.name.lower()
        close = [] if name in FUNCTIONS else get_close_matches(name, FUNCTIONS, n=1, cutoff=0.75)
        instead = ELSEWHERE.get(name) or (close[0] if close else None)
        hint = f"Did you mean {instead}?" if instead else IMPURE_HINT
    told = shown(written(node)) if what is None else repr(what)
    found = located(
        InvalidInputError(f"Cannot run {told}: that is not supported here.", hint=hint), node, text
    )
    assert isinstance(found, InvalidInputError)
    return found


def tokens(text: str) -> list[Token]:
    """Split a statement into tokens.

    Raises
    ------
    InvalidInputError
        If quotes do not end.
    """
    try:
        return Grammar().tokenize(text)
    except SqlglotError as error:
        raise InvalidInputError(
            f"Cannot read the statement {shown(text)}: {error}.",
            hint='Write values between single quotes, names between double quotes: `WHERE "my column" = '
            "'x'`.",
        ) from error


def for_duckdb(text: str, tree: exp.Expr) -> str:
    """Write the query that ends a statement for DuckDB: no table versions, and quoted names.

    Parameters
    ----------
    tree
        The statement, of whose words it tells which are names.
    """
    names = {each.meta.get("start") for each in tree.find_all(exp.Identifier)}
    words = tokens(text)
    made: list[str] = []
    index, end = _query_begins(words), 0
    while index < len(words):
        skipped = _version_words(words[index:])
        if skipped:
            index += skipped
            continue
        word = words[index]
        made.append(" " if word.start > end else "")
        quoted = word.token_type == TokenType.IDENTIFIER or word.start in names
        made.append(quoted_name(word.text) if quoted else text[word.start : word.end + 1])
        end, index = word.end + 1, index + 1
    return "".join(made)


def _query_begins(words: list[Token]) -> int:
    """Return the index of the first token for DuckDB: after AS, if a table is created from a query."""
    said = [word.text.upper() for word in words]
    if said[0] != "CREATE":
        return 0
    return next(
        (place + 1 for place, pair in enumerate(pairwise(said)) if pair[0] == "AS" and pair[1] in _QUERIES), 0
    )


def quoted_name(name: str) -> str:
    """Quote a name."""
    return '"' + name.replace('"', '""') + '"'


def _version_words(words: list[Token]) -> int:
    """How many of the words say which version of the table before them is meant."""
    at, word = [*words[:2], None, None][:2]
    if at is not None and word is not None and at.text == "@" and word.start == at.end + 1:
        found = _AT_VERSION.fullmatch(word.text) or _AT_TIME.fullmatch(word.text)
        return 2 if found else 0
    said = [each.text.upper() for each in words[:6]]
    skipped = 1 if said[:1] == ["FOR"] else 0
    said = said[skipped:]
    if said[:3] in (["VERSION", "AS", "OF"], ["TIMESTAMP", "AS", "OF"]):
        typed = said[3:4] in (["TIMESTAMP"], ["DATE"], ["TIMESTAMPTZ"])
        return skipped + 4 + int(typed)
    return 0


def unreadable(text: str, error: ParseError, kind: str = "statement") -> InvalidInputError:
    """Create the error for a text that sqlglot cannot parse, with the position."""
    if not error.errors:
        return InvalidInputError(
            f"Cannot read the {kind} {shown(text)}: there is nothing in it.",
            hint="Write a condition such as `n > 1`, or a statement such as `SELECT 1`.",
        )
    first = error.errors[0]
    line, column = int(first.get("line") or 1), int(first.get("col") or 1)
    near = str(first.get("highlight") or "").strip()
    what = str(first.get("description")).split(" but got <Token")[0]
    if what.startswith("Required keyword"):
        what = "something is missing"
    return InvalidInputError(
        f"Cannot read the {kind} {shown(text)}: {what}, at line {line}, column {column}"
        f"{f', near {near!r}' if near else ''}.",
        hint="Compare with docs/sql.md; text stands between single quotes, such as 'x'.",
        line=line,
        column=column,
    )


def written(node: exp.Expr) -> str:
    """Write a node for people."""
    return node.sql(dialect=Grammar, unsupported_level=ErrorLevel.IGNORE, normalize_functions="lower")


def rewritten(node: exp.Expr) -> str:
    """Write a node for DuckDB.

    Raises
    ------
    InvalidInputError
        If DuckDB has no words for it: leaving it out would mean something else.
    """
    try:
        return node.sql(dialect=Grammar, unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise InvalidInputError(
            f"Cannot translate {written(node)!r} for DuckDB: {error}.",
            hint="Write it with the functions that docs/sql.md lists.",
        ) from error


def chain(root: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of AND or OR, in order. sqlglot's tree is as deep as the chain."""
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
    """Add the position of the node in the statement to an error."""
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
    """Quote text, and shorten it if it is long."""
    text = " ".join(text.split())
    return repr(text if len(text) <= most else text[: most - 1] + "…")
