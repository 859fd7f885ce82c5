"""A filter as SQL text, turned into an Arrow expression. Pure.

What stands behind WHERE: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL, IS TRUE, IS DISTINCT
FROM, arithmetic, CASE, CAST, dates and times in quotes, and the functions of `FUNCTIONS`. Null is SQL's:
neither true nor false, so that ``NOT (n IN (1, 2))`` leaves out rows where n is null.

Needs sqlglot, so it is imported when the first filter of this kind is used. Whole statements are read in
`spark_pages.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from spark_pages.catalog.identifiers import IdentifierContext, VisibleColumn, VisibleTable, fields_called
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.format.bounds import plain_type
from spark_pages.query.predicates.coerce import (
    Side,
    as_decimal,
    as_double,
    as_exact_integer,
    as_time,
    calculated,
    kind_of,
    unify,
    with_room,
)
from spark_pages.query.predicates.evaluate import tested_schema
from spark_pages.query.predicates.large_predicates import balanced
from spark_pages.query.predicates.literals import array_of_values, is_quoted_type, value_of_text
from spark_pages.query.predicates.numeric import (
    fit_comparison,
    fit_members,
    is_number,
    literal_type,
    scalar_of,
)
from spark_pages.query.predicates.parsing import chain, shown, unreadable, written
from spark_pages.query.predicates.predicate import beginning_with, compared
from spark_pages.query.predicates.sql_functions import (
    CALCULATED,
    COMPARED,
    FLIPPED,
    FRACTION_SIGNS,
    JOINED,
    LIKE_SIGNS,
    NODES,
    OF_TEXT,
    PARTS,
    TYPES,
    UNARY,
    UNKNOWN,
    Conditions,
    is_constant,
    literal_number,
    number_in,
    takes_type,
)
from spark_pages.query.predicates.vocabulary import check

FUNCTIONS = (
    "abs, ceil, coalesce, contains, ends_with, extract (year, quarter, month, week, day, hour, minute or "
    "second from), floor, length, lower, round, starts_with, trim, upper"
)
"""Functions that SQL text may call."""


def parse_sql(text: str, schema: pa.Schema, table: VisibleTable | None = None) -> pc.Expression:
    """Parse a SQL condition to an Arrow expression.

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
        translator = _Translator(text, schema, table)
        check(tree, NODES, translator.refused)
        return translator.of_kind(tree, pa.bool_())
    except SparkPagesError:
        raise  # also a LookupError or ValueError
    except ParseError as error:
        raise _unreadable(text, error) from error
    except RecursionError as error:
        raise InvalidInputError(
            "Cannot read the filter: it is nested too deep.",
            hint="Write chains of AND and OR without brackets, and many values as `IN (…)`.",
        ) from error
    except (SqlglotError, pa.ArrowException, LookupError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"Cannot read the filter {text!r}: {error}.",
            hint="Write a condition such as `n > 1 AND s LIKE 'a%'`; docs/reading.md lists what it may hold.",
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _with_lists(parts: list[exp.Expr]) -> list[exp.Expr]:
    """Parts of OR, with one list for all constants that a column may be equal to."""
    listed: dict[exp.Expr, list[exp.Expr]] = {}
    others = []
    for part in parts:
        sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        columns = [side for side in sides if isinstance(side, exp.Column)]
        constants = [side for side in sides if is_constant(side)]
        if len(columns) == len(constants) == 1:
            listed.setdefault(columns[0], []).append(constants[0])
        else:
            others.append(part)
    lists = [exp.In(this=column, expressions=constants) for column, constants in listed.items()]
    return [*lists, *others]


def _unreadable(text: str, error: ParseError) -> InvalidInputError:
    if not error.errors:
        return InvalidInputError(
            f"Cannot use {text!r} as a filter: there is no condition in it.",
            hint="Write a condition such as `n > 1`.",
        )
    return unreadable(text, error, "filter")


class _Translator:
    """Turns the tree of sqlglot into an Arrow expression, node by node."""

    def __init__(self, text: str, schema: pa.Schema, table: VisibleTable | None) -> None:
        self._text = text
        self._schema = schema
        self._tested = tested_schema(schema)
        if table is None:
            columns = tuple(VisibleColumn(field.name, field.name, None, field.type) for field in schema)
            table = VisibleTable("", "", columns)
        self._seen = IdentifierContext((table,))

    def expression(self, node: exp.Expr, kind: pa.DataType | None = None) -> pc.Expression:
        """Translate a node; literals become values of `kind`, if it is given."""
        found = self._plain(node, kind)
        return ~found if node.args.get("negate") else found

    def _plain(self, node: exp.Expr, kind: pa.DataType | None) -> pc.Expression:
        number = number_in(node)
        if number is not None:
            return pc.scalar(self._number(number, kind))
        build = self._special(node, kind)
        if build is not None:
            return build
        if type(node) in UNARY:
            if type(node) in OF_TEXT or isinstance(node, exp.Not):
                of = pa.string() if type(node) in OF_TEXT else pa.bool_()
                return UNARY[type(node)](self.of_kind(node.this, of))
            return UNARY[type(node)](self._decoded(node.this, kind if isinstance(node, exp.Neg) else None))
        if type(node) in COMPARED:
            return self._compared(node.this, COMPARED[type(node)], node.expression)
        if type(node) in JOINED:
            parts = _with_lists(chain(node)) if isinstance(node, exp.Or) else chain(node)
            return balanced([self.of_kind(each, pa.bool_()) for each in parts], JOINED[type(node)])
        if type(node) in CALCULATED:
            left, right = self._side(node.this), self._side(node.expression)
            return calculated(CALCULATED[type(node)], left, right, self._tested)
        raise self.refused(node)

    def _special(self, node: exp.Expr, kind: pa.DataType | None) -> pc.Expression | None:
        match node:
            case exp.Paren():
                return self.expression(node.this, kind)
            case exp.Column() | exp.Dot():
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
                left, right = self.expression(node.this), self.expression(node.expression)
                equal = self._compared(node.this, "==", node.expression, left, right)
                same = pc.coalesce(equal, pc.scalar(False)) | (left.is_null() & right.is_null())
                return same if isinstance(node, exp.NullSafeEQ) else ~same
            case exp.Like() | exp.ILike():
                return self._like(node)
            case exp.Cast():
                return self._cast(node, kind)
            case exp.Div():
                return pc.divide(
                    as_double(self._decoded(node.this)), as_double(self._decoded(node.expression))
                )
            case _:
                return self._function(node)

    def _function(self, node: exp.Expr) -> pc.Expression | None:
        match node:
            case exp.DPipe():
                left, right = (self.of_kind(each, pa.string()) for each in (node.this, node.expression))
                return pc.binary_join_element_wise(left, right, "")
            case exp.Coalesce():
                return pc.coalesce(*self._unify_results([node.this, *node.expressions]))
            case exp.StartsWith():
                return self._beginning(node.this, self._text_of(node.expression))
            case exp.EndsWith():
                return pc.ends_with(self.of_kind(node.this, pa.string()), self._text_of(node.expression))
            case exp.Contains():
                return pc.match_substring(
                    self.of_kind(node.this, pa.string()), self._text_of(node.expression)
                )
            case exp.Extract() if str(node.this).upper() in PARTS:
                return PARTS[str(node.this).upper()](self.of_kind(node.expression, pa.timestamp("us")))
            case exp.Round():
                digits = int(node.args["decimals"].name) if node.args.get("decimals") else 0
                given = with_room(self._side(node.this))
                return pc.round(given, digits, round_mode="half_towards_infinity")
            case exp.Floor() | exp.Ceil():
                side = self._side(node.this)
                if side.kind is not None and pa.types.is_integer(side.kind):
                    return side.expression  # Arrow would make them doubles, which hold not all of them
                given = with_room(side)
                return pc.floor(given) if isinstance(node, exp.Floor) else pc.ceil(given)
            case exp.Case() if node.this is None:
                return self._case(node)
            case _:
                return None

    def _path(self, node: exp.Column | exp.Dot) -> Sequence[str]:
        """Name of the column, and of the fields inside of it, as the types spell them."""
        parts = [part.name for part in node.parts]
        if not self._schema.names:
            return parts
        found = self._seen.column(parts)
        if not found.places:
            raise self.refused(node)
        column = found.places[0][1].name
        return [column, *fields_called(found.path, column, self._schema.field(column).type)]

    def _side(self, node: exp.Expr) -> Side:
        """Translate one side of an operator, with its type."""
        number = number_in(node)
        expression = self._decoded(node)
        if number is not None:
            return Side(expression, None, number)
        return Side(expression, self._kind(node, expression))

    def _kind(self, node: exp.Expr, expression: pc.Expression) -> pa.DataType | None:
        """Type of the values of a node, whose expression that is; None where it has none yet."""
        if number_in(node) is not None or isinstance(node, exp.Literal | exp.Null):
            return None
        column = self._column(node)
        if column is not None:
            return plain_type(self._tested.field(column).type)
        found = kind_of(expression, self._tested)
        return None if found is None else plain_type(found)

    def _column(self, node: exp.Expr) -> str | None:
        """Return the column that a node names, unless it names a nested field."""
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column):
            return None
        first, *rest = self._path(node)
        return first if first in self._tested.names and not rest else None

    def _decoded(self, node: exp.Expr, kind: pa.DataType | None = None) -> pc.Expression:
        """Translate a node, and decode a dictionary column, as functions require."""
        found = self.expression(node, kind)
        column = self._column(node)
        if column is None or not pa.types.is_dictionary(self._tested.field(column).type):
            return found
        return found.cast(self._tested.field(column).type.value_type)

    def of_kind(self, node: exp.Expr, kind: pa.DataType) -> pc.Expression:
        """Translate a node that must have a type, as a null does not."""
        found = self._decoded(node)
        return pc.scalar(pa.scalar(None, kind)) if self._is_null(node, found) else found

    def _is_null(self, node: exp.Expr, expression: pc.Expression | None) -> bool:
        """Whether a node is null in every row, and of no type."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column) and expression is not None:
            return bool(self._kind(node, expression) == pa.null())
        return isinstance(node, exp.Null) and expression is not None

    def _type_written(self, nodes: Sequence[exp.Expr]) -> pa.DataType:
        """Return Arrow's type for the first constant."""
        constants = [node for node in nodes if is_constant(node)]
        known = constants and isinstance(constants[0], exp.Literal)
        return self._value(constants[0], None).type if known else pa.null()

    def _compared(
        self,
        left: exp.Expr,
        operator: str,
        right: exp.Expr,
        one: pc.Expression | None = None,
        two: pc.Expression | None = None,
    ) -> pc.Expression:
        """Translate a comparison; literals take the type of the other side.

        `one` and `two` are the expressions of both sides, where there are such already: to make them anew
        would take twice as long for each level of a text that is nested.
        """
        if takes_type(left) and not takes_type(right):
            left, operator, right, one, two = right, FLIPPED[operator], left, two, one
        one = self.expression(left) if one is None else one
        if self._is_null(left, one):
            return one.is_null() & UNKNOWN
        if self._is_null(right, two):
            return one.is_null() & UNKNOWN | UNKNOWN
        kind, number = self._kind(left, one), number_in(right)
        if number is not None and kind is not None and is_number(kind):
            operator, value = fit_comparison(operator, literal_number(number, kind), kind)
            return compared(one, operator, pc.scalar(scalar_of(value, kind)))
        if takes_type(right):
            return compared(one, operator, self.expression(right, kind))
        two = self.expression(right) if two is None else two
        one, two = unify(Side(one, kind), Side(two, self._kind(right, two)))
        return compared(one, operator, two)

    def _unify_results(self, nodes: Sequence[exp.Expr]) -> list[pc.Expression]:
        """Expressions of which each may be the result: of numbers, in floating point if one is fractional."""
        made = {index: self._decoded(node) for index, node in enumerate(nodes) if not takes_type(node)}
        nulls = {index for index, part in made.items() if self._is_null(nodes[index], part)}
        known = {index: self._kind(nodes[index], part) for index, part in made.items() if index not in nulls}
        kinds = [kind for kind in known.values() if kind is not None]
        if nulls:  # the others decide of which type the result is
            first = kinds[0] if kinds else self._type_written(nodes)
            made |= {index: pc.scalar(pa.scalar(None, first)) for index in nulls}
        first = kinds[0] if kinds else None
        parts = [
            made[index] if index in made else self.expression(node, first) for index, node in enumerate(nodes)
        ]
        if not kinds or not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
            return parts
        written = "".join(number_in(node) or "" for node in nodes)
        fractional = any(map(pa.types.is_floating, kinds)) or bool(FRACTION_SIGNS & set(written))
        if fractional:
            return [as_double(part) for part in parts]
        return list(map(as_exact_integer, parts)) if pa.uint64() in kinds else parts

    def _beginning(self, node: exp.Expr, prefix: str) -> pc.Expression:
        """Whether text begins so; of a dictionary column said in two ways, so that statistics can tell."""
        begins = pc.starts_with(self.of_kind(node, pa.string()), prefix)
        column = self._column(node)
        if column is None or not pa.types.is_dictionary(self._tested.field(column).type):
            return begins
        return reduce(and_, (each.expression() for each in beginning_with(column, prefix)), begins)

    def _value(self, node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
        if isinstance(node, exp.Null):
            return pa.scalar(None, kind or pa.null())
        if isinstance(node, exp.Boolean):
            return pa.scalar(bool(node.this))
        if not node.is_string:
            return self._number(node.name, kind)
        if kind is None or not is_quoted_type(kind):
            return pa.scalar(node.name)
        try:
            return value_of_text(node.name, kind)
        except SparkPagesError:
            raise
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            raise self._wrong(f"expected {kind} in quotes, found {node.name!r} ({error})", node) from error

    def _number(self, text: str, kind: pa.DataType | None) -> pa.Scalar:
        if kind is not None and pa.types.is_decimal(kind):
            return pa.scalar(Decimal(text))
        if kind is not None and pa.types.is_floating(kind):
            return pa.scalar(float(text))
        if text.lstrip("-").isdigit():
            number = int(text)
            if -(1 << 63) <= number < 1 << 63:
                return pa.scalar(number)
            if 0 < number < 1 << 64:
                return pa.scalar(number, pa.uint64())
        return pa.scalar(float(text))

    def _membership(self, node: exp.In) -> pc.Expression:
        if not node.expressions:
            raise self.refused(node)
        column = self.expression(node.this)
        kind = self._kind(node.this, column)
        if self._is_null(node.this, column):
            return column.is_null() & UNKNOWN
        others = [each for each in node.expressions if not is_constant(each)]
        parts = [self._compared(node.this, "==", each, column) for each in others]
        literals = [each for each in node.expressions if is_constant(each)]
        if literals:
            # Arrow says of null that it is no member; SQL says that it does not know.
            parts += [column.is_null() & UNKNOWN, *self._listed(column, literals, kind)]
        return reduce(or_, parts)

    def _listed(
        self, column: pc.Expression, literals: Sequence[exp.Expr], kind: pa.DataType | None
    ) -> list[pc.Expression]:
        """Conditions of which one holds where a value is in the list."""
        if kind is None or not is_number(kind):
            values = [self._value(each, kind) for each in literals]
            if kind is not None and pa.types.is_time(kind):  # finer than the column: equal to none of it
                values = [value for value in values if value.type == kind]
            members = array_of_values(values) if values else pa.array([], kind)
        else:
            asked = [
                literal_number(number, kind)
                if (number := number_in(each))
                else self._value(each, kind).as_py()
                for each in literals
            ]
            members = pa.array(fit_members(asked, kind), literal_type(kind))
        found = [column.isin(members)]
        if kind is None or pa.types.is_floating(kind):  # Arrow's list knows two zeros, SQL one
            found += [column == each for each in members if each.as_py() == 0]
        return found

    def _between(self, node: exp.Between) -> pc.Expression:
        if node.args.get("symmetric"):
            raise self.refused(node)
        value = self.expression(node.this)
        low = self._compared(node.this, ">=", node.args["low"], value)
        return low & self._compared(node.this, "<=", node.args["high"], value)

    def _is(self, node: exp.Is) -> pc.Expression:
        value = self.expression(node.this)
        match node.expression:
            case exp.Null():
                return value.is_null()
            case exp.Boolean():
                value = self.of_kind(node.this, pa.bool_())
                wanted = value if node.expression.this else ~value
                return pc.coalesce(wanted, pc.scalar(False))
        raise self.refused(node)

    def _like(self, node: exp.Expr) -> pc.Expression:
        pattern = self._text_of(node.expression)
        escaped = pattern.replace("\\", "\\\\")  # a sign like any other in SQL, and an escape to Arrow
        if isinstance(node, exp.ILike):
            return pc.match_like(self.of_kind(node.this, pa.string()), escaped, ignore_case=True)
        if pattern.endswith("%") and not LIKE_SIGNS & set(pattern[:-1]):
            return self._beginning(node.this, pattern[:-1])
        return pc.match_like(self.of_kind(node.this, pa.string()), escaped)

    def _cast(self, node: exp.Cast, wanted: pa.DataType | None) -> pc.Expression:
        name = node.to.this.name
        decimal = name == "DECIMAL" and len(node.to.expressions) == 2
        if decimal:
            kind = pa.decimal128(*(int(part.name) for part in node.to.expressions))
        elif name in TYPES:
            kind = TYPES[name]
        else:
            raise self.refused(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            if wanted is not None and pa.types.is_timestamp(wanted) and pa.types.is_timestamp(kind):
                kind = wanted  # with the zone of the column
            if wanted is not None and pa.types.is_time(wanted) and pa.types.is_time(kind):
                kind = wanted  # with its unit
            return pc.scalar(self._value(node.this, kind))
        given = self._decoded(node.this)
        known = self._kind(node.this, given) if decimal or pa.types.is_time(kind) else None
        if known is not None and pa.types.is_time(kind) and _is_text(known):
            return as_time(given, kind)
        if known is not None and pa.types.is_integer(known):
            return as_decimal(given, known, kind)
        return given.cast(kind)

    def _case(self, node: exp.Case) -> pc.Expression:
        tests = [self.of_kind(each.this, pa.bool_()) for each in node.args["ifs"]]
        default = node.args.get("default")
        rest = [default] if default is not None else []
        values = self._unify_results([*(each.args["true"] for each in node.args["ifs"]), *rest])
        names = [str(index) for index in range(len(tests))]
        return pc.case_when(pc.make_struct(*tests, field_names=names), *values)

    def _text_of(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Literal) and node.is_string:
            return str(node.name)
        raise self._wrong(f"expected text in quotes, found {node.sql()}", node)

    def refused(self, node: exp.Expr, what: str | None = None) -> InvalidInputError:
        """Create the error for an unsupported node."""
        told = what or shown(written(node)).strip("\"'")
        return self._wrong(f"{told} is not known here", node, hint=f"There are the functions {FUNCTIONS}.")

    def _wrong(self, what: str, node: exp.Expr, hint: str | None = None) -> InvalidInputError:
        meta = next((each.meta for each in node.walk() if "start" in each.meta), None)
        place = ""
        if meta:
            before = self._text[: meta["start"]]
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            place = f" at line {line}, column {column}"
        return InvalidInputError(f"Cannot use the filter {self._text!r}{place}: {what}.", hint=hint)
