"""Rows against the primary key of their table: statistics first, bloom filters next, pages last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.catalog.constraints import key_columns
from spark_pages.errors import ConstraintError
from spark_pages.io.bounds import plain_type
from spark_pages.model.table import TableDefinition
from spark_pages.tables.row_ranges import RowRanges, intersection, union
from spark_pages.tables.staging import StagedSplice
from spark_pages.tables.table import Table

_FEW_KEYS = 1000
"""So few keys of one column are asked for one by one, which bloom filters can answer."""

_ROWS_AT_ONCE = 1 << 20


def changed_keys(definition: TableDefinition, splices: Iterable[StagedSplice]) -> RowRanges | None:
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
    statistics and bloom filters do not rule all new keys out: none, where keys grow. Memory for the new keys
    and a million of the others.
    """
    key = key_columns(table.definition)
    new = table.rows_in(key, changed)
    repeated = first_repeated(new)
    if repeated is None:
        others = RowRanges.outside(changed, table.num_rows)
        for ranges in _portions(intersection([_candidates(table, key, new), others])):
            repeated = first_repeated(pa.concat_tables([new, table.rows_in(key, ranges)]))
            if repeated is not None:
                break
    if repeated is not None:
        raise ConstraintError(
            f"The primary key of {table.name!r} would be there more than once: {repeated}. Nothing was "
            "committed.",
            hint="Leave these rows out, or update the rows that are there.",
            table=table.name,
        )


def first_repeated(keys: pa.Table) -> dict[str, object] | None:
    """One key that stands in several rows, or None."""
    plain = [column.cast(plain_type(column.type)) for column in keys.columns]
    named = pa.table(plain, [f"k{index}" for index in range(keys.num_columns)])
    counted = named.group_by(named.column_names).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1)).slice(0, 1).to_pylist()
    if not repeated:
        return None
    return {name: repeated[0][f"k{index}"] for index, name in enumerate(keys.column_names)}


def _candidates(table: Table, key: Sequence[str], new: pa.Table) -> RowRanges:
    """Rows that may have one of the keys."""
    if len(key) == 1 and new.num_rows <= _FEW_KEYS:
        return table.rows_to_read([(key[0], "in", new.column(0).to_pylist())])
    conditions = []
    for name in key:
        bounds = pc.min_max(new.column(name).cast(plain_type(new.column(name).type)))
        conditions += [(name, ">=", bounds["min"].as_py()), (name, "<=", bounds["max"].as_py())]
    return table.rows_to_read(conditions)


def _portions(ranges: RowRanges) -> Iterator[RowRanges]:
    """The rows in portions that fit memory."""
    for first in range(0, ranges.num_rows, _ROWS_AT_ONCE):
        yield ranges.part(first, first + _ROWS_AT_ONCE)
