"""Small Parquet objects of a checkpoint, whole in memory: tables to bytes and back. Pure."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_pages.arrow.columns import no_numbers
from spark_pages.errors import DamageError
from spark_pages.format.parquet_limits import check_claims, check_columns


def encode_table(
    table: pa.Table,
    dictionary: bool | list[str],
    encodings: dict[str, str] | None = None,
    metadata: dict[bytes, bytes] | None = None,
    level: int = 1,
) -> bytes:
    """The table as Parquet: zstd, no statistics.

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
        claims = check_claims(data)
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
        f"{key} should be Parquet with columns {', '.join(schema.names)}, but: {reason}", key=key
    )


def _spelt_out(table: pa.Table, name: str, most_bytes: int) -> pa.Table:
    """The table; a column that was read as a dictionary holds its values, if they are not too many bytes."""
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
