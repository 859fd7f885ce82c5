"""Rows written to files of other systems: Parquet, CSV, JSON lines, Arrow IPC and ORC."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Protocol

import pyarrow as pa

from spark_pages.errors import InvalidInputError, StorageError
from spark_pages.printable import plain
from spark_pages.runtime import Runtime

ENDINGS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv"),
    "json": (".jsonl", ".ndjson", ".json"),
    "ipc": (".arrow", ".feather", ".ipc"),
    "orc": (".orc",),
}
"""Endings of the names of files, by format; the first is the one of files that this module names."""


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch, /) -> None: ...
    def close(self) -> None: ...


def format_of_name(path: str) -> str | None:
    """Return the format that the ending of a path names, or None."""
    ending = PurePath(path.lower()).suffix
    return next((form for form, endings in ENDINGS.items() if ending in endings), None)


def write_batches(path: str, form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows to a file that does not exist yet, and return its bytes.

    Parameters
    ----------
    path
        The file. CSV is separated by tabs where its name ends in ``.tsv``.
    form
        One of `ENDINGS`.

    Raises
    ------
    InvalidInputError
        If the format cannot hold a type of the rows, such as lists in CSV.
    OSError
        If the disk refuses.

    Notes
    -----
    Holds one batch, and for Parquet and ORC one row group. In CSV a null is an empty field, and empty text is
    ``""``. In JSON lines NaN and infinities are null, times are ISO 8601, and bytes are hexadecimal.
    """
    flat = form in ("csv", "json", "orc")
    written = _without_dictionaries(schema) if flat else schema
    try:
        writer = _open(path, form, written)
        try:
            for batch in batches:
                writer.write_batch(batch.cast(written) if flat and batch.schema != written else batch)
        finally:
            writer.close()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, NotImplementedError) as error:
        raise InvalidInputError(
            f"Cannot write rows as {form}: {str(error).splitlines()[0]}.",
            hint="Write `parquet` or `ipc`, which have all types, or convert the column by CAST(… AS TEXT).",
        ) from error
    return os.path.getsize(path)


@contextmanager
def replacing(path: str, overwrite: bool) -> Iterator[str]:
    """Give the name of a file to write in the block, which has the name `path` once the block has ended.

    Raises
    ------
    InvalidInputError
        If `path` exists and `overwrite` is false, or if its folder does not exist.
    StorageError
        If the disk refuses.

    Notes
    -----
    If the block fails, `path` is what it was before. A process that is killed leaves ``_NAME-TOKEN`` beside
    it.
    """
    taken = InvalidInputError(
        f"Cannot write to {path}: it is there already, and nothing in it was changed.",
        hint="Name another file, or replace what is there by --overwrite.",
    )
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.lexists(path) and (not overwrite or os.path.isdir(path)):
        raise taken
    if not os.path.isdir(folder):
        raise InvalidInputError(
            f"Cannot write to {path}: there is no folder {folder}.",
            hint=f"Make the folder first: `mkdir -p {folder}`.",
        )
    stem, ending = os.path.splitext(name)
    unfinished = os.path.join(folder, f"_{stem}-{Runtime().token()}{ending}")
    try:
        yield unfinished
        if overwrite:
            os.replace(unfinished, path)
        else:
            os.link(unfinished, path)  # refuses a name that another process has taken meanwhile
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise StorageError(
            f"Cannot write rows to {path}: {error}.",
            hint="Check by `df` that the disk has room, and that it can be written to.",
        ) from error
    finally:
        if os.path.lexists(unfinished):
            os.unlink(unfinished)


def _open(path: str, form: str, schema: pa.Schema) -> _Writer:
    match form:
        case "parquet":
            from pyarrow import parquet  # noqa: PLC0415 - 40 ms, which reads of tables do without

            return parquet.ParquetWriter(path, schema)  # type: ignore[no-any-return]
        case "csv":
            from pyarrow import csv  # noqa: PLC0415 - as above

            options = csv.WriteOptions(delimiter="\t" if path.lower().endswith(".tsv") else ",")
            return csv.CSVWriter(path, schema, write_options=options)  # type: ignore[no-any-return]
        case "ipc":
            return pa.ipc.new_file(path, schema)  # type: ignore[no-any-return]
        case "orc":
            return _Orc(path)
    return _JsonLines(path)


class _JsonLines:
    """Writes a JSON object in a line for each row."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by `close`

    def write_batch(self, batch: pa.RecordBatch) -> None:
        try:
            rows = batch.to_pylist(maps_as_pydicts="strict")
        except KeyError as error:
            raise pa.ArrowInvalid(f"a map has a key twice, {error}, and an object cannot") from error
        lines = (json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows)
        self._file.writelines(f"{line}\n" for line in lines)

    def close(self) -> None:
        self._file.close()


class _Orc:
    def __init__(self, path: str) -> None:
        from pyarrow import orc  # noqa: PLC0415 - as above

        self._writer: Any = orc.ORCWriter(path)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._writer.write(pa.Table.from_batches([batch]))

    def close(self) -> None:
        self._writer.close()


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )
