"""Columns that get a wider type while their pages stay as they are. Pure.

The definition keeps the types under which older pages may hold their values. Whoever reads such a page casts;
a bound is as wide as the type that it was made of; a value asked for of a bloom filter is asked for under
each type.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.catalog.facts import json_fact, with_json_fact
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.model.retyped import storage_of
from spark_pages.model.table import STORED_KEY

_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float32(), pa.float64())
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_FAMILIES = (_SIGNED, _UNSIGNED, _FLOATS, _TEXT, _BYTES)
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]+), (-?[0-9]+)\)")


def check_wider(column: pa.Field, wider: pa.DataType) -> None:
    """Nothing, if each value of the column is one of the wider type.

    Raises
    ------
    InvalidInputError
        Says what the column could become.
    """
    narrow = column.type
    if holds_all(wider, narrow):
        return
    raise InvalidInputError(
        f"Column {column.name!r} is of type {narrow} and cannot become {wider} without rewriting: expected a "
        "wider integer of the same sign, double in place of float, a decimal of the same scale and more "
        "digits, or large_string in place of string.",
        hint="Add a column of the other type, and fill it.",
    )


def holds_all(wider: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether each value of the second type is one of the first."""
    return wider == narrow or (same_family(narrow, wider) and _rank(narrow) < _rank(wider))


def same_family(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether values of both types mean the same, so that one of them can become the other."""
    if one == two or any(one in family and two in family for family in _FAMILIES):
        return True
    decimals = pa.types.is_decimal(one) and one.id == two.id
    return bool(decimals and one.scale == two.scale)


def may_hold(column: pa.DataType, page: pa.DataType) -> bool:
    """Whether values of a page may be values of a column, which may have got its type or its name since."""
    return same_family(storage_of(column), storage_of(page))


def under_type(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values of a page under the type of their column; None if one of them is no value of that type.

    Parameters
    ----------
    values
        Of one of the types under which pages of the column may hold values.
    """
    if holds_all(kind, values.type):
        return values.cast(kind)
    try:
        cast = values.cast(kind)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_floating(kind):  # which Arrow rounds
        back = cast.cast(values.type)
        kept = pc.or_(pc.equal(back, values), pc.and_(pc.is_nan(back), pc.is_nan(values)))
        return cast if pc.all(kept, min_count=0).as_py() else None
    return cast


def _rank(kind: pa.DataType) -> int:
    for family in _FAMILIES:
        if kind in family:
            return family.index(kind)
    return int(kind.precision)


def with_stored_types(column: pa.Field, *more: pa.DataType) -> pa.Field:
    """The column, whose pages may hold values of these types besides its own and those known so far."""
    names = {str(kind) for kind in (*stored_types(column), *more)} - {str(column.type)}
    return with_json_fact(column, STORED_KEY, sorted(names))


def stored_types(column: pa.Field) -> tuple[pa.DataType, ...]:
    """The types under which pages of the column may hold values, beside its own.

    Raises
    ------
    DamageError
        If the catalog names a type that no column can have had.
    """
    return tuple(_parse(str(name)) for name in json_fact(column, STORED_KEY, []))


def _parse(name: str) -> pa.DataType:
    for kind in (each for family in _FAMILIES for each in family):
        if str(kind) == name:
            return kind
    found = _DECIMAL.fullmatch(name)
    if found is None:
        raise DamageError(
            f"The catalog says that pages hold values of type {name!r}, which was never widened."
        )
    make = pa.decimal128 if found[1] == "128" else pa.decimal256
    return make(int(found[2]), int(found[3]))
