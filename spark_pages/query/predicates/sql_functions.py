"""What SQL text may hold, and what its words are to Arrow: operators, functions, types and literals. Pure."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from operator import and_, or_
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import Dialect, exp, tokens

from spark_pages.query.predicates.numeric import Number
from spark_pages.query.predicates.vocabulary import Vocabulary, vocabulary


class Conditions(Dialect):
    """SQL with names in backticks too, as Spark has them."""

    class Tokenizer(tokens.Tokenizer):
        """See `Conditions`."""

        IDENTIFIERS: ClassVar = ['"', "`"]


UNKNOWN = pc.scalar(pa.scalar(None, pa.bool_()))
LIKE_SIGNS = frozenset("%_")
FRACTION_SIGNS = frozenset(".eE")

JOINED: dict[type[exp.Expr], Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    exp.And: and_,
    exp.Or: or_,
}
CALCULATED: dict[type[exp.Expr], Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
    exp.Mod: pc.remainder,
}
COMPARED: dict[type[exp.Expr], str] = {
    exp.EQ: "==",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

UNARY: dict[type[exp.Expr], Callable[[pc.Expression], pc.Expression]] = {
    exp.Not: lambda value: ~value,
    exp.Neg: pc.negate_checked,
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Length: pc.utf8_length,
    exp.Trim: pc.utf8_trim_whitespace,
    exp.Abs: pc.abs_checked,
}
OF_TEXT = (exp.Lower, exp.Upper, exp.Length, exp.Trim)
PARTS: dict[str, Callable[[pc.Expression], pc.Expression]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}
TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIME": pa.time64("us"),
}

_TWO_SIDES = (
    *JOINED, *CALCULATED, *COMPARED,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Like, exp.ILike, exp.StartsWith, exp.EndsWith, exp.Contains,
)  # fmt: skip
NODES: Vocabulary = {
    **{each: {"this": (), "expression": (), "negate": ()} for each in _TWO_SIDES},
    **{each: {"this": ()} for each in UNARY},
    **vocabulary(
        Between="this low high negate",
        Boolean="this",
        Case="ifs default",
        Cast="this to",
        Ceil="this",
        Coalesce="this expressions",
        Column="this! table! db! catalog!",
        DataType="this expressions",
        DataTypeParam="this",
        Div="this expression typed safe",
        Dot="this expression!",
        DPipe="this expression safe",
        Extract="this expression",
        Floor="this",
        Identifier="this quoted",
        If="this true",
        In="this expressions negate",
        Literal="this is_string",
        Null="",
        Paren="this",
        Round="this decimals",
        Var="this",
    ),
}
"""What is known of each kind of node."""


def number_in(node: exp.Expr) -> str | None:
    """How the number that a node is was written, with its sign; None if it is none."""
    match node:
        case exp.Literal() if not node.is_string:
            return str(node.name)
        case exp.Paren() if not node.args.get("negate"):
            return number_in(node.this)
        case exp.Neg():
            inner = number_in(node.this)
            if inner is not None:
                return inner[1:] if inner.startswith("-") else f"-{inner}"
    return None


def is_constant(node: exp.Expr) -> bool:
    """Whether a value stands there as it is."""
    return isinstance(node, exp.Literal) or number_in(node) is not None


def takes_type(node: exp.Expr) -> bool:
    """Whether a node stands in the text as it is, and takes the type of what stands beside it."""
    if isinstance(node, exp.Cast):
        return isinstance(node.this, exp.Literal) and bool(node.this.is_string)
    return is_constant(node) or isinstance(node, exp.Null)


def literal_number(number: str, kind: pa.DataType) -> Number:
    """Convert a literal number for values of a type."""
    if number.lstrip("-").isdigit():
        return int(number)
    return float(number) if pa.types.is_floating(kind) else Decimal(number)
