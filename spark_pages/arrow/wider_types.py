"""Families of types in which a value keeps its meaning, and casts within them that lose nothing. Pure."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.types import storage_of

_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float32(), pa.float64())
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_FAMILIES = (_SIGNED, _UNSIGNED, _FLOATS, _TEXT, _BYTES)
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]+), (-?[0-9]+)\)")


def holds_all(wider: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether each value of the second type is one of the first."""
    return wider == narrow or (same_family(narrow, wider) and _rank(narrow) < _rank(wider))


def same_family(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether values of both types mean the same, so that one of them can become the other."""
    if one == two or any(one in family and two in family for family in _FAMILIES):
        return True
    decimals = pa.types.is_decimal(one) and one.id == two.id
    return bool(decimals and one.scale == two.scale)


def can_hold(column: pa.DataType, page: pa.DataType) -> bool:
    """Whether values of a page may be values of a column, which may have got its type or its name since."""
    return same_family(storage_of(column), storage_of(page))


def cast_to_column(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
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


def named_type(name: str) -> pa.DataType | None:
    """Return the type of a family that has this name; None if no family has it."""
    for kind in (each for family in _FAMILIES for each in family):
        if str(kind) == name:
            return kind
    found = _DECIMAL.fullmatch(name)
    if found is None:
        return None
    make = pa.decimal128 if found[1] == "128" else pa.decimal256
    return make(int(found[2]), int(found[3]))
