"""Queries: every name in them becomes that of a table of one version and of a field id. Pure.

`resolve` gives the same query in labels (`spark_pages.sql.sources`), which mean the same to
DuckDB whatever it thinks of case, and tells which columns of which tables it needs. What stands behind FROM
is resolved in `sources.py`; the rules for names are `spark_pages.catalog.identifiers`.

Columns come before names given by AS, but in a whole item of ORDER BY, where the names come first: DuckDB
does the same. What has no name is called by its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from spark_pages.catalog.identifiers import (
    IdentifierContext,
    LogicalFieldId,
    Resolved,
    VisibleColumn,
    match,
    suggest,
)
from spark_pages.errors import ColumnNotFoundError, InvalidInputError, SparkPagesError
from spark_pages.model.names import fold_name, match_name
from spark_pages.query.predicates.parsing import (
    IMPURE_HINT,
    chain,
    located,
    not_understood,
    rewritten,
    written,
)
from spark_pages.sql.parameters import GivenParameters, Parameters
from spark_pages.sql.relations import Relations
from spark_pages.sql.sources import (
    CommonTables,
    Labels,
    Scope,
    Sources,
    TableUse,
    labels_of,
    quoted,
    with_names,
)

_CLAUSES = ("where", "group", "having", "qualify", "limit", "offset", "sample")
_WITHOUT_PARENTHESES = (
    "current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp",
    "current_user", "localtime", "localtimestamp", "session_user", "user",
)  # fmt: skip
"""Functions that are called like columns."""

_KNOWN = {*_CLAUSES, "with_", "expressions", "from_", "joins", "windows", "order", "distinct"}


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A query without names that could mean anything else.

    Attributes
    ----------
    tree
        The query in labels.
    uses
        Each mention of a table, with the columns that are needed of it.
    outputs
        The columns of the result.
    fields
        The columns of the catalog that it reads, each once.
    """

    tree: exp.Expr
    uses: tuple[TableUse, ...]
    outputs: tuple[VisibleColumn, ...]

    @property
    def fields(self) -> tuple[LogicalFieldId, ...]:
        """The columns of the catalog that it reads, each once."""
        found = [
            use.relation.fields[name]
            for use in self.uses
            for name in use.names
            if name in use.relation.fields
        ]
        return tuple(dict.fromkeys(found))

    @property
    def text(self) -> str:
        """The query for DuckDB."""
        return rewritten(self.tree)


def resolve(
    tree: exp.Expr, text: str, relations: Relations, parameters: GivenParameters = None
) -> ResolvedQuery:
    """Resolve every name of a query.

    Parameters
    ----------
    tree, text
        The statement as parsed, and as written: errors name the place.
    relations
        The tables.
    parameters
        Values for the parameters of the query.

    Raises
    ------
    TableNotFoundError, ColumnNotFoundError, VersionNotFoundError
        If a name means nothing; suggests names that look like it.
    InvalidInputError
        If a name is ambiguous, or the query says something that is not supported.
    """
    resolver = _Resolver(text, relations, Parameters(parameters, tree))
    try:
        # A tree of its own, with a parent, so that every node of the query can be replaced.
        holder = exp.Subquery(this=tree.copy())
        outputs = resolver.query(holder.this, None, {})
    except RecursionError as error:
        raise InvalidInputError(
            "Cannot resolve the query: it is nested too deep.",
            hint="Name parts of the query by WITH name AS (…).",
        ) from error
    left = holder.find(exp.Placeholder)
    if left is not None:
        raise not_understood(left, None, text)
    return ResolvedQuery(holder.this, tuple(resolver.sources.uses), outputs)


