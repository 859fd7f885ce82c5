"""What callers give, held against what it has to be before anything is done with it. Pure."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spark_pages.errors import InvalidInputError

Kind = TypeVar("Kind")

_SHOWN = 60


def as_whole(value: object, what: str, expected: str = "a whole number") -> int:
    """The value as a Python number.

    Parameters
    ----------
    what, expected
        The parameter, and what it has to be, for the message.

    Raises
    ------
    InvalidInputError
        If it is something else: text and fractions are never taken for a number.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise InvalidInputError(f"{what} is {_shown(value)}: expected {expected}.")


def as_text(value: object, what: str) -> str:
    """The value, which is text.

    Raises
    ------
    InvalidInputError
        If it is something else.
    """
    check_kind(value, str, what, "text")
    return cast(str, value)


def as_names(value: object, what: str) -> list[str]:
    """Several names, in order.

    Raises
    ------
    InvalidInputError
        If they are something else; a single name is no list of its letters.
    """
    if isinstance(value, str):
        raise InvalidInputError(
            f"{what} is the text {value!r}: expected a list of names, such as [{value!r}]."
        )
    return [as_text(each, f"A name in {what}") for each in as_list(value, object, what, "names")]


def as_list(value: object, kind: type[Kind] | UnionType, what: str, expected: str) -> list[Kind]:
    """Several values of one type, in order.

    Parameters
    ----------
    expected
        What they are, in words.

    Raises
    ------
    InvalidInputError
        If they are no list, or one of them is something else.
    """
    check_kind(value, Iterable, what, f"a list of {expected}")
    found = list(cast("Iterable[Kind]", value))
    for each in found:
        if not isinstance(each, kind):
            check_kind(each, kind, f"A value in {what}", f"one of {expected}")
    return found


def check_kind(value: object, kind: type | UnionType, what: str, expected: str) -> None:
    """Nothing, if it is of this type.

    Parameters
    ----------
    expected
        The type in words.

    Raises
    ------
    InvalidInputError
        If it is not.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{what} is {_shown(value)}: expected {expected}.")


def check_texts(value: object, what: str, removable: bool = False) -> None:
    """Nothing, if it is texts by name.

    Parameters
    ----------
    removable
        Whether None may stand for a text, to say that there is to be none.

    Raises
    ------
    InvalidInputError
        If it is something else.
    """
    check_kind(value, Mapping, what, "texts by name")
    for name, each in cast(Mapping[object, object], value).items():
        as_text(name, f"A name in {what}")
        if each is not None or not removable:
            as_text(each, f"{name!r} in {what}")


def check_names_once(names: Iterable[str], what: str) -> None:
    """Nothing, if no name is there twice.

    Parameters
    ----------
    what
        What cannot be done otherwise, for the message: "append to 'flights'".

    Raises
    ------
    InvalidInputError
        Tells the first that is.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"Cannot {what}: two of the columns given have the name {name!r}.")
        seen.add(name)


def number_list(values: ArrayLike) -> NDArray[Any]:
    """The rows that a caller names as an array, of whatever type and shape it is.

    Raises
    ------
    InvalidInputError
        If it is none at all, such as lists of several lengths, or some of it is masked.
    """
    if np.ma.is_masked(values):
        raise InvalidInputError("rows is a masked array: expected whole numbers, found some that are masked.")
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"rows is {_shown(values)}: expected a list of whole numbers.") from error


def _shown(value: object) -> str:
    """On one line, cut where it is long, and of which type it is."""
    shown = " ".join(repr(value).split())
    return f"{shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + '…'} ({type(value).__name__})"
