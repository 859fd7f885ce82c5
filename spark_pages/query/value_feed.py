"""The change feed with values: rows of a table that differ between two versions, read from the pages of both.

Start at `ValueFeed.batches`. Commits say which rows they touched (`changes/touched_rows.py`); these are read
window by window from both versions, and rows whose values are equal are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import as_str
from spark_pages.arrow.columns import number_column, optional_text
from spark_pages.arrow.equality import equal_entries
from spark_pages.arrow.join import DoesNotFitError, join, take_entries
from spark_pages.arrow.nested import null_column
from spark_pages.arrow.types import cast_to_column, holds_all
from spark_pages.catalog.resolve import same_table, show_name
from spark_pages.changes.feed import check_version_range, find_definition, iterate_commits, open_ends
from spark_pages.changes.row_changes import rows_of
from spark_pages.changes.touched_rows import TouchedRows
from spark_pages.errors import InvalidInputError
from spark_pages.log.commit_times import bounded
from spark_pages.log.log import Log
from spark_pages.log.reopen import retry_after_vacuum
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit
from spark_pages.model.chain import RunSlice
from spark_pages.model.ids import CATALOG_TABLE, FieldId
from spark_pages.model.row_ranges import RowRanges, union
from spark_pages.model.table import TableDefinition
from spark_pages.query.live_rows import row_column
from spark_pages.query.row_reader import Reading, RowReader
from spark_pages.query.scan import SHARED_WINDOW_BYTES as WINDOW_BYTES
from spark_pages.query.scan import batches_of, plan_windows
from spark_pages.query.snapshot import Snapshot


def read_changed_values(
    log: Log, wrap: Callable[[LogSnapshot], Snapshot], start: int, end: int, table: str | None
) -> pa.RecordBatchReader:
    """Stream the rows that the commits from version `start` to `end` changed; see `Store.changes`.

    Parameters
    ----------
    wrap
        Opens the tables of a version of the log.
    """
    if table is None:
        raise InvalidInputError(
            "Cannot read changed values: no table was named.",
            hint="Pass `table`, such as table='flights'.",
        )
    name = as_str(table, "table")
    start, end = check_version_range(start, end)

    def opened() -> ValueFeed:
        then, now = open_ends(log, start, end)
        definition = find_definition(now, then, name)
        commits = iterate_commits(log, start, end + 1)
        return ValueFeed(None if then is None else wrap(then), wrap(now), commits, definition)

    feed = retry_after_vacuum(opened)
    return pa.RecordBatchReader.from_batches(feed.schema, feed.batches())


CHANGE_SCHEMA = pa.schema(
    [
        ("_change", pa.string()),
        ("_row", pa.uint64()),
        ("_version", pa.int64()),
        ("_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""Columns of the feed in front of those of the table."""

CHANGE_KINDS = ("insert", "update_before", "update_after", "delete")
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Fields = Mapping[FieldId, pa.Field]


def feed_fields(definition: TableDefinition, earlier: TableDefinition | None = None) -> Fields:
    """Return the columns of a feed by field id: those of a definition, each of which may be null.

    Parameters
    ----------
    definition
        Names the columns.
    earlier
        The same table before: where it had a wider type, which a restore has undone, the feed has that.

    Raises
    ------
    InvalidInputError
        If rows of the table have no numbers that last, or a column is named as one of the feed.
    """
    name = show_name(definition)
    if not definition.aligned or definition.table_id == CATALOG_TABLE:
        raise InvalidInputError(
            f"Cannot read the changed values of table {name!r}: its columns do not share row numbers.",
            hint="Pass granularity='rows' or granularity='pages' without `values`.",
        )
    taken = [column for column in definition.bare_schema.names if column in CHANGE_SCHEMA.names]
    if taken:
        raise InvalidInputError(
            f"Cannot read the changed values of table {name!r}: the feed has a column {taken[0]!r}, too.",
            hint=f"Rename it: `transaction.rename_column({name!r}, {taken[0]!r}, …)`.",
        )
    before = {} if earlier is None else _types(earlier)
    fields = {}
    for column, field_id in definition.field_ids.items():
        kind = definition.bare_schema.field(column).type
        old = before.get(field_id, kind)
        fields[field_id] = pa.field(column, old if holds_all(old, kind) else kind)
    return fields


