"""Columns that get a wider type while their pages stay as they are. Pure.

The definition keeps the types under which older pages may hold their values. Whoever reads such a page casts;
a bound is as wide as the type that it was made of; a value asked for of a bloom filter is asked for under
each type.
"""

from __future__ import annotations

import pyarrow as pa

from spark_pages.arrow.wider_types import holds_all, named_type
from spark_pages.catalog.facts import json_fact, with_json_fact
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.model.table import STORED_KEY


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
        f"Cannot widen column {column.name!r} from {narrow} to {wider}: its pages would have to be "
        "rewritten. Expected a wider integer of the same sign, double in place of float, a decimal "
        "of the same scale and more digits, or large_string in place of string.",
        hint=f"Add a column of type {wider}, `transaction.add_column`, and fill it.",
    )


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
    kind = named_type(name)
    if kind is None:
        raise DamageError(
            f"Cannot read the types of the pages of a column: the catalog names {name!r}, which was "
            "never widened."
        )
    return kind
