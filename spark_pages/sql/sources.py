"""Sources of a query: tables, subqueries and joins behind FROM, with labels and filters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from spark_pages.catalog.identifiers import (
    IdentifierContext,
    MergedColumn,
    Place,
    VisibleColumn,
    VisibleTable,
    match,
)
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.model.names import fold_name
from spark_pages.query.predicates.parsing import chain, located, written
from spark_pages.sql.relations import Relation, Relations, as_of_of


class Labels:
    """Gives each name a label that no other has.

    Parameters
    ----------
    taken
        What is not to be given.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {fold_name(name) for name in taken}

    def label(self, name: str) -> str:
        """Return a unique label for a name, without NUL, which ends names in C."""
        name = name.replace("\0", "?")
        found, number = name, 0
        while fold_name(found) in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(fold_name(found))
        return found


def labels_of(names: Iterable[str]) -> list[str]:
    """Return a label for each of the names."""
    labels = Labels()
    return [labels.label(name) for name in names]


def quoted(name: str) -> exp.Identifier:
    """Quote a name."""
    return exp.Identifier(this=name, quoted=True)


CommonTables = Mapping[str, tuple[str, tuple[VisibleColumn, ...]]]
"""Label and columns of the tables of WITH, by name without regard to case."""

Query = Callable[[exp.Expr, IdentifierContext | None, CommonTables], tuple[VisibleColumn, ...]]
Expression = Callable[[exp.Expr, IdentifierContext, CommonTables], None]

_VERSIONS = ("at", "version", "when")
"""Arguments of a table that say which version is meant."""

_ONE_SIDED = ("SEMI", "ANTI")
_BY_PLACE = ("ASOF", "POSITIONAL")
_SERIES = ("range", "generate_series")


