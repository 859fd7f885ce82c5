"""The rows of a table for which a test is true, whatever the types of its columns. Pure.

Arrow compares most types and picks rows of most, but not of all: what it has no kernel for is tested as the
values that it stands for, and picked by number.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary, number_column, numbers_of
from spark_pages.arrow.compact import supports_take
from spark_pages.arrow.join import take_entries
from spark_pages.arrow.nested import children, nested_type, null_column, with_children
from spark_pages.format.bounds import plain_type, plain_values
from spark_pages.query.predicates.large_predicates import JoinedPredicate, Predicate, evaluated

_FEW_ROWS = 1 << 16
"""The rows of a few pages. More are tested by several threads."""


def passing(table: pa.Table, test: Predicate) -> pa.Table:
    """Return the rows that pass a test, in order.

    Raises
    ------
    pyarrow.ArrowException, TypeError
        If it does not fit the columns, whatever the rows; or if it fails on one of them, as a sum that
        overflows does.
    """
    odd = [field.name for field in table.schema if _tested_type(field.type) != field.type]
    lame = [field for field in table.schema if field.name not in odd and not supports_take(field.type)]
    if lame:
        raise TypeError(f"Arrow cannot test column {lame[0].name!r}, which has {lame[0].type}")
    if not odd:
        if isinstance(test, JoinedPredicate):
            return table.filter(evaluated(table, test))
        return _filtered(table, test)
    rows = _rows_that_pass(table, odd, test)
    # Of chunks with dictionaries of their own Arrow makes one first, which may not hold them.
    alone = {field.name for field in table.schema if field.name in odd or has_dictionary(field.type)}
    others = table.drop_columns(sorted(alone)).take(number_column(rows, pa.int64()))
    columns = [
        select_rows(column, rows) if name in alone else others.column(name)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, schema=table.schema)


def _filtered(table: pa.Table, expression: pc.Expression) -> pa.Table:
    """`pyarrow.Table.filter`; few rows are tested by this thread, because waiting for others takes longer."""
    if table.num_rows > _FEW_ROWS:
        return table.filter(expression)
    from pyarrow.acero import (  # noqa: PLC0415 - imports pandas and pyarrow.dataset
        Declaration,
        FilterNodeOptions,
        TableSourceNodeOptions,
    )

    source = Declaration("table_source", TableSourceNodeOptions(table))
    steps = [source, Declaration("filter", FilterNodeOptions(expression))]
    return Declaration.from_sequence(steps).to_table(use_threads=False)


def _rows_that_pass(table: pa.Table, odd: list[str], test: Predicate) -> NDArray[np.int64]:
    tested = table
    for name in odd:
        column = table.column(name)
        kind = _tested_type(column.type)
        values = pa.chunked_array([_without_runs(chunk).cast(kind) for chunk in column.chunks], kind)
        tested = tested.set_column(table.column_names.index(name), name, values)
    if isinstance(test, JoinedPredicate):
        passed = pc.fill_null(evaluated(tested, test), False)
        return np.flatnonzero(passed.to_numpy()).astype(np.int64)
    number = "_" * (1 + max(map(len, table.column_names)))  # no column has so long a name
    rows = number_column(np.arange(table.num_rows), pa.int64())
    return numbers_of(_filtered(tested.append_column(number, rows), test).column(number).combine_chunks())


def select_rows(column: pa.ChunkedArray, rows: NDArray[np.int64]) -> pa.ChunkedArray:
    """Return the values of increasing rows, chunk by chunk, because one array may not hold them."""
    ends = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    cuts = np.searchsorted(rows, ends)
    parts = []
    for chunk, end, first, stop in zip(column.chunks, ends, [0, *cuts], cuts, strict=False):
        if first < stop:
            places = number_column(rows[first:stop] - (end - len(chunk)), pa.int64())
            parts.append(take_entries(chunk, places))
    return pa.chunked_array(parts, column.type)


def tested_kind(kind: pa.DataType) -> pa.DataType:
    """The type of the values that are compared where a column has a type."""
    return plain_type(_tested_type(kind))


def tested_schema(schema: pa.Schema) -> pa.Schema:
    """The columns with the types under which an expression meets them."""
    return pa.schema([(field.name, _tested_type(field.type)) for field in schema])


@lru_cache(256)
def _tested_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with the same values for which Arrow has all kernels; the type itself if it has."""
    tested = _tested_type(plain_type(kind)) if pa.types.is_run_end_encoded(kind) else _wider(kind)
    return tested if tested == kind or _casts(kind, tested) else kind


def _casts(kind: pa.DataType, tested: pa.DataType) -> bool:
    """Whether Arrow has that cast, also of what is inside: of no entries it does not look there."""
    try:
        _without_runs(null_column(kind, 0)).cast(tested)
    except pa.ArrowNotImplementedError:
        return False
    inside = range(kind.num_fields if kind.num_fields == tested.num_fields else 0)
    pairs = [(kind.field(index).type, tested.field(index).type) for index in inside]
    return all(one == other or _casts(one, other) for one, other in pairs)


def _without_runs(array: pa.Array) -> pa.Array:
    """Decode run-end and dictionary encoding at any depth."""
    plain = plain_values(array)
    if not has_runs(plain.type):
        return plain
    inside = list(map(_without_runs, children(plain)))
    fields = [plain.type.field(index).with_type(each.type) for index, each in enumerate(inside)]
    return with_children(plain, nested_type(plain.type, fields), inside)


def has_runs(kind: pa.DataType) -> bool:
    """Whether there are runs somewhere in a type."""
    if pa.types.is_run_end_encoded(kind):
        return True
    return any(has_runs(kind.field(index).type) for index in range(kind.num_fields))


def _wider(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_run_end_encoded(kind):
        return _wider(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wider(field.type)) for field in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_wider(kind.key_type), _wider(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_wider(kind.value_type)), kind.list_size)
    for is_list, made in _LISTS:
        if is_list(kind):
            return made(kind.value_field.with_type(_wider(kind.value_type)))
    return kind


_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)
