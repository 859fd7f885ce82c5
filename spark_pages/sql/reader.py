"""From text to a statement. Pure.

sqlglot parses all of it. A few statements that it does not know by name are said in words that it knows:
``UNDROP TABLE`` as ``DROP TABLE``, and types and domains as the column of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from spark_pages.errors import InvalidInputError
from spark_pages.query.predicates.parsing import parse, shown, tokens
from spark_pages.sql import ddl
from spark_pages.sql.statements import (
    AlterNamespace,
    AlterTable,
    CreateType,
    DropTable,
    DropType,
    Insert,
    Select,
    SetComment,
    SetProperties,
    Statement,
    UndropTable,
)

BEGINNINGS = (
    "SELECT", "WITH", "FROM", "VALUES", "CREATE", "DROP", "UNDROP", "ALTER", "TRUNCATE", "COMMENT", "INSERT",
)  # fmt: skip
"""Words that a statement may begin with."""

_NAMESPACE = ("NAMESPACE", "SCHEMA", "DATABASE")
_TYPE = ("TYPE", "DOMAIN")


def read_statement(text: str) -> Statement:
    """The one statement that a text holds.

    Raises
    ------
    InvalidInputError
        If it cannot be read, is not one statement, or is one that is not supported; says which are.
    """
    words = tokens(text)
    first = [word.text.upper() for word in words[:3]] + [""] * 3
    if not words:
        raise InvalidInputError("There is no statement in the text.", hint=_hint())
    if first[0] != "(" and first[0] not in BEGINNINGS:
        close = get_close_matches(first[0], BEGINNINGS, n=1, cutoff=0.75)
        hint = f"Did you mean {close[0]}?" if close else _hint()
        raise InvalidInputError(f"{first[0]} is not a statement that is supported here.", hint=hint)
    special = _special(text, words, first)
    if special is not None:
        return special
    tree = parse(text)
    match tree:
        case exp.Query() | exp.Values():
            return Select(tree)
        case exp.Insert():
            return _insert(tree, text)
        case exp.Create() | exp.Drop() | exp.Alter() | exp.TruncateTable() | exp.Comment():
            return ddl.statement_of(tree, text)
    raise InvalidInputError(f"{first[0]} {first[1]} is not supported here: {shown(text)}.", hint=_hint())


def _hint() -> str:
    return f"There are {', '.join(BEGINNINGS)}; see docs/sql.md."


def _special(text: str, words: list[Token], first: Sequence[str]) -> Statement | None:
    match first[:2]:
        case ["UNDROP", _]:
            start = words[0].start
            dropped = ddl.statement_of(parse(f"{text[:start]}DROP  {text[start + 6 :]}"), text)
            if not isinstance(dropped, DropTable) or dropped.if_exists:
                raise InvalidInputError("Expected UNDROP TABLE and a name.")
            return UndropTable(dropped.tables)
        case ["CREATE", kind] if kind in _TYPE:
            return _create_type(text, words, kind)
        case ["DROP", kind] if kind in _TYPE:
            dropped = ddl.statement_of(parse(_reworded(text, words[1], "TABLE")), text)
            if not isinstance(dropped, DropTable):
                raise InvalidInputError(f"Expected DROP {kind} and a name, found {shown(text)}.")
            (name,) = ddl.only(dropped.tables, f"DROP {kind}")
            return DropType(ddl.plain_name(name, kind.lower()), dropped.if_exists)
        case ["ALTER", kind] if kind in _NAMESPACE:
            # Its properties are read as those of a table.
            reworded = _reworded(_without_db_properties(text, words), words[1], "TABLE")
            altered = ddl.statement_of(parse(reworded), text)
            if isinstance(altered, AlterTable):
                name = ddl.plain_name(altered.table, "namespace")
                for change in altered.changes[:1]:
                    if isinstance(change, SetProperties):
                        return AlterNamespace(name, change.properties)
            raise InvalidInputError(f"Of ALTER {kind} there is SET PROPERTIES ('key' = 'value') only.")
        case ["ALTER", "TABLE"]:
            unset = next((word for word in words if word.text.upper() == "UNSET"), None)
            if unset is not None:
                return _unset(text, unset)
        case ["COMMENT", "ON"] if [word.text.upper() for word in words[-2:]] == ["IS", "NULL"]:
            told = ddl.statement_of(parse(_reworded(text, words[-1], "''")), text)
            if not isinstance(told, SetComment):
                raise InvalidInputError(f"Expected COMMENT ON … IS NULL, found {shown(text)}.")
            return SetComment(told.table, told.column, None)
    return None


def _reworded(text: str, word: Token, by: str) -> str:
    """The text with another word instead of one; as long as before, so that places stay, if it can be."""
    length = word.end + 1 - word.start
    return text[: word.start] + by.ljust(length) + text[word.end + 1 :]


def _without_db_properties(text: str, words: list[Token]) -> str:
    """``SET PROPERTIES`` and ``SET DBPROPERTIES`` as ``SET TBLPROPERTIES``; nothing else changes."""
    for word in reversed(words):
        if word.text.upper() in ("PROPERTIES", "DBPROPERTIES"):
            return _reworded(text, word, "TBLPROPERTIES")
    return text


def _unset(text: str, unset: Token) -> AlterTable:
    """``ALTER TABLE t UNSET TBLPROPERTIES ('a', 'b')``: the names are read as a list of values."""
    table = ddl.statement_of(parse(text[: unset.start] + "SET TBLPROPERTIES ('a' = 'b')"), text)
    _, bracket, names = text[unset.end + 1 :].partition("(")
    listed = parse(f"SELECT {bracket}{names}")
    found = [each.name for each in listed.find_all(exp.Literal)]
    if not found or not isinstance(table, AlterTable):
        raise InvalidInputError("Expected UNSET TBLPROPERTIES ('key').")
    return AlterTable(table.table, (SetProperties(dict.fromkeys(found)),))


def _create_type(text: str, words: list[Token], kind: str) -> CreateType:
    """``CREATE DOMAIN d AS INT NOT NULL CHECK (VALUE > 0)``: all behind AS is that of a column."""
    if len(words) < 4 or words[3].text.upper() != "AS":
        raise InvalidInputError(f"Expected CREATE {kind} name AS type.", hint="Such as: AS DECIMAL(10, 2).")
    lead = "CREATE TABLE t (VALUE "
    made = parse(f"{lead}{text[words[3].end + 1 :].rstrip().rstrip(';')})")
    found = made.find(exp.ColumnDef)
    if not isinstance(made, exp.Create) or found is None:
        raise InvalidInputError(f"Expected CREATE {kind} name AS type, found {shown(text)}.")
    column, constraints = ddl.column_of(found, ("t",))
    checks = [f"({each.check})" for each in constraints if each.check is not None]
    if len(checks) != len(constraints) or column.default is not None or len(made.this.expressions) != 1:
        raise InvalidInputError(f"A {kind.lower()} may have NOT NULL and CHECK, and nothing else.")
    if kind == "TYPE" and (checks or not column.nullable):
        raise InvalidInputError("A type has no CHECK and no NOT NULL.", hint="CREATE DOMAIN has them.")
    return CreateType(words[2].text, column.type, not column.nullable, " AND ".join(checks) or None)


def _insert(tree: exp.Insert, text: str) -> Insert:
    refused = (
        "alternative",
        "conflict",
        "returning",
        "overwrite",
        "ignore",
        "partition",
        "default",
        "by_name",
    )
    given = [key for key in refused if tree.args.get(key)]
    query = tree.expression
    if given or not isinstance(query, exp.Query | exp.Values):
        what = given[0].upper().replace("_", " ") if given else "anything but VALUES or a query"
        raise InvalidInputError(f"INSERT with {what} is not supported here: {shown(text)}.")
    target = tree.this
    columns = tuple(each.name for each in target.expressions) if isinstance(target, exp.Schema) else ()
    table = target.this if isinstance(target, exp.Schema) else target
    return Insert(ddl.name_of(table), columns, query)
