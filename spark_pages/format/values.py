"""Rows and values that callers give, converted to Arrow of the right type without loss, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import check_nesting, shortened
from spark_pages.arrow.columns import has_dictionary, nulls_of
from spark_pages.arrow.compact import owned_copy, referenced_bytes
from spark_pages.arrow.dictionaries import has_null_values, with_valid_dictionaries
from spark_pages.arrow.nested import has_required, null_of_required
from spark_pages.arrow.stored_types import check_depth, same_type, stored_type, stored_values
from spark_pages.arrow.validate_array import validate_array
from spark_pages.errors import InvalidInputError, SchemaMismatchError, SparkPagesError
from spark_pages.format.bounds import plain_type, plain_values
from spark_pages.format.inference import LossError, check_frame, check_inferred, check_unchanged

# Values of one Arrow type as values of another, for what callers give: the same values, or a refusal.
#
# Arrow's own cast goes further: it reads numbers from text, drops the time of a timestamp, rounds decimals
# and leaves out fields of a struct that the other type lacks. `is_convertible` compares types; `convert` also
# looks at the values.

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
    """Convert values to another type without loss.

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
    """Create an array from Python values, of their own type if they have one, else of the wanted type.

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
    """Return the values as a sequence that can be read several times."""
    return list(values) if isinstance(values, Iterator) else values


def inferred(values: Any) -> pa.Array | pa.ChunkedArray:
    """Create an array from Python values, of the inferred type.

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
    """Return the category of a type; None for nested types and those without a category."""
    if types.is_timestamp(kind):
        return "times without a zone" if kind.tz is None else "times with a zone"
    return next((name for is_one, name in _SORTS if is_one(kind)), None)


