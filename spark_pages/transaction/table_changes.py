"""Tables made, dropped, brought back, renamed and emptied by a transaction.

Names are looked up as the transaction sees them (`staged_names.StagedNames`). What becomes of a table that
was there is kept in `ddl.StagedDdl`; a table that is new in the transaction is simply another one afterwards.
No page is read or rewritten. Columns are changed in `column_changes.py`, namespaces and types in
`object_changes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.schema_bytes import schema_from_bytes
from spark_pages.catalog.constraints import constraints_of, foreign_keys_to, with_own_name
from spark_pages.catalog.evolution import with_properties
from spark_pages.catalog.facts import as_given, fact
from spark_pages.catalog.namespaces import placed_in
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import parse_name, show_name, split_name
from spark_pages.catalog.types import resolve_schema
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.log.state import TableName
from spark_pages.model.ids import TableId, is_temporary
from spark_pages.model.table import (
    TEMPORARY_NAMESPACE,
    TYPE_KEY,
    TYPE_NAMES,
    TableDefinition,
    with_field_ids,
)
from spark_pages.query.table import Table
from spark_pages.transaction.column_types import stored_columns
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.staged_rows import StagedRows
from spark_pages.transaction.staged_tables import StagedNames, StagedTables


class TableChanges:
    """The tables of one transaction.

    Parameters
    ----------
    work, rows, names
        What is staged, and the names that there are.
    standing, staged
        The version that the transaction stands on, and the tables on top of it.
    now_us
        The clock.
    """

    def __init__(
        self,
        work: StagedChanges,
        rows: StagedRows,
        names: StagedNames,
        standing: ReadVersion,
        staged: StagedTables,
        now_us: Callable[[], int],
    ) -> None:
        self._work = work
        self._rows = rows
        self._names = names
        self._standing = standing
        self._staged = staged
        self._now_us = now_us

    def find(self, table: str) -> TableDefinition:
        """The table that has this name as the transaction sees it.

        Raises
        ------
        TableNotFoundError
        """
        return self._names.find(table)

    def to_write(self, table: str) -> TableDefinition:
        """The same, of a table whose rows users may change.

        Raises
        ------
        TableNotFoundError
        InvalidInputError
            If the table is the store's own.
        """
        definition = self._names.find(table)
        self._names.refuse_system(definition)
        return definition

    def begin(self, table: str) -> TableDefinition:
        """The table, which is about to change; rows staged until now are in pages."""
        self._standing.pin_latest()
        self._rows.settle()
        return self.to_write(table)

    def create(self, name: str, schema: pa.Schema, properties: Mapping[str, str], aligned: bool) -> None:
        """See `Transaction.create_table`."""
        self._standing.pin_latest()
        namespace, bare = self._names.free(name)
        resolved, _ = resolve_schema(as_given(schema), self._names)
        resolved = pa.schema(stored_columns(name, resolved), metadata=resolved.metadata)
        temporary = namespace == TEMPORARY_NAMESPACE
        created = TableDefinition(
            table_id=self._names.new_temporary_id() if temporary else self._names.new_id(),
            name=bare,
            schema=with_field_ids(resolved),
            next_field_id=len(schema) + 1,
            aligned=aligned,
            properties=dict(properties),
            created_at_us=self._now_us(),
        )
        created = placed_in(created, namespace, split_name(name)[0])
        PageOptions.of(created)
        self._names.create(created)

    def drop(self, table: str) -> None:
        """See `Transaction.drop_table`."""
        definition = self.begin(table)
        self._refuse_while_referenced(definition, "drop")
        self._work.forget(definition.table_id)
        if definition.table_id < 0:
            del self._work.created[definition.namespace_id, definition.name]
        else:
            self._work.ddl.drop(definition)

    def undrop(self, table: str) -> None:
        """See `Transaction.undrop_table`."""
        self._standing.pin_latest()
        name = self._names.free(table)
        definition = _last_dropped(
            self._staged.snapshot().table("system.catalog"), table, parse_name(table, self._names)
        )
        if definition.table_id in self._work.ddl.dropped:
            raise InvalidInputError(f"{table!r} is dropped by this very transaction: roll it back instead.")
        self._check_needs(definition)
        self._names.undrop(definition)
        assert name == (definition.namespace_id, definition.name)

    def rename(self, table: str, name: str) -> None:
        """See `Transaction.rename_table`."""
        definition = self.begin(table)
        namespace, bare = self._names.free(name)
        if (namespace == TEMPORARY_NAMESPACE) != is_temporary(definition.table_id):
            raise InvalidInputError(
                f"Cannot rename {table!r} to {name!r}: a temporary table stays one, and no other becomes "
                "one.",
                hint="Create the other table and append the rows.",
            )
        self._refuse_while_referenced(definition, "rename")
        changed = placed_in(replace(definition, name=bare), namespace, split_name(name)[0])
        changed = with_own_name(changed)
        self._names.alter(definition, changed)

    def truncate(self, table: str) -> None:
        """See `Transaction.truncate_table`."""
        definition = self.begin(table)
        table_id = definition.table_id
        self._work.forget(table_id)
        if table_id >= 0:
            self._work.ddl.truncate(definition)
        for key in [key for key in self._work.ddl.new_columns if key[0] == table_id]:
            self._work.ddl.new_columns[key] = 0

    def set_properties(self, table: str, properties: Mapping[str, str | None]) -> None:
        """See `Transaction.set_table_properties`."""
        definition = self.begin(table)
        changed = with_properties(definition, properties)
        PageOptions.of(changed)
        self._names.alter(definition, changed)

    def referencing(self, definition: TableDefinition) -> list[TableDefinition]:
        """Other tables with foreign keys to this one.

        Notes
        -----
        Where any table may have constraints, reads of table 0 what kind its rows are, and the definitions
        of tables that have some.
        """
        ddl = self._work.ddl
        found = [*self._work.created.values(), *ddl.altered.values(), *ddl.restored.values()]
        if self._standing.base.state.features.writer:
            found += filter(
                None,
                map(self._names.table, _with_constraints(self._staged.snapshot().table("system.catalog"))),
            )
        others = {each.table_id: each for each in found if each.table_id != definition.table_id}
        return [each for each in others.values() if foreign_keys_to(each, definition.table_id)]

    def _refuse_while_referenced(self, definition: TableDefinition, what: str) -> None:
        others = self.referencing(definition)
        if others:
            raise InvalidInputError(
                f"Cannot {what} {show_name(definition)!r}: a foreign key of {show_name(others[0])!r} refers "
                "to it.",
                hint="Drop the constraint first.",
            )

    def _check_needs(self, definition: TableDefinition) -> None:
        """Refuse to bring back a table whose types or referenced tables are gone."""
        for column in definition.schema:
            alias = fact(column, TYPE_KEY)
            if alias is None:
                continue
            found = self._names.table((TYPE_NAMES, alias))
            if found is None:
                raise InvalidInputError(
                    f"Cannot bring back {show_name(definition)!r}: its column {column.name!r} is of type "
                    f"{alias!r}, which is gone."
                )
        for constraint in constraints_of(definition):
            if constraint.kind != "foreign key" or constraint.table_id == definition.table_id:
                continue
            other = self._names.known(constraint.table)
            there = set(other.field_ids.values()) if other is not None else set()
            if (
                other is None
                or other.table_id != constraint.table_id
                or not there.issuperset(constraint.fields_there)
            ):
                raise InvalidInputError(
                    f"Cannot bring back {show_name(definition)!r}: its foreign key {constraint.name!r} "
                    f"refers to {constraint.table!r}, which is not what it was.",
                    hint="Bring that table back first.",
                )


def _with_constraints(zero: Table) -> list[TableName]:
    """Names of the live tables of which table 0 holds constraints, also such as have ended."""
    ids = pc.unique(zero.read(["table_id"], filter=[("kind", "==", "constraint")]).column("table_id"))
    if not len(ids):
        return []
    conditions = [("kind", "==", "table"), ("table_id", "in", ids.to_pylist())]
    rows = zero.read(["namespace_id", "name", "deleted_by"], filter=conditions)
    live = rows.filter(rows.column("deleted_by").is_null())
    return list(zip(*(live.column(name).to_pylist() for name in ("namespace_id", "name")), strict=True))


def _last_dropped(zero: Table, table: str, of: tuple[int, str]) -> TableDefinition:
    """The table of this name that was dropped last, as table 0 tells it.

    Raises
    ------
    TableNotFoundError
        If there is none.
    """
    namespace, name = of
    columns = ["table_id", "deleted_by", "arrow_schema", "metadata", "created_at"]
    conditions = [("kind", "==", "table"), ("namespace_id", "==", namespace), ("name", "==", name)]
    named = zero.read(columns, filter=conditions)
    ids = pc.unique(named.column("table_id"))
    of_tables = zero.read(
        ["table_id", "deleted_by", "field_id", "kind"], filter=[("table_id", "in", ids.to_pylist() or [0])]
    )
    live = of_tables.filter(of_tables.column("deleted_by").is_null()).column("table_id")
    ends = of_tables.filter(pc.equal(of_tables.column("kind"), "table"))
    last_rows = (
        ends.group_by("table_id").aggregate([("deleted_by", "max")]).rename_columns(["table_id", "end"])
    )
    gone = named.filter(pc.invert(pc.is_in(named.column("table_id"), pc.unique(live))))
    gone = gone.join(last_rows, "table_id")
    gone = gone.filter(pc.equal(gone.column("deleted_by"), gone.column("end")))  # it had this name to the end
    if not gone.num_rows:
        raise TableNotFoundError(
            f"No table {table!r} has been dropped that can come back.",
            hint="A table comes back until retention has passed its drop, and vacuum gives it up.",
            table=table,
        )
    last = gone.sort_by("deleted_by").slice(gone.num_rows - 1).to_pylist()[0]
    told = json.loads(last["metadata"])
    fields = of_tables.filter(pc.equal(of_tables.column("table_id"), last["table_id"])).column("field_id")
    return TableDefinition(
        table_id=TableId(last["table_id"]),
        name=name,
        schema=schema_from_bytes(last["arrow_schema"]),
        next_field_id=pc.max(fields).as_py() + 1,
        namespace_id=namespace,
        aligned=told["aligned"],
        properties=told["properties"],
        created_at_us=pa.scalar(last["created_at"], pa.timestamp("us", tz="UTC")).value,
    )
