"""Rows of one table that some commits touched, and the version that did it. Pure, but for chain lengths."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from spark_pages.changes.row_changes import END, Changes
from spark_pages.changes.row_versions import UNKNOWN, RowVersions
from spark_pages.model.actions import Commit, IntentKind
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS, FieldId, TableId
from spark_pages.model.row_ranges import RowRanges, union

Numbers = NDArray[np.int64]


class TouchedRows:
    """Rows that commits after a version touched in a table, fed with one commit after another.

    Parameters
    ----------
    table_id
        The table.
    columns
        Field ids that it has at both ends of the range of versions.
    end_row
        One past its last row number before the first commit.
    rows_then
        Rows that a chain had before the first commit.

    Attributes
    ----------
    kept
        The fewest rows that the table had at any time: rows below have kept their numbers.
    """

    def __init__(
        self,
        table_id: TableId,
        columns: Collection[FieldId],
        end_row: int,
        rows_then: Callable[[ChainKey], int],
    ) -> None:
        self._keys = [(table_id, field_id) for field_id in columns]
        self._marks = table_id, FieldId(LIVENESS)
        self._changes = Changes(rows_then, table_id)
        self._written = RowVersions()
        self._marked = RowVersions()
        self._altered = UNKNOWN
        self._times: list[tuple[int, int]] = []
        self.kept = end_row if columns else 0
        self._shortened: list[tuple[int, int]] = []

    def feed(self, commit: Commit) -> None:
        """Go on by a commit."""
        version = commit.version
        self._times.append((version, commit.timestamp_us))
        written: list[tuple[int, int]] = []
        marked: list[tuple[int, int]] = []
        for record in commit.records:
            for intent in record.intents:
                self._changes.feed_intent(intent, version)
                if intent.table_id == self._marks[0] and intent.kind is not IntentKind.REQUIRE:
                    self._altered = version
            for splice in self._changes.splices(record):
                touched = self._changes.trace((splice.table_id, splice.field_id)).splice(splice)
                written += touched
                marked += touched if splice.field_id == LIVENESS else ()
        self._written.write(written, version)
        self._marked.write(marked, version)
        traces = self._changes.traces
        kept = min([self.kept, *(traces[key].kept for key in self._keys if key in traces)])
        if kept < self.kept:
            self._shortened.append((kept, version))
            self.kept = kept

    @property
    def rows(self) -> RowRanges:
        """Rows that may differ: those touched in a column of both versions, marked, or beyond `kept`."""
        traces = self._changes.traces
        touched = [traces[key].touched for key in (*self._keys, self._marks) if key in traces]
        return union([RowRanges.of(self.kept, END), *touched])

    def written_in(self, rows: Numbers) -> Numbers:
        """Return the version that wrote, marked or, where none did, defined each row last."""
        return self._or_altered(self._written.of(rows))

    def deleted_in(self, rows: Numbers) -> Numbers:
        """Return the version in which each row, dead or gone by now, was deleted."""
        found = self._marked.of(rows)
        if self._shortened:
            lengths, versions = np.array(self._shortened, np.int64).T
            first = np.searchsorted(-lengths, -rows)  # the first time that the table was that short
            shortened = versions[np.minimum(first, len(versions) - 1)]
            found = np.where(rows >= self.kept, shortened, found)
        return self._or_altered(found)

    def _or_altered(self, versions: Numbers) -> Numbers:
        last = self._altered if self._altered != UNKNOWN else self._times[-1][0]
        return np.where(versions == UNKNOWN, last, versions)

    def times_of(self, versions: Numbers) -> Numbers:
        """Return the time of each of some versions, in microseconds since 1970."""
        known, times = np.array(self._times, np.int64).T
        found: Numbers = times[np.searchsorted(known, versions)]
        return found
