"""Small Parquet objects of a checkpoint, whole in memory: tables to bytes and back. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_pages.arrow.columns import no_numbers
from spark_pages.errors import DamageError
from spark_pages.format.digest import digester


def encode_table(
    table: pa.Table,
    dictionary: bool | list[str],
    encodings: dict[str, str] | None = None,
    metadata: dict[bytes, bytes] | None = None,
    level: int = 1,
) -> bytes:
    """Encode a table as Parquet with zstd and without statistics.

    Parameters
    ----------
    dictionary, encodings
        Columns with a dictionary, or all or none; encodings of others.
    metadata
        Of the file.
    level
        Of zstd.
    """
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        table.schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=dictionary,
        column_encoding=encodings,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        if metadata:
            writer.add_key_value_metadata(metadata)
    return out.getvalue()


def decode_table(
    data: bytes,
    schema: pa.Schema,
    key: str,
    dictionary: Sequence[str] = (),
    optional: Sequence[str] = (),
    stored: pa.Schema | None = None,
) -> dict[str, pa.Array]:
    """Decode columns of an object whose columns are those of the format, each in one piece.

    Parameters
    ----------
    dictionary
        String columns to give as dictionary arrays, which is quicker than to encode them afterwards.
    optional
        Columns of numbers or booleans that may be missing: null there.
    stored
        All columns of the object, if `schema` has only some of them.

    Raises
    ------
    DamageError
        If the bytes do not hold these columns.
    """
    try:
        # Not `read_table`: it goes by way of datasets, which cost ten times the time and 50 MB at first use.
        claims = _checked_limits(data)
        check_columns(claims, stored or schema, optional)
        repeated = [name for name in claims.repeated if name not in dictionary]
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=[*dictionary, *repeated])
        table = file.read(schema.names if stored else None, use_threads=False)
        for name in set(repeated).intersection(table.column_names):
            table = _spelt_out(table, name, claims.most_bytes)
        absent = set(optional).difference(table.column_names)
        columns = {
            field.name: no_numbers(table.num_rows, field.type)
            if field.name in absent
            else _whole(table.column(field.name))
            for field in schema
        }
        wrong = [field.name for field in schema if not _fits(columns[field.name], field, dictionary)]
        for column in columns.values():
            column.validate(full=True)  # Parquet's reader believes what is to be UTF-8
        if not wrong:
            return columns
        reason = f"wrong type or nulls in {', '.join(wrong)}"
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise DamageError(
        f"Cannot read {key}: expected Parquet with columns {', '.join(schema.names)}, but: {reason}", key=key
    )


_MOST_CHECKED = 256
_checked: dict[bytes, Claims] = {}
"""By digest: an object that was checked once need not be when another store, or another handle, reads it."""


def _checked_limits(data: bytes) -> Claims:
    digest = digester(data).digest()
    claims = _checked.get(digest)
    if claims is None:
        claims = check_limits(data)
        if len(_checked) >= _MOST_CHECKED:
            _checked.clear()
        _checked[digest] = claims
    return claims


def _spelt_out(table: pa.Table, name: str, most_bytes: int) -> pa.Table:
    """Decode the dictionaries of a table whose values have an acceptable size."""
    column = table.column(name)
    size = sum(
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0 for chunk in column.chunks
    )
    if size > most_bytes:
        raise ValueError(f"{size} bytes in column {name}, expected at most {most_bytes}")
    return table.set_column(table.column_names.index(name), name, column.cast(column.type.value_type))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _fits(column: pa.Array, field: pa.Field, dictionary: Sequence[str]) -> bool:
    kind = column.type.value_type if field.name in dictionary else column.type
    return kind.equals(field.type) and (field.nullable or not column.null_count)


MOST_BYTES = 64 << 20
MOST_TIMES = 128
"""An object may grow to `MOST_BYTES` and `MOST_TIMES` its size; those of checkpoints grow twentyfold."""

MOST_ROWS = 16_384
ROWS_A_BYTE = 4
"""It may have `MOST_ROWS` rows and `ROWS_A_BYTE` for each byte; a descriptor has 8 that do not shrink."""

MOST_CHUNKS = 1024
"""Chunks of columns, in all row groups: the writer makes one row group of up to a million rows."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8

