"""The tables of namespace ``system``: what table 0 says of one version, as ordinary tables.

Rows are those of table 0 that are true at the version (no `deleted_by`). A column is made when it is read,
from the columns of table 0 that it needs, as pages in memory: so each of these tables is read, scanned,
filtered and aggregated by the same code as any other. What a filter says of tables and of plain columns is
tested on table 0 first, so that its pages are ruled out as those of any table are. ``system.catalog`` is
table 0 itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from spark_pages.io import Codec, PageHandler, ReadTrace, encode_page, page_stats
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.added_pages import NewPage, page_batches
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey, UnloadedRun
from spark_pages.model.ids import TableId
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun
from spark_pages.model.table import SYSTEM_NAMESPACE, TableDefinition, with_field_ids
from spark_pages.query.catalog_rows import MOST_TABLES, CatalogRows, Pushed
from spark_pages.query.directory import PageDirectory
from spark_pages.query.predicates.filters import Filter
from spark_pages.query.predicates.predicate import AllOf, AnyOf, Condition, Tree
from spark_pages.query.system_layouts import BUILT_IN_ROWS, LAYOUTS, Make
from spark_pages.query.table import Table

_PAGE_ROWS = 4096
_FIRST_ID = -100

SYSTEM_TABLES = tuple(LAYOUTS)
"""Names of the tables that show what table 0 says."""

_PLAIN = frozenset({"table_id", "field_id", "name", "nullable", "created_by", "created_at"})
"""Columns that are columns of table 0 under the same name."""

_NAMED_BY = {"tables": "name", "columns": "table", "constraints": "table"}
"""Columns that hold names of tables."""

_EQUAL = frozenset({"==", "in"})
_PUSHED = frozenset({"==", "in", "<", "<=", ">", ">=", "is null", "is not null"})


class SystemTable(Table):
    """One of the tables as of a version.

    Parameters
    ----------
    name
        Of `SYSTEM_TABLES`.
    rows
        The rows of table 0 that it shows.
    pages, open_table
        As of `Table`.

    Notes
    -----
    Nothing is read before rows are asked for: then, which rows of table 0 are true, and what the columns
    asked for need. ``num_rows`` asks the chain of each table how long it is. Where a filter names the tables
    that it is about, or compares plain columns, only pages of table 0 that may hold such rows are read.
    """

    def __init__(
        self,
        name: str,
        rows: CatalogRows,
        pages: PageHandler,
        open_table: Callable[[str], Table] | None,
    ) -> None:
        layout = LAYOUTS[name]
        schema = pa.schema([pa.field(column, kind) for column, (kind, _) in layout.columns.items()])
        definition = TableDefinition(
            TableId(_FIRST_ID - SYSTEM_TABLES.index(name)),
            name,
            with_field_ids(schema),
            len(schema) + 1,
            SYSTEM_NAMESPACE,
        )
        chains = _Chains(rows.log, name, rows, definition)
        super().__init__(definition, PageDirectory(chains, definition), pages, rows.log, open_table)
        self._rows = rows

    def read(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        *,
        limit: int | None = None,
        row_numbers: bool = False,
        trace: ReadTrace | None = None,
        entry_meta: bool = False,
    ) -> pa.Table:
        """See `Table.read`."""
        chosen = self if row_numbers else self._chosen(start, stop, filter)
        return super(SystemTable, chosen).read(
            columns,
            start,
            stop,
            filter,
            limit=limit,
            row_numbers=row_numbers,
            trace=trace,
            entry_meta=entry_meta,
        )

    def scan(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        batch_rows: int | None = None,
        *,
        row_numbers: bool = False,
        trace: ReadTrace | None = None,
        prefetch: bool = True,
    ) -> pa.RecordBatchReader:
        """See `Table.scan`."""
        chosen = self if row_numbers else self._chosen(start, stop, filter)
        return super(SystemTable, chosen).scan(
            columns,
            start,
            stop,
            filter,
            batch_rows,
            row_numbers=row_numbers,
            trace=trace,
            prefetch=prefetch,
        )

    def _scan_few(
        self,
        columns: Sequence[str],
        filter: Filter | None,
        batch_rows: int | None,
        trace: ReadTrace | None = None,
        numbered: bool = False,
    ) -> pa.RecordBatchReader:
        """See `Table._scan_few`."""
        chosen = self._chosen(0, None, filter)
        return super(SystemTable, chosen)._scan_few(columns, filter, batch_rows, trace, numbered)

    def _chosen(self, start: int, stop: int | None, filter: Filter | None) -> SystemTable:
        """Return the table with only the rows that may pass the filter; itself for row numbers."""
        parsed = self._parse(filter)
        if parsed is None or start or stop is not None or self.definition.name not in _NAMED_BY:
            return self
        pushed = [*pushed_conditions(self.definition.name, parsed.tree, self._rows.log)]
        if not pushed:
            return self
        rows = self._rows.with_conditions(pushed)
        return SystemTable(self.definition.name, rows, self.page_handler, self._open_table)


def pushed_conditions(name: str, tree: Tree, log: LogSnapshot) -> Iterator[Pushed]:
    """Conditions on table 0 that follow from a filter on one of the tables."""
    for condition in _all_of(tree):
        if condition.operator not in _PUSHED:
            continue
        if condition.column == _NAMED_BY[name] and condition.operator in _EQUAL:
            values = _values(condition)
            if len(values) <= MOST_TABLES:
                ids = {each for value in values for each in log.ids_of_name(str(value))}
                yield ("table_id", "in", sorted(ids) or [_FIRST_ID])
        if condition.column in _PLAIN:
            yield (condition.column, condition.operator, condition.value)


def _all_of(tree: Tree) -> Iterator[Condition]:
    """Conditions that each row meets which passes."""
    match tree:
        case Condition():
            yield tree
        case AllOf(parts):
            for part in parts:
                yield from _all_of(part)
        case AnyOf(parts):
            possible = [part for part in parts if not _is_never(part)]
            equal = [part for part in possible if isinstance(part, Condition) and part.operator in _EQUAL]
            if len(possible) == 1:
                yield from _all_of(possible[0])
            elif equal and len(equal) == len(possible) and len({part.column for part in equal}) == 1:
                values = [value for part in equal for value in _values(part)]
                yield Condition(equal[0].column, "in", values)


def _is_never(tree: Tree) -> bool:
    match tree:
        case AnyOf(parts):
            return all(map(_is_never, parts))
        case AllOf(parts):
            return any(map(_is_never, parts))
    return False


def _values(condition: Condition) -> list[object]:
    """Return the values that a condition compares a column to by equality."""
    given = condition.value if condition.operator == "in" else [condition.value]
    return [value.as_py() if isinstance(value, pa.Scalar) else value for value in given]


class _Chains(LogSnapshot):
    """A version of the log, in which a table that is not in storage has chains."""

    def __init__(self, log: LogSnapshot, name: str, rows: CatalogRows, definition: TableDefinition) -> None:
        super().__init__(log.state, log.checkpoint)
        self._rows = rows
        self._layout = LAYOUTS[name]
        self._before = BUILT_IN_ROWS if name == "namespaces" else {}
        self._columns: dict[int, str] = {number: column for column, number in definition.field_ids.items()}
        self._made: dict[ChainKey, ColumnChain] = {}

    @cached_property
    def _count(self) -> int:
        return len(self._rows) + len(self._before.get("name", ()))

    def chain(self, key: ChainKey) -> ColumnChain:
        """Return the chain of a column."""
        known = self._made.get(key)
        if known is None:
            column = self._columns[key[1]]
            kind, build = self._layout.columns[column]
            expand = partial(_pages, self._rows, kind, build, self._before.get(column, []), key[1])
            promised = UnloadedRun(-(-self._count // _PAGE_ROWS), self._count, expand)
            known = self._made[key] = ColumnChain([promised] if self._count else [])
        return known


def _pages(
    rows: CatalogRows, kind: pa.DataType, build: Make, before: Sequence[Any], field_id: int
) -> list[PageRun]:
    """Return the pages of one column."""
    values = build(rows) if len(rows) else pa.array([], kind)
    if before:
        values = pa.concat_arrays([pa.array(before, kind), values.cast(kind)])
    made = []
    for start in range(0, len(values), _PAGE_ROWS):
        page = values.slice(start, _PAGE_ROWS)
        encoded = encode_page(page, codec=Codec.NONE)
        made.append(
            NewPage(
                len(page), len(page), PageKind.INLINE, None, 0, 0, encoded.actual_len, encoded.checksum,
                bytes(encoded.data), page_stats(page),
            )
        )  # fmt: skip
    pages, stats = page_batches(made)
    ids = pa.array((np.arange(len(made)) + (field_id << 32)).astype(np.int64))
    return [PageRun(pages.set_column(0, pages.schema.field(0), ids), lambda: stats)]
