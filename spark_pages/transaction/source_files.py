"""Files of rows, opened as streams: Parquet, CSV, JSON lines, Arrow IPC, ORC and tables of Delta Lake."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from spark_pages.errors import InvalidInputError, MissingDependencyError, SchemaMismatchError
from spark_pages.progress import Phase, phase

FORMATS = ("parquet", "csv", "json", "ipc", "orc", "delta")
"""Names of the formats, for callers that do not leave it to the ending of a name."""

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".orc": "orc",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_TEXT = ("csv", "tsv", "json")
_WILD = "*?["
# Files are decoded a few row groups or blocks ahead, so that a stream of any length takes some 100 MB.
_BATCH_ROWS = 1 << 16
_BATCHES_AHEAD = 4
_FILES_AHEAD = 1
# Types of CSV columns and fields of JSON follow from the first block. 8 MiB are some 50,000 rows, which show
# most of both.
_BLOCK_BYTES = 8 << 20


def open_files(path: str | PathLike[str], format: str | None = None) -> pa.RecordBatchReader:
    """Open a file, a folder or the files of a glob as one stream, in the order of their names.

    Parameters
    ----------
    path
        A local path, or an address that pyarrow opens (``s3://``, ``gs://``, ``abfs://``). The format follows
        from the ending; text may be compressed, as in ``x.csv.gz``. In a folder, ``day=7`` names a column.
        A folder with a ``_delta_log`` is read as a Delta table, at its newest version.
    format
        One of `FORMATS`, for files whose names end otherwise.

    Raises
    ------
    InvalidInputError
        If there is no such file, or its format is not known.
    MissingDependencyError
        If it is a Delta table, and deltalake is not installed.
    SchemaMismatchError
        If the files differ in schema.

    Notes
    -----
    Reads the footer or the first block of each file at once, and the rest as the stream is read, as one phase
    of progress. In CSV, empty fields are null and ``""`` is empty text.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise InvalidInputError(
            f"Cannot read rows from {text!r}: expected the path of a file or folder as text.",
            hint="Decode it first: `os.fsdecode(path)`.",
        )
    try:
        filesystem, base = _filesystem_of(text)
        if format == "delta" or (format is None and _is_delta(filesystem, base)):
            return _delta_rows(text)
        names, root = _listed(filesystem, base, text)
        kind = _format_of(names, text) if format is None else format
        return _stream(filesystem, names, kind, root)
    except (InvalidInputError, MissingDependencyError, SchemaMismatchError):
        raise
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise InvalidInputError(
            f"Cannot read rows from {text!r}: {_first_line(error)}",
            hint="Check by `ls` that the file is there and whole; its ending names its format.",
        ) from error


def _filesystem_of(text: str) -> tuple[fs.FileSystem, str]:
    if "://" in text:
        scheme, rest = text.split("://", 1)
        head = rest.split("*")[0].split("?")[0].split("[")[0]
        found, _ = fs.FileSystem.from_uri(f"{scheme}://{head.rpartition('/')[0] or head}")
        return found, rest if scheme != "file" else "/" + rest.lstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))


def _is_delta(filesystem: fs.FileSystem, path: str) -> bool:
    """Whether a folder is a Delta table, some of whose files may hold rows that are deleted."""
    if any(sign in path for sign in _WILD):
        return False
    return bool(filesystem.get_file_info(f"{path.rstrip('/')}/_delta_log").type == fs.FileType.Directory)


def _delta_rows(text: str) -> pa.RecordBatchReader:
    """Read the newest version of a Delta table."""
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(
            f"Cannot read rows from {text!r}: it is a Delta table, and deltalake is not installed.",
            hint="Install it: `pip install deltalake`, or ingest the table with Spark.",
        ) from error
    try:
        found = DeltaTable(os.path.expanduser(text)).to_pyarrow_dataset()
    except DeltaError as error:
        raise InvalidInputError(
            f"Cannot read rows from {text!r} as a Delta table: {_first_line(error)}",
            hint="Use `spark-submit` with the job `ingest` for features that deltalake does not read.",
        ) from error
    scanner = found.scanner(
        batch_size=_BATCH_ROWS, batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD
    )
    begin = lambda: phase(f"reading {PurePosixPath(text).name}", found.count_rows(), "rows")  # noqa: E731
    read = _counted(scanner.to_batches(), begin)
    return pa.RecordBatchReader.from_batches(scanner.projected_schema, _batches_of(read, "delta", [text]))


