"""Boundary of the public API: exceptions of other libraries and of Python end here. Pure.

Arguments are validated where they come in, see `spark_pages.arguments`, with messages that name them. This
is the net below: what still comes from pyarrow, obstore, DuckDB, fastavro, pandas or Python itself becomes
an error of our tree. `TypeError` for unknown or missing parameters, `MemoryError`, warnings and exceptions
of the caller's own classes (of a data stream, or a token function) pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from spark_pages.errors import (
    DamageError,
    InternalError,
    InvalidInputError,
    InvalidKeyError,
    SparkPagesError,
    StorageError,
    UnsupportedFormatError,
)
from spark_pages.runtime import is_out_of_threads

Kind = TypeVar("Kind")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_logger = logging.getLogger(__name__)

_FOREIGN = frozenset(
    (
        "binascii", "builtins", "cryptography", "decimal", "duckdb", "_duckdb",
        "fastavro", "grpc", "json", "jwt", "lz4", "numpy", "obstore", "pandas", "polars", "pyarrow",
        "pyo3_runtime", "re", "socket", "sqlglot", "sqlglotc", "ssl", "struct", "tenacity", "zlib",
        "zoneinfo",
    )
)  # fmt: skip
_SECRETIVE = frozenset(("obstore", "pyo3_runtime"))
"""The texts of their errors hold addresses and answers of servers, in which secrets have been seen."""

_VERIFY = "Run `spark-pages verify URL`: it lists every fault, also of a store that cannot be opened."
"""The next step after damage that no narrower hint belongs to."""

_SPECIAL = frozenset(
    (
        "__init__",
        "__getitem__",
        "__len__",
        "__iter__",
        "__contains__",
        "__enter__",
        "__exit__",
        "__arrow_c_stream__",
    )
)
_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
_MOST_TEXT = 300


@contextmanager
def deferred_damage(url: str) -> Iterator[None]:
    """Log damage that opening a store meets, so that the faults can be listed; every read raises it again."""
    try:
        yield
    except UnsupportedFormatError:
        raise
    except (DamageError, InvalidKeyError) as damage:
        _logger.warning("The store at %s is damaged: %s %s", url, damage.message, damage.hint or _VERIFY)


def guard(act: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Wrap a public callable, so that it raises no exception of another library.

    Notes
    -----
    Costs some 60 ns a call; what is called a million times a second does without it.
    """
    what = act.__name__

    @wraps(act)
    def guarded_act(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return act(*args, **kwargs)
        except SparkPagesError as error:
            if type(error) is DamageError and error.hint is None:
                error.hint = _VERIFY
            raise
        except BaseException as error:
            if isinstance(error, TypeError) and not _binds(act, args, kwargs):
                raise  # unknown or missing parameters
            own = _translated(error, what)
            if own is None:
                raise
            cause = None if _root(error) in _SECRETIVE else error
        raise own from cause

    return guarded_act


def guarded(*unguarded: str) -> Callable[[type[Kind]], type[Kind]]:
    """Wrap all public methods and properties of a class by `guard`, but those named."""

    def wrap(kind: type[Kind]) -> type[Kind]:
        for name, member in list(vars(kind).items()):
            if name not in unguarded and (not name.startswith("_") or name in _SPECIAL):
                found = _guarded_member(member)
                if found is not member:
                    setattr(kind, name, found)
                    if isinstance(found, cached_property):
                        found.__set_name__(kind, name)
        return kind

    return wrap


def _guarded_member(member: Any) -> Any:
    match member:
        case property():
            return property(member.fget and guard(member.fget), member.fset, member.fdel, member.__doc__)
        case cached_property():
            return cached_property(guard(member.func))
        case classmethod() | staticmethod():
            return type(member)(guard(member.__func__))
        case _ if callable(member) and not isinstance(member, type):
            return guard(member)
    return member


def no_thread(what: str) -> StorageError:
    """Return the error of what could not be done for want of a thread, such as "listen at …"."""
    return StorageError(
        f"Cannot {what}: the system starts no more threads.",
        hint="Raise the limit of threads (`ulimit -u`, pids of the container), or use fewer at once.",
    )


def _binds(act: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the callable has these parameters."""
    try:
        signature(act).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _root(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _translated(error: BaseException, what: str) -> Exception | None:
    """Return our error for one of others; None where it passes."""
    root = _root(error)
    is_panic = root == "pyo3_runtime"  # of Rust, and no `Exception`
    if root not in _FOREIGN or isinstance(error, Warning) or not (isinstance(error, Exception) or is_panic):
        return None
    if isinstance(error, MemoryError):
        return None if type(error) is MemoryError else MemoryError(str(error))
    told = "" if root in _SECRETIVE else f": {_one_line(error)}"
    if isinstance(error, RecursionError):
        return InvalidInputError(
            f"Cannot complete {what}: an argument is nested too deep.",
            hint="Pass values of at most 64 levels, or split a long condition into several calls.",
        )
    if isinstance(error, UnicodeError):
        return InvalidInputError(
            f"Cannot complete {what}: it was given text that UTF-8 cannot express.",
            hint="Decode the bytes of that text with errors='replace' in place of 'surrogateescape'.",
        )
    if isinstance(error, _MISFITS):
        return InvalidInputError(
            f"Cannot complete {what}: {_one_line(error)}.",
            hint="Compare the types of the values given with `table.schema`.",
        )
    if isinstance(error, OSError):
        named = f" of {error.filename!r}" if error.filename is not None else ""
        return StorageError(
            f"Cannot complete {what}: {error.strerror or _one_line(error)}{named}.",
            hint="Check that the file or folder exists and that `ls -l` shows access to it, then call "
            f"{what} again.",
        )
    if isinstance(error, RuntimeError) and is_out_of_threads(error):
        return no_thread(f"complete {what}")
    return InternalError(
        f"Cannot complete {what}: {type(error).__module__}.{type(error).__qualname__}{told}.",
        hint="This is a fault of spark_pages: report it with this message and the output of `spark-pages "
        "doctor`.",
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


def public_names(of: object, internal: frozenset[str] = frozenset()) -> list[str]:
    """List the names of an object for `dir` and for completion: no private ones, and none of `internal`."""
    names = object.__dir__(of)
    return sorted(name for name in names if name[:2] == "__" or (name[0] != "_" and name not in internal))
