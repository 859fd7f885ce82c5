"""Dead rows of tables: how many there are after each commit, and which ones at a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.errors import SnapshotExpiredError
from spark_pages.io import PageHandler
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.ids import LIVENESS, page_id
from spark_pages.model.row_ranges import RowRanges


def dead_among(
    snapshot: LogSnapshot | None, table_id: int, among: RowRanges, pages: PageHandler
) -> RowRanges:
    """Those of some rows that are dead at a version. Reads the pages of the liveness chain that hold them."""
    nothing = RowRanges.of(0, 0)
    if snapshot is None or not snapshot.has_dead_rows or table_id >= snapshot.state.next_table_id:
        return nothing
    chain = snapshot.chain((table_id, LIVENESS))
    inside = among.between(0, chain.num_rows)
    if not inside.num_rows:
        return nothing
    cut = chain.select(inside.starts.astype(np.uint64), inside.ends.astype(np.uint64))
    batches = pages.get_pages(cut.run.descriptors(0, cut.run.num_pages))
    shares = zip(batches, cut.starts.tolist(), cut.stops.tolist(), strict=True)
    live = np.concatenate([valid_of(batch.column(0))[start:stop] for batch, start, stop in shares])
    dead = inside.rows()[~live]
    return RowRanges.joined(np.stack([dead, dead + 1], axis=1))


_CLEARS = (IntentKind.TRUNCATE, IntentKind.PURGE)


class DeadRows:
    """Follows the liveness chains of tables, commit by commit.

    Parameters
    ----------
    base
        Gives the version before the stretch; None before there was one. Opened where a table has a liveness
        chain.
    """

    def __init__(self, base: Callable[[], LogSnapshot | None]) -> None:
        self._base = base
        self._nulls: dict[int, dict[int, int]] = {}

    def count(self, table_id: int) -> int:
        """Dead rows of a table after the last commit."""
        return sum(self._of(table_id).values())

    def go_on(
        self, record: TransactionRecord, version: int, intents: Iterable[CatalogIntent], table_id: int
    ) -> None:
        """Go on by what a transaction does to one table.

        Raises
        ------
        SnapshotExpiredError
            If a page manifest, which is not read, lists pages of its liveness chain.
        """
        if any(intent.kind in _CLEARS for intent in intents):
            self._nulls[table_id] = {}
        for splice in record.splices:
            if splice.table_id == table_id and splice.field_id == LIVENESS:
                self._splice(record, splice, version)

    def _splice(self, record: TransactionRecord, splice: Splice, version: int) -> None:
        pages = self._of(int(splice.table_id))
        if splice.source:
            raise SnapshotExpiredError(
                f"Cannot count the rows deleted in version {version}: a page manifest lists their marks.",
                hint=f"`store.changes({version}, {version}, granularity='rows')` names them.",
            )
        for page in splice.removed:
            pages.pop(page, None)
        nulls = numbers_of(record.stats.column("null_count"))[splice.start : splice.stop].tolist()
        first = page_id(version, record.base_ordinal + splice.start) if nulls else 0
        pages.update(zip(range(first, first + len(nulls)), nulls, strict=True))

    def _of(self, table_id: int) -> dict[int, int]:
        """Null counts of the pages of its liveness chain, by page id."""
        if table_id not in self._nulls:
            base, pages = self._base(), {}
            if base is not None and base.has_dead_rows and table_id < base.state.next_table_id:
                run = base.chain((table_id, LIVENESS)).all_pages()
                counts = numbers_of(run.stats.column("null_count")).tolist()
                pages = dict(zip(run.page_ids.tolist(), counts, strict=True))
            self._nulls[table_id] = pages
        return self._nulls[table_id]
