"""PageDirectory: which page holds which row (seed 000), as of one version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spark_pages.arguments import (
    MOST_NUMBER,
    Moment,
    as_int,
    as_upper_bound,
    check_callable,
    check_kind,
    number_list,
    shortened,
)
from spark_pages.boundary import guarded, public_names
from spark_pages.catalog.identifiers import LogicalFieldId, PhysicalKey
from spark_pages.catalog.resolve import find_column, same_column
from spark_pages.errors import (
    DamageError,
    InvalidInputError,
    ObjectNotFoundError,
    PageNotFoundError,
    RowOutOfRangeError,
)
from spark_pages.log.reopen import reopening
from spark_pages.log.replay import read_manifests
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain import ColumnChain, RunSlice
from spark_pages.model.ids import LIVENESS, parse_page_id
from spark_pages.model.page import PageDescriptor, PageSlice
from spark_pages.model.row_index import RowLocations, row_out_of_range
from spark_pages.model.run import RowLocation
from spark_pages.model.table import TableDefinition
from spark_pages.query.live_rows import marks_of
from spark_pages.runtime import Mapper


@guarded("locate_row")
class PageDirectory:
    """Answers which pages hold which rows of a table.

    Parameters
    ----------
    snapshot, definition
        The version, and the table in it.
    as_of
        Gives the directory of the same table as of a time in microseconds since the epoch.
    open_again
        Opens a version from what is kept now, where an object has gone.

    Notes
    -----
    Immutable, so readers take no lock. A chain's segments are loaded when a question touches them.
    """

    def __init__(
        self,
        snapshot: LogSnapshot,
        definition: TableDefinition,
        as_of: Callable[[int], PageDirectory] | None = None,
        open_again: Callable[[int], LogSnapshot] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self.definition = definition
        self._as_of = as_of
        self._open_again = open_again
        self._chains: dict[str, ColumnChain] = {}
        self._may_have_dead_rows = definition.may_have_dead_rows

    def __dir__(self) -> list[str]:
        return public_names(self, _INTERNAL)

    def __repr__(self) -> str:
        return f"PageDirectory({self.definition.name!r}, version {self._snapshot.state.version})"

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reopen the same version on the retained objects; see `spark_pages.log.reopen`.

        Raises
        ------
        SnapshotExpiredError
            If retention has passed the version.
        """
        check_kind(missing, ObjectNotFoundError, "missing", "an ObjectNotFoundError")
        if self._open_again is None:
            raise missing
        self._snapshot = self._open_again(self._snapshot.state.version)
        self._chains = {}

    def chain(self, column: str) -> ColumnChain:
        """Return the chain of a column.

        Raises
        ------
        ColumnNotFoundError
            If the table has no such column.
        DamageError
            If its length is not that of the other columns; see `check_lengths`.
        """
        chains = self._chains  # if another thread reopens the version, they are not used any more
        chain = chains.get(column) if isinstance(column, str) else None
        if chain is None:
            name = find_column(self.definition, column)
            if name != column:
                return self.chain(name)
            chain = chains[name] = self.chain_of(self.key(name))
            self.check_lengths([name])
        return chain

    def check_lengths(self, columns: Iterable[str]) -> None:
        """Refuse columns of an aligned table of another length than the one looked at first.

        Parameters
        ----------
        columns
            Some that have been looked at.

        Raises
        ------
        DamageError
            Tells how long they are.

        Notes
        -----
        Loads nothing: a column of which too little is loaded to tell its length passes. No commit of ours
        leaves such a table. Replay, which knows of changes alone, cannot see it; `verify` looks at all.
        """
        chains = dict(self._chains)  # other threads look at more, or reopen the version
        first = next(iter(chains), None)
        if first is None or not self.definition.aligned:
            return
        length = chains[first].known_rows
        for column in columns:
            rows = chains[column].known_rows if column in chains else None
            if rows != length and None not in (rows, length):
                name, version = self.definition.name, self._snapshot.state.version
                raise DamageError(
                    f"Cannot read table {name!r}: its columns should be equally long at version "
                    f"{version}, but {first!r} has {length} rows, and {column!r} {rows}.",
                    hint="Run `spark-pages verify URL`: it names the commit. `store.restore` goes back to "
                    "an earlier version.",
                )

    def of_unfinished(self) -> PageDirectory:
        """Return the directory of a table whose columns may differ in length inside a transaction."""
        definition = replace(self.definition, aligned=False)
        unfinished = PageDirectory(self._snapshot, definition, self._as_of, self._open_again)
        unfinished._may_have_dead_rows = self._may_have_dead_rows
        return unfinished

    def marks(self) -> PageDirectory | None:
        """Return the directory of the liveness chain; None if no row of the table is dead."""
        snapshot, definition = self._snapshot, self.definition
        if not (self._may_have_dead_rows and snapshot.has_dead_rows):
            return None
        if not snapshot.chain((definition.table_id, LIVENESS)).num_rows:
            return None
        return PageDirectory(snapshot, marks_of(definition), None, self._open_again)

    @property
    def dead_rows(self) -> int:
        """How many rows of the table are dead."""
        return self._snapshot.dead_rows(self.definition.table_id) if self._may_have_dead_rows else 0

    def key(self, column: str) -> PhysicalKey:
        """Return the key of a column's chain.

        Raises
        ------
        ColumnNotFoundError
            If the table has no such column.
        """
        definition = self.definition
        field_id = definition.field_ids[find_column(definition, column)]
        field = LogicalFieldId(definition.namespace_id, definition.table_id, field_id)
        return field.physical

    def chain_of(self, key: PhysicalKey) -> ColumnChain:
        """Return the chain of a key. A chain without writes has no pages."""
        check_kind(key, tuple, "key", "a PhysicalKey")
        if len(key) != 2 or not all(type(each) is int for each in key):
            raise InvalidInputError(
                f"Cannot use {shortened(key)} as key: expected a PhysicalKey, two ids.",
                hint="Pass what `directory.key(column)` returns.",
            )
        return self._snapshot.chain(key)

    @reopening
    def load(self, at_once: Mapper) -> None:
        """Load the pages of all columns.

        Parameters
        ----------
        at_once
            Reads several page manifests at a time; each is read once.
        """
        check_callable(at_once, "at_once")
        chains = [self.chain(column) for column in self.definition.field_ids]
        held = read_manifests([piece for chain in chains for piece in chain.pieces], at_once)
        for chain in chains:
            chain.all_pages()
        del held

    @reopening
    def pages_from(self, column: str, start: int, stop: int) -> RunSlice:
        """Return the pages of a column at positions [start, stop), and their first row.

        Raises
        ------
        InvalidInputError
            If the column has no such positions.

        Notes
        -----
        Keeps none of what it loads: who goes through a long chain so needs memory for one stretch.
        """
        start, stop = as_int(start, "start"), as_int(stop, "stop")
        chain = self.chain(column)
        if not 0 <= start <= stop <= chain.num_pages:
            raise InvalidInputError(
                f"Cannot find pages [{start}, {stop}) of column {column!r} of table "
                f"{self.definition.name!r}: it has {chain.num_pages} pages, numbered from 0.",
                hint=f"Pass `start` and `stop` from 0 to {chain.num_pages}.",
            )
        return ColumnChain(chain.pieces).pages_from(start, stop)

    @reopening
    def latest(self, column: str) -> PageDescriptor | None:
        """Return the last page of the column, or None for an empty column."""
        return self.chain(column).latest()

    def locate_row(self, column: str, row: int) -> RowLocation:
        """Find the page that holds a row, and the offset of the row in it.

        Raises
        ------
        RowOutOfRangeError
            If the column has no such row.

        Notes
        -----
        O(log pages), no I/O once the segment is loaded; cold, one request for each floor of the tree.
        """
        if type(row) is not int:
            row = as_int(row, "row")
        try:  # not by the decorator: this is asked a million times a second
            chain = self._chains.get(column) or self.chain(column)
            return chain.locate_row(row)
        except TypeError:
            find_column(self.definition, column)
            raise
        except ObjectNotFoundError:
            return self._locate_after_reopen(column, row)
        except RowOutOfRangeError as error:
            raise self._no_such_row(column, error) from None
        except ValueError:
            as_int(row, "row")  # of too many digits to be shown
            raise

    @reopening
    def _locate_after_reopen(self, column: str, row: int) -> RowLocation:
        return self.chain(column).locate_row(row)

    @reopening
    def locate_rows(self, column: str, rows: ArrayLike) -> RowLocations:
        """`locate_row` for many rows at once: page positions and offsets as arrays.

        Parameters
        ----------
        rows : integers, shape (n_rows,)
            In any order, from 0.

        Raises
        ------
        RowOutOfRangeError, InvalidInputError
            If the column has no such row; if they are no list of integers.
        """
        chain = self.chain(column)
        wanted = row_numbers(rows, chain.known_rows, self.definition.name)
        try:
            return chain.locate_rows(wanted.view(np.uint64))
        except RowOutOfRangeError as error:
            raise self._no_such_row(column, error) from None

    def _no_such_row(self, column: str, error: RowOutOfRangeError) -> RowOutOfRangeError:
        named = f"column {column!r} of table {self.definition.name!r}"
        return row_out_of_range(error.context["row"], error.context["num_rows"], named)

    @reopening
    def locate_range(self, column: str, start: int, end: int) -> list[PageSlice]:
        """Find the pages that rows [start, end) touch, each with the offsets to read.

        Raises
        ------
        RowOutOfRangeError
            If the range is not inside the column.
        """
        return self.chain(column).locate_range(as_int(start, "start"), as_int(end, "end"))

    def range(self, column: str, l: int, r: int, ts: Moment | None = None) -> list[PageDescriptor]:  # noqa: E741
        """List the pages that rows [l, r) touch, of this version or as of a time.

        Parameters
        ----------
        ts
            A time as `Store.snapshot` takes it; the column is the one that has this name in *this* version,
            whatever it and its table were called then. None and 0 ask for this version: seed 000 ignores the
            argument.

        Raises
        ------
        TableNotFoundError, ColumnNotFoundError
            If the table or column was not there at that time.
        RowOutOfRangeError
            If the range is not inside the column.
        """
        time_us = 0 if ts is None else as_upper_bound(ts, "ts")
        if not time_us:
            return [piece.page for piece in self.locate_range(column, l, r)]
        then = self._directory_at(time_us)
        name = same_column(then.definition, column, self.definition, then._snapshot.state.version)
        return then.range(name, l, r)

    def _directory_at(self, timestamp_us: int) -> PageDirectory:
        """Return the directory of the same table at a time, under any name.

        Raises
        ------
        TableNotFoundError
            If the table was not there.
        """
        if self._as_of is None:
            raise InvalidInputError(
                f"Cannot look up pages of table {self.definition.name!r} as of a time: this directory shows "
                "what a transaction has not committed.",
                hint="Use the directory of a committed version: `store.snapshot().table(name).directory`.",
            )
        return self._as_of(timestamp_us)

    def get_latest_page_meta(self, column: str) -> PageDescriptor | None:
        """`latest` under the name of seed 001."""
        return self.latest(column)

    def get_ranged_pages_meta(
        self, column: str, l_bound: int, r_bound: int, commit_time_upper_bound: Moment
    ) -> list[PageDescriptor]:
        """`range` as of a commit time, under the name of seed 001: table and column by id."""
        return self.range(column, l_bound, r_bound, commit_time_upper_bound)

    @reopening
    def lookup(self, page_id: str | int, column: str | None = None) -> PageDescriptor:
        """Find the descriptor of a page by its id.

        Raises
        ------
        PageNotFoundError
            If no column, or not the column given, has that page in this version.

        Notes
        -----
        Loads the chains that it searches: name the column where you know it.
        """
        wanted = parse_page_id(page_id)
        if column is not None:
            column = find_column(self.definition, column)
        for name in self.definition.field_ids if column is None else [column]:
            pages = self.chain(name).all_pages()
            found: Any = np.flatnonzero(pages.page_ids == wanted)
            if len(found):
                return pages.descriptor(int(found[0]))
        where = "any column" if column is None else f"column {column!r}"
        raise PageNotFoundError(
            f"Cannot find page {page_id} in {where} of table {self.definition.name!r}: version "
            f"{self._snapshot.state.version} has none of that id.",
            hint="It may have been replaced since: open the version that still had it, "
            "`store.snapshot(version)`.",
        )


