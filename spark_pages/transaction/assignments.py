"""Assignments to the rows that a condition selects: literals, and values computed from the old ones.

Rows whose new values equal the old ones are left out, so that an update that changes nothing writes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arguments import check_kind, check_names_once
from spark_pages.arrow.columns import flags_of, number_column
from spark_pages.arrow.join import take_entries
from spark_pages.catalog.resolve import check_available, find_columns
from spark_pages.errors import InvalidInputError
from spark_pages.format.bounds import plain_values
from spark_pages.format.values import cast_chunks
from spark_pages.model.table import TableDefinition
from spark_pages.query.live_rows import row_column
from spark_pages.query.scan import ROW
from spark_pages.query.table import Table

_ROWS_AT_ONCE = 1 << 20
"""Rows whose old values are in memory together."""

ReadRows = Callable[[Sequence[str]], pa.Table]
"""Reads columns of some rows, and their numbers as the last column, `ROW`."""


class Computation(ABC):
    """A value that is computed for each row from the row's old values."""

    @abstractmethod
    def compute(self, table: Table, read: ReadRows, expressions: Mapping[str, Self]) -> pa.Table:
        """Compute the values of some columns.

        Parameters
        ----------
        table
            The table, for names and types.
        read
            Reads the old values.
        expressions
            What to compute, by column.

        Returns
        -------
        pyarrow.Table
            The columns, in the types of the table, in the order of the rows.
        """


def check_aligned(definition: TableDefinition, name: str, verb: str) -> None:
    """Raise InvalidInputError if columns of a table do not share rows."""
    if not definition.aligned:
        raise InvalidInputError(
            f"Cannot {verb} rows of table {name!r}: it is not aligned, so its columns do not share rows.",
            hint="Create the table with `aligned=True`.",
        )


def assigned_values(
    table: Table, rows: NDArray[np.int64], assignments: Mapping[str, Any]
) -> tuple[NDArray[np.int64], dict[str, pa.ChunkedArray]]:
    """Return the rows that assignments change, and their new values by column.

    Parameters
    ----------
    table
        The table with its old values.
    rows : int64, shape (n_rows,)
        Live rows, increasing.
    assignments
        By column: a value for all rows, or a `Computation`.

    Raises
    ------
    ColumnNotFoundError, SchemaMismatchError, InvalidInputError

    Notes
    -----
    Reads the columns that are assigned, and those that are computed with, a million rows at a time. The new
    values of all changed rows are in memory.
    """
    definition = table.definition
    check_kind(assignments, Mapping, "assignments", "a mapping from columns to values")
    if not assignments:
        raise InvalidInputError(
            f"Cannot update table {table.name!r}: no column is assigned.",
            hint="Pass assignments such as {'n': 1}.",
        )
    names = find_columns(definition, list(assignments))
    check_names_once(names, f"update {definition.name!r}")
    check_available(definition, names)
    given = dict(zip(names, assignments.values(), strict=True))
    computed = {name: value for name, value in given.items() if isinstance(value, Computation)}
    literals = {
        name: _literal(definition, name, value) for name, value in given.items() if name not in computed
    }
    found: list[tuple[NDArray[np.int64], dict[str, pa.Array]]] = []
    for first in range(0, max(1, len(rows)), _ROWS_AT_ONCE):  # no rows too: to refuse what cannot be computed
        some = rows[first : first + _ROWS_AT_ONCE]
        values: dict[str, pa.Array] = {name: _repeated(one, len(some)) for name, one in literals.items()}
        if computed:
            made = next(iter(computed.values())).compute(table, _reader(table, some), computed)
            values |= {name: _whole(made.column(name)) for name in computed}
        found.append(changed_rows(table, some, {name: values[name] for name in names}))
    changed = {
        name: pa.chunked_array([values[name] for _, values in found], definition.bare_schema.field(name).type)
        for name in names
    }
    return np.concatenate([numbers for numbers, _ in found]), changed


def last_of_each(
    rows: NDArray[np.int64], values: Mapping[str, pa.Array]
) -> tuple[NDArray[np.int64], Mapping[str, pa.Array]]:
    """Leave out the values of rows that are named again behind them."""
    if len(rows) < 2 or (rows[1:] > rows[:-1]).all():
        return rows, values
    last = np.sort(len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]).astype(np.int64)
    places = number_column(last, pa.int64())
    return rows[last], {name: take_entries(each, places) for name, each in values.items()}


def changed_rows(
    table: Table, rows: NDArray[np.int64], values: Mapping[str, pa.Array]
) -> tuple[NDArray[np.int64], dict[str, pa.Array]]:
    """Leave out the rows whose new values all equal the old ones."""
    if not len(rows):
        return rows, dict(values)
    old = table.take(rows, list(values))
    differs = np.zeros(len(rows), bool)
    for name, new in values.items():
        if differs.all():
            break
        differs |= _differing(_whole(old.column(name)), new)
    if differs.all():
        return rows, dict(values)
    places = number_column(np.flatnonzero(differs).astype(np.int64), pa.int64())
    return rows[differs], {name: take_entries(each, places) for name, each in values.items()}


def _differing(old: pa.Array, new: pa.Array) -> NDArray[np.bool_]:
    """Return where values differ: 0.0 from -0.0 too. Nested values count as different."""
    one, two = plain_values(old), plain_values(new)
    if pa.types.is_floating(one.type):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[one.type.bit_width]
        one, two = one.view(bits), two.view(bits)
    try:
        equal = flags_of(pc.fill_null(pc.equal(one, two), False))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError):
        return np.ones(len(old), bool)
    both_null = flags_of(pc.and_(pc.is_null(one), pc.is_null(two)))
    return ~(equal | both_null)


def _literal(definition: TableDefinition, column: str, value: Any) -> pa.Array:
    """Return a value of Python or Arrow as one entry of its column's type."""
    field = definition.bare_schema.field(column)
    given = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else [value]
    return _whole(pa.chunked_array(cast_chunks(given, field, definition.name), field.type))


def _repeated(one: pa.Array, count: int) -> pa.Array:
    return take_entries(one, number_column(np.zeros(count, np.int64), pa.int64()))


def _reader(table: Table, rows: NDArray[np.int64]) -> ReadRows:
    def read(columns: Sequence[str]) -> pa.Table:
        if not columns:
            return pa.table({ROW: row_column(rows)})
        return table.take(rows, columns).append_column(ROW, row_column(rows))

    return read


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
