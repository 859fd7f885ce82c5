"""A transaction: changes are staged, pages reach storage, one commit makes all of it visible.

Follow a commit from `Transaction.append` (pages are encoded) over `_prepare` (pages get their places)
to `_record` (what the log is told, formed anew on each rebase) and `Log.commit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.catalog.bootstrap import describe
from spark_pages.catalog.resolve import check_columns, find_table, parse_name, show_name
from spark_pages.catalog.table_zero import SYSTEM_NAMESPACE
from spark_pages.errors import (
    InvalidInputError,
    RaggedTableError,
    RowOutOfRangeError,
    SchemaMismatchError,
    TableExistsError,
)
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.log.commit_protocol import AlreadyLanded
from spark_pages.log.features import check_writable
from spark_pages.log.log import Log
from spark_pages.log.names import page_file_key
from spark_pages.log.state import LogState, TableName
from spark_pages.model.actions import CatalogIntent, IntentKind, ManifestRef, TransactionRecord
from spark_pages.model.ids import CATALOG_TABLE, FieldId, TableId
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, NewPage, concat_batches, page_batches
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.page_writer import StagedPage, stage_column, stage_constant
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.staging import Prepared, StagedSplice, place_splices
from spark_pages.tables.updates import Updates, rewrite_pages
from spark_pages.tables.values import as_table, cast_column


class Transaction:
    """Changes that become visible together, or not at all.

    Obtained from `Store.transaction`; a context manager that commits on leaving and rolls back on an
    exception.

    Attributes
    ----------
    version
        The committed version; None before the commit, and the read version if nothing was staged.
    """

    def __init__(
        self,
        log: Log,
        snapshot: Snapshot,
        runtime: Runtime,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        isolation: str = "snapshot",
        page_bytes: int = TARGET_PAGE_BYTES,
    ) -> None:
        if isolation not in ("snapshot", "serializable"):
            raise InvalidInputError(f"isolation is {isolation!r}: expected 'snapshot' or 'serializable'.")
        if (app_id is None) != (app_version is None):
            raise InvalidInputError("app_id and app_version go together: give both or neither.")
        check_writable(snapshot.log.state.features)
        self.snapshot = snapshot
        self.version: int | None = None
        self._log = log
        self._runtime = runtime
        self._operation = operation
        self._parameters = dict(parameters or {})
        self._app = (app_id, app_version)
        self._serializable = isolation == "serializable"
        self._page_bytes = page_bytes
        self._token = runtime.token()
        self._created: dict[TableName, TableDefinition] = {}
        self._splices: list[StagedSplice] = []
        self._updates: dict[tuple[str, str], Updates] = {}
        self._properties: dict[str, str] = {}
        self._file_count = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            self.commit()
        else:
            self.rollback()

    def __repr__(self) -> str:
        state = f"committed as version {self.version}" if self.version is not None else "open"
        return f"Transaction({self._operation!r}, reads version {self.snapshot.version}, {state})"

    # staging

    def create_table(
        self,
        name: str,
        schema: pa.Schema,
        *,
        properties: Mapping[str, str] | None = None,
        aligned: bool = True,
    ) -> None:
        """The table exists from this commit on, without rows.

        Parameters
        ----------
        name
            ``table``, or ``namespace.table``.
        schema
            Column names and types; each column gets an id that is never used again.
        properties
            Free text by key.
        aligned
            Whether all columns must hold equally many rows after every commit.

        Raises
        ------
        TableExistsError, InvalidInputError
        """
        self._check_open()
        namespace, bare = parse_name(name)
        if namespace == SYSTEM_NAMESPACE:
            raise InvalidInputError(f"Cannot create {name!r}: the namespace 'system' is the store's own.")
        key = (namespace, bare)
        if key in self._created or self.snapshot.log.table(key) is not None:
            raise TableExistsError(
                f"There is a table {name!r} at version {self.snapshot.version} already.", table=name
            )
        self._created[key] = TableDefinition(
            table_id=TableId(-1 - len(self._created)),
            name=bare,
            schema=with_field_ids(schema),
            next_field_id=len(schema) + 1,
            namespace_id=namespace,
            aligned=aligned,
            properties=dict(properties or {}),
            created_at_us=self._runtime.now_us(),
        )

    def append(self, table: str, data: Any) -> None:
        """The rows stand behind the rows that the table has, from this commit on.

        Parameters
        ----------
        table
            Its name; may be new in this transaction.
        data
            Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``: a pyarrow or Polars table, a
            record batch reader, a DuckDB relation. Missing nullable columns are filled with null.

        Raises
        ------
        SchemaMismatchError
            If a column is unknown, missing though not nullable, or of a type that does not fit.

        Notes
        -----
        Pages are encoded now and reach storage at commit.
        """
        self._check_open()
        definition = self._definition(table)
        rows = as_table(data)
        unknown = sorted(set(rows.column_names) - set(definition.field_ids))
        if unknown and definition.aligned:
            raise SchemaMismatchError(
                f"Cannot append to {table!r}: it has no column {', '.join(map(repr, unknown))}; it has "
                f"{', '.join(definition.field_ids)}."
            )
        if not rows.num_rows:
            return
        for column, field_id in definition.field_ids.items():
            if column not in rows.column_names and not definition.aligned:
                continue
            pages = self._stage(definition, rows, column)
            key = (definition.table_id, field_id)
            first_row = sum(s.added_entries for s in self._splices if (s.table_id, s.field_id) == key)
            if definition.table_id >= 0:
                first_row += self.snapshot.log.chain(key).num_rows
            self._splices.append(
                StagedSplice(
                    definition.table_id,
                    field_id,
                    first_row,
                    (),
                    0,
                    pages,
                    touched=((first_row, first_row + rows.num_rows),),
                )
            )

    def update(self, table: str, column: str, rows: ArrayLike, values: Any) -> None:
        """The rows of one column hold other values from this commit on.

        Parameters
        ----------
        rows
            Row numbers from 0, in any order, of rows that the snapshot read by the transaction has.
        values
            As many values, in the same order. The last one wins where a row is named twice.

        Raises
        ------
        RowOutOfRangeError, SchemaMismatchError, InvalidInputError

        Notes
        -----
        Each page that holds one of the rows is read and rewritten once, at commit.
        """
        self._check_open()
        definition = find_table(self.snapshot.log, table)
        check_columns(definition, [column])
        numbers = np.asarray(rows)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InvalidInputError(f"rows of {table}.{column} must be a list of integers from 0.")
        array = cast_column(values, definition.bare_schema.field(column), table)
        if len(array) != len(numbers):
            raise InvalidInputError(
                f"Cannot update {table}.{column}: {len(numbers)} rows but {len(array)} values."
            )
        if len(numbers) and int(numbers.min()) < 0:
            raise RowOutOfRangeError(f"Row {int(numbers.min())} does not exist: rows are numbered from 0.")
        key = (definition.table_id, definition.field_ids[column])
        self.snapshot.log.chain(key).locate_rows(numbers.astype(np.uint64))
        updates = self._updates.setdefault((show_name(definition), column), Updates())
        updates.rows.append(numbers.astype(np.int64))
        updates.values.append(array)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """The store has these properties from this commit on."""
        self._check_open()
        self._properties.update(properties)

    def replace_pages(
        self,
        table_id: TableId,
        field_id: FieldId,
        first_row: int,
        removed: Iterable[int],
        pages: list[NewPage],
    ) -> None:
        """A run of pages gives way to other pages with the same rows (page compaction).

        Parameters
        ----------
        first_row
            Row at which the run begins.
        removed
            Ids of the run, in order.
        pages
            Written pages that hold the same rows.
        """
        self._check_open()
        entries = sum(page.entry_count for page in pages)
        self._splices.append(
            StagedSplice(table_id, field_id, first_row, tuple(removed), entries, pages, data_change=False)
        )

    @property
    def store(self) -> ObjectStore:
        """Where page files go."""
        return self._log.store

    def next_page_file(self) -> str:
        """Key of the next page file of this transaction."""
        self._file_count += 1
        return page_file_key(self.snapshot.version, self._token, self._file_count - 1)

    # finishing

    def rollback(self) -> None:
        """Nothing staged will ever be visible."""
        self._closed = True
        self._splices.clear()
        self._updates.clear()
        self._created.clear()

    def commit(self) -> int:
        """All that was staged is in the log, durably; gives the version.

        Raises
        ------
        CommitConflictError, CommitUnknownError, RaggedTableError
        """
        self._check_open()
        landed = self._landed(self.snapshot.log.state)
        if landed is not None:
            self.rollback()
            self.version = landed
            return landed
        prepared = self._prepare()
        self._closed = True
        if prepared is None:
            self.version = self.snapshot.version
            return self.version
        outcome = self._log.commit(
            self.snapshot.log, lambda state: self._record(prepared, state), self._relied_on()
        )
        self.version = outcome.version
        return self.version

    def _relied_on(self) -> frozenset[int]:
        """Tables whose rows must not change before the commit."""
        if not self._serializable:
            return frozenset()
        return frozenset(s.table_id for s in self._splices if s.table_id >= 0)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInputError("The transaction has ended: open another one with store.transaction().")

    def _landed(self, state: LogState) -> int | None:
        app_id, app_version = self._app
        if app_id is None or app_version is None or app_id not in state.apps:
            return None
        newest, version = state.apps[app_id]
        return version if newest >= app_version else None

    def _definition(self, table: str) -> TableDefinition:
        return self._created.get(parse_name(table)) or find_table(self.snapshot.log, table)

    def _stage(self, definition: TableDefinition, rows: pa.Table, column: str) -> list[StagedPage]:
        wanted = definition.bare_schema.field(column)
        if column not in rows.column_names:
            if not wanted.nullable:
                raise SchemaMismatchError(
                    f"Cannot append to {definition.name!r}: column {column!r} is missing and not nullable."
                )
            return [stage_constant(pa.scalar(None, wanted.type), rows.num_rows)]
        return stage_column(cast_column(rows.column(column), wanted, definition.name), self._page_bytes)

    def _prepare(self) -> Prepared | None:
        """Give every page its place; nothing refers to them before the commit."""
        for (table, column), updates in self._updates.items():
            self._splices[:0] = rewrite_pages(self.snapshot.table(table), column, updates)
        self._updates.clear()
        if not (self._splices or self._created or self._properties):
            return None
        self._check_ragged()
        return place_splices(self._log.store, self._splices, self.next_page_file, self._token)

    def _check_ragged(self) -> None:
        growth: dict[int, dict[int, int]] = {}
        for splice in self._splices:
            per_field = growth.setdefault(splice.table_id, {})
            per_field[splice.field_id] = (
                per_field.get(splice.field_id, 0) + splice.added_entries - splice.removed_entries
            )
        definitions = {d.table_id: d for d in [*self._created.values(), *self.snapshot.log.tables()]}
        for table_id, per_field in growth.items():
            definition = definitions[TableId(table_id)]
            sizes = {name: per_field.get(field_id, 0) for name, field_id in definition.field_ids.items()}
            if definition.aligned and len(set(sizes.values())) > 1:
                raise RaggedTableError(
                    f"The columns of {definition.name!r} would grow by different numbers of rows: {sizes}."
                )

    def _record(self, prepared: Prepared, state: LogState) -> TransactionRecord | AlreadyLanded:
        """What the log is told, on top of `state`: final table ids, and the rows of table 0."""
        landed = self._landed(state)
        if landed is not None:
            return AlreadyLanded(landed)
        final = {
            definition.table_id: TableId(state.next_table_id + index)
            for index, definition in enumerate(self._created.values())
        }
        created = [replace(d, table_id=final[d.table_id]) for d in self._created.values()]
        splices = [
            replace(splice, table_id=final.get(splice.table_id, splice.table_id))
            for splice in prepared.splices
        ]
        pages, stats = prepared.pages, prepared.stats
        if created:
            rows_before = self._log.bind(state).chain((CATALOG_TABLE, 1)).num_rows
            described, catalog_splices = describe(created, rows_before, first_page=pages.num_rows)
            more_pages, more_stats = page_batches(described)
            pages = concat_batches([pages, more_pages], PAGE_SCHEMA)
            stats = concat_batches([stats, more_stats], STATS_SCHEMA)
            splices += catalog_splices
        manifests: tuple[ManifestRef, ...] = ()
        if prepared.manifest is not None:
            manifests = (replace(prepared.manifest, base_ordinal=pages.num_rows),)
        return TransactionRecord(
            token=self._token,
            operation=self._operation,
            parameters=self._parameters,
            writer=writer_name(),
            app_id=self._app[0],
            app_version=self._app[1],
            read_version=self.snapshot.version,
            pages=pages,
            stats=stats,
            manifests=manifests,
            splices=tuple(splices),
            intents=tuple(
                CatalogIntent(IntentKind.CREATE, d.table_id, d.namespace_id, d.name, d) for d in created
            ),
            properties=self._properties,
        )
