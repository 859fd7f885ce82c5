"""Which rows a filter cannot rule out by statistics, so that their pages have to be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_pages.errors import ObjectNotFoundError
from spark_pages.log.reopen import reopening
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.row_ranges import RowRanges, intersection, union
from spark_pages.query.page_bounds import PageBounds, SearchValues
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
        """The rows [start, stop) in parts that end where one of the tree's columns has its next segment.

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
        """The rows of [start, stop) that may meet the tree.

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
    """The tree with nested alternatives as one list, and alternatives of one column as a list of its values.

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
    """The parts of a tree, in order, with those of parts of the same kind: chains of ``or`` may be deep."""
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
