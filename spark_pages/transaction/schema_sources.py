"""Schemas as callers give them: of Arrow, Polars, pandas, DuckDB, or plain Python. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_pages.arguments import as_str, shortened
from spark_pages.arrow.sql_types import type_named
from spark_pages.catalog.types import typed
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.transaction.row_sources import without_unnamed_index

_PYTHON_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.date: pa.date32(),
    dt.datetime: pa.timestamp("us"),
    dt.time: pa.time64("us"),
    dt.timedelta: pa.duration("us"),
}
_FORMS = (
    "Give a pyarrow.Schema, a Polars schema, a data frame, a DuckDB relation, or a dict of names and types: "
    "{'day': int, 'price': 'DECIMAL(10, 2)'}."
)


def as_schema(given: Any) -> pa.Schema:
    """Return the schema that a caller gives in any of the usual forms.

    Parameters
    ----------
    given
        A `pyarrow.Schema`; anything with ``__arrow_c_schema__`` or ``__arrow_c_stream__``, such as a Polars
        schema, a data frame or a DuckDB relation; a mapping of names to types; or a sequence of pairs. A type
        is an Arrow type, a Python type such as `int`, or SQL text, which may name a type of the store.

    Raises
    ------
    InvalidInputError
        If it is none of these, or a name occurs twice.
    """
    if hasattr(given, "collect_schema"):  # a lazy frame of Polars, which is not computed for it
        given = given.collect_schema()
    own = given if isinstance(given, pa.Schema) else getattr(given, "schema", None)
    if isinstance(own, pa.Schema):  # of a table, batch, stream or dataset of pyarrow
        return own
    if isinstance(given, type | str | bytes):
        raise _unknown(given)
    if hasattr(given, "__arrow_c_schema__") or hasattr(given, "__arrow_c_stream__"):
        return _imported(given)
    if isinstance(given, Mapping):
        return _of_pairs(given.items())
    if isinstance(given, Sequence):
        return _of_pairs(given)
    raise _unknown(given)


def _imported(given: Any) -> pa.Schema:
    """Import a schema by Arrow's C interface. Of a stream alone, the first batch may be computed."""
    try:
        if hasattr(given, "iloc"):  # pandas says what its columns are in metadata
            return pa.RecordBatchReader.from_stream(without_unnamed_index(given)).schema.remove_metadata()
        if hasattr(given, "__arrow_c_schema__"):
            return pa.Schema._import_from_c_capsule(given.__arrow_c_schema__())
        return pa.RecordBatchReader.from_stream(given.limit(0) if hasattr(given, "limit") else given).schema
    except SparkPagesError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"Cannot read the schema of {shortened(given)} ({type(given).__name__}): {error}.", hint=_FORMS
        ) from error


def _of_pairs(pairs: Iterable[Any]) -> pa.Schema:
    fields = [_field(each) for each in pairs]
    names = [field.name for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"Cannot make a schema: the column {twice!r} is named twice.",
            hint=f"Give each column a name of its own: rename one {twice!r}.",
        )
    return pa.schema(fields)


def _field(pair: Any) -> pa.Field:
    if isinstance(pair, pa.Field):
        return pair
    if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
        raise InvalidInputError(
            f"Cannot make a schema: expected pairs of a name and a type, found {shortened(pair)}.",
            hint=_FORMS,
        )
    name, kind = as_str(pair[0], "The name of a column"), pair[1]
    if isinstance(kind, pa.DataType):
        return pa.field(name, kind)
    if isinstance(kind, str):
        known = type_named(kind)
        return typed(name, known) if isinstance(known, str) else pa.field(name, known)
    if isinstance(kind, type) and kind in _PYTHON_TYPES:
        return pa.field(name, _PYTHON_TYPES[kind])
    raise InvalidInputError(
        f"Cannot make a schema: {shortened(kind)} is not the type of column {name!r}.",
        hint=f"Give an Arrow type, SQL text such as 'BIGINT', or one of {_python_names()}.",
    )


def _python_names() -> str:
    return ", ".join(kind.__name__ for kind in _PYTHON_TYPES)


def _unknown(given: Any) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot make a schema of {shortened(given)} ({type(given).__name__}): it is none of the "
        "forms of schemas.",
        hint=_FORMS,
    )
