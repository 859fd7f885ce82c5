"""Rows that a transaction appends and changes, from what the caller gives to staged splices.

`StagedRows.append` cuts and encodes; `settle` and `rewrite` put all of it into the workspace; `swap` says
what is committed instead where little was appended. Memory is bounded: see `EarlyPages` and `WaitingUpdates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.arguments import check_names_once, number_list
from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import check_available, check_columns
from spark_pages.errors import InvalidInputError, RowOutOfRangeError, SparkPagesError
from spark_pages.format.values import NOT_ARROW, RowStream, cast_chunks, read_stream
from spark_pages.model.ids import TableId, is_temporary
from spark_pages.model.row_index import row_out_of_range
from spark_pages.model.table import TableDefinition
from spark_pages.query.page_metadata import PageMeta
from spark_pages.query.table import Table
from spark_pages.runtime import Spawn
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.ingest import NOTHING_BESIDE, TableIngest
from spark_pages.transaction.page_file_names import PageFileNames
from spark_pages.transaction.page_flush import EarlyPages
from spark_pages.transaction.page_writer import INLINE_PAGE_BYTES, StagedPage
from spark_pages.transaction.pending_updates import WaitingUpdates
from spark_pages.transaction.placement import PlacedChanges, StagedSplice, place_in_memory
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.rewritten_pages import rewrite_pages
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.tail_merge import TailMerge, swapped_tails, tail_page_bytes
from spark_pages.transaction.update_buffer import SortedUpdates

_PIECE_BYTES = 16 << 20

_AT_ONCE_BYTES = 256 << 20


class StagedRows:
    """The rows of one transaction.

    Parameters
    ----------
    work
        Receives the splices.
    store, spawn, page_files
        For pages that are written before the commit.
    standing
        The version that the transaction stands on.
    memory_bytes
        Memory that pages may take.
    """

    def __init__(
        self,
        work: StagedChanges,
        store: ObjectStore,
        spawn: Spawn,
        page_files: PageFileNames,
        standing: ReadVersion,
        memory_bytes: int,
    ) -> None:
        self._work = work
        self._store = store
        self._standing = standing
        self._memory_bytes = memory_bytes
        self._held_bytes = 0
        self._early = EarlyPages(store, page_files.next_for, spawn)
        self._names = page_files
        self._ingests: dict[TableId, TableIngest] = {}
        self._updates = WaitingUpdates(work, memory_bytes // 16)

    @property
    def at_once_bytes(self) -> int:
        """So many bytes of rows are worked on together."""
        return max(1, min(_AT_ONCE_BYTES, self._memory_bytes // 8))

    def learn(self, definition: TableDefinition) -> None:
        """What an append to the table reads has been read, before any of its rows are taken."""
        if definition.table_id not in self._ingests:
            self._rows_before(definition)
            self._names.namespace(definition)

    def append(
        self,
        definition: TableDefinition,
        rows: RowStream,
        page_bytes: int,
        metas: Mapping[str, PageMeta] = NOTHING_BESIDE,
        *,
        settled: bool = False,
    ) -> None:
        """The rows stand behind those of the table; see `Transaction.append`.

        Parameters
        ----------
        metas
            What they have beside them, by column.
        settled
            Whether they are in pages of staged splices then; those of unaligned tables always are.
        """
        if not settled and definition.aligned:
            self._append(definition, rows, page_bytes, metas)
            return
        with self._all_or_nothing():
            self._append(definition, rows, page_bytes, metas)
            self.settle()

    def _append(
        self, definition: TableDefinition, rows: RowStream, page_bytes: int, metas: Mapping[str, PageMeta]
    ) -> None:
        before = self._work.definitions.get(definition.table_id)
        ingest = self._ingests.get(definition.table_id)
        if ingest is None or not definition.aligned:
            ingest = self._begin(definition, rows.columns, page_bytes)
        marks = ingest.mark()
        try:
            ingest.check(rows)
            first = 0
            for piece in rows.pieces(max(1, min(_PIECE_BYTES, self._memory_bytes // 8))):
                end = first + piece.num_rows
                beside = {name: meta.slice(first, end) for name, meta in metas.items()}
                self._held_bytes += ingest.add(piece, beside)
                self._stay_in_budget()
                first = end
            ingest.own()
        except BaseException:
            ingest.rewind(marks)
            if before is None:  # nothing of the table is written to
                del self._ingests[definition.table_id], self._work.definitions[definition.table_id]
            raise

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """If what is done in it fails, what was staged before is staged, and nothing else."""
        ingests, splices = dict(self._ingests), list(self._work.splices)
        marks = {table_id: ingest.mark() for table_id, ingest in ingests.items()}
        try:
            yield
        except BaseException:
            self._ingests, self._work.splices = ingests, splices
            for table_id, ingest in ingests.items():
                ingest.rewind(marks[table_id])
            raise

    def update(
        self, definition: TableDefinition, table: str, column: str | None, rows: ArrayLike, values: Any
    ) -> None:
        """Rows that the table has hold other values; see `Transaction.update`."""
        self._work.ddl.check_not_truncated(definition, "update rows of")
        numbers, highest = checked_rows(table, rows)
        given = values_by_column(definition, column, len(numbers), values)
        for name in given:
            there = self._standing.base.num_rows((definition.table_id, definition.field_ids[name]))
            if highest >= there:
                beyond = int(numbers[numbers >= there][0])
                raise row_out_of_range(beyond, there, f"column {name!r} of table {table!r}")
        if len(numbers):
            self._updates.take(definition, numbers, given)

    def settle(self) -> None:
        """All rows that were appended are in pages of staged splices; those that cannot be wait as before."""
        for table_id, ingest in list(self._ingests.items()):
            self._held_bytes += ingest.finish()
            del self._ingests[table_id]
            self._take(ingest)
        self._stay_in_budget()

    def rewrite(
        self,
        updates: Mapping[tuple[TableId, str], SortedUpdates],
        table_of: Callable[[TableDefinition], Table],
        within: Mapping[tuple[TableId, str], NDArray[np.int64]] | None = None,
    ) -> list[StagedSplice]:
        """Splices with the pages that updates touch, rewritten; written early where they exceed the memory.

        Parameters
        ----------
        updates
            By table and column.
        table_of
            Gives the table as of the version whose pages give way.
        within
            Ranges of rows by table and column, where only their pages are rewritten; see `rewrite_pages`.
        """
        rewritten: list[StagedSplice] = []
        for table_id, column in updates if within is None else within:
            table = table_of(self._work.definitions[table_id])
            ranges = None if within is None else within[table_id, column]
            for splice in rewrite_pages(table, column, updates[table_id, column], self.at_once_bytes, ranges):
                rewritten.append(splice)
                self._held_bytes += _held_by(splice)
                self._stay_in_budget(rewritten)
        return rewritten

    def let_go(self, rewritten: Iterable[StagedSplice]) -> None:
        """These are not for the commit, and are held by others, if at all."""
        self._held_bytes -= sum(map(_held_by, rewritten))

    def swap(self, now_us: int) -> TailMerge | None:
        """What is committed instead of a plain append, where all that is staged are few rows."""
        base = self._standing.base
        most_bytes = tail_page_bytes(base.state.properties)
        ingests = [each for table_id, each in self._ingests.items() if not is_temporary(table_id)]
        work = self._work
        if not most_bytes or not ingests or work.splices or work.written or work.updates or work.ddl:
            return None
        if any(column.splice.pages for ingest in ingests for column in ingest.columns):
            return None
        splices = swapped_tails(ingests, base, most_bytes)
        if splices is None:
            return None

        def append() -> PlacedChanges:
            self.settle()
            return place_in_memory(self._store, self._work.splices)

        return TailMerge.of(place_in_memory(self._store, splices), splices, base.state, now_us, append)

    @property
    def empty(self) -> bool:
        """Whether no rows wait for their pages."""
        return not self._ingests

    @property
    def are_few(self) -> bool:
        """Whether all that is staged are a few rows that wait: to prepare them takes no request."""
        columns = [column for ingest in self._ingests.values() for column in ingest.columns]
        if self._work.updates or self._work.splices or any(column.splice.pages for column in columns):
            return False
        if any(key_columns(ingest.definition) for ingest in self._ingests.values()):
            return False
        return sum([column.waiting_bytes for column in columns]) <= INLINE_PAGE_BYTES

    def clear(self) -> None:
        """Nothing waits any more."""
        self._ingests = {}
        self._updates.clear()

    def forget_temporary(self) -> None:
        """Temporary tables end here, with what was appended to them."""
        for table_id in [table_id for table_id in self._ingests if is_temporary(table_id)]:
            del self._ingests[table_id]
        self._work.forget_temporary()

    def wait(self) -> None:
        """What was written early is durable."""
        self._early.wait()

    def _begin(self, definition: TableDefinition, columns: Iterable[str], page_bytes: int) -> TableIngest:
        """An append of every column, without rows; of an unaligned table, of the columns given."""
        table_id = definition.table_id
        if key_columns(definition):  # compared with the rows that there are, by their numbers
            self._work.definitions[table_id] = definition
            self._standing.pin_latest()
        given = set(columns)
        before = self._rows_before(definition)
        splices = [
            StagedSplice(table_id, field_id, before[field_id], (), 0, [])
            for column, field_id in definition.field_ids.items()
            if definition.aligned or column in given
        ]
        namespace = self._names.namespace(definition)
        inherited = namespace.properties if namespace is not None else {}
        options = PageOptions.of(definition, page_bytes, inherited)
        ingest = TableIngest(definition, options, splices)
        self._ingests[table_id] = ingest
        self._work.definitions[table_id] = definition
        return ingest

    def _rows_before(self, definition: TableDefinition) -> Mapping[int, int]:
        """Rows of each chain of a table with what is staged."""
        table_id = definition.table_id
        staged = self._work.staged_rows(table_id)
        if table_id < 0 or table_id in self._work.ddl.truncated:
            return {field_id: staged.get(field_id, 0) for field_id in definition.field_ids.values()}
        base = self._standing.base
        return {
            field_id: staged.get(field_id, 0) + base.num_rows((table_id, field_id))
            for field_id in definition.field_ids.values()
        }

    def _take(self, ingest: TableIngest) -> None:
        self._work.splices += [column.splice for column in ingest.columns if column.splice.pages]

    def _stay_in_budget(self, more: Sequence[StagedSplice] = ()) -> None:
        """Write pages early where they take a quarter of the memory: that takes two quarters more."""
        if self._held_bytes * 4 <= self._memory_bytes:
            return
        self._standing.pin_latest()  # page files bear the version read, by which vacuum judges them
        open_splices = [column.splice for ingest in self._ingests.values() for column in ingest.columns]
        splices = [*more, *self._work.splices, *open_splices]
        self._early.write([splice for splice in splices if not is_temporary(splice.table_id)])
        self._held_bytes = 0


def _held_by(splice: StagedSplice) -> int:
    """Bytes of its pages that have no place yet."""
    return sum(page.encoded.actual_len for page in splice.pages if isinstance(page, StagedPage))


def checked_rows(table: str, rows: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """Row numbers that a caller gives, perhaps in his memory, and the highest of them; -1 of none.

    Raises
    ------
    InvalidInputError, RowOutOfRangeError
        If they are no list of integers, or one is negative.
    """
    numbers = number_list(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidInputError(f"rows of {table} must be a list of integers from 0.")
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
    if lowest < 0:
        raise RowOutOfRangeError(f"Row {lowest} does not exist: rows are numbered from 0.")
    if highest >= 1 << 63:
        raise RowOutOfRangeError(f"Row {highest} does not exist.")
    return numbers.astype(np.int64, copy=False), highest


def values_by_column(
    definition: TableDefinition, column: str | None, count: int, values: Any
) -> dict[str, list[pa.Array]]:
    """The values that a caller gives for `count` rows, by column and of its type; perhaps in his memory.

    Parameters
    ----------
    column
        The column that they are of; None where `values` is a table, a record batch or a mapping of columns.

    Raises
    ------
    InvalidInputError, ColumnNotFoundError, SchemaMismatchError
    """
    if column is not None:
        check_columns(definition, [column])
        given: Mapping[str, Any] = {column: values}
    elif isinstance(values, Mapping):
        given = values
    elif isinstance(values, pa.Table | pa.RecordBatch) or hasattr(values, "__arrow_c_stream__"):
        given = _columns_of(definition, values)
    else:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: without a column, values must be a table or a mapping of "
            f"columns, found a {type(values).__name__}."
        )
    check_available(definition, check_columns(definition, list(given)))
    cast = {
        name: cast_chunks(each, definition.bare_schema.field(name), definition.name)
        for name, each in given.items()
    }
    for name, arrays in cast.items():
        if sum(map(len, arrays)) != count:
            raise InvalidInputError(
                f"Cannot update {definition.name}.{name}: {count} rows but {sum(map(len, arrays))} values."
            )
    return cast


def _columns_of(definition: TableDefinition, values: Any) -> Mapping[str, Any]:
    """The columns of a table, a record batch or a stream of them.

    Raises
    ------
    InvalidInputError
        If it has no columns with names, or two of one name.
    """
    try:
        whole = values if isinstance(values, pa.Table | pa.RecordBatch) else read_stream(values)
    except SparkPagesError:
        raise  # also a ValueError
    except NOT_ARROW as error:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: without a column, values must be columns with names, and "
            f"Arrow says of this {type(values).__name__}: {error}."
        ) from error
    check_names_once(whole.column_names, f"update {definition.name!r}")
    return dict(zip(whole.column_names, whole.columns, strict=True))
