"""Arrow types as Spark knows them: what a column becomes on the way into Spark, and out of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_pages.errors import DamageError, InvalidInputError, SchemaMismatchError
from spark_pages.format.bounds import plain_values

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
}

_MOST_DIGITS = 38
_COARSE = ("s", "ms")
"""Units that reach further than the microseconds of Spark."""


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Convert a schema to types of Spark that hold all values except nanoseconds."""
    return pa.schema([pa.field(f.name, spark_type(f.type), f.nullable) for f in schema])


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type for `kind`, also for nested types; `kind` itself if Spark has it."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return spark_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)
    if pa.types.is_struct(kind):
        return pa.struct([_spark_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_spark_field(kind.key_field), _spark_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_spark_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_spark_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_spark_field(kind.value_field), kind.list_size)
    if pa.types.is_timestamp(kind) and kind.unit in _COARSE:
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit in _COARSE:
        return pa.duration("us")
    return _WIDER.get(kind, kind)


def schema_of_rows(columns: StructType) -> pa.Schema:
    """Return the schema of rows that Spark sends.

    Raises
    ------
    SchemaMismatchError
        If Arrow has no type for a column; names it.
    """
    from pyspark.errors import PySparkTypeError  # only where there are rows of Spark
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    fields: list[pa.Field] = []
    for column in columns.fields:
        try:
            fields += to_arrow_schema(StructType([column]), timezone="UTC")
        except PySparkTypeError as error:
            raise SchemaMismatchError(
                f"Cannot store column {column.name!r}: it is {column.dataType.simpleString()}, for "
                "which Arrow has no type.",
                hint="Cast it, or leave it out, by `select(…)`.",
            ) from error
    return pa.schema(fields)


def check_precision(kind: pa.DataType) -> None:
    """Nothing, if each decimal in a type of `spark_type` has no more digits than Spark's.

    Raises
    ------
    InvalidInputError
    """
    if pa.types.is_decimal(kind) and kind.precision > _MOST_DIGITS:
        raise InvalidInputError(
            f"Cannot use {kind} in Spark: it has decimals of {_MOST_DIGITS} digits at most.",
            hint=f"Choose `columns` without it, or cast it to decimal({_MOST_DIGITS}, s) when you store it.",
        )
    for index in range(kind.num_fields):
        check_precision(kind.field(index).type)


def _spark_field(field: pa.Field) -> pa.Field:
    return field.with_type(spark_type(field.type))


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast the batch to exactly the types of `schema`, as Spark expects.

    Raises
    ------
    DamageError
        If a column has a null that cannot have any: Spark would take what lies there for a value.
    InvalidInputError
        If microseconds cannot hold a time or a duration; names the column and the value.
    """
    for column, field in zip(batch.columns, schema, strict=True):
        if not field.nullable and column.null_count:
            raise DamageError(
                f"Cannot read column {field.name!r} in Spark: it has a null, where the table or the "
                "statistics of its pages say that there is none.",
                hint="`spark-pages verify URL` names the page; option nullability=declared does not use "
                "statistics.",
            )
    columns = [_as_spark(*each) for each in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_spark(column: pa.Array, field: pa.Field) -> pa.Array:
    """Cast the column to the type of a field; only nanoseconds are truncated."""
    if column.type == field.type:
        return column
    try:
        known = plain_values(column).cast(spark_type(column.type))
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"Cannot give column {field.name!r} of type {column.type} to Spark, which counts microseconds: "
            f"{error}.",
            hint="Leave the column out by option('columns', …), or update these rows to a time that fits.",
        ) from error
    return known.cast(field.type, safe=False)
