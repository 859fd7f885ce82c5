"""Parquet files of this machine, read by this process as Spark reads them. No pyspark here.

Spark has rules of its own: which files of a folder are data, which folders are columns, what a file means
that Arrow wrote with its own types beside those of Parquet. Those that are simple are followed here; where
another one might apply, `why_spark` tells which, and Spark reads the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from spark_pages.spark.arrow_types import spark_type

WILDCARDS = frozenset("*?[]{}")
"""Of a path: Spark looks for what fits."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = b"org.apache.spark.version"
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_TYPES = frozenset(
    (
        *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    )
)
"""Of the schema that Spark leaves in a file; decimals have numbers in their names."""

_LOGICAL = frozenset(("NONE", "STRING", "INT", "DECIMAL", "DATE", "TIMESTAMP"))
_MOST_DIGITS = 38
_NUMBER = re.compile(r"-?[0-9]+")
_TEXT = re.compile(r"[A-Za-z]")
_NO_TEXT = re.compile(r"nan|infinity|t[0-9].*", re.IGNORECASE)
_ESCAPED = re.compile(r"(?:[^%=]|%[0-7][0-9A-Fa-f])+")


def why_spark(path: str) -> str | None:
    """Why this process cannot say for sure what Spark would read there; None where it can.

    Parameters
    ----------
    path
        A file, or a folder.

    Raises
    ------
    ArrowException, OSError
        If a file is no Parquet, or cannot be read.

    Notes
    -----
    Reads the footer of every file.
    """
    try:
        _check_fields(_partitions(path), _dataset(path, "us", None))
    except _TakesSparkError as error:
        return str(error)
    return None


def parquet_files(path: str, unit: str) -> ds.FileSystemDataset:
    """Files as Spark reads them: folders ``name=value`` below the one that is named are columns.

    Moments of 96 bits get this unit, because nanoseconds in 64 bits end in the year 2262.
    """
    return _dataset(path, unit, "hive" if os.path.isdir(path) else None)


def types_in_spark(path: str) -> pa.Schema:
    """Return the columns of the files in types of Spark that hold all their values."""
    one, other = (parquet_files(path, unit).schema for unit in ("us", "s"))
    fields = (_instants(*pair) for pair in zip(one, other, strict=True))
    return pa.schema([pa.field(field.name, _as_read(field.type)) for field in fields])


def _dataset(path: str, unit: str, partitioning: str | None) -> ds.FileSystemDataset:
    form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=unit))
    return ds.dataset(path, format=form, partitioning=partitioning, filesystem=LocalFileSystem())


class _TakesSparkError(Exception):
    """Says why."""


# names of files and folders


def _partitions(path: str) -> tuple[str, ...]:
    """Return the columns that folders encode."""
    name = os.path.basename(os.path.abspath(path))
    if WILDCARDS & set(path):
        raise _TakesSparkError("its name has wildcards in it")
    if name.startswith(("_", ".")):
        raise _TakesSparkError("its name is a hidden one")
    if not os.path.isdir(path):
        _check_file(path)
        return ()
    columns = [_columns(steps) for steps in _data_files(path, ())]
    names = {tuple(name for name, _ in each) for each in columns} or {()}
    if len(names) > 1:
        raise _TakesSparkError("its files lie in folders of different levels or names")
    for named in zip(*columns, strict=True):
        _check_values(named[0][0], {value for _, value in named} - {_NULL})
    return names.pop()


