"""What Spark says when it fails: pages of Java, of which one line tells why. No pyspark here.

`spark_failing` makes errors of ours of it, wherever Spark is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile
from traceback import walk_tb

from spark_pages import errors
from spark_pages.errors import InvalidInputError, SparkFailedError, SparkPagesError

_CAUSE = re.compile(
    # Ends before the first line of a stack, which a tab begins; messages may have several lines.
    r"^(?:Caused by)?: (?P<kind>[\w.$]+(?:Exception|Error))(?:: (?P<message>.*?))?"
    r"(?=\n\t|\nCaused by: |\Z)",
    re.MULTILINE | re.DOTALL,
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)*)\]")
_FILE = re.compile(r"(?i)while reading file (\S+?)\.(?=\s|$)")
_STATE = re.compile(r"\s*SQLSTATE: (\w+)")

_ACCOUNT = re.compile(r"\n\n(?:JVM stacktrace:|== SQL)")
"""Where PySpark goes on behind the message of an error that it has taken apart."""

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


_WRONG_CALLS = {"AnalysisException", "IllegalArgumentException"}
"""Classes of PySpark, with those below them, for what is refused before anything runs."""

_TRACEBACK = "Traceback (most recent call last):\n"
_OURS = re.compile(rf"(?:^|: ){re.escape(errors.__name__)}\.(\w+): (.+)$", re.MULTILINE)
"""How a traceback ends where one of our errors was raised, and what a worker tells without one."""


@contextmanager
def spark_failing() -> Iterator[None]:
    """Convert Spark's exceptions in the block to errors of this package.

    Raises
    ------
    SparkPagesError
        The error of ours that an executor raised, or the planning of the data source.
    InvalidInputError
        If Spark refuses the call, or finds that rows are not what they were said to be.
    SparkFailedError
        Of any other failure: of an executor, of the JVM, of storage that Spark reads or writes.

    Notes
    -----
    The message is the innermost cause that says something; the rest is the cause of the error.
    """
    try:
        yield
    except SparkPagesError:
        raise
    except Exception as error:
        failed = our_error(error) or _failure_of(error)
        if failed is None:
            raise
        raise failed from error


def our_error(error: Exception) -> SparkPagesError | None:
    """Convert an exception to an error of this package, or return None.

    Spark wraps exceptions of executors as text.
    """
    if isinstance(error, SparkPagesError):
        return error
    for name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SparkPagesError):
            return kind(message)
    return None


def _failure_of(error: Exception) -> SparkPagesError | None:
    """Why Spark failed; None where it has no part in the error."""
    text = _ACCOUNT.split(str(error), maxsplit=1)[0].strip()
    causes = [(each["kind"], each["message"] or "") for each in _CAUSE.finditer(text)]
    if not (causes or _is_of_spark(error) or _condition(text)):
        return None
    causes = causes or [(type(error).__name__, text.partition("\n\tat ")[0])]
    conditions = [_condition(message) for _, message in causes]
    index = _telling(causes, conditions)
    kind, said = causes[index][0].rpartition(".")[2], causes[index][1]
    message = _in_one_line(said)
    if isinstance(error, ConnectionError) or kind == "Py4JNetworkError":
        message = f"The JVM of Spark does not answer, and has perhaps been killed: {kind}: {message}"
    elif conditions[index] is None and _TRACEBACK not in said:
        message = f"{kind}: {message}" if message else kind
    files = [file for _, each in causes for file in _FILE.findall(each) if file not in message]
    if files:
        message = f"Cannot read {files[-1]}: {message}"
    if not message.startswith("Cannot "):
        message = f"Cannot complete the work in Spark: {message}"
    message = f"{message.removesuffix('.')}."
    if _does_not_fit(conditions[index], said):
        return InvalidInputError(
            message, hint="Change the option, path or schema that it names, such as `option('header', True)`."
        )
    if _WRONG_CALLS.intersection(each.__name__ for each in type(error).__mro__) and _TRACEBACK not in text:
        return InvalidInputError(
            message, hint="Change the option, path or schema that it names, such as `option('header', True)`."
        )
    return SparkFailedError(
        message,
        hint="Repair what it names, and run it again; `spark-pages doctor URL` checks Java and Spark.",
    )


def _is_of_spark(error: Exception) -> bool:
    """Whether it is an error of PySpark's or Py4J's, or one of Python that was raised in them."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return any(each.startswith(("pyspark.", "py4j.")) for each in (type(error).__module__, *modules))


def _telling(causes: Sequence[tuple[str, str]], conditions: Sequence[str | None]) -> int:
    """Which cause says most: the innermost with a condition, or else with a message."""
    for indices in (
        [index for index, each in enumerate(conditions) if each not in (None, _SAYS_NOTHING)],
        [index for index, (_, message) in enumerate(causes) if message],
    ):
        if indices:
            return indices[-1]
    return len(causes) - 1


def _in_one_line(message: str) -> str:
    """Return the message without its state and without Python's traceback."""
    lines = _STATE.sub("", message).rpartition(_TRACEBACK)[2].splitlines()
    if _TRACEBACK in message:
        lines = list(dropwhile(lambda line: line.startswith(" "), lines))
    return " ".join(" ".join(lines).split())


def _condition(message: str) -> str | None:
    """Return Spark's name for the kind of error, with which its message begins."""
    found = _CONDITION.match(message)
    return found[1] if found else None


def _does_not_fit(condition: str | None, message: str) -> bool:
    state = _STATE.search(message)
    if condition is None or state is None:
        return message.startswith(_UNFIT_HEADER)
    return state[1].startswith(_DATA_EXCEPTION) or condition.startswith(_UNFIT)