def _listed(filesystem: fs.FileSystem, path: str, text: str) -> tuple[list[str], str | None]:
    """List the files in the order of their names, and the folder they were looked for in, if it was one."""
    if any(sign in path for sign in _WILD):
        folder = path[: min(path.index(sign) for sign in _WILD if sign in path)].rpartition("/")[0]
        wanted = path.split("/")
        found = [name for name in _files_in(filesystem, folder) if _matches(name.split("/"), wanted)]
        if not found:
            raise InvalidInputError(
                f"Cannot read rows from {text!r}: no file matches.", hint=f"Check the pattern by `ls {text}`."
            )
        return found, None
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.File:
        return [path], None
    if info.type == fs.FileType.Directory:
        found = _files_in(filesystem, path)
        if not found:
            raise InvalidInputError(
                f"Cannot read rows from {text!r}: the folder has no files.",
                hint="Files that begin with '.' or '_' are left out.",
            )
        return found, path
    raise InvalidInputError(
        f"Cannot read rows from {text!r}: there is no such file or folder.",
        hint="Check the path by `ls`; the working directory is the one of this process.",
    )


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Compare a path with a glob part by part: ``*`` stays within a folder, ``**`` does not."""
    if not pattern or not parts:
        return not parts and all(wanted == "**" for wanted in pattern)
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _files_in(filesystem: fs.FileSystem, folder: str) -> list[str]:
    selector = fs.FileSelector(folder or "/", recursive=True, allow_not_found=True)
    root = folder.rstrip("/").count("/") + 1 if folder else 0
    return sorted(
        info.path
        for info in filesystem.get_file_info(selector)
        if info.type == fs.FileType.File
        and not any(part.startswith((".", "_")) for part in info.path.split("/")[root:])
    )


def _format_of(names: Sequence[str], text: str) -> str:
    """Return the one format that all endings name."""
    kinds = {name: _format_of_name(name) for name in names}
    unknown = next((name for name, kind in kinds.items() if kind is None), None)
    if unknown is not None:
        raise InvalidInputError(
            f"Cannot read rows from {text!r}: the ending of {PurePosixPath(unknown).name!r} names no format.",
            hint=f"Endings are {', '.join(_FORMATS)}; text also with {', '.join(_COMPRESSED)}.",
        )
    found = sorted({kind for kind in kinds.values() if kind})
    if len(found) > 1:
        raise InvalidInputError(
            f"Cannot read rows from {text!r}: the files are of several formats, {', '.join(found)}.",
            hint="Name one of them by a glob, such as 'folder/*.parquet'.",
        )
    return found[0]


def _format_of_name(name: str) -> str | None:
    path = PurePosixPath(name.lower())
    if path.suffix in _COMPRESSED:
        kind = _FORMATS.get(PurePosixPath(path.stem).suffix)
        return kind if kind in _TEXT else None
    return _FORMATS.get(path.suffix)


def _stream(
    filesystem: fs.FileSystem, names: Sequence[str], kind: str, root: str | None
) -> pa.RecordBatchReader:
    from pyarrow import dataset  # noqa: PLC0415 - 40 ms, which appends of other data do without

    options: dict[str, Any] = {"filesystem": filesystem, "format": _reader_of(kind)}
    if root is not None:
        options |= {"partitioning": "hive", "partition_base_dir": root}
    found = dataset.dataset(list(names), **options)
    schema = _common_schema(found, names)
    if kind in _TEXT:
        schema = pa.schema(
            [field if field.type != pa.null() else field.with_type(pa.string()) for field in schema]
        )
    sizes = filesystem.get_file_info(list(names))
    shown = _shown(names)
    if kind in _TEXT:
        read = _text_batches(
            found,
            schema,
            kind,
            filesystem,
            lambda: phase(f"reading {shown}", total_bytes=sum(each.size for each in sizes)),
        )
    else:
        scanner = found.replace_schema(schema).scanner(
            batch_size=_BATCH_ROWS, batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD
        )
        read = _counted(scanner.to_batches(), lambda: phase(f"reading {shown}", found.count_rows(), "rows"))
    return pa.RecordBatchReader.from_batches(schema, _batches_of(read, kind, names))


def _counted(batches: Iterator[pa.RecordBatch], begin: Callable[[], Phase]) -> Iterator[pa.RecordBatch]:
    begun = begin()
    for batch in batches:
        yield batch
        begun.advance(batch.num_rows)


def _text_batches(
    found: Any, schema: pa.Schema, kind: str, filesystem: fs.FileSystem, begin: Callable[[], Phase]
) -> Iterator[pa.RecordBatch]:
    """Read text file by file, from streams whose places tell how much of the bytes is read.

    Notes
    -----
    JSON lines with a field that the schema does not have are refused: datasets of Arrow leave it out.
    """
    from pyarrow import dataset  # noqa: PLC0415 - as above

    begun = begin()
    for fragment in found.get_fragments():
        keys = dataset.get_partition_keys(fragment.partition_expression)
        inside = pa.schema([field for field in schema if field.name not in keys])
        place = 0
        with filesystem.open_input_file(fragment.path) as file, _unpacked(file, fragment.path) as stream:
            for batch in _text_reader(stream, inside, kind):
                columns = [
                    pa.repeat(pa.scalar(keys[field.name], field.type), batch.num_rows)
                    if field.name in keys
                    else batch.column(field.name)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
                begun.advance(batch.num_rows, file.tell() - place)
                place = file.tell()


def _unpacked(file: pa.NativeFile, path: str) -> pa.NativeFile:
    """Return the text of a file that may be compressed."""
    if PurePosixPath(path.lower()).suffix not in _COMPRESSED:
        return file
    return pa.CompressedInputStream(file, pa.Codec.detect(path.lower()).name)


def _text_reader(stream: pa.NativeFile, schema: pa.Schema, kind: str) -> Any:
    from pyarrow import csv, json  # noqa: PLC0415 - as above

    if kind == "json":
        parse = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        return json.open_json(stream, json.ReadOptions(block_size=_BLOCK_BYTES), parse)
    read, parsing, convert = _csv_options(kind)
    convert.column_types = schema
    convert.include_columns = schema.names
    convert.include_missing_columns = True
    parsing.ignore_empty_lines = len(schema) > 1  # in one column, an empty line is a null
    return csv.open_csv(stream, read, parsing, convert)


def _batches_of(
    batches: Iterator[pa.RecordBatch], kind: str, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read the batches, and say which files a batch that cannot be read belongs to."""
    shown = _shown(names)
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        hint = "Check that the files are whole."
        if kind in _TEXT:
            hint = (
                "Types follow from the first rows. Where later rows have others, give types yourself: pass "
                "what pyarrow.csv.open_csv returns with convert_options, or a dataset with a schema."
            )
        raise SchemaMismatchError(
            f"Cannot read rows from {shown!r}: {_first_line(error)}", hint=hint
        ) from error


