"""Small Parquet objects of a checkpoint, whole in memory: tables to bytes and back. Pure."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from spark_pages.errors import DamageError


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


def decode_table(data: bytes, schema: pa.Schema, key: str) -> pa.Table:
    """The columns of a schema, which the bytes must hold.

    Raises
    ------
    DamageError
        If they do not.
    """
    try:
        # Not `read_table`: it goes by way of datasets, which cost ten times the time and 50 MB at first use.
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        return table.select(schema.names).cast(schema).replace_schema_metadata(table.schema.metadata)
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        raise DamageError(
            f"{key} should be Parquet with columns {', '.join(schema.names)}: "
            f"{type(error).__name__}: {error}",
            key=key,
        ) from error
