"""Tables as a transaction sees them: the version that it stands on, and on top of it what is staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from spark_pages.log.log import Log
from spark_pages.log.reopen import moving_on
from spark_pages.log.replay import Fold
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.ids import TableId
from spark_pages.query.directory import PageDirectory
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.transaction.placement import Prepared, StagedSplice, pages_in_order, place_in_memory
from spark_pages.transaction.provisional_ids import Staged
from spark_pages.transaction.read_version import Standing
from spark_pages.transaction.staged import Heading, Workspace
from spark_pages.transaction.staged_rows import StagedRows
from spark_pages.transaction.update_buffer import SortedUpdates


class StagedTables:
    """The tables of one transaction.

    Parameters
    ----------
    log, view
        Gives snapshots, and what readers see of one.
    heading, work, rows, standing
        What the transaction says of itself, what is staged, and on what.
    """

    def __init__(
        self,
        log: Log,
        view: Callable[[LogSnapshot], Snapshot],
        heading: Heading,
        work: Workspace,
        rows: StagedRows,
        standing: Standing,
    ) -> None:
        self._log = log
        self._view = view
        self._heading = heading
        self._work = work
        self._rows = rows
        self._standing = standing

    def snapshot(self) -> Snapshot:
        """The version that the transaction stands on; what is staged is not in it."""
        return self._view(self._standing.base)

    def of_state(self, state: LogState) -> Snapshot:
        """What readers see of a state of the log."""
        return self._view(self._log.bind(state))

    def move_on(self) -> int:
        """The transaction stands on what is kept; see `Standing.move_on`."""
        return self._standing.move_on(is_used=not (self._work.empty and self._rows.empty))

    @moving_on
    def table(self, name: str, on_read: Callable[[TableId], object] | None = None) -> Table:
        """A table with everything that is staged.

        Parameters
        ----------
        on_read
            Told the ids of tables whose rows it shows, see `Snapshot.watched`.
        """
        return self.with_pages(name, self._pending(ragged=False), on_read=on_read)

    @moving_on
    def directory(self, name: str) -> tuple[PageDirectory, list[Staged]]:
        """The pages of a table with everything that is staged, whose columns may differ in length.

        Returns
        -------
        directory
            Staged pages are in it as pages of the next version.
        pages
            All pages that are staged, for whatever table, by their ordinals in that version.
        """
        pending = self._pending(ragged=True)
        found = self.with_pages(name, pending).directory
        return found, pages_in_order(pending.splices)

    def _pending(self, ragged: bool) -> Workspace:
        """What is staged, with the pages that updates touch in the place of the updates."""
        self._rows.settle()
        rewritten = self.rewrites()
        self._rows.let_go(rewritten)
        pending = self._work.with_pages(rewritten)
        pending.check_removed_once()
        if not ragged:
            pending.check_ragged()
        return pending

    def with_pages(
        self,
        name: str,
        pending: Workspace,
        placed: Prepared | None = None,
        on_read: Callable[[TableId], object] | None = None,
    ) -> Table:
        """A table with what is staged in another workspace: its pages, or those that are placed already."""
        self._rows.wait()
        placed = placed or place_in_memory(self._log.store, pending.splices)
        return self.table_with(name, pending, placed, on_read=on_read)

    def table_with(
        self,
        name: str,
        work: Workspace,
        prepared: Prepared,
        base: LogSnapshot | None = None,
        on_read: Callable[[TableId], object] | None = None,
    ) -> Table:
        """A table with what is staged in another workspace, whose pages have their places.

        Parameters
        ----------
        base
            A newer version than the one that the transaction stands on.
        """
        base = base or self._standing.base
        record = work.record(self._heading, prepared, self._standing.version, base.state, self.of_state)

        def on(below: LogSnapshot) -> LogSnapshot:
            fold = Fold(below.state, self._log.load_manifest)
            fold.record(record, below.state.version + 1)
            return self._log.bind(fold.state(), below)

        staged = self._view(on(base)).uncommitted(lambda version: on(self._log.reopen(version)))
        return (staged if on_read is None else staged.watched(on_read)).table(name)

    def updates(self) -> dict[tuple[TableId, str], SortedUpdates]:
        """What is updated, by table and column."""
        return {key: each.sorted() for key, each in self._work.updates.items()}

    def rewrites(self) -> list[StagedSplice]:
        """Pages that updates touch, rewritten; see `StagedRows.rewrite`."""
        updates = self._work.updates
        return self._rows.rewrite(self.updates(), self.snapshot().table_of) if updates else []

    def rewrites_on(
        self,
        base: LogSnapshot,
        updates: Mapping[tuple[TableId, str], SortedUpdates],
        within: Mapping[tuple[TableId, str], NDArray[np.int64]],
    ) -> list[StagedSplice]:
        """The same of a newer version: the pages that hold some ranges of these rows."""
        return self._rows.rewrite(updates, self._view(base).table_of, within)
