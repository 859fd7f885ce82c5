"""Rows against the primary key of their table: statistics first, bloom filters next, pages last.

Keys of many rows are compared in bounded memory: by hashes of 8 bytes, and by values where hashes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.types import without_views
from spark_pages.catalog.constraints import key_columns
from spark_pages.errors import ConstraintError
from spark_pages.format.bounds import plain_type, plain_values
from spark_pages.format.value_hash import Hashes, hash_values
from spark_pages.model.actions import Splice
from spark_pages.model.row_ranges import RowRanges, intersection, union
from spark_pages.model.table import TableDefinition
from spark_pages.query.table import Table
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.written_rows import StagedWrites

_FEW_KEYS = 1000
"""So few keys of one column are asked for one by one, which bloom filters can answer."""

_ROWS_AT_ONCE = 1 << 20

HASHES_AT_ONCE = 1 << 23
"""So many are held, 64 MiB and as much again while they are sorted; more are compared in several passes."""

_DOUBTFUL_AT_ONCE = 1000
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

Keys = Callable[[], Iterator[pa.Table]]
"""Gives the keys of rows portion by portion, as often as it is called."""


def changed_keys(definition: TableDefinition, splices: Iterable[StagedSplice | Splice]) -> RowRanges | None:
    """Return the rows with a new or changed key; None if there are none, or the table has no key."""
    key = key_columns(definition)
    fields = {definition.field_ids[name] for name in key}
    parts = [
        RowRanges.joined(
            np.array(splice.touched or [(splice.first_row, splice.first_row + splice.added_entries)])
        )
        for splice in splices
        if splice.table_id == definition.table_id and splice.field_id in fields and splice.data_change
    ]
    changed = union(parts) if parts else None
    return changed if changed is not None and changed.num_rows else None


def written_keys(definition: TableDefinition, written: Iterable[StagedWrites]) -> RowRanges | None:
    """Return the rows that others wrote to a table, as `changed_keys` does for splices."""
    bounds = [
        (of.first_row, of.first_row + sum(each.num_rows for each in of.written))
        for of in written
        if of.table_id == definition.table_id
    ]
    return RowRanges.joined(np.array(bounds)) if bounds else None


def check_key(table: Table, changed: RowRanges) -> None:
    """Nothing, if no key of these rows is that of another row.

    Parameters
    ----------
    table
        With all that is staged.
    changed
        Rows whose key is new.

    Raises
    ------
    ConstraintError
        Names a key that is there twice.

    Notes
    -----
    Reads the keys of these rows, which are in memory as a rule, and of the other rows those in pages whose
    statistics and bloom filters do not rule all new keys out: none, where keys grow. Memory for a million
    keys, or, where more are new, for the hashes of eight million: so often the keys are read.
    """
    few = changed.num_rows <= _ROWS_AT_ONCE
    repeated = _repeated_of_few(table, changed) if few else _repeated_of_many(table, changed)
    if repeated is not None:
        raise ConstraintError(
            f"Cannot write the rows given for {table.name!r}: their primary key would be there more "
            f"than once: {repeated}. Nothing was committed.",
            hint="Leave these rows out, or update the rows that are there: `transaction.update_rows`.",
            table=table.name,
        )


def _repeated_of_few(table: Table, changed: RowRanges) -> dict[str, object] | None:
    key = key_columns(table.definition)
    new = table.rows_in(key, changed)
    if not new.num_rows:  # the transaction deletes them again
        return None
    repeated = first_repeated(new)
    if repeated is None:
        others = RowRanges.complement(changed, table.end_row)
        for ranges in _portions(intersection([_candidates(table, key, new), others])):
            repeated = first_repeated(pa.concat_tables([new, table.rows_in(key, ranges)]))
            if repeated is not None:
                break
    return repeated


def _repeated_of_many(table: Table, changed: RowRanges) -> dict[str, object] | None:
    key = key_columns(table.definition)
    others = RowRanges.complement(changed, table.end_row)
    met: list[RowRanges] = []

    def new_keys() -> Iterator[pa.Table]:
        first = not met
        for ranges in _portions(changed):
            keys = table.rows_in(key, ranges)
            if first and others.num_rows and keys.num_rows:
                met.append(_candidates(table, key, keys))
            yield keys

    def other_keys() -> Iterator[pa.Table]:
        if met:
            for ranges in _portions(intersection([union(met), others])):
                yield table.rows_in(key, ranges)

    return first_repeated_of_many(changed.num_rows, new_keys, other_keys)


def _candidates(table: Table, key: Sequence[str], new: pa.Table) -> RowRanges:
    """Rows that may have one of the keys."""
    if len(key) == 1 and new.num_rows <= _FEW_KEYS:
        return table.rows_to_read([(key[0], "in", new.column(0).to_pylist())])
    conditions = []
    for name in key:
        values = new.column(name).cast(plain_type(new.column(name).type))
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            continue  # which no bounds enclose
        bounds = pc.min_max(values)
        conditions += [(name, ">=", bounds["min"].as_py()), (name, "<=", bounds["max"].as_py())]
    return table.rows_to_read(conditions) if conditions else RowRanges.of(0, table.end_row)


def _portions(ranges: RowRanges) -> Iterator[RowRanges]:
    """Split rows into portions that fit memory."""
    for first in range(0, ranges.num_rows, _ROWS_AT_ONCE):
        yield ranges.part(first, first + _ROWS_AT_ONCE)


def first_repeated(keys: pa.Table) -> dict[str, object] | None:
    """One key that stands in several rows, or None."""
    plain = [_canonical(column.cast(plain_type(without_views(column.type)))) for column in keys.columns]
    named = pa.table(plain, [f"k{index}" for index in range(keys.num_columns)])
    counted = named.group_by(named.column_names).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1)).slice(0, 1).to_pylist()
    if not repeated:
        return None
    return {name: repeated[0][f"k{index}"] for index, name in enumerate(keys.column_names)}


def _canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with one zero and one NaN, as SQL compares them; other values as they are."""
    if not pa.types.is_floating(column.type):
        return column
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow does not compare half floats
    positive = pc.if_else(pc.equal(column, pa.scalar(0, column.type)), pa.scalar(0, column.type), column)
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), positive)


