"""A filter as SQL text, turned into an Arrow expression. Pure.

What stands behind WHERE: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL, IS TRUE, IS DISTINCT
FROM, arithmetic, CASE, CAST, dates and times in quotes, and the functions of `FUNCTIONS`. Null is SQL's:
neither true nor false, so that ``NOT (n IN (1, 2))`` leaves out rows where n is null.

Needs sqlglot, so it is imported when the first filter of this kind is used. Whole statements are read in
`spark_pages.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import Dialect, exp, tokens
from sqlglot.errors import ParseError, SqlglotError

from spark_pages.catalog.identifiers import IdentifierContext, VisibleColumn, VisibleTable
from spark_pages.errors import InvalidInputError
from spark_pages.sql.parsing import unreadable
from spark_pages.tables.filtering.asked_values import array_of_values, stands_in_quotes, value_of_text

FUNCTIONS = (
    "abs, ceil, coalesce, contains, ends_with, extract (year, quarter, month, week, day, hour, minute or "
    "second from), floor, length, lower, round, starts_with, trim, upper"
)
"""Functions that SQL text may call."""


class Conditions(Dialect):
    """SQL with names in backticks too, as Spark has them."""

    class Tokenizer(tokens.Tokenizer):
        """See `Conditions`."""

        IDENTIFIERS: ClassVar = ['"', "`"]


Build = Callable[[Any], pc.Expression]

_UNKNOWN = pc.scalar(pa.scalar(None, pa.bool_()))
_LIKE_SIGNS = frozenset("%_\\")

_BINARY: dict[type[exp.Expr], Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    exp.EQ: pc.Expression.__eq__,
    exp.NEQ: pc.Expression.__ne__,
    exp.LT: pc.Expression.__lt__,
    exp.LTE: pc.Expression.__le__,
    exp.GT: pc.Expression.__gt__,
    exp.GTE: pc.Expression.__ge__,
    exp.And: and_,
    exp.Or: or_,
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
    exp.Mod: pc.remainder,
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)

_UNARY: dict[type[exp.Expr], Callable[[pc.Expression], pc.Expression]] = {
    exp.Not: lambda value: ~value,
    exp.Neg: pc.negate_checked,
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Length: pc.utf8_length,
    exp.Trim: pc.utf8_trim_whitespace,
    exp.Abs: pc.abs_checked,
    exp.Floor: pc.floor,
    exp.Ceil: pc.ceil,
}
_PARTS: dict[str, Callable[[pc.Expression], pc.Expression]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}
_TYPES: dict[str, pa.DataType] = {
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


def parse_sql(text: str, schema: pa.Schema, table: VisibleTable | None = None) -> pc.Expression:
    """The Arrow expression that the text means.

    Parameters
    ----------
    text
        A condition. Names are found as `spark_pages.catalog.identifiers` says.
    schema
        The columns: their types tell what a word in quotes is.
    table
        The table of these columns, by whose name they may be called; None for columns of no table.

    Raises
    ------
    ColumnNotFoundError
        If it names a column that is not there.
    InvalidInputError
        If it is no condition, or says something that is not known here; names the line and the column.
    """
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=Conditions)
        return _Translator(text, schema, table).expression(tree)
    except ParseError as error:
        raise _unreadable(text, error) from error
    except RecursionError as error:
        raise InvalidInputError("Cannot read the filter: it is nested too deep.") from error
    except (SqlglotError, pa.ArrowException, LookupError, TypeError, ValueError) as error:
        raise InvalidInputError(f"Cannot read the filter {text!r}: {error}.") from error


def _unreadable(text: str, error: ParseError) -> InvalidInputError:
    if not error.errors:
        return InvalidInputError(f"The text {text!r} is not a filter: there is no condition in it.")
    return unreadable(text, error, "filter")


_TWO_SIDES = frozenset({"this", "expression", "negate"})
_ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
    **dict.fromkeys(_UNARY, frozenset({"this"})),
    exp.Paren: frozenset({"this"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.In: frozenset({"this", "expressions", "negate"}),
    exp.Between: frozenset({"this", "low", "high", "negate"}),
    exp.Cast: frozenset({"this", "to", "_type"}),
    exp.Div: frozenset({"this", "expression", "typed", "safe"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
    exp.Round: frozenset({"this", "decimals"}),
    exp.Case: frozenset({"ifs", "default"}),
}
"""What is known of each kind of node."""


class _Translator:
    """Turns the tree of sqlglot into an Arrow expression, node by node."""

    def __init__(self, text: str, schema: pa.Schema, table: VisibleTable | None) -> None:
        self._text = text
        self._schema = schema
        if table is None:
            columns = tuple(VisibleColumn(field.name, field.name, None, field.type) for field in schema)
            table = VisibleTable("", "", columns)
        self._seen = IdentifierContext((table,))

    def expression(self, node: exp.Expr, kind: pa.DataType | None = None) -> pc.Expression:
        """The expression of a node; literals become values of `kind`, where that is given."""
        # What sqlglot puts into arguments is not passed over, or the filter would mean something else.
        given = {name for name, value in node.args.items() if value not in (None, False, [])}
        if not given <= _ARGUMENTS.get(type(node), _TWO_SIDES):
            raise self._refused(node)
        found = self._plain(node, kind)
        return ~found if node.args.get("negate") else found

    def _plain(self, node: exp.Expr, kind: pa.DataType | None) -> pc.Expression:
        build = self._special(node, kind)
        if build is not None:
            return build
        if type(node) in _UNARY:
            return _UNARY[type(node)](self.expression(node.this, kind if isinstance(node, exp.Neg) else None))
        if type(node) in _BINARY:
            left, right = self._pair(node.this, node.expression, isinstance(node, _COMPARISONS))
            return _BINARY[type(node)](left, right)
        raise self._refused(node)

    def _special(self, node: exp.Expr, kind: pa.DataType | None) -> pc.Expression | None:
        match node:
            case exp.Paren():
                return self.expression(node.this, kind)
            case exp.Column():
                return pc.field(*self._path(node))
            case exp.Literal() | exp.Boolean() | exp.Null():
                return pc.scalar(self._value(node, kind))
            case exp.In():
                return self._membership(node)
            case exp.Between():
                return self._between(node)
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                left, right = self._pair(node.this, node.expression, True)
                same = pc.coalesce(left == right, pc.scalar(False)) | (left.is_null() & right.is_null())
                return same if isinstance(node, exp.NullSafeEQ) else ~same
            case exp.Like() | exp.ILike():
                return self._like(node)
            case exp.Cast():
                return self._cast(node, kind)
            case exp.Div():
                left, right = self._pair(node.this, node.expression, False)
                return pc.divide(left.cast(pa.float64()), right.cast(pa.float64()))
            case _:
                return self._function(node)

    def _function(self, node: exp.Expr) -> pc.Expression | None:
        match node:
            case exp.DPipe():
                left, right = self._pair(node.this, node.expression, False)
                return pc.binary_join_element_wise(left, right, "")
            case exp.Coalesce():
                kind = self._kind(node.this)
                return pc.coalesce(*(self.expression(part, kind) for part in [node.this, *node.expressions]))
            case exp.StartsWith():
                return pc.starts_with(self.expression(node.this), self._text_of(node.expression))
            case exp.EndsWith():
                return pc.ends_with(self.expression(node.this), self._text_of(node.expression))
            case exp.Contains():
                return pc.match_substring(self.expression(node.this), self._text_of(node.expression))
            case exp.Extract() if str(node.this).upper() in _PARTS:
                return _PARTS[str(node.this).upper()](self.expression(node.expression))
            case exp.Round():
                digits = int(node.args["decimals"].name) if node.args.get("decimals") else 0
                return pc.round(self.expression(node.this), digits, round_mode="half_towards_infinity")
            case exp.Case() if node.this is None:
                return self._case(node)
            case _:
                return None

    def _path(self, node: exp.Column) -> Sequence[str]:
        """Name of the column, and of the fields inside of it."""
        parts = [part.name for part in node.parts]
        if not self._schema.names:
            return parts
        found = self._seen.column(parts)
        if not found.places:
            raise self._refused(node)
        return [found.places[0][1].name, *found.path]

    def _kind(self, node: exp.Expr) -> pa.DataType | None:
        """Type of a column, or of a cast; of nothing else is it known before Arrow has seen it."""
        match node:
            case exp.Paren() | exp.Neg():
                return self._kind(node.this)
            case exp.Column():
                first, *rest = self._path(node)
                if first not in self._schema.names or rest:
                    return None
                kind = self._schema.field(first).type
                return kind.value_type if pa.types.is_dictionary(kind) else kind
            case exp.Cast() if not isinstance(node.this, exp.Literal):
                return _TYPES.get(node.to.this.name)
        return None

    def _pair(self, left: exp.Expr, right: exp.Expr, compared: bool) -> tuple[pc.Expression, pc.Expression]:
        """Both sides; a literal takes the type of what it is compared with."""
        if not compared:
            return self.expression(left), self.expression(right)
        return self.expression(left, self._kind(right)), self.expression(right, self._kind(left))

    def _value(self, node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
        if isinstance(node, exp.Null):
            return pa.scalar(None, kind or pa.null())
        if isinstance(node, exp.Boolean):
            return pa.scalar(bool(node.this))
        if not node.is_string:
            return self._number(node, kind)
        if kind is None or not stands_in_quotes(kind):
            return pa.scalar(node.name)
        try:
            return value_of_text(node.name, kind)
        except (pa.ArrowException, ValueError) as error:
            raise self._wrong(f"expected a {kind} in quotes, found {node.name!r} ({error})", node) from error

    def _number(self, node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
        text = node.name
        if kind is not None and pa.types.is_decimal(kind):
            return pa.scalar(Decimal(text))
        if text.isdigit():
            number = int(text)
            if number < 1 << 63:
                return pa.scalar(number)
            if number < 1 << 64:
                return pa.scalar(number, pa.uint64())
        return pa.scalar(float(text))

    def _membership(self, node: exp.In) -> pc.Expression:
        if not node.expressions:
            raise self._refused(node)
        column, kind = self.expression(node.this), self._kind(node.this)
        literals = [each for each in node.expressions if isinstance(each, exp.Literal)]
        others = [each for each in node.expressions if not isinstance(each, exp.Literal)]
        parts = [column == self.expression(each, kind) for each in others]
        if literals:
            members = array_of_values([self._value(each, kind) for each in literals])
            # Arrow says of null that it is no member; SQL says that it does not know.
            parts += [column.is_null() & _UNKNOWN, column.isin(members)]
            if kind is None or pa.types.is_floating(kind):  # Arrow's list knows two zeros, SQL one
                parts += [column == each for each in members if each.as_py() == 0]
        return reduce(or_, parts)

    def _between(self, node: exp.Between) -> pc.Expression:
        if node.args.get("symmetric"):
            raise self._refused(node)
        value, kind = self.expression(node.this), self._kind(node.this)
        low, high = self.expression(node.args["low"], kind), self.expression(node.args["high"], kind)
        return (value >= low) & (value <= high)

    def _is(self, node: exp.Is) -> pc.Expression:
        value = self.expression(node.this)
        match node.expression:
            case exp.Null():
                return value.is_null()
            case exp.Boolean():
                wanted = value if node.expression.this else ~value
                return pc.coalesce(wanted, pc.scalar(False))
        raise self._refused(node)

    def _like(self, node: exp.Expr) -> pc.Expression:
        value, pattern = self.expression(node.this), self._text_of(node.expression)
        if isinstance(node, exp.ILike):
            return pc.match_like(value, pattern, ignore_case=True)
        if pattern.endswith("%") and not _LIKE_SIGNS & set(pattern[:-1]):
            return pc.starts_with(value, pattern[:-1])
        return pc.match_like(value, pattern)

    def _cast(self, node: exp.Cast, wanted: pa.DataType | None) -> pc.Expression:
        name = node.to.this.name
        decimal = name == "DECIMAL" and len(node.to.expressions) == 2
        if decimal:
            kind = pa.decimal128(*(int(part.name) for part in node.to.expressions))
        elif name in _TYPES:
            kind = _TYPES[name]
        else:
            raise self._refused(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            if wanted is not None and pa.types.is_timestamp(wanted) and pa.types.is_timestamp(kind):
                kind = wanted  # with the zone of the column
            return pc.scalar(self._value(node.this, kind))
        return self.expression(node.this).cast(kind)

    def _case(self, node: exp.Case) -> pc.Expression:
        tests = [self.expression(each.this) for each in node.args["ifs"]]
        values = [self.expression(each.args["true"]) for each in node.args["ifs"]]
        default = node.args.get("default")
        rest = [self.expression(default)] if default is not None else []
        names = [str(index) for index in range(len(tests))]
        return pc.case_when(pc.make_struct(*tests, field_names=names), *values, *rest)

    def _text_of(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Literal) and node.is_string:
            return str(node.name)
        raise self._wrong(f"expected text in quotes, found {node.sql()}", node)

    def _refused(self, node: exp.Expr) -> InvalidInputError:
        return self._wrong(
            f"{node.sql()} is not known here", node, hint=f"There are the functions {FUNCTIONS}."
        )

    def _wrong(self, what: str, node: exp.Expr, hint: str | None = None) -> InvalidInputError:
        meta = next((each.meta for each in node.walk() if "start" in each.meta), None)
        place = ""
        if meta:
            before = self._text[: meta["start"]]
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            place = f" at line {line}, column {column}"
        return InvalidInputError(f"Cannot use the filter {self._text!r}{place}: {what}.", hint=hint)
