"""Rows against the primary key of their table: statistics first, bloom filters next, pages last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.catalog.constraints import key_columns
from spark_pages.errors import ConstraintError
from spark_pages.format.bounds import plain_type
from spark_pages.model.actions import Splice
from spark_pages.model.row_ranges import RowRanges, intersection, union
from spark_pages.model.table import TableDefinition
from spark_pages.query.table import Table
from spark_pages.transaction.key_hashes import first_repeated, first_repeated_of_many
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.written_rows import StagedWrites

_FEW_KEYS = 1000
"""So few keys of one column are asked for one by one, which bloom filters can answer."""

_ROWS_AT_ONCE = 1 << 20


def changed_keys(definition: TableDefinition, splices: Iterable[StagedSplice | Splice]) -> RowRanges | None:
    """The rows whose key is new or another one; None where there are none, or the table has no key."""
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
    """The rows that others have written for a table, as `changed_keys` gives those of splices."""
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
            f"The primary key of {table.name!r} would be there more than once: {repeated}. Nothing was "
            "committed.",
            hint="Leave these rows out, or update the rows that are there.",
            table=table.name,
        )


def _repeated_of_few(table: Table, changed: RowRanges) -> dict[str, object] | None:
    key = key_columns(table.definition)
    new = table.rows_in(key, changed)
    repeated = first_repeated(new)
    if repeated is None:
        others = RowRanges.outside(changed, table.num_rows)
        for ranges in _portions(intersection([_candidates(table, key, new), others])):
            repeated = first_repeated(pa.concat_tables([new, table.rows_in(key, ranges)]))
            if repeated is not None:
                break
    return repeated


def _repeated_of_many(table: Table, changed: RowRanges) -> dict[str, object] | None:
    key = key_columns(table.definition)
    others = RowRanges.outside(changed, table.num_rows)
    met: list[RowRanges] = []

    def new_keys() -> Iterator[pa.Table]:
        first = not met
        for ranges in _portions(changed):
            keys = table.rows_in(key, ranges)
            if first and others.num_rows:
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
    return table.rows_to_read(conditions) if conditions else RowRanges.of(0, table.num_rows)


def _portions(ranges: RowRanges) -> Iterator[RowRanges]:
    """The rows in portions that fit memory."""
    for first in range(0, ranges.num_rows, _ROWS_AT_ONCE):
        yield ranges.part(first, first + _ROWS_AT_ONCE)
