"""Dictionaries of columns, and inside of them, made so that Arrow can bring several together.

Left alone, it follows indices that stand at nulls, wherever they point, refuses dictionaries with a null
among their values, and takes half floats for whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary, number_column, numbers_of, valid_of
from spark_pages.arrow.nested import children, nested_type, null_column, with_children


@lru_cache(256)
def unified_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow joins correctly: half floats in dictionaries become 16-bit integers."""
    if not has_dictionary(kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return unified_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        half = pa.types.is_float16(kind.value_type)
        return pa.dictionary(kind.index_type, pa.uint16(), kind.ordered) if half else kind
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return nested_type(kind, [field.with_type(unified_type(field.type)) for field in fields])


def concatenated(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Concatenate arrays of one type.

    Raises
    ------
    pyarrow.ArrowInvalid
        If one array cannot hold them.
    pyarrow.ArrowNotImplementedError
        If they have different dictionaries inside, of values that Arrow does not compare, such as lists.
    """
    if not has_dictionary(kind):
        return pa.concat_arrays(arrays)
    unified = unified_type(kind)
    sound = [with_valid_dictionaries(array, unified) for array in arrays]
    try:
        joined = pa.concat_arrays(sound)
    except pa.ArrowNotImplementedError:
        if not pa.types.is_dictionary(kind):
            raise
        joined = _concatenated_values(sound, kind)
    return joined if unified == kind else with_valid_dictionaries(joined, kind)


def with_nulls(array: pa.Array, count: int) -> pa.Array:
    """Append so many nulls."""
    kind = array.type
    if not pa.types.is_dictionary(kind):
        return concatenated([array, null_column(kind, count)], kind)
    sound = with_valid_dictionaries(array, kind)
    indices = pa.concat_arrays([sound.indices, pa.nulls(count, kind.index_type)])
    return pa.DictionaryArray.from_arrays(indices, sound.dictionary, ordered=kind.ordered)


def with_valid_dictionaries(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Remove nulls from dictionaries, and make the indices at nulls valid.

    Parameters
    ----------
    kind
        Its type, or the `unified_type` of that, or the other way round.
    """
    if not has_dictionary(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, with_valid_dictionaries(array, kind.storage_type))
    if pa.types.is_dictionary(kind):
        return _valid_dictionaries(array, kind)
    inside = [
        with_valid_dictionaries(each, kind.field(index).type) for index, each in enumerate(children(array))
    ]
    return with_children(array, kind, inside)


def has_null_values(array: pa.Array) -> bool:
    """Whether a dictionary, of this array or inside of it, has a null among its values."""
    kind = array.type
    if not has_dictionary(kind):
        return False
    if isinstance(array, pa.ExtensionArray):
        return has_null_values(array.storage)
    if pa.types.is_dictionary(kind):
        return bool(array.dictionary.null_count)
    return any(map(has_null_values, children(array)))


def _valid_dictionaries(array: pa.DictionaryArray, kind: pa.DataType) -> pa.DictionaryArray:
    indices, values = array.indices, array.dictionary
    if values.type != kind.value_type:
        values = values.view(kind.value_type)
    if not indices.null_count and not values.null_count:
        return (
            array
            if array.type == kind
            else pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)
        )
    known = valid_of(values)
    if not known.any():
        return null_column(kind, len(array))
    valid = valid_of(indices)
    places = np.where(valid, numbers_of(indices), 0)
    if values.null_count:
        valid = valid & known[places]
        places = np.where(valid, (np.cumsum(known) - 1)[places], 0)
        values = _without_nulls(values, known)
    return pa.DictionaryArray.from_arrays(
        number_column(places, kind.index_type, valid), values, ordered=kind.ordered
    )


def _concatenated_values(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Concatenate dictionary arrays; each keeps its own values, also where others have the same."""
    shifts = np.cumsum([0, *(len(array.dictionary) for array in arrays)])
    most = np.iinfo(numbers_of(arrays[0].indices).dtype).max
    if shifts[-1] > int(most) + 1:
        raise pa.ArrowInvalid(f"{shifts[-1]} values, of which the indices count {int(most) + 1}")
    valid = np.concatenate([valid_of(array.indices) for array in arrays])
    places = [
        numbers_of(array.indices).astype(np.int64) + shift
        for array, shift in zip(arrays, shifts, strict=False)
    ]
    indices = number_column(np.where(valid, np.concatenate(places), 0), kind.index_type, valid)
    values = pa.concat_arrays([array.dictionary for array in arrays])
    return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)


def _without_nulls(values: pa.Array, known: NDArray[np.bool_]) -> pa.Array:
    try:
        return values.drop_null()
    except pa.ArrowNotImplementedError:  # what Arrow cannot pick, it can join: stretches between nulls
        edges = np.flatnonzero(np.diff(known, prepend=False, append=False)).reshape(-1, 2)
        return pa.concat_arrays([values.slice(start, stop - start) for start, stop in edges.tolist()])