_SCHEMA, _ROWS, _GROUPS, _PAIRS = 2, 3, 4, 5  # of FileMetaData
_FOOTER_FIELDS = frozenset({1, _SCHEMA, _ROWS, _GROUPS, _PAIRS, 6, 7})  # those behind them are for encryption
_PHYSICAL, _WIDTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED = 1, 2, 3, 4, 5, 6  # of SchemaElement
_CHUNKS, _ROWS_OF_GROUP = 1, 3  # of RowGroup
_ABOUT = 3  # of ColumnChunk
_CHUNK_FIELDS = frozenset({2, _ABOUT, 4, 5, 6, 7})  # 1 is another file, 8 and 9 are for encryption
_TYPE, _PATH, _CODEC, _VALUES, _LENGTH, _FIRST_DATA, _FIRST_DICTIONARY = (
    1,
    3,
    4,
    5,
    7,
    9,
    11,
)  # of ColumnMetaData
_KIND, _GROWN, _SHRUNK = 1, 2, 3  # of PageHeader

_BYTE_ARRAY = 6
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_ABOUT_PAGE = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_ENCODINGS = frozenset({0, 2, 3, 5, 6, 8, 9})
"""All that are for values but one, text as what differs from the text before it: that bounds nothing."""

_CODECS = frozenset({0, 6})
"""None, and zstd."""

_REPEATED = 2
_PREFIX = b"spark_pages."
"""Metadata of any other name is not of the format; Arrow would parse some of it."""

_STORED: dict[pa.DataType, tuple[int, int | None]] = {
    pa.bool_(): (0, None),
    pa.int8(): (1, 15),
    pa.int32(): (1, None),
    pa.int64(): (2, None),
    pa.string(): (_BYTE_ARRAY, 0),
    pa.binary(): (_BYTE_ARRAY, None),
}
"""Physical and converted type of each type that objects of a checkpoint have."""

_SHORTEST = 4
"""Bytes of a dictionary value at least: a number, or the length of a text."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What bytes whose claims can be true still have to be held to.

    Attributes
    ----------
    columns
        Physical and converted type by name, in the order of the object.
    metadata
        Key-value pairs of the object.
    most_bytes
        What one column may take once it is decoded.
    repeated
        Columns of text or bytes whose values stand in a dictionary, and could take more.
    """

    columns: dict[str, tuple[int, int | None]]
    metadata: dict[bytes, bytes]
    most_bytes: int
    repeated: tuple[str, ...]


def check_limits(data: bytes) -> Claims:
    """Verify the claims of a Parquet footer, and return how large the object may become.

    Raises
    ------
    ValueError
        If it cannot, or the bytes are no Parquet.

    Notes
    -----
    0.3 to 0.6 ms for an object of a checkpoint.
    """
    most_rows, most_bytes = MOST_ROWS + ROWS_A_BYTE * len(data), MOST_BYTES + MOST_TIMES * len(data)
    footer = _footer(data)
    if not footer.keys() <= _FOOTER_FIELDS:
        raise ValueError("a footer with fields that the format does not have")
    columns = _columns(footer)
    groups = _structs(footer.get(_GROUPS))
    rows = [_number(footer, _ROWS), *(_number(group, _ROWS_OF_GROUP) for group in groups)]
    chunks = [chunk for group in groups for chunk in _structs(group.get(_CHUNKS))]
    if len(chunks) > MOST_CHUNKS:
        raise ValueError(f"{len(chunks)} chunks of columns, expected at most {MOST_CHUNKS}")
    size = 0
    dictionaries: dict[str, int] = {}
    for chunk in chunks:
        about = _fields(chunk.get(_ABOUT))
        if not chunk.keys() <= _CHUNK_FIELDS or _number(about, _CODEC) not in _CODECS:
            raise ValueError("a column of another codec than zstd, encrypted, or in another file")
        rows.append(_number(about, _VALUES))
        for kind, grown, values in pages_of(data, about):
            size += grown
            if kind != _DICTIONARY:
                rows.append(values)
            elif values * _SHORTEST > grown:
                raise ValueError(f"a dictionary of {values} values in {grown} bytes")
            elif about.get(_TYPE) == _BYTE_ARRAY:
                name = b".".join(_texts(about.get(_PATH))).decode()
                dictionaries[name] = max(dictionaries.get(name, 0), grown)
    if min(rows) < 0 or max(rows) > most_rows or size > most_bytes:
        raise ValueError(
            f"{len(data)} bytes that promise {max(rows)} rows and {size} bytes, expected at most {most_rows} "
            f"and {most_bytes}"
        )
    return Claims(
        columns,
        _metadata(footer),
        most_bytes,
        tuple(name for name, each in dictionaries.items() if each * max(rows) > most_bytes),
    )


