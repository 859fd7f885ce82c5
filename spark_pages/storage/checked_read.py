"""Reads whose answers are checked: one wrong answer of storage is read again before it is called damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spark_pages.errors import DamageError

Answer = TypeVar("Answer")


def read_checked(read: Callable[[], Answer]) -> Answer:
    """Read and check something; where the check fails, once more.

    Parameters
    ----------
    read
        Fetches bytes, checks them and returns what they hold. It must fetch anew at each call.

    Raises
    ------
    DamageError
        If the second answer is wrong too.

    Notes
    -----
    A proxy, a cache or a bad cable may have spoiled the first answer: the object itself can be right. Costs
    nothing where the first answer is right.
    """
    try:
        return read()
    except DamageError:
        return read()