def _leaves(given: pa.Array, found: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Iterate over the leaf arrays before and after a conversion, in the same order."""
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


NOT_ARROW = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""What Arrow, and those who hand it their data, raise where it cannot be made of what was given."""

_SMALL_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class RowStream:
    """Rows that a caller gives, piece by piece.

    Attributes
    ----------
    schema
        Names and types of their columns, as they are given.
    pieces
        Gives the rows as tables of at most so many bytes, but of a row at least. May be called once.
    size_bytes
        Bytes that they take, where all are in memory.
    """

    schema: pa.Schema
    pieces: Callable[[int], Iterator[pa.Table]]
    size_bytes: int | None = None

    def renamed(self, columns: Sequence[str]) -> RowStream:
        """Return the same rows under other names of their columns."""
        return RowStream(
            pa.schema([field.with_name(name) for field, name in zip(self.schema, columns, strict=True)]),
            lambda most: (piece.rename_columns(list(columns)) for piece in self.pieces(most)),
            self.size_bytes,
        )

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @property
    def is_small(self) -> bool:
        """Whether these are a few rows that are all in memory."""
        return self.size_bytes is not None and self.size_bytes <= _SMALL_BYTES


def as_stream(data: Any) -> RowStream:
    """Open the rows of Arrow data, a mapping, or anything with Arrow's C interface as a stream.

    Notes
    -----
    A stream is read as its pieces are asked for.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif not isinstance(data, pa.Table) and isinstance(data, Mapping):
        data = _table_of(data)
    if isinstance(data, pa.Table):
        return _of_table(data)
    reason = "expected columns with names and __arrow_c_stream__, such as a pyarrow.Table"
    if isinstance(data, type | pa.Array | pa.ChunkedArray):
        raise InvalidInputError(
            f"Cannot append a {type(data).__name__}: {reason}.",
            hint="Convert the column to one type, such as `data[name].astype(str)`.",
        )
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = _reader_of(data)
            check_frame(data, reader.schema)
            return _of_reader(reader)
        if hasattr(data, "__arrow_c_array__"):
            return as_stream(pa.record_batch(data))
    except SparkPagesError:
        raise  # also a ValueError
    except LossError as error:
        raise InvalidInputError(
            f"Cannot append a {type(data).__name__}: {error}.",
            hint="Convert it by `pyarrow.table(data)` first, which shows which column does not convert.",
        ) from error
    except NOT_ARROW as error:
        unknown = _unknown_column(data)
        what = "it" if unknown is None else f"its column {unknown!r}"
        reason = f"Arrow does not read {what}: {error}"
        raise InvalidInputError(
            f"Cannot append a {type(data).__name__}: {reason}.",
            hint="Convert the column to one type, such as `data[name].astype(str)`.",
        ) from error
    raise InvalidInputError(
        f"Cannot append a {type(data).__name__}: {reason}.",
        hint="Convert the column to one type, such as `data[name].astype(str)`.",
    )


def _of_table(table: pa.Table) -> RowStream:
    try:
        table.validate()  # sizes of buffers, in a few microseconds: `nbytes` reads offsets
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"Cannot append a table: it contradicts itself: {error}.",
            hint="Write it anew by `pyarrow.concat_tables([table]).combine_chunks()`, or find the batch "
            "by `given.validate(full=True)`.",
        ) from error
    size_bytes = table.get_total_buffer_size()
    if size_bytes > _SMALL_BYTES:  # of a slice the whole, but found out quickly
        size_bytes = referenced_bytes(table)
    return RowStream(table.schema, lambda most: _slices(table, size_bytes, most), size_bytes)


def read_stream(data: Any) -> pa.Table:
    """All rows of a stream, each batch checked as `as_stream` does.

    Raises
    ------
    SchemaMismatchError, pyarrow.ArrowException
    """
    reader = _reader_of(data)
    return pa.Table.from_batches(list(_checked_batches(reader)), reader.schema)


def _reader_of(stream: Any) -> pa.RecordBatchReader:
    """Open a stream. Batches of a pyarrow reader keep their schemas, which the C interface drops.

    Raises
    ------
    InvalidInputError
        If a column holds Python objects, of which Polars hands out addresses.
    """
    for name, kind in getattr(getattr(stream, "schema", None), "items", tuple)():
        if str(kind) == "Object":
            raise InvalidInputError(
                f"Cannot append a {type(stream).__name__}: its column {name!r} holds Python objects.",
                hint=f"Convert column {name!r} to text, numbers or structs.",
            )
    return stream if isinstance(stream, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(stream)


def _of_reader(reader: pa.RecordBatchReader) -> RowStream:
    schema = reader.schema
    return RowStream(schema, lambda most: _gathered(schema, _checked_batches(reader), most))


def _unknown_column(data: Any) -> str | None:
    """Name of the first column of a data frame that Arrow cannot import; None where that is not known."""
    name: object = None
    try:
        for name in getattr(data, "columns", ()):
            column = data[name]
            (pa.chunked_array if hasattr(column, "__arrow_c_stream__") else pa.array)(column)
    except pa.ArrowException:
        return str(name)
    except Exception:  # noqa: BLE001 - not a data frame
        return None
    return None


def _checked_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Iterate over the batches of a reader, and validate each against its schema and its buffers.

    Raises
    ------
    SchemaMismatchError, InvalidInputError
        If a batch disagrees, or cannot be read; names it, counted from 0.
    """
    for number in count():
        try:
            batch = reader.read_next_batch()
            _check_batch(batch, reader.schema)
        except StopIteration:
            return
        except SparkPagesError:
            raise  # also a ValueError
        except (pa.ArrowException, LossError) as error:
            raise SchemaMismatchError(
                f"Cannot append batch {number} of a stream: {error}.",
                hint="Give every batch the schema of its stream: "
                "`pyarrow.RecordBatchReader.from_batches(schema, batches)`.",
            ) from error
        except (*NOT_ARROW, RuntimeError) as error:  # of what hands out the batches
            raise InvalidInputError(
                f"Cannot read batch {number} of a stream: {error}.",
                hint="Read the stream by itself, `pyarrow.RecordBatchReader.read_next_batch`: it fails "
                "likewise.",
            ) from error
        yield batch


def _check_batch(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    """Raise LossError, or an exception of Arrow, if a batch is not what the schema of its stream says."""
    if batch.schema.names != schema.names:
        raise LossError(f"expected columns {schema.names}, found {batch.schema.names}")
    for found, expected in zip(batch.schema, schema, strict=True):
        if not same_type(found.type, expected.type):
            raise LossError(f"expected {expected.type} in column {found.name!r}, found {found.type}")
    batch.validate()


def _table_of(columns: Mapping[str, Any]) -> pa.Table:
    arrays = {}
    for name, each in columns.items():
        if isinstance(each, str | bytes | Mapping):
            raise InvalidInputError(
                f"Cannot append column {shortened(name)} of a mapping: expected a list of values, found "
                f"{shortened(each)} ({type(each).__name__}).",
                hint=f"Put the values of column {shortened(name)} into a list: [{shortened(each)}].",
            )
        try:
            is_arrow = isinstance(each, pa.Array | pa.ChunkedArray)
            arrays[name] = each if is_arrow else inferred(as_sequence(each))
        except SparkPagesError:
            raise  # also a ValueError
        except NOT_ARROW as error:
            raise InvalidInputError(
                f"Cannot append column {shortened(name)} of a mapping: {error}.",
                hint=f"Give the values of {shortened(name)} as a pyarrow.Array of the type that they have.",
            ) from error
    try:
        return pa.table(arrays)
    except NOT_ARROW as error:
        raise InvalidInputError(
            f"Cannot append this mapping: expected columns of equal length by name, found: {error}",
            hint="Give every column as many values, such as {'n': [1, 2], 's': ['a', 'b']}.",
        ) from error


def _slices(table: pa.Table, size_bytes: int, most_bytes: int) -> Iterator[pa.Table]:
    if not table.num_rows:
        return
    rows = max(1, int(most_bytes / max(1, size_bytes) * table.num_rows))
    if rows >= table.num_rows:
        yield table
        return
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _gathered(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Regroup batches into tables of about so many bytes: join small ones, split large ones."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        waiting.append(batch)
        held += referenced_bytes(batch)
        if held >= most_bytes:
            yield from _slices(pa.Table.from_batches(waiting, schema), held, most_bytes)
            waiting, held = [], 0
    if waiting:
        yield from _slices(pa.Table.from_batches(waiting, schema), held, most_bytes)


def cast_chunks(values: Any, wanted: pa.Field, table: str) -> list[pa.Array]:
    """Cast values to the type of a column without loss, and validate them."""
    try:
        own = values if isinstance(values, pa.Array | pa.ChunkedArray) else from_python(values, wanted.type)
        chunks = [convert(each, wanted.type) for each in _valid_chunks(own, wanted.type)]
    except SparkPagesError:
        raise  # also a ValueError
    except NOT_ARROW as error:
        raise SchemaMismatchError(
            f"Cannot store values in column {wanted.name!r} of {table!r}: it holds {wanted.type}, and "
            f"the values given do not fit: {error}",
            hint=f"Convert the values to {wanted.type}, or widen the column: `transaction.widen_column`.",
        ) from error
    nulls = 0 if wanted.nullable else sum(map(_nulls, chunks))
    if nulls:
        raise SchemaMismatchError(
            f"Cannot store nulls in column {wanted.name!r} of {table!r}: it is not nullable, and "
            f"{nulls} of the values given are null.",
            hint=f"Leave those rows out, or allow nulls: `transaction.set_nullable({table!r}, "
            f"{wanted.name!r}, True)`.",
        )
    if has_required(wanted.type):
        for chunk in chunks:
            _check_required(chunk, wanted.name, table)
    chunks = [owned_copy(each) for each in chunks]
    if not has_dictionary(wanted.type):
        return chunks
    return [with_valid_dictionaries(each, wanted.type) if has_null_values(each) else each for each in chunks]


def _check_required(values: pa.Array, column: str, table: str) -> None:
    missing = null_of_required(values)
    if missing is not None:
        raise SchemaMismatchError(
            f"Cannot store nulls in field {missing!r} inside of column {column!r} of {table!r}: it is "
            "not nullable, and some of the values given are null.",
            hint=f"Fill the nulls in {missing!r}, or use a column whose field is nullable.",
        )


def _valid_chunks(values: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> list[pa.Array]:
    """Validate the buffers of values, and cast them to a stored type or to the wanted one."""
    check_depth(values.type)
    chunks = list(values.chunks) if isinstance(values, pa.ChunkedArray) else [values]
    for chunk in chunks:
        validate_array(chunk)
    if same_type(values.type, wanted):
        return chunks
    stored = stored_type(values.type)
    return [stored_values(each, stored) for each in chunks]


def _nulls(values: pa.Array) -> int:
    """Null entries, also those that are null among the values of a dictionary."""
    return values.is_null().true_count if pa.types.is_dictionary(values.type) else nulls_of(values)
