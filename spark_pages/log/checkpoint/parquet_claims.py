"""What a Parquet object says it will grow to, held against what such bytes may, before Arrow believes it.

Arrow reserves what the header of a page of Parquet says, and gives as many rows as the footer says: a forger
makes gigabytes out of a kilobyte. Arrow cannot be asked for the numbers either: pyarrow 26 ends the process
where some of them contradict each other. So they are read here, by the numbers of ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_pages.log.checkpoint.thrift import Fields, Value, read_struct

MOST_BYTES = 64 << 20
MOST_TIMES = 1024
"""An object may grow to `MOST_BYTES` and `MOST_TIMES` its size; those of checkpoints grow twentyfold."""

MOST_ROWS = 16_384
ROWS_A_BYTE = 4
"""It may have `MOST_ROWS` rows and `ROWS_A_BYTE` for each byte; a descriptor has 8 that do not shrink."""

MOST_CHUNKS = 1024
"""Chunks of columns, in all row groups: the writer makes one row group of up to a million rows."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8

_ROWS, _GROUPS = 3, 4  # of FileMetaData
_CHUNKS, _ROWS_OF_GROUP = 1, 3  # of RowGroup
_ABOUT = 3  # of ColumnChunk
_TYPE, _PATH, _VALUES, _LENGTH, _FIRST_DATA, _FIRST_DICTIONARY = 1, 3, 5, 7, 9, 11  # of ColumnMetaData
_KIND, _GROWN, _SHRUNK = 1, 2, 3  # of PageHeader

_BYTE_ARRAY = 6
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_ABOUT_PAGE = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_ENCODINGS = frozenset({0, 2, 3, 5, 6, 8, 9})
"""All that are for values but one, text as what differs from the text before it: that bounds nothing."""

_SHORTEST = 4
"""Bytes of a dictionary value at least: a number, or the length of a text."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What bytes whose claims can be true still have to be held to.

    Attributes
    ----------
    most_bytes
        What one column may take once it is decoded.
    repeated
        Columns of text or bytes whose values stand in a dictionary, and could take more.
    """

    most_bytes: int
    repeated: tuple[str, ...]


def check_claims(data: bytes) -> Claims:
    """What a Parquet object may grow to, if what it says of that can be true.

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
    groups = _structs(footer.get(_GROUPS))
    rows = [_number(footer, _ROWS), *(_number(group, _ROWS_OF_GROUP) for group in groups)]
    chunks = [chunk for group in groups for chunk in _structs(group.get(_CHUNKS))]
    if len(chunks) > MOST_CHUNKS:
        raise ValueError(f"{len(chunks)} chunks of columns, expected at most {MOST_CHUNKS}")
    size = 0
    dictionaries: dict[str, int] = {}
    for chunk in chunks:
        about = _fields(chunk.get(_ABOUT))
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
        most_bytes, tuple(name for name, each in dictionaries.items() if each * max(rows) > most_bytes)
    )


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
        header, start = read_struct(data, start, stop)
        kind, grown, shrunk = (_number(header, field) for field in (_KIND, _GROWN, _SHRUNK))
        if kind not in _ABOUT_PAGE or grown < 0 or not 0 <= shrunk <= stop - start:
            raise ValueError(f"a page of kind {kind} with {shrunk} bytes that become {grown}")
        told = _fields(header.get(_ABOUT_PAGE[kind]))
        values, encoding = _number(told, 1), _number(told, 4 if kind == _DATA_V2 else 2)
        if values < 0 or encoding not in _ENCODINGS:
            raise ValueError(f"a page of {values} values in encoding {encoding}")
        yield kind, grown, values
        start += shrunk


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
