"""The directory of a transaction: shows what is staged, and stages pages of other writers (seed 000).

Start at `StagedDirectory.register_batch`. `page_intake.py` looks at the pages; here they are put into the
staged splices of their columns: behind the last page, or in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import MOST_NUMBER, as_int, as_list, as_str, check_kind, shortened
from spark_pages.arrow.columns import number_column
from spark_pages.boundary import guarded
from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.evolution import stored_types
from spark_pages.catalog.identifiers import PhysicalKey
from spark_pages.catalog.resolve import find_column, find_columns, show_name
from spark_pages.errors import InvalidInputError, ObjectNotFoundError
from spark_pages.model.added_pages import NewPage
from spark_pages.model.chain import ColumnChain
from spark_pages.model.ids import FieldId, PageId, TableId, page_id
from spark_pages.model.names import fold_name
from spark_pages.model.page import PageDescriptor, PendingPage
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.query.directory import PageDirectory
from spark_pages.transaction.constraints import RowTests
from spark_pages.transaction.page_intake import PageIntake, described, resized_page, same_payload
from spark_pages.transaction.page_writer import StagedPage
from spark_pages.transaction.placement import Staged, StagedSplice
from spark_pages.transaction.staged_tables import StagedNames, committed_directory, staged_directory
from spark_pages.transaction.state import TransactionState

_MOST_PAGES = 1024
"""A splice with so many pages is not added to, so that pages registered one by one cost the same each."""

_OTHERS = -(1 << 59)
"""From here down: pages that a commit adds by itself, such as the nulls of a new column. These ids change
with what is staged beside them."""


class ProvisionalIds:
    """Assign ids to the pages that a transaction has staged. A page keeps its id as long as it is staged."""

    def __init__(self) -> None:
        self._next = count(1)
        self._known: dict[int, tuple[Staged, PageId]] = {}  # by identity: pages may be equal

    def of(self, page: Staged) -> PageId:
        """Return the id of a page."""
        known = self._known.get(id(page))
        if known is None:
            known = self._known[id(page)] = page, PageId(-next(self._next))
        return known[1]

    def pass_on(self, page: Staged, changed: Staged) -> None:
        """Give a page the id of the one in whose place it is staged."""
        self._known[id(changed)] = changed, self.of(page)

    def of_all(self, pages: Sequence[Staged]) -> NDArray[np.int64]:
        """Return the ids of all staged pages, in order, and drop those of other pages."""
        found = [self.of(page) for page in pages]
        self._known = {id(page): (page, number) for page, number in zip(pages, found, strict=True)}
        return np.array(found, dtype=np.int64)


def with_provisional_ids(chain: ColumnChain, version: int, ids: NDArray[np.int64]) -> ColumnChain:
    """Return the chain with provisional ids for the pages that a commit would add.

    Parameters
    ----------
    version
        Of that commit: the chain shows it on top of the newest version.
    ids : int64, shape (n_pages,)
        By ordinal in that commit.
    """
    first = page_id(version, 0)
    pieces = [_renamed(piece, first, ids) if isinstance(piece, PageRun) else piece for piece in chain.pieces]
    return ColumnChain(pieces)


def _renamed(run: PageRun, first: int, ids: NDArray[np.int64]) -> PageRun:
    ordinals = run.page_ids - first
    if not (ordinals >= 0).any():
        return run
    staged = ids[np.clip(ordinals, 0, max(0, len(ids) - 1))] if len(ids) else np.zeros_like(ordinals)
    new = np.where(ordinals < 0, run.page_ids, np.where(ordinals < len(ids), staged, _OTHERS - ordinals))
    if run.few is not None:
        return PageRun.of_few(new.tolist(), run.few)
    column = run.pages.schema.get_field_index("page_id")
    pages = run.pages.set_column(column, "page_id", number_column(new, pa.int64()))
    return PageRun(pages, lambda: run.stats, run.base_position)


def check_current(state: TransactionState, definition: TableDefinition) -> None:
    """Raise InvalidInputError if the transaction has ended, or no longer knows a table by this definition."""
    state.check_open()
    state.staged.ddl.check_not_truncated(definition, "stage pages of")
    if StagedNames(state).find(show_name(definition)) != definition:
        raise InvalidInputError(
            f"Cannot use this directory of table {definition.name!r}: the transaction has changed the "
            "table since.",
            hint="Ask for it again: `transaction.directory(table)`.",
        )


@guarded()
class StagedDirectory(PageDirectory):
    """A `PageDirectory` that shows what its transaction has staged, and stages more.

    Obtained from `Transaction.directory`. Until the commit a staged page has a provisional id, which is
    negative, and by which `lookup` finds it.

    Parameters
    ----------
    state, definition
        The transaction, and the table; its id is negative while it is new.
    ids
        Of all pages that the transaction stages.

    Notes
    -----
    For one thread, as its transaction is. A call after something was staged builds the state again:
    that takes as long as the transaction has pages.
    """

    def __init__(self, state: TransactionState, definition: TableDefinition, ids: ProvisionalIds) -> None:
        super().__init__(state.base, definition)
        self._state = state
        self._intake = PageIntake(state.store, state.is_page_file_of_another)
        self._seen: tuple[object, ...] = ()
        self._shown: PageDirectory | None = None
        self._ids = ids
        self._ids_by_ordinal = np.zeros(0, np.int64)
        self._provisional: dict[str, ColumnChain] = {}
        self._registered = 0
        self._own: list[StagedSplice] = []

    def __repr__(self) -> str:
        version = self._snapshot.state.version
        return f"StagedDirectory({show_name(self.definition)!r}, on version {version})"

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reopen the same version, with what is staged, on the retained objects."""
        check_kind(missing, ObjectNotFoundError, "missing", "an ObjectNotFoundError")
        if self._shown is None:
            raise missing
        self._shown.reopen(missing)
        self._provisional = {}

    def chain(self, column: str) -> ColumnChain:
        """Return the chain of a column with what is staged; see `PageDirectory.chain`."""
        column = find_column(self.definition, column)
        shown = self._now()
        chain = self._provisional.get(column)
        if chain is None:
            chain = self._provisional[column] = self._with_provisional_ids(shown.chain(column))
        return chain

    def chain_of(self, key: PhysicalKey) -> ColumnChain:
        """Return the chain of a key with what is staged."""
        return self._with_provisional_ids(self._now().chain_of(key))

    def _with_provisional_ids(self, chain: ColumnChain) -> ColumnChain:
        return with_provisional_ids(chain, self._snapshot.state.version + 1, self._ids_by_ordinal)

    def _described(self, page: NewPage | StagedPage) -> PageDescriptor:
        return described(page, self._ids.of(page))

    def _now(self) -> PageDirectory:
        """Return the directory of everything staged so far."""
        check_current(self._state, self.definition)
        seen = (self._registered, len(self._state.staged.splices), self._state.updates.count)
        if self._shown is None or seen != self._seen:
            shown, pages = staged_directory(self._state, show_name(self.definition))
            self._shown, self._seen = shown.of_unfinished(), seen
            self._ids_by_ordinal, self._provisional = self._ids.of_all(pages), {}
        return self._shown

    def _directory_at(self, timestamp_us: int) -> PageDirectory:
        """Return the directory of the same table at a time, without what is staged."""
        return committed_directory(self._state, self.definition)._directory_at(timestamp_us)

    # staging

    def register_page(self, column: str, path: str, offset: int) -> PageDescriptor:
        """Append the page at a location in a file to the column; its header states the sizes.

        Raises
        ------
        InvalidKeyError, ObjectNotFoundError, InvalidInputError, SchemaMismatchError, DamageError
            As in `register_batch`.

        Notes
        -----
        Four requests: the header, then what `register_batch` takes.
        """
        check_current(self._state, self.definition)
        column = find_column(self.definition, column)
        offset = as_int(offset, "offset")
        return self.register_batch([self._intake.header_of(column, path, offset)])[0]

    def register_page_with_sizes(
        self,
        column: str,
        path: str,
        offset: int,
        alloc_len: int,
        actual_len: int,
        entry_count: int,
        *,
        checksum: int | None = None,
        replace_last: bool = False,
    ) -> PageDescriptor:
        """Append the page at a location in a file to the column, with so many rows.

        Parameters and errors are those of `PendingPage` and `register_batch`.
        """
        page = PendingPage(column, path, offset, alloc_len, actual_len, entry_count, checksum, replace_last)
        return self.register_batch([page])[0]

    def register_batch(self, pages: Sequence[PendingPage]) -> list[PageDescriptor]:
        """Append the pages to their columns, in order, either all or none.

        Parameters
        ----------
        pages
            Of files below the root of the store that are complete, durable, and never change again. Where
            `replace_last` is set, the page takes the place of the last one there is at that moment.

        Returns
        -------
        list of PageDescriptor
            As they are staged, with provisional ids.

        Raises
        ------
        InvalidKeyError
            If a path is no key below the root, passes through a symbolic link, or names an object that the
            store itself would delete.
        ObjectNotFoundError
            If there is no such file.
        InvalidInputError
            If a page does not lie in its file or reserves bytes of another one, statistics given are not
            true, or there is no page to replace.
        SchemaMismatchError
            If a page is of another type than its column, or shows nulls that the column may not have.
        DamageError
            If a page is not whole, or its payload not valid; names file and offset.

        Notes
        -----
        Each page is read once, whole: header, checksum, sizes, every offset and every character of its Arrow
        payload are checked. One request for each file, and one for each run of neighbouring pages in it.

        The commit fails with `CommitConflictError` if another one replaced the same page, or, where the
        number of rows changes with `replace_last`, if another one appended to the table or shortened it.
        """
        check_current(self._state, self.definition)
        pages = as_list(pages, PendingPage, "pages", "PendingPages")
        names = find_columns(self.definition, [page.column for page in pages])
        pages = [replace(page, column=name) for page, name in zip(pages, names, strict=True)]
        self._refuse_rules()
        fields = [self.definition.bare_schema.field(page.column) for page in pages]
        taken = self._intake.take(pages, fields)
        self._check_replaced(pages)
        described_pages = [self._described(page) for page in taken]
        by_column: dict[str, list[tuple[NewPage, bool]]] = {}
        for pending, new in zip(pages, taken, strict=True):
            by_column.setdefault(pending.column, []).append((new, pending.replace_last))
        for column, changes in by_column.items():
            self._change_end(column, changes, registered=True)
        return described_pages

    @overload
    def update_latest_entry_count(self, column: str, entry_count: int, /) -> None: ...

    @overload
    def update_latest_entry_count(self, table: str, column: str, entry_count: int, /) -> None: ...

    def update_latest_entry_count(self, *place_and_count: str | int) -> None:
        """Change how many rows the last page of a column shows, without writing it again.

        Parameters
        ----------
        table
            May stand first, as in seed 000; it must be the table of this directory.
        column
            The column.
        entry_count
            Fewer than the payload has entries: the first ones. More: the rows behind are null.

        Raises
        ------
        InvalidInputError
            If the column has no page, or cannot show so many rows.
        SchemaMismatchError
            If rows would be null, and the column is not nullable.

        Notes
        -----
        One request, for the bytes of the page. One of at most 16 KiB is written again all the same: its only
        place may be one that a checkpoint gave it. Conflicts as `replace_last` does.
        """
        check_current(self._state, self.definition)
        if len(place_and_count) not in (2, 3):
            raise InvalidInputError(
                f"Cannot use {shortened(place_and_count)} in update_latest_entry_count: expected "
                "([table,] column, entry_count).",
                hint="Call it as `update_latest_entry_count('n', 100)`.",
            )
        names = [as_str(each, "the name of a table or column") for each in place_and_count[:-1]]
        column = names[-1]
        entry_count = as_int(place_and_count[-1], "entry_count", "a number of rows", 0, MOST_NUMBER)
        known_as = (show_name(self.definition), f"{self.definition.namespace}.{self.definition.name}")
        if len(names) == 2 and fold_name(names[0]) not in map(fold_name, known_as):
            raise InvalidInputError(
                f"Cannot use table {names[0]!r} here: this is the directory of table "
                f"{show_name(self.definition)!r}.",
                hint=f"Ask for `transaction.directory({names[0]!r})`.",
            )
        column = find_column(self.definition, column)
        self._refuse_rules()
        page = self._last(column)
        if page.entry_count != entry_count:
            field = self.definition.schema.field(column)
            resized = resized_page(self._intake.store, page, field, entry_count, stored_types(field))
            if (tail := self._tail(column)) is not None:
                self._ids.pass_on(tail.pages[-1], resized)
            self._change_end(column, [(resized, True)], registered=False)

    def _refuse_rules(self) -> None:
        if key_columns(self.definition) or RowTests.of(self.definition).tests:
            raise InvalidInputError(
                f"Cannot register pages in table {show_name(self.definition)!r}: it has constraints, "
                "and registered pages are not validated.",
                hint="Append the rows instead, `transaction.append`, or drop the constraints.",
            )

    # how splices are put together

    def _tail(self, column: str) -> StagedSplice | None:
        """Return the staged splice with the last page of a column; None if the base holds that page."""
        key = self._key(column)
        latest = self._base_latest(column)
        for splice in reversed(self._state.staged.splices):
            if (splice.table_id, splice.field_id) != key or not splice.pages:
                continue
            if not splice.removed or (latest is not None and splice.removed[-1] == latest.page_id):
                return splice
        return None

    def _last(self, column: str) -> PageDescriptor:
        """Return the last page of a column with what is staged.

        Raises
        ------
        InvalidInputError
            If there is none, or this transaction has compacted it.
        """
        tail = self._tail(column)
        if tail is not None and not tail.data_change:
            raise InvalidInputError(
                f"Cannot change the last page of column {column!r}: this transaction compacted it.",
                hint="Change it in another `store.transaction()`.",
            )
        latest = self._base_latest(column) if tail is None else self._described(tail.pages[-1])
        if latest is None:
            raise InvalidInputError(
                f"Cannot change the last page of column {column!r} of {show_name(self.definition)!r}: "
                "it has none that could be changed.",
                hint="Register or append one first: `register_page`, `transaction.append`.",
            )
        return latest

    def _base_latest(self, column: str) -> PageDescriptor | None:
        """Return the last page of the column in the read version."""
        table_id, _ = key = self._key(column)
        return self._snapshot.chain(key).latest() if table_id >= 0 else None

    def _key(self, column: str) -> tuple[TableId, FieldId]:
        return self.definition.table_id, self.definition.field_ids[column]

    def _change_end(
        self, column: str, changes: Sequence[tuple[NewPage | StagedPage, bool]], *, registered: bool
    ) -> None:
        """Each page stands behind the last one, or, where that is said, in its place."""
        self._registered += 1
        tail = self._tail(column)
        pages = [] if tail is None else [*tail.pages]
        changed = False
        for page, replace_last in changes:
            if tail is None or not (replace_last or (tail in self._own and len(pages) < _MOST_PAGES)):
                if tail is not None and changed:
                    self._finish(column, tail, pages, registered)
                tail, pages = self._begin(column, replace_last), []
            elif replace_last:
                pages.pop()
            pages.append(page)
            changed = True
        if tail is not None and changed:
            self._finish(column, tail, pages, registered)

    def _begin(self, column: str, replace_last: bool) -> StagedSplice:
        """Create a splice without pages: an append, or one that removes the last page of the base."""
        table_id, field_id = key = self._key(column)
        first_row = self._state.staged.staged_rows(key[0]).get(key[1], 0)
        if table_id >= 0:
            first_row += self._snapshot.num_rows(key)
        splice = StagedSplice(table_id, field_id, first_row, (), 0, [])
        if replace_last:
            latest = self._last(column)
            splice.first_row -= latest.entry_count
            splice.removed, splice.removed_entries = (latest.page_id,), latest.entry_count
        self._state.staged.definitions[self.definition.table_id] = self.definition
        self._state.staged.splices.append(splice)
        self._own.append(splice)
        return splice

    def _finish(
        self, column: str, tail: StagedSplice, pages: Sequence[NewPage | StagedPage], registered: bool
    ) -> None:
        """Set the pages of a splice, and which of its rows are new or changed.

        A page that shows its old number of rows again is no change. One that was registered stays even with
        the rows of the page before: it lies elsewhere.
        """
        tail.pages = pages
        begin, end = tail.first_row, tail.first_row + tail.added_entries
        latest = self._base_latest(column) if tail.removed else None
        first = self._described(pages[0])
        if latest is not None and len(tail.removed) == 1 and same_payload(first, latest):
            begin += min(first.entry_count, latest.entry_count)
            if len(pages) == 1 and first.entry_count == latest.entry_count and not registered:
                self._state.staged.splices.remove(tail)
                self._own = [splice for splice in self._own if splice is not tail]
        tail.touched = ((begin, end),) if begin < end else ()

    def _check_replaced(self, pages: Sequence[PendingPage]) -> None:
        """Each page that is to be replaced is there: in the column, or earlier among these."""
        there: set[str] = set()
        for page in pages:
            if page.replace_last and page.column not in there:
                self._last(page.column)
            there.add(page.column)
