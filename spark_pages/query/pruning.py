"""Page pruning: which rows can match a filter, by statistics of pages and by bloom filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.catalog.evolution import stored_types
from spark_pages.errors import ObjectNotFoundError
from spark_pages.format.bounds import plain_type
from spark_pages.format.value_hash import Hashes, hash_values
from spark_pages.io import ReadTrace
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.log.reopen import reopening
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.row_ranges import RowRanges, intersection, union
from spark_pages.query.page_bounds import PageBounds, SearchValues
from spark_pages.query.predicates.literals import exact_values
from spark_pages.query.predicates.predicate import AllOf, AnyOf, Condition, Tree
from spark_pages.query.row_reader import RESOLVED, RowReader


class CandidateSearch:
    """Finds the rows that may meet a tree, from statistics of the columns that the tree names.

    Parameters
    ----------
    source
        The rows of a table.
    tree
        Resolved.
    """

    def __init__(self, source: RowReader, tree: Tree) -> None:
        self._source = source
        self._tree = merged(tree)
        self._asked: dict[int, SearchValues] = {}

    @property
    def tree(self) -> Tree:
        """The tree, with alternatives of one column as a list of values."""
        return self._tree

    def ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Split rows [start, stop) where a column of the tree has its next segment.

        Notes
        -----
        Loads a segment of each of these columns when a part is asked for.
        """
        names = list(dict.fromkeys(_columns(self._tree)))
        row = start
        while row < stop:
            pieces = self._source.pieces_at(names, row, stop)
            end = min([stop, *(piece.first_row + piece.run.num_rows for piece in pieces)])
            yield row, end
            row = end

    def rows(self, start: int, stop: int) -> RowRanges:
        """Return the rows of [start, stop) that may meet the tree.

        Notes
        -----
        Loads the statistics of the segments that hold these rows, of the columns that the tree names. Reads
        no page.
        """
        return self.rows_of(self._tree, RowRanges.of(start, stop))

    def rows_of(self, tree: Tree, among: RowRanges) -> RowRanges:
        """Those of some rows that may meet a part of the tree."""
        if not among.num_rows:
            return among
        match tree:
            case Condition():
                return intersection([among, self._may_match(tree, int(among.starts[0]), int(among.ends[-1]))])
            case AllOf(parts):
                for part in parts:
                    among = self.rows_of(part, among)
                return among
            case AnyOf(parts):
                return union([RowRanges.of(0, 0), *(self.rows_of(part, among) for part in parts)])

    @reopening
    def _may_match(self, condition: Condition, start: int, stop: int) -> RowRanges:
        source = self._source
        if source.definition.table_id == CATALOG_TABLE and condition.column in RESOLVED:
            return RowRanges.of(start, stop)  # statistics speak of what is stored, not of what is read
        kind = source.schema.field(condition.column).type
        asked = self._search_values(condition, kind)
        bounds, keep = [np.array([], dtype=np.int64)], [np.array([], dtype=bool)]
        last = start
        for part in source.directory.chain_of(condition.key).runs(start, stop):
            entries = part.run.numbers("entry_count")
            keep.append(PageBounds(kind, part.run.stats, entries).may_match(asked))
            ends = part.run.prefix_entries.astype(np.int64) + part.first_row
            bounds.append(ends - entries)
            last = int(ends[-1])
        return RowRanges.chosen(np.append(np.concatenate(bounds), last), np.concatenate(keep))

    def _search_values(self, condition: Condition, kind: pa.DataType) -> SearchValues:
        asked = self._asked.get(id(condition))  # held by the tree
        if asked is None:
            asked = self._asked[id(condition)] = SearchValues.of(condition, kind)
        return asked

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Read the same version from what is retained now; see `tables.reading.expiry`."""
        self._source.reopen(missing)


def merged(tree: Tree) -> Tree:
    """Flatten nested alternatives, and merge alternatives of one column into a list of values.

    So the cost of many alternatives is that of one list: ``a = 1 or a = 2 or a in (3, 4)`` is
    ``a in (1, 2, 3, 4)``.
    """
    if isinstance(tree, Condition):
        return tree
    parts = list(map(merged, _flat(tree)))
    if isinstance(tree, AllOf):
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))
    lists: dict[tuple[object, ...], list[Condition]] = {}
    others: list[Tree] = []
    for part in parts:
        if isinstance(part, Condition) and (part.operator == "in" or _is_value(part)):
            # By the type of the values: a list with one that the column cannot have proves nothing.
            values = part.value if part.operator == "in" else (part.value,)
            kinds = tuple(sorted({str(_kind_of(value)) for value in values}))
            lists.setdefault((part.column, part.or_nan, kinds), []).append(part)
        else:
            others.append(part)
    for same in lists.values():
        values = [v for part in same for v in (part.value if part.operator == "in" else (part.value,))]
        others.append(replace(same[0], operator="in", value=values) if len(same) > 1 else same[0])
    return others[0] if len(others) == 1 else AnyOf(tuple(others))


def _flat(tree: AllOf | AnyOf) -> Iterator[Tree]:
    """Iterate over the leaves of nested parts of one kind: chains of ``or`` may be deep."""
    waiting: list[Tree] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, type(tree)):
            waiting += reversed(part.parts)
        else:
            yield part


def _is_value(condition: Condition) -> bool:
    return condition.operator == "==" and condition.value is not None


def _kind_of(value: object) -> object:
    return value.type if isinstance(value, pa.Scalar) else type(value).__name__


def _columns(tree: Tree) -> Iterator[str]:
    if isinstance(tree, Condition):
        yield tree.column
        return
    for part in tree.parts:
        yield from _columns(part)


def candidates(
    source: RowReader, tree: Tree, start: int, stop: int, trace: ReadTrace | None = None
) -> Iterator[RowRanges]:
    """Iterate over the rows of [start, stop) that statistics and bloom filters do not prune, in order.

    Parameters
    ----------
    trace
        Receives what bloom filters take.

    Notes
    -----
    Loads what a part takes when it is asked for: segments of the columns that the tree names.
    """
    search = CandidateSearch(source, tree)
    for begin, end in search.ranges(start, stop):
        yield _remaining_rows(source, search, search.tree, search.rows(begin, end), trace)


def rows_to_read(source: RowReader, tree: Tree, start: int, stop: int) -> RowRanges:
    """Return the rows of [start, stop) that statistics and bloom filters do not prune."""
    search = CandidateSearch(source, tree)
    return _remaining_rows(source, search, search.tree, search.rows(start, stop), None)


def _remaining_rows(
    source: RowReader, search: CandidateSearch, tree: Tree, left: RowRanges, trace: ReadTrace | None
) -> RowRanges:
    """Those of the rows that statistics left over which bloom filters leave over too.

    Notes
    -----
    Fetches the filters of pages that hold such rows, of columns that are compared by ``==`` or ``in``, if
    they are smaller than the pages. Nothing where no column has any.
    """
    if not left.num_rows:
        return left
    match tree:
        case Condition():
            return _remaining_of_condition(source, tree, left, trace)
        case AllOf(parts):
            for part in parts:
                left = _remaining_rows(source, search, part, left, trace)
            return left
        case AnyOf(parts):
            found = (
                _remaining_rows(source, search, part, search.rows_of(part, left), trace) for part in parts
            )
            return union([RowRanges.of(0, 0), *found])


@reopening
def _remaining_of_condition(
    source: RowReader, condition: Condition, candidates: RowRanges, trace: ReadTrace | None
) -> RowRanges:
    if condition.operator not in ("==", "in") or not source.stored_as_read(condition.column):
        return candidates
    hashes: Hashes | None = None
    denied: list[NDArray[np.int64]] = []
    start, stop = int(candidates.starts[0]), int(candidates.ends[-1])
    for part in source.directory.chain_of(condition.key).runs(start, stop):
        if not has_bloom(part.run).any():
            continue
        if hashes is None:
            hashes = _hashes_of_types(condition, source.definition.schema.field(condition.column))
        if hashes is None:
            return candidates
        ends = part.run.prefix_entries.astype(np.int64) + part.first_row
        begins = ends - part.run.numbers("entry_count")
        asked = _touched(begins, ends, candidates)
        refused = asked & ~source.pages.may_contain(part.run, asked, hashes, trace=trace)
        denied.append(np.stack([begins, ends], axis=1)[refused])
    ruled_out = np.concatenate(denied) if denied else np.zeros((0, 2), np.int64)
    return intersection([candidates, _complement(ruled_out, start, stop)]) if len(ruled_out) else candidates


def _hashes_of_types(condition: Condition, column: pa.Field) -> Hashes | None:
    """Of the values asked for, under each type that pages may have; None where that cannot be said."""
    found = _hashes(condition, column.type)
    if found is None:
        return None
    earlier = [_hashes(condition, kind, some=True) for kind in stored_types(column)]
    return np.unique(np.concatenate([found, *(each for each in earlier if each is not None)]))


def _hashes(condition: Condition, kind: pa.DataType, *, some: bool = False) -> Hashes | None:
    """Of the values asked for, as the column would have them; None where that cannot be said.

    With `some`, of those that are values of the type: no page of it can hold the others.
    """
    kind = plain_type(kind)
    values = condition.value if condition.operator == "in" else [condition.value]
    try:
        if some:
            values = [value for value in values if _is_of(value, kind)]
        given = exact_values(values, kind)
        return None if given.null_count else hash_values(given)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def _is_of(value: Any, kind: pa.DataType) -> bool:
    try:
        return len(exact_values([value], kind)) == 1
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False


def _touched(begins: NDArray[np.int64], ends: NDArray[np.int64], ranges: RowRanges) -> NDArray[np.bool_]:
    """Which of the pages hold some row of the ranges."""
    index = np.searchsorted(ranges.ends, begins, side="right")
    inside = np.minimum(index, len(ranges.starts) - 1)
    touched: NDArray[np.bool_] = (
        (index < len(ranges.starts)) & (ranges.starts[inside] < ends) & (begins < ends)
    )
    return touched


def _complement(ranges: NDArray[np.int64], start: int, stop: int) -> RowRanges:
    """Return the rows of [start, stop) outside of the increasing ranges."""
    bounds = np.stack([np.append(start, ranges[:, 1]), np.append(ranges[:, 0], stop)], axis=1)
    return RowRanges.joined(bounds)