def _shown(names: Sequence[str]) -> str:
    return PurePosixPath(names[0]).name if len(names) == 1 else f"{len(names)} files"


def _reader_of(kind: str) -> Any:
    from pyarrow import dataset, json  # noqa: PLC0415 - as above

    if kind == "json":
        return dataset.JsonFileFormat(read_options=json.ReadOptions(block_size=_BLOCK_BYTES))
    if kind not in ("csv", "tsv"):
        return kind
    read, parse, convert = _csv_options(kind)
    return dataset.CsvFileFormat(parse_options=parse, read_options=read, convert_options=convert)


def _csv_options(kind: str) -> tuple[Any, Any, Any]:
    from pyarrow import csv  # noqa: PLC0415 - as above

    return (
        csv.ReadOptions(block_size=_BLOCK_BYTES),
        csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",", newlines_in_values=True),
        # Arrow's list of spellings of null would make the text "NA" null, which is the code of Namibia.
        csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False),
    )


def _common_schema(found: Any, names: Sequence[str]) -> pa.Schema:
    """Return the schema of all files; a column that is all null in one has the type that it has in others."""
    schema = found.schema
    for fragment in found.get_fragments():
        try:
            schema = pa.unify_schemas([schema, fragment.physical_schema])
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"Cannot read {len(names)} files as one table: {PurePosixPath(fragment.path).name!r} "
                f"differs: {_first_line(error)}",
                hint="Append files of one schema at a time, each by `transaction.append`.",
            ) from error
    return schema


def _first_line(error: Exception) -> str:
    """Return what Arrow says is wrong, without the file name that it repeats."""
    line = str(error).strip().split("\n")[0]
    return line.rpartition("input source '")[2].partition("': ")[2] or line
