"""A transaction: changes are staged, pages reach storage, one commit makes all of it visible.

Follow a commit from `Transaction.append` (pages are encoded into the `Workspace`) over `commit` (pages get
their places) to `Workspace.record` (what the log is told, formed anew on each rebase) and `Log.commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.catalog.resolve import check_columns, find_table, parse_name
from spark_pages.catalog.table_zero import SYSTEM_NAMESPACE
from spark_pages.errors import (
    CommitConflictError,
    InvalidInputError,
    RowOutOfRangeError,
    SchemaMismatchError,
    TableExistsError,
)
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.log.commit_messages import AlreadyLanded
from spark_pages.log.features import check_writable
from spark_pages.log.log import Log
from spark_pages.log.names import page_file_key
from spark_pages.log.replay import Fold
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import Claim, TransactionRecord
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.run import NewPage
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.page_writer import StagedPage, stage_column, stage_constant
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.staging import Prepared, StagedSplice, place_in_memory, place_splices, stays_inline
from spark_pages.tables.table import Table
from spark_pages.tables.updates import Updates, rewrite_pages
from spark_pages.tables.values import as_table, cast_column
from spark_pages.tables.workspace import Heading, Workspace


class Transaction:
    """Changes that become visible together, or not at all.

    Obtained from `Store.transaction`; a context manager that commits on leaving and rolls back on an
    exception.

    Attributes
    ----------
    version
        The committed version; None before the commit, and the read version if nothing was staged.

    Notes
    -----
    A transaction that only appends a few rows asks storage for nothing before its commit: it stands on the
    newest version that this process knows, and is put behind what others have committed since. Whatever
    reads, updates, creates or writes a page file asks for the newest version first.
    """

    def __init__(
        self,
        log: Log,
        view: Callable[[LogSnapshot], Snapshot],
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
        self.version: int | None = None
        self._log = log
        self._view = view
        self._runtime = runtime
        self._heading = Heading(runtime.token(), operation, dict(parameters or {}), app_id, app_version)
        self._page_bytes = page_bytes
        self._work = Workspace()
        self._relied_on: set[int] | None = set() if isolation == "serializable" else None
        self._file_count = 0
        self._closed = False
        self._is_newest = False
        self._base = log.known()
        check_writable(self._base.state.features)
        if isolation == "serializable":
            self._stand_on_newest()

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
        return f"Transaction({self._heading.operation!r}, reads version {self._read_version}, {state})"

    # reading

    @property
    def snapshot(self) -> Snapshot:
        """The store as the transaction found it; what is staged is not in it."""
        self._stand_on_newest()
        return self._view(self._base)

    def table(self, name: str) -> Table:
        """A table with what this transaction has staged so far.

        Notes
        -----
        Serializable isolation counts the whole table as read.
        """
        self._check_open()
        self._stand_on_newest()
        pending = replace(self._work, splices=[*self._rewrites(), *self._work.splices])
        pending.check_ragged()
        prepared = place_in_memory(self._log.store, pending.splices)
        record = pending.record(self._heading, prepared, self._read_version, self._base.state, self._log.bind)
        fold = Fold(self._base.state, self._log.load_manifest)
        fold.record(record, self._read_version + 1)
        table = self._view(self._log.bind(fold.state(), self._base)).table(name)
        if self._relied_on is not None:
            self._relied_on.add(table.definition.table_id)
        return table

    def _stand_on_newest(self) -> None:
        """Make sure that nothing newer was there when it is asked for first.

        Raises
        ------
        CommitConflictError
            If a table that has been written to is another one by now.
        """
        if self._is_newest:
            return
        newest = self._log.refresh()
        for table_id, definition in self._work.definitions.items():
            name = (definition.namespace_id, definition.name)
            if table_id >= 0 and newest.table(name) != definition:
                raise CommitConflictError(
                    f"Table {definition.name!r} was changed between version {self._read_version}, on which "
                    f"this transaction stands, and version {newest.state.version}. Nothing was committed.",
                    hint="Repeat the transaction.",
                    read_version=self._read_version,
                    conflicting_version=newest.state.version,
                )
        self._base = newest
        self._is_newest = True

    @property
    def _read_version(self) -> int:
        return self._base.state.version

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
        self._stand_on_newest()
        key = (namespace, bare)
        if key in self._work.created or self._base.table(key) is not None:
            raise TableExistsError(
                f"There is a table {name!r} at version {self._read_version} already.", table=name
            )
        self._work.created[key] = TableDefinition(
            table_id=TableId(-1 - len(self._work.created)),
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
        table_id = definition.table_id
        staged: list[StagedSplice] = []
        for column, field_id in definition.field_ids.items():
            if column not in rows.column_names and not definition.aligned:
                continue
            pages = self._stage(definition, rows, column)
            first_row = self._work.staged_rows(table_id, field_id)
            if table_id >= 0:
                first_row += self._base.num_rows((table_id, field_id))
            touched = ((first_row, first_row + rows.num_rows),)
            staged.append(StagedSplice(table_id, field_id, first_row, (), 0, pages, touched=touched))
        self._work.definitions[table_id] = definition
        self._work.splices += staged

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
        self._stand_on_newest()
        definition = find_table(self._base, table)
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
        self._base.chain(key).locate_rows(numbers.astype(np.uint64))
        self._work.definitions[definition.table_id] = definition
        updates = self._work.updates.setdefault((definition.table_id, column), Updates())
        updates.rows.append(numbers.astype(np.int64))
        updates.values.append(array)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """The store has these properties from this commit on."""
        self._check_open()
        self._work.properties.update(properties)

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
        self._work.splices.append(
            StagedSplice(table_id, field_id, first_row, tuple(removed), entries, pages, data_change=False)
        )

    def claim(self, claim: Claim) -> None:
        """An owner says that it works on some rows, or (with expiry 0) that it has finished."""
        self._check_open()
        self._work.claims.append(claim)

    @property
    def store(self) -> ObjectStore:
        """Where page files go."""
        return self._log.store

    def next_page_file(self) -> str:
        """Key of the next page file of this transaction."""
        self._file_count += 1
        return page_file_key(self._read_version, self._heading.token, self._file_count - 1)

    # finishing

    def rollback(self) -> None:
        """Nothing staged will ever be visible."""
        self._closed = True
        self._work = Workspace()

    def commit(self) -> int:
        """All that was staged is in the log, durably; gives the version.

        Raises
        ------
        CommitConflictError, CommitUnknownError, RaggedTableError

        Notes
        -----
        Page files of large transactions are written first, one request each; the commit itself is one more
        where nobody races.
        """
        self._check_open()
        landed = self._landed(self._base.state)
        if landed is not None:
            self.rollback()
            self.version = landed
            return landed
        self._work.splices[:0] = self._rewrites()
        self._work.updates.clear()
        self._work.check_ragged()
        self._closed = True
        if self._work.empty:
            self.version = self._read_version
            return self.version
        if not stays_inline(self._work.splices):
            self._stand_on_newest()  # objects bear the version read, by which vacuum judges them
        token = self._heading.token
        manifest = f"{self._read_version:020d}-{token}-0"
        prepared = place_splices(self._log.store, self._work.splices, self.next_page_file, manifest)
        self.version = self._bring_in(prepared)
        return self.version

    def _bring_in(self, prepared: Prepared) -> int:
        """Commit; where a conflict may only come from standing on an old version, once more on the newest."""
        try:
            return self._log.commit(self._base, self._build(prepared), self._reads()).version
        except CommitConflictError:
            if self._is_newest:
                raise
            self._stand_on_newest()
        return self._log.commit(self._base, self._build(prepared), self._reads()).version

    def _build(self, prepared: Prepared) -> Callable[[LogState], TransactionRecord | AlreadyLanded]:
        def build(state: LogState) -> TransactionRecord | AlreadyLanded:
            landed = self._landed(state)
            if landed is not None:
                return AlreadyLanded(landed)
            return self._work.record(self._heading, prepared, self._read_version, state, self._log.bind)

        return build

    def _reads(self) -> frozenset[int]:
        """Tables whose rows must not change before the commit."""
        return frozenset() if self._relied_on is None else self._work.tables() | self._relied_on

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInputError("The transaction has ended: open another one with store.transaction().")

    def _landed(self, state: LogState) -> int | None:
        app_id, app_version = self._heading.app_id, self._heading.app_version
        if app_id is None or app_version is None or app_id not in state.apps:
            return None
        newest, version = state.apps[app_id]
        return version if newest >= app_version else None

    def _definition(self, table: str) -> TableDefinition:
        name = parse_name(table)
        found = self._work.created.get(name) or self._base.table(name)
        if found is None:
            self._stand_on_newest()
        return found or find_table(self._base, table)

    def _stage(self, definition: TableDefinition, rows: pa.Table, column: str) -> list[StagedPage]:
        wanted = definition.bare_schema.field(column)
        if column not in rows.column_names:
            if not wanted.nullable:
                raise SchemaMismatchError(
                    f"Cannot append to {definition.name!r}: column {column!r} is missing and not nullable."
                )
            return [stage_constant(pa.scalar(None, wanted.type), rows.num_rows)]
        return stage_column(cast_column(rows.column(column), wanted, definition.name), self._page_bytes)

    def _rewrites(self) -> list[StagedSplice]:
        """Pages that updates touch, rewritten."""
        splices: list[StagedSplice] = []
        for (table_id, column), updates in self._work.updates.items():
            definition = self._work.definitions[table_id]
            splices += rewrite_pages(self._view(self._base).table_of(definition), column, updates)
        return splices
