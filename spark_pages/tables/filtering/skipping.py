"""Which rows a filter cannot rule out by statistics, so that their pages have to be read."""

from __future__ import annotations

import numpy as np

from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.tables.filtering.filter_tree import AllOf, AnyOf, Condition, Tree
from spark_pages.tables.filtering.filters import may_match
from spark_pages.tables.reading.expiry import reopening
from spark_pages.tables.reading.row_ranges import RowRanges, intersection, union
from spark_pages.tables.reading.row_source import RESOLVED, RowSource


@reopening
def candidate_rows(source: RowSource, tree: Tree, start: int, stop: int) -> RowRanges:
    """The rows of [start, stop) that may meet the tree, which is resolved.

    Notes
    -----
    Loads the statistics of the segments that hold these rows, of the columns that the tree names; no page.
    """
    match tree:
        case Condition():
            return _may_meet(source, tree, start, stop)
        case AllOf(parts):
            found = RowRanges.of(start, stop)
            for part in parts:
                if not found.num_rows:
                    break
                found = intersection([found, candidate_rows(source, part, start, stop)])
            return found
        case AnyOf(parts):
            return union([RowRanges.of(0, 0), *(candidate_rows(source, part, start, stop) for part in parts)])


def _may_meet(source: RowSource, condition: Condition, start: int, stop: int) -> RowRanges:
    if source.definition.table_id == CATALOG_TABLE and condition.column in RESOLVED:
        return RowRanges.of(start, stop)  # statistics speak of what is stored, not of what is read
    kind = source.schema.field(condition.column).type
    bounds, keep = [np.array([], dtype=np.int64)], [np.array([], dtype=bool)]
    last = start
    for part in source.directory.chain_of(condition.key).runs(start, stop):
        entries = part.run.numbers("entry_count")
        keep.append(may_match(condition, kind, part.run.stats, entries))
        ends = part.run.prefix_entries.astype(np.int64) + part.first_row
        bounds.append(ends - entries)
        last = int(ends[-1])
    chosen = RowRanges.chosen(np.append(np.concatenate(bounds), last), np.concatenate(keep))
    return intersection([RowRanges.of(start, stop), chosen])