def check_columns(claims: Claims, accepted: pa.Schema, optional: Iterable[str]) -> None:
    """Raise ValueError if the columns of an object are not those of a schema, some of which may be missing.

    Notes
    -----
    Which of them may be null, and their order, are free.
    """
    expected = {field.name: _STORED[_plain(field.type)] for field in accepted}
    wrong = [name for name, stored in claims.columns.items() if expected.get(name) != stored]
    wrong += [name for name in expected if name not in claims.columns and name not in optional]
    if wrong:
        raise ValueError(f"columns {', '.join(wrong)} are missing, of another type, or not of the format")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _columns(footer: Fields) -> dict[str, tuple[int, int | None]]:
    """Read the columns of a footer; none may be nested or repeated."""
    root, *leaves = _structs(footer.get(_SCHEMA)) or [{}]
    columns: dict[str, tuple[int, int | None]] = {}
    for leaf in leaves:
        name, converted = leaf.get(_NAME), leaf.get(_CONVERTED)
        nested = leaf.get(_CHILDREN) or leaf.get(_WIDTH) or leaf.get(_REPETITION) == _REPEATED
        if (
            nested
            or not isinstance(name, bytes)
            or (converted is not None and not isinstance(converted, int))
        ):
            raise ValueError("a column that is nested, repeated or without a name")
        columns[name.decode()] = _number(leaf, _PHYSICAL), converted
    if not root.get(_CHILDREN) == len(columns) == len(leaves):
        raise ValueError("columns that are nested, or two of one name")
    return columns


def _metadata(footer: Fields) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for each in _structs(footer.get(_PAIRS)):
        key, value = each.get(1), each.get(2)
        if not isinstance(key, bytes) or not key.startswith(_PREFIX) or not isinstance(value, bytes):
            raise ValueError("metadata that the format does not have")
        found[key] = value
    return found


def pages_of(data: bytes, about: Fields) -> Iterator[tuple[int, int, int]]:
    """Kind, decompressed size and number of values of each page of a chunk, as Arrow goes through them.

    Parameters
    ----------
    about
        ColumnMetaData of the chunk.

    Raises
    ------
    ValueError
        If they are not where they are said to be, or none that the log has.
    """
    start, length = _number(about, _FIRST_DATA), _number(about, _LENGTH)
    before = about.get(_FIRST_DICTIONARY, 0)
    if isinstance(before, int) and 0 < before < start:
        start = before
    if not about.get(_VALUES):
        return  # Arrow reads no page
    stop = start + length
    if not 0 <= start <= stop <= len(data):
        raise ValueError(f"a chunk of a column from {start} to {stop} in {len(data)} bytes")
    while start < stop:
        (kind, grown, shrunk, values, encoding), start = page_header(data, start, stop)
        if grown < 0 or not 0 <= shrunk <= stop - start:
            raise ValueError(f"a page of kind {kind} with {shrunk} bytes that become {grown}")
        if values < 0 or encoding not in _ENCODINGS:
            raise ValueError(f"a page of {values} values in encoding {encoding}")
        yield kind, grown, values
        start += shrunk


_FIELD = rb"\x15([\x80-\xff]{0,4}[\x00-\x7f])"
_DATA_HEADER = re.compile(
    rb"\x15\x00" + 2 * _FIELD + rb"\x2c" + 4 * _FIELD + rb"(?:\x1c\x00)?\x00\x00", re.DOTALL
)
_DICTIONARY_HEADER = re.compile(
    rb"\x15\x04" + 2 * _FIELD + rb"\x4c" + 2 * _FIELD + rb"[\x11\x12]?\x00\x00", re.DOTALL
)


def page_header(data: bytes, start: int, stop: int) -> tuple[tuple[int, int, int, int, int], int]:
    """Kind, decompressed and stored size, number of values and encoding of a page, and the place behind them.

    Raises
    ------
    ValueError
        If there is no header of a page that the log has.

    Notes
    -----
    2 µs for headers as the writer of Arrow makes them, each of whose fields is found by one expression; 8 µs
    field by field for others. A first read checks 90 headers.
    """
    for kind, pattern in ((_DATA, _DATA_HEADER), (_DICTIONARY, _DICTIONARY_HEADER)):
        found = pattern.match(data, start, stop)
        if found is not None:
            grown, shrunk, values, encoding = map(_zigzag, found.group(1, 2, 3, 4))
            return (kind, grown, shrunk, values, encoding), found.end()
    return _page_header_by_field(data, start, stop)


