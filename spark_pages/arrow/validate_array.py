"""Whether values stay inside of their memory.

A checksum tells that a page is as it was written, not that its writer was right. Arrow believes its buffers:
an offset behind the end, or an index that no dictionary has, reads what is not the page's, or ends the
process. So nothing is used before `validate_array`, be it from a page or from whoever appends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary, numbers_of
from spark_pages.arrow.nested import frame_type, has_null_type, list_buffers, nested_type, struct_fields

_WITHOUT_RULES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
    pa.date64(): pa.int64(),
    **{pa.time32(unit): pa.int32() for unit in ("s", "ms")},
    **{pa.time64(unit): pa.int64() for unit in ("us", "ns")},
}
"""Types of which not every value that fits is one, and how the same memory is read without such a rule."""


def validate_array(array: pa.Array) -> None:
    """Nothing, if whatever is done with the entries stays inside of their buffers, and text is UTF-8.

    Raises
    ------
    pyarrow.ArrowInvalid
        If an offset, an index of a dictionary or a number of nulls is wrong, or text is not UTF-8. Values
        that mean nothing, such as a time of 25 hours, are let through: they do no harm.

    Notes
    -----
    Less than 1 µs for 64 KiB of numbers, 8 µs of short text, 20 µs where it is not ASCII, which Arrow's
    own `validate` takes 90 to 140 µs for.
    """
    kind = array.type
    bare, has_text, by_parts = _bare(kind)
    if by_parts:
        inside = _parts_of_dictionary(array) if pa.types.is_dictionary(kind) else _parts_of_nested(array)
        for part in inside:
            validate_array(part)
        if inside:
            return
    (array if bare is None else array.view(bare)).validate(full=True)
    if has_text:
        for text in _texts(array):
            if not _is_plainly_text(text):
                text.validate(full=True)


@lru_cache(256)
def _bare(kind: pa.DataType) -> tuple[pa.DataType | None, bool, bool]:
    """Return how to validate a type.

    The type that reads the same memory without rules for values, or None for the type itself; whether it
    holds text to validate; and whether to validate its parts one by one, as for dictionaries and the null
    type, whose views have a wrong null count in Arrow.
    """
    nulls = bool(kind.num_fields) and has_null_type(kind)
    by_parts = nulls or has_dictionary(kind)
    bare = None if nulls else _without_rules(kind)
    if bare is None or bare == kind:
        return None, False, by_parts  # a type that Arrow gives no other view of is held to all of its rules
    return bare, any(map(_is_text, _leaves(kind))), by_parts


def _without_rules(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if kind in _WITHOUT_RULES:
        return _WITHOUT_RULES[kind]
    if types.is_decimal(kind):
        return pa.binary(kind.bit_width // 8)
    if types.is_dictionary(kind):
        values = _without_rules(kind.value_type)
        return values and pa.dictionary(kind.index_type, values, kind.ordered)
    inside = [_without_rules(kind.field(index).type) for index in range(kind.num_fields)]
    if None in inside:
        return None
    # Nullable, as a field that is not may be null where what it is a part of is.
    fields = [kind.field(index).with_type(each).with_nullable(True) for index, each in enumerate(inside)]
    if types.is_struct(kind) or list_buffers(kind):
        return nested_type(kind, fields)
    return None if fields or isinstance(kind, pa.BaseExtensionType) else kind


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_dictionary(kind):
        yield from _leaves(kind.value_type)
    elif kind.num_fields:
        for index in range(kind.num_fields):
            yield from _leaves(kind.field(index).type)
    else:
        yield kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _parts_of_dictionary(array: pa.Array) -> list[pa.Array]:
    """Return the parts left to validate if every index is in range, also at nulls; else none.

    Arrow's own check takes five times as long.
    """
    numbers = numbers_of(array.indices)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(array.dictionary):
        return []
    return [array.indices, array.dictionary]


def _parts_of_nested(array: pa.Array) -> list[pa.Array]:
    """Columns that are left to be checked; nothing where Arrow has to check all at once.

    Under a struct that is null Arrow itself puts indices that the dictionary does not have, and its own check
    does not look at the struct.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        array.validate()
        return struct_fields(array)
    own = list_buffers(kind)
    if not own:
        return []
    inside = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    frame, nulls = [pa.nulls(len(inside[0]))], array.null_count
    pa.Array.from_buffers(
        frame_type(kind), len(array), array.buffers()[:own], nulls, array.offset, frame
    ).validate(full=True)
    return inside


def _texts(array: pa.Array) -> Iterator[pa.Array]:
    """Iterate over the text columns inside of a column."""
    kind = array.type
    if _is_text(kind):
        yield array
    elif pa.types.is_dictionary(kind):
        yield from _texts(array.dictionary)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _texts(array.field(index))
    elif pa.types.is_map(kind):
        yield from _texts(array.keys)
        yield from _texts(array.items)
    elif kind.num_fields:
        yield from _texts(array.values)


def _is_plainly_text(array: pa.Array) -> bool:
    """Return whether all bytes are UTF-8 and no entry begins inside of a character.

    Bytes at nulls may be no text, and views are not examined: then False proves nothing.
    """
    if pa.types.is_string_view(array.type):
        return False
    if not len(array):
        return True
    kind, width = (np.int64, 8) if pa.types.is_large_string(array.type) else (np.int32, 4)
    _, offsets, memory = array.buffers()
    begins: NDArray[Any] = np.frombuffer(offsets, kind, len(array) + 1, width * array.offset)
    first, last = int(begins[0]), int(begins[-1])
    if first == last:
        return True
    data = np.frombuffer(memory, np.uint8, last - first, first)
    if int(data.max()) < 0x80:
        return True
    whole = [None, pa.py_buffer(np.array([first, last], np.int64)), memory]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, whole).validate(full=True)
    except pa.ArrowInvalid:
        return False
    inside = begins[(begins > first) & (begins < last)] - first
    return not ((data[inside] & 0xC0) == 0x80).any()
