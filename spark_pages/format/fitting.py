"""Values of one Arrow type as values of another, for what callers give: the same values, or a refusal.

Arrow's own cast goes further: it reads numbers from text, drops the time of a timestamp, rounds decimals and
leaves out fields of a struct that the other type lacks. `is_convertible` compares types; `convert` also looks
at the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import check_nesting
from spark_pages.arrow.stored_types import same_type
from spark_pages.format.bounds import plain_type, plain_values
from spark_pages.format.inference import LossError, check_inferred, check_unchanged

types = pa.types

_SORTS = (
    (types.is_boolean, "truth values"),
    (types.is_integer, "numbers"),
    (types.is_floating, "numbers"),
    (types.is_decimal, "numbers"),
    (types.is_string, "text"),
    (types.is_large_string, "text"),
    (types.is_string_view, "text"),
    (types.is_binary, "bytes"),
    (types.is_large_binary, "bytes"),
    (types.is_binary_view, "bytes"),
    (types.is_fixed_size_binary, "bytes"),
    (types.is_date, "dates"),
    (types.is_time, "times of day"),
    (types.is_duration, "durations"),
)

_ALSO = {("text", "bytes"), ("bytes", "text"), ("dates", "times without a zone")}


def is_convertible(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type can be values of another, as far as types tell.

    Notes
    -----
    Numbers become numbers, text becomes text; a struct may lack fields, which are null, but have none of its
    own. Dictionaries and run-end encodings count as their values, and extension types as what they are stored
    as; but the bytes of a UUID, say, are no text.
    """
    has_meaning = isinstance(given, pa.BaseExtensionType) or isinstance(wanted, pa.BaseExtensionType)
    given, wanted = _plain(given), _plain(wanted)
    if given == wanted or types.is_null(given) or types.is_null(wanted):
        return True
    if _is_list(given) and _is_list(wanted):
        return is_convertible(given.value_type, wanted.value_type)
    if types.is_map(given) and types.is_map(wanted):
        return is_convertible(given.key_type, wanted.key_type) and is_convertible(
            given.item_type, wanted.item_type
        )
    if types.is_struct(given) and types.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        return all(field.name in known and is_convertible(field.type, known[field.name]) for field in given)
    sorts = _sort(given), _sort(wanted)
    return None not in sorts and (sorts[0] == sorts[1] or (sorts in _ALSO and not has_meaning))


