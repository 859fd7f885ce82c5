"""What Spark says when it fails: pages of Java, of which one line tells why. No pyspark here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_pages.errors import InvalidInputError

_CAUSE = re.compile(
    # Ends before the first line of a stack, which a tab begins; messages may have several lines.
    r"^(?:Caused by)?: (?P<kind>[\w.$]+(?:Exception|Error))(?:: (?P<message>.*?))?"
    r"(?=\n\t|\nCaused by: |\Z)",
    re.MULTILINE | re.DOTALL,
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)*)\]")
_FILE = re.compile(r"(?i)while reading file (\S+?)\.(?=\s|$)")
_STATE = re.compile(r"\s*SQLSTATE: (\w+)")

_SAYS_NOTHING = "FAILED_READ_FILE.NO_HINT"
"""That a file cannot be read, and not why; but it names the file."""

_DATA_EXCEPTION = "22"
"""Class of the SQL states of values that are not what they should be."""

_UNFIT = (
    "CANNOT_MERGE_SCHEMAS",
    "DATATYPE_MISMATCH",
    "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
    "FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH",
    "PARQUET_TYPE_ILLEGAL",
)
"""Conditions of other classes that say so too: files of another format or with other types."""

_UNFIT_HEADER = "CSV header does not conform to the schema"
"""The one of these that Spark raises without a condition."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why Spark failed.

    Attributes
    ----------
    kind
        Of the exception in Java, without its package.
    message
        What it says, in one line, behind the file that was read if that is known.
    rows_do_not_fit
        Whether what was read is not what it was said to be; else Spark, or what runs it, is the matter.
    """

    kind: str
    message: str
    rows_do_not_fit: bool


def why_spark_failed(error: BaseException) -> Failure | None:
    """The innermost cause that says something, or None where Spark has no part in the error."""
    text = str(error).partition("\n\nJVM stacktrace:")[0]
    causes = [(each["kind"], each["message"] or "") for each in _CAUSE.finditer(text)]
    if not causes and _condition(text) is None:
        return None
    causes = causes or [(type(error).__name__, text)]  # one that PySpark has taken apart already
    conditions = [_condition(message) for _, message in causes]
    telling = [index for index, each in enumerate(conditions) if each not in (None, _SAYS_NOTHING)]
    index = telling[-1] if telling else len(causes) - 1
    kind, said = causes[index][0].rpartition(".")[2], causes[index][1]
    message = " ".join(_without_traceback(_STATE.sub("", said)).split())
    if conditions[index] is None:
        message = f"{kind}: {message}" if message else kind
    files = [file for _, each in causes for file in _FILE.findall(each) if file not in message]
    return Failure(
        kind,
        f"Cannot read {files[-1]}: {message}" if files else message,
        _does_not_fit(conditions[index], said),
    )


@contextmanager
def reading_rows() -> Iterator[None]:
    """Rows that are not what they were said to be are wrong input, also where Spark finds it out.

    Raises
    ------
    InvalidInputError
        In place of the failure of Spark that says so.
    """
    try:
        yield
    except Exception as error:
        failed = why_spark_failed(error)
        if failed is None or not failed.rows_do_not_fit:
            raise
        raise InvalidInputError(
            failed.message, hint="Mend the rows, or give the schema and the options that they have."
        ) from error


def _without_traceback(message: str) -> str:
    """What Python raised in an executor, of the lines that lead to it."""
    if "Traceback (most recent call last)" not in message:
        return message
    return message.rstrip().splitlines()[-1]


def _condition(message: str) -> str | None:
    """The name that Spark gives to a kind of error, with which its message begins."""
    found = _CONDITION.match(message)
    return found[1] if found else None


def _does_not_fit(condition: str | None, message: str) -> bool:
    state = _STATE.search(message)
    if condition is None or state is None:
        return message.startswith(_UNFIT_HEADER)
    return state[1].startswith(_DATA_EXCEPTION) or condition.startswith(_UNFIT)
