"""Which rows bloom filters rule out, where statistics could not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.catalog.widening import stored_types
from spark_pages.format.bounds import plain_type
from spark_pages.format.value_hash import Hashes, hash_values
from spark_pages.io import ReadTrace
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.log.reopen import reopening
from spark_pages.model.row_ranges import RowRanges, intersection, union
from spark_pages.query.predicates.literals import exact_values
from spark_pages.query.predicates.predicate import AllOf, AnyOf, Condition, Tree
from spark_pages.query.pruning import CandidateSearch
from spark_pages.query.row_reader import RowReader


def candidates(
    source: RowReader, tree: Tree, start: int, stop: int, trace: ReadTrace | None = None
) -> Iterator[RowRanges]:
    """The rows of [start, stop) that neither statistics nor bloom filters rule out, part by part, in order.

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
    """The rows of [start, stop) that neither statistics nor bloom filters rule out."""
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
    """The rows of [start, stop) that are in none of the ranges, which increase."""
    bounds = np.stack([np.append(start, ranges[:, 1]), np.append(ranges[:, 0], stop)], axis=1)
    return RowRanges.joined(bounds)
