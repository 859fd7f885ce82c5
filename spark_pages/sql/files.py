"""Files in statements: ``FROM 'x.csv'``, ``read_csv('x.csv')`` and ``COPY … TO 'x.csv'``.

A caller allows them by ``files=True``. They are read as `Store.append` reads them, and written as
``spark-pages export`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from spark_pages.arguments import shortened
from spark_pages.catalog.identifiers import LogicalFieldId
from spark_pages.errors import InvalidInputError
from spark_pages.model.ids import FieldId, TableId
from spark_pages.query.output_files import ENDINGS, format_of_name
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.predicates.parsing import quoted_name, shown, tokens
from spark_pages.transaction.source_files import open_files

FUNCTIONS = {
    "read_csv": "csv",
    "read_csv_auto": "csv",
    "read_json": "json",
    "read_json_auto": "json",
    "read_ndjson": "json",
    "read_parquet": "parquet",
    "parquet_scan": "parquet",
}
"""Functions that read files, and the format that they read."""

_CALL = re.compile(rf"({'|'.join(FUNCTIONS)})\('(.*)'\)", re.DOTALL)
_MAY_NAME_FILES = re.compile(rf"copy|{'|'.join(FUNCTIONS)}", re.IGNORECASE)
_LIKE_A_FILE = re.compile(
    r".*(?:[/*]|\.(?:csv|tsv|jsonl?|ndjson|parquet|pq|arrow|feather|ipc|orc)(?:\.\w+)?)"
)


def looks_like_a_file(parts: Sequence[str]) -> bool:
    """Whether a name that is no table's may be a path."""
    return len(parts) == 1 and bool(_LIKE_A_FILE.fullmatch(parts[0].lower()) or _CALL.fullmatch(parts[0]))


def with_named_files(text: str) -> str:
    """Return a statement in which calls such as ``read_csv('x.csv')`` are names in quotes.

    Raises
    ------
    InvalidInputError
        If a call has anything but one path.
    """
    words = tokens(text)
    made, end = [], 0
    for index, word in enumerate(words):
        if word.text.lower() not in FUNCTIONS or _texts(words[index + 1 : index + 2]) != ["("]:
            continue
        path, close = [*words[index + 2 : index + 4], None, None][:2]
        if path is None or close is None or path.token_type != TokenType.STRING or close.text != ")":
            raise InvalidInputError(
                f"Cannot read files by {word.text}: expected one path in quotes, and no options.",
                hint=f"Write {word.text}('folder/*.csv'), or `store.append` what pyarrow or DuckDB reads.",
            )
        name = f"{word.text.lower()}('{path.text}')"
        made += [text[end : word.start], quoted_name(name)]
        end = close.end + 1
    return "".join([*made, text[end:]])


def refuse_files(text: str) -> InvalidInputError | None:
    """Return the error for a statement that reads or writes files where the caller does not allow it."""
    if not _MAY_NAME_FILES.search(text):
        return None
    words = tokens(text)
    calls = [
        word.text for word, after in pairwise(words) if word.text.lower() in FUNCTIONS and after.text == "("
    ]
    if words and words[0].text.upper() == "COPY":
        calls = ["COPY"]
    return files_not_allowed(f"run {calls[0]}") if calls else None


def files_not_allowed(what: str) -> InvalidInputError:
    """Return the error for files that the caller does not allow."""
    return InvalidInputError(
        f"Cannot {what}: statements do not read or write files by default.",
        hint="Allow it by `store.sql(…, files=True)`, or --files on the command line.",
    )


class FileRelation:
    """Files as a query sees them; see `spark_pages.sql.relations.Relation`.

    Parameters
    ----------
    name
        A path, folder or glob, or a call such as ``read_csv('x.txt')``.
    number
        A number that no other file of the statement has.
    """

    namespace = "files"
    hidden: frozenset[str] = frozenset()

    def __init__(self, name: str, number: int) -> None:
        call = _CALL.fullmatch(name)
        self._format: str | None = FUNCTIONS[call[1]] if call else None
        self._path: str = call[2] if call else name
        self.name: str = PurePath(self._path).name.split(".")[0] or "files"
        self.schema: pa.Schema = self._open().schema
        self.fields = {
            column: LogicalFieldId(-1, TableId(-1 - number), FieldId(place))
            for place, column in enumerate(self.schema.names)
        }

    def _open(self) -> pa.RecordBatchReader:
        known = None if self._path.lower().endswith(".tsv") else self._format
        return open_files(self._path, known)

    @property
    def num_rows(self) -> int:
        """How many rows there are: reads them."""
        return sum(batch.num_rows for batch in self._open())

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Read the rows that pass the filter, as a stream."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(columns, filter))

    def _batches(self, columns: Sequence[str], filter: Any) -> Iterator[pa.RecordBatch]:
        for batch in self._open():
            rows = pa.Table.from_batches([batch])
            kept = rows if filter is None else self.passing(rows, filter)
            yield from kept.select(list(columns)).to_batches()

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Select the rows that pass a filter."""
        return passing(rows, expression_parts(filter).predicate)


@dataclass(frozen=True, slots=True)
class Copy:
    """``COPY (query) TO 'path' (FORMAT csv)``.

    Attributes
    ----------
    query
        Text of the query.
    path, form
        The file to write, and its format.
    """

    query: str
    path: str
    form: str


def read_copy(text: str) -> Copy | None:
    """Return the COPY statement of a text, or None if it is another statement.

    Raises
    ------
    InvalidInputError
        If it is not ``COPY table TO 'path'`` or ``COPY (query) TO 'path'``, with ``(FORMAT …)`` or without.
    """
    words = tokens(text) if _MAY_NAME_FILES.search(text) else []
    if not words or words[0].text.upper() != "COPY":
        return None
    to = next((at for at in reversed(range(len(words))) if words[at].text.upper() == "TO"), 0)
    path = words[to + 1] if to + 1 < len(words) else None
    if to < 2 or path is None or path.token_type != TokenType.STRING:
        raise InvalidInputError(
            f"Cannot read COPY: expected COPY … TO and a path in quotes, found {shown(text)}.",
            hint="Write COPY flights TO 'flights.parquet', or COPY (SELECT …) TO 'flights.csv'.",
        )
    source = text[words[1].start : words[to].start].strip()
    query = source[1:-1] if words[1].text == "(" else f"SELECT * FROM {source}"  # noqa: S608 - parsed
    return Copy(query, path.text, _format_of(path.text, words[to + 2 :]))


def _format_of(path: str, options: list[Token]) -> str:
    said = [each.lower() for each in _texts(options) if each not in ("(", ")", ",", ";", "=")]
    said = [each for each in said if each not in ("with", "header", "true")]
    form = format_of_name(path) if not said else None
    if said[:1] == ["format"] and len(said) == 2:
        form = {"arrow": "ipc", "ndjson": "json"}.get(said[1], said[1])
    if form not in ENDINGS:
        what = "the ending of the path names no format" if not said else f"{' '.join(said)!r} is not known"
        raise InvalidInputError(
            f"Cannot write {shortened(path)}: {what}.",
            hint=f"Write (FORMAT csv) behind the path; formats are {', '.join(ENDINGS)}.",
        )
    return form


def _texts(words: Sequence[Token]) -> list[str]:
    return [word.text for word in words]
