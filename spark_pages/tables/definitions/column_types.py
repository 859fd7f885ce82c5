"""Whether a column can be of a type: what could be declared and then neither written nor read is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from spark_pages.errors import InvalidInputError
from spark_pages.model.nested import null_scalar
from spark_pages.tables.writing.page_writer import stage_constant


def check_types(table: str, columns: Iterable[pa.Field]) -> None:
    """Nothing, if rows of these columns can be appended, and read where the table is opened.

    Raises
    ------
    InvalidInputError
        If an extension type is not registered or cannot be hashed, or Arrow cannot read the values of a
        dictionary or run-end encoding.
    """
    for column in columns:
        refused = f"Column {column.name!r} of table {table!r} cannot be of type {column.type}: "
        for kind in _extensions(column.type):
            if not _is_hashable(kind):
                raise InvalidInputError(
                    f"{refused}{type(kind).__name__} has no __hash__, by which types are looked up.",
                    hint=f"Give the class a __hash__, or the column the type {kind.storage_type}.",
                )
            if not _is_registered(kind):
                raise InvalidInputError(
                    f"{refused}{kind.extension_name!r} is not registered, and would be read as "
                    f"{kind.storage_type}.",
                    hint=f"Call pyarrow.register_extension_type first, or give the column the type "
                    f"{kind.storage_type}.",
                )
        why = _why_not_written(column.type)
        if why is not None:
            raise InvalidInputError(
                f"{refused}Arrow cannot look at its values ({why}).",
                hint=f"Give it the type {column.type.value_type}, or values of a plain type."
                if pa.types.is_dictionary(column.type) or pa.types.is_run_end_encoded(column.type)
                else "Give it a plain type.",
            )


def _extensions(kind: pa.DataType) -> Iterator[pa.ExtensionType]:
    """The extension types that are made in Python, of this type and inside of it."""
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.ExtensionType):
            yield kind
        yield from _extensions(kind.storage_type)
    elif pa.types.is_dictionary(kind):
        yield from _extensions(kind.value_type)
    else:
        for index in range(kind.num_fields):
            yield from _extensions(kind.field(index).type)


def _is_hashable(kind: pa.ExtensionType) -> bool:
    try:
        hash(kind)
    except TypeError:
        return False
    return True


def _is_registered(kind: pa.ExtensionType) -> bool:
    schema = pa.schema([("", kind)])
    return bool(pa.ipc.read_schema(schema.serialize()).field(0).type == kind)


@lru_cache(1024)
def _why_not_written(kind: pa.DataType) -> str | None:
    """What Arrow says of a page of this type; None if it can be written."""
    try:
        stage_constant(null_scalar(kind), 1)
    except pa.ArrowNotImplementedError as error:
        return str(error)
    return None