def _types(definition: TableDefinition) -> dict[FieldId, pa.DataType]:
    return {field_id: definition.schema.field(name).type for name, field_id in definition.field_ids.items()}


class ValueFeed:
    """Rows of a table that differ between two versions, with their values.

    Parameters
    ----------
    then, now
        The store at both versions; `then` is None before there was one.
    commits
        Those after `then`, up to and with `now`, in order.
    definition
        The table, as of any version.
    fields
        The columns of the feed; by default those of the newer version that has the table.

    Attributes
    ----------
    schema
        Of the batches.
    """

    def __init__(
        self,
        then: Snapshot | None,
        now: Snapshot,
        commits: Iterable[Commit],
        definition: TableDefinition,
        fields: Fields | None = None,
    ) -> None:
        old, new = (_definition_in(each, definition) for each in (then, now))
        self._fields = feed_fields(new or old or definition, old) if fields is None else fields
        self._then, self._now = _Side.of(then, old), _Side.of(now, new)
        self._touched = TouchedRows(
            definition.table_id,
            self._then.names.keys() & self._now.names.keys(),
            self._then.end_row,
            lambda key: rows_of(None if then is None else then.log, key),
        )
        for commit in commits:
            self._touched.feed(commit)
        self.schema = pa.schema([*CHANGE_SCHEMA, *self._fields.values()])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the changed rows in the order of their numbers, a window of both versions at a time.

        Notes
        -----
        Memory follows the ranges of touched rows, and two windows.
        """
        then, now = self._then, self._now
        rows = union([self._touched.rows, *self._filled()])
        both, longest = sorted([then.end_row, now.end_row])
        for part in (rows.between(0, both), rows.between(both, longest)):
            sides = [side for side in (then, now) if part.num_rows and int(part.starts[0]) < side.end_row]
            columns = [(side, name) for side in sides for name in side.planned(self._fields)]
            kinds = [side.kind_of(name) for side, name in columns]
            pieces = partial(_pieces_at, sides, self._fields)
            for window in plan_windows(pieces, kinds, [part], None, WINDOW_BYTES):
                yield from self._window(window)

    def _filled(self) -> Iterator[RowRanges]:
        """Find rows of both versions for which a column that came in between has a value."""
        rows = min(self._then.end_row, self._now.end_row)
        source = self._now.source
        for field_id in self._fields.keys() & (self._now.names.keys() - self._then.names.keys()):
            assert source is not None
            yield source.rows_with_values(self._now.names[field_id], rows)

    def _window(self, ranges: RowRanges) -> Iterator[pa.RecordBatch]:
        try:
            table = self._changed(ranges)
        except DoesNotFitError:
            half = ranges.num_rows // 2
            if not half:
                raise
            yield from self._window(ranges.part(0, half))
            yield from self._window(ranges.part(half, ranges.num_rows))
            return
        if table.num_rows:
            yield from batches_of(table)

    def _changed(self, ranges: RowRanges) -> pa.Table:
        """Return the rows of some ranges that differ, the old row in front of the new one."""
        rows = ranges.rows()
        was, stays = self._then.holds(rows, ranges), self._now.holds(rows, ranges)
        before = self._then.values(rows[was], self._fields)
        after = self._now.values(rows[stays], self._fields)
        common = was & stays
        alike = np.zeros(len(rows), bool)
        alike[common] = _equal_rows(before, common[was], after, common[stays])
        updated = common & (rows < self._touched.kept)
        old, new = was & ~alike, stays & ~alike
        numbers = np.concatenate([rows[old], rows[new]])
        order = np.argsort(2 * numbers + np.repeat([0, 1], [np.count_nonzero(old), np.count_nonzero(new)]))
        places = np.concatenate(
            [np.flatnonzero(old[was]), np.count_nonzero(was) + np.flatnonzero(new[stays])]
        )
        wanted = number_column(places[order].astype(np.int64), pa.int64())
        kinds = np.concatenate(
            [np.where(updated[old], _BEFORE, _DELETE), np.where(updated[new], _AFTER, _INSERT)]
        )
        versions = self._touched.written_in(numbers)
        deleted = kinds == _DELETE
        versions[deleted] = self._touched.deleted_in(numbers[deleted])
        told = _told(kinds[order], numbers[order], versions[order], self._touched)
        pairs = zip(before, after, self._fields.values(), strict=True)
        columns = [take_entries(join([left, right], field.type), wanted) for left, right, field in pairs]
        return pa.table([*told, *columns], schema=self.schema)


@dataclass(frozen=True, eq=False, slots=True)
class _Side:
    """The table at one of the two versions.

    Attributes
    ----------
    source
        Reads its rows; None where the version has no such table.
    names
        Names of its columns by field id.
    end_row
        One past its last row number.
    """

    source: RowReader | None
    names: Mapping[FieldId, str]
    end_row: int

    @classmethod
    def of(cls, snapshot: Snapshot | None, definition: TableDefinition | None) -> _Side:
        if snapshot is None or definition is None:
            return cls(None, {}, 0)
        table = snapshot.table_of(definition)
        names = {field_id: name for name, field_id in definition.field_ids.items()}
        return cls(RowReader(definition, table.directory, table.page_handler), names, table.end_row)

    def planned(self, fields: Fields) -> Sequence[str]:
        """Return the columns by which windows are split: those that are read, or else any one."""
        names = [self.names[field_id] for field_id in fields if field_id in self.names]
        return names or [*self.names.values()][:1]

    def kind_of(self, name: str) -> pa.DataType:
        """Return the type of a column."""
        assert self.source is not None
        kind: pa.DataType = self.source.schema.field(name).type
        return kind

    def holds(self, rows: Numbers, ranges: RowRanges) -> Flags:
        """Whether each of some rows, those of the ranges, is live in the version."""
        inside = rows < self.end_row
        live = None if self.source is None or not inside.any() else self.source.live(ranges)
        return inside if live is None else inside & live

    def values(self, rows: Numbers, fields: Fields) -> list[pa.Array]:
        """Read the values of live rows, null in columns that the version does not have."""
        names = {field_id: self.names[field_id] for field_id in fields if field_id in self.names}
        table = None
        if self.source is not None and len(rows) and names:
            table = self.source.take(list(names.values()), rows, Reading(admit=False))
        return [
            null_column(field.type, len(rows))
            if table is None or field_id not in names
            else _as_field(table.column(names[field_id]), field)
            for field_id, field in fields.items()
        ]


def _definition_in(snapshot: Snapshot | None, definition: TableDefinition) -> TableDefinition | None:
    return None if snapshot is None else same_table(snapshot.log, definition)


def _pieces_at(sides: Sequence[_Side], fields: Fields, row: int, stop: int) -> list[RunSlice]:
    """Return pages of the columns of some versions; see `RowReader.pieces_at`."""
    found: list[RunSlice] = []
    for side in sides:
        assert side.source is not None
        found += side.source.pieces_at(side.planned(fields), row, stop)
    return found


def _as_field(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Return the values as one array of the type of a feed's column."""
    values = join(column.chunks, column.type)
    cast = values if values.type == field.type else cast_to_column(values, field.type)
    if cast is None:
        raise InvalidInputError(
            f"Cannot read the changed values of column {field.name!r}: a value of {column.type} is not one "
            f"of {field.type}.",
            hint="Pin a version in which the column has the wider type, by `versionAsOf`.",
        )
    return cast


def _equal_rows(before: Sequence[pa.Array], left: Flags, after: Sequence[pa.Array], right: Flags) -> Flags:
    """Compare rows that both versions have, in all columns."""
    equal = np.ones(int(np.count_nonzero(left)), bool)
    for one, other in zip(before, after, strict=True):
        equal &= equal_entries(_chosen(one, left), _chosen(other, right))
    return equal


def _chosen(array: pa.Array, wanted: Flags) -> pa.Array:
    if wanted.all():
        return array
    return take_entries(array, number_column(np.flatnonzero(wanted).astype(np.int64), pa.int64()))


def _told(kinds: Numbers, rows: Numbers, versions: Numbers, touched: TouchedRows) -> list[pa.Array]:
    """Return the columns in front of those of the table."""
    listed, place = np.unique(versions, return_inverse=True)
    times = np.array([bounded(time) for time in touched.times_of(listed).tolist()], np.int64)[place]
    return [
        optional_text(CHANGE_KINDS).take(number_column(kinds.astype(np.int64), pa.int64())),
        row_column(rows),
        number_column(versions, pa.int64()),
        number_column(times, pa.int64()).view(pa.timestamp("us", tz="UTC")),
    ]
