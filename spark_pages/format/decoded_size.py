"""What Avro values would take in memory once they are decoded, found without decoding them. Pure.

An empty map is one byte in Avro and a hundred in Python, so an object of the size that the format allows may
decode to gigabytes. Announced items count before one of them is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TEXT_BYTES = 64
_MAP_BYTES = 96
_RECORD_BYTES = 320
_FIELD_BYTES = 64
"""What Python keeps for a value, and for what is made of it; small numbers and empty texts take less."""

_LONGEST_NUMBER = 10
_Skip = Callable[["_Walk"], None]


class TooManyItemsError(ValueError):
    """Raised for values that would take too much memory once they are decoded."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            f"it holds so many items that they would take more than {most_bytes} bytes of memory"
        )


class _Walk:
    """A position in the data, and how much may still be decoded."""

    __slots__ = ("data", "left", "most", "position")

    def __init__(self, data: bytes, position: int, most_bytes: int) -> None:
        self.data = data
        self.position = position
        self.left = self.most = most_bytes

    def spend(self, size_bytes: int) -> None:
        self.left -= size_bytes
        if self.left < 0:
            raise TooManyItemsError(self.most)

    def number(self) -> int:
        number = shift = 0
        end = self.position + _LONGEST_NUMBER
        for position in range(self.position, end):
            byte = self.data[position]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position + 1
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise ValueError(f"no number at byte {self.position}")

    def items(self) -> int:
        count = self.number()
        if count < 0:  # followed by the size of the block in bytes
            self.number()
        return abs(count)


def check_decoded_size(data: bytes, position: int, schema: Any, count: int, most_bytes: int) -> None:
    """Refuse Avro values that would take too much memory.

    Parameters
    ----------
    position
        Where the first of `count` values begins.
    schema
        A trusted one, that does not refer to itself.

    Raises
    ------
    TooManyItemsError
        If they would take more than `most_bytes`.
    ValueError
        If they end behind the data.

    Notes
    -----
    Some 0.3 µs for each field.
    """
    walk = _Walk(data, position, most_bytes)
    _, skip = _skipper(schema, {})
    try:
        for _ in range(count):
            skip(walk)
    except IndexError:
        raise ValueError("a value ends behind the data") from None


def _skipper(schema: Any, named: dict[str, tuple[int, _Skip]]) -> tuple[int, _Skip]:
    """What the smallest value of a type takes in memory, and a function that skips one.

    Parameters
    ----------
    named
        Records met before, by name.
    """
    if isinstance(schema, list):
        return _union([_skipper(each, named) for each in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in named:
        return named[kind]
    if kind == "record":
        found = _record([_skipper(field["type"], named) for field in schema["fields"]])
        named[schema["name"]] = found
        return found
    if kind == "array":
        return _array(*_skipper(schema["items"], named))
    if kind == "map":
        return _map(*_skipper(schema["values"], named))
    return _PLAIN[kind]


def _skip_nothing(_: _Walk) -> None:
    pass


def _skip_flag(walk: _Walk) -> None:
    walk.position += 1


def _skip_number(walk: _Walk) -> None:
    walk.number()


def _skip_bytes(walk: _Walk) -> None:
    length = walk.number()
    end = walk.position + length
    if length < 0 or end > len(walk.data):
        raise ValueError(f"{length} bytes announced at byte {walk.position}")
    walk.spend(length)
    walk.position = end


_PLAIN: dict[str, tuple[int, _Skip]] = {
    "null": (0, _skip_nothing),
    "boolean": (0, _skip_flag),
    "int": (32, _skip_number),
    "long": (32, _skip_number),
    "string": (_TEXT_BYTES, _skip_bytes),
    "bytes": (_TEXT_BYTES, _skip_bytes),
}


def _union(branches: list[tuple[int, _Skip]]) -> tuple[int, _Skip]:
    def skip(walk: _Walk) -> None:
        size, branch = branches[walk.number()]
        walk.spend(size)
        branch(walk)

    return 0, skip


def _record(fields: list[tuple[int, _Skip]]) -> tuple[int, _Skip]:
    skips = [skip for _, skip in fields]

    def skip_all(walk: _Walk) -> None:
        for skip in skips:
            skip(walk)

    return _RECORD_BYTES + _FIELD_BYTES * len(fields), skip_all


def _array(size: int, skip: _Skip) -> tuple[int, _Skip]:
    def skip_items(walk: _Walk) -> None:
        while count := walk.items():
            walk.spend(count * (size + 8))
            for _ in range(count):
                skip(walk)

    return _MAP_BYTES, skip_items


def _map(size: int, skip: _Skip) -> tuple[int, _Skip]:
    def skip_items(walk: _Walk) -> None:
        while count := walk.items():
            walk.spend(count * (size + _TEXT_BYTES + _FIELD_BYTES))
            for _ in range(count):
                _skip_bytes(walk)
                skip(walk)

    return _MAP_BYTES, skip_items