def _page_header_by_field(data: bytes, start: int, stop: int) -> tuple[tuple[int, int, int, int, int], int]:
    header, end = read_struct(data, start, stop)
    kind, grown, shrunk = (_number(header, field) for field in (_KIND, _GROWN, _SHRUNK))
    if kind not in _ABOUT_PAGE:
        raise ValueError(f"a page of kind {kind} with {shrunk} bytes that become {grown}")
    told = _fields(header.get(_ABOUT_PAGE[kind]))
    values, encoding = _number(told, 1), _number(told, 4 if kind == _DATA_V2 else 2)
    return (kind, grown, shrunk, values, encoding), end


def _zigzag(digits: bytes) -> int:
    value = digits[0] & 127
    for place in range(1, len(digits)):
        value |= (digits[place] & 127) << 7 * place
    return (value >> 1) ^ -(value & 1)


def _footer(data: bytes) -> Fields:
    end = len(data) - _TAIL_BYTES
    if end < len(_MAGIC) or data[-4:] != _MAGIC:
        raise ValueError("no Parquet, which begins and ends with PAR1")
    length = int.from_bytes(data[end : end + 4], "little")
    if length > end:
        raise ValueError(f"a footer of {length} bytes in {len(data)}")
    return read_struct(data, end - length, end)[0]


def _number(fields: Fields, field: int) -> int:
    value = fields.get(field, -1)
    return value if isinstance(value, int) else -1


def _fields(value: Value | None) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("a footer or header without a struct that it needs")
    return value


def _structs(value: Value | None) -> list[Fields]:
    return [_fields(each) for each in value] if isinstance(value, list) else []


def _texts(value: Value | None) -> list[bytes]:
    return [each for each in value if isinstance(each, bytes)] if isinstance(value, list) else []


Value: TypeAlias = "int | bytes | list[Value] | Fields"
Fields: TypeAlias = dict[int, Value]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_LISTS = (9, 10)
_DEEPEST = 12


def read_struct(data: bytes, at: int, stop: int, depth: int = 0) -> tuple[Fields, int]:
    """Read the struct that begins at an offset, and return it with the offset after it.

    Raises
    ------
    ValueError
        If there is none: it does not end, has a field twice or a map, or is too deep.

    Notes
    -----
    About 1 µs a field.
    """
    fields: Fields = {}
    field = 0
    if depth > _DEEPEST:
        raise ValueError("a struct of Thrift that is too deep")
    while True:
        if at >= stop:
            raise _endless()
        head, at = data[at], at + 1
        if not head:
            return fields, at
        if head >> 4:
            field += head >> 4
        else:
            field, at = _signed(data, at, stop)
        if field in fields:
            raise ValueError(f"a struct of Thrift with field {field} twice")
        kind = head & 15
        if kind in _INTEGERS and at < stop and data[at] < 128:  # most fields, without a call
            fields[field], at = (data[at] >> 1) ^ -(data[at] & 1), at + 1
        elif kind in (_TRUE, _FALSE):
            fields[field] = int(kind == _TRUE)
        else:
            fields[field], at = _value(kind, data, at, stop, depth)


def _value(kind: int, data: bytes, at: int, stop: int, depth: int) -> tuple[Value, int]:
    if kind in _INTEGERS:
        return _signed(data, at, stop)
    if kind == _STRUCT:
        return read_struct(data, at, stop, depth + 1)
    if kind in _LISTS:
        return _list(data, at, stop, depth + 1)
    if kind == _BINARY:
        size, at = _varint(data, at, stop)
    elif kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        size = 8 if kind == _DOUBLE else 1
    else:
        raise ValueError(f"a struct of Thrift with a value of kind {kind}")
    if size > stop - at:
        raise _endless()
    return data[at : at + size], at + size


def _list(data: bytes, at: int, stop: int, depth: int) -> tuple[Value, int]:
    if at >= stop:
        raise _endless()
    head, at = data[at], at + 1
    count = head >> 4
    if count == 15:
        count, at = _varint(data, at, stop)
    if count > stop - at:  # each takes a byte at least
        raise _endless()
    values: list[Value] = []
    for _ in range(count):
        value, at = _value(head & 15, data, at, stop, depth)
        values.append(value)
    return values, at


def _signed(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value, at = _varint(data, at, stop)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            break
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _endless()


def _endless() -> ValueError:
    return ValueError("a struct of Thrift that does not end")