def _data_files(folder: str, steps: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Iterate over the folders that lead to each file below the named folder."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        hidden = entry.name.startswith(("_", "."))
        if entry.name.startswith(("_metadata", "_common_metadata")):
            raise _TakesSparkError(f"{entry.path} may tell its columns")
        if (hidden and "=" in entry.name) or entry.name.endswith("._COPYING_"):
            raise _TakesSparkError(f"{entry.path} may be hidden")
        if hidden:
            continue
        if not entry.is_dir():
            _check_file(entry.path)
            yield steps
        elif "=" not in entry.name:
            raise _TakesSparkError(f"{entry.path} is a folder that is not named after a column and its value")
        else:
            yield from _data_files(entry.path, (*steps, entry.name))


def _check_file(path: str) -> None:
    if not os.path.getsize(path):
        raise _TakesSparkError(f"{path} is empty")


def _columns(steps: tuple[str, ...]) -> list[tuple[str, str]]:
    columns = [step.partition("=")[::2] for step in steps]
    for name, value in columns:
        if not re.fullmatch(r"\w+", name, re.ASCII) or not _ESCAPED.fullmatch(value):
            raise _TakesSparkError(f"the folder {name}={value} can be read in several ways")
    return columns


def _check_values(name: str, values: set[str]) -> None:
    """Spark makes numbers, days and moments of the values of a column, where all of them are some."""
    plain = [unquote(value) for value in values]
    numbers = all(_NUMBER.fullmatch(value) and abs(int(value)) < 1 << 31 for value in plain)
    texts = all(_TEXT.match(value) and not _NO_TEXT.fullmatch(value) for value in plain)
    if not values or not (numbers or texts):
        raise _TakesSparkError(f"the values of the folders {name}=… may be something else than int or text")


# columns


def _check_fields(partitions: Sequence[str], data: ds.FileSystemDataset) -> None:
    _check_columns(data.schema)
    wanted = {field.name: field.type for field in data.schema}
    names = set(wanted)
    for fragment in data.get_fragments():
        _check_footer(fragment.metadata)
        for field in fragment.physical_schema:
            names.add(field.name)
            if field.type != wanted.get(field.name, field.type):
                raise _TakesSparkError(f"the column {field.name} has several types")
    _check_distinct([*names, *partitions])


def _check_distinct(names: Iterable[str]) -> None:
    """Spark takes names for the same that differ in case alone."""
    given = [name.lower() for name in names]
    if len({*given}) < len(given):
        raise _TakesSparkError("two of its columns have one name, or differ in case alone")


def _check_footer(metadata: pq.FileMetaData) -> None:
    """Check the column types that Parquet and, if it wrote the file, Spark declare."""
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        logical = json.loads(column.logical_type.to_json())
        unit = logical.get("timeUnit", "")
        if column.logical_type.type not in _LOGICAL or unit == "nanoseconds":
            kind = f"{column.logical_type.type.lower()} {f'in {unit} ' if unit else ''}of Parquet"
            raise _TakesSparkError(f"{column.path} is a {kind}")
        if logical.get("precision", 0) > _MOST_DIGITS:
            raise _TakesSparkError(f"{column.path} has {logical['precision']} digits")
    told = metadata.metadata or {}
    if any(key in told for key in _OTHER_CALENDAR) or told.get(_SPARK_VERSION, b"4") < b"3.1":
        raise _TakesSparkError("its days and moments may be of the calendar of an older Spark")
    if _SPARK_SCHEMA in told:
        text = told[_SPARK_SCHEMA].decode(errors="replace")
        types = {*_types_in(json.loads(text))} - _SPARK_TYPES
        if "__CHAR_VARCHAR_TYPE_STRING" in text or not all(each.startswith("decimal(") for each in types):
            raise _TakesSparkError("Spark has written columns of other types than those of Parquet into it")


def _types_in(schema: Any) -> Iterator[str]:
    """Iterate over the leaf types of a schema as Spark writes it."""
    match schema:
        case {"type": "struct", "fields": fields}:
            for field in fields:
                yield from _types_in(field["type"])
        case {"type": "array", "elementType": element}:
            yield from _types_in(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            yield from _types_in(key)
            yield from _types_in(value)
        case _:
            yield schema if isinstance(schema, str) else "another"


# types


def _check_columns(fields: Iterable[pa.Field]) -> None:
    fields = list(fields)
    _check_distinct(field.name for field in fields)
    for field in fields:
        if not _is_alike(field.type):
            raise _TakesSparkError(f"{field.name} is {field.type} here")


def _is_alike(kind: pa.DataType) -> bool:
    """Whether the type says of its values what Parquet says of them, in Arrow's words."""
    if pa.types.is_dictionary(kind):
        return _is_alike(kind.value_type)
    if pa.types.is_nested(kind):
        return _is_nested_alike(kind)
    tests = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
        pa.types.is_decimal128,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(test(kind) for test in tests)


def _is_nested_alike(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        _check_columns(kind)
        return True
    if pa.types.is_map(kind):
        return _is_alike(kind.key_type) and _is_alike(kind.item_type)
    if pa.types.is_fixed_size_list(kind) and not kind.value_field.nullable:
        return False  # Arrow cannot read a list that is null
    return _is_list(kind) and _is_alike(kind.value_type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _instants(one: pa.Field, other: pa.Field) -> pa.Field:
    """Return the first of two fields of the same files, with 96-bit timestamps as instants.

    They are the ones that differ: each schema was made with another unit for them.
    """
    kind, second = one.type, other.type
    if kind == second:
        return one
    if pa.types.is_timestamp(kind):
        return one.with_type(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_map(kind):
        parts = (kind.key_field, second.key_field), (kind.item_field, second.item_field)
        return one.with_type(pa.map_(*(_instants(*part) for part in parts)))
    if pa.types.is_struct(kind):
        fields = zip(kind.fields, second.fields, strict=True)
        return one.with_type(pa.struct([_instants(*part) for part in fields]))
    return one.with_type(pa.list_(_instants(kind.value_field, second.value_field)))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark's readers give a column of a file, always nullable."""
    if pa.types.is_dictionary(kind):
        return _as_read(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_read(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_read(kind.key_type), _as_read(kind.item_type))
    if _is_list(kind):
        return pa.list_(pa.field("element", _as_read(kind.value_type)))
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    return spark_type(kind)
