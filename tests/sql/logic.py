"""Runs files in the form of sqllogictest: statements and queries with what must come of them.

Records are parted by empty lines; ``#`` begins a comment::

    statement ok
    CREATE TABLE t (a INT)

    statement error no column
    SELECT b FROM t

    query IT rowsort
    SELECT a, 'x' FROM t
    ----
    1	x

After ``statement error`` stands a regular expression that the message must match. After ``query`` stands a
letter for each column (I integer or truth value, R real or decimal, T anything else), and how rows are
compared: ``nosort`` (as they come, the default) or ``rowsort``. Each row of the result is a line, its values
parted by tabs; null is ``NULL``. The form is that of https://sqlite.org/sqllogictest, with rows as DuckDB
writes them. ``skipif duckdb`` before a record says that DuckDB itself answers otherwise: `run_file_in_duckdb`
holds it to all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from spark_pages.errors import SparkPagesError
from spark_pages.store import Store


@dataclass(frozen=True, slots=True)
class Record:
    """One statement or query, and what must come of it."""

    line: int
    head: list[str]
    sql: str
    expected: list[str]
    only_here: bool = False


def records(path: Path) -> Iterator[Record]:
    """The records of a file, in order."""
    lines = [(number, line) for number, line in enumerate(path.read_text().splitlines(), 1)]
    block: list[tuple[int, str]] = []
    for number, line in [*lines, (0, "")]:
        if line.startswith("#"):
            continue
        if line.strip():
            block.append((number, line))
        elif block:
            yield _record(block)
            block = []


def _record(block: list[tuple[int, str]]) -> Record:
    only_here = block[0][1] == "skipif duckdb"
    (line, first), *rest = block[1:] if only_here else block
    texts = [text for _, text in rest]
    end = texts.index("----") if "----" in texts else len(texts)
    return Record(line, first.split(), "\n".join(texts[:end]), texts[end + 1 :], only_here)


def run_file(path: Path, store: Store) -> list[str]:
    """What is not as the file says: line, statement, what was expected and what was found."""
    return _wrong(path, records(path), store.sql, messages=True)


def run_file_in_duckdb(path: Path) -> tuple[list[str], list[str]]:
    """What DuckDB answers otherwise than the file says, and what it does not though the file says so.

    Errors have to be errors there too, under whatever message.
    """
    with duckdb.connect() as connection:

        def run(text: str) -> pa.Table:
            found = connection.sql(text)
            return pa.table({}) if found is None else found.to_arrow_table()

        wrong, same = [], []
        for record in records(path):
            fault = _wrong(path, [record], run, messages=False)
            if record.only_here and not fault:
                same.append(f"{path.name}:{record.line}: {record.sql}")
            elif not record.only_here:
                wrong += fault
    return wrong, same


def _wrong(path: Path, given: Iterable[Record], run: Callable[[str], pa.Table], messages: bool) -> list[str]:
    found = ((record, _fault(record, run, messages)) for record in given)
    return [f"{path.name}:{record.line}: {record.sql}\n    {fault}" for record, fault in found if fault]


def _fault(record: Record, run: Callable[[str], pa.Table], messages: bool) -> str | None:
    kind, *words = record.head
    try:
        result = run(record.sql)
    except (SparkPagesError, duckdb.Error) as error:
        if kind == "statement" and words[0] == "error":
            pattern = " ".join(words[1:])
            return (
                None
                if not messages or re.search(pattern, str(error))
                else f"expected error {pattern!r}, found {str(error)!r}"
            )
        return f"found error {type(error).__name__}: {error}"
    if kind == "statement":
        return (
            None
            if words[0] == "ok"
            else f"expected error {' '.join(words[1:])!r}, found {result.num_rows} rows"
        )
    assert kind == "query", record
    letters = "".join(_letter(field.type) for field in result.schema)
    if letters != words[0]:
        return f"expected columns {words[0]}, found {letters} ({result.schema})"
    found = ["\t".join(map(_text, row)) for row in zip(*(c.to_pylist() for c in result.columns), strict=True)]
    expected = record.expected
    if words[1:] == ["rowsort"]:
        found, expected = sorted(found), sorted(expected)
    return None if found == expected else f"expected {expected}, found {found}"


def _letter(kind: pa.DataType) -> str:
    whole = pa.types.is_decimal(kind) and kind.scale == 0  # DuckDB adds whole numbers up in 128 bits
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or whole:
        return "I"
    return "R" if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else "T"


def _text(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case _:
            return str(value)
