"""Arrow types by their SQL names. Pure.

`type_named` reads text such as ``DECIMAL(10, 2)`` or ``STRUCT(a INTEGER)``; `column_type` and `arrow_type`
take what sqlglot has parsed.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from spark_pages.errors import InvalidInputError

PLAIN_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINT": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "NCHAR": pa.string(),
    "VARCHAR": pa.string(),
    "NVARCHAR": pa.string(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}
_DECIMAL = (18, 3)
"""Digits of a DECIMAL that says nothing, as in DuckDB."""


def type_named(text: str) -> pa.DataType | str:
    """Return the Arrow type of a SQL name; the text itself where it may name a type of the store.

    Raises
    ------
    InvalidInputError
        If a nested type holds one that is not known.
    """
    return column_type(exp.DataType.build(text, dialect="duckdb", udt=True))


def column_type(node: exp.DataType) -> pa.DataType | str:
    """Return the Arrow type of a column, or the name of a user-defined type.

    Raises
    ------
    InvalidInputError
        If a nested type holds one that is not known.
    """
    known = _known(node)
    if known is not None:
        return known
    if node.expressions or node.args.get("nested"):
        raise InvalidInputError(
            f"Cannot make a column of type {node.sql(dialect='duckdb')}: columns have no such type.",
            hint="A length is a check: name TEXT CHECK (length(name) <= 10).",
        )
    kind = node.args.get("kind")
    return str(kind) if kind is not None else node.sql(dialect="duckdb").lower()


def arrow_type(node: exp.DataType) -> pa.DataType:
    """Convert a SQL type to an Arrow type.

    Raises
    ------
    InvalidInputError
        If it is none that is known.
    """
    known = _known(node)
    if known is None:
        raise InvalidInputError(
            f"Cannot make a column of type {node.sql(dialect='duckdb')}: columns have no such type.",
            hint=f"There are {', '.join(PLAIN_TYPES)}, DECIMAL(p, s), lists, STRUCT and MAP.",
        )
    return known


def _known(node: exp.DataType) -> pa.DataType | None:
    name = getattr(node.this, "name", str(node.this))
    inner = node.expressions
    match name:
        case "DECIMAL":
            if not all(part.name.isdigit() for part in inner):
                return None
            digits = [int(part.name) for part in inner] or list(_DECIMAL)
            digits += [0] * (2 - len(digits))
            return pa.decimal128(*digits[:2]) if 1 <= digits[0] <= 38 else None
        case "ARRAY" | "LIST" if len(inner) == 1 and isinstance(inner[0], exp.DataType):
            value = arrow_type(inner[0])
            size = [int(each.name) for each in node.args.get("values") or []]
            return pa.list_(value, *size)
        case "STRUCT" if all(isinstance(each.args.get("kind"), exp.DataType) for each in inner):
            return pa.struct([pa.field(each.name, arrow_type(each.args["kind"])) for each in inner])
        case "MAP" if len(inner) == 2 and all(isinstance(each, exp.DataType) for each in inner):
            return pa.map_(*(arrow_type(each) for each in inner))
        case _ if inner:  # VARCHAR(10): nothing here would hold values to it
            return None
        case _:
            return PLAIN_TYPES.get(name)
