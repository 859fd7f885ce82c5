"""What clients ask, parsed once and strictly: everything that comes over the network is of unknown origin."""

from __future__ import annotations

import json
from typing import Any

from spark_pages.errors import InvalidInputError
from spark_pages.service.extents import NamedBytes
from spark_pages.service.responses import PieceName

MOST_NUMBER = (1 << 63) - 1
_MOST_TEXT = 4096
_MOST_LISTED = 4096


class ServiceRequest:
    """The fields of one question.

    Parameters
    ----------
    body
        A JSON object.
    most_bytes
        Longer questions are refused.

    Raises
    ------
    InvalidInputError
        Here if the body is no object, and by each method if its field is not what it must be.
    """

    def __init__(self, body: bytes, most_bytes: int) -> None:
        if len(body) > most_bytes:
            raise InvalidInputError(
                f"Cannot answer the call: its request has {len(body)} bytes, expected at most {most_bytes}.",
                hint=f"Ask for fewer things at once: at most {most_bytes} bytes describe them.",
            )
        try:
            value = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise InvalidInputError(
                "Cannot read the request: it is no JSON.",
                hint='Send an object of JSON, such as {"db": "default", "table": "t"}; see docs/service.md.',
            ) from None
        if not isinstance(value, dict):
            raise InvalidInputError(
                f"Cannot read the request: expected an object of JSON, found a {type(value).__name__}.",
                hint='Send an object such as {"db": "default", "table": "t"}; see docs/service.md.',
            )
        self._fields: dict[str, Any] = value

    def text(self, name: str) -> str:
        """Return a text that is not empty."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= _MOST_TEXT:
            raise InvalidInputError(
                f"Cannot read the request: {name!r} is missing, or no text of 1 to {_MOST_TEXT} characters.",
                hint=f"Send {name!r} as text of 1 to {_MOST_TEXT} characters.",
            )
        return value

    def number(self, name: str) -> int:
        """Return a number from 0 that fits 63 bits."""
        return _number(self._fields.get(name), f"{name!r}")

    def perhaps_number(self, name: str) -> int | None:
        """Return a number from 0 that fits 63 bits, or None."""
        return None if self._fields.get(name) is None else self.number(name)

    def perhaps_text(self, name: str) -> str | None:
        """Return a text, or None."""
        return None if self._fields.get(name) is None else self.text(name)

    def piece(self) -> PieceName:
        """Return the field ``piece``."""
        return _piece(self._fields.get("piece"))

    def named_bytes(self) -> NamedBytes:
        """Return the fields ``path``, ``ranges``, ``pieces`` and ``blooms``."""
        ranges = tuple(_range(each) for each in self._list("ranges"))
        pieces = tuple(_piece(each) for each in self._list("pieces"))
        return NamedBytes(self.text("path"), ranges, pieces, self._fields.get("blooms") is True)

    def _list(self, name: str) -> list[Any]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not 0 < len(value) <= _MOST_LISTED:
            raise InvalidInputError(
                f"Cannot read the request: {name!r} is missing, or no list of 1 to {_MOST_LISTED} things.",
                hint=f"Send {name!r} as a list of 1 to {_MOST_LISTED} things.",
            )
        return value


def piece_to_plain(name: PieceName) -> list[Any]:
    """Convert the name of a piece to plain values."""
    return [name.field_id, name.digest, name.part, name.commit, name.nth]


def _number(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_NUMBER:
        raise InvalidInputError(
            f"Cannot read the request: it needs {what}, a number from 0 to {MOST_NUMBER}.",
            hint=f"Send {what} as a number from 0 to {MOST_NUMBER}.",
        )
    return value


def _range(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidInputError(
            "Cannot read the request: a range is not a list of offset and length.",
            hint="Send a range as [0, 4096], for example.",
        )
    offset, length = _number(value[0], "an offset"), _number(value[1], "a length")
    if offset + length > MOST_NUMBER:
        raise InvalidInputError(
            "Cannot read the request: a range ends behind what 63 bits can count.",
            hint=f"Send a range whose end is at most {MOST_NUMBER}.",
        )
    return offset, length


def _piece(value: Any) -> PieceName:
    match value:
        case [int(field_id), str(digest), str(part), int(commit), int(nth)] if (
            not any(isinstance(each, bool) for each in value)
            and max(len(digest), len(part)) <= 128
            and -1 <= commit <= MOST_NUMBER
            and min(field_id, nth) >= 0
            and max(field_id, nth) <= MOST_NUMBER
        ):
            return PieceName(field_id, digest, part, commit, nth)
    raise InvalidInputError(
        "Cannot read the request: a piece is not a list of field id, digest, part, commit and number.",
        hint='Send a piece as the service listed it, such as [1, "digest", "", -1, 0].',
    )
