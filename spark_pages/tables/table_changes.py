"""Tables made, dropped, brought back, renamed, emptied and altered by a transaction.

Names are looked up here as the transaction sees them: what it has staged first, then the version that it
stands on. What becomes of a table that was there is kept in `ddl.StagedDdl`; a table that is new in the
transaction is simply another one afterwards. No page is read or rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.catalog.evolution import with_column, with_properties, with_renamed_column, without_column
from spark_pages.catalog.resolve import find_table, parse_name
from spark_pages.catalog.table_zero import SYSTEM_NAMESPACE
from spark_pages.errors import (
    InvalidInputError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.tables.page_options import PageOptions
from spark_pages.tables.page_writer import StagedPage, stage_constant
from spark_pages.tables.staged_rows import StagedRows
from spark_pages.tables.staging import StagedSplice
from spark_pages.tables.table import Table
from spark_pages.tables.workspace import Workspace

_CONSTANT_ROWS = 1 << 16
"""Rows of one page of a new column: whoever reads a single row of it unfolds a page."""


class TableChanges:
    """The tables of one transaction.

    Parameters
    ----------
    work, rows
        What is staged.
    base, stand_on_newest
        Gives the version that the transaction stands on; makes it the newest.
    table_zero
        Gives the catalog's own table as of that version.
    now_us
        The clock.
    """

    def __init__(
        self,
        work: Workspace,
        rows: StagedRows,
        base: Callable[[], LogSnapshot],
        stand_on_newest: Callable[[], None],
        table_zero: Callable[[], Table],
        now_us: Callable[[], int],
    ) -> None:
        self._work = work
        self._rows = rows
        self._base = base
        self._stand_on_newest = stand_on_newest
        self._table_zero = table_zero
        self._now_us = now_us

    # names

    def find(self, table: str) -> TableDefinition:
        """The table that has this name as the transaction sees it.

        Raises
        ------
        TableNotFoundError
        """
        found = self._known(table)
        if found is None:
            self._stand_on_newest()
            found = find_table(self._base(), table)
            if self._work.ddl.hides(found):
                raise TableNotFoundError(
                    f"There is no table {table!r} any more: this transaction has dropped or renamed it.",
                    table=table,
                )
        return found

    def _known(self, table: str) -> TableDefinition | None:
        name = parse_name(table)
        found = self._work.created.get(name) or self._work.ddl.find(name)
        if found is None:
            found = self._base().table(name)
            if found is not None and self._work.ddl.hides(found):
                return None
        return found

    def _check_free(self, name: str) -> None:
        namespace, _ = parse_name(name)
        if namespace == SYSTEM_NAMESPACE:
            raise InvalidInputError(
                f"Cannot name a table {name!r}: the namespace 'system' is the store's own."
            )
        if self._known(name) is not None:
            raise TableExistsError(
                f"There is a table {name!r} at version {self._base().state.version} already.", table=name
            )

    def _begin(self, table: str) -> TableDefinition:
        """The table, which is about to change; rows staged until now are in pages."""
        self._stand_on_newest()
        self._rows.settle()
        definition = self.find(table)
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(f"Cannot change {table!r}: it is the store's own.")
        return definition

    # whole tables

    def create(self, name: str, schema: pa.Schema, properties: Mapping[str, str], aligned: bool) -> None:
        """See `Transaction.create_table`."""
        self._stand_on_newest()
        self._check_free(name)
        namespace, bare = parse_name(name)
        least = min((definition.table_id for definition in self._work.created.values()), default=0)
        created = TableDefinition(
            table_id=TableId(min(0, least) - 1),
            name=bare,
            schema=with_field_ids(schema),
            next_field_id=len(schema) + 1,
            namespace_id=namespace,
            aligned=aligned,
            properties=dict(properties),
            created_at_us=self._now_us(),
        )
        PageOptions.of(created)
        self._work.created[namespace, bare] = created

    def drop(self, table: str) -> None:
        """See `Transaction.drop_table`."""
        definition = self._begin(table)
        self._work.forget(definition.table_id)
        if definition.table_id < 0:
            del self._work.created[definition.namespace_id, definition.name]
        else:
            self._work.ddl.drop(definition)

    def undrop(self, table: str) -> None:
        """See `Transaction.undrop_table`."""
        self._stand_on_newest()
        self._check_free(table)
        definition = _last_dropped(self._table_zero(), table)
        if definition.table_id in self._work.ddl.dropped:
            raise InvalidInputError(f"{table!r} is dropped by this very transaction: roll it back instead.")
        self._work.ddl.restored[definition.table_id] = definition

    def rename(self, table: str, name: str) -> None:
        """See `Transaction.rename_table`."""
        definition = self._begin(table)
        self._check_free(name)
        namespace, bare = parse_name(name)
        self._alter(definition, replace(definition, namespace_id=namespace, name=bare))

    def truncate(self, table: str) -> None:
        """See `Transaction.truncate_table`."""
        definition = self._begin(table)
        table_id = definition.table_id
        self._work.forget(table_id)
        if table_id >= 0:
            self._work.ddl.truncate(definition)
        for key in [key for key in self._work.ddl.new_columns if key[0] == table_id]:
            self._work.ddl.new_columns[key] = 0

    def set_properties(self, table: str, properties: Mapping[str, str | None]) -> None:
        """See `Transaction.set_table_properties`."""
        definition = self._begin(table)
        changed = with_properties(definition, properties)
        PageOptions.of(changed)
        self._alter(definition, changed)

    # columns

    def add_column(self, table: str, column: pa.Field, default: Any) -> None:
        """See `Transaction.add_column`."""
        definition = self._begin(table)
        changed = with_column(definition, column)
        PageOptions.of(changed)
        before, now = self._lengths(definition)
        try:
            value = pa.scalar(default, column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatchError(
                f"{default!r} is no value of column {column.name!r} of type {column.type}: {error}"
            ) from error
        if now and not column.nullable and not value.is_valid:
            raise SchemaMismatchError(
                f"Cannot add column {column.name!r} to {table!r}: it is not nullable, and {now} rows have no "
                f"value for it.",
                hint="Give a default.",
            )
        self._alter(definition, changed)
        field_id = FieldId(definition.next_field_id)
        if now:
            splice = StagedSplice(
                definition.table_id, field_id, 0, (), 0, _constants(value, now), touched=((0, now),)
            )
            self._work.splices.append(splice)
            self._work.definitions[definition.table_id] = changed
        self._work.ddl.new_columns[definition.table_id, field_id] = before

    def drop_column(self, table: str, column: str) -> None:
        """See `Transaction.drop_column`."""
        definition = self._begin(table)
        changed = without_column(definition, column)
        key = (definition.table_id, definition.field_ids[column])
        self._work.splices = [s for s in self._work.splices if (s.table_id, s.field_id) != key]
        self._work.updates.pop((definition.table_id, column), None)
        self._work.ddl.new_columns.pop(key, None)
        self._alter(definition, changed)

    def rename_column(self, table: str, column: str, name: str) -> None:
        """See `Transaction.rename_column`."""
        definition = self._begin(table)
        changed = with_renamed_column(definition, column, name)
        updates = self._work.updates.pop((definition.table_id, column), None)
        if updates is not None:
            self._work.updates[definition.table_id, name] = updates
        self._alter(definition, changed)

    def _alter(self, old: TableDefinition, new: TableDefinition) -> None:
        work = self._work
        if old.table_id < 0:
            work.created = {
                (d.namespace_id, d.name): d
                for d in (new if each is old else each for each in work.created.values())
            }
        else:
            work.ddl.alter(old, new)
        if old.table_id in work.definitions:
            work.definitions[old.table_id] = new

    def _lengths(self, definition: TableDefinition) -> tuple[int, int]:
        """Rows of the table before anything staged, and with what is staged."""
        table_id = definition.table_id
        columns = [*definition.field_ids.values()]
        gone = table_id < 0 or table_id in self._work.ddl.truncated
        lengths = []
        for field_id in columns[:1] if definition.aligned else columns:
            new = self._work.ddl.new_columns.get((table_id, field_id))
            before = 0 if gone else self._base().num_rows((table_id, field_id)) if new is None else new
            staged = self._work.staged_rows(table_id, field_id) - (new or 0)
            lengths.append((before, before + staged))
        return min(before for before, _ in lengths), min(now for _, now in lengths)


def _constants(value: pa.Scalar, count: int) -> list[StagedPage]:
    """Pages of a column in which all rows are equal."""
    whole, rest = divmod(count, _CONSTANT_ROWS)
    page = stage_constant(value, _CONSTANT_ROWS)
    return [page] * whole + ([stage_constant(value, rest)] if rest else [])


def _last_dropped(zero: Table, table: str) -> TableDefinition:
    """The table of this name that was dropped last, as table 0 tells it.

    Raises
    ------
    TableNotFoundError
        If there is none.
    """
    namespace, name = parse_name(table)
    columns = ["table_id", "deleted_by", "arrow_schema", "metadata", "created_at"]
    conditions = [("kind", "==", "table"), ("namespace_id", "==", namespace), ("name", "==", name)]
    named = zero.read(columns, filter=conditions)
    ids = pc.unique(named.column("table_id"))
    of_tables = zero.read(
        ["table_id", "deleted_by", "field_id"], filter=[("table_id", "in", ids.to_pylist() or [0])]
    )
    live = of_tables.filter(of_tables.column("deleted_by").is_null()).column("table_id")
    gone = named.filter(pc.invert(pc.is_in(named.column("table_id"), pc.unique(live))))
    if not gone.num_rows:
        raise TableNotFoundError(f"No table {table!r} has been dropped.", table=table)
    last = gone.sort_by("deleted_by").slice(gone.num_rows - 1).to_pylist()[0]
    told = json.loads(last["metadata"])
    fields = of_tables.filter(pc.equal(of_tables.column("table_id"), last["table_id"])).column("field_id")
    return TableDefinition(
        table_id=TableId(last["table_id"]),
        name=name,
        schema=pa.ipc.read_schema(pa.py_buffer(last["arrow_schema"])),
        next_field_id=pc.max(fields).as_py() + 1,
        namespace_id=namespace,
        aligned=told["aligned"],
        properties=told["properties"],
        created_at_us=pa.scalar(last["created_at"], pa.timestamp("us", tz="UTC")).value,
    )