def convert(values: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The same values under another type.

    Raises
    ------
    LossError, pyarrow.ArrowException
        If the types do not fit, or a value would not be the same. Only floats may come to lie on the nearest
        value of a narrower float.
    """
    if same_type(values.type, wanted):
        return values
    if not is_convertible(values.type, wanted):
        raise LossError(f"they are of type {values.type}, which is not converted.")
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([convert(chunk, wanted) for chunk in values.chunks], wanted)
    # Of casts from plain values to encoded ones and back Arrow lacks some.
    if types.is_dictionary(wanted) and not types.is_dictionary(values.type):
        return convert(plain_values(values), wanted.value_type).dictionary_encode().cast(wanted)
    if types.is_run_end_encoded(wanted):
        plain = convert(plain_values(values), wanted.value_type)
        return pc.run_end_encode(plain, run_end_type=wanted.run_end_type)
    if types.is_run_end_encoded(values.type):
        return convert(plain_values(values), wanted)
    if types.is_null(wanted):
        if values.null_count < len(values):
            raise LossError("some of them are not null.")
        return pa.nulls(len(values))
    found = integers_as_decimal(values, wanted).cast(wanted)
    for before, after in _leaves(values, found):
        _check_same(before, after)
    return found


def from_python(values: Any, wanted: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """What Python gives as values, as an array: of their own type where they tell it, else of the wanted one.

    Notes
    -----
    Told the wanted type at once, Arrow makes 1 of 1.5 for a column of integers.
    """
    values = as_sequence(values)
    check_unmasked(values)
    check_nesting(values, "rows")
    try:
        return _inferred(values)
    except (pa.ArrowException, LossError, OverflowError):
        found = pa.array(values, wanted)
    if isinstance(values, Iterable):
        check_unchanged(values, found)
    return found


def as_sequence(values: Any) -> Any:
    """The values, which can be looked at several times."""
    return list(values) if isinstance(values, Iterator) else values


def inferred(values: Any) -> pa.Array | pa.ChunkedArray:
    """What Python gives as values, as an array of the type that they have.

    Raises
    ------
    LossError, InvalidInputError, pyarrow.ArrowException
        If the array would not hold these values, or they are nested too deep.
    """
    check_unmasked(values)
    check_nesting(values, "rows")
    return _inferred(values)


def _inferred(values: Any) -> pa.Array | pa.ChunkedArray:
    found = pa.array(values)
    check_inferred(values, found)
    return found


def check_unmasked(values: Any) -> None:
    """Nothing, if no value is a masked array of numpy: of those inside of others Arrow overlooks the masks.

    Raises
    ------
    LossError
    """
    is_of_objects = isinstance(values, np.ndarray) and values.dtype.hasobject
    some = values if is_of_objects or isinstance(values, list | tuple) else ()
    has_masks = any(issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, some)))
    if has_masks and any(map(np.ma.is_masked, some)):
        raise LossError("a value is an array with masked elements: give a list with None in their place.")


def integers_as_decimal(
    values: pa.Array | pa.ChunkedArray, wanted: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """Whole numbers with all their digits, where decimals are wanted: else Arrow wants room for any."""
    if types.is_decimal(wanted) and types.is_integer(values.type):
        return values.cast(pa.decimal128(20))
    return values


def _plain(kind: pa.DataType) -> pa.DataType:
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else plain_type(kind)
    return kind if inner == kind else _plain(inner)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _sort(kind: pa.DataType) -> str | None:
    """What sort of value it holds; None for nested types and those that only fit themselves."""
    if types.is_timestamp(kind):
        return "times without a zone" if kind.tz is None else "times with a zone"
    return next((name for is_one, name in _SORTS if is_one(kind)), None)


def _leaves(given: pa.Array, found: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The values themselves, before and after, in the same order."""
    given, found = _decoded(given), _decoded(found)
    if given.type == found.type:
        return
    if _is_list(given.type):
        yield from _leaves(given.flatten(), found.flatten())
    elif types.is_map(given.type):
        given, found = (each.filter(each.is_valid()) for each in (given, found))
        yield from _leaves(_entries(given, given.keys), _entries(found, found.keys))
        yield from _leaves(_entries(given, given.items), _entries(found, found.items))
    elif types.is_struct(given.type):
        for field in given.type:
            yield from _leaves(pc.struct_field(given, [field.name]), pc.struct_field(found, [field.name]))
    else:
        yield given, found


def _entries(maps: pa.MapArray, parts: pa.Array) -> pa.Array:
    """Those keys or items that the maps hold."""
    offsets = maps.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    return parts.slice(start, stop - start)


def _decoded(values: pa.Array) -> pa.Array:
    inner = values.storage if isinstance(values, pa.ExtensionArray) else plain_values(values)
    return values if inner is values else _decoded(inner)


def _check_same(before: pa.Array, after: pa.Array) -> None:
    """Nothing, if Arrow's cast has kept the values where it does not see to that itself."""
    kinds = before.type, after.type
    if all(map(types.is_floating, kinds)):
        lost = pc.and_(pc.is_finite(before), pc.is_inf(after))
    elif any(map(types.is_floating, kinds)) and any(map(types.is_decimal, kinds)):
        lost = pc.not_equal(after.cast(before.type, safe=False), before)
    elif kinds == (pa.date64(), pa.date32()):
        lost = pc.not_equal(after.cast(before.type), before)
    else:
        return
    index = pc.index(lost, True).as_py()
    if index >= 0:
        raise LossError(f"{before[index].as_py()!r} would become {after[index].as_py()!r}.")