@dataclass(eq=False, slots=True)
class TableUse:
    """One mention of a table of the catalog.

    Attributes
    ----------
    label
        What the query calls the table itself, behind which its alias stands.
    relation
        The table.
    names
        The columns that are needed, in the order of the table.
    labels
        What the query calls all of its columns, by name.
    hint
        A filter that every row meets which the query can use; see `spark_pages.sql.sources`.
    """

    label: str
    relation: Relation
    labels: dict[str, str]
    hint: pc.Expression | None = None
    _used: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The columns that are needed, in the order of the table."""
        return [name for name, label in self.labels.items() if label in self._used]

    def need(self, label: str) -> None:
        """Mark the column of this label as needed."""
        self._used.add(label)


@dataclass(eq=False, slots=True)
class Scope:
    """What stands behind one FROM.

    Attributes
    ----------
    outer
        What can be seen from the query around.
    tables
        The tables, in order.
    merged
        Columns that joins share, by each place where they are.
    by_place
        Whether it matters which other rows a table has: it is sampled, or joined by position or by the
        nearest row.
    """

    outer: IdentifierContext | None
    tables: list[VisibleTable] = field(default_factory=list)
    merged: dict[tuple[str, str], MergedColumn] = field(default_factory=dict)
    by_place: bool = False

    def context(self, aliases: tuple[VisibleColumn, ...] = ()) -> IdentifierContext:
        """Return what names may mean here."""
        merged = tuple({id(each): each for each in self.merged.values()}.values())
        return IdentifierContext(tuple(self.tables), self.outer, merged, aliases)

    def stars(self, qualifier: Sequence[str]) -> list[tuple[str, tuple[Place, ...]]]:
        """Names and places of the columns that a star stands for; shared ones once.

        Raises
        ------
        ColumnNotFoundError, InvalidInputError
            If there is no such table, or none at all.
        """
        if qualifier:
            table = self.context().star_table(qualifier)
            return [(column.name, ((table, column),)) for column in table.columns if not column.hidden]
        if not self.tables:
            raise InvalidInputError(
                "Cannot select *: there is no FROM.",
                hint="Write FROM and a table, such as `SELECT * FROM t`.",
            )
        found: list[tuple[str, tuple[Place, ...]]] = []
        seen: set[int] = set()
        for table in self.tables:
            for column in table.columns:
                shared = self.merged.get((table.label, column.label))
                if column.hidden:
                    continue
                if shared is None:
                    found.append((column.name, ((table, column),)))
                elif id(shared) not in seen:
                    seen.add(id(shared))
                    found.append((shared.name, shared.places))
        return found

    def merge(self, name: str, right: VisibleTable, join: exp.Join) -> tuple[Place, Place]:
        """Merge the column that a join shares, and return its place on the left and on the right.

        Raises
        ------
        ColumnNotFoundError, InvalidInputError
            If one side has no such column, or several.
        """
        left = IdentifierContext(tuple(self.tables), None, self.context().merged).column([name])
        there = IdentifierContext((right,)).column([name])
        if not left.places or not there.places:
            raise InvalidInputError(
                f"Cannot join by {name!r}: it is a table, not a column that both sides share.",
                hint="Name columns in USING (…), or write ON a.x = b.y.",
            )
        place = there.places[0]
        side = str(join.args.get("side") or "").upper()
        places = {"RIGHT": (place,), "FULL": (*left.places, place)}.get(side, left.places)
        shared = MergedColumn(left.places[0][1].name, places)
        old = {id(self.merged.get((table.label, column.label))) for table, column in left.places}
        keys = [key for key, each in self.merged.items() if id(each) in old]
        keys += [(table.label, column.label) for table, column in (*left.places, place)]
        if join.kind.upper() not in _ONE_SIDED:
            self.merged |= dict.fromkeys(keys, shared)
        return left.places[0], place


class Sources:
    """Resolves FROM clauses, and keeps what they mention.

    Parameters
    ----------
    text
        The statement as written.
    relations
        The tables of the catalog.
    query, expression
        Resolve what is nested.
    """

    def __init__(self, text: str, relations: Relations, query: Query, expression: Expression) -> None:
        self.uses: list[TableUse] = []
        self.labels = Labels()
        self._text = text
        self._relations = relations
        self._query = query
        self._expression = expression
        self._by_label: dict[str, TableUse] = {}

    def use(self, table: VisibleTable, column: VisibleColumn) -> None:
        """Mark a column as needed."""
        if table.label in self._by_label:
            self._by_label[table.label].need(column.label)

    def use_all(self, table: VisibleTable) -> None:
        """All columns of the table are needed."""
        for column in table.columns:
            if not column.hidden:
                self.use(table, column)

    def from_clause(self, node: exp.Select, outer: IdentifierContext | None, ctes: CommonTables) -> Scope:
        """Resolve the tables and joins of FROM, and replace them by labels."""
        scope = Scope(outer)
        from_ = node.args.get("from_")
        if from_ is not None:
            self._source(from_.this, scope, ctes)
        for join in node.args.get("joins") or []:
            self._join(join, scope, ctes)
        return scope

    def take_hints(self, where: exp.Expr, scope: Scope) -> None:
        """Tables of the scope know what WHERE, which is in labels, says of them."""
        if scope.by_place:
            return
        here = {table.label for table in scope.tables}
        for condition in conjuncts(where):
            column = column_in(condition)
            if column is None or column.table not in here or column.table not in self._by_label:
                continue
            use = self._by_label[column.table]
            name = next(name for name, label in use.labels.items() if label == column.name)
            if name in use.relation.hidden:
                continue
            hint = hint_of(condition, name, use.relation.schema.field(name).type)
            if hint is not None:
                use.hint = hint if use.hint is None else use.hint & hint

    def _join(self, join: exp.Join, scope: Scope, ctes: CommonTables) -> None:
        before = list(scope.tables)
        scope.by_place |= join.method.upper() in _BY_PLACE
        self._source(join.this, scope, ctes)
        added = scope.tables[len(before) :]
        if join.method.upper() == "NATURAL":
            join.set("method", None)
            join.set("using", self._common_columns(before, added))
        using = join.args.get("using") or []
        if using:
            if len(added) != 1:
                raise self._refused(join, "USING with tables in parentheses")
            left = Scope(scope.outer, before, scope.merged)
            join.set("using", [self._share(each, left, added[0], join) for each in using])
        condition = join.args.get("on")
        if condition is not None:
            self._expression(condition, scope.context(), ctes)
        if join.kind.upper() in _ONE_SIDED:
            scope.tables[len(before) :] = []

    def _share(self, name: exp.Expr, left: Scope, right: VisibleTable, join: exp.Join) -> exp.Identifier:
        try:
            places = left.merge(name.name, right, join)
        except SparkPagesError as error:
            raise located(error, name, self._text) from error
        for table, column in places:
            self.use(table, column)
        labels = [column.label for _, column in places]
        if fold_name(labels[0]) != fold_name(labels[1]):
            raise self._refused(
                join, f"USING ({name.name}) for columns that are several in one table but for case"
            )
        return quoted(labels[1])

    @staticmethod
    def _common_columns(left: Sequence[VisibleTable], right: Sequence[VisibleTable]) -> list[exp.Expr]:
        known, there = (
            [column for table in side for column in table.columns if not column.hidden]
            for side in (left, right)
        )
        shared = [column.name for column in there if match(column.name, known)]
        if not shared:
            raise InvalidInputError(
                "Cannot join by a natural join: its tables have no column in common.",
                hint="Write ON a.x = b.y, or CROSS JOIN.",
            )
        return [quoted(name) for name in shared]

    # single sources

    def _source(self, node: exp.Expr, scope: Scope, ctes: CommonTables) -> None:
        if node.args.get("pivots"):
            raise self._refused(node, "PIVOT")
        scope.by_place |= node.args.get("sample") is not None
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                self._table(node, scope, ctes)
            case exp.Table() if isinstance(node.this, exp.Anonymous) and node.this.name.lower() in _SERIES:
                self._expression(node.this, scope.context(), ctes)
                self._function(node, scope, node.this.name.lower())
            case exp.Unnest() if not node.args.get("offset"):
                for each in node.expressions:
                    self._expression(each, scope.context(), ctes)
                self._function(node, scope, "unnest")
            case exp.Subquery() if isinstance(node.this, exp.Table) and not node.alias:
                self._source(node.this, scope, ctes)
            case exp.Subquery() | exp.Values():
                self._derived(node, node, scope, ctes)
            case exp.Lateral() if isinstance(node.this, exp.Subquery):
                self._derived(node, node.this, scope, ctes)
            case exp.Table():
                raise self._refused(
                    node, hint="Tables of the store, queries, VALUES, unnest, range and generate_series are."
                )
            case _:
                raise self._refused(node)
        for join in node.args.get("joins") or []:
            self._join(join, scope, ctes)

    def _table(self, node: exp.Table, scope: Scope, ctes: CommonTables) -> None:
        parts = [part.name for part in node.parts]
        alias = node.args.get("alias")
        common = ctes.get(fold_name(parts[0])) if len(parts) == 1 else None
        if common is not None and not any(node.args.get(key) for key in _VERSIONS):
            label, columns = common
            node.set("this", quoted(label))
            self._add(node, scope, node.alias or parts[0], columns)
            return
        try:
            relation = self._relations.find(parts, as_of_of(node))
        except SparkPagesError as error:
            raise located(error, node, self._text) from error
        names = list(relation.schema.names)
        labels = labels_of(names)
        use = TableUse(
            self.labels.label(f"table {len(self.uses)}"), relation, dict(zip(names, labels, strict=True))
        )
        self.uses.append(use)
        columns = tuple(
            VisibleColumn(
                name,
                label,
                relation.fields.get(name),
                relation.schema.field(index).type,
                name in relation.hidden,
            )
            for index, (name, label) in enumerate(zip(names, labels, strict=True))
        )
        for key in ("db", "catalog", *_VERSIONS):
            node.set(key, None)
        node.set("this", quoted(use.label))
        namespace = None if alias is not None and alias.this is not None else relation.namespace
        table = self._add(node, scope, node.alias or relation.name, columns, namespace)
        self._by_label[table.label] = use

    def _derived(self, node: exp.Expr, query: exp.Expr, scope: Scope, ctes: CommonTables) -> None:
        # DuckDB, too, lets a subquery see the tables before it, with or without LATERAL.
        around = scope.context()
        columns = self._query(query, around, ctes)
        self._add(node, scope, node.alias or "subquery", columns)

    def _function(self, node: exp.Expr, scope: Scope, name: str) -> None:
        alias = node.args.get("alias")
        given = [column.name for column in alias.columns] if alias is not None else []
        if len(given) > 1:
            raise self._refused(node)
        column = given[0] if given else node.alias or name
        table = self._add(node, scope, node.alias or name, (VisibleColumn(column, column),), renaming=False)
        node.set("alias", exp.TableAlias(this=quoted(table.label), columns=[quoted(column)]))

    def _add(
        self,
        node: exp.Expr,
        scope: Scope,
        name: str,
        columns: tuple[VisibleColumn, ...],
        namespace: str | None = None,
        renaming: bool = True,
    ) -> VisibleTable:
        alias = node.args.get("alias")
        if renaming and alias is not None and alias.columns:
            hidden = tuple(column for column in columns if column.hidden)
            shown = tuple(column for column in columns if not column.hidden)
            columns = (*with_names(shown, [column.name for column in alias.columns], name), *hidden)
        table = VisibleTable(name, self.labels.label(name), columns, namespace)
        labels = [quoted(column.label) for column in columns] if isinstance(node, exp.Values) else None
        node.set("alias", exp.TableAlias(this=quoted(table.label), columns=labels))
        scope.tables.append(table)
        return table

    def _refused(self, node: exp.Expr, what: str | None = None, hint: str | None = None) -> SparkPagesError:
        told = what or written(node)
        error = InvalidInputError(f"Cannot select from {told!r}: that is not supported here.", hint=hint)
        return located(error, node, self._text)


def with_names(
    columns: tuple[VisibleColumn, ...], names: Sequence[str], table: str
) -> tuple[VisibleColumn, ...]:
    """Rename columns by an alias such as ``t(a, b)``; the remaining ones keep their names."""
    if len(names) > len(columns):
        raise InvalidInputError(
            f"Cannot name the columns of {table!r}: it has {len(columns)}, and {len(names)} names are given.",
            hint=f"Give {len(columns)} names at most, one for each column.",
        )
    renamed = [replace(column, name=name) for column, name in zip(columns, names, strict=False)]
    return (*renamed, *columns[len(names) :])


# Conditions that DuckDB tests itself, so that tables cannot know them, said as filters all the same. Pure.
#
# DuckDB hands most conditions of WHERE over to the tables. It keeps comparisons of floating point numbers,
# where NaN is the greatest to it and nothing to Arrow, and LIKE. A hint is a filter of one table that every
# row passes which the query can use: it may let more rows pass, since DuckDB tests the condition anyway. So
# it leaves a little room beside each bound, and lets NaN pass where that is greater.
#
# It holds for outer joins too. A row that a hint leaves out would fail WHERE; where a join then puts nulls in
# its place, these fail WHERE as well, because a comparison with null is not true.

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_WILDCARDS = frozenset("%_\\")


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """Return the operands of AND in a condition."""
    while isinstance(condition, exp.Where | exp.Paren):
        condition = condition.this
    return chain(condition) if isinstance(condition, exp.And) else [condition]


def column_in(condition: exp.Expr) -> exp.Column | None:
    """Return the column that a condition compares with constants, if it may give a hint."""
    sides = [condition.args.get("this"), condition.args.get("expression")]
    if condition.args.get("negate"):  # NOT LIKE and NOT BETWEEN are nodes of the same kind
        return None
    match condition:
        case exp.Between() | exp.Like():
            sides = sides[:1]
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.EQ():
            pass
        case _:
            return None
    columns = [side for side in sides if isinstance(side, exp.Column)]
    return columns[0] if len(columns) == 1 else None


def hint_of(condition: exp.Expr, name: str, kind: pa.DataType) -> pc.Expression | None:
    """Return the hint that a condition gives for the table of its column, or None.

    Parameters
    ----------
    condition
        One that `column_in` knows.
    name, kind
        The column.
    """
    column = pc.field(name)
    if isinstance(condition, exp.Like):
        return _prefix_hint(condition, column, kind)
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    if isinstance(condition, exp.Between):
        if condition.args.get("symmetric"):
            return None
        low, high = _number(condition.args["low"]), _number(condition.args["high"])
        return None if low is None or high is None else _within(column, low, high, kind)
    mirrored = not isinstance(condition.this, exp.Column)
    bound = _number(condition.this if mirrored else condition.expression)
    if bound is None:
        return None
    operator = _MIRRORED[type(condition)] if mirrored else type(condition)
    if operator in (exp.GT, exp.GTE):
        return _least(column, bound, kind)
    if operator in (exp.LT, exp.LTE):
        return _most(column, bound, kind)
    return _within(column, bound, bound, kind)


def _least(column: pc.Expression, bound: float, kind: pa.DataType) -> pc.Expression:
    return ~(column < _with_margin(bound, kind, -np.inf))  # NaN is not less, and passes


def _most(column: pc.Expression, bound: float, kind: pa.DataType) -> pc.Expression:
    return column <= _with_margin(bound, kind, np.inf)


def _within(column: pc.Expression, low: float, high: float, kind: pa.DataType) -> pc.Expression:
    return (column >= _with_margin(low, kind, -np.inf)) & _most(
        column, high, kind
    )  # NaN is greater than both


def _with_margin(bound: float, kind: pa.DataType, towards: float) -> pa.Scalar:
    """Move a bound a little, so that it includes every rounding."""
    number = np.float32 if pa.types.is_float32(kind) else np.float64
    with np.errstate(over="ignore"):
        value, end = number(bound), number(towards)
        return pa.scalar(np.nextafter(np.nextafter(value, end), end).item(), kind)


def _number(node: exp.Expr) -> float | None:
    match node:
        case exp.Literal() if not node.is_string:
            return float(node.name)
        case exp.Neg():
            value = _number(node.this)
            return None if value is None else -value
    return None


def _prefix_hint(condition: exp.Like, column: pc.Expression, kind: pa.DataType) -> pc.Expression | None:
    pattern = condition.expression
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not text or not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    signs = [index for index, sign in enumerate(pattern.name) if sign in _WILDCARDS]
    prefix = pattern.name[: signs[0]] if signs else pattern.name
    return pc.starts_with(column, prefix) if prefix else None
