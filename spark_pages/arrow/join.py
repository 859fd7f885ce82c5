"""Arrays out of arrays, for every type that a column can have: several joined, entries taken of one.

Arrow has kernels for both, but not for all types, and a dictionary of small indices or text of more than 2
GiB does not fit one array at all. What is here knows the ways round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import has_dictionary, number_column, numbers_of, valid_of
from spark_pages.arrow.compact import compacted, owned_copy, take
from spark_pages.arrow.dictionaries import concatenated, with_valid_dictionaries
from spark_pages.arrow.nested import children, nested_type, null_column, with_children
from spark_pages.arrow.stored_types import same_type
from spark_pages.arrow.types import cast_to_column, retyped, storage_of
from spark_pages.errors import DamageError


class DoesNotFitError(Exception):
    """What was to be joined is too much for one array of its type; never leaves this package."""


@lru_cache(256)
def empty_array(kind: pa.DataType) -> pa.Array:
    """No entries of a type."""
    return null_column(kind, 0)


def empty_table(schema: pa.Schema) -> pa.Table:
    """No rows; `Schema.empty_table` does not know all types."""
    return pa.table([empty_array(field.type) for field in schema], schema=schema)


def join(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Concatenate arrays.

    Raises
    ------
    DoesNotFitError
        If one array cannot hold them: text or binary of 2 GiB, more dictionary values than the indices count,
        or values of dictionaries that Arrow does not bring together.
    """
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return empty_array(kind)
    try:
        return concatenated(arrays, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DoesNotFitError(str(error)) from error


def copied(array: pa.Array) -> pa.Array:
    """Copy the entries to own memory, because the owner of the original may change it."""
    if not len(array):
        return empty_array(array.type)
    return _with_own_dictionaries(owned_copy(join([array, array.slice(0, 0)], array.type)))


def _with_own_dictionaries(array: pa.Array) -> pa.Array:
    """Share one dictionary among arrays with equal dictionaries."""
    kind = array.type
    if not has_dictionary(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _with_own_dictionaries(array.storage))
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, copied(array.dictionary), ordered=kind.ordered)
    return with_children(array, kind, [_with_own_dictionaries(each) for each in children(array)])


def take_entries(array: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the entries at the indices (int64, within the array), in their order.

    Raises
    ------
    DoesNotFitError
        If one array cannot hold them.
    """
    try:
        return take(array, indices)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DoesNotFitError(str(error)) from error


def with_wide_dictionaries(array: pa.Array) -> pa.Array:
    """Widen the indices of dictionaries, also of nested ones.

    Small indices have no room for the values of further arrays.
    """
    kind = array.type
    if not has_dictionary(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return with_wide_dictionaries(array.storage)
    if pa.types.is_dictionary(kind):
        return array if kind.index_type.bit_width >= 32 else _with_wide_indices(array)
    inside = [with_wide_dictionaries(each) for each in children(array)]
    fields = [kind.field(index).with_type(each.type) for index, each in enumerate(inside)]
    return with_children(array, nested_type(kind, fields), inside)


def _with_wide_indices(array: pa.DictionaryArray) -> pa.DictionaryArray:
    kind = array.type
    sound = with_valid_dictionaries(array, kind)
    valid = valid_of(sound.indices) if sound.indices.null_count else None
    wide = number_column(numbers_of(sound.indices).astype(np.int64), pa.int64(), valid)
    return pa.DictionaryArray.from_arrays(wide, sound.dictionary, ordered=kind.ordered)


def with_minimal_dictionaries(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Shrink dictionaries that `widened` enlarged to the values that they use.

    Raises
    ------
    DoesNotFitError
        If these are more than the indices of the type count.
    """
    return array if same_type(array.type, kind) else _with_minimal_dictionaries(compacted(array), kind)


def with_used_values(array: pa.Array) -> pa.Array:
    """Remove values that no entry uses from dictionaries, also from nested ones."""
    kind = array.type
    return _with_minimal_dictionaries(compacted(array), kind, always=True) if has_dictionary(kind) else array


def _with_minimal_dictionaries(array: pa.Array, kind: pa.DataType, *, always: bool = False) -> pa.Array:
    if not (always and has_dictionary(kind)) and same_type(array.type, kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        stored = array.storage if isinstance(array, pa.ExtensionArray) else array
        inside = _with_minimal_dictionaries(stored, kind.storage_type, always=always)
        return pa.ExtensionArray.from_storage(kind, inside)
    if not pa.types.is_dictionary(kind):
        inside = [
            _with_minimal_dictionaries(each, kind.field(index).type, always=always)
            for index, each in enumerate(children(array))
        ]
        return with_children(array, kind, inside)
    valid = valid_of(array.indices)
    places = numbers_of(array.indices)
    used = np.unique(places[valid])
    most = (1 << (kind.index_type.bit_width - (not pa.types.is_unsigned_integer(kind.index_type)))) - 1
    if len(used) > most + 1:
        raise DoesNotFitError(f"{len(used)} different values, of which the indices count {most + 1}")
    indices = number_column(
        np.where(valid, np.searchsorted(used, places), 0), kind.index_type, valid if not valid.all() else None
    )
    values = take_entries(array.dictionary, number_column(used.astype(np.int64), pa.int64()))
    return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)


def as_type(arrays: Iterable[pa.Array], kind: pa.DataType, column: str) -> list[pa.Array]:
    """Cast arrays of pages, some written under earlier types of the column, to one type without loss.

    Parameters
    ----------
    column
        In words, for errors.

    Raises
    ------
    DamageError
        If a value is none of that type.
    """
    return [_as_type(array, kind, column) for array in arrays]


def _as_type(array: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    if array.type == kind:
        return array
    if storage_of(array.type) == storage_of(kind):
        return retyped(array, kind)
    found = cast_to_column(array, kind)
    if found is None:
        raise DamageError(
            f"Cannot read {column} of type {kind}: a page holds values of type {array.type} that do not fit.",
            hint="Widen the column to that type: `transaction.widen_column`.",
        )
    return found


def page_of_another_column(column: str, page: str, kind: pa.DataType, found: pa.DataType) -> DamageError:
    """Create the error for a page of a type that its column never had, so that the log is damaged.

    Parameters
    ----------
    column, page
        Both in words: ``column 'distance' of flights``, and `PageDescriptor.where`.
    kind, found
        The types of the column and of the page.
    """
    return DamageError(
        f"Cannot read {column}: expected entries of type {kind} in {page}, found {found}, a type that the "
        "column never had.",
        hint="Run `spark-pages verify URL`; earlier versions of the table may still be sound.",
    )
