"""Where code of ours ends in a Python worker of Spark: errors in one sentence, streams that may be cut off.

Spark shows what a worker raises with all lines that lead to it, where who runs a query looks for one. And a
query with a limit closes the connection to workers that still write, each of which prints a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, TextIO, TypeVar

from spark_pages.boundary import guard
from spark_pages.errors import InternalError, SparkPagesError

Kind = TypeVar("Kind")

_HIDE = "SPARK_HIDE_TRACEBACK"
"""Spark reads it where it writes down what a worker raised; the worker ends with that."""

_TRACEBACK = "Traceback (most recent call last)"
_NOT_FLUSHED = "PySpark daemon failed to flush"
_CLOSED = ("BrokenPipeError", "ConnectionResetError")


def worker_boundary(kind: type[Kind]) -> type[Kind]:
    """Wrap the methods of a class that Spark calls in workers; class methods stay as they are."""
    for name, member in list(vars(kind).items()):
        if (
            (name == "__init__" or not name.startswith("_"))
            and callable(member)
            and not isinstance(member, type)
        ):
            setattr(kind, name, _generator(member) if isgeneratorfunction(member) else _function(member))
    return kind


def _function(act: Callable[..., Any]) -> Callable[..., Any]:
    guarded = guard(act)

    @wraps(act)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _one_sentence():
            return guarded(*args, **kwargs)

    return call


def _generator(act: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @wraps(act)
    def produce(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with _one_sentence():
            if _in_worker() and not isinstance(sys.stderr, StderrWithoutBrokenPipes):
                sys.stderr = StderrWithoutBrokenPipes(sys.stderr)
            yield from act(*args, **kwargs)

    return produce


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Let Spark show an error of ours without what leads to it; a fault of ours keeps that."""
    try:
        yield
    except SparkPagesError as error:
        if _in_worker() and not isinstance(error, InternalError):
            os.environ[_HIDE] = "1"
        raise


class StderrWithoutBrokenPipes:
    """Stderr of a worker, without tracebacks that end with a connection that Spark has closed.

    Parameters
    ----------
    shown
        What stderr was.
    """

    def __init__(self, shown: TextIO) -> None:
        self._shown = shown
        self._held: list[str] | None = None

    def write(self, text: str) -> int:
        """Write the text, or hold it until its traceback tells by its last line what it is about."""
        if self._held is None and text.startswith(_TRACEBACK):
            self._held = []
        if self._held is None:
            if not (text.startswith(_NOT_FLUSHED) and any(each in text for each in _CLOSED)):
                self._shown.write(text)
        elif text:
            self._held.append(text)
            if not text.startswith((_TRACEBACK, " ")):
                held, self._held = self._held, None
                if not text.startswith(_CLOSED):
                    self._shown.write("".join(held))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)


def _in_worker() -> bool:
    """Whether Spark runs this process for its own code, and ends it after an error."""
    return "pyspark.worker_util" in sys.modules