def row_numbers(rows: ArrayLike, num_rows: int | None, table: str) -> NDArray[np.int64]:
    """Validate the row numbers of a caller.

    Parameters
    ----------
    num_rows
        Rows of the table; None where that would have to be read, and who looks for the rows finds out.

    Raises
    ------
    RowOutOfRangeError
        If there is no such row.
    InvalidInputError
        If they are no list of integers.
    """
    wanted = number_list(rows)
    if not wanted.size:
        return np.zeros(0, dtype=np.int64)
    if wanted.dtype.kind not in "iu" or wanted.ndim != 1:
        raise InvalidInputError(
            f"Cannot use rows of type {wanted.dtype}: expected a list of integers from 0.",
            hint="Convert them first: `numpy.asarray(rows, dtype=numpy.int64)`.",
        )
    for row in (int(wanted.min()), int(wanted.max())):
        if not 0 <= row <= MOST_NUMBER or (num_rows is not None and row >= num_rows):
            has = "rows are" if num_rows is None else f"it has {num_rows} rows,"
            raise RowOutOfRangeError(
                f"Cannot find row {row} of table {table!r}: {has} numbered from 0.",
                hint="Compare with `table.num_rows` first.",
                row=row,
                num_rows=num_rows,
            )
    return wanted.astype(np.int64)


_INTERNAL = frozenset(
    (
        "chain_of",
        "check_lengths",
        "dead_rows",
        "key",
        "load",
        "marks",
        "of_unfinished",
        "pages_from",
        "reopen",
    )
)
"""Methods for the library itself, which `dir` leaves out."""
