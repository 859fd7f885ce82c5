"""Columns as a table gets them: under a type that is stored, which was written and read back.

`model.stored_types` says which types there are. Here a column is refused by its name, before anything of it
is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from spark_pages.arrow.nested import null_scalar
from spark_pages.arrow.stored_types import (
    UnsupportedTypeError,
    check_depth,
    same_type,
    schema_from_bytes,
    schema_to_bytes,
    stored_type,
)
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.io import decode_page
from spark_pages.transaction.page_writer import stage_constant

_MOST_SHOWN = 200
"""Characters of a type in a message."""


class _PageError(UnsupportedTypeError):
    """A page of a type cannot be written and read."""


def stored_columns(table: str, columns: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the columns with the types that store their values.

    Raises
    ------
    InvalidInputError
        If a column is of a type that is not stored, that Arrow does not write and read again, or
        that is an extension type without registration or ``__hash__``.
    """
    found = []
    for column in columns:
        try:
            check_depth(column.type)
            _check_extensions(column.type)
            stored = stored_type(column.type)
            _check_page(stored)
        except UnsupportedTypeError as error:
            if isinstance(error, _PageError):
                check_read_back(table, pa.schema([column]))  # metadata inside may be the reason
            raise _refusal(table, column, str(error), error.remedy) from error
        found.append(column.with_type(stored))
    check_read_back(table, pa.schema(found))
    return found


def check_read_back(table: str, schema: pa.Schema) -> None:
    """Raise InvalidInputError if the schema is not what a reader makes of its bytes; names the column."""
    if _is_read_back(schema):
        return
    for column in schema:
        if not _is_read_back(pa.schema([column])):
            named = (column.metadata or {}).get(b"ARROW:extension:name")
            reason = "Arrow does not read it back as it is written"
            if named is not None:
                reason = f"its metadata say that it is {named.decode(errors='replace')!r}, which it cannot be"
            raise _refusal(table, column, reason, "Leave out its metadata, or give it a plain type.")
    raise InvalidInputError(
        f"Cannot define table {table!r}: Arrow does not read the metadata of its schema back as they are.",
        hint="Leave them out: `schema.with_metadata(None)`.",
    )


def _is_read_back(schema: pa.Schema) -> bool:
    try:
        again = schema_from_bytes(schema_to_bytes(schema))
    except (pa.ArrowException, OSError, ValueError):
        return False
    return bool(again.equals(schema, check_metadata=True)) and all(map(same_type, again.types, schema.types))


def _refusal(table: str, column: pa.Field, reason: str, remedy: str) -> InvalidInputError:
    kind = _text_of(column.type)
    shown = kind if len(kind) <= _MOST_SHOWN else f"{kind[:_MOST_SHOWN]}…"
    return InvalidInputError(
        f"Cannot store column {column.name!r} of table {table!r} as {shown}: {reason}.", hint=remedy
    )


def _text_of(kind: pa.DataType) -> str:
    try:
        return str(kind)
    except Exception:  # noqa: BLE001 - of a class of somebody else
        return type(kind).__name__


def _check_extensions(kind: pa.DataType) -> None:
    for each in _extensions(kind):
        name = each.extension_name
        for method in ("__hash__", "__eq__", "__str__"):
            if not _has_working(each, method):
                raise UnsupportedTypeError(
                    f"{type(each).__name__} has no {method} that works, which types need to be looked up",
                    f"Give the class a {method}, or the column the type {each.storage_type}.",
                )
        if not _is_read_back(pa.schema([pa.field("", each)])):
            raise UnsupportedTypeError(
                f"extension type {name!r} is not registered, or its class does not make it again",
                f"Call pyarrow.register_extension_type first, or give the column the type "
                f"{each.storage_type}.",
            )


def _extensions(kind: pa.DataType) -> Iterator[pa.ExtensionType]:
    """Iterate over the extension types defined in Python, in this type and nested in it."""
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.ExtensionType):
            yield kind
        yield from _extensions(kind.storage_type)
    elif pa.types.is_dictionary(kind):
        yield from _extensions(kind.value_type)
    else:
        for index in range(kind.num_fields):
            yield from _extensions(kind.field(index).type)


def _has_working(kind: pa.ExtensionType, method: str) -> bool:
    try:
        return {"__hash__": hash, "__eq__": kind.__eq__, "__str__": str}[method](kind) is not False
    except Exception:  # noqa: BLE001 - of a class of somebody else
        return False


@lru_cache(1024)
def _check_page(kind: pa.DataType) -> None:
    """Raise UnsupportedTypeError if a page of this type cannot be written and read."""
    reason = "Arrow does not read its values as they are written"
    try:
        page = stage_constant(null_scalar(kind), 1).encoded
        batch = decode_page(page.data, where="a page", expected_checksum=None, expected_entries=1)
        if same_type(batch.schema.field("data").type, kind):
            return
    except (pa.ArrowException, SparkPagesError, OSError, ValueError) as error:
        reason = f"Arrow cannot write or read its values: {error}"
    raise _PageError(reason.rstrip("."), "Give it a plain type.")
