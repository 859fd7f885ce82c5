"""A transaction: changes are staged, pages reach storage, one commit makes all of it visible.

Follow a commit from `Transaction.append` (pages are encoded) over `_prepare` (pages get their places)
to `_record` (what the log is told, formed anew on each rebase) and `Log.commit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.catalog.resolve import check_columns, find_table, parse_name
from spark_pages.catalog.table_zero import SYSTEM_NAMESPACE, catalog_rows, table_zero
from spark_pages.errors import (
    InvalidInputError,
    RaggedTableError,
    RowOutOfRangeError,
    SchemaMismatchError,
    TableExistsError,
)
from spark_pages.io import Codec, encode_page, page_stats, stats_of_pages
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.log.log import Log
from spark_pages.log.names import manifest_key, page_file_key
from spark_pages.log.digest import locate
from spark_pages.log.segment import encode_manifest
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CatalogIntent, IntentKind, ManifestRef, Splice, TransactionRecord
from spark_pages.model.ids import CATALOG_TABLE, FieldId, TableId
from spark_pages.model.page import PageKind
from spark_pages.model.run import NewPage, concat_batches, page_batches, PAGE_SCHEMA, STATS_SCHEMA
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.page_writer import PlacedPages, StagedPage, fits_inline, stage_column, stage_constant
from spark_pages.tables.snapshot import Snapshot

MANIFEST_PAGES = 1000
"""A transaction with more pages than this lists them in a page manifest."""


@dataclass(eq=False, slots=True)
class _StagedSplice:
    table_id: TableId
    field_id: FieldId
    first_row: int
    removed: tuple[int, ...]
    removed_entries: int
    pages: list[StagedPage] | list[NewPage]
    data_change: bool = True
    touched: tuple[tuple[int, int], ...] = ()

    @property
    def added_entries(self) -> int:
        return sum(p.entries if isinstance(p, StagedPage) else p.entry_count for p in self.pages)


@dataclass(eq=False, slots=True)
class _Updates:
    """Updates of one column: later ones win."""

    rows: list[np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)


class _AlreadyLandedError(Exception):
    """The exactly-once pair is in the log already."""

    def __init__(self, version: int) -> None:
        self.version = version


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
        self._created: dict[str, TableDefinition] = {}
        self._splices: list[_StagedSplice] = []
        self._updates: dict[tuple[str, str], _Updates] = {}
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
        if name in self._created or self.snapshot.log.table((namespace, bare)) is not None:
            raise TableExistsError(
                f"There is a table {name!r} at version {self.snapshot.version} already.", table=name
            )
        self._created[name] = TableDefinition(
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
        rows = _as_table(data)
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
            first_row = 0
            if definition.table_id >= 0:
                key = (definition.table_id, field_id)
                first_row = self.snapshot.log.chain(key).num_rows
            self._splices.append(
                _StagedSplice(
                    definition.table_id, field_id, first_row, (), 0, pages,
                    touched=((first_row, first_row + rows.num_rows),),
                )  # fmt: skip
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
        array = _cast(values, definition.bare_schema.field(column), table)
        if len(array) != len(numbers):
            raise InvalidInputError(
                f"Cannot update {table}.{column}: {len(numbers)} rows but {len(array)} values."
            )
        if len(numbers) and int(numbers.min()) < 0:
            raise RowOutOfRangeError(f"Row {int(numbers.min())} does not exist: rows are numbered from 0.")
        key = (definition.table_id, definition.field_ids[column])
        self.snapshot.log.chain(key).locate_rows(numbers.astype(np.uint64))
        updates = self._updates.setdefault((table, column), _Updates())
        updates.rows.append(numbers.astype(np.int64))
        updates.values.append(array)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """The store has these properties from this commit on."""
        self._check_open()
        self._properties.update(properties)

    def replace_pages(
        self, table_id: TableId, field_id: FieldId, first_row: int, removed: Iterable[int], pages: list[NewPage]
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
            _StagedSplice(table_id, field_id, first_row, tuple(removed), entries, pages, data_change=False)
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
        try:
            outcome = self._log.commit(
                self.snapshot.log, lambda state: self._record(prepared, state), self._serializable
            )
            self.version = outcome.version
        except _AlreadyLandedError as landed_meanwhile:
            self.version = landed_meanwhile.version
        return self.version

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
        return self._created.get(table) or find_table(self.snapshot.log, table)

    def _stage(self, definition: TableDefinition, rows: pa.Table, column: str) -> list[StagedPage]:
        wanted = definition.bare_schema.field(column)
        if column not in rows.column_names:
            if not wanted.nullable:
                raise SchemaMismatchError(
                    f"Cannot append to {definition.name!r}: column {column!r} is missing and not nullable."
                )
            return [stage_constant(pa.scalar(None, wanted.type), rows.num_rows)]
        return stage_column(_cast(rows.column(column), wanted, definition.name), self._page_bytes)

    def _prepare(self) -> _Prepared | None:
        """Give every page its place; nothing refers to them before the commit."""
        for (table, column), updates in self._updates.items():
            self._splices[:0] = self._rewrite(table, column, updates)
        self._updates.clear()
        if not (self._splices or self._created or self._properties):
            return None
        self._check_ragged()
        staged = [p for splice in self._splices for p in splice.pages if isinstance(p, StagedPage)]
        inline = fits_inline(staged)
        placed = PlacedPages(self._log.store, self.next_page_file)
        pages: list[NewPage] = []
        splices: list[Splice] = []
        table: int | None = None
        for splice in sorted(self._splices, key=lambda each: (each.table_id, each.field_id)):
            if splice.table_id != table:
                placed.finish_file()
                table = splice.table_id
            start = len(pages)
            for page in splice.pages:
                pages += placed.place([page], inline) if isinstance(page, StagedPage) else [page]
            splices.append(
                Splice(
                    splice.table_id, splice.field_id, splice.first_row, splice.removed,
                    splice.removed_entries, 0, start, len(pages), splice.added_entries,
                    splice.data_change, splice.touched,
                )  # fmt: skip
            )
        placed.finish_file()
        batch, stats = page_batches(pages)
        if len(pages) <= MANIFEST_PAGES:
            return _Prepared(batch, stats, tuple(splices), None)
        data = encode_manifest(batch, stats)
        location = locate(manifest_key(f"{self._token}-0"), data)
        self._log.store.put(location.key, data)
        return _Prepared(
            batch.slice(0, 0),
            stats.slice(0, 0),
            tuple(replace(splice, source=1) for splice in splices),
            ManifestRef(location, 0, len(pages)),
        )

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

    def _rewrite(self, table: str, column: str, updates: _Updates) -> list[_StagedSplice]:
        """Splices that put rewritten pages in the place of those that the updates touch."""
        source = self.snapshot.table(table)
        chain = source.directory.chain(column)
        rows, values = _last_wins(updates)
        found = chain.locate_rows(rows.astype(np.uint64))
        positions, begins = np.unique(found.positions, return_index=True)
        pages = chain.pages_at(positions)
        arrays = source.page_values(column, pages)
        bounds = [*begins.tolist(), len(rows)]
        splices = []
        for index, (page, array) in enumerate(zip(pages, arrays, strict=True)):
            low, high = bounds[index], bounds[index + 1]
            offsets = found.rows_in_page[low:high]
            order = np.arange(len(array))
            order[offsets] = len(array) + np.arange(high - low)
            changed = pa.concat_arrays([array, values.slice(low, high - low)]).take(pa.array(order))
            splices.append(
                _StagedSplice(
                    source.definition.table_id,
                    source.definition.field_ids[column],
                    int(rows[low] - offsets[0]),
                    (page.page_id,),
                    page.entry_count,
                    [StagedPage(encode_page(changed, codec=Codec.LZ4), page_stats(changed))],
                    touched=_ranges(rows[low:high]),
                )
            )
        return splices

    def _record(self, prepared: _Prepared, state: LogState) -> TransactionRecord:
        """What the log is told, on top of `state`: final table ids, and the rows of table 0."""
        landed = self._landed(state)
        if landed is not None:
            raise _AlreadyLandedError(landed)
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
        manifests = ()
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


@dataclass(frozen=True, eq=False, slots=True)
class _Prepared:
    """What stays the same over all rebases of a transaction."""

    pages: pa.RecordBatch
    stats: pa.RecordBatch
    splices: tuple[Splice, ...]
    manifest: ManifestRef | None


def describe(
    definitions: list[TableDefinition], rows_before: int, first_page: int
) -> tuple[list[NewPage], list[Splice]]:
    """Inline pages of table 0 that describe new tables, and the splices that append them."""
    rows = catalog_rows(definitions, rows_before)
    zero = table_zero(0)
    pages: list[NewPage] = []
    splices = []
    for name, field_id in zero.field_ids.items():
        values = rows.column(name)
        encoded = encode_page(values)
        pages.append(
            NewPage(
                len(values), len(values), PageKind.INLINE, None, 0, 0, encoded.actual_len, encoded.checksum,
                bytes(encoded.data), stats_of_pages(values, [0, len(values)])[0],
            )  # fmt: skip
        )
        start = first_page + len(pages) - 1
        splices.append(
            Splice(
                CATALOG_TABLE, field_id, rows_before, (), 0, 0, start, start + 1, len(values),
                touched=((rows_before, rows_before + len(values)),),
            )  # fmt: skip
        )
    return pages, splices


def first_record(runtime: Runtime, properties: Mapping[str, str]) -> TransactionRecord:
    """The record of commit 0: table 0, which describes itself."""
    zero = table_zero(runtime.now_us())
    described, splices = describe([zero], 0, first_page=0)
    pages, stats = page_batches(described)
    return TransactionRecord(
        token=runtime.token(),
        operation="create store",
        read_version=-1,
        writer=writer_name(),
        pages=pages,
        stats=stats,
        splices=tuple(splices),
        intents=(CatalogIntent(IntentKind.CREATE, CATALOG_TABLE, zero.namespace_id, zero.name, zero),),
        properties=dict(properties),
    )


def _as_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    raise InvalidInputError(
        f"Cannot append a {type(data).__name__}: expected something with __arrow_c_stream__, such as a "
        f"pyarrow.Table."
    )


def _cast(values: Any, wanted: pa.Field, table: str) -> pa.Array:
    """The values as one array of the column's type; loses nothing."""
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, wanted.type)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        array = array if array.type == wanted.type else array.cast(wanted.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {table!r} holds {wanted.type}, and the values given do not fit: {error}"
        ) from error
    if not wanted.nullable and array.null_count:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {table!r} is not nullable, but {array.null_count} of the values given "
            f"are null."
        )
    return array


def _last_wins(updates: _Updates) -> tuple[np.ndarray[Any, np.dtype[np.int64]], pa.Array]:
    """Rows, increasing, and the last value given for each."""
    rows = np.concatenate(updates.rows)
    values = pa.concat_arrays(updates.values)
    unique, last = np.unique(rows[::-1], return_index=True)
    return unique, values.take(pa.array(len(rows) - 1 - last))


def _ranges(rows: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[tuple[int, int], ...]:
    """Increasing rows as ranges [start, end)."""
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    starts = rows[np.concatenate([[0], breaks])]
    ends = rows[np.concatenate([breaks - 1, [len(rows) - 1]])] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))