class _Resolver:
    def __init__(self, text: str, relations: Relations, parameters: Parameters) -> None:
        self._text = text
        self._parameters = parameters
        self.sources = Sources(text, relations, self.query, self.expression)

    # queries

    def query(
        self, node: exp.Expr, outer: IdentifierContext | None, ctes: CommonTables
    ) -> tuple[VisibleColumn, ...]:
        """Resolve a query, replace its columns by labels, and return them."""
        match node:
            case exp.Select():
                return self._select(node, outer, ctes)
            case exp.SetOperation():
                return self._set_operation(node, outer, ctes, None)
            case exp.Subquery() if not node.args.get("pivots"):
                columns = self.query(node.this, outer, self._common(node, outer, ctes))
                self._ends(node, columns, outer, ctes)
                return columns
            case exp.Values():
                self._parts(node.expressions, IdentifierContext(outer=outer), ctes)
                first = node.expressions[0]
                width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
                return tuple(VisibleColumn(f"col{index}", f"col{index}") for index in range(width))
        raise self._refused(node)

    def _common(self, node: exp.Expr, outer: IdentifierContext | None, ctes: CommonTables) -> CommonTables:
        """Return the tables of WITH, in addition to those known."""
        with_ = node.args.get("with_")
        if with_ is None:
            return ctes
        seen: set[str] = set()
        for each in with_.expressions:
            name, given = each.alias, [column.name for column in each.args["alias"].columns]
            if fold_name(name) in seen:
                raise located(
                    InvalidInputError(
                        f"Cannot read WITH: it defines {name!r} twice.",
                        hint=f"Give one of them another name than {name!r}.",
                    ),
                    each.args["alias"],
                    self._text,
                )
            seen.add(fold_name(name))
            label = self.sources.labels.label(name)

            def named(
                columns: tuple[VisibleColumn, ...],
                before: CommonTables = ctes,
                name: str = name,
                label: str = label,
                given: list[str] = given,
            ) -> CommonTables:
                return {**before, fold_name(name): (label, _relabelled(with_names(columns, given, name)))}

            if with_.recursive and isinstance(each.this, exp.SetOperation):
                columns = self._set_operation(each.this, outer, ctes, named)
            else:
                columns = self.query(each.this, outer, ctes)
            ctes = named(columns)
            listed = [quoted(column.label) for column in ctes[fold_name(name)][1]]
            each.set("alias", exp.TableAlias(this=quoted(label), columns=listed))
        return ctes

    def _set_operation(
        self,
        node: exp.SetOperation,
        outer: IdentifierContext | None,
        ctes: CommonTables,
        named: Callable[[tuple[VisibleColumn, ...]], CommonTables] | None,
    ) -> tuple[VisibleColumn, ...]:
        inner = self._common(node, outer, ctes)
        left = self.query(node.this, outer, inner)
        right = self.query(node.expression, outer, named(left) if named else inner)
        columns = [replace(column, field=None, type=None) for column in left]
        if node.args.get("by_name"):
            columns += [
                replace(column, field=None, type=None) for column in right if not match(column.name, left)
            ]
        self._ends(node, columns, outer, inner)
        return tuple(columns)

    def _ends(
        self,
        node: exp.Expr,
        columns: Sequence[VisibleColumn],
        outer: IdentifierContext | None,
        ctes: CommonTables,
    ) -> None:
        """ORDER BY, LIMIT and OFFSET behind several queries, or a query in parentheses."""
        context = IdentifierContext(outer=outer, aliases=tuple(columns))
        self._order(node, context, ctes)
        for key in ("limit", "offset"):
            if node.args.get(key) is not None:
                self.expression(node.args[key], context, ctes)

    def _select(
        self, node: exp.Select, outer: IdentifierContext | None, ctes: CommonTables
    ) -> tuple[VisibleColumn, ...]:
        unknown = [key for key, value in node.args.items() if value and key not in _KNOWN]
        if unknown:
            raise self._refused(node, f"SELECT with {unknown[0].strip('_').upper()}")
        ctes = self._common(node, outer, ctes)
        scope = self.sources.from_clause(node, outer, ctes)
        outputs = self._items(node, scope, ctes)
        context = scope.context(aliases=outputs)
        for key in _CLAUSES:
            if node.args.get(key) is not None:
                self.expression(node.args[key], context, ctes)
        if node.args.get("where") is not None and node.args.get("sample") is None:
            self.sources.take_hints(node.args["where"], scope)
        self._parts(node.args.get("windows") or [], context, ctes)
        distinct = node.args.get("distinct")
        if distinct is not None:
            self.expression(distinct, context, ctes)
        self._order(node, context, ctes)
        return outputs

    def _items(self, node: exp.Select, scope: Scope, ctes: CommonTables) -> tuple[VisibleColumn, ...]:
        """Resolve the items before FROM, with stars expanded; each item is named after its label."""
        items: list[exp.Expr] = []
        outputs: list[VisibleColumn] = []
        # An item is never called like a column that has another name: it could be taken for it.
        columns = [column for table in scope.tables for column in table.columns]
        labels = Labels(each.label for each in columns if fold_name(each.label) != fold_name(each.name))
        for item in list(node.expressions):
            for name, what in self._written_out(item, scope):
                label = labels.label(name)
                if isinstance(what, Resolved):
                    known = _single(what)
                    holder = exp.Alias(this=self._reference(what), alias=quoted(label))
                else:
                    known = self._plain(what, scope)
                    holder = exp.Alias(this=what, alias=quoted(label))
                    self.expression(what, scope.context(aliases=tuple(outputs)), ctes)
                known = known or VisibleColumn(name, label)
                outputs.append(replace(known, name=name, label=label, hidden=False))
                items.append(holder)
        node.set("expressions", items)
        return tuple(outputs)

    def _written_out(self, item: exp.Expr, scope: Scope) -> list[tuple[str, exp.Expr | Resolved]]:
        """Expand an item into items with the names that users see."""
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
        if not isinstance(star, exp.Star):
            return [(self._name(item, scope), item.unalias())]
        table = [part.name for part in item.parts[:-1]] if isinstance(item, exp.Column) else []
        try:
            fields = self._fields(table, scope)
            return self._star(
                star, fields or [(name, Resolved(places)) for name, places in scope.stars(table)]
            )
        except SparkPagesError as error:
            raise located(error, item, self._text) from error

    @staticmethod
    def _fields(parts: list[str], scope: Scope) -> list[tuple[str, Resolved]]:
        """Return the fields of a column before ``.*``; none for a table, or if it is no struct."""
        if not parts:
            return []
        try:
            scope.context().star_table(parts)
        except ColumnNotFoundError:
            pass
        else:
            return []
        try:
            found = scope.context().column(parts)
        except SparkPagesError:
            return []  # the star is refused where its table is looked up
        kind = found.places[0][1].type if len(found.places) == 1 else None
        for name in found.path:
            known = kind.names if kind is not None and pa.types.is_struct(kind) else []
            field = match_name(name, known)
            kind = kind.field(field).type if kind is not None and field is not None else None
        if kind is None or not pa.types.is_struct(kind):
            return []
        return [(field.name, replace(found, path=(*found.path, field.name))) for field in kind]

    def _star(
        self, star: exp.Star, found: list[tuple[str, Resolved]]
    ) -> list[tuple[str, exp.Expr | Resolved]]:
        """Expand a star, with EXCLUDE, REPLACE and RENAME applied."""
        names = list(dict.fromkeys(name for name, _ in found))

        def known(node: exp.Expr) -> str:
            name = match_name(node.name, names)
            if name is None:
                hint = suggest(node.name, names)
                raise ColumnNotFoundError(
                    f"Cannot leave out or replace column {node.name!r} of a star: it has none of that name.",
                    hint=hint,
                    column=node.name,
                )
            return name

        left_out = {known(each) for each in star.args.get("except_") or []}
        for each in [*(star.args.get("replace") or []), *(star.args.get("rename") or [])]:
            if not isinstance(each, exp.Alias):
                raise self._refused(each)
        instead = {known(each.args["alias"]): each.this for each in star.args.get("replace") or []}
        new = {known(each.this): each.alias for each in star.args.get("rename") or []}
        kept = [(name, place) for name, place in found if name not in left_out]
        return [(new.get(name, name), instead.get(name) or place) for name, place in kept]

    def _name(self, item: exp.Expr, scope: Scope) -> str:
        if isinstance(item, exp.Alias):
            return str(item.alias)
        if isinstance(item, exp.Column):
            known = self._plain(item, scope)
            return known.name if known else str(item.name)
        return written(item)

    def _plain(self, item: exp.Expr, scope: Scope) -> VisibleColumn | None:
        """Return the column of an item that is only a column."""
        if not isinstance(item, exp.Column):
            return None
        try:
            found = scope.context().column([part.name for part in item.parts])
        except SparkPagesError:
            return None  # it is a name given by AS, or is refused where it is resolved
        return _single(found)

    def _order(self, node: exp.Expr, context: IdentifierContext, ctes: CommonTables) -> None:
        order = node.args.get("order")
        for ordered in order.expressions if order is not None else ():
            item = ordered.this
            if isinstance(item, exp.Column) and len(item.parts) == 1:
                found = context.alias([item.name])
                if found is not None and found.alias is not None:
                    item.replace(exp.Column(this=quoted(found.alias.label)))
                    continue
            self.expression(ordered, context, ctes)

    # expressions

    def expression(
        self,
        node: exp.Expr,
        context: IdentifierContext,
        ctes: CommonTables,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        """Every name in an expression is in labels from now on; `bound` are those of lambdas around it."""
        match node:
            case exp.Column():
                self._column(node, context, bound)
            case exp.Query() | exp.Values():
                self.query(node, context, ctes)
            case exp.Lambda():
                names = frozenset(fold_name(each.name) for each in node.expressions)
                self.expression(node.this, context, ctes, bound | names)
            case exp.Comprehension():
                inner = bound | {fold_name(node.args["expression"].name)}
                self.expression(node.args["iterator"], context, ctes, bound)
                for part in (node.this, node.args.get("condition")):
                    if part is not None:
                        self.expression(part, context, ctes, inner)
            case exp.And() | exp.Or():
                self._parts(chain(node), context, ctes, bound)
            case exp.Placeholder() if isinstance(
                node.parent, exp.Ordered | exp.Group | exp.Cube | exp.Rollup
            ):
                raise self._refused(node)  # a number there is the place of an item
            case exp.Placeholder():
                node.replace(self._parameters.constant(node))
            case exp.Dot() if isinstance(node.this, exp.Identifier):
                raise self._refused(node)
            case exp.DataType() if not str(node.args.get("kind") or "a").isidentifier():
                raise self._refused(node)  # the name of a type is written without quotes
            case exp.Star() if any(node.args.values()) or not isinstance(node.parent, exp.Anonymous):
                raise self._refused(node)  # count(*) is known
            case _:
                self._parts(list(node.iter_expressions()), context, ctes, bound)

    def _parts(
        self,
        nodes: Sequence[exp.Expr],
        context: IdentifierContext,
        ctes: CommonTables,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        for node in nodes:
            self.expression(node, context, ctes, bound)

    def _column(self, node: exp.Column, context: IdentifierContext, bound: frozenset[str]) -> None:
        if isinstance(node.this, exp.Star):
            raise self._refused(node)
        parts = [part.name for part in node.parts]
        if fold_name(parts[0]) in bound:
            return
        try:
            found = context.column(parts)
        except SparkPagesError as error:
            if parts[0].lower() in _WITHOUT_PARENTHESES and isinstance(error, ColumnNotFoundError):
                error.hint = IMPURE_HINT
            raise located(error, node, self._text) from error
        node.replace(self._reference(found))

    def _reference(self, found: Resolved) -> exp.Expr:
        if found.row is not None:
            self.sources.use_all(found.row)
            return exp.Column(this=quoted(found.row.label))
        if found.alias is not None:
            base: exp.Expr = exp.Column(this=quoted(found.alias.label))
        else:
            for table, column in found.places:
                self.sources.use(table, column)
            parts = [
                exp.Column(this=quoted(column.label), table=quoted(table.label))
                for table, column in found.places
            ]
            base = parts[0] if len(parts) == 1 else exp.Coalesce(this=parts[0], expressions=parts[1:])
        for name in found.path:
            base = exp.Dot(this=base, expression=quoted(name))
        return base

    def _refused(self, node: exp.Expr, what: str | None = None) -> InvalidInputError:
        return not_understood(node, what, self._text)


def _single(found: Resolved) -> VisibleColumn | None:
    """Return the column, if a name means exactly one and no nested field."""
    return found.places[0][1] if len(found.places) == 1 and not found.path else None


def _relabelled(columns: Sequence[VisibleColumn]) -> tuple[VisibleColumn, ...]:
    """Return the columns with labels made of their names."""
    labels = labels_of(column.name for column in columns)
    return tuple(replace(column, label=label) for column, label in zip(columns, labels, strict=True))
