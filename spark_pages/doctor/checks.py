"""The result of one check, and of all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    name
        What was looked at.
    status
        How it went.
    found
        What was found, without secrets.
    remedy
        What to do; empty where nothing is to do.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name, Status.OK, found)


def warning(name: str, found: str, remedy: str) -> Check:
    """Create a check that passed, or of which only an optional part failed."""
    return Check(name, Status.WARNING, found, remedy)


def failed(name: str, found: str, remedy: str) -> Check:
    """Create a check that rules out a store."""
    return Check(name, Status.FAILED, found, remedy)
