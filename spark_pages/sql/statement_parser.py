"""From SQL text to statements: DDL, INSERT, and what sqlglot does not parse by itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from spark_pages.arrow.sql_types import arrow_type, column_type
from spark_pages.errors import InvalidInputError
from spark_pages.model.names import fold_name
from spark_pages.query.predicates.parsing import parse, rewritten, shown, tokens, written
from spark_pages.sql.statements import (
    AddColumn,
    AddConstraint,
    AlterNamespace,
    AlterTable,
    Change,
    Column,
    Constraint,
    CreateNamespace,
    CreateTable,
    CreateTemporary,
    CreateType,
    Delete,
    DropColumn,
    DropConstraint,
    DropNamespace,
    DropTable,
    DropType,
    Insert,
    Name,
    RenameColumn,
    RenameTable,
    Select,
    SetComment,
    SetNullable,
    SetProperties,
    SetType,
    Statement,
    TruncateTable,
    UndropTable,
    Update,
    Write,
)

_NAMESPACE = ("NAMESPACE", "SCHEMA", "DATABASE")


def statement_of(tree: exp.Expr, text: str) -> Write:
    """Convert a parsed tree to a statement.

    Raises
    ------
    InvalidInputError
        If it says something that is not supported; names it.
    """
    kind = str(tree.args.get("kind") or "").upper()
    match tree:
        case exp.Create() if kind == "TABLE":
            return _create_table(tree)
        case exp.Create() if kind in _NAMESPACE:
            properties, comment = _properties(tree)
            if comment is not None:
                properties = {**properties, "comment": comment}
            return CreateNamespace(
                plain_name(name_of(tree.this), "namespace"), tree.args["exists"], properties
            )
        case exp.Drop() if kind == "TABLE":
            _without(tree, "cascade", "temporary", "purge")
            return DropTable(tuple(map(name_of, tree.args["tables"])), bool(tree.args.get("exists")))
        case exp.Drop() if kind in _NAMESPACE:
            _without(tree, "cascade")
            (name,) = only([name_of(each) for each in tree.args["tables"]], f"DROP {kind}")
            return DropNamespace(plain_name(name, "namespace"), bool(tree.args.get("exists")))
        case exp.TruncateTable():
            _without(tree, "partition", "cluster", "identity", "option", "exists")
            return TruncateTable(tuple(map(name_of, tree.expressions)))
        case exp.Comment() if kind in ("TABLE", "COLUMN"):
            return _comment(tree, kind)
        case exp.Alter() if kind == "TABLE":
            table = name_of(tree.this)
            actions = tree.args.get("actions") or []
            return AlterTable(table, tuple(change for each in actions for change in _changes(each, table)))
    what = f"{tree.key.upper()} {kind}".strip()
    raise InvalidInputError(
        f"Cannot run {what}: it is not supported here: {shown(text)}.",
        hint="docs/sql.md lists the statements that are.",
    )


def name_of(node: exp.Expr) -> Name:
    """Return the name of a table.

    Raises
    ------
    InvalidInputError
        If it is no name, has more than two parts, or a part holds a dot.
    """
    if isinstance(node, exp.Table):
        parts = tuple(part.name for part in node.parts if isinstance(part, exp.Identifier))
        bare = not any(value for key, value in node.args.items() if key not in ("this", "db", "catalog"))
        if parts and bare and 1 <= len(parts) <= 2 and all(part and "." not in part for part in parts):
            return parts
    raise InvalidInputError(
        f"Cannot use {written(node)!r} as the name of a table: expected table or namespace.table, "
        "without dots in quotes.",
        hint="Write it like 'flights' or 'sales.flights'.",
    )


def plain_name(name: Name, kind: str) -> str:
    """Return a name of one part."""
    if len(name) != 1:
        raise InvalidInputError(
            f"Cannot use {'.'.join(name)!r} as the name of a {kind}: expected one without a dot.",
            hint=f"Write {name[-1]}.",
        )
    return name[0]


def only(found: Any, what: str) -> Any:
    """Return the only element, or raise if there are several."""
    if len(found) != 1:
        raise InvalidInputError(
            f"Cannot run {what} on {len(found)} names: it takes one.",
            hint=f"Write one statement {what} for each name.",
        )
    return found


def column_of(node: exp.ColumnDef, table: Name) -> tuple[Column, list[Constraint]]:
    """Parse a column, and the constraints after it."""
    name, constraints = node.name, []
    nullable, comment, default = True, None, None
    if not isinstance(node.args.get("kind"), exp.DataType):
        raise InvalidInputError(
            f"Cannot create column {name!r}: it has no type.",
            hint=f"Write one behind the name, such as {name} BIGINT.",
        )
    for each in node.args.get("constraints") or []:
        match each.kind:
            case exp.NotNullColumnConstraint() as rule:
                nullable = bool(rule.args.get("allow_null"))
            case exp.CommentColumnConstraint() as rule:
                comment = rule.this.name
            case exp.DefaultColumnConstraint() as rule:
                default = literal(rule.this)
            case exp.CheckColumnConstraint() as rule:
                named = each.name or _generated_name(table, [name], "check")
                constraints.append(Constraint(named, check=rewritten(rule.this)))
            case exp.PrimaryKeyColumnConstraint():
                nullable = False
                constraints.append(
                    Constraint(each.name or _generated_name(table, [], "pkey"), primary_key=(name,))
                )
            case exp.Reference() as rule:
                constraints.append(_foreign_key(each.name, table, [name], rule))
            case rule:
                raise _refused(rule)
    return Column(name, column_type(node.args["kind"]), nullable, comment, default), constraints


def literal(node: exp.Expr) -> Any:
    """Return the value of a constant: text, number, boolean or None.

    Raises
    ------
    InvalidInputError
        If it has to be computed.
    """
    match node:
        case exp.Paren() | exp.Cast():
            return literal(node.this)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal() if node.is_string:
            return node.name
        case exp.Literal():
            return int(node.name) if node.name.isdigit() else Decimal(node.name)
        case exp.Neg():
            value = literal(node.this)
            if isinstance(value, int | Decimal):
                return -value
    raise InvalidInputError(
        f"Cannot use {written(node)!r} as a default: it is not a constant.",
        hint="Write one value, such as 0 or 'x'.",
    )


def _create_table(tree: exp.Create) -> CreateTable:
    _without(tree, "replace", "clone", "indexes", "unique")
    properties, comment = _properties(tree)
    target, query = tree.this, tree.expression
    exists = bool(tree.args.get("exists"))
    if query is not None:
        if isinstance(target, exp.Schema) or not isinstance(query, exp.Query):
            raise InvalidInputError(
                "Cannot declare columns in CREATE TABLE … AS: it takes them from the query.",
                hint="Name and cast columns in the query: SELECT n::BIGINT AS n.",
            )
        return CreateTable(name_of(target), (), (), properties, comment, exists, query)
    if not isinstance(target, exp.Schema):
        raise InvalidInputError(
            "Cannot create a table without columns: expected columns, or AS and a query.",
            hint="Write CREATE TABLE t (n BIGINT), or CREATE TABLE t AS SELECT 1 AS n.",
        )
    table = name_of(target.this)
    columns, constraints = [], []
    for each in target.expressions:
        if isinstance(each, exp.ColumnDef):
            column, rules = column_of(each, table)
            if column.default is not None:
                raise InvalidInputError(
                    f"Cannot create column {column.name!r} with a DEFAULT: a new table has no rows to fill.",
                    hint="`ALTER TABLE t ADD COLUMN` takes one.",
                )
            columns.append(column)
            constraints += rules
        else:
            constraints += _constraints(each, table)
    keys = {fold_name(name) for each in constraints for name in each.primary_key}
    columns = [
        Column(each.name, each.type, each.nullable and fold_name(each.name) not in keys, each.comment)
        for each in columns
    ]
    return CreateTable(table, tuple(columns), tuple(constraints), properties, comment, exists)


def _constraints(node: exp.Expr, table: Name) -> list[Constraint]:
    """Parse the constraints of a table, each with an optional name."""
    name = node.name if isinstance(node, exp.Constraint) else ""
    found = []
    for each in node.expressions if isinstance(node, exp.Constraint) else [node]:
        match each:
            case exp.CheckColumnConstraint():
                named = name or _generated_name(table, [], "check")
                found.append(Constraint(named, check=rewritten(each.this)))
            case exp.PrimaryKey():
                keys = tuple(part.name for part in each.expressions)
                found.append(Constraint(name or _generated_name(table, [], "pkey"), primary_key=keys))
            case exp.ForeignKey():
                columns = [part.name for part in each.expressions]
                found.append(_foreign_key(name, table, columns, each.args.get("reference")))
            case _:
                raise _refused(each)
    return found


def _foreign_key(name: str, table: Name, columns: list[str], reference: exp.Expr | None) -> Constraint:
    target = reference.this if reference is not None else None
    if not isinstance(target, exp.Schema):
        raise InvalidInputError(
            "Cannot create a foreign key: it does not name the columns of the other table.",
            hint="Write REFERENCES t (c).",
        )
    there = tuple(each.name for each in target.expressions)
    key = (tuple(columns), name_of(target.this), there)
    return Constraint(name or _generated_name(table, columns, "fkey"), foreign_key=key)


def _generated_name(table: Name, columns: list[str], kind: str) -> str:
    return "_".join([table[-1], *columns, kind])


def _changes(node: exp.Expr, table: Name) -> list[Change]:
    match node:
        case exp.ColumnDef():
            column, rules = column_of(node, table)
            return [AddColumn(column, bool(node.args.get("exists"))), *map(AddConstraint, rules)]
        case exp.Drop() if node.args.get("kind") == "COLUMN":
            _without(node, "cascade")
            exists = bool(node.args.get("exists"))
            return [DropColumn(each.name, exists) for each in node.args["tables"]]
        case exp.Drop() if node.args.get("kind") == "CONSTRAINT":
            _without(node, "cascade", "exists")
            return [DropConstraint(each.name) for each in node.args["tables"]]
        case exp.RenameColumn():
            return [RenameColumn(node.this.name, node.args["to"].name)]
        case exp.AlterRename():
            return [RenameTable(name_of(node.this))]
        case exp.AlterColumn():
            return [_altered_column(node)]
        case exp.AddConstraint():
            return [AddConstraint(rule) for each in node.expressions for rule in _constraints(each, table)]
        case exp.AlterSet():
            return [SetProperties(_pairs(node))]
    raise _refused(node)


def _altered_column(node: exp.AlterColumn) -> Change:
    if node.args.get("dtype") is not None and not node.args.get("using"):
        return SetType(node.name, arrow_type(node.args["dtype"]))
    if node.args.get("allow_null") is not None:
        return SetNullable(node.name, bool(node.args["allow_null"]))
    raise _refused(node)


def _pairs(node: exp.Expr) -> dict[str, str | None]:
    """Keys and values of ``('key' = 'value')``."""
    found: dict[str, str | None] = {}
    for each in node.find_all(exp.Property, exp.EQ):
        value = each.args["value"] if isinstance(each, exp.Property) else each.expression
        found[each.this.name] = str(literal(value))
    if not found:
        raise InvalidInputError(
            "Cannot read the properties: expected ('key' = 'value').",
            hint="Write them like ('codec' = 'zstd', 'page_bytes' = '65536').",
        )
    return found


def _properties(tree: exp.Create) -> tuple[dict[str, str], str | None]:
    """Properties and comment of what is created."""
    properties: dict[str, str] = {}
    comment = None
    given = tree.args.get("properties")
    for each in given.expressions if given is not None else ():
        match each:
            case exp.SchemaCommentProperty():
                comment = each.this.name
            case exp.Property() if type(each) is exp.Property:
                properties[each.this.name] = str(literal(each.args["value"]))
            case _:
                raise _refused(each)
    return properties, comment


def _comment(tree: exp.Comment, kind: str) -> SetComment:
    text, target = str(tree.expression.name), tree.this
    if kind == "TABLE":
        return SetComment(name_of(target), None, text)
    parts = [part.name for part in target.parts]
    if len(parts) not in (2, 3):
        raise InvalidInputError(
            "Cannot set a comment on that column: expected table.column or namespace.table.column.",
            hint="Write COMMENT ON COLUMN flights.distance IS 'miles'.",
        )
    return SetComment(tuple(parts[:-1]), parts[-1], text)


def _without(node: exp.Expr, *keys: str) -> None:
    for key in keys:
        if node.args.get(key):
            raise InvalidInputError(
                f"Cannot run {node.key.upper()} with {key.upper()}: it is not supported here.",
                hint=f"Leave {key.upper()} out.",
            )


def _refused(node: exp.Expr) -> InvalidInputError:
    told = written(node) or node.key
    return InvalidInputError(
        f"Cannot use {told!r}: it is not supported here.", hint="docs/sql.md lists what is."
    )


# From text to a statement. Pure.
#
# sqlglot parses all of it. A few statements that it does not know by name are said in words that it knows:
# ``UNDROP TABLE`` as ``DROP TABLE``, and types and domains as the column of a table.

BEGINNINGS = (
    "SELECT", "WITH", "FROM", "VALUES", "CREATE", "DROP", "UNDROP", "ALTER", "TRUNCATE", "COMMENT", "INSERT",
    "UPDATE", "DELETE",
)  # fmt: skip
"""Words that a statement may begin with."""

_TYPE = ("TYPE", "DOMAIN")


def split_statements(text: str) -> list[str]:
    """Split a text at semicolons; blanks stand for what precedes a statement, so that positions stay."""
    parts: list[str] = []
    first: Token | None = None
    last: Token | None = None
    for word in [*tokens(text), None]:
        if word is not None and word.token_type != TokenType.SEMICOLON:
            first, last = first or word, word
        elif first is not None and last is not None:
            before = "".join(sign if sign == "\n" else " " for sign in text[: first.start])
            parts.append(before + text[first.start : last.end + 1])
            first = None
    return parts


def parameters_in(text: str) -> set[str]:
    """Return the names of the parameters of a statement, as in ``$name``."""
    return {
        word.text
        for sign, word in pairwise(tokens(text))
        if sign.token_type == TokenType.PARAMETER and word.start == sign.end + 1
    }


def read_statement(text: str) -> Statement:
    """Parse a text that holds one statement.

    Raises
    ------
    InvalidInputError
        If it cannot be read, is not one statement, or is one that is not supported; says which are.
    """
    words = tokens(text)
    first = [word.text.upper() for word in words[:3]] + [""] * 3
    if not words:
        raise InvalidInputError("Cannot run the text: there is no statement in it.", hint=_hint())
    if first[0] != "(" and first[0] not in BEGINNINGS:
        close = get_close_matches(first[0], BEGINNINGS, n=1, cutoff=0.75)
        hint = f"Did you mean {close[0]}?" if close else _hint()
        raise InvalidInputError(
            f"Cannot run {first[0]}: it is not a statement that is supported here.", hint=hint
        )
    special = _special(text, words, first)
    if special is not None:
        return special
    tree = parse(text)
    match tree:
        case exp.Query() | exp.Values():
            return Select(tree)
        case exp.Insert():
            return _insert(tree, text)
        case exp.Update():
            return _update(tree)
        case exp.Delete():
            return Delete(
                _changed_table(tree), tree.args.get("where"), tree.args.get("with_"), _returned(tree)
            )
        case exp.Create() | exp.Drop() | exp.Alter() | exp.TruncateTable() | exp.Comment():
            return statement_of(tree, text)
    raise InvalidInputError(
        f"Cannot run {first[0]} {first[1]}: it is not supported here: {shown(text)}.", hint=_hint()
    )


def read_temporary(text: str) -> CreateTemporary | None:
    """Return the statement that creates a temporary table, or None if the text is another statement.

    Raises
    ------
    InvalidInputError
        If it has what a temporary table cannot have: constraints, properties or a comment.
    """
    words = tokens(text) if "TEMP" in text.upper() else []
    said = [word.text.upper() for word in words[:5]]
    replace = said[1:3] == ["OR", "REPLACE"]
    place = 3 if replace else 1
    if said[:1] != ["CREATE"] or said[place : place + 1] not in (["TEMP"], ["TEMPORARY"]):
        return None
    first, last = words[1], words[place]
    bare = f"{text[: first.start]}{' ' * (last.end + 1 - first.start)}{text[last.end + 1 :]}"
    statement = read_statement(bare)
    if not isinstance(statement, CreateTable):
        raise InvalidInputError(
            f"Cannot create what {shown(text)} names: only tables can be temporary.",
            hint="Write CREATE TEMP TABLE name AS SELECT ….",
        )
    if statement.constraints or statement.properties or statement.comment is not None:
        raise InvalidInputError(
            "Cannot create a temporary table with constraints, properties or a comment: it has rows alone.",
            hint="Write CREATE TEMP TABLE name (n BIGINT), or leave TEMP out.",
        )
    return CreateTemporary(statement, bare, replace)


def _hint() -> str:
    return f"There are {', '.join(BEGINNINGS)}; see docs/sql.md."


def _special(text: str, words: list[Token], first: Sequence[str]) -> Statement | None:
    match first[:2]:
        case ["UNDROP", _]:
            start = words[0].start
            dropped = statement_of(parse(f"{text[:start]}DROP  {text[start + 6 :]}"), text)
            if not isinstance(dropped, DropTable) or dropped.if_exists:
                raise InvalidInputError(
                    "Cannot read UNDROP: expected UNDROP TABLE and a name.",
                    hint="Write UNDROP TABLE flights.",
                )
            return UndropTable(dropped.tables)
        case ["CREATE", kind] if kind in _TYPE:
            return _create_type(text, words, kind)
        case ["DROP", kind] if kind in _TYPE:
            dropped = statement_of(parse(_reworded(text, words[1], "TABLE")), text)
            if not isinstance(dropped, DropTable):
                raise InvalidInputError(
                    f"Cannot read DROP {kind}: expected a name behind it, found {shown(text)}.",
                    hint=f"Write DROP {kind} name.",
                )
            (name,) = only(dropped.tables, f"DROP {kind}")
            return DropType(plain_name(name, kind.lower()), dropped.if_exists)
        case ["ALTER", kind] if kind in _NAMESPACE:
            # Its properties are read as those of a table.
            reworded = _reworded(_without_db_properties(text, words), words[1], "TABLE")
            altered = statement_of(parse(reworded), text)
            if isinstance(altered, AlterTable):
                name = plain_name(altered.table, "namespace")
                for change in altered.changes[:1]:
                    if isinstance(change, SetProperties):
                        return AlterNamespace(name, change.properties)
            raise InvalidInputError(
                f"Cannot run ALTER {kind}: it is not SET PROPERTIES ('key' = 'value'), which alone is "
                "supported here.",
                hint=f"Write ALTER {kind} name SET PROPERTIES ('key' = 'value').",
            )
        case ["ALTER", "TABLE"]:
            unset = next((word for word in words if word.text.upper() == "UNSET"), None)
            if unset is not None:
                return _unset(text, unset)
        case ["COMMENT", "ON"] if [word.text.upper() for word in words[-2:]] == ["IS", "NULL"]:
            told = statement_of(parse(_reworded(text, words[-1], "''")), text)
            if not isinstance(told, SetComment):
                raise InvalidInputError(
                    f"Cannot read COMMENT: expected COMMENT ON … IS NULL, found {shown(text)}.",
                    hint="Write COMMENT ON TABLE flights IS NULL, or COMMENT ON COLUMN flights.distance "
                    "IS NULL.",
                )
            return SetComment(told.table, told.column, None)
    return None


def _reworded(text: str, word: Token, by: str) -> str:
    """Replace one word of a text, with the same length if possible, so that positions stay."""
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
    table = statement_of(parse(text[: unset.start] + "SET TBLPROPERTIES ('a' = 'b')"), text)
    _, bracket, names = text[unset.end + 1 :].partition("(")
    listed = parse(f"SELECT {bracket}{names}")
    found = [each.name for each in listed.find_all(exp.Literal)]
    if not found or not isinstance(table, AlterTable):
        raise InvalidInputError(
            "Cannot read UNSET: expected UNSET TBLPROPERTIES ('key').",
            hint="Write ALTER TABLE t UNSET TBLPROPERTIES ('codec').",
        )
    return AlterTable(table.table, (SetProperties(dict.fromkeys(found)),))


def _create_type(text: str, words: list[Token], kind: str) -> CreateType:
    """``CREATE DOMAIN d AS INT NOT NULL CHECK (VALUE > 0)``: all behind AS is that of a column."""
    if len(words) < 4 or words[3].text.upper() != "AS":
        raise InvalidInputError(
            f"Cannot read CREATE {kind}: expected CREATE {kind} name AS type.",
            hint=f"Write CREATE {kind} amount AS DECIMAL(10, 2).",
        )
    lead = "CREATE TABLE t (VALUE "
    made = parse(f"{lead}{text[words[3].end + 1 :].rstrip().rstrip(';')})")
    found = made.find(exp.ColumnDef)
    if not isinstance(made, exp.Create) or found is None:
        raise InvalidInputError(
            f"Cannot read CREATE {kind}: expected CREATE {kind} name AS type, found {shown(text)}.",
            hint=f"Write CREATE {kind} amount AS DECIMAL(10, 2).",
        )
    column, constraints = column_of(found, ("t",))
    checks = [f"({each.check})" for each in constraints if each.check is not None]
    if len(checks) != len(constraints) or column.default is not None or len(made.this.expressions) != 1:
        raise InvalidInputError(
            f"Cannot create the {kind.lower()}: it has more than NOT NULL and CHECK.",
            hint="Leave out all but NOT NULL and CHECK (…).",
        )
    if kind == "TYPE" and (checks or not column.nullable):
        raise InvalidInputError(
            "Cannot create a type with CHECK or NOT NULL: a type has neither.",
            hint="Write CREATE DOMAIN, which has them.",
        )
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
        raise InvalidInputError(
            f"Cannot run INSERT with {what}: it is not supported here: {shown(text)}.",
            hint="Write INSERT INTO t (a, b) VALUES (1, 2), or INSERT INTO t SELECT ….",
        )
    target = tree.this
    columns = tuple(each.name for each in target.expressions) if isinstance(target, exp.Schema) else ()
    table = target.this if isinstance(target, exp.Schema) else target
    return Insert(name_of(table), columns, query)


def _update(tree: exp.Update) -> Update:
    assignments = []
    for each in tree.expressions:
        target, value = each.this, each.expression
        if not isinstance(target, exp.Column) or len(target.parts) != 1:
            raise InvalidInputError(
                f"Cannot assign to {written(target)!r}: expected one column.",
                hint="Write UPDATE t SET a = 1, b = 2; the whole of a nested value is assigned.",
            )
        plain = value.this if isinstance(value, exp.Column) and len(value.parts) == 1 else None
        if plain is not None and plain.name.upper() == "DEFAULT" and not plain.args.get("quoted"):
            raise InvalidInputError(
                f"Cannot assign DEFAULT to column {target.name!r}: columns have no default values.",
                hint="Write the value, such as NULL.",
            )
        assignments.append((target.name, value))
    table = _changed_table(tree)
    return Update(table, tuple(assignments), tree.args.get("where"), tree.args.get("with_"), _returned(tree))


def _changed_table(tree: exp.Update | exp.Delete) -> exp.Table:
    """Return the table of a statement, with its alias."""
    table: exp.Table = tree.this
    bare = table.copy()
    bare.set("alias", None)
    parts = name_of(bare)
    with_ = tree.args.get("with_")
    names = [] if with_ is None else [each.alias for each in with_.expressions]
    if len(parts) == 1 and fold_name(parts[0]) in map(fold_name, names):
        raise InvalidInputError(
            f"Cannot change rows of {parts[0]!r}: WITH gives another meaning to the name.",
            hint="Give the query in WITH another name.",
        )
    return table


def _returned(tree: exp.Update | exp.Delete) -> tuple[exp.Expr, ...]:
    returning = tree.args.get("returning")
    return () if returning is None else tuple(returning.expressions)