def first_repeated_of_many(num_new: int, new: Keys, others: Keys) -> dict[str, object] | None:
    """One key of the new rows that another row has too, new or not; or None.

    Parameters
    ----------
    num_new
        How many new rows there are, about.
    new, others
        Keys without nulls; `others` is asked after `new`.

    Notes
    -----
    Reads both once for each `HASHES_AT_ONCE` new rows. Some nanoseconds a number, some ten a text.
    """
    passes = max(1, -(-num_new // HASHES_AT_ONCE))
    for number in range(passes):
        doubtful = _equal_hashes(new, others, number, passes)
        for first in range(0, len(doubtful), _DOUBTFUL_AT_ONCE):
            some = doubtful[first : first + _DOUBTFUL_AT_ONCE]
            rows = [*_having(new(), some), *_having(others(), some)]
            repeated = first_repeated(pa.concat_tables(rows))
            if repeated is not None:
                return repeated
    return None


def key_hashes(keys: pa.Table) -> Hashes:
    """Hash each row, in order; equal keys have equal hashes."""
    mixed = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        mixed = mixed * _SPREAD + np.concatenate(
            [np.zeros(0, np.uint64), *(_hashed(chunk) for chunk in column.chunks)]
        )
    return mixed


def _hashed(array: pa.Array) -> Hashes:
    array = plain_values(array)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())  # else each value is hashed once
    hashes = hash_values(array)
    assert hashes is not None
    assert len(hashes) == len(array), "a key has no nulls and an order"
    return hashes


def _equal_hashes(new: Keys, others: Keys, number: int, passes: int) -> Hashes:
    """Return the hashes of this pass that several rows share, one of them new."""
    held = np.sort(np.concatenate([np.zeros(0, np.uint64), *_of_pass(new(), number, passes)]))
    met = (hashes[_is_in(hashes, held)] for hashes in _of_pass(others(), number, passes))
    return np.unique(np.concatenate([held[1:][held[1:] == held[:-1]], *met]))


def _of_pass(portions: Iterable[pa.Table], number: int, passes: int) -> Iterator[Hashes]:
    for portion in portions:
        hashes = key_hashes(portion)
        yield hashes if passes == 1 else hashes[hashes % np.uint64(passes) == number]


def _having(portions: Iterable[pa.Table], hashes: Hashes) -> Iterator[pa.Table]:
    """Iterate over the rows whose hash is one of these sorted ones."""
    for portion in portions:
        yield portion.filter(pa.array(_is_in(key_hashes(portion), hashes)))


def _is_in(hashes: Hashes, held: Hashes) -> NDArray[np.bool_]:
    if not len(held):
        return np.zeros(len(hashes), np.bool_)
    near = np.minimum(np.searchsorted(held, hashes), len(held) - 1)
    found: NDArray[np.bool_] = held[near] == hashes
    return found
